//! Detects UDP datagrams on unknown ports that may belong to a tunnel. The result is used only for hints.
//!
//! A tunnel hint never changes how a packet is processed. A suspected tunnel must be consistent with every length and
//! with all checksums that are present, because a wrong hint is worse than none.

use grosso_capture::TunnelPort;
use grosso_checksum::Sum;
use grosso_report::units;
use grosso_wire::{
    Kind, Layer, LinkType, Ports, Stack, Stop, dissect, ethernet, geneve, gue, ipv4, ipv6, tcp,
    udp, vxlan,
};

use crate::headers::u16_at;

/// Tunnels that the capture may contain, each with the number of matching packets.
#[derive(Debug, Default)]
pub struct Suspicions(Vec<(TunnelPort, u64)>);

impl Suspicions {
    /// Examines a packet with these headers.
    pub fn observe(&mut self, packet: &[u8], stack: &Stack) {
        let Some(last) = stack.last().filter(|last| last.kind == Kind::Udp) else { return };
        let end = (stack.end as usize).min(packet.len());
        if stack.stop != Stop::Payload || last.end() > end {
            return;
        }
        let port = u16_at(packet, last.offset as usize + udp::field::DESTINATION_PORT.start);
        let Some(tunnel) = tunnel_at(&packet[last.end()..end], port) else { return };
        if let Some((_, packets)) = self.0.iter_mut().find(|(known, _)| *known == tunnel) {
            *packets += 1;
        } else if self.0.len() < SUSPICIONS_MAX {
            self.0.push((tunnel, 1));
        }
    }

    /// Returns whether no tunnel is suspected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a note about each suspected tunnel, and a hint that names the option for decoding it.
    pub fn notes(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(tunnel, packets)| {
            let (packets, port) = (units::count(*packets, "packet"), tunnel.port());
            let name = tunnel.name();
            let note = format!("{packets} to UDP port {port} may be packets of a {name} tunnel");
            (note, format!("to decode the tunnel, pass --port {tunnel}"))
        })
    }
}

/// Returns the tunnel that a UDP datagram on an unassigned port seems to belong to, based on its payload: VXLAN,
/// Geneve, GUE, or FOU with IP packets. When displayed, the result is a valid value for `--port`.
///
/// The inner packet must end at the end of the payload, unless the datagram is a superframe. In a superframe, either
/// the same tunnel header follows the inner packet, or the inner packet is a TCP segment.
pub fn tunnel_at(payload: &[u8], port: u16) -> Option<TunnelPort> {
    if port == 0 || TunnelPort::on(port, &Ports::ASSIGNED).is_some() {
        return None;
    }
    let guesses = [guess_vxlan, guess_geneve, guess_gue, guess_fou];
    let mut guesses = guesses.into_iter().filter_map(|guess| guess(payload, port));
    guesses.find(|guess| guess.fits(payload)).map(|guess| guess.tunnel)
}

/// Possible interpretation of a payload, based on its first bytes.
struct Guess {
    tunnel: TunnelPort,
    header_len: usize,
    /// Link type of the tunnel's payload: Ethernet frames or IP packets.
    link: LinkType,
}

impl Guess {
    fn fits(&self, payload: &[u8]) -> bool {
        let Some((header, inside)) = payload.split_at_checked(self.header_len) else {
            return false;
        };
        let Some(first) = Inside::find(inside, self.link) else { return false };
        let next = || inside.get(first.len..)?.strip_prefix(header);
        first.len == inside.len()
            || first.is_tcp
            || next().is_some_and(|next| Inside::find(next, self.link).is_some())
    }
}

/// Recognizes VXLAN, with or without the generic protocol extension.
fn guess_vxlan(payload: &[u8], port: u16) -> Option<Guess> {
    let (header, _) = vxlan::VxlanHeader::parse(payload).ok()?;
    let (link, tunnel) = match header.flags.get() {
        vxlan::FLAG_VNI => (LinkType::Ethernet, TunnelPort::new(Kind::Vxlan, port)),
        flags => {
            let protocol = flags ^ (vxlan::FLAG_VNI | vxlan::FLAG_NEXT_PROTOCOL);
            let link = match u8::try_from(protocol).ok()? {
                vxlan::NEXT_IPV4 | vxlan::NEXT_IPV6 => LinkType::Raw,
                vxlan::NEXT_ETHERNET => LinkType::Ethernet,
                _ => return None,
            };
            (link, TunnelPort::new(Kind::VxlanGpe, port))
        }
    };
    (header.reserved == 0).then_some(Guess { tunnel, header_len: vxlan::HEADER_LEN, link })
}

fn guess_geneve(payload: &[u8], port: u16) -> Option<Guess> {
    let (header, options, _) = geneve::GeneveHeader::parse(payload).ok()?;
    let known = geneve::CONTROL | geneve::CRITICAL;
    let is_plain = header.flags & !known == 0 && !header.is_control() && header.reserved == 0;
    if !is_plain || options.into_iter().any(|option| option.is_err()) {
        return None;
    }
    let link = match header.protocol.get() {
        ethernet::ETHERTYPE_BRIDGING => LinkType::Ethernet,
        ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6 => LinkType::Raw,
        _ => return None,
    };
    Some(Guess {
        tunnel: TunnelPort::new(Kind::Geneve, port),
        header_len: header.header_len(),
        link,
    })
}

fn guess_gue(payload: &[u8], port: u16) -> Option<Guess> {
    let (header, ..) = gue::GueHeader::parse(payload).ok()?;
    let is_ip = matches!(header.protocol, ipv4::PROTOCOL_IPV4 | ipv4::PROTOCOL_IPV6);
    let (tunnel, header_len) = (TunnelPort::new(Kind::Gue, port), header.header_len());
    let is_it = is_ip && !header.is_control();
    is_it.then_some(Guess { tunnel, header_len, link: LinkType::Raw })
}

