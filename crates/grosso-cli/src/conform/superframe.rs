//! The packets that a record stands for.

use grosso::{
    Meta,
    checksum::{Checksum, complete},
    meta::{Cwr, IpLevels},
    segment::{Outgoing, Segments},
    vnet,
};
use grosso_wire::{
    LinkType, Ports, dissect,
    virtio::{FLAG_DATA_VALID, FLAG_NEEDS_CHECKSUM, Form, Order, VirtioHeader},
};

use super::framing::Framed;

/// The meaning of a record.
pub(crate) struct Heard {
    /// The packets by every reading of the header, which has no words for identifications that stay, nor for CWR on
    /// every packet. There is one at least.
    pub(crate) readings: Vec<Vec<Vec<u8>>>,
    /// Whether it says that the checksum was verified.
    pub(crate) vouches: bool,
}

/// Reads a record.
///
/// # Errors
/// The contradiction in it, as a sentence.
pub(crate) fn read(record: &Framed) -> Result<Heard, String> {
    let frame = &record.frame;
    let (header, _) = VirtioHeader::parse(&record.header, Form::Short, Order::Little)
        .map_err(|error| error.to_string())?;
    let stack = dissect(frame, LINK, &PORTS);
    let meta = vnet::understand(&header, frame, LINK, &stack, Form::Short)
        .map_err(|error| error.sentence().to_owned())?;
    let vouches = header.has(FLAG_DATA_VALID) && !header.has(FLAG_NEEDS_CHECKSUM);
    let readings = match meta.gso {
        None => vec![vec![completed(frame, &meta)?]],
        Some(_) => readings(meta).map(|meta| cut(frame, &meta)).collect::<Result<_, _>>()?,
    };
    Ok(Heard { readings, vouches })
}

/// The packet with a complete checksum.
fn completed(frame: &[u8], meta: &Meta) -> Result<Vec<u8>, String> {
    let mut packet = frame.to_vec();
    if let Checksum::Partial { start, offset } = meta.checksum {
        complete(&mut packet, start, offset).map_err(|error| error.to_string())?;
    }
    Ok(packet)
}

/// The metadata of a superframe in every sense that its header may have.
fn readings(meta: Meta) -> impl Iterator<Item = Meta> {
    (0..1 << IP_LEVELS).flat_map(move |fixed| {
        [Cwr::First, Cwr::Every].into_iter().map(move |cwr| {
            let mut meta = meta;
            if let Some(gso) = &mut meta.gso {
                (gso.fixed_ids, gso.cwr) = (IpLevels::from_bits(fixed), cwr);
            }
            meta
        })
    })
}

fn cut(frame: &[u8], meta: &Meta) -> Result<Vec<Vec<u8>>, String> {
    let slices = [frame];
    let mut segments = Segments::new(&slices, meta, LINK, &PORTS, Outgoing::default())
        .map_err(|error| error.to_string())?;
    let mut buffer = vec![0; segments.packet_len_max()];
    let mut packets = Vec::new();
    while let Some(segment) = segments.write_next(&mut buffer).map_err(|error| error.to_string())? {
        packets.push(buffer[..segment.len()].to_vec());
    }
    Ok(packets)
}

/// The link type of every vector.
pub(super) const LINK: LinkType = LinkType::Ethernet;
/// The tunnel ports of every vector.
pub(super) const PORTS: Ports = Ports::ASSIGNED;
/// IP headers of a packet of the vectors at most.
const IP_LEVELS: u32 = 2;
