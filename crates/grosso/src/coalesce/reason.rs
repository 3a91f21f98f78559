//! Every refusal has a name.
//!
//! Four questions, four lists: why a packet [passed](Pass) without any train in view, why it did
//! [not join](NoMerge) the train of its flow, why a train was [closed](Close), and why packets [left](Release) that
//! waited ahead of their flow.

use grosso_wire::Role;

use crate::reasons::reasons;

reasons! {
    /// A reason why a packet can be in no train, whatever else is held. It leaves untouched, after the held
    /// train of its flow.
    Pass {
        /// The caller excluded it from merging.
        Excluded = "excluded",
        /// The frame carries no IP packet.
        NotIp = "not-ip",
        /// The frame ends inside its headers.
        Truncated = "truncated",
        /// A header contradicts itself.
        Malformed = "malformed",
        /// There are more headers than the limit allows (rule G7).
        TooDeep = "too-deep",
        /// The headers are longer than a train can keep.
        HeaderTooLong = "header-too-long",
        /// An IP protocol or tunnel payload that is never coalesced.
        Protocol = "protocol",
        /// The payload is encrypted (rule T9).
        Encrypted = "encrypted",
        /// An IP fragment, also an atomic one, or a datagram that leaves in fragments as it came (rules G10, G21, S61).
        Fragment = "fragment",
        /// A header length says less than the frame holds: padding or a trailer (rule G11).
        Padded = "padded",
        /// A header length says more than the frame holds.
        Short = "short",
        /// An IP length of zero without a description of how to cut the packet.
        LengthZero = "length-zero",
        /// IPv4 options (rule G10).
        Ipv4Options = "ip-options",
        /// IPv6 extension headers, with which the profile joins nothing.
        Ipv6Extension = "ip6-extension",
        /// The reserved bit of the IPv4 fragment word is set (rule G11).
        Ipv4ReservedBit = "ip-reserved-bit",
        /// The IPv4 header checksum is wrong.
        Ipv4Checksum = "ip-checksum",
        /// The TCP or UDP checksum, or one of a tunnel around it, is wrong (rules G30, T10).
        Checksum = "checksum",
        /// A checksum that verifies but is not the one that cutting would write: 0xffff where zero
        /// is meant.
        ChecksumForm = "checksum-form",
        /// A UDP packet without a checksum (rule U10).
        ChecksumNone = "checksum-none",
        /// A partial checksum that belongs to another header than the innermost.
        ChecksumPartial = "checksum-partial",
        /// Remote checksum offload without a verified outer checksum, or pointing elsewhere than at
        /// the transport header (rules C54, C55).
        RemoteChecksum = "remote-checksum",
        /// No payload: a pure acknowledgment or an empty datagram (rules G38, U10).
        Empty = "empty",
        /// SYN is set (rule G36).
        TcpSynchronize = "tcp-syn",
        /// RST is set (rule G36).
        TcpReset = "tcp-rst",
        /// URG is set (rule G36).
        TcpUrgent = "tcp-urg",
        /// A TCP flag is set with which the profile joins nothing.
        TcpFlags = "tcp-flags",
        /// TCP options with which the profile joins nothing.
        TcpOptions = "tcp-options",
        /// The packet met congestion, and the profile joins no such packet.
        Congestion = "congestion",
        /// Packets of its flow are seldom joined, so that for a while none is verified or held (P48).
        Bypass = "bypass",
        /// No place in the table was free, and the profile evicts no train (rule L10).
        TableFull = "table-full",
        /// FIN is set, and there was no train that it could end (rule G37).
        TcpFinish = "tcp-fin",
        /// PSH is set, and there was no train that it could end (rule G37).
        TcpPush = "tcp-psh",
        /// All of its payload has already been delivered by reordering repair: it is late or retransmitted.
        TcpLate = "tcp-late",
        /// Some of what it holds has left or waits, where reordering is repaired (P26).
        TcpOverlap = "tcp-overlap",
        /// More tunnel levels than the profile joins (rule T1).
        TunnelLevels = "tunnel-levels",
        /// A GRE header with a sequence number or other flags than checksum and key (rule T21).
        GreFlags = "gre-flags",
        /// A Geneve control packet (rule T6).
        GeneveControl = "geneve-control",
        /// The profile does not join TCP.
        TcpOff = "tcp-off",
        /// The profile does not join UDP (rule U3).
        UdpOff = "udp-off",
        /// A superframe that came from an untrusted source or has no segments of equal size (rule
        /// G8).
        Superframe = "superframe",
    }
}