/// Recognizes FOU, which has no header of its own. GUE variant 1 looks identical on the wire.
fn guess_fou(payload: &[u8], port: u16) -> Option<Guess> {
    let protocol = match payload.first()? >> 4 {
        4 => ipv4::PROTOCOL_IPV4,
        6 => ipv4::PROTOCOL_IPV6,
        _ => return None,
    };
    let tunnel = TunnelPort::fou(port, protocol);
    Some(Guess { tunnel, header_len: 0, link: LinkType::Raw })
}

/// First packet in a tunnel, with the properties that can be checked.
struct Inside {
    /// Length of the packet in bytes, including the link header.
    len: usize,
    /// Whether the packet is a TCP segment without anomalies.
    is_tcp: bool,
}

impl Inside {
    /// Returns the packet at the start of `bytes`; `None` if there is none or its lengths do not match.
    fn find(bytes: &[u8], link: LinkType) -> Option<Self> {
        let stack = dissect(bytes, link, &Ports::NONE);
        if matches!(stack.stop, Stop::Truncated | Stop::Malformed) {
            return None;
        }
        let is_link = |kind| matches!(kind, Kind::Ethernet | Kind::Vlan);
        let mut layers = stack.layers().iter().skip_while(|layer| is_link(layer.kind));
        if link == LinkType::Ethernet && bytes.get(GROUP_BIT_AT)? & 1 != 0 {
            // A group address cannot be a source address.
            return None;
        }
        let Some(ip) = layers.next() else { return address_resolution(bytes, &stack) };
        let transport = layers.next();
        let header = bytes.get(usize::from(ip.offset)..ip.end())?;
        let declared = match ip.kind {
            Kind::Ipv4 => u16_at(header, ipv4::field::TOTAL_LENGTH.start).into(),
            Kind::Ipv6 => {
                ipv6::HEADER_LEN + usize::from(u16_at(header, ipv6::field::PAYLOAD_LENGTH.start))
            }
            _ => return None,
        };
        let end = usize::from(ip.offset) + declared;
        if declared < header.len() || end > bytes.len() {
            return None;
        }
        let is_tcp = transport.is_some_and(|layer| is_plain_tcp(bytes, layer));
        let is_udp = transport.is_some_and(|layer| {
            let length = u16_at(bytes, layer.offset as usize + udp::field::LENGTH.start);
            layer.kind == Kind::Udp && layer.offset as usize + usize::from(length) == end
        });
        // Lengths alone are not sufficient evidence.
        let is_checked = match ip.kind {
            Kind::Ipv4 => Sum::of(header).is_valid(),
            _ => is_tcp || is_udp,
        };
        let is_padded = link == LinkType::Ethernet && bytes.len() <= FRAME_BYTES_MIN;
        let len = if is_padded { bytes.len() } else { end };
        is_checked.then_some(Self { len, is_tcp })
    }
}

/// Recognizes ARP for IPv4 over Ethernet: a request or a reply.
fn address_resolution(frame: &[u8], stack: &Stack) -> Option<Inside> {
    let link = stack.last()?;
    let ethertype = u16_at(frame, link.end() - 2);
    let (fixed, rest) = frame.get(link.end()..)?.split_first_chunk::<ARP_FIXED_BYTES>()?;
    let is_it = ethertype == ETHERTYPE_ARP
        && matches!(fixed, [0, 1, 8, 0, 6, 4, 0, 1 | 2])
        && (ARP_ADDRESS_BYTES..=FRAME_BYTES_MIN).contains(&rest.len());
    is_it.then_some(Inside { len: frame.len(), is_tcp: false })
}

/// Returns whether a TCP header is plausible: no reserved bits, no urgent pointer without URG, and no contradictory
/// flags.
fn is_plain_tcp(bytes: &[u8], layer: &Layer) -> bool {
    let start = layer.offset as usize;
    if layer.kind != Kind::Tcp {
        return false;
    }
    let word = u16_at(bytes, start + tcp::field::OFFSET_FLAGS.start);
    let urgent = u16_at(bytes, start + tcp::field::URGENT.start);
    let ends = word & (tcp::SYN | tcp::FIN | tcp::RST);
    word & RESERVED_BITS == 0
        && (urgent == 0 || word & tcp::URG != 0)
        && ends.count_ones() <= 1
        && word & (tcp::ACK | tcp::SYN | tcp::RST) != 0
}

/// Maximum number of suspected tunnels per capture. A hint has no room for more.
const SUSPICIONS_MAX: usize = 4;
/// Offset in an Ethernet frame of the byte whose lowest bit marks the source as a group address.
const GROUP_BIT_AT: usize = ethernet::field::SOURCE.start;
/// Length to which short Ethernet frames are padded, without the frame check sequence.
const FRAME_BYTES_MIN: usize = 60;
/// EtherType of ARP (RFC 826).
const ETHERTYPE_ARP: u16 = 0x0806;
/// Length in bytes of the ARP fields before the addresses: types, lengths and operation.
const ARP_FIXED_BYTES: usize = 8;
/// Combined length of two Ethernet addresses and two IPv4 addresses.
const ARP_ADDRESS_BYTES: usize = 20;
/// Reserved bits in the word that also contains the data offset and the flags (RFC 9293, RFC 9768).
const RESERVED_BITS: u16 = 0x0e00;

#[cfg(test)]
#[path = "suspicion_tests.rs"]
mod tests;
