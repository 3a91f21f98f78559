//! Tests how trains are held, for a fixed time or by the controller (P22 to P25), and which flows are not held at all
//! (P48).

mod bounds;
mod bypass;
mod controller;
mod wire;

use grosso::{
    Meta, Profile,
    checksum::Checksum,
    coalesce::{Hold, LONG_PATH_NS, reason::Close},
};
use grosso_rig::session::Session;
use grosso_testkit::{Packet, headers::Tcp};
use grosso_wire::LinkType;

/// Number of payload bytes in a full packet.
const MSS: usize = 1448;

/// The longest hold time in these tests.
const HOLD_NS: u64 = 20_000;

/// The longest round-trip time of a short path, where acknowledgment clocking does not limit trains.
const SHORT_PATH_NS: u64 = LONG_PATH_NS - 1;

/// Both modes of holding.
const HOLDS: [Hold; 2] = [Hold::Fixed, Hold::Controlled];

/// Returns a profile that holds trains for at most this time.
fn holding(hold: Hold, hold_ns: u64) -> Profile {
    let mut profile = Profile::linux();
    profile.hold = hold;
    profile.limits.hold_ns = hold_ns;
    profile
}

/// A coalescer with a virtual clock, and timers that expire at their deadlines.
struct World {
    session: Session,
    /// Number of packets sent so far in each flow.
    sent: Vec<u32>,
}

impl World {
    fn new(profile: Profile) -> Self {
        Self { session: Session::new(profile, LinkType::Ethernet, 1), sent: Vec::new() }
    }

    /// Advances the time, and expires the timer at every deadline.
    fn pass_until(&mut self, now_ns: u64) {
        while let Some(deadline) = self.session.deadline().filter(|&deadline| deadline <= now_ns) {
            self.session.now_ns = self.session.now_ns.max(deadline);
            self.session.expire();
        }
        self.session.now_ns = now_ns;
    }

    /// Pushes the next full packet of a flow, within the current poll.
    fn push(&mut self, flow: u16) {
        self.push_with(flow, MSS, |tcp| tcp);
    }

    fn push_with(&mut self, flow: u16, len: usize, edit: impl FnOnce(Tcp) -> Tcp) {
        let number = self.number(flow);
        let packet = packet(flow, number, len, edit);
        let checksum = Checksum::Unnecessary { levels: 0 };
        self.session.push(&packet, Meta { checksum, ..Meta::default() });
    }

    /// Pushes the next packet of a flow at this time, in a separate poll.
    fn arrive(&mut self, flow: u16, at_ns: u64) {
        self.pass_until(at_ns);
        self.push(flow);
        self.session.poll_end();
    }

    /// Passes a measured round-trip time of the flow's path to the engine, in nanoseconds.
    fn learn_round_trip(&mut self, flow: u16, round_trip_ns: u64) {
        self.session.learn_round_trip(&packet(flow, 0, MSS, |tcp| tcp), round_trip_ns);
    }

    fn number(&mut self, flow: u16) -> u32 {
        let flow = usize::from(flow);
        if self.sent.len() <= flow {
            self.sent.resize(flow + 1, 0);
        }
        self.sent[flow] += 1;
        self.sent[flow] - 1
    }

    /// Returns the longest time for which a packet of each train was held, in the order of delivery.
    fn residences(&self) -> Vec<u64> {
        let since = |number: &usize| self.session.pushed[*number].at_ns;
        let left = self.session.left.iter();
        left.map(|left| left.at_ns - left.numbers.iter().map(since).min().unwrap_or(0)).collect()
    }

    /// Returns the number of packets in each delivered train, in order.
    fn trains(&self) -> Vec<u32> {
        self.session.left.iter().map(|left| left.packets).collect()
    }

    fn closed(&self) -> Vec<Close> {
        self.session.left.iter().map(|left| left.closed).collect()
    }

    /// Asserts that all packets were delivered unchanged and in order.
    fn assert_settled(&self) {
        self.session.assert_settled();
        self.session.assert_reversible();
    }
}

/// Returns the packet of a flow that follows `number` full packets.
fn packet(flow: u16, number: u32, len: usize, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
    let sequence = number.wrapping_mul(MSS as u32);
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number as u16));
    packet.tcp(|tcp| edit(tcp.source_port(flow).sequence(sequence))).payload_len(len).build()
}
