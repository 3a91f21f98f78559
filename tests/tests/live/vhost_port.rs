//! Tests the port that acts as a VM's device. The front end and the driver are implemented here, from the documented
//! formats.
//!
//! Longer than 600 lines: all cases share one front end and its driver.

#![cfg(target_os = "linux")]

use std::{
    io,
    os::unix::net::UnixStream,
    path::PathBuf,
    thread::{self, JoinHandle},
};

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, Transmitted,
    live::{LiveEvent, VhostEvent, VhostOptions, VhostPort},
    memory::wire,
    path::{Direction, PathOptions},
    runner::{DataPath, End, Handle, RunOptions},
};
use grosso_testkit::{
    Packet,
    front_end::{
        self, EVENT_INDEX, FROM_GUEST, FrontEnd, GUEST, MERGEABLE, PACKED, PROTOCOL, SLOTS, Shape,
        TO_GUEST, VERSION_1, descriptor, rings, slot_at,
    },
    oracle::{Link, State, verify},
    random::Random,
};
use grosso_wire::LinkType;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::live_path::world::until;

/// All features that a front end may choose, with split rings.
pub(crate) const ALL: u64 = !PACKED;
/// All features, with rings of either form.
pub(crate) const FORMS: [u64; 2] = [ALL, ALL | PACKED];
/// All features, with notifications by event index and by flags.
pub(crate) const EVENTS: [u64; 4] = [ALL, ALL & !EVENT_INDEX, FORMS[1], FORMS[1] & !EVENT_INDEX];
const SHAPES: [Shape; 5] =
    [Shape::Direct(1), Shape::Direct(2), Shape::Direct(4), Shape::Table(1), Shape::Table(17)];
/// Feature bit of a guest that accepts superframes over IPv4.
const GUEST_TSO4: u64 = 1 << 7;
/// Feature bit of a guest that accepts partial checksums.
const GUEST_CSUM: u64 = 1 << 1;
/// Length of the Ethernet, IPv4 and TCP headers in these tests.
const HEADERS_LEN: usize = 54;

pub(crate) struct Bench {
    pub(crate) port: VhostPort,
    path: PathBuf,
    _folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::offering(Features::ALL)
    }

    /// Opens a port whose guest may share this many bytes.
    pub(crate) fn with_memory(bytes: u64) -> Self {
        Self::opened(|options| options.memory_bytes_max = bytes)
    }

    fn offering(features: Features) -> Self {
        Self::opened(|options| options.features = features)
    }

    fn opened(edit: impl FnOnce(&mut VhostOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm");
        let mut options = VhostOptions::new(&path);
        edit(&mut options);
        Self { port: VhostPort::open(&options).unwrap(), path, _folder: folder }
    }

    pub(crate) fn connect(&mut self, wanted: u64) -> FrontEnd {
        self.connect_pairs(wanted, 1)
    }

    pub(crate) fn connect_pairs(&mut self, wanted: u64, pairs: usize) -> FrontEnd {
        self.try_connect(wanted, pairs).unwrap()
    }

    pub(crate) fn try_connect(&mut self, wanted: u64, pairs: usize) -> io::Result<FrontEnd> {
        let Self { port, path, .. } = self;
        // The port releases the previous front end, and accepts this one.
        let mut serve = || (0..3).for_each(|_| assert!(arrived(port).is_empty()));
        FrontEnd::with_pairs(UnixStream::connect(path)?, (wanted, pairs), &mut serve)
    }

    pub(crate) fn event(&self, event: VhostEvent) -> u64 {
        self.port.machine_stats().events(event)
    }

    pub(crate) fn transmit(&mut self, frame: &[u8], meta: &Meta) -> Transmitted {
        let (start, end) = frame.split_at(HEADERS_LEN.min(frame.len()));
        let sent = self.port.transmit(&[start, end], meta).unwrap();
        let _ = self.port.flush().unwrap();
        sent
    }

    /// Checks that a frame crosses in each direction.
    pub(crate) fn carries(&mut self, front: &mut FrontEnd) {
        let frame = frame(700);
        assert!(front.send(&plain(&frame), Shape::Direct(2)));
        assert_eq!(arrived(&mut self.port), [(frame.clone(), Meta::default())]);
        assert!(front.give(2000, Shape::Direct(1)));
        assert_eq!(self.transmit(&frame, &Meta::default()), Transmitted::Taken);
        assert_eq!(front.received().map(|got| got[12..].to_vec()), Some(frame));
    }
}

