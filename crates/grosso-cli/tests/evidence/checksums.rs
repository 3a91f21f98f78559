//! Tests decisions about complete checksums: damage is not hidden, and a valid checksum counts as complete whatever its
//! value.

use std::slice::from_ref;

use grosso::meta::{Gso, Meta};
use grosso_capture::{
    CaptureWriter, Format, Interface, Offload, PacketMeta, SegmentTransport, WriterOptions,
};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, frames};

fn tcp(sequence: u32) -> Packet {
    // The identification increases by one for every 1000 bytes.
    let id = (sequence / 1000) as u16;
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id)).tcp(|t| t.sequence(sequence))
}

/// The offsets of the checksums in an Ethernet frame.
const IPV4_CHECKSUM: usize = 14 + 10;
const TCP_CHECKSUM: usize = 14 + 20 + 16;

/// Returns a superframe with a complete but wrong checksum at this offset.
fn damaged(at: usize) -> Vec<u8> {
    let mut frame = tcp(1).payload_len(14_480).build_superframe().0;
    frame[at] ^= 0x5a;
    frame
}

#[test]
fn c12_damaged_superframes_are_left_and_named() {
    for (at, name) in [(TCP_CHECKSUM, "checksum"), (IPV4_CHECKSUM, "ipv4_checksum")] {
        let frame = damaged(at);
        let bench = Bench::new();
        bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, from_ref(&frame)));
        let mut options = WriterOptions::new(Format::Pcapng);
        options.interface = Interface::new(ETHERNET);
        let mut writer = CaptureWriter::new(Vec::new(), options);
        let gso = Gso::every(1448).map(|gso| Gso { segments: 10, ..gso });
        let told = Offload::new(&Meta { gso, ..Meta::default() });
        let offload = Offload { transport: SegmentTransport::Tcp, ..told };
        let meta = PacketMeta { offload: Some(offload), ..PacketMeta::default() };
        writer.write_packet(&meta, &frame).unwrap();
        bench.put("told.pcapng", &writer.finish().unwrap());
        for line in [
            "wire --json -r host.pcap -w out --mss 1448",
            "wire --json -r told.pcapng -w out",
            "segment --json -r told.pcapng -w out",
        ] {
            let run = bench.ok(line);
            assert_eq!(run.json()["left"][name], 1, "{line}: {}", run.stdout);
            assert_eq!(frames(&bench.get("out")), from_ref(&frame), "{line}");
            assert_eq!(bench.run(&format!("{line} --strict")).code, 1, "{line}");
        }
    }
}

/// Returns a packet whose complete checksum equals its pseudo-header sum.
fn ambiguous(sequence: u32) -> Vec<u8> {
    let field = |frame: &[u8]| [frame[TCP_CHECKSUM], frame[TCP_CHECKSUM + 1]];
    let of = |word: u16| {
        let payload = [&word.to_be_bytes()[..], &[7; 998]].concat();
        tcp(sequence).payload(&payload)
    };
    let seed = field(&of(0).build_superframe().0);
    let found = (0..=u16::MAX).map(|word| of(word).build()).find(|frame| field(frame) == seed);
    found.expect("one of 65,536 payloads does it")
}

#[test]
fn c13_what_verifies_is_complete_whatever_it_equals() {
    let plain = |sequence| tcp(sequence).payload_len(1000).build();
    let packets = [plain(1), ambiguous(1001), plain(2001)];
    let bench = Bench::new();
    bench.put("wire.pcap", &capture(Format::Pcap, ETHERNET, &packets));
    assert_eq!(bench.ok("inspect --json wire.pcap").json()["checksums"]["partial"], 0);
    let report = bench.ok("coalesce --json -r wire.pcap -w gro.pcapng").json();
    assert_eq!(
        (&report["superframes"], &report["superframe_packets"]),
        (&1.into(), &3.into()),
        "{report}"
    );
    bench.ok("segment -q -r gro.pcapng -w back.pcap");
    assert_eq!(frames(&bench.get("back.pcap")), packets);
    bench.ok("wire -q --strict -r wire.pcap -w same.pcap");
    assert_eq!(bench.get("same.pcap"), bench.get("wire.pcap"));
}

