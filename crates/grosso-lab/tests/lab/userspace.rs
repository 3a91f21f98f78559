//! Trials with a sender in userspace that sends to the running kernel's TCP.

use std::{sync::atomic::AtomicBool, thread, time::Duration};

use grosso::Profile;
use grosso_io::impair::Impairment;
use grosso_lab::{
    model::Counting,
    netns::{Device, Layout},
    traffic::Traffic,
    trial::{Carrier, Extent, Measured, Setting, measure},
};

use super::linux::through;

const BYTES: u64 = 3 << 19;
const RUNS: usize = 3;
const COUNTINGS: [Counting; 3] =
    [Counting::Bytes { limit: u32::MAX }, Counting::Bytes { limit: 2 }, Counting::Packets];

/// Returns a transfer to a host whose NIC is the data path or, with [`Traffic::TcpMaerts`], from such a host.
fn setting(
    device: Device,
    traffic: Traffic,
    profile: Option<Profile>,
    counting: Counting,
) -> Setting {
    let profile = profile.map(|mut profile| {
        profile.limits.hold_ns = 100_000;
        Box::new(profile)
    });
    let expand = false;
    let wire: Impairment = "delay 10ms".parse().unwrap();
    Setting {
        traffic,
        layout: Layout {
            tcp_buffer_bytes: 4 << 20,
            read_bytes_min: if traffic == Traffic::TcpMaerts { 16 << 10 } else { 0 },
            ..Layout::default()
        },
        impairment: Some(wire.clone()),
        back: Some(wire),
        extent: Extent::Bytes(BYTES),
        ..through(device, Carrier::Userspace { profile, expand, counting })
    }
}

fn carried(setting: &Setting) -> Measured {
    let Extent::Bytes(expected) = setting.extent else { panic!("a transfer ends by its size") };
    let measured = measure(setting, &AtomicBool::new(false)).unwrap();
    assert!(measured.bytes >= expected, "{measured:?}");
    assert_eq!(measured.checksum_errors, 0);
    measured
}

/// Runs transfers concurrently, each between separate hosts, because they spend most of the time waiting for packets.
fn carried_at_once<const N: usize>(settings: &[Setting; N]) -> [Measured; N] {
    thread::scope(|scope| {
        let transfers = settings.each_ref().map(|setting| scope.spawn(move || carried(setting)));
        transfers.map(|transfer| transfer.join().unwrap())
    })
}

/// Returns how many round trips a transfer takes for each way of counting acknowledgments. Each result is the minimum
/// of several runs, because other load on the host delays the reader, whose kernel then acknowledges less often.
fn round_trips(device: Device, traffic: Traffic, profile: Option<Profile>) -> [f64; 3] {
    let settings = COUNTINGS.map(|counting| setting(device, traffic, profile.clone(), counting));
    let mut fewest = [u64::MAX; 3];
    for _ in 0..RUNS {
        for (fewest, run) in fewest.iter_mut().zip(carried_at_once(&settings)) {
            *fewest = (*fewest).min(run.round_trips.unwrap());
        }
    }
    fewest.map(|fewest| fewest as f64)
}

pub(super) fn merged_acknowledgments_slow_senders_that_count_packets(device: Device) {
    let off = round_trips(device, Traffic::TcpMaerts, None);
    let refused = round_trips(device, Traffic::TcpMaerts, Some(Profile::linux()));
    let merged = round_trips(device, Traffic::TcpMaerts, Some(Profile::freebsd()));
    let figures = format!("{off:?} {refused:?} {merged:?}");
    assert!(merged[1] > 1.6 * off[1] && merged[2] > 1.6 * off[2], "{figures}");
    assert!(1.5 * merged[0] < merged[1], "byte counting without a limit is immune: {figures}");
    let cured = |i: usize| 1.5 * refused[i] < merged[i];
    assert!(cured(1) && cured(2), "{figures}");
}

pub(super) fn trains_at_the_receiver_slow_senders_that_count_acknowledgments(device: Device) {
    let off = round_trips(device, Traffic::TcpStream, None);
    let joined = round_trips(device, Traffic::TcpStream, Some(Profile::linux()));
    let figures = format!("{off:?} {joined:?}");
    assert!(joined[1] > 1.3 * off[1] && joined[2] > 1.3 * off[2], "{figures}");
    assert!(joined[0] < joined[1] && joined[0] < joined[2], "{figures}");
}

pub(super) fn every_byte_arrives_over_a_wire_that_loses(device: Device) {
    let settings = [Traffic::TcpStream, Traffic::TcpMaerts].map(|traffic| {
        let usual = setting(device, traffic, Some(Profile::linux()), COUNTINGS[0]);
        let lossy = |seed| {
            let mut wire = Impairment::default();
            (wire.delay, wire.loss, wire.seed) = (Duration::from_micros(200), 0.01, seed);
            Some(wire)
        };
        // Each timeout lasts a second.
        let extent = Extent::Bytes(BYTES / 2);
        Setting { impairment: lossy(1), back: lossy(2), extent, ..usual }
    });
    for measured in carried_at_once(&settings) {
        assert!(measured.retransmits > 0, "{measured:?}");
    }
}
