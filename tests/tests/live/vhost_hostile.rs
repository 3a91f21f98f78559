//! Tests the device of a VM whose front end or driver is malicious. Only frames of this VM may be lost.

#![cfg(target_os = "linux")]

use std::{fs::File, io::Write, os::fd::AsFd, thread, time::Duration};

use grosso::Meta;
use grosso_io::{
    Port, Transmitted,
    live::{VhostEvent, VhostPort},
};
use grosso_sys::wait::{Interest, wait_for};
use grosso_testkit::front_end::{
    self, FROM_GUEST, GUEST, MEMORY_BYTES, SLOTS, Shape, TO_GUEST, descriptor, rings, slot_at,
};

use crate::{
    live_path::world::until,
    vhost_port::{
        ALL, Bench, EVENTS, FORMS, TwoMachines, arrived, frame, kicked, plain, superframe,
    },
};

/// Runs work in a separate thread, so that the test fails instead of hanging if the work hangs.
pub(crate) fn ends(work: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(work);
    until(|| thread.is_finished());
    thread.join().unwrap();
}

#[test]
fn a_kick_whose_reads_wait_is_not_waited_for() {
    let mut bench = Bench::new();
    let mut front = bench.connect(ALL);
    front.let_wait().unwrap();
    ends(move || {
        for _ in 0..3 {
            bench.carries(&mut front);
        }
    });
}

#[test]
fn a_full_call_whose_writes_wait_is_not_waited_for() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        for ring in [TO_GUEST, FROM_GUEST] {
            let _ = front.calls(ring);
            front.fill_call(ring).unwrap();
            front.want_calls(ring);
        }
        front.let_wait().unwrap();
        ends(move || bench.carries(&mut front));
    }
}

#[test]
fn descriptors_that_are_no_eventfds_are_refused() {
    for request in [12, 13] {
        let mut bench = Bench::new();
        let front = bench.connect(ALL);
        let (reader, _writer) = std::io::pipe().unwrap();
        front.send_request(request, &0_u64.to_ne_bytes(), &[reader.as_fd()]).unwrap();
        assert!(arrived(&mut bench.port).is_empty());
        assert_eq!(bench.event(VhostEvent::PeerCutOff), 1, "{request}");
    }
}

/// Returns whether a sleeping path would wake at once for frames.
fn is_awake(port: &VhostPort) -> bool {
    let kick = port.frames_kick().unwrap();
    wait_for(&[(kick, Interest::READ)], Some(Duration::ZERO)).unwrap().is_some()
}

#[test]
fn a_kick_without_entries_wakes_once() {
    let mut bench = Bench::new();
    let front = bench.connect(ALL);
    let mut kick = front_end::semaphore().unwrap();
    front.send_request(12, &(FROM_GUEST as u64).to_ne_bytes(), &[kick.as_fd()]).unwrap();
    for _ in 0..3 {
        (0..3).for_each(|_| assert!(arrived(&mut bench.port).is_empty()));
        assert!(!is_awake(&bench.port), "it would never sleep");
        kick.write_all(&1_u64.to_ne_bytes()).unwrap();
        assert!(is_awake(&bench.port));
    }
    // Another front end connects and replaces the first one, which is then ignored.
    let next = front_end::semaphore().unwrap();
    front.send_request(12, &(FROM_GUEST as u64).to_ne_bytes(), &[next.as_fd()]).unwrap();
    (0..3).for_each(|_| assert!(arrived(&mut bench.port).is_empty()));
    kick.write_all(&1_u64.to_ne_bytes()).unwrap();
    assert!(!is_awake(&bench.port));
}

#[test]
fn a_frame_that_never_fits_is_given_up_by_name_and_the_next_one_goes_on() {
    for wanted in FORMS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        (0..10).for_each(|_| assert!(front.give(2000, Shape::Direct(1))));
        let long = frame(30_000);
        let second = 1_000_000_000;
        // The frame starts waiting at the first attempt, and is dropped after a second.
        for (now_ns, result, given_up) in [
            (5, Transmitted::NoRoom, 0),
            (second + 4, Transmitted::NoRoom, 0),
            (second + 5, Transmitted::Taken, 1),
        ] {
            let _ = bench.port.receive(now_ns, 64, &mut drop).unwrap();
            assert_eq!(bench.transmit(&long, &Meta::default()), result, "{now_ns}");
            assert_eq!(bench.event(VhostEvent::RingShort), given_up, "{now_ns}");
            assert!(bench.port.deadline().is_some_and(|deadline| deadline <= second + 5));
        }
        assert_eq!(bench.transmit(&frame(9), &Meta::default()), Transmitted::Taken);
        assert_eq!(front.received().map(|got| got[12..].to_vec()), Some(frame(9)));
        // If there is no room at all, a frame waits without a time limit.
        while bench.transmit(&frame(9), &Meta::default()) == Transmitted::Taken {}
        let _ = bench.port.receive(1 << 60, 64, &mut drop).unwrap();
        assert_eq!(bench.transmit(&frame(9), &Meta::default()), Transmitted::NoRoom);
        assert_eq!((bench.event(VhostEvent::RingShort), bench.port.deadline()), (1, None));
    }
}