reasons! {
    /// A reason why a packet did not join the held train of its flow. The train leaves, and the packet
    /// starts the next.
    NoMerge {
        /// The link layer header differs: addresses, VLAN priority, MPLS or PPPoE fields (rules G4,
        /// G6).
        LinkHeader = "link-header",
        /// The VLAN tag beside the frame differs (rule G4).
        VlanTag = "vlan-tag",
        /// TOS differs: DSCP or ECN (rule G13).
        TypeOfService = "ip-tos",
        /// The don't-fragment bit differs (rule G13).
        DontFragment = "ip-df",
        /// TTL or hop limit differs (rules G13, G22).
        TimeToLive = "ip-ttl",
        /// The IPv4 identification neither steps by one nor stays fixed (rule G14).
        Identification = "ip-id",
        /// The IPv6 traffic class or flow label differs (rules G20, G22).
        TrafficClassOrFlowLabel = "ip6-class-or-label",
        /// An IPv6 extension header differs (rule G20).
        Ipv6Extension = "ip6-extension",
        /// Another flow whose hash is the same.
        OtherFlow = "other-flow",
        /// A tunnel header differs in its flags, options or reserved bits (rules T5 to T7, T21).
        TunnelHeader = "tunnel-header",
        /// The headers are not the same headers: another kind, or another length.
        HeaderStack = "header-stack",
        /// One packet has a UDP checksum and the other has none (rules T2, U11).
        ChecksumPresence = "checksum-presence",
        /// One packet has a partial checksum and the other a complete one.
        ChecksumState = "checksum-state",
        /// The acknowledgment number differs (rule G32.3).
        TcpAcknowledgment = "tcp-ack",
        /// An acknowledgment without data that the profile does not join: a duplicate counts for the
        /// sender (P12).
        TcpAcknowledgmentAlone = "tcp-ack-alone",
        /// A reserved bit or a flag other than FIN and PSH differs (rule G32.2).
        TcpFlags = "tcp-flags",
        /// The window differs (rule G32.2).
        TcpWindow = "tcp-window",
        /// The urgent pointer differs.
        TcpUrgentPointer = "tcp-urgent-pointer",
        /// The TCP timestamp differs and nothing else in the options (rule G32.4).
        TcpTimestamp = "tcp-timestamp",
        /// The TCP options differ (rule G32.4).
        TcpOptions = "tcp-options",
        /// The sequence number is below the expected one: a retransmit or an overtaken packet (rule
        /// G32.8).
        TcpSequenceBehind = "tcp-sequence-behind",
        /// The sequence number is above the expected one: a lost or a reordered packet (rule
        /// G32.8).
        TcpSequenceAhead = "tcp-sequence-ahead",
        /// The payload is longer than that of the first packet (rules G32.6, U12).
        Longer = "longer",
        /// A superframe whose packets have another size (rule G32.7).
        SuperframeSize = "superframe-size",
        /// The train would exceed the size limit (rule G60).
        SizeLimit = "size-limit",
        /// The train has as many packets as the limit allows (rule G64).
        SegmentLimit = "segment-limit",
    }
}

