//! A TCP sender in userspace, implemented as a port. Its behavior depends only on the frames that it receives and on
//! the caller's clock. Its congestion control is the [model](crate::model) rather than the kernel's.
//!
//! The sender opens one connection, never closes it, and sends the same content repeatedly. It retransmits according to
//! NewReno (RFC 6582) and after timeouts, and does not use selective acknowledgments. It does not pace its packets, so
//! it must not share the wire with other traffic.

mod segment;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    features::{Device, Features},
};
use grosso_io::{Port, PortBuffer, PortError, Transmitted, port::PortCounter};
use grosso_wire::{LinkType, tcp};

pub use self::segment::ConnectionEnds;
use self::segment::{
    CHECKSUM_OFFSET, PAYLOAD_BYTES, SegmentFields, SegmentReply, TCP_START, headers_bytes,
};
use crate::{
    model::{Acknowledgment, Counting, Sender, distance},
    traffic::Content,
};

/// A TCP sender that runs in userspace.
#[derive(Debug)]
pub struct UserSender {
    ends: ConnectionEnds,
    content: Arc<Content>,
    congestion: Sender,
    state: UserState,
    /// Sequence number of the next byte to send.
    cursor: u32,
    /// Sequence number after the last byte that has been sent.
    sent: u32,
    /// Whether the first unacknowledged segment must be retransmitted.
    again: bool,
    /// Sequence number of the next byte from the receiver.
    expected: u32,
    /// Window scale of the receiver, in bits.
    scale: u8,
    /// Timestamp from the receiver that must be echoed.
    echo: u32,
    timer: RetransmissionTimer,
    /// Sequence number whose acknowledgment ends the current round trip.
    round_trip_end: u32,
    counts: SenderCounts,
    identification: u16,
    began: Arc<OnceLock<Instant>>,
    scratch: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserState {
    /// The SYN has not been sent yet.
    Silent,
    /// The SYN has been sent.
    Asked,
    Established,
    /// The peer reset the connection.
    Reset,
}

/// The retransmission timer from RFC 6298, but with a fixed timeout instead of a measured one, so that pauses of the
/// machine do not change it.
#[derive(Debug)]
struct RetransmissionTimer {
    timeout_ns: u64,
    /// Number of timeouts since the last progress.
    backoff: u32,
    ends_ns: Option<u64>,
}

/// Counters of a sender in userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderCounts {
    /// Number of round trips of acknowledged data.
    pub(crate) round_trips: u64,
    /// Number of retransmitted segments.
    pub(crate) retransmits: u64,
    /// Number of times that the timer expired.
    pub(crate) timeouts: u64,
}

