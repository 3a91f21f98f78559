//! Reports about superframes, fragments, bad checksums and unusual file names.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, frames};

/// Returns a pcapng section with one Ethernet interface whose frames end with a check sequence of four bytes.
fn with_fcs(frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes(), &len, body, &len].concat()
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = [1, 0, 0, 0, 0, 0, 4, 0, 2, 0, 3, 0, b't', b'a', b'p', 0];
    let interface = [&interface[..], &[13, 0, 1, 0, 4, 0, 0, 0], &[0, 0, 0, 0]].concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    for (index, frame) in frames.iter().enumerate() {
        let frame = [&frame[..], &[0xde, 0xad, 0xbe, 0xef]].concat();
        let len = (frame.len() as u32).to_le_bytes();
        let time = [0, 0, 0, 0, index as u8, 0, 0, 0];
        let padding = &[0; 3][..frame.len().wrapping_neg() & 3];
        let body = [&[0; 4][..], &time, &len, &len, &frame, padding].concat();
        file.extend(block(6, &body));
    }
    file
}

#[test]
fn a_known_frame_check_sequence_is_no_part_of_the_frame() {
    let stream = (0..8).map(|index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 1000)).payload_len(1000).build()
    });
    let stream: Vec<Vec<u8>> = stream.collect();
    let bench = Bench::new();
    let mut classic = capture(
        Format::Pcap,
        ETHERNET,
        &stream.iter().map(|frame| [&frame[..], &[1, 2, 3, 4]].concat()).collect::<Vec<_>>(),
    );
    classic[20..24].copy_from_slice(&0x2400_0001_u32.to_le_bytes());
    for (name, bytes) in [("in.pcapng", with_fcs(&stream)), ("in.pcap", classic)] {
        bench.put(name, &bytes);
        let report = bench.ok(&format!("coalesce --json -r {name} -w merged.pcapng")).json();
        assert!(report["superframes"].as_u64().unwrap() > 0, "{name}: {report}");
        bench.ok("segment -r merged.pcapng -w back.pcapng");
        assert!(frames(&bench.get("back.pcapng")) == stream, "{name}");
        // Copies do not claim a frame check sequence that they do not have.
        for copy in ["copy.pcap", "copy.pcapng"] {
            bench.ok(&format!("wire -r {name} -w {copy}"));
            let bytes = bench.get(copy);
            let reader = grosso_capture::CaptureReader::new(&bytes[..]).unwrap();
            assert!(reader.interfaces().iter().all(|i| i.fcs_bytes.unwrap_or(0) == 0), "{copy}");
            assert!(frames(&bytes) == stream, "{name} to {copy}");
        }
    }
}

/// Returns a TCP superframe as the sender's kernel shows it.
fn superframe() -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).tcp(|t| t.timestamps(1, 1));
    packet.payload_len(4 * 1448).build_superframe().0
}

#[test]
fn explain_calls_a_superframe_one() {
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[superframe(), superframe()]));
    let text = bench.ok("explain in.pcap 1").stdout;
    assert!(text.contains("already a superframe"), "{text}");
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
    let warnings = bench.ok("inspect --json ring").json()["warnings"].to_string();
    assert!(warnings.contains("b.pcap.xz"), "{warnings}");
    // An explicitly named file is refused.
    assert_eq!(bench.run("inspect ring/b.pcap.xz").code, 3);
}
