//! Outer headers that a socket builds and removes: IP and UDP headers, or only an IP header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use grosso_checksum::Sum;
use grosso_wire::{ipv4, ipv6, udp};

/// Headers that a socket builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live) enum BuiltHeaders {
    /// IP and UDP.
    Udp,
    /// The IPv4 header. For IPv6, the socket builds no headers, because extension headers could not be passed to it.
    Ip,
}

/// Fields of a frame's outer headers that are passed to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live) struct Outer {
    pub(in crate::live) built: BuiltHeaders,
    /// Source port of UDP, or 0 for other protocols.
    pub(in crate::live) source_port: u16,
    pub(in crate::live) destination: SocketAddr,
    pub(in crate::live) protocol: u8,
    pub(in crate::live) traffic_class: u8,
    pub(in crate::live) hop_limit: u8,
    /// Whether DF is set in the IPv4 header. IPv6 has no such bit.
    pub(in crate::live) dont_fragment: bool,
    /// Length of the headers that the socket builds, in bytes.
    pub(in crate::live) len: usize,
}

impl Outer {
    /// Parses the headers at the start of a frame. Returns `None` if a socket cannot build them, because the packet has
    /// another protocol, is a fragment, or has options or extension headers.
    pub(in crate::live) fn parse(frame: &[u8], built: BuiltHeaders) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let ip = match frame.first()? {
            0x45 => {
                let fragment = half(ipv4::field::FRAGMENT.start)?;
                if fragment & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
                    return None;
                }
                let address = frame.get(ipv4::field::DESTINATION)?.first_chunk::<4>()?;
                Self {
                    built,
                    source_port: 0,
                    destination: SocketAddr::new(Ipv4Addr::from(*address).into(), 0),
                    protocol: *frame.get(ipv4::field::PROTOCOL.start)?,
                    traffic_class: *frame.get(1)?,
                    hop_limit: *frame.get(ipv4::field::TTL.start)?,
                    dont_fragment: fragment & ipv4::DONT_FRAGMENT != 0,
                    len: ipv4::HEADER_LEN,
                }
            }
            0x60..=0x6f => {
                let address = frame.get(ipv6::field::DESTINATION)?.first_chunk::<16>()?;
                Self {
                    built,
                    source_port: 0,
                    destination: SocketAddr::new(Ipv6Addr::from(*address).into(), 0),
                    protocol: *frame.get(ipv6::field::NEXT_HEADER.start)?,
                    traffic_class: (half(0)? >> 4) as u8,
                    hop_limit: *frame.get(ipv6::field::HOP_LIMIT.start)?,
                    dont_fragment: false,
                    len: if built == BuiltHeaders::Udp { ipv6::HEADER_LEN } else { 0 },
                }
            }
            _ => return None,
        };
        let outer = match built {
            BuiltHeaders::Ip => ip,
            BuiltHeaders::Udp if ip.protocol != ipv4::PROTOCOL_UDP => return None,
            BuiltHeaders::Udp => {
                let port = half(ip.len + udp::field::DESTINATION_PORT.start)?;
                Self {
                    source_port: half(ip.len + udp::field::SOURCE_PORT.start)?,
                    destination: SocketAddr::new(ip.destination.ip(), port),
                    len: ip.len + udp::HEADER_LEN,
                    ..ip
                }
            }
        };
        (frame.len() >= outer.len).then_some(outer)
    }

    /// Returns the header length of a received datagram in bytes.
    pub(in crate::live) const fn len_over(is_ipv4: bool) -> usize {
        udp::HEADER_LEN + if is_ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
    }
}

/// Addresses and header fields of a received datagram.
#[derive(Clone, Copy, Debug)]
pub(in crate::live) struct Arrived {
    pub(in crate::live) source: SocketAddr,
    pub(in crate::live) destination: SocketAddr,
    pub(in crate::live) traffic_class: u8,
    pub(in crate::live) hop_limit: u8,
}

