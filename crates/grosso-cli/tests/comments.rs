//! Tests that packet comments contain no merge metadata, and that written captures keep the comments.

use grosso_capture::{
    ByteOrder, CaptureWriter, Format, Interface, PacketMeta, WriterOptions,
    options::{Options, code, push_end, push_option},
};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, START_NS, each};

/// Returns ten segments of one stream; segments whose numbers are in `commented` have a comment.
fn stream(commented: &[u32]) -> Vec<u8> {
    let order = ByteOrder::NATIVE;
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    writer.add_interface(&Interface::new(ETHERNET)).unwrap();
    for index in 0..10_u32 {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(index as u16));
        let packet = packet.tcp(|t| t.sequence(index * 100)).payload_len(100).build();
        let mut options = Vec::new();
        if commented.contains(&(index + 1)) {
            push_option(&mut options, order, code::COMMENT, b"look here");
            push_end(&mut options, order);
        }
        let timestamp_ns = Some(START_NS + u64::from(index) * 1000);
        let meta = PacketMeta { timestamp_ns, ..PacketMeta::default() };
        writer.write_packet_with(&meta, &packet, &Options::new(&options, order)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn d16_a_comment_changes_nothing_where_nothing_is_written() {
    let bench = Bench::new();
    bench.put("plain", &stream(&[]));
    bench.put("commented", &stream(&[4, 7]));
    let settings =
        |file: &str| bench.ok(&format!("whatif --json {file}")).json()["settings"].clone();
    assert_eq!(settings("commented"), settings("plain"));
    for number in [4, 5] {
        let decision = |file: &str| {
            bench.ok(&format!("explain --json {file} -n {number}")).json()["decision"].clone()
        };
        assert_eq!(decision("commented"), decision("plain"));
        assert_eq!(decision("commented")["verdict"], "joined");
    }
    // A superframe could not preserve the comments, so `coalesce` does not merge these packets.
    let report = bench.ok("coalesce --json -r commented -w gro.pcapng").json();
    assert_eq!(report["passed"]["capture_options"], 2);
    let kept = comments(&bench.get("gro.pcapng"));
    assert_eq!(kept.iter().filter(|&&is_there| is_there).count(), 2);
}

/// Returns for each packet of a capture whether it has a comment, in order.
fn comments(bytes: &[u8]) -> Vec<bool> {
    let mut found = Vec::new();
    each(bytes, |packet| found.push(packet.options().find(code::COMMENT).is_some()));
    found
}

#[test]
fn a_comment_on_a_superframe_stays_on_its_first_packet() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(2920);
    let mut options = Vec::new();
    push_option(&mut options, ByteOrder::NATIVE, code::COMMENT, b"look here");
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let meta = PacketMeta { timestamp_ns: Some(START_NS), ..PacketMeta::default() };
    let options = Options::new(&options, ByteOrder::NATIVE);
    writer.write_packet_with(&meta, &packet.build_superframe().0, &options).unwrap();
    writer.write_packet(&meta, &packet.build_superframe().0).unwrap();
    bench.put("a", &writer.finish().unwrap());
    bench.ok("wire -q -r a -w b --mss 1460");
    assert_eq!(comments(&bench.get("b")), [true, false, false, false]);
}
