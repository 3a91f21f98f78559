//! Trials of `lab cost` on the running kernel.

use std::{io, sync::atomic::AtomicBool};

use grosso_lab::{
    cost::{CostRun, CostSetting, Offloads, PartName, Wire, measure},
    netns::Device,
    trial::{Extent, TrialError},
};
use grosso_sys::scheduling::allowed_processors;

pub(super) fn offloads_bring_packets_together_and_parts_add_up(device: Device) {
    for wire in [Wire::Ring, Wire::Udp, Wire::Xdp] {
        let [on, off] = [Offloads::On, Offloads::Off].map(|offloads| trial(device, wire, offloads));
        let (Some(on), Some(off)) = (on, off) else { continue };
        packets_come_together_where_offloads_are_on(&on, &off);
        calls_are_counted_where_there_are_some((device, wire), &on, &off);
        checksums_cost_without_offload(wire, &on);
    }
}

pub(super) fn one_frame_a_poll_is_one_call_a_packet(device: Device) {
    let [on, by_one] =
        [Offloads::On, Offloads::OneByOne].map(|offloads| trial(device, Wire::Ring, offloads));
    let turns = |measured: Option<CostRun>| {
        let [_, path] = measured.expect("a packet socket").paths;
        path.send.calls as f64 / path.packets as f64
    };
    assert!(turns(by_one) > turns(on), "{device}");
}

/// Asserts what must be true in every trial: the times of the parts add up exactly to the thread's time.
fn parts_add_up_to_the_thread_s_time(measured: &CostRun) {
    for path in &measured.paths {
        assert!(path.packets > 1000 && path.frames > 0, "{path:?}");
        let parts = path.parts;
        assert!(path.total_ns > 0.0 && path.total_ns < measured.seconds * 1e9, "{path:?}");
        assert!((parts.total() - path.total_ns).abs() <= path.total_ns * 1e-9, "{path:?}");
        let unexplained = parts.get(PartName::Unexplained);
        assert!(unexplained >= 0.0 && unexplained < path.total_ns / 4.0, "{path:?}");
        for part in [PartName::Engine, PartName::SendCalls, PartName::Loop] {
            assert!(parts.get(part) > 0.0, "{part:?}: {path:?}");
        }
    }
}

fn packets_come_together_where_offloads_are_on(on: &CostRun, off: &CostRun) {
    for (on, off) in on.paths.iter().zip(&off.paths) {
        assert!(on.frames * 2 < on.packets, "{on:?}");
        assert_eq!(off.frames, off.packets, "{off:?}");
    }
}

fn calls_are_counted_where_there_are_some(
    (device, wire): (Device, Wire),
    on: &CostRun,
    off: &CostRun,
) {
    let ([on_a, on_b], [off_a, off_b]) = (on.paths, off.paths);
    // To a TUN device, packets are written one by one; to a ring, many at a time.
    let is_each = off_b.send.calls * 2 > off_b.packets;
    assert_eq!(is_each, device == Device::Tap, "{off_b:?}");
    assert!(on_b.send.calls * 2 < on_b.packets, "{on_b:?}");
    assert!(on_a.send.calls > 0 && off_a.send.calls > 0);
    let is_mapped = wire != Wire::Udp;
    assert_eq!((on_b.receive.calls == 0, off_b.receive.calls == 0), (is_mapped, is_mapped));
    assert!(on_a.receive.bytes > on_a.receive.packets * 1000, "{on_a:?}");
}

fn checksums_cost_without_offload(wire: Wire, on: &CostRun) {
    let [a, b] = on.paths.map(|path| path.parts.get(PartName::Checksums) > 0.0);
    // A packet socket on a veth device passes partial checksums on. On other wires, checksums must be computed and
    // verified.
    let are_made = wire != Wire::Ring;
    assert_eq!([a, b], [are_made; 2], "{wire}: {on:?}");
}

/// Measures once. Returns `None` if the user may not open the sockets that the setting needs.
fn trial(device: Device, wire: Wire, offloads: Offloads) -> Option<CostRun> {
    let processor = *allowed_processors().unwrap().last().unwrap();
    let setting = CostSetting {
        wire,
        offloads,
        device,
        processors: [processor; 3],
        congestion: "cubic".into(),
        extent: Extent::Bytes(BYTES),
        compare: true,
    };
    match measure(&setting, &AtomicBool::new(false)) {
        Err(TrialError::Io(error))
            if wire == Wire::Xdp && error.kind() == io::ErrorKind::PermissionDenied =>
        {
            None
        }
        measured => {
            let measured = measured.unwrap_or_else(|error| panic!("{setting:?}: {error}"));
            assert_eq!(measured.checksum_errors, 0, "{setting:?}");
            assert!(measured.bytes >= BYTES, "{setting:?}");
            parts_add_up_to_the_thread_s_time(&measured);
            Some(measured)
        }
    }
}

const BYTES: u64 = 16 << 20;
