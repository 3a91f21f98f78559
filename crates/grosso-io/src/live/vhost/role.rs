//! The two roles of a port: the device, which uses the rings of a guest, and the driver, which has its own rings.

use std::{
    io::{self, IoSlice},
    os::fd::BorrowedFd,
};

use grosso_vhost::{
    backend::{BackEnd, Refused, Way},
    features::MRG_RXBUF,
    frontend::FrontEnd,
    message::{Letter, Message},
    ring::{ChainFault, Sent, Side},
};

/// The role of a port, with the state that was negotiated with the peer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a port has one of them, which never moves")]
pub(super) enum VhostRole {
    Device(BackEnd),
    Driver(FrontEnd),
}

/// Evaluates an expression for either role.
macro_rules! with {
    ($self:expr, $side:ident => $result:expr) => {
        match $self {
            VhostRole::Device($side) => $result,
            VhostRole::Driver($side) => $result,
        }
    };
}

/// Enables notifications for a ring, and returns whether it has entries.
macro_rules! asked {
    ($ring:expr) => {{
        let has_more = $ring.ask();
        if has_more {
            $ring.hush();
        }
        has_more
    }};
}

impl VhostRole {
    /// Creates a role. A device offers `features`, and maps at most `memory_bytes_max` bytes of a guest's memory. A
    /// driver requests `features`.
    pub(super) fn new(side: Side, features: u64, memory_bytes_max: u64) -> io::Result<Self> {
        Ok(match side {
            Side::Device => {
                let mut back = BackEnd::new(features)?;
                back.limit_memory(memory_bytes_max);
                Self::Device(back)
            }
            Side::Driver => Self::Driver(FrontEnd::new(features)?),
        })
    }

    /// Resets the negotiated state after the peer has disconnected.
    pub(super) fn forget(&mut self) {
        with!(self, side => side.forget());
    }

    /// Returns the first message to the peer, if this role sends first.
    pub(super) fn greet(&mut self) -> Option<Letter> {
        match self {
            Self::Device(_) => None,
            Self::Driver(front) => Some(front.greet()),
        }
    }

    /// Handles a message from the peer, and returns the messages to send.
    pub(super) fn handle_message(&mut self, message: Message) -> Result<Vec<Letter>, Refused> {
        match self {
            Self::Device(back) => {
                let answer = back.obey(message)?;
                Ok(answer.into_iter().map(|bytes| Letter { bytes, files: vec![] }).collect())
            }
            Self::Driver(front) => front.handle_answer(&message),
        }
    }

    /// Copies the next frame for the port from the current ring or, if that is empty, from the next ring with a frame.
    /// Returns `None` if there is no frame.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        let way = self.incoming();
        for _ in 1..self.pairs() {
            let received = self.receive_at_hand(way, into);
            if received != Ok(None) {
                return received;
            }
            self.turn();
        }
        self.receive_at_hand(way, into)
    }

    fn receive_at_hand(&mut self, way: Way, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        with!(self, side => side.ring(way).map_or(Ok(None), |ring| ring.receive(into)))
    }

    /// Makes the next search for received frames start at the ring of the next pair.
    pub(super) fn turn(&mut self) {
        if let Self::Device(back) = self {
            back.turn(Way::FromGuest);
        }
    }

    /// Returns the number of queue pairs, including pairs that are not in use.
    pub(super) fn pairs(&self) -> usize {
        match self {
            Self::Device(back) => back.pairs(),
            Self::Driver(_) => 1,
        }
    }

    /// Selects the queue pair for the next frame from the port.
    pub(super) fn choose(&mut self, pair: usize) {
        if let Self::Device(back) = self {
            back.choose(Way::ToGuest, pair);
        }
    }

    /// Copies a frame from the port into the selected ring. Returns the result, and the number of descriptors read for
    /// the frame.
    pub(super) fn send(&mut self, frame: &[IoSlice<'_>], header_bytes: usize) -> (Sent, usize) {
        match self {
            Self::Device(back) => {
                let merges = back.chosen().is_some_and(|chosen| chosen & MRG_RXBUF != 0);
                let Some(ring) = back.ring(Way::ToGuest) else { return (Sent::NoRoom, 0) };
                let sent = ring.send(frame, header_bytes, merges);
                (sent, ring.take_walked())
            }
            Self::Driver(front) => {
                let ring = front.ring(Way::FromGuest);
                (ring.map_or(Sent::NoRoom, |ring| ring.send(frame)), 0)
            }
        }
    }

    /// Enables notifications for frames in every ring, or for room in the selected ring. Returns whether there are
    /// entries now, or `None` if there is no ring.
    pub(super) fn ask(&mut self, way: Way) -> Option<bool> {
        let is_for_frames = way == self.incoming();
        with!(self, side => {
            if is_for_frames {
                let asked = side.rings(way).map(|ring| asked!(ring));
                asked.fold(None, |all, has_more| Some(has_more || all == Some(true)))
            } else {
                side.ring(way).map(|ring| asked!(ring))
            }
        })
    }

    /// Disables notifications for a ring.
    pub(super) fn hush(&mut self, way: Way) {
        with!(self, side => side.rings(way).for_each(|ring| ring.hush()));
    }

    /// Returns whether a ring is in use.
    pub(super) fn has_ring(&self, way: Way) -> bool {
        with!(self, side => side.is_running(way))
    }

    /// Notifies the peer of entries in a ring.
    pub(super) fn publish(&mut self, way: Way) {
        with!(self, side => side.publish(way));
    }

    /// Clears the peer's notification.
    pub(super) fn clear_notification(&mut self, way: Way) {
        match self {
            Self::Device(back) => back.take_kick(way),
            Self::Driver(front) => front.take_call(way),
        }
    }

    /// Returns the reason why a memory table was refused; `None` if none was refused since the last call.
    pub(super) fn refused_memory(&mut self) -> Option<io::Error> {
        match self {
            Self::Device(back) => back.refused_memory(),
            Self::Driver(_) => None,
        }
    }

    /// Returns the direction of the rings that the port receives frames from.
    pub(super) fn incoming(&self) -> Way {
        match self {
            Self::Device(_) => Way::FromGuest,
            Self::Driver(_) => Way::ToGuest,
        }
    }

    /// Returns the direction of the rings that the port sends frames to.
    pub(super) fn outgoing(&self) -> Way {
        match self {
            Self::Device(_) => Way::ToGuest,
            Self::Driver(_) => Way::FromGuest,
        }
    }

    /// Returns the negotiated features, or `None` before the negotiation.
    pub(super) fn chosen(&self) -> Option<u64> {
        with!(self, side => side.chosen())
    }

    /// Returns whether the selected ring accepts frames from the port.
    pub(super) fn takes_frames(&mut self) -> bool {
        let way = self.outgoing();
        with!(self, side => side.ring(way).is_some_and(|ring| !ring.is_broken()))
    }

    /// Returns whether the ring has some room, but too little for the port's waiting frame.
    pub(super) fn is_short(&mut self) -> bool {
        match self {
            Self::Device(back) => back.ring(Way::ToGuest).is_some_and(|ring| ring.offered() > 0),
            Self::Driver(_) => false,
        }
    }

    /// Returns the descriptor that becomes readable when the peer signals entries in a ring.
    pub(super) fn notification(&self, way: Way) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Device(back) => back.kick(way),
            Self::Driver(front) => front.call(way),
        }
    }

    /// Returns whether the connection is unusable until the peer reconnects.
    pub(super) fn is_broken(&self) -> bool {
        match self {
            Self::Device(back) => back.has_lost_memory(),
            Self::Driver(front) => front.is_broken(),
        }
    }
}
