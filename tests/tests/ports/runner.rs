//! Tests a data path on a separate thread, between ports in memory: when it sleeps, and how it measures round-trip
//! times.
#![cfg(unix)]

use std::cell::{Cell, RefCell};

use grosso::{
    Frame, Meta,
    coalesce::Hold,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted,
    memory::{MemoryPort, wire},
    path::{Direction, PathOptions, Shared},
    runner::{Broken, DataPath, Group, RunOptions, ThreadOptions},
};
use grosso_testkit::{Packet, headers::Tcp};
use grosso_wire::LinkType;

/// Number of payload bytes in a packet.
const LEN: usize = 1000;

/// Returns the next packets of `flows` flows, in turn.
fn frames(flows: u16, each: u32) -> impl Iterator<Item = Vec<u8>> {
    let frame = move |number: u32, flow: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number as u16));
        let tcp = |t: Tcp| t.source_port(flow).sequence(number * LEN as u32);
        packet.tcp(tcp).payload_len(LEN).build()
    };
    (0..each).flat_map(move |number| (0..flows).map(move |flow| frame(number, flow)))
}

fn send(port: &mut MemoryPort, frame: &[u8]) {
    assert_eq!(port.transmit(&[frame], &Meta::default()).unwrap(), Transmitted::Taken);
}

/// A port that stays open until the other side of the path has delivered a number of frames.
struct Lingering {
    port: MemoryPort,
    target: RefCell<MemoryPort>,
    delivered: Cell<usize>,
    wanted: usize,
}

impl Lingering {
    /// Returns the number of frames delivered so far.
    fn delivered(&self) -> usize {
        let mut target = self.target.borrow_mut();
        let more = target.receive(0, usize::MAX, &mut drop).unwrap();
        self.delivered.set(self.delivered.get() + more);
        self.delivered.get()
    }
}

impl Port for Lingering {
    fn link(&self) -> LinkType {
        self.port.link()
    }

    fn device(&self) -> Device {
        self.port.device()
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.port.receive(now_ns, max, each)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.port.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        self.port.transmit(slices, meta)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.port.flush()
    }

    fn is_finished(&self) -> bool {
        self.port.is_finished() && self.delivered() >= self.wanted
    }
}

/// Runs frames through a path that holds their trains, and keeps the path open until this many frames have been
/// delivered. Returns the number of sleeps and the frames delivered.
fn run(
    hold: Hold,
    hold_ns: u64,
    frames: impl Iterator<Item = Vec<u8>>,
    wanted: usize,
) -> (u64, usize) {
    let plain = Device::new(Features::NONE);
    let (mut source, outside) = wire(LinkType::Ethernet, plain, 100_000);
    let (inside, target) = wire(LinkType::Ethernet, Device::new(Features::ALL), 100_000);
    for frame in frames {
        send(&mut source, &frame);
    }
    drop(source);
    let mut options = RunOptions::new(1);
    let profile = &mut options.left_to_right.profile;
    (profile.hold, profile.limits.hold_ns) = (hold, hold_ns);
    let (target, delivered) = (RefCell::new(target), Cell::new(0));
    let left = Lingering { port: outside, target, delivered, wanted };
    let end = DataPath::new(left, inside, options).unwrap().run();
    end.result.unwrap();
    (end.snapshot.sleeps, end.left.delivered())
}

/// Tests that no timer is armed while each poll returns frames. The thread does not sleep in this case, and checks the
/// deadlines at the end of each poll.
#[test]
fn no_timer_is_armed_while_polls_come_back_to_back() {
    for hold in [Hold::Fixed, Hold::Controlled] {
        let (sleeps, delivered) = run(hold, 1, frames(64, 100), 0);
        assert_eq!(sleeps, 0, "{hold:?}");
        assert!(delivered >= 64, "{hold:?}: {delivered}");
    }
}

#[test]
fn a_path_knows_how_long_ago_a_frame_came_from_each_port() {
    let plain = Device::new(Features::NONE);
    for from_left in [true, false] {
        let (near, left) = wire(LinkType::Ethernet, plain, 100);
        let (far, right) = wire(LinkType::Ethernet, plain, 100);
        let (mut sender, other) = if from_left { (near, far) } else { (far, near) };
        frames(1, 1).for_each(|frame| send(&mut sender, &frame));
        // The path ends when no more frames can arrive from that side.
        drop(sender);
        let end = DataPath::new(left, right, RunOptions::new(1)).unwrap().run();
        end.result.unwrap();
        let heard = [end.snapshot.left_idle_ns, end.snapshot.right_idle_ns];
        assert_eq!(heard.map(|idle_ns| idle_ns.is_some()), [from_left, !from_left]);
        drop(other);
    }
}

