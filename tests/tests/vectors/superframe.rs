//! Converts the engine's metadata of a superframe to JSON and back.

use core::num::NonZeroU16;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, IpLevels},
};
use grosso_testkit::oracle::{Lengths, Link, parse};
use grosso_wire::virtio::{
    FLAG_NEEDS_CHECKSUM, Form, GSO_ECN, GSO_TCP_IPV4, GSO_TCP_IPV6, GSO_UDP_SEGMENTS, HEADER_LEN,
    Order, VirtioHeader,
};
use serde::Serialize;
use serde_json::Value;

/// The metadata that is needed to segment a superframe.
#[derive(Debug, Serialize)]
pub(crate) struct Description {
    /// Payload bytes of every packet but the last.
    segment_bytes: u16,
    segments: u16,
    /// Numbers of the IP headers whose identification is the same in all packets. The outermost header has number 0.
    fixed_ids: Vec<usize>,
    /// Packets that have CWR if the superframe does: `first` or `every`.
    cwr: &'static str,
    checksum_start: u16,
    checksum_offset: u16,
    /// The 10 bytes of `virtio_net_hdr`, little-endian, in hexadecimal.
    virtio: String,
}

impl Description {
    pub(crate) fn of(frame: &[u8], meta: &Meta) -> Self {
        let gso = meta.gso.expect("a superframe");
        let GsoSize::Every(size) = gso.size else { panic!("equal segments") };
        let Checksum::Partial { start, offset } = meta.checksum else {
            panic!("a partial checksum")
        };
        let cwr = if gso.cwr == Cwr::Every { "every" } else { "first" };
        Self {
            segment_bytes: size.get(),
            segments: gso.segments,
            fixed_ids: (0..8).filter(|level| gso.fixed_ids.bits() >> level & 1 == 1).collect(),
            cwr,
            checksum_start: start,
            checksum_offset: offset,
            virtio: hex(&virtio(frame, meta)),
        }
    }

    /// Returns the metadata that an independent reader derives from the description.
    pub(crate) fn meta(description: &Value) -> Meta {
        let number = |name: &str| description[name].as_u64().expect("a number") as u16;
        let fixed = description["fixed_ids"].as_array().expect("a list");
        let levels = fixed.iter().map(|level| 1 << level.as_u64().expect("a level"));
        let gso = Gso {
            size: GsoSize::Every(NonZeroU16::new(number("segment_bytes")).expect("a size")),
            segments: number("segments"),
            fixed_ids: IpLevels::from_bits(levels.sum()),
            cwr: if description["cwr"] == "every" { Cwr::Every } else { Cwr::First },
            partial_members: false,
            untrusted: false,
        };
        let (start, offset) = (number("checksum_start"), number("checksum_offset"));
        Meta { checksum: Checksum::Partial { start, offset }, gso: Some(gso), ..Meta::default() }
    }
}

/// Returns the header for a device. It is derived from the headers of the frame, not by the engine. For a tunnel, it
/// contains only the start of the innermost checksum.
fn virtio(frame: &[u8], meta: &Meta) -> [u8; HEADER_LEN] {
    let gso = meta.gso.expect("a superframe");
    let parsed = parse(frame, Link::Ethernet, Lengths::Whole);
    let transport = parsed.last().expect("a transport header");
    let network = parsed.layers.iter().rfind(|layer| layer.is_ip()).expect("an IP header");
    let gso_type = match (transport.name, network.name) {
        ("udp", _) => GSO_UDP_SEGMENTS,
        (_, "ipv4") => GSO_TCP_IPV4,
        _ => GSO_TCP_IPV6,
    };
    let has_cwr = transport.name == "tcp" && transport.number("offset_flags") & 0x80 != 0;
    let ecn = if has_cwr && gso.cwr == Cwr::First { GSO_ECN } else { 0 };
    let header = VirtioHeader {
        flags: FLAG_NEEDS_CHECKSUM,
        gso_type: gso_type | ecn,
        header_length: transport.inside() as u16,
        gso_size: gso.size().expect("a size"),
        checksum_start: transport.offset as u16,
        checksum_offset: if transport.name == "tcp" { 16 } else { 6 },
        ..VirtioHeader::default()
    };
    let mut bytes = [0; HEADER_LEN];
    header.emit(Form::Short, Order::Little, &mut bytes).expect("room");
    bytes
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}