impl UserSender {
    /// Creates a sender that sends `content` over a wire with this round-trip time.
    #[must_use]
    pub fn new(
        ends: ConnectionEnds,
        counting: Counting,
        round_trip: Duration,
        content: Arc<Content>,
    ) -> Self {
        let congestion = Sender::new(counting, PAYLOAD_BYTES, FIRST);
        let timeout = TIMEOUT.saturating_add(round_trip.saturating_mul(2));
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self {
            ends,
            content,
            state: UserState::Silent,
            cursor: FIRST,
            sent: FIRST,
            again: false,
            expected: 0,
            scale: 0,
            echo: 0,
            timer: RetransmissionTimer { timeout_ns, backoff: 0, ends_ns: None },
            round_trip_end: congestion.next,
            congestion,
            counts: SenderCounts::default(),
            identification: 0,
            began: Arc::default(),
            scratch: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Returns a cell that will contain the time at which the first byte was sent.
    #[must_use]
    pub fn began(&self) -> Arc<OnceLock<Instant>> {
        Arc::clone(&self.began)
    }

    fn keep_time(&mut self, now_ns: u64) {
        if self.timer.is_over(now_ns) {
            self.counts.timeouts += 1;
            match self.state {
                UserState::Established => {
                    self.congestion.time_out();
                    self.cursor = self.congestion.unacknowledged;
                    self.again = true;
                }
                UserState::Asked => self.state = UserState::Silent,
                UserState::Silent | UserState::Reset => {}
            }
        }
    }

    /// Returns the next frame to send, if there is one.
    fn next_frame(&mut self, now_ns: u64) -> Option<Frame<PortBuffer>> {
        match self.state {
            UserState::Silent => {
                self.state = UserState::Asked;
                self.frame(tcp::SYN, FIRST.wrapping_sub(1), now_ns)
            }
            UserState::Established if self.again => {
                self.again = false;
                let first = self.congestion.unacknowledged;
                if first == self.cursor {
                    self.cursor = first.wrapping_add(PAYLOAD_BYTES);
                }
                self.frame(tcp::ACK, first, now_ns)
            }
            UserState::Established if self.has_window() => {
                let sequence = self.cursor;
                self.cursor = sequence.wrapping_add(PAYLOAD_BYTES);
                self.frame(tcp::ACK, sequence, now_ns)
            }
            UserState::Established | UserState::Asked | UserState::Reset => None,
        }
    }

    fn frame(&mut self, flags: u16, sequence: u32, now_ns: u64) -> Option<Frame<PortBuffer>> {
        let fields = SegmentFields {
            flags,
            sequence,
            acknowledgment: self.expected,
            timestamps: [(now_ns / NS_A_MS) as u32, self.echo],
            identification: self.identification,
        };
        self.identification = self.identification.wrapping_add(1);
        let payload_bytes = if flags == tcp::ACK { PAYLOAD_BYTES as usize } else { 0 };
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(headers_bytes(flags), 0);
        self.ends.write_headers(&fields, payload_bytes, &mut buffer).ok()?;
        if payload_bytes > 0 {
            self.began.get_or_init(Instant::now);
            self.count(sequence);
            self.add_payload(u64::from(sequence.wrapping_sub(FIRST)), payload_bytes, &mut buffer);
        }
        let checksum = Checksum::Partial { start: TCP_START as u16, offset: CHECKSUM_OFFSET };
        Some(Frame { buffer: buffer.into(), meta: Meta { checksum, ..Meta::default() } })
    }

    fn count(&mut self, sequence: u32) {
        let end = sequence.wrapping_add(PAYLOAD_BYTES);
        if distance(self.sent, end) > 0 {
            self.sent = end;
        } else {
            self.counts.retransmits += 1;
        }
    }

    fn add_payload(&self, place: u64, bytes: usize, frame: &mut Vec<u8>) {
        let end = frame.len() + bytes;
        let mut place = place;
        while frame.len() < end {
            let content = self.content.from(place);
            let part = &content[..content.len().min(end - frame.len())];
            frame.extend_from_slice(part);
            place += part.len() as u64;
        }
    }

    fn take(&mut self, reply: &SegmentReply) {
        if reply.flags & tcp::RST != 0 {
            self.state = UserState::Reset;
            return;
        }
        self.echo = reply.clock.unwrap_or(self.echo);
        let answers = reply.flags & (tcp::SYN | tcp::ACK) == tcp::SYN | tcp::ACK;
        match self.state {
            UserState::Asked if answers && reply.acknowledgment == FIRST => {
                self.state = UserState::Established;
                self.expected = reply.sequence.wrapping_add(1);
                self.scale = reply.scale.unwrap_or(0);
                self.congestion.room = reply.window.into();
                self.timer.restart();
            }
            // The peer did not receive the acknowledgment of its SYN.
            UserState::Established if answers => self.again = true,
            UserState::Established => self.acknowledge(reply),
            UserState::Silent | UserState::Asked | UserState::Reset => {}
        }
    }

    fn acknowledge(&mut self, reply: &SegmentReply) {
        let (before, resent) = (self.congestion.unacknowledged, self.congestion.retransmits);
        self.congestion.room = u64::from(reply.window) << self.scale;
        self.congestion.acknowledge(&Acknowledgment {
            number: reply.acknowledgment,
            window: reply.window,
            ..Acknowledgment::default()
        });
        self.again |= self.congestion.retransmits > resent;
        let first = self.congestion.unacknowledged;
        if first == before {
            return;
        }
        self.timer.restart();
        if distance(self.cursor, first) > 0 {
            self.cursor = first;
        }
        if distance(self.round_trip_end, first) >= 0 {
            self.counts.round_trips += 1;
            self.round_trip_end = self.congestion.next;
        }
    }

    fn has_window(&self) -> bool {
        distance(self.cursor, self.congestion.next) >= PAYLOAD_BYTES as i32
    }
}

impl RetransmissionTimer {
    /// Resets the timer, because new data was acknowledged.
    fn restart(&mut self) {
        (self.backoff, self.ends_ns) = (0, None);
    }

    /// Returns whether the timer has expired. Starts the timer if it is not running. If it has expired, restarts it
    /// with twice the timeout (RFC 6298 section 5.5).
    fn is_over(&mut self, now_ns: u64) -> bool {
        let is_over = self.ends_ns.is_some_and(|ends_ns| now_ns >= ends_ns);
        if is_over {
            self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        }
        if is_over || self.ends_ns.is_none() {
            self.ends_ns =
                Some(now_ns.saturating_add(self.timeout_ns.saturating_mul(1 << self.backoff)));
        }
        is_over
    }
}

impl SenderCounts {
    /// Extracts the sender's counters from the counters of a port.
    pub(crate) fn of(counters: &[(PortCounter, u64)]) -> Self {
        let value = |wanted: PortCounter| {
            counters.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, value)| *value)
        };
        let [round_trips, retransmits, timeouts] = COUNTERS.map(value);
        Self { round_trips, retransmits, timeouts }
    }
}

