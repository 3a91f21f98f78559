//! Ways in which a packet can differ from what its train expects.

use crate::Packet;
use crate::headers::{
    Checksum, Extension, Fragment, Geneve, Gre, Gue, Header, Ipv4, Ipv6, L2tp, Mpls, Nsh, Pppoe,
    Tcp, Udp, Vlan, Vxlan,
};
use crate::random::Random;

use super::Sender;

/// One kind of deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// One field in one header differs; all checksums are correct.
    Field,
    /// One checksum is wrong.
    Checksum,
    /// One bit of the frame is flipped; checksums are not updated.
    Bit,
    /// One TCP flag differs.
    Flag,
    /// A packet without payload whose acknowledgment number advances.
    PureAck,
    /// A packet that was sent before.
    Retransmission,
    /// Two packets in the wrong order.
    Reorder,
    /// Data is missing before the packet.
    Gap,
    /// The payload is shorter.
    Shorter,
    /// The payload is longer.
    Longer,
    /// Padding to 60 bytes, which no length field includes.
    Padding,
    /// A trailer that no length field includes.
    Trailer,
    /// IPv4 options.
    Options,
    /// An IPv6 extension header that is missing in the other packets.
    Extension,
    /// The packet is a fragment, possibly an atomic one.
    Fragment,
    /// The frame is truncated.
    Truncation,
    /// Random bytes.
    Garbage,
    /// An EtherType that is not IP.
    NotIp,
}

impl Deviation {
    /// All kinds of deviations.
    pub const ALL: &[Self] = &[
        Self::Field,
        Self::Checksum,
        Self::Bit,
        Self::Flag,
        Self::PureAck,
        Self::Retransmission,
        Self::Reorder,
        Self::Gap,
        Self::Shorter,
        Self::Longer,
        Self::Padding,
        Self::Trailer,
        Self::Options,
        Self::Extension,
        Self::Fragment,
        Self::Truncation,
        Self::Garbage,
        Self::NotIp,
    ];
}

/// Returns one or two frames with this deviation.
pub(super) fn frames(
    deviation: Deviation,
    sender: &mut Sender,
    random: &mut Random,
) -> Vec<Vec<u8>> {
    match deviation {
        Deviation::Retransmission if !sender.last.is_empty() => vec![sender.last.clone()],
        Deviation::Retransmission => Vec::new(),
        Deviation::Reorder => {
            let (first, second) = (sender.next(random).build(), sender.next(random).build());
            vec![second, first]
        }
        Deviation::Gap => {
            sender.send(random.within(1, sender.segment));
            vec![sender.next(random).build()]
        }
        Deviation::Garbage => {
            let len = random.within(0, 120);
            vec![random.bytes(len)]
        }
        Deviation::PureAck => {
            sender.place.ack = sender.place.ack.wrapping_add(random.below(3000) as u32);
            vec![sender.send(0).build()]
        }
        Deviation::Shorter => vec![sender.send(random.below(sender.segment)).build()],
        Deviation::Longer => vec![sender.send(sender.segment + random.within(1, 60)).build()],
        _ => vec![changed(deviation, sender, random)],
    }
}

