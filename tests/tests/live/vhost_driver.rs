//! Tests the port that acts as a virtio driver. Its peer is Grosso's device port or a malicious device.

#![cfg(target_os = "linux")]

use std::{
    fs::File,
    io::{IoSlice, Write},
    num::NonZeroU16,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::PathBuf,
    thread,
};

use grosso::{
    Meta,
    checksum::Checksum,
    features::Features,
    meta::{Gso, GsoSize},
};
use grosso_io::{
    Port, Transmitted,
    live::{MODE, UnixRole, VhostEvent, VhostOptions, VhostPort, VhostSide},
    runner::{DataPath, RunOptions},
};
use grosso_sys::unix_socket::{UnixAddress, UnixKind, UnixSocket};
use grosso_testkit::{
    Packet,
    front_end::{FROM_GUEST, FrontEnd, Shape, TO_GUEST, let_wait},
};
use grosso_vhost::{
    driver::{RING_BYTES, SLOTS, addresses},
    features as bits,
    message::{Inbox, Message, reply, request},
};
use tempfile::TempDir;

use crate::{
    live_path::world::until,
    vhost_hostile::ends,
    vhost_port::{ALL, arrived, frame, kicked, superframe},
};

/// Creates a directory, and returns it with the path for a socket in it.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    (folder, path)
}

fn options(path: &PathBuf, side: VhostSide, connects: bool, features: Features) -> VhostOptions {
    let mut options = VhostOptions::new(path);
    if connects {
        options.role = UnixRole::Connect { local: None, mode: MODE };
    }
    (options.side, options.features) = (side, features);
    options
}

/// A device and its driver after negotiation.
struct Pair {
    device: VhostPort,
    driver: VhostPort,
    path: PathBuf,
    _folder: TempDir,
}

impl Pair {
    /// Opens a device and a driver with these features. If `driver_connects` is set, the driver connects to the device,
    /// otherwise the device to the driver.
    fn new(offered: Features, wanted: Features, driver_connects: bool) -> Self {
        let (folder, path) = folder();
        let open = |side, connects, features| {
            VhostPort::open(&options(&path, side, connects, features)).unwrap()
        };
        let (device, driver) = if driver_connects {
            let device = open(VhostSide::Device, false, offered);
            (device, open(VhostSide::Driver, true, wanted))
        } else {
            let driver = open(VhostSide::Driver, false, wanted);
            (open(VhostSide::Device, true, offered), driver)
        };
        let mut pair = Self { device, driver, path, _folder: folder };
        pair.agree();
        pair
    }

    fn agree(&mut self) {
        until(|| {
            assert!(arrived(&mut self.device).is_empty() && arrived(&mut self.driver).is_empty());
            self.driver.frames_kick().is_some() && self.device.frames_kick().is_some()
        });
        // Lets both ports process the last replies.
        for _ in 0..3 {
            assert!(arrived(&mut self.device).is_empty() && arrived(&mut self.driver).is_empty());
        }
    }

    fn port(&mut self, is_device: bool) -> &mut VhostPort {
        if is_device { &mut self.device } else { &mut self.driver }
    }

    /// Checks that a frame and its metadata cross in both directions.
    fn carries(&mut self, frame: &[u8], meta: &Meta) {
        let Self { device, driver, .. } = self;
        assert_eq!(transmit(driver, frame, meta), Transmitted::Taken);
        assert_eq!(arrived(device), [(frame.to_vec(), *meta)]);
        assert_eq!(transmit(device, frame, meta), Transmitted::Taken);
        assert_eq!(arrived(driver), [(frame.to_vec(), *meta)]);
    }
}

fn transmit(port: &mut VhostPort, frame: &[u8], meta: &Meta) -> Transmitted {
    let (start, end) = frame.split_at(54.min(frame.len()));
    let sent = port.transmit(&[start, end], meta).unwrap();
    let _ = port.flush().unwrap();
    sent
}

/// Returns the number of frames that a port lost, according to its counters.
fn lost(port: &VhostPort) -> u64 {
    let lost = port.machine_stats().counters().filter(|(counter, _)| counter.is_loss);
    lost.map(|(_, count)| count).sum()
}

fn event(port: &VhostPort, event: VhostEvent) -> u64 {
    port.machine_stats().events(event)
}

