//! Tracks one direction of a connection: its sequence numbers, and the acknowledgments that the peer sends for them.

use std::num::NonZeroU64;

use grosso_wire::tcp;

use super::{
    event::SequenceEvent,
    figures::Figures,
    frame::{TcpFrame, is_before},
    holes::{Hole, Holes},
    identification::{Sent, SentOrder},
    turns::TURN_NS_MAX,
};

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) figures: Figures,
    pub(super) order: SentOrder,
    holes: Holes,
    /// Number of frames, and how many of them have a complete but wrong checksum.
    seen: u32,
    seen_bad: u32,
    /// Whether the sequence numbers in the following fields are known.
    is_known: bool,
    /// Sequence number after the data seen so far.
    max: u32,
    /// Sequence number up to which the peer has acknowledged.
    acked: u32,
    /// Window scale from the SYN.
    scale: Option<u8>,
    /// Whether a SYN was captured. If it was, a missing window scale means a scale of 0.
    has_syn: bool,
    /// Whether the last frame with a payload had PSH.
    is_pushed: bool,
    /// Sequence number of the last frame, if it was an acknowledgment without payload.
    last_ack: Option<u32>,
    /// Turn of the last frame with a payload; 0 before the first one.
    pub(super) turn: u32,
    /// Timestamp value of the last frame with a payload.
    timestamp: Option<u32>,
    /// Time since which the sender has been able to send more data, because at most [`DELAYED_MAX`] segments were
    /// unacknowledged and the window was open; `None` if it was not able to.
    open_since: Option<NonZeroU64>,
    /// Whether the receiver reported a gap that starts at the last sequence number it acknowledged.
    has_gap: bool,
    /// Highest end of any packet that filled a gap or repeated data.
    repaired: u32,
    /// Time at which the window closed; `None` if it is open.
    zero_since: Option<NonZeroU64>,
    /// Largest window announced by the peer, in bytes, and the end of its latest window; 0 if the scale is unknown.
    window_max: u32,
    window_end: u32,
    stuck: Stuck,
    /// Timestamp value of the last frame.
    pub(super) stamped: Option<u32>,
    /// First timestamp value, and the time of its frame in nanoseconds; 0 until then.
    stamp_first: u32,
    stamp_first_ns: u64,
    /// Timestamp value whose echo is expected, and the time of its frame.
    echo: Option<(u32, NonZeroU64)>,
    /// Minimum time from the capture point to the peer and back, in nanoseconds; 0 if unknown.
    pub(super) echo_ns: u64,
    /// Same minimum, measured only during the handshake and while the peer's application did not pause.
    pub(super) answer_ns: u64,
    /// Sum and number of those measured times that are at most [`ECHO_SPREAD`] times the minimum.
    echoes_ns: u64,
    echoes: u32,
    /// Number of longer measured times.
    echoes_long: u32,
}

/// State of the connection just before a frame with a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Minimum round-trip time in nanoseconds; 0 if unknown.
    pub(super) round_trip_ns: u64,
    /// Minimum time, in nanoseconds, between the capture of an acknowledgment and of the data that the sender sends in
    /// response, excluding pauses of its application; 0 if unknown.
    pub(super) answer_ns: u64,
    /// Time since the last frame in either direction, in nanoseconds.
    pub(super) quiet_ns: u64,
    /// The peer's last timestamp value.
    pub(super) peer_timestamp: Option<u32>,
}

/// First segment that has not been acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Stuck {
    start: u32,
    bytes: u32,
    times: u32,
    /// Payload of the largest acknowledged packet.
    passed_bytes: u32,
    /// End and payload of the first packet in flight that is larger; 0 if there is none.
    larger_end: u32,
    larger_bytes: u32,
    /// End of a smaller packet that was sent in place of the stuck segment.
    smaller_end: Option<u32>,
}

impl Stream {
    /// Processes a SYN.
    pub(super) fn begin(&mut self, frame: &TcpFrame) {
        let first = frame.sequence.wrapping_add(1);
        if !self.is_known || first != self.max {
            self.restart(first);
            self.zero_since = None;
        }
        (self.scale, self.has_syn) = (frame.window_scale, true);
    }

