//! Model of the LRO in Myricom's driver (2007), from which FreeBSD derived its `tcp_lro.c` of 2008 to 2012. The
//! device's MTU is 1500. Both implementations make the same decisions for frames that do not exceed the MTU.

use super::{
    Delivered, Departure, Original, Sessions,
    segment::{Carries, HeldTrain, Segment, is_eligible, precedes},
};
use crate::headers::Tcp;

/// Model of mxge's LRO.
#[derive(Debug)]
pub struct Mxge(Sessions);

impl Mxge {
    /// Returns whether a segment's timestamp lets it join a train.
    fn timestamp_suits(&self, segment: &Segment, train: &HeldTrain) -> bool {
        let Carries::Timestamp(value, echo) = segment.carries() else { return true };
        // In a session without timestamps, the original kept zero or the timestamp of an earlier connection.
        let (held, _) = train.timestamp.unwrap_or_default();
        let is_older = match self.0.departs(Departure::SerialTimestamp) {
            true => precedes(value, held),
            false => held > value,
        };
        !is_older && echo != 0
    }

    /// Returns whether a segment may join a train according to the profile's additional guarantees.
    fn is_guaranteed(&self, segment: &Segment, train: &HeldTrain) -> bool {
        let departs = |departure| self.0.departs(departure);
        let ack_flags = [train.first.flags(), segment.flags()].map(|flags| flags & Tcp::ACK);
        (!departs(Departure::Headers) || train.has_headers_of(segment))
            && (!departs(Departure::AckFlag) || ack_flags[0] == ack_flags[1])
            && (!departs(Departure::TimestampPresence) || train.has_options_of(segment))
            && (!departs(Departure::OlderAcknowledgment) || !precedes(segment.ack(), train.ack))
    }
}

impl Original for Mxge {
    fn with(departures: &[Departure]) -> Self {
        Self(Sessions::new(departures))
    }

    fn receive(&mut self, frame: &[u8]) {
        if !is_eligible(frame) {
            return self.0.overtake(frame);
        }
        let segment = Segment::of(frame);
        let has_other_flags = segment.flags() & !(Tcp::ACK | Tcp::PSH) != 0;
        if has_other_flags || segment.carries() == Carries::Other {
            return self.0.overtake(frame);
        }
        let is_empty = segment.payload().is_empty();
        let held =
            self.0.held.iter().position(|train| train.first.connection() == segment.connection());
        let Some(index) = held else {
            if self.0.held.len() == SESSIONS {
                return self.0.pass(frame);
            }
            return self.0.held.push(HeldTrain::start(segment));
        };
        let train = &self.0.held[index];
        let is_duplicate = is_empty && segment.ack() == train.ack;
        if segment.sequence() != train.next_sequence
            || is_duplicate
            || !self.is_guaranteed(&segment, train)
        {
            self.0.flush(index);
            return self.0.pass(frame);
        }
        if !self.timestamp_suits(&segment, train) {
            return self.0.overtake(frame);
        }
        let train = &mut self.0.held[index];
        train.append(&segment);
        if let Carries::Timestamp(value, echo) = segment.carries() {
            train.timestamp = Some((value, echo));
        }
        (train.ack, train.window) = (segment.ack(), segment.window());
        if !is_empty && ETHERNET + train.ip_len() > 65535 - MTU {
            self.0.flush(index);
        }
    }

    fn poll_end(&mut self) {
        self.0.flush_all();
    }

    fn delivered(&self) -> &[Delivered] {
        &self.0.delivered
    }
}

const SESSIONS: usize = 8;
const MTU: usize = 1500;
/// Length of an Ethernet header, which counts toward the original's size limit.
const ETHERNET: usize = 14;