#[test]
fn frames_of_all_lengths_go_both_ways_whoever_listens() {
    for driver_connects in [true, false] {
        let mut pair = Pair::new(Features::ALL, Features::ALL, driver_connects);
        for len in [0, 1, 600, 1446, 5000, 60_000].into_iter().cycle().take(600) {
            pair.carries(&frame(len), &Meta::default());
        }
        let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(40_000);
        let (bytes, start, offset) = whole.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let size = NonZeroU16::new(1448).unwrap();
        let gso = Some(Gso { size: GsoSize::Every(size), ..Gso::UNKNOWN });
        let meta = Meta { checksum, gso, ..Meta::default() };
        for (from, to) in [(true, false), (false, true)] {
            assert_eq!(transmit(pair.port(from), &bytes, &meta), Transmitted::Taken);
            let got = arrived(pair.port(to));
            let [(frame, got)] = &got[..] else { panic!("{got:?}") };
            assert!(*frame == bytes);
            let expected = (checksum, Some(GsoSize::Every(size)));
            assert_eq!((got.checksum, got.gso.map(|gso| gso.size)), expected);
        }
        assert_eq!([lost(&pair.device), lost(&pair.driver)], [0, 0]);
        assert_eq!(event(&pair.driver, VhostEvent::PeerMet), 1);
    }
}

#[test]
fn each_end_has_the_features_on_which_both_agree() {
    let tcp = Features::CHECKSUM_GENERIC | Features::TCP_SEGMENTATION;
    let word = Features::TCP6_SEGMENTATION;
    for (offered, wanted, tcp4, tcp6, checksum) in [
        (Features::ALL, Features::ALL, true, true, true),
        (tcp, Features::ALL, true, false, true),
        (Features::ALL, tcp, true, false, true),
        (Features::ALL, Features::SCATTER_GATHER, false, false, false),
        (Features::CHECKSUM_GENERIC, Features::ALL, false, false, true),
        // Superframes need partial checksums, which only one of the two supports.
        (Features::ALL, Features::SCATTER_GATHER | word, false, false, false),
    ] {
        let pair = Pair::new(offered, wanted, true);
        for port in [&pair.device, &pair.driver] {
            let features = port.device().features;
            let has = |feature| features.contains(feature);
            assert_eq!(
                [has(Features::TCP_SEGMENTATION), has(word), has(Features::CHECKSUM_GENERIC)],
                [tcp4, tcp6, checksum],
                "{offered:?} {wanted:?}"
            );
        }
    }
}

#[test]
fn features_without_a_virtio_bit_are_the_requested_ones() {
    for word in [Features::TCP_MANGLEID_SEGMENTATION, Features::GSO_ROBUST] {
        let pair = Pair::new(Features::ALL.without(word), Features::ALL, true);
        assert!(!pair.device.device().features.contains(word));
        assert!(pair.driver.device().features.contains(word));
    }
}

#[test]
fn a_verified_checksum_stays_whole_for_whoever_completes_none() {
    let verified = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
    for (features, completes) in [(Features::ALL, true), (Features::SCATTER_GATHER, false)] {
        let mut pair = Pair::new(features, Features::ALL, true);
        for from in [true, false] {
            for packet in [
                Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(700),
                Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp).payload_len(9),
            ] {
                let bytes = packet.build();
                let port = pair.port(from);
                assert_eq!(port.transmit(&[&bytes], &verified).unwrap(), Transmitted::Taken);
                let _ = port.flush().unwrap();
                let got = arrived(pair.port(!from));
                let [(frame, meta)] = &got[..] else { panic!("{got:?}") };
                let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
                assert_eq!(
                    (is_partial, *frame == bytes),
                    (completes, !completes),
                    "{features:?} {meta:?}"
                );
            }
        }
    }
}

#[test]
fn a_back_end_may_go_and_come_and_frames_meanwhile_are_counted() {
    let mut pair = Pair::new(Features::ALL, Features::ALL, true);
    let mut now_ns = 0;
    // The driver does not connect to this device, because its socket has a different path.
    let other = VhostOptions::new(pair.path.with_extension("other"));
    for round in 1..=3 {
        pair.carries(&frame(700), &Meta::default());
        let options = options(&pair.path, VhostSide::Device, false, Features::ALL);
        // Frames that the driver has not been notified of are lost with the device.
        pair.device = VhostPort::open(&other).unwrap();
        assert!(arrived(&mut pair.driver).is_empty());
        assert_eq!(event(&pair.driver, VhostEvent::PeerGone), round);
        // The driver immediately tries to connect to another device, and tries again after a tenth of a second.
        assert!(arrived(&mut pair.driver).is_empty());
        assert_eq!(transmit(&mut pair.driver, &frame(9), &Meta::default()), Transmitted::Taken);
        assert_eq!(event(&pair.driver, VhostEvent::TransmitNoPeer), round);
        pair.device = VhostPort::open(&options).unwrap();
        let deadline = pair.driver.deadline().unwrap();
        assert!(deadline > now_ns, "it would try all the time");
        now_ns = deadline;
        let _ = pair.driver.receive(now_ns, 64, &mut drop).unwrap();
        assert_eq!(event(&pair.driver, VhostEvent::PeerMet), round + 1);
        pair.agree();
    }
    assert_eq!(event(&pair.driver, VhostEvent::PeerCutOff), 0);
}