/// Receives everything that has arrived.
pub(crate) fn arrived(port: &mut VhostPort) -> Vec<(Vec<u8>, Meta)> {
    let (mut frames, mut buffers) = (Vec::new(), Vec::new());
    let each = &mut |frame: Frame<PortBuffer>| {
        frames.push((frame.buffer.as_ref().to_vec(), frame.meta));
        buffers.push(frame.buffer);
    };
    // Like a path, this polls again until the port has requested a notification.
    while port.receive(0, 64, each).unwrap() > 0 || port.deadline() == Some(0) {}
    port.recycle_all(&mut buffers);
    frames
}

pub(crate) fn frame(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len).build()
}

/// Returns a frame after an empty virtio header.
pub(crate) fn plain(frame: &[u8]) -> Vec<u8> {
    [&[0; 12], frame].concat()
}

/// Returns a superframe with its virtio header: NEEDS_CSUM, TCPV4, packets of 1448 bytes.
pub(crate) fn superframe(len: usize) -> Vec<u8> {
    let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len);
    let (bytes, start, offset) = whole.build_superframe();
    let mut header = vec![1, 1];
    for field in [whole.header_len() as u16, 1448, start as u16, offset as u16, 0] {
        header.extend(field.to_le_bytes());
    }
    [header, bytes].concat()
}

#[test]
fn frames_of_all_lengths_and_shapes_go_there_and_back() {
    let less = [0, EVENT_INDEX, MERGEABLE, !(VERSION_1 | PACKED), PROTOCOL];
    for wanted in FORMS.into_iter().flat_map(|all| less.map(|less| all & !less)) {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        for (number, len) in
            [0, 1, 600, 1446, 5000, 60_000].into_iter().cycle().take(90).enumerate()
        {
            let (sent, shape) = (frame(len), SHAPES[number % SHAPES.len()]);
            assert!(front.send(&plain(&sent), shape));
            assert_eq!(
                arrived(&mut bench.port),
                [(sent.clone(), Meta::default())],
                "{shape:?} {len}"
            );
            if wanted & MERGEABLE == 0 {
                assert!(front.give(66_000, shape));
            } else {
                while front.give(2000, Shape::Direct(1 + number % 3)) {}
            }
            assert_eq!(
                bench.transmit(&sent, &Meta::default()),
                Transmitted::Taken,
                "{shape:?} {len}"
            );
            let got = front.received().unwrap();
            assert_eq!(got[..10], [0; 10]);
            assert!(got[12..] == sent, "{wanted:x} {shape:?} {len}");
        }
        assert_eq!(bench.event(VhostEvent::PeerMet), 1);
        let lost = bench.port.machine_stats().counters().filter(|(counter, _)| counter.is_loss);
        assert_eq!(lost.map(|(_, count)| count).sum::<u64>(), 0);
    }
}

#[test]
fn the_header_describes_superframes_if_features_allow() {
    for wanted in FORMS.into_iter().flat_map(|all| [all, all & !MERGEABLE]) {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        assert!(bench.port.device().features.contains(Features::TCP_SEGMENTATION));
        let sent = superframe(40_000);
        assert!(front.send(&sent, Shape::Table(17)));
        let frames = arrived(&mut bench.port);
        let [(bytes, meta)] = &frames[..] else { panic!("{frames:?}") };
        assert!(matches!(meta.checksum, Checksum::Partial { .. }) && meta.gso.is_some());
        while front.give(if wanted & MERGEABLE == 0 { 66_000 } else { 1526 }, Shape::Direct(1)) {}
        assert_eq!(bench.transmit(bytes, meta), Transmitted::Taken);
        let got = front.received().unwrap();
        assert_eq!((got[..2].to_vec(), &got[4..10]), (vec![1, 1], &sent[4..10]));
        assert!(got[12..] == sent[12..]);
    }
    let mut bench = Bench::new();
    let front = bench.connect(ALL & !GUEST_TSO4);
    let features = bench.port.device().features;
    assert!(!features.contains(Features::TCP_SEGMENTATION));
    assert!(features.contains(Features::TCP6_SEGMENTATION));
    drop(front);
    let front = bench.connect(ALL & !GUEST_CSUM);
    assert_eq!(front.chosen & GUEST_CSUM, 0);
    assert!(!bench.port.device().features.contains(Features::CHECKSUM_GENERIC));
}

