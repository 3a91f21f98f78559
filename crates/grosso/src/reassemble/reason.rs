//! Names of the reasons for every decision of a reassembler: why a packet was [passed](Pass), and why fragments were
//! [discarded](Discard).

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was delivered unchanged.
    Pass {
        /// The packet is not an IP fragment, or its fragment header cannot be seen.
        Whole = "whole",
        /// The packet is an atomic IPv6 fragment (RFC 6946, rule F30) whose header cannot be removed, because its
        /// checksum is partial or its headers cannot be parsed.
        Atomic = "atomic",
        /// The frame is shorter than a length field says, because a capture truncated it.
        Truncated = "truncated",
        /// The packet is an IPv4 fragment whose length field is zero.
        LengthZero = "length_zero",
        /// The headers are longer than a datagram can store.
        HeaderTooLong = "header_too_long",
        /// The IPv4 header checksum is wrong.
        Ipv4Checksum = "ip_checksum",
    }
}

reasons! {
    /// Reason why a fragment was discarded together with its whole datagram, or alone if its description says so.
    Discard {
        /// The fragment overlaps another without being a duplicate of it (rule F14, P26, P27).
        Overlap = "overlap",
        /// The fragment extends beyond the end of the datagram, or moves the end (rule F12).
        EndConflict = "end_conflict",
        /// The fragment has no data (rule F11).
        ZeroLength = "zero_length",
        /// The length of a fragment other than the last is not a multiple of 8 (rule F10, P29).
        Misaligned = "misaligned",
        /// The datagram would exceed the maximum length of an IP packet (rule F13, P28).
        Oversize = "oversize",
        /// The datagram mixes fragments with and without ECN (RFC 3168 section 5.3, rule F21).
        EcnMixed = "ecn_mixed",
        /// The datagram has more fragments than the limit allows.
        FragmentLimit = "fragment_limit",
        /// The first fragment does not contain all headers (RFC 7112, rule F31). Only this fragment is discarded.
        HeaderChain = "header_chain",
        /// A fragment header follows a fragment header (rule F32). Only this fragment is discarded.
        SecondFragmentHeader = "second_fragment_header",
        /// The IPv6 payload length is zero (rule F32). Only this fragment is discarded.
        PayloadLengthZero = "payload_length_zero",
        /// The TCP header is split in such a way that a filter would miss its flags (RFC 1858, RFC 3128, P29). Only
        /// this fragment is discarded.
        TinyFragment = "tiny_fragment",
        /// The datagram had already been discarded (RFC 5722 section 4). Only this fragment is discarded.
        Dead = "dead",
        /// The datagram was not completed in time (rules F3, F40).
        Timeout = "timeout",
        /// Since the last fragment, the source has sent more fragments than the limit allows, so it may have reused the
        /// identification (rule F4).
        Distance = "distance",
        /// The memory was needed for other datagrams (rule F2, P32).
        MemoryFull = "memory_full",
        /// The source exceeded its share of the memory.
        SourceFull = "source_full",
        /// The table entry was needed for another datagram.
        TableFull = "table_full",
        /// The caller flushed the reassembler.
        Finished = "finished",
    }
}

impl Discard {
    /// Returns whether later fragments of the datagram must not start a new one (RFC 5722 section 4).
    pub(crate) const fn kills_key(self) -> bool {
        matches!(
            self,
            Self::Overlap
                | Self::EndConflict
                | Self::ZeroLength
                | Self::Misaligned
                | Self::Oversize
                | Self::EcnMixed
                | Self::FragmentLimit
        )
    }
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpError {
    /// Fragment reassembly time exceeded (RFC 792, RFC 4443 section 3.3, rule F40).
    TimeExceeded,
    /// Parameter problem (RFC 4443 section 3.4); ICMPv6 only.
    ParameterProblem {
        /// ICMPv6 code: 0 for an erroneous field, 3 for an incomplete header chain (RFC 7112 section 6).
        code: u8,
        /// Offset of the offending byte in the packet.
        pointer: u32,
    },
}

impl IcmpError {
    /// Returns the type and code of the ICMP message.
    #[must_use]
    pub const fn type_and_code(self, is_ipv6: bool) -> (u8, u8) {
        match self {
            Self::TimeExceeded if is_ipv6 => (3, 1),
            Self::TimeExceeded => (11, 1),
            Self::ParameterProblem { code, .. } if is_ipv6 => (4, code),
            Self::ParameterProblem { .. } => (12, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Discard, Pass};

    #[test]
    fn names_are_unique_and_of_one_form() {
        let passes = Pass::ALL.iter().map(|reason| (reason.name(), reason.sentence()));
        let discards = Discard::ALL.iter().map(|reason| (reason.name(), reason.sentence()));
        let all: alloc::vec::Vec<_> = passes.chain(discards).collect();
        for (i, (name, sentence)) in all.iter().enumerate() {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(sentence.ends_with('.'), "{name}: {sentence}");
            assert!(all[..i].iter().all(|(other, _)| other != name), "{name} twice");
        }
    }
}
