//! Names of the reasons for every decision that a coalescer makes.
//!
//! Each of the four lists explains one decision: why a packet cannot be merged at all ([`Pass`]), why it did not fit
//! into its flow's train ([`NoMerge`]), why a train was delivered ([`Close`]), and why packets queued for reordering
//! repair were released ([`Release`]).

use grosso_wire::Role;

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet cannot be merged into any train. The packet is delivered unchanged, after the held train of
    /// its flow.
    Pass {
        /// The caller excluded the frame from merging.
        Excluded = "excluded",
        /// The frame carries no IP packet.
        NotIp = "not_ip",
        /// The frame ends inside its headers.
        Truncated = "truncated",
        /// A header is malformed.
        Malformed = "malformed",
        /// The packet has more headers than the limit allows (rule G7).
        TooDeep = "too_deep",
        /// The headers are longer than a train can store.
        HeaderTooLong = "header_too_long",
        /// The IP protocol or tunnel payload is never merged.
        Protocol = "protocol",
        /// The payload is encrypted (rule T9).
        Encrypted = "encrypted",
        /// The packet is an IP fragment (possibly an atomic one), or a reassembled datagram that is forwarded in its
        /// original fragments (rules G10, G21, S61).
        Fragment = "fragment",
        /// The frame is longer than a length field says, because it has padding or a trailer (rule G11).
        Padded = "padded",
        /// The frame is shorter than a length field says.
        Short = "short",
        /// The IP length is zero and the metadata has no segment size.
        LengthZero = "length_zero",
        /// The packet has IPv4 options (rule G10).
        Ipv4Options = "ip_options",
        /// The packet has IPv6 extension headers, which the profile does not merge.
        Ipv6Extension = "ip6_extension",
        /// The reserved bit of the IPv4 fragment word is set (rule G11).
        Ipv4ReservedBit = "ip_reserved_bit",
        /// The IPv4 header checksum is wrong.
        Ipv4Checksum = "ip_checksum",
        /// The TCP or UDP checksum, or the checksum of a surrounding tunnel, is wrong (rules G30, T10).
        Checksum = "checksum",
        /// The checksum is valid, but segmentation would write it differently (for example zero instead of 0xffff).
        ChecksumForm = "checksum_form",
        /// The UDP packet has no checksum (rule U10).
        ChecksumNone = "checksum_none",
        /// The partial checksum is not that of the innermost header.
        ChecksumPartial = "checksum_partial",
        /// The packet requests remote checksum offload, but its outer checksum is not verified, or the offset does not
        /// point to the transport header (rules C54, C55).
        RemoteChecksum = "remote_checksum",
        /// The packet has no payload: a pure acknowledgment or an empty datagram (rules G38, U10).
        Empty = "empty",
        /// SYN is set (rule G36).
        TcpSynchronize = "tcp_syn",
        /// RST is set (rule G36).
        TcpReset = "tcp_rst",
        /// URG is set (rule G36).
        TcpUrgent = "tcp_urg",
        /// A TCP flag is set that the profile does not merge.
        TcpFlags = "tcp_flags",
        /// The packet has TCP options that the profile does not merge.
        TcpOptions = "tcp_options",
        /// The packet is marked CE, and the profile does not merge such packets.
        Congestion = "congestion",
        /// The flow is bypassed because its packets seldom merge; its packets are neither verified nor held (P48).
        Bypass = "bypass",
        /// The flow table is full, and the profile evicts no train (rule L10).
        TableFull = "table_full",
        /// FIN is set, and the flow has no train that this packet could complete (rule G37).
        TcpFinish = "tcp_fin",
        /// PSH is set, and the flow has no train that this packet could complete (rule G37).
        TcpPush = "tcp_psh",
        /// The whole payload has already been delivered by reordering repair: it is late or retransmitted.
        TcpLate = "tcp_late",
        /// Part of the payload has already been delivered or is queued by reordering repair (P26).
        TcpOverlap = "tcp_overlap",
        /// The packet has more tunnel levels than the profile supports (rule T1).
        TunnelLevels = "tunnel_levels",
        /// The GRE header has a sequence number or flags other than those for checksum and key (rule T21).
        GreFlags = "gre_flags",
        /// The packet is a Geneve control packet (rule T6).
        GeneveControl = "geneve_control",
        /// The profile does not merge TCP.
        TcpOff = "tcp_off",
        /// The profile does not merge UDP (rule U3).
        UdpOff = "udp_off",
        /// The superframe comes from an untrusted source or has segments of unequal size (rule G8).
        Superframe = "superframe",
    }
}