#[test]
fn a_guest_is_offered_what_was_wanted() {
    let offers = |features| {
        let mut bench = Bench::offering(features);
        bench.connect(ALL).offered
    };
    let none = offers(Features::SCATTER_GATHER);
    assert_eq!(none & (GUEST_CSUM | GUEST_TSO4 | 1 | 1 << 11), 0);
    let checksum = offers(Features::SCATTER_GATHER | Features::CHECKSUM_GENERIC);
    assert_eq!(checksum & (GUEST_CSUM | GUEST_TSO4 | 1 | 1 << 11), GUEST_CSUM | 1);
    assert_eq!(offers(Features::ALL) & (GUEST_TSO4 | 1 << 11), GUEST_TSO4 | 1 << 11);
}

#[test]
fn a_guest_without_buffers_makes_the_port_wait_without_loss() {
    for wanted in EVENTS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        let mut expected = 0_u32;
        let numbered =
            |number: u32| [&frame(3000)[..14], &number.to_be_bytes(), &[7; 3000]].concat();
        for round in 0..200_u32 {
            let mut sent = round * 64;
            assert!(front.give(2000, Shape::Direct(1)));
            front.want_calls(TO_GUEST);
            while bench.transmit(&numbered(expected), &Meta::default()) == Transmitted::Taken {
                sent += 1;
                expected += 1;
                assert!(sent < (round + 1) * 64, "it never waits");
            }
            assert!(
                front.is_asked(TO_GUEST)
                    || front.give(2000, Shape::Direct(1)) && front.is_asked(TO_GUEST)
            );
            while let Some(got) = front.received() {
                let number = u32::from_be_bytes(*got[26..].first_chunk().unwrap());
                assert!(got[12..] == numbered(number));
            }
        }
        assert!(expected > 90, "{expected}");
        assert_eq!(bench.event(VhostEvent::TransmitNoPeer), 0);
    }
}

/// Tests the first notification to the driver, which is always sent: the previous back end may have died after using an
/// entry but before signaling it.
#[test]
fn a_driver_is_called_once_when_its_rings_begin() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        let _ = arrived(&mut bench.port);
        assert_eq!([TO_GUEST, FROM_GUEST].map(|ring| front.calls(ring)), [1, 1]);
        let _ = arrived(&mut bench.port);
        assert_eq!([TO_GUEST, FROM_GUEST].map(|ring| front.calls(ring)), [0, 0]);
    }
}

#[test]
fn a_driver_is_interrupted_when_it_wants_to_be_and_kicks_when_it_is_asked() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        front.want_calls(FROM_GUEST);
        let _ = front.calls(FROM_GUEST);
        assert!(arrived(&mut bench.port).is_empty());
        assert!(front.send(&plain(&frame(1)), Shape::Direct(1)) && front.is_asked(FROM_GUEST));
        front.kick(FROM_GUEST).unwrap();
        assert!(bench.port.frames_kick().is_some());
        assert_eq!((arrived(&mut bench.port).len(), front.calls(FROM_GUEST)), (1, 1));
        for _ in 0..20 {
            assert!(front.send(&plain(&frame(1)), Shape::Direct(1)));
        }
        assert_eq!(
            (arrived(&mut bench.port).len(), front.calls(FROM_GUEST)),
            (20, 0),
            "it did not ask"
        );
    }
}

