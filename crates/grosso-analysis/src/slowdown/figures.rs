//! Figures of one direction of a connection, counted at the capture point.

use crate::evidence::{Segments, Size};

/// Counts, sizes and times of one direction. Packets are packets on the wire: a superframe counts as its segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Frames with data, and the packets and payload bytes in these frames.
    pub(super) frames: u32,
    pub(super) packets: u32,
    pub(super) superframes: u32,
    pub(super) bytes: u64,
    /// Times of the first and the last frame with data.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// Largest payload of a packet.
    pub(super) segment_max: u32,
    /// Segment size of the last superframe, and the evidence for it.
    pub(super) size: Option<Size>,
    /// Largest packet in bytes, from its IP header on.
    pub(super) ip_bytes_max: u32,
    /// Packets with data that the capture had already shown, without copies made by the network.
    pub(super) retransmitted: u32,
    /// Retransmissions of data although the capture had already shown an acknowledgment of this data.
    pub(super) retransmitted_acked: u32,
    /// Packets that the receiver reported as received twice.
    pub(super) received_twice: u32,
    /// Copies of a packet that the network made before the capture point.
    pub(super) duplicated: u32,
    /// Packets that arrived after later ones.
    pub(super) late: u32,
    pub(super) late_packets_max: u32,
    pub(super) late_ns_max: u64,
    /// Packets that were classified as late or lost only because of the capture time or the timestamps.
    pub(super) told_by_time: u32,
    pub(super) told_by_timestamps: u32,
    /// Packets whose first copy never arrived.
    pub(super) lost_before: u32,
    /// Retransmissions that arrive in order after a gap in the identifications. They show that the last packets before
    /// a pause were lost.
    pub(super) tails_lost: u32,
    /// Packets that were acknowledged but are missing in the capture.
    pub(super) uncaptured: u32,
    /// Gaps that the receiver reported and that closed without a retransmission.
    pub(super) healed: u32,
    /// Holes that were dropped because of the limit.
    pub(super) holes_dropped: u32,
    /// Acknowledgments without data in this direction.
    pub(super) acks: u32,
    /// Acknowledgments that must be missing, because the identification increased by more than one.
    pub(super) acks_missing: u32,
    /// Damaged acknowledgments: `acks_missing` includes them, but they were not lost.
    pub(super) acks_damaged: u32,
    /// Sum of the windows that the peer announced, in bytes, and their number; 0 if the scale is unknown.
    pub(super) window_bytes: u64,
    pub(super) windows: u32,
    /// Periods with a closed window, and their total time.
    pub(super) zero_windows: u32,
    pub(super) zero_ns: u64,
    /// Pauses of the sender, and their total time. A pause follows a push. During it, the sender could have sent more:
    /// all data except the last segments was acknowledged, and the window was open.
    pub(super) pauses: u32,
    pub(super) paused_ns: u64,
    /// Other periods without data that are longer than half a round trip, and their total time.
    pub(super) waits: u32,
    pub(super) waited_ns: u64,
    /// Frames with data and PSH.
    pub(super) pushed: u32,
    /// Consecutive packets at most [`BACK_TO_BACK_NS`](super::stream::BACK_TO_BACK_NS) apart, and the number of these
    /// with different timestamp values.
    pub(super) pairs: u32,
    pub(super) stepped: u32,
    /// Consecutive packets on a busy link with packets of many other flows in between: a whole turn of
    /// [`Turns`](super::turns::Turns).
    pub(super) alternated: u32,
    /// Frames with a complete but wrong checksum.
    pub(super) bad: u32,
    /// Damaged packets whose fields were ignored, because other packets had correct checksums.
    pub(super) damaged: u32,
    /// MSS that the peer announced.
    pub(super) mss: u16,
    /// Smallest MTU that an ICMP message gave for the path; 0 if none did.
    pub(super) icmp_mtu: u16,
    /// Longest packet that an ICMP message quotes.
    pub(super) icmp_quoted: u16,
    /// Packets longer than `icmp_mtu`, sent more than a round trip after the message.
    pub(super) above_mtu: u32,
    /// Frames longer than `icmp_mtu` that may be single packets or superframes.
    pub(super) above_mtu_guessed: u32,
    /// Whether ICMP messages continued for more than a round trip after the first one.
    pub(super) is_icmp_repeated: bool,
    /// Maximum number of transmissions of one segment while no segment of its size was acknowledged, and the size in
    /// bytes.
    pub(super) stuck_times: u32,
    pub(super) stuck_bytes: u32,
    /// Whether a smaller packet sent in place of the unacknowledged segment was acknowledged.
    pub(super) stuck_probed: bool,
}

impl Figures {
    /// Counts a frame with `payload` bytes of data.
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

    /// Returns the mean window of the peer in bytes; 0 if it is unknown.
    pub(super) fn window_mean(&self) -> u64 {
        self.window_bytes / u64::from(self.windows.max(1))
    }

    /// Returns the time from the first frame with data to the last, in nanoseconds.
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