reasons! {
    /// Reason why a packet did not fit into the held train of its flow. The train is delivered, and the packet starts
    /// the next one.
    NoMerge {
        /// A link-layer field differs: addresses, VLAN priority, MPLS or PPPoE fields (rules G4, G6).
        LinkHeader = "link_header",
        /// The VLAN tag in the metadata differs (rule G4).
        VlanTag = "vlan_tag",
        /// TOS (DSCP or ECN) differs (rule G13).
        TypeOfService = "ip_tos",
        /// The don't-fragment bit differs (rule G13).
        DontFragment = "ip_df",
        /// TTL or hop limit differs (rules G13, G22).
        TimeToLive = "ip_ttl",
        /// The IPv4 identification neither increases by one nor stays fixed (rule G14).
        Identification = "ip_id",
        /// The IPv6 traffic class or flow label differs (rules G20, G22).
        TrafficClassOrFlowLabel = "ip6_class_or_label",
        /// An IPv6 extension header differs (rule G20).
        Ipv6Extension = "ip6_extension",
        /// The packet belongs to another flow with the same hash.
        OtherFlow = "other_flow",
        /// A tunnel header differs in its flags, options or reserved bits (rules T5 to T7, T21).
        TunnelHeader = "tunnel_header",
        /// The header stack differs in type or length.
        HeaderStack = "header_stack",
        /// One packet has a UDP checksum and the other has none (rules T2, U11).
        ChecksumPresence = "checksum_presence",
        /// One packet has a partial checksum and the other has a complete one.
        ChecksumState = "checksum_state",
        /// The acknowledgment number differs (rule G32.3).
        TcpAcknowledgment = "tcp_ack",
        /// The packet is a pure acknowledgment, which the profile does not merge: the sender counts duplicates (P12).
        TcpAcknowledgmentAlone = "tcp_ack_alone",
        /// A reserved bit or a flag other than FIN and PSH differs (rule G32.2).
        TcpFlags = "tcp_flags",
        /// The window differs (rule G32.2).
        TcpWindow = "tcp_window",
        /// The urgent pointer differs.
        TcpUrgentPointer = "tcp_urgent_pointer",
        /// The TCP timestamp differs, but no other option does (rule G32.4).
        TcpTimestamp = "tcp_timestamp",
        /// The TCP options differ (rule G32.4).
        TcpOptions = "tcp_options",
        /// The sequence number is lower than expected: the packet is a retransmission or was overtaken (rule G32.8).
        TcpSequenceBehind = "tcp_sequence_behind",
        /// The sequence number is higher than expected: a packet was lost or reordered (rule G32.8).
        TcpSequenceAhead = "tcp_sequence_ahead",
        /// The payload is longer than the first packet's (rules G32.6, U12).
        Longer = "longer",
        /// The packet is a superframe whose segment size differs from the train's (rule G32.7).
        SuperframeSize = "superframe_size",
        /// The packet would make the train exceed the size limit (rule G60).
        SizeLimit = "size_limit",
        /// The train already has the maximum number of packets (rule G64).
        SegmentLimit = "segment_limit",
    }
}

reasons! {
    /// Reason why a train was delivered.
    Close {
        /// The poll ended (rule G71).
        PollEnd = "poll_end",
        /// The maximum hold time of the train has expired.
        HoldTime = "hold_time",
        /// A packet with PSH ended the train (rule G36).
        Push = "psh",
        /// A packet with FIN ended the train (rule G36).
        Finish = "fin",
        /// A shorter packet ended the train (rules G39, U12).
        ShortSegment = "short_segment",
        /// The train reached its maximum number of packets (rule U13), or another limit at which a train is delivered
        /// immediately.
        SegmentLimit = "segment_limit",
        /// The train reached the packet limit that ensures that the sender gets enough acknowledgments.
        AcknowledgmentClock = "ack_clock",
        /// The next packet of the flow did not fit into the train.
        NoMerge = "no_merge",
        /// The next packet of the flow cannot be merged and must not overtake the train (rule G75).
        Barrier = "barrier",
        /// The train's bucket in the flow table was full (rule G3).
        BucketFull = "bucket_full",
        /// The flow table was full.
        TableFull = "table_full",
        /// The cache of header stacks was full.
        HeaderStacksFull = "header_stacks_full",
        /// A limit of reordering repair was reached.
        ReorderFull = "reorder_full",
        /// The pool of parts was exhausted.
        PartsFull = "parts_full",
        /// The packet was never in a train, because it cannot be merged.
        Never = "never",
    }
}

reasons! {
    /// Reason why packets queued for reordering repair were released.
    Release {
        /// The start of the flow became known, and the queued packets continue it.
        Begun = "begun",
        /// The missing packets arrived.
        Filled = "filled",
        /// The poll ended, and the profile does not wait across polls.
        PollEnd = "poll_end",
        /// The maximum waiting time for missing packets has expired.
        HoleTime = "hole_time",
        /// The maximum waiting time of the oldest queued packet has expired.
        TotalTime = "total_time",
        /// A packet arrived that must not overtake earlier packets of its flow.
        Barrier = "barrier",
        /// A packet arrived whose payload overlaps queued data (P26).
        Overlap = "overlap",
        /// The memory limit of the flow was reached.
        FlowBytes = "flow_bytes",
        /// The limit of queued runs per flow was reached.
        FlowRuns = "flow_runs",
        /// The memory limit of all flows was reached.
        QueueBytes = "queue_bytes",
        /// The flow was evicted to make room for another.
        Evicted = "evicted",
        /// The caller flushed the coalescer.
        Finish = "finish",
    }
}

impl NoMerge {
    /// Returns the reason to report if two packets differ in a header field with this role. Length fields and sequence
    /// numbers have their own checks, which come first.
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
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(sentence.ends_with('.'), "{name}: {sentence}");
            assert!(names[..i].iter().all(|(l, n, ..)| (l, n) != (list, name)), "{name} twice");
        }
    }
}