    /// Restarts tracking at sequence number `first`.
    fn restart(&mut self, first: u32) {
        self.holes.clear();
        (self.max, self.acked, self.repaired, self.is_known) = (first, first, first, true);
        (self.window_end, self.open_since) = (first, None);
        (self.has_gap, self.stuck) = Default::default();
    }

    /// Returns whether the path damaged a frame, so that its fields must be ignored. If most of a host's checksums are
    /// wrong, its frames are not damaged: the host leaves checksums to its device.
    pub(super) fn is_damaged(&mut self, frame: &TcpFrame) -> bool {
        let is_rare = self.seen_bad <= self.seen / DAMAGED_SHARE;
        self.seen = self.seen.saturating_add(1);
        self.seen_bad += u32::from(frame.is_bad);
        let is_damaged = frame.is_bad && is_rare;
        if is_damaged && frame.payload > 0 {
            self.figures.bad += 1;
            self.figures.damaged += 1;
        } else if is_damaged {
            self.figures.acks_damaged += 1;
        }
        is_damaged
    }

    /// Determines the position of a frame in the sending order, and counts missing acknowledgments.
    pub(super) fn follow(&mut self, frame: &TcpFrame) -> Sent {
        let sent = self.order.observe(frame);
        let pure = frame.is_pure_ack().then_some(frame.sequence);
        if pure.is_some() {
            self.figures.acks += 1;
            match sent {
                Sent::Later(missing) if self.last_ack == pure => {
                    self.figures.acks_missing += u32::from(missing);
                }
                Sent::Earlier => {
                    self.figures.acks_missing = self.figures.acks_missing.saturating_sub(1);
                }
                Sent::Later(_) | Sent::Copy | Sent::Unknown => {}
            }
        }
        if !sent.is_old() {
            self.last_ack = pure;
        }
        sent
    }

    /// Processes a frame with a payload, and returns what its sequence numbers show.
    pub(super) fn send(
        &mut self,
        frame: &TcpFrame,
        sent: Sent,
        around: &Surroundings,
    ) -> Option<SequenceEvent> {
        let &Surroundings { round_trip_ns, quiet_ns, peer_timestamp, .. } = around;
        let (start, end) = (frame.sequence, frame.end());
        if !self.is_known || start.wrapping_sub(self.max).cast_signed().unsigned_abs() > JUMP_MAX {
            self.restart(start);
        }
        // A window probe or a keepalive repeats one byte.
        if frame.payload == 1 && end == self.max && end == self.acked {
            return None;
        }
        let mut event = None;
        let idle_ns = frame.time_ns.saturating_sub(self.figures.last_ns);
        self.count(frame);
        if !is_before(start, self.max) {
            if start != self.max {
                let is_dropped = self.holes.open(self.max, frame, peer_timestamp);
                self.figures.holes_dropped += u32::from(is_dropped);
            } else if matches!(sent, Sent::Later(1..)) && quiet_ns > round_trip_ns.max(QUIET_NS) {
                self.figures.tails_lost += 1;
            } else if self.figures.frames > 1 && self.zero_since.is_none() {
                self.wait(frame.time_ns, idle_ns, around);
            }
            self.max = end;
        } else {
            let top = if is_before(self.max, end) { self.max } else { end };
            let (filled, hole) = self.holes.fill(start, top);
            if is_before(self.repaired, top) {
                self.repaired = top;
            }
            if let Some(hole) = hole {
                let packets = frame.packets_of(filled);
                event = Some(self.fill(frame, packets, &hole, sent, around.round_trip_ns));
            }
            let repeated = top.wrapping_sub(start) - filled;
            if repeated > 0 {
                let repeated = self.repeat(frame, frame.packets_of(repeated), sent);
                event = event.or(Some(repeated));
            }
            if is_before(self.max, end) {
                self.max = end;
            }
        }
        if frame.segment > self.stuck.passed_bytes && self.stuck.larger_bytes == 0 {
            (self.stuck.larger_end, self.stuck.larger_bytes) =
                (start.wrapping_add(frame.segment), frame.segment);
        }
        self.is_pushed = frame.has(tcp::PSH);
        self.open_since = None;
        self.find_room(frame.time_ns);
        event
    }