impl Arrived {
    /// Writes the headers of a datagram of `payload` bytes into `header`, whose length is [`Outer::len_over`]. The UDP
    /// checksum is zero, because the kernel does not report it. The packet was not fragmented when it arrived, so DF is
    /// set and the identification is zero (RFC 6864 section 4.1).
    pub(in crate::live) fn write(&self, header: &mut [u8], payload: usize) {
        let udp_len = (udp::HEADER_LEN + payload) as u16;
        let Self { source, destination, traffic_class, hop_limit } = self;
        let Some(at) = header.len().checked_sub(udp::HEADER_LEN) else { return };
        let (ip, udp) = header.split_at_mut(at);
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) if ip.len() == ipv4::HEADER_LEN => {
                let total = (ip.len() + udp.len() + payload) as u16;
                ip[..2].copy_from_slice(&[0x45, *traffic_class]);
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[4..6].fill(0);
                ip[6..8].copy_from_slice(&ipv4::DONT_FRAGMENT.to_be_bytes());
                ip[8..12].copy_from_slice(&[*hop_limit, ipv4::PROTOCOL_UDP, 0, 0]);
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                let checksum = Sum::of(ip).checksum();
                ip[ipv4::field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) if ip.len() == ipv6::HEADER_LEN => {
                let word = 6_u32 << 28 | u32::from(*traffic_class) << 20;
                ip[..4].copy_from_slice(&word.to_be_bytes());
                ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
                ip[6..8].copy_from_slice(&[ipv4::PROTOCOL_UDP, *hop_limit]);
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
            }
            // All datagrams that the socket receives have the same address family as the socket.
            _ => return,
        }
        udp[0..2].copy_from_slice(&source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        udp[6..8].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports, dissect};

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_dissects() {
        for [source, destination] in
            [["192.0.2.1:50000", "192.0.2.2:4789"], ["[2001:db8::1]:50000", "[2001:db8::2]:4789"]]
        {
            let [source, destination] =
                [source, destination].map(|text| text.parse::<SocketAddr>().unwrap());
            let arrived = Arrived { source, destination, traffic_class: 0xb9, hop_limit: 63 };
            let len = Outer::len_over(source.is_ipv4());
            let mut frame = vec![0xee; len + 3];
            arrived.write(&mut frame[..len], 3);
            let outer = Outer {
                built: BuiltHeaders::Udp,
                source_port: 50000,
                destination,
                protocol: ipv4::PROTOCOL_UDP,
                traffic_class: 0xb9,
                hop_limit: 63,
                dont_fragment: source.is_ipv4(),
                len,
            };
            assert_eq!(Outer::parse(&frame, BuiltHeaders::Udp), Some(outer));
            let stack = dissect(&frame, LinkType::Raw, &Ports::NONE);
            assert_eq!(stack.end as usize, frame.len(), "{stack}");
            assert_eq!(stack.header_len(), len);
            for cut in 0..len {
                assert_eq!(Outer::parse(&frame[..cut], BuiltHeaders::Udp), None, "{cut}");
            }
        }
    }

    #[test]
    fn headers_that_no_socket_makes_are_refused() {
        let parse = |frame: &[u8]| {
            [BuiltHeaders::Udp, BuiltHeaders::Ip].map(|built| Outer::parse(frame, built).is_some())
        };
        let datagram = |ip: Packet| ip.udp(|udp| udp).payload(b"x").build();
        let fragment = datagram(Packet::new().ipv4(|ip| ip.more_fragments(true)));
        assert_eq!(parse(&fragment), [false, false]);
        assert_eq!(parse(&Packet::new().ipv4(|ip| ip).tcp(|tcp| tcp).build()), [false, true]);
        assert_eq!(parse(&datagram(Packet::new().ipv4(|ip| ip))), [true, true]);
    }

    #[test]
    fn a_socket_of_ip_makes_the_header_of_version_4_alone() {
        let four = Packet::new().ipv4(|ip| ip.ttl(33).tos(0xb9)).gre(|gre| gre);
        let six = Packet::new().ipv6(|ip| ip.hop_limit(33).traffic_class(0xb9)).gre(|gre| gre);
        for (packet, len) in [(four, 20), (six, 0)] {
            let outer = Outer::parse(&packet.ipv4(|ip| ip).build(), BuiltHeaders::Ip).unwrap();
            assert_eq!((outer.len, outer.protocol), (len, ipv4::PROTOCOL_GRE));
            assert_eq!((outer.hop_limit, outer.traffic_class), (33, 0xb9));
            assert_eq!((outer.source_port, outer.destination.port()), (0, 0));
        }
    }
}
