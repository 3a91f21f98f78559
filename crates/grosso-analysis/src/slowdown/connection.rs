//! TCP connection: both directions, and the round-trip time.

use grosso_wire::tcp;

use super::{
    event::SequenceEvent,
    figures::Figures,
    frame::TcpFrame,
    slots::Tracked,
    stream::{Stream, Surroundings},
};

/// TCP connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    /// Streams of both directions. The first is in the direction of the table key.
    pub(super) streams: [Stream; 2],
    last_ns: u64,
    /// Direction and time of the SYN. The time is 0 after a second SYN, because the handshake then does not reveal a
    /// round-trip time.
    syn: Option<(usize, u64)>,
    /// Round-trip time of the handshake in nanoseconds; 0 if unknown.
    handshake_ns: u64,
    /// Whether the connection has had a frame since the last search for idle connections.
    is_recent: bool,
}

impl Tracked for Connection {
    fn take_recent(&mut self) -> bool {
        std::mem::take(&mut self.is_recent)
    }
}

impl Connection {
    /// Processes a frame in direction `side`, and returns what its sequence numbers show.
    pub(super) fn observe(&mut self, side: usize, frame: &TcpFrame) -> Option<SequenceEvent> {
        let round_trip_ns = self.round_trip_ns();
        let quiet_ns = match self.last_ns {
            0 => 0,
            last_ns => frame.time_ns.saturating_sub(last_ns),
        };
        self.last_ns = self.last_ns.max(frame.time_ns);
        self.is_recent = true;
        if self.streams[side].is_damaged(frame) {
            return None;
        }
        self.shake_hands(side, frame, quiet_ns);
        let [first, second] = &mut self.streams;
        let (own, peer) = if side == 0 { (first, second) } else { (second, first) };
        let is_prompt = frame.payload == 0 || !own.is_drained();
        let mut event = None;
        if frame.has(tcp::SYN) {
            own.begin(frame);
            peer.figures.mss = frame.mss.unwrap_or(peer.figures.mss);
        } else {
            let sent = own.follow(frame);
            if frame.payload > 0 {
                let surroundings = Surroundings {
                    round_trip_ns,
                    answer_ns: peer.answer_ns,
                    quiet_ns,
                    peer_timestamp: peer.stamped,
                };
                event = own.send(frame, sent, &surroundings);
            }
        }
        if let Some(ack) = frame.ack {
            let scale = own.scale_with(peer);
            peer.acknowledge(frame, ack, scale);
            peer.observe_echo(frame, is_prompt);
        }
        own.stamp(frame);
        event
    }

    /// Processes a handshake frame that follows the previous frame after `quiet_ns`.
    fn shake_hands(&mut self, side: usize, frame: &TcpFrame, quiet_ns: u64) {
        match self.syn {
            _ if frame.has(tcp::SYN) && frame.ack.is_none() => {
                let is_second = self.syn.is_some() && self.handshake_ns == 0;
                self.syn = Some((side, if is_second { 0 } else { frame.time_ns }));
            }
            Some((from, since @ 1..)) if from == side && self.handshake_ns == 0 => {
                self.handshake_ns = frame.time_ns.saturating_sub(since).max(1);
                self.streams[1 - from].answer_ns = quiet_ns.max(1);
            }
            Some((from, 1..)) if from != side && frame.has(tcp::SYN) => {
                self.streams[from].answer_ns = quiet_ns.max(1);
            }
            _ => {}
        }
    }

    /// Returns the minimum round-trip time between the endpoints in nanoseconds; 0 if unknown.
    pub(super) fn round_trip_ns(&self) -> u64 {
        let [one, other] = [self.streams[0].echo_ns, self.streams[1].echo_ns];
        let echoes_ns = if one > 0 && other > 0 { one.saturating_add(other) } else { 0 };
        match (self.handshake_ns, echoes_ns) {
            (0, ns) | (ns, 0) => ns,
            (one, other) => one.min(other),
        }
    }

    /// Returns the mean round-trip time between the endpoints in nanoseconds; 0 if unknown. Multiplied by the rate, it
    /// gives the number of bytes in flight.
    pub(super) fn round_trip_mean_ns(&self) -> u64 {
        match self.streams.each_ref().map(Stream::echo_mean_ns) {
            [0, _] | [_, 0] => self.round_trip_ns(),
            [one, other] => one + other,
        }
    }

    /// Returns the time of the last frame in nanoseconds.
    pub(super) const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns the statistics of a direction, so that an ICMP message about the path can update them.
    pub(super) fn figures_mut(&mut self, side: usize) -> &mut Figures {
        &mut self.streams[side].figures
    }
}