    /// Updates the time since which the sender has been able to send more.
    fn find_room(&mut self, now_ns: u64) {
        let segment = self.figures.segment_max;
        // The receiver may delay the acknowledgment of the last segments.
        let is_acked = !is_before(self.acked.wrapping_add(DELAYED_MAX * segment), self.max);
        let has_room =
            self.window_max == 0 || !is_before(self.window_end, self.max.wrapping_add(segment));
        self.open_since = match self.open_since {
            _ if !is_acked || !has_room => None,
            None => NonZeroU64::new(now_ns),
            since => since,
        };
    }

    /// Returns whether the sender appears to have sent everything its application wrote.
    pub(super) const fn is_drained(&self) -> bool {
        self.is_pushed && self.open_since.is_some()
    }

    /// Counts a wait that ends when the sender sends again at `now_ns`: either a pause of its application, or a wait
    /// for acknowledgments. The direction was idle for `idle_ns`.
    fn wait(&mut self, now_ns: u64, idle_ns: u64, around: &Surroundings) {
        let &Surroundings { round_trip_ns, answer_ns, .. } = around;
        let open_ns = self.open_since.map_or(0, |since| now_ns.saturating_sub(since.get()));
        let figures = &mut self.figures;
        // A sender that waits for acknowledgments sends as soon as they arrive, and a sender that has more data does
        // not set PSH.
        if self.is_pushed && open_ns > answer_ns.saturating_add(answer_ns / 2).max(PAUSE_NS) {
            figures.pauses += 1;
            figures.paused_ns = figures.paused_ns.saturating_add(idle_ns);
        } else if idle_ns > (round_trip_ns / 2).max(WAIT_NS) && idle_ns / 2 < round_trip_ns {
            figures.waits += 1;
            figures.waited_ns = figures.waited_ns.saturating_add(idle_ns);
        }
    }

    fn count(&mut self, frame: &TcpFrame) {
        let figures = &mut self.figures;
        let quiet_ns = frame.time_ns.saturating_sub(figures.last_ns);
        let is_next = frame.sequence == self.max
            && figures.frames > 0
            && frame.segment >= figures.segment_max;
        let turns = frame.turn.wrapping_sub(self.turn);
        if is_next && turns >= 2 && quiet_ns <= u64::from(turns) * TURN_NS_MAX {
            figures.alternated += 1;
        }
        self.turn = frame.turn;
        if let (Some(before), Some((value, _))) = (self.timestamp, frame.timestamps)
            && is_next
            && quiet_ns <= BACK_TO_BACK_NS
        {
            figures.pairs += 1;
            figures.stepped += u32::from(before != value);
        }
        self.timestamp = frame.timestamps.map(|(value, _)| value);
        figures.count(frame.time_ns, frame.payload, &frame.segments());
        figures.ip_bytes_max = figures.ip_bytes_max.max(frame.ip_bytes);
        figures.pushed += u32::from(frame.has(tcp::PSH));
        figures.bad += u32::from(frame.is_bad);
    }

    /// Counts packets that fill a hole. Either they were late, or their first copies were lost before the capture
    /// point.
    fn fill(
        &mut self,
        frame: &TcpFrame,
        packets: u32,
        hole: &Hole,
        sent: Sent,
        rtt_ns: u64,
    ) -> SequenceEvent {
        let elapsed_ns = frame.time_ns.saturating_sub(hole.since_ns);
        let by_timestamps = self.is_late(frame, hole, elapsed_ns);
        let figures = &mut self.figures;
        let is_late = match (sent, by_timestamps) {
            (Sent::Later(_), _) => false,
            (Sent::Earlier | Sent::Copy, _) => true,
            (Sent::Unknown, Some(is_late)) => {
                figures.told_by_timestamps += packets;
                is_late
            }
            (Sent::Unknown, None) => {
                figures.told_by_time += packets;
                elapsed_ns < if rtt_ns == 0 { LATE_NS } else { rtt_ns }
            }
        };
        if !is_late {
            figures.lost_before += packets;
            return SequenceEvent::LostBefore;
        }
        figures.late += packets;
        let behind = frame.packets_of(self.max.wrapping_sub(frame.end()));
        figures.late_packets_max = figures.late_packets_max.max(behind);
        figures.late_ns_max = figures.late_ns_max.max(elapsed_ns);
        SequenceEvent::Late
    }