/// Returns the next packet with this deviation.
fn changed(deviation: Deviation, sender: &mut Sender, random: &mut Random) -> Vec<u8> {
    let is_tcp = sender.is_tcp();
    let mut packet = sender.next(random);
    match deviation {
        Deviation::Field => field(&mut packet, random),
        Deviation::Checksum => checksum(&mut packet, random),
        Deviation::Flag if is_tcp => {
            if let Some(tcp) = packet.tcp_mut() {
                tcp.flags ^= 1 << random.below(12);
            }
        }
        Deviation::Padding => packet = packet.pad_to(60),
        Deviation::Trailer => {
            let len = random.within(1, 8);
            packet = packet.trailer(&random.bytes(len));
        }
        Deviation::Options => options(&mut packet, random),
        Deviation::Extension => extend(&mut packet, random),
        Deviation::Fragment => fragment(&mut packet, random),
        Deviation::NotIp => not_ip(&mut packet, random),
        _ => {}
    }
    let mut frame = packet.build();
    match deviation {
        Deviation::Truncation => frame.truncate(random.below(frame.len())),
        Deviation::Bit => {
            let bit = random.below(frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        _ => {}
    }
    frame
}

/// Makes one checksum wrong.
fn checksum(packet: &mut Packet, random: &mut Random) {
    let bits = 1 << random.below(16);
    let mut fields: Vec<&mut Checksum> = packet
        .headers
        .iter_mut()
        .filter_map(|header| match header {
            Header::Ipv4(header) => Some(&mut header.checksum),
            Header::Tcp(header) => Some(&mut header.checksum),
            // A UDP header without a checksum cannot have a wrong checksum.
            Header::Udp(header) if header.checksum == Checksum::Right => Some(&mut header.checksum),
            Header::Icmp(header) => Some(&mut header.checksum),
            Header::Gre(header) if header.with_checksum => Some(&mut header.checksum),
            _ => None,
        })
        .collect();
    if !fields.is_empty() {
        let index = random.below(fields.len());
        *fields[index] = Checksum::Xor(bits);
    }
}

/// Adds options to one IPv4 header.
fn options(packet: &mut Packet, random: &mut Random) {
    let index = random.below(packet.headers.len());
    let place = packet.headers[index..].iter().position(|header| matches!(header, Header::Ipv4(_)));
    if let Some(Header::Ipv4(ip)) = place.map(|offset| &mut packet.headers[index + offset]) {
        // A record route option with space for one address, then end-of-options.
        ip.options = vec![7, 7, 4, 0, 0, 0, 0, 0];
    }
}

/// Adds destination options to one IPv6 header.
fn extend(packet: &mut Packet, random: &mut Random) {
    let index = random.below(packet.headers.len());
    let place = packet.headers[index..].iter().position(|header| matches!(header, Header::Ipv6(_)));
    if let Some(offset) = place {
        packet.headers.insert(index + offset + 1, Header::Extension(Extension::new(60)));
    }
}

/// Turns one IP header into the header of a fragment.
fn fragment(packet: &mut Packet, random: &mut Random) {
    let first = random.below(packet.headers.len());
    let place = packet.headers[first..].iter().position(|header| header.addresses().is_some());
    let Some(index) = place.map(|offset| first + offset) else { return };
    let (more, offset) = *random.choose(&[(true, 0), (true, 185), (false, 185), (false, 0)]);
    if let Header::Ipv4(ip) = &mut packet.headers[index] {
        (ip.more_fragments, ip.fragment_offset, ip.df) = (more, offset, false);
    } else {
        let header = Fragment::new().id(random.bits() as u32).offset(offset).more(more);
        packet.headers.insert(index + 1, Header::Fragment(header));
    }
}

/// Turns the frame into one that does not contain IP.
fn not_ip(packet: &mut Packet, random: &mut Random) {
    // EtherTypes of ARP and LLDP, and two 802.3 lengths, one of them zero.
    let kind = *random.choose(&[0x0806, 0x88cc, 0x0040, 0x0000]);
    if let Some(Header::Ethernet(ethernet)) = packet.headers.first_mut() {
        ethernet.ethertype = Some(kind);
    }
}

/// Changes one field of one header; lengths and checksums are computed afterward.
fn field(packet: &mut Packet, random: &mut Random) {
    let index = random.below(packet.headers.len());
    let change = random.below(16);
    match &mut packet.headers[index] {
        Header::Ethernet(header) if change.is_multiple_of(2) => header.source[5] ^= 1,
        Header::Ethernet(header) => header.destination[0] ^= 0x10,
        Header::Vlan(header) => vlan(header, change),
        Header::Pppoe(header) => pppoe(header, change, random),
        Header::Mpls(header) => mpls(header, change),
        Header::Ipv4(header) => ipv4(header, change, random),
        Header::Ipv6(header) => ipv6(header, change, random),
        Header::Extension(header) => extension(header, change, random),
        Header::Fragment(header) => header.id ^= 1,
        Header::Tcp(header) => tcp(header, change, random),
        Header::Udp(header) => udp(header, change, random),
        Header::Icmp(header) => header.code ^= 1,
        Header::Sctp(header) => header.tag ^= 1,
        Header::Esp(header) => header.spi ^= 1,
        Header::Gre(header) => gre(header, change, random),
        Header::Vxlan(header) => vxlan(header, change, random),
        Header::Nsh(header) => nsh(header, change, random),
        Header::Geneve(header) => geneve(header, change, random),
        Header::Gue(header) => gue(header, change, random),
        Header::L2tp(header) => l2tp(header, change, random),
    }
}

fn vlan(header: &mut Vlan, change: usize) {
    match change % 3 {
        0 => header.id ^= 1,
        1 => header.priority ^= 1,
        _ => header.drop_eligible ^= true,
    }
}

fn pppoe(header: &mut Pppoe, change: usize, random: &mut Random) {
    match change % 3 {
        0 => header.session ^= 1,
        1 => header.code ^= 1,
        _ => header.len = Some(random.below(2000) as u16),
    }
}

fn mpls(header: &mut Mpls, change: usize) {
    match change % 3 {
        0 => header.label ^= 1,
        1 => header.traffic_class ^= 1,
        _ => header.ttl ^= 1,
    }
}

fn ipv4(header: &mut Ipv4, change: usize, random: &mut Random) {
    match change % 9 {
        0 => header.tos ^= 1 << random.below(8),
        1 => header.id = header.id.wrapping_add(1 + random.below(3) as u16),
        2 => header.reserved_bit ^= true,
        3 => header.df ^= true,
        4 => header.ttl ^= 1,
        5 => header.source[3] ^= 1,
        6 => header.destination[3] ^= 1,
        7 => header.protocol = Some(random.bits() as u8),
        _ => header.total_len = Some(random.below(2000) as u16),
    }
}

fn ipv6(header: &mut Ipv6, change: usize, random: &mut Random) {
    match change % 7 {
        0 => header.traffic_class ^= 1 << random.below(8),
        1 => header.flow_label ^= 1,
        2 => header.hop_limit ^= 1,
        3 => header.source[15] ^= 1,
        4 => header.destination[15] ^= 1,
        5 => header.next_header = Some(random.bits() as u8),
        _ => header.payload_len = Some(random.below(2000) as u16),
    }
}

fn extension(header: &mut Extension, change: usize, random: &mut Random) {
    match change % 3 {
        0 => header.data[2] ^= 1,
        1 => header.next_header = Some(random.bits() as u8),
        _ => header.len = Some(random.below(4) as u8),
    }
}

fn tcp(header: &mut Tcp, change: usize, random: &mut Random) {
    match change % 8 {
        0 => header.sequence = header.sequence.wrapping_add(1),
        1 => header.ack = header.ack.wrapping_add(1),
        2 => header.window ^= 1,
        3 => header.urgent_pointer ^= 1,
        4 => header.source_port ^= 1,
        5 => header.data_offset = Some(random.below(16) as u8),
        6 if !header.options.is_empty() => header.options[5] ^= 1,
        _ => header.options.extend([1, 1, 1, 1]),
    }
}

fn udp(header: &mut Udp, change: usize, random: &mut Random) {
    match change % 4 {
        0 => header.source_port ^= 1,
        1 => header.destination_port = Some(random.bits() as u16),
        2 => header.len = Some(random.below(2000) as u16),
        _ => header.checksum = Checksum::Raw(0),
    }
}

fn gre(header: &mut Gre, change: usize, random: &mut Random) {
    match change % 5 {
        0 => header.key = header.key.map_or(Some(1), |key| Some(key ^ 1)),
        1 => header.with_checksum ^= true,
        2 => header.extra_flags ^= 1 << random.below(16),
        3 => header.reserved ^= 1,
        _ => header.protocol = Some(random.bits() as u16),
    }
}

fn vxlan(header: &mut Vxlan, change: usize, random: &mut Random) {
    match change % 3 {
        0 => header.vni ^= 1,
        1 => header.flags ^= 1 << random.below(32),
        _ => header.reserved ^= 1 << random.below(8),
    }
}

fn nsh(header: &mut Nsh, change: usize, random: &mut Random) {
    match change % 7 {
        0 => header.path ^= 1,
        1 => header.index ^= 1,
        2 => header.ttl ^= 1,
        3 => header.operations ^= true,
        4 => header.length = Some(random.below(64) as u8),
        5 => header.next = Some(random.below(8) as u8),
        _ => header.metadata_type ^= 1 << random.below(4),
    }
}

fn l2tp(header: &mut L2tp, change: usize, random: &mut Random) {
    match change % 5 {
        0 => header.session ^= 1,
        1 => header.cookie.iter_mut().for_each(|byte| *byte ^= 1),
        2 => header.sublayer = header.sublayer.map(|word| word ^ 1 << random.below(32)),
        3 => header.sublayer = None,
        _ => header.session = 0,
    }
}

fn geneve(header: &mut Geneve, change: usize, random: &mut Random) {
    match change % 6 {
        0 => header.vni ^= 1,
        1 => header.control ^= true,
        2 => header.critical ^= true,
        3 => header.version ^= 1,
        4 => header.reserved ^= 1,
        _ => header.options_len = Some(random.below(64) as u8),
    }
}

fn gue(header: &mut Gue, change: usize, random: &mut Random) {
    match change % 4 {
        0 => header.control ^= true,
        1 => header.flags ^= 1 << random.below(16),
        2 => header.hlen = Some(random.below(32) as u8),
        _ => header.protocol = Some(random.bits() as u8),
    }
}
