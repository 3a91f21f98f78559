//! Trials of `lab fragments` on the running kernel, and a check of the wire traffic with tshark.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
    time::Duration,
};

use grosso_lab::{
    fragments::{
        DATAGRAM_BYTES, FragmentRun, FragmentSetting, KEY_AND_SALT, Receiver, SPI, datagram,
        measure,
    },
    netns::{Device, Family},
};
use grosso_sys::scheduling::allowed_processors;

use super::linux::skip;

pub(super) fn few_buffers_suffice_for_a_receiver_that_returns_them(device: Device) {
    let measured = trial(&patient(device, Receiver::Coalesces, Some(32)));
    assert!(measured.arrived > 0 && measured.sent > 0, "{measured:?}");
    assert_eq!((measured.no_buffer, measured.lost, measured.died), (0, 0, 0), "{measured:?}");
    assert!(measured.buffers_max <= 32, "{measured:?}");
    let held = measured.held_bytes_max;
    assert!((64_000..256_000).contains(&held), "a datagram or two: {measured:?}");
}

pub(super) fn it_is_the_same_over_ipv4_with_datagrams_of_any_size(device: Device) {
    let small = |receiver, buffers| {
        let (family, datagram_bytes) = (Family::V4, 20_000);
        trial(&FragmentSetting { family, datagram_bytes, ..patient(device, receiver, buffers) })
    };
    let joined = small(Receiver::Coalesces, Some(10));
    assert!(joined.arrived > 0, "20000 bytes: {joined:?}");
    assert_eq!((joined.no_buffer, joined.lost, joined.died), (0, 0, 0), "{joined:?}");
    assert!((20_000..80_000).contains(&joined.held_bytes_max), "{joined:?}");
    let queued = small(Receiver::Queues, Some(10));
    assert_eq!((queued.arrived, queued.buffers_max), (0, 10), "14 fragments: {queued:?}");
}

pub(super) fn fewer_buffers_than_fragments_complete_no_datagram(device: Device) {
    let measured = trial(&setting(device, Receiver::Queues, Some(32)));
    assert_eq!((measured.arrived, measured.buffers_max), (0, 32), "{measured:?}");
    assert!(measured.no_buffer > 0, "{measured:?}");
    assert!(measured.silence_seconds >= measured.seconds * 0.99, "{measured:?}");
}

pub(super) fn a_datagram_that_lost_a_fragment_dies_when_its_time_is_over(device: Device) {
    for receiver in [Receiver::Coalesces, Receiver::Queues, Receiver::Evicts] {
        let lossy = FragmentSetting { loss: 0.01, ..setting(device, receiver, Some(1024)) };
        let measured = trial(&lossy);
        assert!(measured.lost > 0 && measured.died > 0, "{receiver}: {measured:?}");
        assert!(measured.arrived > 0, "{receiver}: {measured:?}");
    }
}

pub(super) fn an_evicting_receiver_always_has_buffers(device: Device) {
    let lossy =
        |receiver| trial(&FragmentSetting { loss: 0.02, ..patient(device, receiver, Some(256)) });
    let evicting = lossy(Receiver::Evicts);
    assert_eq!(evicting.no_buffer, 0, "{evicting:?}");
    assert!(evicting.arrived > 0 && evicting.died > 0, "{evicting:?}");
    assert!(evicting.held_bytes_max <= 128 * 2048, "half of the buffers: {evicting:?}");
    let queueing = lossy(Receiver::Queues);
    assert!(queueing.no_buffer > 0 && queueing.died == 0, "{queueing:?}");
    assert!(queueing.arrived < evicting.arrived, "{queueing:?}");
}

/// Checks the wire traffic of a short run with a program that shares no code with the lab. Every fragment must fit the
/// MTU, be well-formed and belong to an ESP packet. Each ESP packet must pass authentication with the key and contain
/// the datagram that was sent.
pub(super) fn tshark_joins_and_decrypts_what_is_on_the_wire() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return skip("tshark is not installed");
    }
    let path = std::env::temp_dir().join(format!("grosso-lab-{}.pcapng", std::process::id()));
    let recording = Some(path.clone());
    let measured = trial(&FragmentSetting {
        recording,
        ..setting(Device::Veth, Receiver::Coalesces, Some(64))
    });
    let malformed = tshark(&path, &["-Y", "_ws.malformed || frame.len > 1514"], &["frame.number"]);
    assert_eq!(malformed, Vec::<Vec<String>>::new(), "malformed or too long for the wire");
    let fields =
        ["ipv6.fragment.count", "esp.icv_good", "udp.length", "udp.checksum.status", "udp.payload"];
    let whole = tshark(&path, &["-Y", "udp"], &fields);
    assert!(whole.len() as u64 >= measured.arrived && measured.arrived > 0, "{measured:?}");
    for (number, line) in whole.iter().enumerate() {
        // tshark reports every ESP packet once, with its last fragment. A checksum status of 1 means that the checksum
        // is correct.
        assert_eq!(line[..4], ["45", "1", "64008", "1"], "datagram {number}");
        let mut expected = String::new();
        for byte in datagram(number as u64).unwrap() {
            write!(expected, "{byte:02x}").unwrap();
        }
        assert!(line[4] == expected, "datagram {number} differs");
    }
    let fragments = tshark(&path, &["-Y", "ipv6.fraghdr"], &["frame.number"]);
    assert!(fragments.len() >= whole.len() * 45, "{} fragments", fragments.len());
    fs::remove_file(path).unwrap();
}

/// Returns these fields of the frames that match a filter.
fn tshark(path: &Path, filter: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    let mut key = String::new();
    for byte in KEY_AND_SALT {
        write!(key, "{byte:02x}").unwrap();
    }
    let association = format!(
        "uat:esp_sa:\"IPv6\",\"*\",\"*\",\"{SPI:#010x}\",\
         \"AES-GCM with 12 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\""
    );
    let mut command = Command::new("tshark");
    // A temporary home directory prevents tshark from reading the user's configuration.
    command.env("HOME", std::env::temp_dir());
    command.arg("-r").arg(path).args(["-T", "fields", "-E", "separator=;"]).args(filter);
    for preference in ["esp.enable_encryption_decode", "esp.enable_authentication_check"] {
        command.args(["-o", &format!("{preference}:TRUE")]);
    }
    command.args(["-o", "udp.check_checksum:TRUE", "-o", &association]);
    fields.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

fn trial(setting: &FragmentSetting) -> FragmentRun {
    let measured = measure(setting, &AtomicBool::new(false)).unwrap();
    assert_eq!(measured.wire_full, 0, "{measured:?}");
    measured
}

/// Returns a setting in which no datagram times out, even if the receiver gets no CPU time for a while.
fn patient(device: Device, receiver: Receiver, buffers: Option<usize>) -> FragmentSetting {
    FragmentSetting { timeout: Duration::from_secs(60), ..setting(device, receiver, buffers) }
}

fn setting(device: Device, receiver: Receiver, buffers: Option<usize>) -> FragmentSetting {
    let processor = *allowed_processors().unwrap().last().unwrap();
    FragmentSetting {
        receiver,
        buffers,
        loss: 0.0,
        rate_bits: 100_000_000,
        timeout: Duration::from_millis(100),
        datagram_bytes: DATAGRAM_BYTES,
        family: Family::V6,
        measured: Duration::from_millis(300),
        device,
        processors: [processor; 3],
        recording: None::<PathBuf>,
    }
}
