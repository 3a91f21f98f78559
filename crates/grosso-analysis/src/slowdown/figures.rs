//! Statistics for one direction of a connection, gathered at the capture point.

use crate::evidence::{Segments, Size};

/// Counts, sizes and times for one direction. Packets are wire packets: a superframe counts as its segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Frames with a payload, and the packets and payload bytes in these frames.
    pub(super) frames: u32,
    pub(super) packets: u32,
    pub(super) superframes: u32,
    pub(super) bytes: u64,
    /// Times of the first and last frames with a payload.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// Largest payload in a packet.
    pub(super) segment_max: u32,
    /// Segment size of the last superframe, and the evidence for it.
    pub(super) size: Option<Size>,
    /// Length of the largest packet in bytes, counted from the IP header.
    pub(super) ip_bytes_max: u32,
    /// Packets that repeat captured data, excluding duplicates made by the network.
    pub(super) retransmitted: u32,
    /// Retransmissions of data that had already been acknowledged, according to the capture.
    pub(super) retransmitted_acked: u32,
    /// Packets that arrived twice according to the receiver.
    pub(super) received_twice: u32,
    /// Packets duplicated by the network before the capture point.
    pub(super) duplicated: u32,
    /// Packets that arrived after later ones.
    pub(super) late: u32,
    pub(super) late_packets_max: u32,
    pub(super) late_ns_max: u64,
    /// Packets classified as late or lost based only on capture times or timestamp options.
    pub(super) told_by_time: u32,
    pub(super) told_by_timestamps: u32,
    /// Packets whose first copy never reached the capture point.
    pub(super) lost_before: u32,
    /// Retransmissions that arrive in order after a gap in the IP IDs. They indicate that the last packets before a
    /// pause were lost.
    pub(super) tails_lost: u32,
    /// Packets that were acknowledged but not captured.
    pub(super) uncaptured: u32,
    /// Gaps reported by the receiver that closed without a retransmission.
    pub(super) healed: u32,
    /// Holes that are no longer tracked because too many were open.
    pub(super) holes_dropped: u32,
    /// Acknowledgments without payload in this direction.
    pub(super) acks: u32,
    /// Missing acknowledgments, inferred from IP IDs that increased by more than one.
    pub(super) acks_missing: u32,
    /// Damaged acknowledgments. They are included in `acks_missing`, but were not lost.
    pub(super) acks_damaged: u32,
    /// Sum of the window sizes announced by the peer, in bytes, and the number of announcements. Both are 0 if the
    /// scale is unknown.
    pub(super) window_bytes: u64,
    pub(super) windows: u32,
    /// Number of periods with a closed window, and their total duration.
    pub(super) zero_windows: u32,
    pub(super) zero_ns: u64,
    /// Number of times that the sender paused, and the total duration. A pause follows a push. During a pause, the
    /// sender could have sent more: everything except the last segments was acknowledged, and the window was open.
    pub(super) pauses: u32,
    pub(super) paused_ns: u64,
    /// Number and total duration of other periods without data that lasted longer than half a round trip.
    pub(super) waits: u32,
    pub(super) waited_ns: u64,
    /// Frames with a payload and PSH.
    pub(super) pushed: u32,
    /// Number of pairs of consecutive packets at most [`BACK_TO_BACK_NS`](super::stream::BACK_TO_BACK_NS) apart, and
    /// number of those pairs with different timestamp values.
    pub(super) pairs: u32,
    pub(super) stepped: u32,
    /// Number of pairs of consecutive packets on a busy link between which packets of many other flows passed: a whole
    /// turn of [`Turns`](super::turns::Turns).
    pub(super) alternated: u32,
    /// Frames with a complete but wrong checksum.
    pub(super) bad: u32,
    /// Damaged packets, which were ignored. Counted only while most packets have correct checksums.
    pub(super) damaged: u32,
    /// MSS announced by the peer.
    pub(super) mss: u16,
    /// Smallest path MTU reported by ICMP messages; 0 if there were none.
    pub(super) icmp_mtu: u16,
    /// Length of the longest packet quoted by an ICMP message.
    pub(super) icmp_quoted: u16,
    /// Packets longer than `icmp_mtu` that were sent more than a round trip after the message.
    pub(super) above_mtu: u32,
    /// Frames longer than `icmp_mtu` that may be either single packets or superframes.
    pub(super) above_mtu_guessed: u32,
    /// Whether ICMP messages kept arriving for more than a round trip after the first one.
    pub(super) is_icmp_repeated: bool,
    /// Maximum number of times that a segment was sent while no segment of its size was acknowledged, and its size in
    /// bytes.
    pub(super) stuck_times: u32,
    pub(super) stuck_bytes: u32,
    /// Whether a smaller packet that replaced the unacknowledged segment was acknowledged.
    pub(super) stuck_probed: bool,
}

impl Figures {
    /// Counts a frame with `payload` bytes of payload.
    pub(super) fn count(&mut self, time_ns: u64, payload: u32, segments: &Segments) {
        if self.frames == 0 {
            self.first_ns = time_ns;
        }
        self.frames += 1;
        self.packets = self.packets.saturating_add(segments.packets);
        self.superframes += u32::from(segments.packets > 1);
        self.bytes += u64::from(payload);
        self.last_ns = self.last_ns.max(time_ns);
        self.segment_max = self.segment_max.max(segments.bytes);
        self.size = segments.size.or(self.size);
    }

    /// Returns the peer's mean window in bytes; 0 if unknown.
    pub(super) fn window_mean(&self) -> u64 {
        self.window_bytes / u64::from(self.windows.max(1))
    }

    /// Returns the time between the first and last frames with a payload, in nanoseconds.
    pub(super) const fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Returns the number of unnecessary retransmissions.
    pub(super) fn spurious(&self) -> u32 {
        self.received_twice
            .saturating_sub(self.duplicated)
            .max(self.retransmitted_acked)
            .min(self.retransmitted)
    }

    /// Returns the number of retransmissions of packets that were lost after the capture point.
    pub(super) fn lost_after(&self) -> u32 {
        self.retransmitted - self.spurious()
    }
}
