//! Comments on packets: they say nothing about merging, and a capture that is written keeps them.

mod common;

use common::{Bench, ETHERNET, START_NS, each};
use grosso_io::capture::{
    ByteOrder, CaptureWriter, Format, Interface, PacketMeta, WriterOptions,
    options::{Options, code, push_end, push_option},
};
use grosso_testkit::Packet;

/// Ten segments of one stream; those with the numbers in `commented` have a comment.
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
fn a_comment_changes_nothing_where_nothing_is_written() {
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
    // A superframe could not give the comments back, so `coalesce` keeps these packets out.
    let report = bench.ok("coalesce --json -r commented -w gro.pcapng").json();
    assert_eq!(report["passed"]["capture-options"], 2);
    let mut comments = 0;
    each(&bench.get("gro.pcapng"), |packet| {
        comments += usize::from(packet.options().find(code::COMMENT).is_some());
    });
    assert_eq!(comments, 2);
}
