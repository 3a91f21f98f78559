//! Model of FreeBSD's current `tcp_lro.c`. It sorts each batch, so that every connection gets an entry. Packets of one
//! connection wait in a chain, which is merged when it is flushed.

use super::{
    Delivered, Departure, Original, Sessions,
    segment::{Carries, HeldTrain, Segment, is_eligible, precedes},
};
use crate::headers::Tcp;

/// Model of FreeBSD's LRO.
#[derive(Debug)]
pub struct TcpLro {
    sessions: Sessions,
    /// Segments after the head of each chain; the heads are in the sessions.
    chains: Vec<Vec<Segment>>,
}

/// Outcome for a segment that follows the head of its chain.
enum Fate {
    Joins,
    /// The head is delivered, and the segment becomes the new head.
    Replaces,
    /// The head is delivered, followed by the segment.
    Leaves,
}

impl TcpLro {
    fn departs(&self, departure: Departure) -> bool {
        self.sessions.departs(departure)
    }

    /// Merges and delivers the packets of the chain at this index.
    fn flush(&mut self, index: usize) {
        let mut train = Some(self.sessions.held.remove(index));
        let keeps_push = self.departs(Departure::Push);
        for segment in self.chains.remove(index) {
            let Some(mut head) = train.take() else {
                // The profile never starts a train with such a packet.
                match self.departs(Departure::Head) && is_special(&segment) {
                    true => self.sessions.pass(&segment.frame),
                    false => train = Some(HeldTrain::start(segment)),
                }
                continue;
            };
            match self.fate(&head, &segment) {
                Fate::Joins => {
                    self.join(&mut head, &segment);
                    train = Some(head);
                }
                Fate::Replaces => {
                    self.sessions.delivered.push(head.deliver(keeps_push));
                    train = Some(HeldTrain::start(segment));
                }
                Fate::Leaves => {
                    self.sessions.delivered.push(head.deliver(keeps_push));
                    self.sessions.pass(&segment.frame);
                }
            }
        }
        if let Some(head) = train {
            self.sessions.delivered.push(head.deliver(keeps_push));
        }
    }

    fn fate(&self, head: &HeldTrain, segment: &Segment) -> Fate {
        let data = segment.payload().len();
        if self.departs(Departure::Head) && is_special(segment) {
            return Fate::Leaves;
        }
        if self.departs(Departure::Headers) && !head.has_headers_of(segment)
            || self.departs(Departure::TimestampPresence) && !head.has_options_of(segment)
        {
            return Fate::Replaces;
        }
        let ack_flags = [head.first.flags(), segment.flags()].map(|flags| flags & Tcp::ACK);
        let is_repeated = data == 0 && segment.ack() == head.ack && segment.window() == head.window;
        if self.departs(Departure::Duplicate) && ack_flags[0] == ack_flags[1] && is_repeated {
            return Fate::Leaves;
        }
        let counted = head.counted + u32::from(data > 0);
        if counted >= 65535 || head.payload.len() + data >= 65535 - 255 {
            return Fate::Replaces;
        }
        if is_special(segment) {
            return Fate::Replaces;
        }
        if let Carries::Timestamp(value, _) = segment.carries()
            && precedes(value, head.timestamp.unwrap_or_default().0)
        {
            return Fate::Replaces;
        }
        if segment.sequence() != head.next_sequence || ack_flags[0] != ack_flags[1] || is_repeated {
            return Fate::Replaces;
        }
        if self.departs(Departure::OlderAcknowledgment) && precedes(segment.ack(), head.ack) {
            return Fate::Replaces;
        }
        Fate::Joins
    }

    fn join(&self, head: &mut HeldTrain, segment: &Segment) {
        head.append(segment);
        if let Carries::Timestamp(value, echo) = segment.carries() {
            head.timestamp = Some((value, echo));
        }
        if !segment.payload().is_empty() || precedes(head.ack, segment.ack()) {
            (head.ack, head.window) = (segment.ack(), segment.window());
        } else if segment.ack() == head.ack
            && (segment.window() > head.window || self.departs(Departure::SmallerWindow))
        {
            head.window = segment.window();
        }
    }
}

/// Returns whether a packet has flags or options that prevent merging.
fn is_special(segment: &Segment) -> bool {
    segment.flags() & !(Tcp::ACK | Tcp::PSH) != 0 || segment.carries() == Carries::Other
}

impl Original for TcpLro {
    fn with(departures: &[Departure]) -> Self {
        Self { sessions: Sessions::new(departures), chains: Vec::new() }
    }

    fn receive(&mut self, frame: &[u8]) {
        let is_taken = is_eligible(frame) && Segment::of(frame).flags() & Tcp::SYN == 0;
        if !is_taken {
            // A refused packet, for example a SYN, flushes the queue of its connection.
            while let Some(index) =
                self.sessions.held.iter().position(|train| train.may_have(frame))
            {
                self.flush(index);
            }
            return self.sessions.pass(frame);
        }
        let segment = Segment::of(frame);
        let held = self
            .sessions
            .held
            .iter()
            .position(|train| train.first.connection() == segment.connection());
        let Some(index) = held else {
            if self.departs(Departure::Head) && is_special(&segment) {
                return self.sessions.pass(frame);
            }
            self.sessions.held.push(HeldTrain::start(segment));
            return self.chains.push(Vec::new());
        };
        let is_older = precedes(segment.ack(), self.sessions.held[index].first.ack());
        if segment.payload().is_empty() && is_older && !self.departs(Departure::OlderAcknowledgment)
        {
            return;
        }
        self.chains[index].push(segment);
    }

    fn poll_end(&mut self) {
        while !self.sessions.held.is_empty() {
            self.flush(0);
        }
    }

    fn delivered(&self) -> &[Delivered] {
        &self.sessions.delivered
    }
}
