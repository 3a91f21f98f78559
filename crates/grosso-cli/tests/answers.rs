//! Answers of reports about superframes, fragments, bad checksums and odd file names.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture};

/// A superframe of TCP as the kernel of its sender shows it.
fn superframe() -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).tcp(|t| t.timestamps(1, 1));
    packet.payload_len(4 * 1448).build_superframe().0
}

#[test]
fn explain_calls_a_superframe_one() {
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[superframe(), superframe()]));
    let text = bench.ok("explain in.pcap 1").stdout;
    assert!(text.contains("superframe already"), "{text}");
    assert!(!text.contains("untrusted"), "{text}");
}

#[test]
fn explain_shows_the_addresses_of_a_fragment() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| {
        ip.source([192, 0, 2, 1]).destination([192, 0, 2, 2]).protocol(17).fragment_offset(4)
    });
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[packet.payload(&[1; 64]).build()]));
    let report = bench.ok("explain --json in.pcap 1").json();
    assert_eq!(report["packet"]["endpoints"], "192.0.2.1 > 192.0.2.2", "{report}");
}

#[test]
fn inspect_does_not_guess_the_number_of_udp_packets_of_unknown_size() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(20_000);
    let frames = vec![packet.build_superframe().0; 3];
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &frames));
    let text = bench.run("inspect in.pcap").stdout;
    assert!(text.contains("number on the wire unknown"), "{text}");
    let run = bench.run("wire -r in.pcap -w out.pcap");
    assert!(run.stderr.contains("--uso-size BYTES"), "{}", run.stderr);
}

#[test]
fn inspect_does_not_deny_damage_beside_partial_checksums() {
    let bench = Bench::new();
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    let partial = plain.clone().build_partial().0;
    let mut bad = plain.build();
    *bad.last_mut().unwrap() ^= 1;
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[partial, bad]));
    let text = bench.run("inspect in.pcap").stdout;
    assert!(text.contains("some checksums are bad"), "{text}");
    assert!(!text.contains("No corruption"), "{text}");
}

#[test]
fn file_names_need_not_be_utf_8() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[packet.build()]));
    let name = OsStr::from_bytes(b"caf\xe9.pcap");
    std::fs::rename(bench.path("in.pcap"), bench.path("").join(name)).unwrap();
    let run = bench.command("inspect").arg(name).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_file_of_unsupported_compression_does_not_refuse_its_directory() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    std::fs::create_dir(bench.path("ring")).unwrap();
    bench.put("ring/a.pcap", &capture(Format::Pcap, ETHERNET, &[packet.build()]));
    bench.put("ring/b.pcap.xz", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46");
    let run = bench.ok("inspect ring");
    assert!(run.stderr.contains("b.pcap.xz"), "{}", run.stderr);
    assert!(run.stderr.contains("1 file skipped"), "{}", run.stderr);
    // A file that is named is refused.
    assert_eq!(bench.run("inspect ring/b.pcap.xz").code, 3);
}