    /// Returns whether a frame that fills a hole is merely late: its timestamps show that it was sent before the frame
    /// that follows the hole, so it is not a retransmission. Returns `None` if the timestamps are inconclusive.
    fn is_late(&self, frame: &TcpFrame, hole: &Hole, elapsed_ns: u64) -> Option<bool> {
        let ((own, echo), after) = frame.timestamps.zip(hole.timestamp)?;
        if own != after {
            return Some(is_before(own, after));
        }
        // A retransmission follows an acknowledgment that the peer sent after the hole opened.
        let is_older = hole.peer_timestamp.is_some_and(|peer| is_before(echo, peer));
        // The timestamp clock advances while a retransmission waits for its acknowledgment.
        let is_still = self.tick_ns().is_some_and(|tick_ns| elapsed_ns / TICKS_MIN > tick_ns);
        (is_older || is_still).then_some(true)
    }

    /// Returns the tick length of the timestamp clock in nanoseconds; `None` if unknown.
    fn tick_ns(&self) -> Option<u64> {
        let ticks = u64::from(self.stamped?.wrapping_sub(self.stamp_first));
        let elapsed_ns = self.figures.last_ns.saturating_sub(self.stamp_first_ns);
        elapsed_ns.checked_div(ticks)
    }

    /// Counts packets whose data had already been captured.
    fn repeat(&mut self, frame: &TcpFrame, packets: u32, sent: Sent) -> SequenceEvent {
        if sent == Sent::Earlier && packets <= self.figures.lost_before {
            // A retransmission overtook the original packet.
            self.figures.lost_before -= packets;
            self.figures.late += packets;
            return SequenceEvent::Late;
        }
        if sent.is_old() {
            self.figures.duplicated += packets;
            return SequenceEvent::Duplicated;
        }
        self.figures.retransmitted += packets;
        if !is_before(self.acked, frame.end()) {
            self.figures.retransmitted_acked += packets;
        } else if frame.sequence == self.acked {
            self.retry(frame);
        }
        SequenceEvent::Retransmitted
    }

    /// Counts a retransmission of the first segment that was not acknowledged.
    fn retry(&mut self, frame: &TcpFrame) {
        let stuck = &mut self.stuck;
        if stuck.times == 0 || stuck.start != frame.sequence {
            (stuck.start, stuck.bytes, stuck.times) = (frame.sequence, frame.segment, 1);
            stuck.smaller_end = None;
        }
        // The retransmission is either as large as before, or a smaller probe.
        if u64::from(frame.segment) * 10 < u64::from(stuck.bytes) * 9 {
            stuck.smaller_end = Some(frame.end());
            stuck.larger_bytes = 0;
        } else {
            stuck.bytes = stuck.bytes.max(frame.segment);
            stuck.times += 1;
        }
        if stuck.bytes > stuck.passed_bytes && stuck.times > self.figures.stuck_times {
            (self.figures.stuck_times, self.figures.stuck_bytes) = (stuck.times, stuck.bytes);
        }
    }

    /// Processes an acknowledgment from the peer. `scale` is the window scale in the peer's SYN.
    pub(super) fn acknowledge(&mut self, frame: &TcpFrame, ack: u32, scale: Option<u8>) {
        let window = scale.map(|scale| u32::from(frame.window) << scale);
        self.take_window(frame, ack, window);
        if self.is_known {
            self.advance(frame, ack);
            self.find_room(frame.time_ns);
        }
    }

    fn advance(&mut self, frame: &TcpFrame, ack: u32) {
        let is_gap_reported = self.take_blocks(frame, ack);
        if !is_before(self.acked, ack) || ack.wrapping_sub(self.acked) > JUMP_MAX {
            return;
        }
        let missing = self.holes.close(ack);
        let figures = &mut self.figures;
        if missing > 0 && figures.segment_max > 0 {
            figures.uncaptured += missing.div_ceil(figures.segment_max);
        }
        // A FIN takes up a sequence number but carries no data.
        let beyond = ack.wrapping_sub(self.max);
        if is_before(self.max, ack) && beyond > 1 && figures.frames > 0 {
            figures.uncaptured += beyond.div_ceil(figures.segment_max.max(1));
        }
        if is_before(self.max, ack) {
            self.max = ack;
        }
        // A retransmission beyond the gap implies that the gap was retransmitted too.
        let is_repaired = is_before(self.acked, self.repaired);
        if self.has_gap && !is_repaired && missing == 0 {
            figures.healed += 1;
        }
        if is_before(self.repaired, ack) {
            self.repaired = ack;
        }
        self.has_gap = is_gap_reported;
        self.acked = ack;
        self.pass(ack);
    }

