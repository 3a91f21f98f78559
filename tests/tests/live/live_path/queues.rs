//! Tests several queues in parallel, ports chosen at run time, and stalled consumers.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted,
    live::{LiveEvent, LivePort, Opening, PacketOptions, TapOptions, XdpPortOptions},
    path::DirectionStats,
    runner::{Broken, DataPath, Group, RunOptions, Snapshot, ThreadOptions},
};
use grosso_sys::{interface::Control, netlink::Netlink, packet::PacketSocket, tun::Layer};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

use super::{
    sockets::exchange,
    world::{A, B, World, name, set_up, start, until},
};

fn tap(options: TapOptions) -> Opening {
    Opening::Tun { name: "b0".to_owned(), layer: Layer::Ethernet, options }
}

fn wire(options: PacketOptions) -> Opening {
    Opening::Packet { name: "e0".to_owned(), options }
}

/// Opens paths of `count` queues between the wire and the second host's device.
fn queues(world: &World, count: usize) -> Vec<DataPath<LivePort, LivePort>> {
    queues_from(world, &wire(PacketOptions::default()), count)
}

fn queues_from(world: &World, wire: &Opening, count: usize) -> Vec<DataPath<LivePort, LivePort>> {
    let left = world.engine.run(|| wire.open(count)).unwrap().unwrap();
    let open = || {
        let ports = tap(TapOptions::default()).open(count)?;
        set_up("b0", B)?;
        std::io::Result::Ok(ports)
    };
    let right = world.b.run(open).unwrap().unwrap();
    let join = |(left, right)| DataPath::new(left, right, RunOptions::new(7)).unwrap();
    left.into_iter().zip(right).map(join).collect()
}

/// Returns the number of bytes that each queue carried between two snapshots, in each direction.
fn carried(before: &[Snapshot], after: &[Snapshot]) -> Vec<[u64; 2]> {
    let bytes = |after: &DirectionStats, before: &DirectionStats| after.rx_bytes - before.rx_bytes;
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| {
            [
                bytes(&after.left_to_right, &before.left_to_right),
                bytes(&after.right_to_left, &before.right_to_left),
            ]
        })
        .collect()
}

/// Returns a deadline that is never reached.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn snapshots(group: &Group) -> Vec<Snapshot> {
    group.handles().iter().map(|handle| handle.snapshot().unwrap()).collect()
}

#[test]
fn eight_flows_over_two_queues_are_whole_and_in_order() {
    let Some(world) = World::new() else { return };
    let group = Group::start("test", queues(&world, 2), &ThreadOptions::default(), || ()).unwrap();
    thread::scope(|scope| {
        for flow in 0..8 {
            let world = &world;
            let family = flow % 2;
            scope.spawn(move || {
                exchange((&world.a, A[family]), (&world.b, B[family]), 2 << 20);
            });
        }
    });
    let (result, snapshots) = group.stop_and_join(far());
    result.unwrap();
    let carried: u64 = snapshots.iter().map(|queue| queue.left_to_right.rx_bytes).sum();
    assert_eq!(snapshots.len(), 2);
    assert!(carried > 8 * (2 << 20), "{carried}");
}

#[test]
fn flows_are_spread_over_two_queues_of_af_xdp_and_are_whole() {
    let Some(world) = World::with_queues(2) else { return };
    // AF_XDP cannot mark a checksum as partial.
    world.set_offloads(false);
    let wire = Opening::Xdp { name: "e0".to_owned(), options: XdpPortOptions::default() };
    let group =
        Group::start("test", queues_from(&world, &wire, 2), &ThreadOptions::default(), || ())
            .unwrap();
    let before = snapshots(&group);
    let is_spread = || carried(&before, &snapshots(&group)).iter().all(|[there, _]| *there > BYTES);
    // The probability that all 64 connections get the same one of two queues is 2^-63.
    for turn in 0..64 {
        let family = turn % 2;
        exchange((&world.a, A[family]), (&world.b, B[family]), BYTES as usize);
        if is_spread() {
            break;
        }
    }
    assert!(is_spread(), "{:?}", snapshots(&group));
    group.stop_and_join(far()).0.unwrap();
}

/// Length of a stream in bytes: longer than any handshake and neighbor discovery.
const BYTES: u64 = 1 << 20;