#[test]
fn a_ring_without_room_makes_the_port_wait_and_loses_nothing() {
    let mut pair = Pair::new(Features::ALL, Features::ALL, true);
    let numbered = |number: u32| [&frame(300)[..], &number.to_be_bytes()].concat();
    let (mut sent, mut got) = (0, 0);
    for round in 0..50 {
        while transmit(&mut pair.driver, &numbered(sent), &Meta::default()) == Transmitted::Taken {
            sent += 1;
            assert!(sent <= (round + 2) * u32::from(SLOTS), "it never waits");
        }
        for (frame, _) in arrived(&mut pair.device) {
            assert!(frame == numbered(got));
            got += 1;
        }
        assert_eq!(got, sent);
    }
    assert_eq!(lost(&pair.driver), 0);
}

/// Tests two VMs and two paths between them, which are connected to each other as device and driver.
#[test]
fn paths_that_sleep_wake_each_other_through_a_device_and_its_driver() {
    for driver_connects in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, middle] = ["a", "b", "m"].map(|name| folder.path().join(name));
        let device = options(&middle, VhostSide::Device, !driver_connects, Features::ALL);
        let driver = options(&middle, VhostSide::Driver, driver_connects, Features::ALL);
        let runs = [(&a, device), (&b, driver)].map(|(path, far)| {
            let near = VhostPort::open(&VhostOptions::new(path)).unwrap();
            let far = VhostPort::open(&far).unwrap();
            let path = DataPath::new(near, far, RunOptions::new(7)).unwrap();
            (path.handle(), thread::spawn(move || path.run()))
        });
        let [mut one, mut other] =
            [a, b].map(|path| FrontEnd::connect(&path, ALL, &mut || ()).unwrap());
        let sent = superframe(40_000);
        for _ in 0..20 {
            for (from, to) in [(0, 1), (1, 0)] {
                let mut both = [&mut one, &mut other];
                // Until both paths are connected, frames are lost.
                let mut got = None;
                until(|| {
                    while kicked(both[to], TO_GUEST, |to| to.give(66_000, Shape::Direct(1))) {}
                    kicked(both[from], FROM_GUEST, |from| from.send(&sent, Shape::Table(17)));
                    thread::sleep(std::time::Duration::from_millis(1));
                    got = both[to].received();
                    got.is_some()
                });
                assert!(got.is_some_and(|got| got[12..] == sent[12..]));
                while both[to].received().is_some() {}
            }
        }
        for (handle, run) in runs {
            handle.stop();
            assert!(run.join().unwrap().result.is_ok());
        }
    }
}

/// A malicious device that shares a driver's memory and writes into it directly.
struct Ill {
    listener: UnixSocket,
    socket: Option<UnixSocket>,
    port: VhostPort,
    said: Vec<Message>,
    /// Current time, as passed to the port.
    now_ns: u64,
    _folder: TempDir,
}

impl Ill {
    fn new() -> Self {
        let (folder, path) = folder();
        let address = UnixAddress::new(&path).unwrap();
        let listener =
            UnixSocket::passing(UnixKind::Stream).unwrap().placed_at(&address, MODE).unwrap();
        let options = options(&path, VhostSide::Driver, true, Features::ALL);
        let port = VhostPort::open(&options).unwrap();
        let mut ill =
            Self { listener, socket: None, port, said: vec![], now_ns: 0, _folder: folder };
        ill.meet();
        ill
    }

    /// Receives the descriptors and all messages that the port sends when it connects.
    fn meet(&mut self) {
        (self.socket, self.said) = (None, vec![]);
        let mut inbox = Inbox::default();
        until(|| {
            self.serve();
            self.socket = self.socket.take().or_else(|| self.listener.accept().ok());
            let Some(socket) = &self.socket else { return false };
            while let Ok(Some(message)) = inbox.next(socket) {
                let answer = match message.request {
                    request::GET_FEATURES => bits::VERSION_1 | bits::PROTOCOL_FEATURES,
                    request::GET_PROTOCOL_FEATURES => 0,
                    _ => {
                        self.said.push(message);
                        continue;
                    }
                };
                let answer = reply(message.request, &answer.to_ne_bytes());
                assert_eq!(socket.send(&[IoSlice::new(&answer)]).unwrap(), answer.len());
            }
            self.said.iter().filter(|said| said.request == request::SET_VRING_ENABLE).count() == 2
        });
    }

