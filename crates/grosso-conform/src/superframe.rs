//! Determines which packets a record contains.

use grosso::{
    Meta,
    checksum::{Checksum, complete, make_partial},
    meta::{Cwr, IpLevels},
    segment::{Outgoing, Segments},
    vnet,
};
use grosso_checksum::Sum;
use grosso_wire::{
    Cover, Law, LinkType, Ports, Stack, dissect,
    virtio::{FLAG_DATA_VALID, FLAG_NEEDS_CHECKSUM, Form, Order, VirtioHeader},
};

use super::framing::Framed;

/// All possible interpretations of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperframeReadings {
    /// Packets for each possible interpretation of the header, of which there is at least one. The header does not say
    /// whether IP IDs are constant, or whether every packet has CWR set.
    pub readings: Vec<Vec<Vec<u8>>>,
    /// Whether the record marks the checksum as verified.
    pub vouches: bool,
}

/// Contradiction in a record, as a sentence, with the rule that it violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsound {
    /// Rule that was violated.
    pub rule: &'static str,
    /// Description of the contradiction.
    pub text: String,
}

/// Most contradictions are between the header and the frame.
impl From<String> for Unsound {
    fn from(text: String) -> Self {
        Self { rule: "G52", text }
    }
}

/// Interprets a record.
///
/// # Errors
///
/// Returns the contradiction if the header does not describe the frame.
pub fn read(record: &Framed) -> Result<SuperframeReadings, Unsound> {
    let frame = &record.frame;
    let (header, _) = VirtioHeader::parse(&record.header, Form::Short, Order::Little)
        .map_err(|error| error.to_string())?;
    let stack = dissect(frame, LINK, &PORTS);
    let meta = vnet::understand(&header, frame, LINK, &stack, Form::Short)
        .map_err(|error| error.sentence().to_owned())?;
    let vouches = header.has(FLAG_DATA_VALID) && !header.has(FLAG_NEEDS_CHECKSUM);
    let readings = match meta.gso {
        None => vec![vec![completed(frame, &meta)?]],
        Some(gso) if gso.segments > SEGMENTS_MAX => {
            let text = format!(
                "the superframe contains {} packets, many more than the program received",
                gso.segments
            );
            return Err(Unsound { rule: "G54", text });
        }
        Some(_) => {
            sound(frame, &stack, &meta)?;
            readings(meta).map(|meta| cut(frame, &meta)).collect::<Result<_, _>>()?
        }
    };
    Ok(SuperframeReadings { readings, vouches })
}

/// Checks the fields that segmentation overwrites but on which a receiver of the whole superframe relies: lengths, IP
/// header checksums, and the pseudo-header sum.
fn sound(frame: &[u8], stack: &Stack, meta: &Meta) -> Result<(), Unsound> {
    for layer in stack.layers() {
        let (spec, start) = (layer.kind.spec(), usize::from(layer.offset));
        for field in spec.layout(frame.get(start..).unwrap_or_default()).fields {
            let place = start + field.bytes.start..start + field.bytes.end;
            let (Some(bytes), Some(header)) = (frame.get(place), frame.get(start..layer.end()))
            else {
                continue;
            };
            let said = bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
            let is_right = match field.law {
                Law::Length { skip } => said == frame.len().saturating_sub(start + skip),
                Law::Checksum(Cover::Header) => Sum::of(header).is_valid(),
                _ => true,
            };
            if !is_right {
                let text = format!(
                    "{} {} is {said}, which does not match the superframe",
                    spec.name, field.name
                );
                return Err(Unsound { rule: "G50", text });
            }
        }
    }
    let Checksum::Partial { start, offset } = meta.checksum else {
        let text = "the checksum of the superframe is not partial".to_owned();
        return Err(Unsound { rule: "G51", text });
    };
    let mut seeded = frame.to_vec();
    // Some header types have no pseudo-header sum.
    if make_partial(&mut seeded, stack) != Checksum::None && seeded != frame {
        let at = usize::from(start) + usize::from(offset);
        let [is, should] = [frame, &seeded].map(|bytes| {
            bytes.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
        });
        let text =
            format!("the checksum field is {is:#06x}, but the pseudo-header sum is {should:#06x}");
        return Err(Unsound { rule: "G51", text });
    }
    Ok(())
}

/// Returns the packet with its checksum completed.
fn completed(frame: &[u8], meta: &Meta) -> Result<Vec<u8>, String> {
    let mut packet = frame.to_vec();
    if let Checksum::Partial { start, offset } = meta.checksum {
        complete(&mut packet, start, offset).map_err(|error| error.to_string())?;
    }
    Ok(packet)
}

/// Returns the metadata of a superframe, once for each interpretation of its header.
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

/// Link type of every vector.
pub(crate) const LINK: LinkType = LinkType::Ethernet;
/// Tunnel ports of every vector.
pub(crate) const PORTS: Ports = Ports::ASSIGNED;
/// Maximum number of segments that are checked in a superframe: several times as many as in any vector.
const SEGMENTS_MAX: u16 = 512;
/// Maximum number of IP headers in a packet from the vectors.
const IP_LEVELS: u32 = 2;