impl Port for UserSender {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    /// Returns a device with all features, so that merged acknowledgments arrive as one packet.
    fn device(&self) -> Device {
        Device::new(Features::ALL)
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.keep_time(now_ns);
        let mut count = 0;
        while count < max
            && let Some(frame) = self.next_frame(now_ns)
        {
            each(frame);
            count += 1;
        }
        Ok(count)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.spare.extend(buffer.into_own());
    }

    fn transmit(&mut self, slices: &[&[u8]], _meta: &Meta) -> Result<Transmitted, PortError> {
        self.scratch.clear();
        slices.iter().for_each(|slice| self.scratch.extend_from_slice(slice));
        if let Some(reply) = self.ends.read(&self.scratch) {
            self.take(&reply);
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }

    /// Returns 0 if the sender can send immediately, and otherwise the time at which the timer expires.
    fn deadline(&self) -> Option<u64> {
        match self.state {
            UserState::Silent => Some(0),
            UserState::Established if self.again || self.has_window() => Some(0),
            UserState::Established | UserState::Asked => self.timer.ends_ns.or(Some(0)),
            UserState::Reset => None,
        }
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let SenderCounts { round_trips, retransmits, timeouts } = self.counts;
        for (counter, value) in COUNTERS.into_iter().zip([round_trips, retransmits, timeouts]) {
            each(counter, value);
        }
    }
}

/// First sequence number of the content, close to wrapping around.
const FIRST: u32 = 0xfff0_0000;
/// Minimum timeout (RFC 6298 section 2.4), not including the round-trip time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of times that the timeout is doubled.
const BACKOFF_MAX: u32 = 6;
const NS_A_MS: u64 = 1_000_000;
/// The counters, in the order of [`SenderCounts`].
const COUNTERS: [PortCounter; 3] = [
    PortCounter {
        name: "sender_round_trips",
        is_loss: false,
        sentence: "A round trip of data was acknowledged.",
    },
    PortCounter {
        name: "sender_retransmits",
        is_loss: false,
        sentence: "A segment was retransmitted.",
    },
    PortCounter {
        name: "sender_timeouts",
        is_loss: false,
        sentence: "No data was acknowledged before the retransmission timer expired.",
    },
];

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ENDS: ConnectionEnds = ConnectionEnds {
        hardware: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        addresses: [Ipv4Addr::new(10, 93, 0, 1), Ipv4Addr::new(10, 93, 0, 2)],
        ports: [40_000, 5001],
    };
    const SECOND_NS: u64 = 1_000_000_000;

    fn sender() -> UserSender {
        let content = Arc::new(Content::new(1).unwrap());
        UserSender::new(ENDS, Counting::Packets, Duration::ZERO, content)
    }

