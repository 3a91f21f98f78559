//! Extracts announced sizes: the MSS from a SYN, and the MTU from an ICMP too-big message.

use grosso_wire::{Kind, Stack, ipv4, ipv6, tcp};

use crate::headers::{Transport, is_ip, u16_at, u32_at};

/// Returns the value of the MSS option in a SYN.
pub(super) fn mss(packet: &[u8], transport: &Transport) -> Option<u16> {
    let start = transport.layer.offset as usize;
    let mut options = packet.get(start + tcp::HEADER_LEN..transport.layer.end())?;
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [2, 4, high, low, ..] => {
                return Some(u16::from_be_bytes([*high, *low])).filter(|&mss| mss > 0);
            }
            [_, len, ..] => options = options.get((*len as usize).max(2)..)?,
            [_] => return None,
        }
    }
}

/// Source and destination addresses of a packet, without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    source: [u8; 16],
    destination: [u8; 16],
}

impl Path {
    /// Returns the path of a packet whose IP header starts at `at`.
    pub(crate) fn at(packet: &[u8], at: usize, is_ipv4: bool) -> Option<Self> {
        let mut path = Self { source: [0; 16], destination: [0; 16] };
        let (from, to, len) = if is_ipv4 {
            (ipv4::field::SOURCE.start, ipv4::field::DESTINATION.start, 4)
        } else {
            (ipv6::field::SOURCE.start, ipv6::field::DESTINATION.start, 16)
        };
        path.source[..len].copy_from_slice(packet.get(at + from..at + from + len)?);
        path.destination[..len].copy_from_slice(packet.get(at + to..at + to + len)?);
        Some(path)
    }
}

/// Parses an ICMP too-big message. Returns the path and length of the quoted packet, and the MTU (RFC 1191, RFC 8201).
pub(crate) fn too_big(packet: &[u8], stack: &Stack) -> Option<(Path, u16, u16)> {
    let icmp = stack.last().filter(|layer| layer.kind == Kind::Icmp)?;
    let ip = stack.layers().iter().rfind(|layer| is_ip(layer))?;
    let start = icmp.offset as usize;
    let message = packet.get(start..)?;
    let quoted = start + ICMP_HEADER;
    let version = packet.get(quoted)? >> 4;
    let mtu = match (ip.kind, message) {
        (Kind::Ipv4, [3, 4, ..]) if version == 4 => u32::from(u16_at(message, 6)),
        (Kind::Ipv6, [2, 0, ..]) if version == 6 => u32_at(message, 4),
        _ => return None,
    };
    let least = if version == 4 { ipv4::MTU_MIN } else { ipv6::MTU_MIN };
    let mtu = u16::try_from(mtu).ok().filter(|&mtu| mtu >= least)?;
    let length = if version == 4 {
        u16_at(packet, quoted + ipv4::field::TOTAL_LENGTH.start)
    } else {
        let payload = u16_at(packet, quoted + ipv6::field::PAYLOAD_LENGTH.start);
        payload.saturating_add(ipv6::HEADER_LEN as u16)
    };
    Some((Path::at(packet, quoted, version == 4)?, mtu, length))
}

/// Number of ICMP header bytes before the quoted packet.
const ICMP_HEADER: usize = 8;
