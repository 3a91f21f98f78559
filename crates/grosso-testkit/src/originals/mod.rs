//! Literal models of published receive offloads. Each model handles one packet at a time: slowly, but exactly like its
//! original.
//!
//! A profile of Grosso corresponds to an original, but keeps guarantees that the original lacks. Each such difference
//! is a [`Departure`]. A model without departures behaves like the original; a model with [`Departure::ALL`] behaves
//! like the profile. The models compute whether checksums are valid, which a device would report. Frames that are not
//! TCP over IPv4 over Ethernet pass through.

mod generator;
mod inet_lro;
mod mxge;
mod segment;
mod tcp_lro;

pub use self::{generator::polls, inet_lro::InetLro, mxge::Mxge, tcp_lro::TcpLro};

use self::segment::HeldTrain;

/// A difference between an original and its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// A packet that does not merge never overtakes the train of its flow.
    Order,
    /// The packets of a train have the same ECN bits and MAC addresses.
    Headers,
    /// The packets of a train have the same ACK flag; a packet without ACK may start a train.
    AckFlag,
    /// Either all packets of a train have a timestamp, or none.
    TimestampPresence,
    /// A superframe has PSH if any of its packets has it.
    Push,
    /// An acknowledgment with a lower number than the train's never merges and is never dropped.
    OlderAcknowledgment,
    /// A duplicate acknowledgment is delivered alone.
    Duplicate,
    /// A pure acknowledgment that only shrinks the window updates the window of the train.
    SmallerWindow,
    /// A packet with other flags or options does not start a train.
    Head,
    /// Timestamps are compared in serial arithmetic (RFC 7323 section 5.2).
    SerialTimestamp,
}

impl Departure {
    /// All differences between an original and its profile.
    pub const ALL: &[Self] = &[
        Self::Order,
        Self::Headers,
        Self::AckFlag,
        Self::TimestampPresence,
        Self::Push,
        Self::OlderAcknowledgment,
        Self::Duplicate,
        Self::SmallerWindow,
        Self::Head,
        Self::SerialTimestamp,
    ];
}

/// A delivered frame without padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The bytes of the frame.
    pub bytes: Vec<u8>,
    /// Number of packets in the frame. Pure acknowledgments count, although they leave no trace in the frame.
    pub packets: u32,
}

/// A model of an original.
pub trait Original {
    /// Creates a model with these departures from the original.
    fn with(departures: &[Departure]) -> Self
    where
        Self: Sized;

    /// Receives one frame.
    fn receive(&mut self, frame: &[u8]);

    /// Ends a poll.
    fn poll_end(&mut self);

    /// Returns everything delivered so far, in order.
    fn delivered(&self) -> &[Delivered];
}

/// The trains that an original holds (it calls them sessions), and the frames that it has delivered.
#[derive(Debug)]
struct Sessions {
    departures: Vec<Departure>,
    held: Vec<HeldTrain>,
    delivered: Vec<Delivered>,
}

impl Sessions {
    fn new(departures: &[Departure]) -> Self {
        Self { departures: departures.to_vec(), held: Vec::new(), delivered: Vec::new() }
    }

    fn departs(&self, departure: Departure) -> bool {
        self.departures.contains(&departure)
    }

    /// Removes and delivers the session at this index.
    fn flush(&mut self, index: usize) {
        let train = self.held.remove(index);
        self.delivered.push(train.deliver(self.departs(Departure::Push)));
    }

    fn flush_all(&mut self) {
        while !self.held.is_empty() {
            self.flush(0);
        }
    }

    /// Delivers a packet alone.
    fn pass(&mut self, frame: &[u8]) {
        self.delivered.push(Delivered { bytes: segment::without_padding(frame), packets: 1 });
    }

    /// Delivers a packet that the original passes on immediately, even while it holds a train of the same flow.
    fn overtake(&mut self, frame: &[u8]) {
        if self.departs(Departure::Order) {
            while let Some(index) = self.held.iter().position(|train| train.may_have(frame)) {
                self.flush(index);
            }
        }
        self.pass(frame);
    }
}
