//! Tests captures with damaged options: other programs can read the output, and the report says which options are
//! missing.

use std::process::Command;

use grosso_capture::{ByteOrder, Format, options::push_option};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, START_NS, capture, each, frames, has};

/// Encodes a pcapng block in little-endian order.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, &body, &length].concat()
}

/// Returns a valid option, followed by one whose length exceeds its block.
fn damaged(sound: u16, value: &[u8]) -> Vec<u8> {
    let mut options = Vec::new();
    push_option(&mut options, ByteOrder::Little, sound, value);
    options.extend([1, 0, 200, 0, b'l', b'o', b's', b't']);
    options
}

/// Returns a capture with damaged options in every kind of block: section, interface, statistics, names, secrets, and
/// the second of three packets.
fn damaged_capture() -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let section = [words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]), damaged(4, b"maker")].concat();
    let interface = [words(&[1, 262_144]), damaged(9, &[9])].concat();
    let names = [words(&[0]), damaged(1, b"of names")].concat();
    let secrets = [words(&[0x544c_534b, 3]), b"key\0".to_vec(), damaged(1, b"of secrets")].concat();
    let statistics = [words(&[0, 1, 2]), damaged(1, b"of statistics")].concat();
    let packet = |options: &[u8]| {
        let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(100).build();
        let time = START_NS;
        let length = frame.len() as u32;
        let head = words(&[0, (time >> 32) as u32, time as u32, length, length]);
        let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
        block(6, &[head, frame, padding, options.to_vec()].concat())
    };
    let damaged_packet = packet(&damaged(1, b"of a packet"));
    [
        block(0x0a0d_0d0a, &section),
        block(1, &interface),
        block(4, &names),
        block(10, &secrets),
        packet(&[]),
        damaged_packet,
        packet(&[]),
        block(5, &statistics),
    ]
    .concat()
}

#[test]
fn d16_damaged_options_are_left_out_and_reported() {
    let bench = Bench::new();
    let input = damaged_capture();
    bench.put("a.pcapng", &input);
    let tunnel = "type ipip local 192.0.2.1 remote 192.0.2.2";
    for line in [
        "wire -r a.pcapng -w b.pcapng",
        "segment -r a.pcapng -w b.pcapng",
        "coalesce -r a.pcapng -w b.pcapng",
        "csum fix -r a.pcapng -w b.pcapng",
        "reassemble -r a.pcapng -w b.pcapng",
        "fragment --mtu 1500 -r a.pcapng -w b.pcapng",
        "decap -r a.pcapng -w b.pcapng",
        &format!("encap -r a.pcapng -w b.pcapng {tunnel}"),
    ] {
        let run = bench.ok(line);
        let note = "grosso: note: damaged options of 6 blocks were removed; the options before the \
                    damage were kept";
        assert!(run.stderr.lines().any(|said| said == note), "{line}: {}", run.stderr);
        let output = bench.get("b.pcapng");
        let lost = output.windows(4).any(|bytes| bytes == b"lost");
        assert!(!lost, "{line}: the bytes of a damaged option are there");
        for kept in ["maker", "of names", "of secrets", "of a packet", "of statistics"] {
            let is_there = output.windows(kept.len()).any(|bytes| bytes == kept.as_bytes());
            assert!(is_there, "{line}: {kept}");
        }
        each(&output, |packet| assert_eq!(packet.warning(), None, "{line}"));
        if !line.starts_with("encap") {
            assert_eq!(frames(&output), frames(&input), "{line}");
        }
        let report = bench.ok(&format!("{line} --json")).json();
        assert_eq!(report["output"]["damaged_options"], 6, "{line}");
        assert!(report["warnings"].to_string().contains("damaged options of 6"), "{report}");
        if has("tshark") {
            let read = Command::new("tshark")
                .args(["-T", "fields", "-e", "frame.number", "-r"])
                .arg(bench.path("b.pcapng"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success(), "{line}: {said}");
            assert_eq!(String::from_utf8_lossy(&read.stdout), "1\n2\n3\n", "{line}: {said}");
        }
    }
}

#[test]
fn sound_options_are_not_spoken_of() {
    let bench = Bench::new();
    let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(100).build();
    bench.put("a.pcapng", &capture(Format::Pcapng, ETHERNET, &[frame]));
    let run = bench.ok("wire -r a.pcapng -w b.pcapng");
    assert!(!run.stderr.contains("damaged"), "{}", run.stderr);
    let report = bench.ok("wire --json -r a.pcapng -w b.pcapng").json();
    assert_eq!(report["output"]["damaged_options"], 0);
}