    /// Records the sizes of packets that reached the peer.
    fn pass(&mut self, ack: u32) {
        let stuck = &mut self.stuck;
        if stuck.larger_bytes > 0 && !is_before(ack, stuck.larger_end) {
            // If smaller packets replaced a larger one, they say nothing about its size.
            if stuck.smaller_end.is_none() {
                stuck.passed_bytes = stuck.passed_bytes.max(stuck.larger_bytes);
            }
            stuck.larger_bytes = 0;
        }
        if stuck.times > 0 && is_before(stuck.start, ack) {
            if stuck.smaller_end.is_some() {
                self.figures.stuck_probed |= stuck.bytes == self.figures.stuck_bytes;
            } else {
                stuck.passed_bytes = stuck.passed_bytes.max(stuck.bytes);
            }
            stuck.times = 0;
            stuck.smaller_end = None;
        }
        if self.figures.stuck_bytes > 0 && stuck.passed_bytes >= self.figures.stuck_bytes {
            (self.figures.stuck_times, self.figures.stuck_bytes) = (0, 0);
        }
    }

    /// Parses the SACK blocks. Returns whether they report a gap.
    fn take_blocks(&mut self, frame: &TcpFrame, ack: u32) -> bool {
        let [Some((left, right)), second] = frame.blocks else { return false };
        let is_inside = |(from, to): (u32, u32)| !is_before(left, from) && !is_before(to, right);
        if !is_before(ack, right) || second.is_some_and(is_inside) {
            let bytes = right.wrapping_sub(left);
            let packets = bytes.div_ceil(self.figures.segment_max.max(1));
            self.figures.received_twice += packets.min(RECEIVED_TWICE_MAX);
            return second.is_some();
        }
        self.has_gap |= ack == self.acked;
        true
    }

    fn take_window(&mut self, frame: &TcpFrame, ack: u32, window: Option<u32>) {
        if frame.has(tcp::SYN | tcp::RST | tcp::FIN) {
            return;
        }
        match (self.is_closed(frame.window, window), self.zero_since) {
            (true, None) => {
                self.zero_since = NonZeroU64::new(frame.time_ns.max(1));
                self.figures.zero_windows += 1;
            }
            (false, Some(since)) => {
                let closed_ns = frame.time_ns.saturating_sub(since.get());
                self.figures.zero_ns = self.figures.zero_ns.saturating_add(closed_ns);
                self.zero_since = None;
            }
            _ => {}
        }
        if let Some(window) = window {
            let end = ack.wrapping_add(window);
            if self.window_max == 0 || is_before(self.window_end, end) {
                self.window_end = end;
            }
            self.window_max = self.window_max.max(window);
            self.figures.window_bytes += u64::from(window);
            self.figures.windows += 1;
        }
    }

    /// Returns whether a window stops the sender, because it is zero or smaller than both a segment and half of the
    /// largest window (RFC 1122 section 4.2.3.4). `window` is the scaled window; `None` if the scale is unknown.
    fn is_closed(&self, field: u16, window: Option<u32>) -> bool {
        let least = self.figures.segment_max.min(self.window_max / 2);
        field == 0 || window.is_some_and(|window| window < least)
    }

    /// Returns the scale of the windows announced in this direction; `None` if unknown. A scale applies only if both
    /// SYNs have one (RFC 7323).
    pub(super) fn scale_with(&self, peer: &Self) -> Option<u8> {
        (self.has_syn && peer.has_syn).then_some(if peer.scale.is_some() {
            self.scale.unwrap_or(0)
        } else {
            0
        })
    }