/// Tests that the device polls a ring until it has requested kicks from the driver. A driver that adds entries before
/// that sends no kick.
#[test]
fn a_driver_is_asked_to_kick_before_a_path_sleeps_and_not_while_it_looks() {
    for wanted in EVENTS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        assert!(arrived(&mut bench.port).is_empty());
        let mut unasked = 0;
        for _ in 0..100 {
            assert!(front.send(&plain(&frame(1)), Shape::Direct(1)) && front.is_asked(FROM_GUEST));
            assert_eq!(arrived(&mut bench.port).len(), 1);
        }
        for _ in 0..100 {
            // The first poll receives a frame, and the second one finds the ring empty.
            for _ in 0..2 {
                let _ = bench.port.receive(0, 64, &mut drop).unwrap();
            }
            assert!(front.send(&plain(&frame(1)), Shape::Direct(1)));
            unasked += u32::from(!front.is_asked(FROM_GUEST));
        }
        assert!(unasked > 70, "{unasked}: it helps, so it is done");
        assert_eq!(arrived(&mut bench.port).len(), 1);
        assert!(front.send(&plain(&frame(1)), Shape::Direct(1)) && front.is_asked(FROM_GUEST));
    }
}

#[test]
fn a_machine_may_boot_again_go_and_come() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        assert_eq!(bench.transmit(&frame(1), &Meta::default()), Transmitted::Taken);
        assert_eq!(bench.event(VhostEvent::TransmitNoPeer), 1);
        for round in 1..=3 {
            let mut front = bench.connect(wanted);
            assert_eq!(bench.event(VhostEvent::PeerMet), round);
            bench.carries(&mut front);
            front.reboot(&mut || assert!(arrived(&mut bench.port).is_empty())).unwrap();
            bench.carries(&mut front);
            let next = front.stop_ring(FROM_GUEST, &mut || drop(arrived(&mut bench.port))).unwrap();
            // There is one entry, which has two descriptors.
            assert_eq!(next, if front.is_packed() { 0x8002 } else { 1 });
            drop(front);
            assert!(arrived(&mut bench.port).is_empty());
            assert_eq!(bench.event(VhostEvent::PeerGone), round);
        }
        assert_eq!(bench.event(VhostEvent::PeerCutOff), 0);
    }
}

/// Tests a superframe that waits for room in a guest. The next guest accepts only packets with complete checksums, so
/// the superframe is segmented for that guest.
#[test]
fn a_frame_that_waited_for_a_guest_is_made_for_the_one_that_boots_anew() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        let (mut far, mut near) = wire(LinkType::Ethernet, Device::new(Features::ALL), 1);
        let mut path = Direction::new(PathOptions::new(1), LinkType::Ethernet, bench.port.device());
        let sent = superframe(10 * 1448);
        assert!(front.send(&sent, Shape::Table(17)));
        let (bytes, meta) = arrived(&mut bench.port).remove(0);
        assert_eq!(far.transmit(&[&bytes], &meta).unwrap(), Transmitted::Taken);
        assert_eq!(path.poll(&mut near, &mut bench.port, 0).unwrap(), 1);
        assert!(path.is_stalled(), "it has no buffers");

        drop(front);
        let mut front = bench.connect(wanted & !(GUEST_TSO4 | GUEST_CSUM));
        while front.give(2000, Shape::Direct(1)) {}
        assert_eq!(path.poll(&mut near, &mut bench.port, 0).unwrap(), 0);
        assert!(!path.is_stalled());
        let got: Vec<_> = core::iter::from_fn(|| front.received()).collect();
        assert_eq!(got.len(), 10);
        for packet in got {
            assert_eq!(packet[..10], [0; 10], "it takes neither superframes nor partial checksums");
            assert_eq!(packet.len(), 12 + HEADERS_LEN + 1448);
            let verdicts = verify(&packet[12..], Link::Ethernet);
            assert!(verdicts.iter().all(|verdict| verdict.state == State::Right), "{verdicts:?}");
        }
    }
}

/// Makes frames available, with a kick if one is requested, as a driver does.
pub(crate) fn kicked(
    front: &mut FrontEnd,
    ring: usize,
    offer: impl FnOnce(&mut FrontEnd) -> bool,
) -> bool {
    let is_offered = offer(front);
    if is_offered && front.is_asked(ring) {
        front.kick(ring).unwrap();
    }
    is_offered
}

/// Two VMs and a data path between them on its own thread.
pub(crate) struct TwoMachines {
    pub(crate) one: FrontEnd,
    pub(crate) other: FrontEnd,
    handle: Handle,
    runs: JoinHandle<End<VhostPort, VhostPort>>,
    _folder: TempDir,
}