reasons! {
    /// A reason why a train left.
    Close {
        /// The poll ended (rule G71).
        PollEnd = "poll-end",
        /// The train was held as long as it may be.
        HoldTime = "hold-time",
        /// A packet with PSH ended it (rule G36).
        Push = "psh",
        /// A packet with FIN ended it (rule G36).
        Finish = "fin",
        /// A shorter packet ended it (rules G39, U12).
        ShortSegment = "short-segment",
        /// It has as many packets as the limit allows (rule U13).
        SegmentLimit = "segment-limit",
        /// It has as many packets as the flow's acknowledgments allow, of which its sender's clock needs some.
        AcknowledgmentClock = "ack-clock",
        /// The next packet of the flow could not join it.
        NoMerge = "no-merge",
        /// The next packet of the flow can be in no train (rule G75: it must not overtake).
        Barrier = "barrier",
        /// Its bucket of the flow table was full (rule G3).
        BucketFull = "bucket-full",
        /// The flow table was full.
        TableFull = "table-full",
        /// More kinds of header stacks were seen than are remembered.
        HeaderStacksFull = "header-stacks-full",
        /// A bound of the repair of reordering was reached.
        ReorderFull = "reorder-full",
        /// The pool of parts was full.
        PartsFull = "parts-full",
        /// It never was a train: the packet can be in none.
        Never = "never",
    }
}

reasons! {
    /// A reason why packets left that waited because they were ahead of their flow.
    Release {
        /// The flow had begun, and what continues it left.
        Begun = "begun",
        /// The hole before them filled.
        Filled = "filled",
        /// The poll ended, and the profile waits no longer.
        PollEnd = "poll-end",
        /// Nothing of the flow could leave for as long as a hole is waited for.
        HoleTime = "hole-time",
        /// The oldest of them had waited as long as any packet may.
        TotalTime = "total-time",
        /// A packet came that nothing of its flow may be behind.
        Barrier = "barrier",
        /// A packet came that held some of what they hold (P26).
        Overlap = "overlap",
        /// More memory of the flow would have waited than may.
        FlowBytes = "flow-bytes",
        /// More runs of the flow would have waited than may.
        FlowRuns = "flow-runs",
        /// More memory of all flows would have waited than may.
        QueueBytes = "queue-bytes",
        /// The flow gave its place up for another.
        Evicted = "evicted",
        /// Everything that was held had to leave.
        Finish = "finish",
    }
}

impl NoMerge {
    /// Names a difference in a field of this role, in whichever header it is. Lengths and sequence numbers
    /// have laws of their own, and what they break is found before any field is compared.
    #[must_use]
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Link | Role::Tag => Self::LinkHeader,
            Role::Form | Role::Length => Self::HeaderStack,
            Role::TypeOfService => Self::TypeOfService,
            Role::ClassAndLabel => Self::TrafficClassOrFlowLabel,
            Role::Fragmentation => Self::DontFragment,
            Role::TimeToLive => Self::TimeToLive,
            Role::Identification => Self::Identification,
            Role::Address | Role::Port | Role::Protocol | Role::Network | Role::Channel => {
                Self::OtherFlow
            }
            Role::Tunnel => Self::TunnelHeader,
            Role::Extension => Self::Ipv6Extension,
            Role::Sequence => Self::TcpSequenceAhead,
            Role::Acknowledgment => Self::TcpAcknowledgment,
            Role::Flags => Self::TcpFlags,
            Role::Window => Self::TcpWindow,
            Role::UrgentPointer => Self::TcpUrgentPointer,
            Role::Options => Self::TcpOptions,
            Role::Checksum => Self::ChecksumPresence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Close, NoMerge, Pass, Release};

    #[test]
    fn names_are_unique_and_of_one_form() {
        let names: alloc::vec::Vec<_> = Pass::ALL
            .iter()
            .map(|reason| (0, reason.name(), reason.sentence(), reason.index()))
            .chain(NoMerge::ALL.iter().map(|r| (1, r.name(), r.sentence(), r.index())))
            .chain(Close::ALL.iter().map(|r| (2, r.name(), r.sentence(), r.index())))
            .chain(Release::ALL.iter().map(|r| (3, r.name(), r.sentence(), r.index())))
            .collect();
        for (i, (list, name, sentence, _)) in names.iter().enumerate() {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
            assert!(sentence.ends_with('.'), "{name}: {sentence}");
            assert!(names[..i].iter().all(|(l, n, ..)| (l, n) != (list, name)), "{name} twice");
        }
    }
}