#[test]
fn both_directions_of_a_flow_use_the_queue_on_which_it_was_written() {
    let Some(world) = World::new() else { return };
    let group = Group::start("test", queues(&world, 2), &ThreadOptions::default(), || ()).unwrap();
    let mut used = [false; 2];
    let hosts = |turn: usize| -> [(_, IpAddr); 2] {
        let ends = [(&world.a, A[turn / 2 % 2]), (&world.b, B[turn / 2 % 2])];
        if turn.is_multiple_of(2) { ends } else { [ends[1], ends[0]] }
    };
    // The probability that all 64 flows get the same one of two queues is 2^-63.
    for turn in 0..64 {
        let before = snapshots(&group);
        let [from, to] = hosts(turn);
        exchange(from, to, 1 << 20);
        let carried = carried(&before, &snapshots(&group));
        let busy = carried.iter().position(|[there, _]| *there > 1 << 20).unwrap();
        let idle = 1 - busy;
        assert!(carried[busy][1] > 1 << 20, "{carried:?}");
        // If the device's side opens a connection, its first frame may use another queue, and so may neighbor
        // discovery.
        assert!(carried[idle].iter().all(|bytes| *bytes < 4096), "{carried:?}");
        used[busy] = true;
        if turn >= 4 && used == [true; 2] {
            break;
        }
    }
    assert_eq!(used, [true; 2], "the flows are spread");
    group.stop_and_join(far()).0.unwrap();
}

#[test]
fn the_first_queue_that_breaks_ends_all_with_its_error() {
    let Some(world) = World::new() else { return };
    let ends = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ends);
    let count = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    // This queue's devices still exist, so it would not stop unless requested to.
    let [left, right] = ["x0", "x1"].map(|device| {
        let (layer, options) = (Layer::Ethernet, TapOptions::default());
        let opening = Opening::Tun { name: device.to_owned(), layer, options };
        world.engine.run(|| opening.open(1)).unwrap().unwrap().remove(0)
    });
    let mut paths = queues(&world, 1);
    paths.insert(0, DataPath::new(left, right, RunOptions::new(7)).unwrap());
    let group = Group::start("test", paths, &ThreadOptions::default(), count).unwrap();
    until(|| snapshots(&group).iter().all(|queue| queue.sleeps > 0));
    let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("e0"))?);
    world.engine.run(remove).unwrap().unwrap();
    until(|| ends.load(Ordering::Relaxed) == 1);
    let (result, snapshots) = group.join();
    assert!(
        matches!(&result, Err(Broken::Port(PortError::Gone { name })) if name == "e0"),
        "{result:?}"
    );
    assert_eq!(snapshots.len(), 2, "each queue reports its work");
}

#[test]
fn threads_run_where_they_are_bound_and_nowhere_else() {
    let Some(world) = World::new() else { return };
    let allowed = grosso_sys::scheduling::allowed_processors().unwrap();
    let last = *allowed.last().unwrap();
    let bind = |processor| ThreadOptions { processors: vec![processor], ..Default::default() };
    let group = Group::start("pinned", queues(&world, 2), &bind(last), || ()).unwrap();
    let bound = |thread: &std::path::Path| {
        let comm = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        comm.starts_with("pinned/") && list.map(str::trim) == Some(&last.to_string())
    };
    until(|| {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.filter(|thread| bound(&thread.as_ref().unwrap().path())).count() == 2
    });
    group.stop_and_join(far()).0.unwrap();
    let elsewhere = Group::start("test", queues(&world, 1), &bind(usize::MAX), || ());
    let elsewhere = elsewhere.err().unwrap();
    assert_eq!(elsewhere.kind(), std::io::ErrorKind::InvalidInput, "{elsewhere}");
    let none: Vec<DataPath<LivePort, LivePort>> = Vec::new();
    assert!(Group::start("test", none, &ThreadOptions::default(), || ()).is_err());
}

#[test]
fn a_path_that_is_gone_leaves_nobody_waiting() {
    let Some(world) = World::new() else { return };
    let path = queues(&world, 1).remove(0);
    let handle = path.handle();
    let asker = thread::spawn(move || (handle.snapshot(), handle.snapshot()));
    drop(path);
    assert_eq!(asker.join().unwrap(), (None, None));
}

#[test]
fn a_device_that_persists_is_attached_to_again() {
    let Some(world) = World::new() else { return };
    let index = || world.b.run(|| Control::new()?.index(&name("b0"))).unwrap();
    for queues in [1, 2] {
        let open = |persistent| {
            let mut options = TapOptions::default();
            options.persistent = persistent;
            world.b.run(|| tap(options).open(queues)).unwrap()
        };
        drop(open(Some(true)).unwrap());
        let made = index().unwrap();
        // A device with several queues can also be opened with one; a device with a single queue cannot be opened with
        // more.
        let one = world.b.run(|| tap(TapOptions::default()).open(1)).unwrap().unwrap();
        assert_eq!(index().unwrap(), made, "it is the same device");
        drop(one);
        drop(open(Some(false)).unwrap());
        assert!(index().is_err(), "the device was removed with its last queue");
    }
    let mut options = TapOptions::default();
    options.persistent = Some(true);
    drop(world.b.run(|| tap(options).open(1)).unwrap().unwrap());
    assert!(world.b.run(|| tap(options).open(2)).unwrap().is_err(), "it has one queue");
}