impl TwoMachines {
    /// Starts VMs that request these features if they are offered.
    pub(crate) fn start(one: u64, other: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let [left, right] =
            paths.each_ref().map(|path| VhostPort::open(&VhostOptions::new(path)).unwrap());
        let path = DataPath::new(left, right, RunOptions::new(7)).unwrap();
        let handle = path.handle();
        let runs = thread::spawn(move || path.run());
        let one = FrontEnd::connect(&paths[0], one, &mut || ()).unwrap();
        let other = FrontEnd::connect(&paths[1], other, &mut || ()).unwrap();
        Self { one, other, handle, runs, _folder: folder }
    }

    /// Stops the path, which must not have ended before.
    pub(crate) fn stop(self) {
        self.handle.stop();
        assert!(self.runs.join().unwrap().result.is_ok());
    }
}

/// Waits for the next frame and returns it.
fn awaited(front: &mut FrontEnd) -> Vec<u8> {
    let mut frame = None;
    until(|| {
        while kicked(front, TO_GUEST, |front| front.give(2000, Shape::Direct(1))) {}
        frame = front.received();
        frame.is_some()
    });
    frame.unwrap()
}

#[test]
fn two_machines_on_a_path_that_sleeps_get_what_each_takes() {
    for wanted in EVENTS {
        let mut machines = TwoMachines::start(wanted, wanted & !GUEST_TSO4);
        let TwoMachines { one, other, .. } = &mut machines;
        for round in 0..20 {
            let sent = superframe(40_000);
            assert!(kicked(one, FROM_GUEST, |one| one.send(&sent, Shape::Table(17))));
            let mut payload = Vec::new();
            while payload.len() < 40_000 {
                let packet = awaited(other);
                assert!(packet.len() <= 12 + HEADERS_LEN + 1448 && packet[1] == 0, "{round}");
                payload.extend_from_slice(&packet[12 + HEADERS_LEN..]);
            }
            assert!(payload == sent[12 + HEADERS_LEN..], "{round}");
            assert!(kicked(other, FROM_GUEST, |other| other.send(&sent, Shape::Direct(3))));
            assert!(awaited(one)[12..] == sent[12..], "{round}");
        }
        machines.stop();
    }
}

