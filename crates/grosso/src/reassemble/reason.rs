//! Named reasons: why a packet [passed](Pass), and why fragments were [discarded](Discard).

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet leaves unchanged.
    Pass {
        /// It is no IP fragment, or none that can be seen.
        Whole = "whole",
        /// An IPv6 fragment that is a whole packet (RFC 6946, rule F30) and keeps its header, because a device is to
        /// finish it or its headers cannot be followed.
        Atomic = "atomic",
        /// Its length says more than the frame holds: it was cut when it was captured.
        Truncated = "truncated",
        /// An IPv4 fragment whose length is zero.
        LengthZero = "length-zero",
        /// The headers are longer than a datagram can keep.
        HeaderTooLong = "header-too-long",
        /// The IPv4 header checksum is wrong.
        Ipv4Checksum = "ip-checksum",
    }
}

reasons! {
    /// Reason why a fragment was discarded, and with it all others of its datagram, unless the sentence says otherwise.
    Discard {
        /// It shares bytes with another fragment and is not that fragment again (rule F14, P26, P27).
        Overlap = "overlap",
        /// It ends behind the end of the datagram, or says that the end is elsewhere (rule F12).
        EndConflict = "end-conflict",
        /// It has no data (rule F11).
        ZeroLength = "zero-length",
        /// It is not the last and its length is no multiple of 8 (rule F10, P29).
        Misaligned = "misaligned",
        /// The datagram would be longer than an IP packet can be (rule F13, P28).
        Oversize = "oversize",
        /// Fragments with and without ECN in one datagram (RFC 3168 section 5.3, rule F21).
        EcnMixed = "ecn-mixed",
        /// More fragments than a datagram may have.
        FragmentLimit = "fragment-limit",
        /// The first fragment lacks a part of the headers (RFC 7112, rule F31). It dies alone.
        HeaderChain = "header-chain",
        /// A fragment header behind a fragment header (rule F32). It dies alone.
        SecondFragmentHeader = "second-fragment-header",
        /// An IPv6 payload length of zero (rule F32). It dies alone.
        PayloadLengthZero = "payload-length-zero",
        /// A TCP header cut where a filter would miss its flags (RFC 1858, RFC 3128, P29). It dies
        /// alone.
        TinyFragment = "tiny-fragment",
        /// Its datagram was killed before (RFC 5722 section 4). It dies alone.
        Dead = "dead",
        /// The datagram was not complete in time (rules F3, F40).
        Timeout = "timeout",
        /// Enough other fragments came from the source since then to reuse the identification (rule
        /// F4).
        Distance = "distance",
        /// The memory was needed for others (rule F2, P32).
        MemoryFull = "memory-full",
        /// Its source held all that one source may.
        SourceFull = "source-full",
        /// The table was needed for others.
        TableFull = "table-full",
        /// The reassembler was emptied.
        Finished = "finished",
    }
}

impl Discard {
    /// Whether later fragments of the datagram must not start it anew (RFC 5722 section 4).
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
        /// 0: an erroneous field; 3: an incomplete header chain (RFC 7112 section 6).
        code: u8,
        /// The byte of the packet that is wrong.
        pointer: u32,
    },
}

impl IcmpError {
    /// Type and code of the message.
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
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
            assert!(sentence.ends_with('.'), "{name}: {sentence}");
            assert!(all[..i].iter().all(|(other, _)| other != name), "{name} twice");
        }
    }
}