#[test]
fn overrides_that_cannot_apply_are_refused() {
    let bench = Bench::new();
    let frame = tcp(1).payload_len(14_480).build_superframe().0;
    bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, from_ref(&frame)));
    let run = bench.run("wire -r host.pcap -w out --mss 1460 --mtu 1300");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("--mss 1460 does not fit into --mtu 1300"), "{}", run.stderr);
    // With options, these headers are longer than 68 bytes.
    let long = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let long = long.tcp(|t| t.timestamps(1, 1)).payload_len(9000).build_superframe().0;
    bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, from_ref(&long)));
    let report = bench.ok("wire --json -r host.pcap -w out --mtu 68").json();
    assert_eq!(report["left"]["mtu_below_headers"], 1, "{report}");
    assert_eq!(frames(&bench.get("out")), [long]);
}

#[test]
fn an_override_of_a_complete_checksum_applies_and_is_reported() {
    let bench = Bench::new();
    let packet = tcp(1).payload_len(1000).build();
    bench.put("wire.pcap", &capture(Format::Pcap, ETHERNET, from_ref(&packet)));
    let run = bench.ok("wire --json -r wire.pcap -w out --mss 500");
    assert_eq!(run.json()["contradictions"], 1, "{}", run.stdout);
    assert_eq!(frames(&bench.get("out")).len(), 2);
    for command in ["wire", "segment"] {
        let run = bench.run(&format!("{command} --strict -r wire.pcap -w out --mss 500"));
        assert_eq!(run.code, 1, "{command}: {}", run.stderr);
        let said = "the command line contradicts a complete checksum";
        assert!(command == "wire" || run.stderr.contains(said), "{}", run.stderr);
    }
    let shown =
        bench.ok("explain --json wire.pcap 1 --mss 500").json()["packet"]["judgment"].clone();
    assert_eq!((&shown["by"], &shown["against"]), (&"given".into(), &"checksum".into()), "{shown}");
}

/// `inspect` reports "the wire" if and only if `wire` would change nothing. Wrong checksums make no difference, because
/// `wire` does not correct them.
#[test]
fn the_wire_is_what_wire_does_not_change() {
    let good = tcp(1).payload_len(100).build();
    let damaged = |at: usize| {
        let mut frame = tcp(1).payload_len(100).build();
        frame[at] ^= 0x5a;
        frame
    };
    let mut open = damaged(TCP_CHECKSUM);
    open[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    let mut header_open = good.clone();
    header_open[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].fill(0);
    for (case, frame, left) in [
        ("right", good, 0),
        ("a wrong checksum", damaged(TCP_CHECKSUM), 1),
        ("a header left to the device", header_open, 0),
        ("a header left to the device, and a wrong checksum", open, 1),
        ("a partial checksum", tcp(1).payload_len(100).build_partial().0, 0),
    ] {
        let bench = Bench::new();
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, from_ref(&frame)));
        let run = bench.run("inspect --json a.pcap");
        let report = bench.ok("wire --json -r a.pcap -w b.pcap").json();
        let is_same = bench.get("a.pcap") == bench.get("b.pcap");
        let verdict = run.json()["verdict"].clone();
        assert_eq!(verdict["wire_faithful"], is_same, "{case}: {verdict}");
        assert_eq!(verdict["vantage"] == "wire", is_same, "{case}: {verdict}");
        assert_eq!(report["left"]["checksum"].as_u64().unwrap_or(0), left, "{case}: {report}");
        let strict = bench.run("wire --strict --json -r a.pcap -w b.pcap").code;
        assert_eq!(strict, left as i32, "{case}");
    }
}