/// A wrong descriptor, or a wrong entry, and the name of the fault.
type Wrong = (&'static str, fn(&mut FrontEnd, usize), VhostEvent);

const WRONG: [Wrong; 10] = [
    ("an entry behind the table", |front, ring| front.offer(ring, 256), VhostEvent::RingIndex),
    (
        "a next descriptor behind it",
        |front, ring| chain(front, ring, (0, 60, 1, 999)),
        VhostEvent::RingIndex,
    ),
    ("a loop", |front, ring| chain(front, ring, (0, 60, 1, 255)), VhostEvent::RingEndless),
    (
        "an address nowhere",
        |front, ring| put(front, ring, (0x10_0000, 60, 0, 0)),
        VhostEvent::RingOutside,
    ),
    (
        "an address that ends behind the memory",
        |front, ring| put(front, ring, (GUEST + front_end::MEMORY_BYTES - 30, 60, 0, 0)),
        VhostEvent::RingOutside,
    ),
    (
        "an address at the end of all addresses",
        |front, ring| put(front, ring, (u64::MAX - 10, 60, 0, 0)),
        VhostEvent::RingOutside,
    ),
    (
        "a chain of more bytes than 2^32",
        |front, ring| {
            let (at, turned) = (slot_at(ring, 0), 2 * u16::from(ring == TO_GUEST));
            let long = descriptor((at, u32::MAX, turned, 0));
            front.write(GUEST + rings(ring)[0] + 16 * 254, &long);
            chain(front, ring, (0, 60, 1, 254));
        },
        VhostEvent::RingLength,
    ),
    (
        "a wrong direction",
        |front, ring| put(front, ring, (slot_at(ring, 0), 60, 2, 0)),
        VhostEvent::RingDirection,
    ),
    (
        "a table that is too short",
        |front, ring| put(front, ring, (slot_at(ring, 0), 15, 4, 0)),
        VhostEvent::RingTable,
    ),
    (
        "a table of tables",
        |front, ring| {
            front.write(slot_at(ring, 0), &descriptor((slot_at(ring, 1), 16, 4, 0)));
            put(front, ring, (slot_at(ring, 0), 16, 4, 0));
        },
        VhostEvent::RingTable,
    ),
];

/// Makes the last descriptor of a ring available with these fields. For the ring to the guest, its direction is
/// inverted.
fn put(front: &mut FrontEnd, ring: usize, (address, bytes, flags, next): (u64, u32, u16, u16)) {
    let flags = if ring == TO_GUEST && flags & 4 == 0 { flags ^ 2 } else { flags };
    front.write(GUEST + rings(ring)[0] + 16 * 255, &descriptor((address, bytes, flags, next)));
    front.offer(ring, 255);
}

/// Writes a descriptor with a valid address.
fn chain(front: &mut FrontEnd, ring: usize, (_, bytes, flags, next): (u64, u32, u16, u16)) {
    put(front, ring, (slot_at(ring, 0), bytes, flags, next));
}

#[test]
fn each_wrong_descriptor_loses_only_its_frame_and_has_a_reason() {
    for (what, wrong, event) in WRONG {
        let mut bench = Bench::new();
        let mut front = bench.connect(ALL);
        wrong(&mut front, FROM_GUEST);
        assert!(front.send(&plain(&frame(9)), Shape::Direct(1)));
        assert_eq!(arrived(&mut bench.port), [(frame(9), Meta::default())], "{what}");
        assert_eq!(bench.event(event), 1, "{what}");

        let mut bench = Bench::new();
        let mut front = bench.connect(ALL);
        wrong(&mut front, TO_GUEST);
        assert!(front.give(2000, Shape::Direct(1)));
        assert_eq!(bench.transmit(&frame(9), &Meta::default()), Transmitted::Taken, "{what}");
        assert_eq!(bench.event(event), 1, "{what}");
    }
}

#[test]
fn buffers_without_bytes_are_no_work_without_end() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        while front.give(0, Shape::Table(100)) {}
        let _ = bench.transmit(&frame(9), &Meta::default());
        let _ = bench.port.flush().unwrap();
        assert!(
            bench.event(VhostEvent::RingEndless) > 0,
            "some thousand descriptors for one frame"
        );
        let mut handed_back = 0;
        while front.received().is_some() {
            handed_back += 1;
        }
        assert!(handed_back > 10, "{handed_back} entries are usable again");
    }
}

#[test]
fn a_ring_that_claims_too_much_is_left_alone_until_it_is_set_anew() {
    for ring in [FROM_GUEST, TO_GUEST] {
        let mut bench = Bench::new();
        let mut front = bench.connect(ALL);
        front.write(GUEST + rings(ring)[1] + 2, &300_u16.to_le_bytes());
        assert!(arrived(&mut bench.port).is_empty());
        for _ in 0..3 {
            let _ = bench.transmit(&frame(9), &Meta::default());
        }
        assert_eq!(bench.event(VhostEvent::RingOverrun), 1);
        front.reboot(&mut || assert!(arrived(&mut bench.port).is_empty())).unwrap();
        let _ = bench.port.flush().unwrap();
        bench.port.recycle_all(&mut Vec::new());
        while front.give(2000, Shape::Direct(1)) {}
        let _ = bench.port.flush().unwrap();
        while front.received().is_some() {}
        assert!(front.send(&plain(&frame(9)), Shape::Direct(1)));
        assert_eq!(arrived(&mut bench.port).len(), 1);
    }
}

#[test]
fn a_frame_that_is_too_long_or_too_short_is_counted() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        assert!(front.send(&plain(&vec![1; 68_000]), Shape::Table(3)));
        assert!(front.send(&[0; 5], Shape::Direct(1)) && front.send(&[], Shape::Direct(1)));
        assert!(arrived(&mut bench.port).is_empty());
        assert_eq!(bench.port.stats().events(LiveEvent::ReceiveTruncated), 1);
        assert_eq!(bench.port.stats().counters().map(|(_, count)| count).sum::<u64>(), 3);
        // Only a buffer of one byte is available, so no frame fits.
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted & !MERGEABLE);
        assert!(front.give(1, Shape::Direct(1)));
        assert_eq!(bench.transmit(&frame(9), &Meta::default()), Transmitted::Taken);
        assert_eq!(bench.port.stats().events(LiveEvent::TransmitTooLong), 1);
    }
}

