//! Model of the generic LRO in Linux 2.6.24 to 4.4, as used by a driver that delivers socket buffers. The device's MTU
//! is 1500.

use super::{
    Delivered, Departure, Original, Sessions,
    segment::{Carries, HeldTrain, Segment, is_eligible, precedes, without_padding},
};
use crate::headers::Tcp;

/// Model of inet_lro.
#[derive(Debug)]
pub struct InetLro(Sessions);

impl InetLro {
    /// Returns whether a segment may join `train` or, without a train, start one.
    fn suits(&self, frame: &[u8], segment: &Segment, train: Option<&HeldTrain>) -> bool {
        const REFUSED: u16 = Tcp::CWR | Tcp::ECE | Tcp::URG | Tcp::RST | Tcp::SYN | Tcp::FIN;
        let is_padded = without_padding(frame).len() != frame.len();
        if is_padded || segment.payload().is_empty() || segment.flags() & REFUSED != 0 {
            return false;
        }
        if segment.flags() & Tcp::ACK == 0 && !self.0.departs(Departure::AckFlag) {
            return false;
        }
        if segment.ecn() == 3 {
            return false;
        }
        match segment.carries() {
            Carries::Nothing => true,
            Carries::Other => false,
            Carries::Timestamp(value, echo) => {
                let held = train.and_then(|train| train.timestamp);
                echo != 0 && held.is_none_or(|(held, _)| !precedes(value, held))
            }
        }
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

impl Original for InetLro {
    fn with(departures: &[Departure]) -> Self {
        Self(Sessions::new(departures))
    }

    fn receive(&mut self, frame: &[u8]) {
        if !is_eligible(frame) {
            return self.0.overtake(frame);
        }
        let segment = Segment::of(frame);
        let held =
            self.0.held.iter().position(|train| train.first.connection() == segment.connection());
        let Some(index) = held else {
            if self.0.held.len() < SESSIONS && self.suits(frame, &segment, None) {
                self.0.held.push(HeldTrain::start(segment));
            } else {
                self.0.pass(frame);
            }
            return;
        };
        let train = &self.0.held[index];
        if train.next_sequence != segment.sequence()
            || !self.suits(frame, &segment, Some(train))
            || !self.is_guaranteed(&segment, train)
        {
            self.0.flush(index);
            return self.0.pass(frame);
        }
        let train = &mut self.0.held[index];
        train.append(&segment);
        (train.ack, train.window) = (segment.ack(), segment.window());
        if let (Some((_, echo)), Carries::Timestamp(_, newest)) =
            (&mut train.timestamp, segment.carries())
        {
            // The first packet's value is kept.
            *echo = newest;
        }
        if train.packets >= PACKETS || train.ip_len() > 65535 - MTU {
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

/// Number of sessions that drivers configured.
const SESSIONS: usize = 8;
/// Maximum number of packets per session that drivers configured.
const PACKETS: u32 = 64;
const MTU: usize = 1500;
