//! The headers in front of a datagram that a socket makes and takes off: IP and UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use grosso_checksum::Sum;
use grosso_wire::{ipv4, ipv6, udp};

/// What the headers of a frame say that a socket has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) source_port: u16,
    pub(super) destination: SocketAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) dont_fragment: bool,
    /// Bytes of both headers.
    pub(super) len: usize,
}

impl Outer {
    /// Those at the front of a frame; `None` where a socket could not make them: another protocol, a
    /// fragment, options or extension headers.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let (destination, ip_len, traffic_class, hop_limit, dont_fragment) = match frame.first()? {
            0x45 if *frame.get(ipv4::field::PROTOCOL.start)? == ipv4::PROTOCOL_UDP => {
                let fragment = half(ipv4::field::FRAGMENT.start)?;
                if fragment & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
                    return None;
                }
                let address = frame.get(ipv4::field::DESTINATION)?.first_chunk::<4>()?;
                let destination = IpAddr::from(Ipv4Addr::from(*address));
                let limit = *frame.get(ipv4::field::TTL.start)?;
                let dont_fragment = fragment & ipv4::DONT_FRAGMENT != 0;
                (destination, ipv4::HEADER_LEN, *frame.get(1)?, limit, dont_fragment)
            }
            0x60..=0x6f if *frame.get(ipv6::field::NEXT_HEADER.start)? == ipv4::PROTOCOL_UDP => {
                let address = frame.get(ipv6::field::DESTINATION)?.first_chunk::<16>()?;
                let destination = IpAddr::from(Ipv6Addr::from(*address));
                let limit = *frame.get(ipv6::field::HOP_LIMIT.start)?;
                (destination, ipv6::HEADER_LEN, (half(0)? >> 4) as u8, limit, true)
            }
            _ => return None,
        };
        let len = ip_len + udp::HEADER_LEN;
        let outer = Self {
            source_port: half(ip_len + udp::field::SOURCE_PORT.start)?,
            destination: SocketAddr::new(
                destination,
                half(ip_len + udp::field::DESTINATION_PORT.start)?,
            ),
            traffic_class,
            hop_limit,
            dont_fragment,
            len,
        };
        (frame.len() >= len).then_some(outer)
    }

    /// Bytes that the headers of a received datagram take.
    pub(super) const fn len_over(is_ipv4: bool) -> usize {
        udp::HEADER_LEN + if is_ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
    }
}

/// What is known of a datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl Arrived {
    /// Writes the headers of a datagram of `payload` bytes into `header`, which is as long as
    /// [`Outer::len_over`] says. The checksum of UDP is left out, for the kernel does not show it;
    /// what was whole on arrival forbids fragments and has no identification (RFC 6864 section
    /// 4.1).
    pub(super) fn write(&self, header: &mut [u8], payload: usize) {
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
            // The socket is of one family, and so is all that it receives.
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
                source_port: 50000,
                destination,
                traffic_class: 0xb9,
                hop_limit: 63,
                dont_fragment: true,
                len,
            };
            assert_eq!(Outer::parse(&frame), Some(outer));
            let stack = dissect(&frame, LinkType::Raw, &Ports::NONE);
            assert_eq!(stack.end as usize, frame.len(), "{stack}");
            assert_eq!(stack.header_len(), len);
            for cut in 0..len {
                assert_eq!(Outer::parse(&frame[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn headers_that_no_socket_makes_are_refused() {
        let datagram = |ip: Packet| ip.udp(|udp| udp).payload(b"x").build();
        let fragment = datagram(Packet::new().ipv4(|ip| ip.more_fragments(true)));
        assert_eq!(Outer::parse(&fragment), None);
        assert_eq!(Outer::parse(&Packet::new().ipv4(|ip| ip).tcp(|tcp| tcp).build()), None);
        assert!(Outer::parse(&datagram(Packet::new().ipv4(|ip| ip))).is_some());
    }
}