    /// Returns the sequence numbers of the frames that are sent at `second`.
    fn sent(sender: &mut UserSender, second: u64) -> Vec<u32> {
        let mut sequences = Vec::new();
        let mut note = |frame: Frame<PortBuffer>| {
            let bytes = &frame.buffer.as_ref()[TCP_START + 4..][..4];
            sequences.push(u32::from_be_bytes(bytes.try_into().unwrap()));
        };
        sender.receive(second * SECOND_NS, 100, &mut note).unwrap();
        sequences
    }

    fn answer(sender: &mut UserSender, flags: u16, acknowledgment: u32) {
        let reversed = |[one, other]: [u16; 2]| [other, one];
        let ends = ConnectionEnds { ports: reversed(ENDS.ports), ..ENDS };
        let fields = SegmentFields {
            flags,
            sequence: 7,
            acknowledgment,
            timestamps: [1, 1],
            identification: 0,
        };
        let mut frame = vec![0; headers_bytes(flags)];
        ends.write_headers(&fields, 0, &mut frame).unwrap();
        assert_eq!(sender.transmit(&[&frame], &Meta::default()).unwrap(), Transmitted::Taken);
    }

    #[test]
    fn a_request_without_a_reply_is_retried_with_doubled_waits() {
        let mut sender = sender();
        let asked = (0..=20).filter(|second| !sent(&mut sender, *second).is_empty());
        assert_eq!(asked.collect::<Vec<_>>(), [0, 1, 3, 7, 15]);
        assert_eq!(sender.deadline(), Some(31 * SECOND_NS));
    }

    #[test]
    fn what_was_lost_behind_the_first_is_sent_again_as_acknowledgments_come() {
        let mut sender = sender();
        let place = |number: u32| FIRST.wrapping_add(number * PAYLOAD_BYTES);
        let _ = sent(&mut sender, 0);
        answer(&mut sender, tcp::SYN | tcp::ACK, FIRST);
        assert_eq!(sent(&mut sender, 0).len(), 10);
        assert_eq!(sent(&mut sender, 1), [place(0)]);
        // This acknowledgment says that none of the ten segments has arrived.
        answer(&mut sender, tcp::ACK, place(1));
        assert_eq!(sent(&mut sender, 1), [place(1), place(2)]);
        assert_eq!(sender.counts.retransmits, 3);
    }

    #[test]
    fn after_a_timeout_everything_is_sent_again_from_one_segment() {
        let mut sender = sender();
        let syn = FIRST.wrapping_sub(1);
        let place = |number: u32| FIRST.wrapping_add(number * PAYLOAD_BYTES);
        assert_eq!(sent(&mut sender, 0), [syn]);
        answer(&mut sender, tcp::SYN | tcp::ACK, FIRST);
        assert_eq!(sent(&mut sender, 0), Vec::from_iter((0..10).map(place)));
        answer(&mut sender, tcp::ACK, place(2));
        assert_eq!(sent(&mut sender, 0), [place(10), place(11), place(12)]);
        assert_eq!(sent(&mut sender, 1), [place(2)]);
        assert!(sent(&mut sender, 2).is_empty());
        // This acknowledgment says that the other segments have arrived.
        answer(&mut sender, tcp::ACK, place(13));
        assert_eq!(sent(&mut sender, 2), [place(13), place(14)]);
        let counts = SenderCounts { round_trips: 1, retransmits: 1, timeouts: 1 };
        assert_eq!(sender.counts, counts);
        let mut counters = Vec::new();
        sender.counters(&mut |counter, value| counters.push((counter, value)));
        assert_eq!(SenderCounts::of(&counters), counts);
    }

    #[test]
    fn three_duplicates_send_one_segment_again_and_a_reset_ends_all() {
        let mut sender = sender();
        sent(&mut sender, 0);
        answer(&mut sender, tcp::SYN | tcp::ACK, FIRST);
        sent(&mut sender, 0);
        (0..5).for_each(|_| answer(&mut sender, tcp::ACK, FIRST));
        assert_eq!(sent(&mut sender, 0), [FIRST], "the window is half now");
        assert_eq!(sender.counts.retransmits, 1);
        answer(&mut sender, tcp::RST | tcp::ACK, FIRST);
        assert_eq!((sent(&mut sender, 9), sender.deadline()), (Vec::new(), None));
    }
}