    /// Starts waiting for the echo of a frame, if its timestamp value is new and no other echo is expected.
    pub(super) fn stamp(&mut self, frame: &TcpFrame) {
        let Some((value, _)) = frame.timestamps else { return };
        let is_new = self.stamped.replace(value) != Some(value);
        if self.stamp_first_ns == 0 {
            (self.stamp_first, self.stamp_first_ns) = (value, frame.time_ns);
        }
        if is_new && self.echo.is_none() && !frame.has(tcp::SYN | tcp::FIN | tcp::RST) {
            self.echo = NonZeroU64::new(frame.time_ns).map(|time_ns| (value, time_ns));
        }
    }

    /// Processes the timestamp echo in a frame from the peer. `is_prompt` means that the peer's application did not
    /// delay the frame.
    pub(super) fn observe_echo(&mut self, frame: &TcpFrame, is_prompt: bool) {
        let (Some((value, since_ns)), Some((_, echo))) = (self.echo, frame.timestamps) else {
            return;
        };
        if is_before(echo, value) {
            return;
        }
        self.echo = None;
        let elapsed_ns = frame.time_ns.saturating_sub(since_ns.get()).max(1);
        if self.echo_ns == 0 || elapsed_ns < self.echo_ns {
            self.echo_ns = elapsed_ns;
        }
        if is_prompt && (self.answer_ns == 0 || elapsed_ns < self.answer_ns) {
            self.answer_ns = elapsed_ns;
        }
        if elapsed_ns / ECHO_SPREAD <= self.echo_ns {
            self.echoes_ns = self.echoes_ns.saturating_add(elapsed_ns);
            self.echoes += 1;
        } else {
            self.echoes_long += 1;
        }
    }

    /// Returns the mean time from the capture point to the peer and back, excluding pauses, in nanoseconds; 0 if
    /// unknown.
    pub(super) fn echo_mean_ns(&self) -> u64 {
        self.echoes_ns / u64::from(self.echoes.max(1))
    }

    /// Returns whether the time from the capture point to the peer and back hardly varies, which means that no queue
    /// fills up.
    pub(super) fn is_echo_steady(&self) -> bool {
        let mean_ns = self.echo_mean_ns();
        mean_ns > 0 && mean_ns / 3 <= self.echo_ns / 2 && self.echoes_long <= self.echoes / 4
    }

    /// Returns the total time with a closed window until `now_ns`, in nanoseconds.
    pub(super) fn zero_ns_until(&self, now_ns: u64) -> u64 {
        let open_ns = self.zero_since.map_or(0, |since| now_ns.saturating_sub(since.get()));
        self.figures.zero_ns.saturating_add(open_ns)
    }
}

/// Maximum distance in bytes between two frames in one direction. A larger jump restarts tracking.
const JUMP_MAX: u32 = 1 << 30;
/// Maximum number of packets that a single DSACK block reports.
const RECEIVED_TWICE_MAX: u32 = 64;
/// Minimum silence before a retransmission that arrives in order, in nanoseconds. Linux's shortest retransmission timer
/// is longer than this.
const QUIET_NS: u64 = 10_000_000;
/// Maximum number of segments for which a receiver delays the acknowledgment (RFC 9293 section 3.8.6.3).
const DELAYED_MAX: u32 = 2;
/// Minimum silence that counts as a pause by the sender, in nanoseconds.
const PAUSE_NS: u64 = 5_000_000;
/// Minimum time without data that counts as a wait for acknowledgments, in nanoseconds.
const WAIT_NS: u64 = 1_000_000;
/// Minimum number of timestamp clock ticks between a frame and a frame sent in response to it.
const TICKS_MIN: u64 = 2;
/// Maximum delay of reordered packets, in nanoseconds, if the round-trip time is unknown. Packets that are delayed
/// longer count as lost.
const LATE_NS: u64 = 3_000_000;
/// Inverse of the maximum share of frames that the path damages.
const DAMAGED_SHARE: u32 = 8;
/// Maximum ratio of an echo time to the minimum. A longer echo time includes an application delay.
const ECHO_SPREAD: u64 = 4;
/// Maximum time between back-to-back packets, in nanoseconds.
pub(super) const BACK_TO_BACK_NS: u64 = 100_000;