#[test]
fn a_passed_descriptor_is_one_queue_of_its_device() {
    use std::os::fd::AsRawFd;
    let Some(world) = World::new() else { return };
    let first = world.tap_port(&TapOptions::default());
    let number = first.descriptor().unwrap().as_raw_fd();
    let opening = Opening::Passed { number, options: TapOptions::default() };
    assert!(opening.open(2).is_err());
    let port = opening.open(1).unwrap().remove(0);
    assert_eq!((port.name(), port.link()), ("b0", LinkType::Ethernet));
    drop(first);
    let left = world.engine.run(|| wire(PacketOptions::default()).open(1)).unwrap().unwrap();
    let [left] = left.try_into().unwrap_or_else(|_| panic!("one queue"));
    let path = start(left, port, RunOptions::new(7));
    exchange((&world.a, A[0]), (&world.b, B[0]), 1 << 20);
    path.stop();
}

/// A port that has no room until `has_room` is set.
struct Stalled {
    has_room: Arc<AtomicBool>,
}

impl Port for Stalled {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn device(&self) -> Device {
        Device::new(Features::NONE)
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        _max: usize,
        _each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        Ok(0)
    }

    fn recycle(&mut self, _buffer: PortBuffer) {}

    fn transmit(&mut self, _slices: &[&[u8]], _meta: &Meta) -> Result<Transmitted, PortError> {
        let has_room = self.has_room.load(Ordering::Relaxed);
        Ok(if has_room { Transmitted::Taken } else { Transmitted::NoRoom })
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

#[test]
fn a_consumer_that_stalls_stops_the_reading_and_the_ring_drops_by_name() {
    let Some(world) = World::new() else { return };
    let mut options = PacketOptions::default();
    (options.slots, options.slot_bytes) = (Some(64), Some(2048));
    let has_room = Arc::new(AtomicBool::new(false));
    let stalled = Stalled { has_room: Arc::clone(&has_room) };
    let mut run = RunOptions::new(7);
    run.left_to_right.budget_frames = 16;
    let path = start(world.packet_port(&options), stalled, run);
    let sender = world.a.run(|| PacketSocket::builder().bind(&name("a0"))).unwrap().unwrap();
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(1000).build();
    let send = |count: u64| (0..count).for_each(|_| assert!(sender.send(&frame).is_ok()));
    let taken = || path.handle.snapshot().unwrap().left_to_right;
    send(1);
    until(|| taken().rx_frames > 0);
    let before = taken();
    send(5000);
    let after = taken();
    // The frames of one poll may wait for room. The path reads no further frames, so no others are queued.
    assert!(before.rx_frames <= 16 && after.rx_frames == before.rx_frames, "{after:?}");
    has_room.store(true, Ordering::Relaxed);
    until(|| taken().tx_frames == taken().rx_frames && taken().rx_frames > before.rx_frames);
    let mut end = path.stop();
    let (full, share) = (LiveEvent::ReceiveRingFull, LiveEvent::ReceiveRingShare);
    let stats = end.left.stats().unwrap();
    let dropped = stats.events(full) + stats.events(share);
    let passed = end.snapshot.left_to_right.tx_frames;
    // The count includes packets of other protocols that the hosts sent. At most one ring of frames is unread.
    assert!(dropped >= 4000, "{dropped} dropped");
    assert!(dropped + passed + 64 >= 5001, "{dropped} dropped, {passed} passed");
}

#[test]
fn an_interface_is_promiscuous_as_long_as_a_port_asks_for_it() {
    let Some(world) = World::new() else { return };
    let promiscuity = || {
        let mut command = std::process::Command::new("ip");
        let command = world.engine.host(command.args(["-d", "link", "show", "e0"])).unwrap();
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        text.split("promiscuity ").nth(1).unwrap().chars().next()
    };
    let mut options = PacketOptions::default();
    for (asked, seen) in [(false, '0'), (true, '1')] {
        options.promiscuous = asked;
        let port = world.packet_port(&options);
        assert_eq!(promiscuity(), Some(seen));
        drop(port);
        assert_eq!(promiscuity(), Some('0'));
    }
}
