//! Hop-by-hop header with which Linux up to 6.19 sent IPv6 superframes longer than 64 KB (rule G63).

use grosso_wire::{Kind, Stack, ipv6};

use crate::bytes::u16_at;

/// Removes a jumbo header from the headers of a superframe, because its segments do not need one (rule S5). Returns the
/// remaining length of the headers, or `None` if there is no jumbo header.
pub(super) fn remove(header: &mut [u8], stack: &Stack) -> Option<usize> {
    let (ip, jumbo) =
        stack.layers().windows(2).map(|pair| (pair[0], pair[1])).find(|(ip, next)| {
            let start = next.offset as usize;
            ip.kind == Kind::Ipv6
                && next.kind == Kind::Ipv6Extension
                && next.len == JUMBO_LEN
                && header.get(start + 2..start + 4) == Some(&JUMBO_OPTION)
                && u16_at(header, ip.offset as usize + ipv6::field::PAYLOAD_LENGTH.start) == 0
        })?;
    let start = jumbo.offset as usize;
    header[ip.offset as usize + ipv6::field::NEXT_HEADER.start] = header[start];
    header.copy_within(jumbo.end().., start);
    Some(header.len() - jumbo.len as usize)
}

/// Length of a hop-by-hop header that contains only the jumbo option (RFC 2675).
const JUMBO_LEN: u16 = 8;
/// Type and length of the jumbo option.
const JUMBO_OPTION: [u8; 2] = [0xc2, 4];