#[test]
fn removed_guest_memory_ends_only_the_guest_s_port() {
    for wanted in FORMS {
        for takes_file in [false, true] {
            let mut bench = Bench::new();
            let mut front = bench.connect(wanted);
            assert!(front.send(&plain(&frame(9)), Shape::Direct(1)));
            if takes_file {
                front.lose_memory().unwrap();
            } else {
                // A memory table without regions.
                front.send_request(5, &[0; 8], &[]).unwrap();
            }
            let _ = arrived(&mut bench.port);
            let _ = bench.transmit(&frame(9), &Meta::default());
            let _ = arrived(&mut bench.port);
            assert_eq!(bench.event(VhostEvent::PeerCutOff), 1, "{takes_file}");
            drop(front);
            let mut front = bench.connect(wanted);
            bench.carries(&mut front);
        }
    }
}

#[test]
fn messages_that_cannot_be_end_the_connection_and_not_the_port() {
    let regions = |count: u32, bytes: u64| {
        let mut payload = u64::from(count).to_ne_bytes().to_vec();
        for _ in 0..count {
            payload.extend([0, bytes, 0, 0_u64].iter().flat_map(|word| word.to_ne_bytes()));
        }
        payload
    };
    let pair = |index: u32, value: u32| [index, value].map(u32::to_ne_bytes).concat();
    let wrong: [(u32, Vec<u8>); 14] = [
        (0, vec![]),
        (99, vec![]),
        (2, vec![]),
        (2, (1_u64 << 40).to_ne_bytes().to_vec()),
        (5, regions(1, 4096)),
        (5, regions(9, 4096)),
        (5, vec![1, 0, 0, 0]),
        (8, pair(32, 256)),
        (8, pair(0, 1 << 20)),
        (9, vec![0; 8]),
        (11, pair(32, 0)),
        (18, pair(32, 1)),
        (12, 0_u64.to_ne_bytes().to_vec()),
        (16, u64::MAX.to_ne_bytes().to_vec()),
    ];
    let mut bench = Bench::new();
    for (number, (request, payload)) in wrong.iter().enumerate() {
        let front = bench.connect(ALL);
        front.send_request(*request, payload, &[]).unwrap();
        assert!(arrived(&mut bench.port).is_empty());
        assert_eq!(bench.event(VhostEvent::PeerCutOff), number as u64 + 1, "{request}");
    }
    let mut front = bench.connect(ALL);
    bench.carries(&mut front);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tests rings with random contents, after which a valid frame must still be received.
    #[test]
    fn anything_in_a_ring_is_borne(seed: u64, wanted: u64) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted | VERSION_1 | PROTOCOL);
        for _ in 0..8 {
            for ring in [TO_GUEST, FROM_GUEST] {
                for number in 0..256 {
                    let address = match random.below(4) {
                        0 => random.bits(),
                        1 => GUEST + front_end::MEMORY_BYTES - random.below(70_000) as u64,
                        _ => slot_at(ring, random.below(usize::from(SLOTS)) as u64),
                    };
                    let lengths = [random.below(3000), random.below(16) * 16, random.bits() as usize];
                    let bytes = *random.choose(&lengths) as u32;
                    let flags = *random.choose(&[0, 1, 2, 3, 4]);
                    let next = random.below(260) as u16;
                    let laps = *random.choose(&[0, 0x80, 0x8000, 0x8080]);
                    let last = if front.is_packed() { [next, flags | laps] } else { [flags, next] };
                    let at = GUEST + rings(ring)[0] + 16 * number;
                    front.write(at, &descriptor((address, bytes, last[0], last[1])));
                }
                for _ in 0..random.below(20) {
                    front.offer(ring, random.below(260) as u16);
                }
            }
            let _ = arrived(&mut bench.port);
            for _ in 0..random.below(20) {
                let _ = bench.transmit(&frame(random.below(4000)), &Meta::default());
            }
        }
        front.reboot(&mut || drop(arrived(&mut bench.port))).unwrap();
        while front.give(2000, Shape::Direct(1)) {}
        let _ = bench.port.flush().unwrap();
        assert!(front.send(&plain(&frame(9)), Shape::Direct(1)));
        prop_assert_eq!(arrived(&mut bench.port), [(frame(9), Meta::default())]);
    }
}
