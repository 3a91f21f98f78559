//! Headers that the first fragment of a packet must contain (RFC 1858, RFC 3128, RFC 7112).

use grosso_wire::{ipv4, ipv6, ipv6_extension};

use crate::bytes::byte_at;

/// Reason why a chain of IPv6 headers is incomplete.
pub(crate) enum BrokenChain {
    /// The fragment ends before the end of the chain.
    Truncated,
    /// Another fragment header follows at this offset.
    Fragment(usize),
}

/// Returns the minimum data length in bytes of a first IPv6 fragment whose data starts with a header of type `first`,
/// or `None` if no length suffices.
pub(crate) fn first_len_min(first: u8, data: &[u8]) -> Option<usize> {
    transport_of(first, data).ok().map(|(transport, at)| at + fixed_len(transport))
}

/// Returns the number of bytes of a transport header that the first fragment must contain.
const fn fixed_len(transport: u8) -> usize {
    match transport {
        ipv6::NEXT_NONE => 0,
        ipv4::PROTOCOL_TCP => 20,
        ipv4::PROTOCOL_UDP | ipv6::NEXT_ICMP => 8,
        _ => 1,
    }
}

/// Returns the transport protocol of a first fragment, and the offset of its header in the data (RFC 7112 section 5,
/// rule F31).
pub(crate) fn transport_of(first: u8, data: &[u8]) -> Result<(u8, usize), BrokenChain> {
    let (mut next, mut at) = (first, 0);
    for _ in 0..EXTENSIONS_MAX {
        let header: &[u8] = data.get(at..).unwrap_or_default();
        let len = match next {
            ipv6::NEXT_FRAGMENT => return Err(BrokenChain::Fragment(at)),
            ipv6::NEXT_NONE => return Ok((next, at)),
            ipv6::NEXT_HOP_BY_HOP
            | ipv6::NEXT_ROUTING
            | ipv6::NEXT_DESTINATION_OPTIONS
            | NEXT_MOBILITY
            | NEXT_HOST_IDENTITY
            | NEXT_SHIM6 => (usize::from(byte_at(header, 1)) + 1) * 8,
            NEXT_AUTHENTICATION => (usize::from(byte_at(header, 1)) + 2) * 4,
            transport => {
                return if header.len() < fixed_len(transport) {
                    Err(BrokenChain::Truncated)
                } else {
                    Ok((next, at))
                };
            }
        };
        if header.len() < len {
            return Err(BrokenChain::Truncated);
        }
        next = byte_at(header, ipv6_extension::field::NEXT_HEADER.start);
        at += len;
    }
    Err(BrokenChain::Truncated)
}

/// End of the flags in a TCP header, in bytes, rounded up to a multiple of 8.
pub(crate) const TCP_FLAGS_END: u32 = 16;
/// Maximum number of extension headers parsed in a first fragment.
const EXTENSIONS_MAX: usize = 16;
const NEXT_AUTHENTICATION: u8 = 51;
const NEXT_MOBILITY: u8 = 135;
const NEXT_HOST_IDENTITY: u8 = 139;
const NEXT_SHIM6: u8 = 140;