    /// Advances the time by a tenth of a second, and runs the port.
    fn serve(&mut self) {
        self.now_ns += 100_000_000;
        let _ = self.port.receive(self.now_ns, 64, &mut drop).unwrap();
    }

    fn files(&mut self, number: u32) -> Vec<OwnedFd> {
        let said = self.said.iter_mut().filter(|said| said.request == number);
        said.flat_map(|said| said.files.drain(..))
            .map(|file| file.as_fd().try_clone_to_owned().unwrap())
            .collect()
    }

    fn event(&self, of: VhostEvent) -> u64 {
        event(&self.port, of)
    }
}

/// Offset of the used entries in a ring.
const USED: u64 = addresses(0).used;

#[test]
fn a_device_that_breaks_a_ring_is_cut_off_by_name_and_met_anew() {
    let mut ill = Ill::new();
    let wrong: [(u64, u16, u32, VhostEvent); 4] = [
        (0, 1, 256, VhostEvent::RingIndex),
        (0, 300, 0, VhostEvent::RingOverrun),
        (1, 1, 9, VhostEvent::RingIndex),
        (1, 2, 0, VhostEvent::RingOverrun),
    ];
    for (number, (ring, count, head, named)) in wrong.into_iter().enumerate() {
        let [memory] = <[OwnedFd; 1]>::try_from(ill.files(request::SET_MEM_TABLE)).unwrap();
        let memory = File::from(memory);
        let used = ring * RING_BYTES + USED;
        let before = ill.event(named);
        assert_eq!(transmit(&mut ill.port, &frame(9), &Meta::default()), Transmitted::Taken);
        memory.write_all_at(&[head, 60].map(u32::to_ne_bytes).concat(), used + 4).unwrap();
        memory.write_all_at(&count.to_ne_bytes(), used + 2).unwrap();
        let _ = transmit(&mut ill.port, &frame(9), &Meta::default());
        ill.serve();
        ill.serve();
        assert_eq!(ill.event(named), before + 1, "{ring} {count} {head}");
        assert_eq!(ill.event(VhostEvent::PeerCutOff), number as u64 + 1);
        ill.meet();
        assert_eq!(ill.event(VhostEvent::PeerMet), number as u64 + 2);
    }
    // The driver's frames are in memory that is no longer shared with a device.
    assert_eq!(transmit(&mut ill.port, &frame(9), &Meta::default()), Transmitted::Taken);
    assert_eq!(ill.event(VhostEvent::TransmitNoPeer), 0);
}

#[test]
fn a_kick_that_is_full_and_whose_writes_wait_is_not_waited_for() {
    let mut ill = Ill::new();
    let bells = [request::SET_VRING_KICK, request::SET_VRING_CALL].map(|which| ill.files(which));
    for bell in bells.iter().flatten() {
        File::from(bell.try_clone().unwrap()).write_all(&(u64::MAX - 2).to_ne_bytes()).unwrap();
        let_wait(bell.as_fd()).unwrap();
    }
    ends(move || {
        for _ in 0..3 {
            assert_eq!(transmit(&mut ill.port, &frame(9), &Meta::default()), Transmitted::Taken);
            ill.serve();
        }
        assert_eq!(lost(&ill.port), 0);
    });
}

#[test]
fn a_device_that_answers_wrongly_or_is_silent_costs_frames_and_nothing_else() {
    let mut ill = Ill::new();
    let socket = ill.socket.take().unwrap();
    socket.send(&[IoSlice::new(&reply(request::GET_FEATURES, &[0; 8]))]).unwrap();
    ill.serve();
    assert_eq!(ill.event(VhostEvent::PeerCutOff), 1, "nobody asked");
    // The driver connects again, but sends no frames.
    until(|| {
        ill.serve();
        ill.event(VhostEvent::PeerMet) == 2
    });
    for number in 1..4 {
        assert_eq!(transmit(&mut ill.port, &frame(9), &Meta::default()), Transmitted::Taken);
        assert_eq!(ill.event(VhostEvent::TransmitNoPeer), number);
    }
    let silent = ill.listener.accept().unwrap();
    drop((socket, silent));
    ill.meet();
    assert_eq!(transmit(&mut ill.port, &frame(9), &Meta::default()), Transmitted::Taken);
    assert_eq!(ill.event(VhostEvent::TransmitNoPeer), 3);
}