#[test]
fn a_path_goes_on_behind_a_frame_that_never_fits() {
    for wanted in FORMS {
        let mut machines = TwoMachines::start(wanted, wanted);
        let TwoMachines { one, other, .. } = &mut machines;
        (0..10).for_each(|_| assert!(kicked(other, TO_GUEST, |b| b.give(2000, Shape::Direct(1)))));
        for sent in [superframe(40_000), plain(&frame(9))] {
            assert!(kicked(one, FROM_GUEST, |one| one.send(&sent, Shape::Direct(1))));
        }
        let mut got = None;
        until(|| {
            got = other.received();
            got.is_some()
        });
        // The frame's checksum may be left to the guest.
        assert_eq!(got.map(|got| got.len()), Some(12 + frame(9).len()));
        machines.stop();
    }
}

#[test]
fn a_superframe_waits_while_its_driver_adds_small_buffers_one_by_one() {
    for wanted in EVENTS {
        let mut bench = Bench::new();
        let mut front = bench.connect(wanted);
        let giver = thread::spawn(move || {
            for _ in 0..SLOTS {
                assert!(front.give(1000, Shape::Direct(1)));
                thread::yield_now();
            }
            front
        });
        let sent = frame(60_000);
        until(|| bench.transmit(&sent, &Meta::default()) == Transmitted::Taken);
        let mut front = giver.join().unwrap();
        assert!(front.received().is_some_and(|got| got[12..] == sent), "in 61 of 64");
        let lost = bench.port.machine_stats().counters().filter(|(counter, _)| counter.is_loss);
        assert_eq!(lost.map(|(_, count)| count).sum::<u64>(), 0);
    }
}

/// Number of descriptors in the longest ring plus the number in the longest frame.
const WALKED_MAX: u64 = 32_768 + 1024;

#[test]
fn one_frame_walks_so_many_descriptors_and_no_more() {
    let mut bench = Bench::new();
    let mut front = bench.connect(ALL);
    // Every entry refers to a table that contains a loop.
    let table = slot_at(TO_GUEST, 0);
    for number in 0..1024_u16 {
        let round = descriptor((slot_at(TO_GUEST, 1), 0, 3, (number + 1) % 1024));
        front.write(table + 16 * u64::from(number), &round);
    }
    front.write(GUEST + rings(TO_GUEST)[0], &descriptor((table, 16 * 1024, 4, 0)));
    (0..200).for_each(|_| front.offer(TO_GUEST, 0));
    assert_eq!(bench.transmit(&frame(9), &Meta::default()), Transmitted::Taken);
    let walked = 1024 * bench.event(VhostEvent::RingEndless);
    assert!((1024..WALKED_MAX + 1024).contains(&walked), "{walked}");
    assert_eq!(bench.event(VhostEvent::RingUnsteady), 1, "the frame is lost by name");
}

/// Encodes a memory table with these regions: a guest address, a length, an address of the front end and a file offset.
fn table(regions: &[[u64; 4]]) -> Vec<u8> {
    let numbers = regions.iter().flatten().flat_map(|number| number.to_ne_bytes());
    (regions.len() as u64).to_ne_bytes().into_iter().chain(numbers).collect()
}

#[test]
fn memory_that_is_too_much_or_none_is_refused_by_name() {
    let sparse = front_end::sparse(1 << 41).unwrap();
    // This descriptor is read-only, and on a file system whose pages another program might provide.
    let on_disk = File::open("/proc/self/exe").unwrap();
    let small = |number: u64| [number << 20, 1 << 20, number << 20, 0];
    let nine = core::array::from_fn::<_, 9, _>(|number| small(number as u64));
    for (what, regions, file) in [
        ("two TiB", &[[0, 1 << 41, 0, 0]][..], &sparse),
        ("twice the most", &[[0, 1 << 40, 0, 0], [1 << 40, 1 << 40, 1 << 40, 0]], &sparse),
        ("nine regions", &nine, &sparse),
        ("a file on disk", &[small(0)], &on_disk),
    ] {
        let mut bench = Bench::new();
        let mut front = bench.connect(ALL);
        let files = vec![file.as_fd(); regions.len().min(8)];
        front.send_request(5, &table(regions), &files).unwrap();
        assert!(arrived(&mut bench.port).is_empty());
        let events = [VhostEvent::MemoryRefused, VhostEvent::PeerCutOff];
        assert_eq!(events.map(|event| bench.event(event)), [1, 1], "{what}");
        drop(front);
        front = bench.connect(ALL);
        bench.carries(&mut front);
    }
}

#[test]
fn memory_of_more_bytes_than_the_port_allows_is_refused_by_name() {
    let mut bench = Bench::with_memory(MEMORY_BYTES);
    let mut front = bench.connect(ALL);
    bench.carries(&mut front);
    let sparse = front_end::sparse(MEMORY_BYTES + (1 << 20)).unwrap();
    let half = MEMORY_BYTES / 2;
    let regions = [[GUEST, half, 0, 0], [GUEST + half, half + 4096, half, half]];
    front.send_request(5, &table(&regions), &[sparse.as_fd(), sparse.as_fd()]).unwrap();
    assert!(arrived(&mut bench.port).is_empty());
    let events = [VhostEvent::MemoryOverLimit, VhostEvent::MemoryRefused, VhostEvent::PeerCutOff];
    assert_eq!(events.map(|event| bench.event(event)), [1, 0, 1]);
    drop(front);
    front = bench.connect(ALL);
    bench.carries(&mut front);
}