/// Tests that a hundred held trains share one timer. It has the deadline of the earliest train, and when it expires,
/// all trains that are due are released. If the machine stalls during the test, the timer may not be needed.
#[test]
fn one_timer_serves_all_held_trains() {
    let (sleeps, delivered) = run(Hold::Fixed, 500_000, frames(100, 20), 100);
    assert!(delivered >= 100);
    assert!(sleeps < 50, "{sleeps}");
}

/// Tests that round-trip times, measured between requests in one direction and replies in the other, limit how long
/// replies are held.
#[test]
fn both_directions_give_the_round_trip_time() {
    const ROUND_TRIP_NS: u64 = 160_000;
    let packet = |is_back: bool, edit: fn(Tcp) -> Tcp, len| {
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (from, to, ports) =
            if is_back { (to, from, (80, 5000)) } else { (from, to, (5000, 80)) };
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(from).destination(to));
        let tcp = |t: Tcp| edit(t.source_port(ports.0).destination_port(ports.1));
        packet.tcp(tcp).payload_len(len).build()
    };
    for (is_told, held_ns) in [(true, ROUND_TRIP_NS / 16), (false, 100_000)] {
        let plain = Device::new(Features::NONE);
        let (mut server, mut outside) = wire(LinkType::Ethernet, plain, 10);
        let (mut inside, mut client) = wire(LinkType::Ethernet, Device::new(Features::ALL), 10);
        let mut options = PathOptions::new(1);
        options.profile.hold = Hold::Controlled;
        options.profile.limits.hold_ns = 100_000;
        let mut to_client = Direction::new(options.clone(), LinkType::Ethernet, inside.device());
        let mut to_server = Direction::new(options, LinkType::Ethernet, outside.device());
        assert!(to_client.wants_round_trips() && !to_server.wants_round_trips());
        let mut shared =
            if is_told { Shared::of([&to_client, &to_server], 1) } else { Shared::default() };
        let request = packet(false, |t| t.sequence(1000).ack(1), 100);
        send(&mut client, &request);
        to_server.poll_shared(&mut inside, &mut outside, 0, &mut shared).unwrap();
        let answers: [fn(Tcp) -> Tcp; 2] =
            [|t| t.sequence(1).ack(1100), |t| t.sequence(LEN as u32 + 1).ack(1100)];
        for (index, answer) in (0..).zip(answers) {
            send(&mut server, &packet(true, answer, LEN));
            let now_ns = ROUND_TRIP_NS + index * 5_000;
            to_client.poll_shared(&mut outside, &mut inside, now_ns, &mut shared).unwrap();
        }
        // The second reply is held, because a third one is expected after the same interval.
        assert_eq!(to_client.deadline(), Some(ROUND_TRIP_NS + 5_000 + held_ns), "{is_told}");
    }
}

/// A port that panics at its first poll.
struct Defective;

impl Port for Defective {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn device(&self) -> Device {
        Device::new(Features::NONE)
    }

    fn receive(
        &mut self,
        _: u64,
        _: usize,
        _: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        panic!("nothing works");
    }

    fn recycle(&mut self, _: PortBuffer) {}

    fn transmit(&mut self, _: &[&[u8]], _: &Meta) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

#[test]
fn a_panic_of_a_path_is_reported_by_name_and_ends_only_its_group() {
    let path = || DataPath::new(Defective, Defective, RunOptions::new(1)).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let ended = move || tell.send(()).unwrap();
    let group = Group::start("edge", vec![path()], &ThreadOptions::default(), ended).unwrap();
    told.recv().unwrap();
    let (result, snapshots) = group.join();
    let Err(Broken::Defect { thread, message }) = result else { panic!("{result:?}") };
    assert_eq!((&*thread, &*message), ("edge/0", "nothing works"));
    assert_eq!(snapshots, []);
}

#[test]
fn a_thread_that_cannot_be_prepared_runs_no_path() {
    let path = DataPath::new(Defective, Defective, RunOptions::new(1)).unwrap();
    let prepare = || Err(std::io::Error::other("not today"));
    let options = ThreadOptions { prepare: Some(prepare), ..ThreadOptions::default() };
    let error = Group::start("edge", vec![path], &options, || ()).err().unwrap();
    assert_eq!(error.to_string(), "not today");
}
