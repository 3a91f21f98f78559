//! Tests `wire --ts line=RATE`. A link transmits one packet at a time, so the times in the output never go backwards.

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions, flag};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, START_NS, Timed, capture_of, each, packets};

/// Returns a packet of the flow with this port; one with more than 1460 bytes is a superframe.
fn frame(port: u16, sequence: u32, len: usize) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let packet = packet.tcp(|t| t.source_port(port).sequence(sequence));
    packet.payload_len(len).build_superframe().0
}

/// Returns the time in nanoseconds that a frame of this length takes on a 1 Gb/s link, including preamble, frame check
/// sequence and gap.
fn takes(len: usize) -> u64 {
    (len.max(60) + 24) as u64 * 8
}

/// Returns the start time of each output packet relative to the first input packet, and its duration.
fn output(bench: &Bench, input: &[Timed], options: &str) -> Vec<(u64, u64)> {
    bench.put("a", &capture_of(Format::Pcap, ETHERNET, input));
    bench.ok(&format!("wire -q -r a -w b --mss 1460 {options}"));
    let written = packets(&bench.get("b"));
    written.iter().map(|(time, data)| (time - START_NS, takes(data.len()))).collect()
}

#[test]
fn d16_a_superframe_waits_for_the_one_before_it() {
    let bench = Bench::new();
    let input = [
        (START_NS, frame(1, 0, 14_600)),
        (START_NS + 10_000, frame(2, 0, 14_600)),
        (START_NS + 20_000, frame(3, 0, 100)),
        (START_NS + 900_000, frame(2, 14_600, 2920)),
    ];
    let written = output(&bench, &input, "--ts line=1G");
    assert_eq!(written.len(), 10 + 10 + 1 + 2);
    // Packets that would overlap are sent back to back, and so is the plain packet after them.
    for (index, pair) in written[..21].windows(2).enumerate() {
        assert_eq!(pair[1].0, pair[0].0 + pair[0].1, "packet {}", index + 2);
    }
    assert_eq!(written[0].0, 0);
    assert_eq!(written[21].0, 900_000, "the line was idle at that time");
    assert_eq!(written[22].0, 900_000 + takes(1514));
    // Without a line rate, the capture's timestamps are kept.
    let same = output(&bench, &input, "");
    assert_eq!(same[20].0, 20_000);
}

#[test]
fn recorded_times_stay_where_the_line_was_idle() {
    let bench = Bench::new();
    // The packets are closer together than the link rate permits, and times go backwards, as in captures of several
    // queues. `wire` does not correct that.
    let times = [0, 5, 3, 1000, 900];
    let input: Vec<Timed> = times.iter().map(|time| (START_NS + time, frame(1, 0, 1460))).collect();
    let written = output(&bench, &input, "--ts line=1G");
    assert_eq!(written.iter().map(|(time, _)| *time).collect::<Vec<_>>(), times);
    // A superframe starts when the packet before it has ended.
    let input = [(START_NS, frame(1, 0, 1000)), (START_NS + 10, frame(2, 0, 2920))];
    let written = output(&bench, &input, "--ts line=1G");
    let (first, end) = (written[0].1, written[0].1 + takes(1514));
    assert_eq!(written.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [0, first, end]);
}

#[test]
fn recorded_arrivals_count_for_more_than_the_line_unless_it_is_busy() {
    let bench = Bench::new();
    let segment = |i: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(i as u16));
        packet.tcp(|t| t.sequence(i * 1000)).payload_len(1000).build()
    };
    let train: Vec<Timed> = (0..3).map(|i| (START_NS + u64::from(i) * 77, segment(i))).collect();
    bench.put("c", &capture_of(Format::Pcapng, ETHERNET, &train));
    bench.ok("coalesce -q -r c -w d");
    bench.ok("wire -q -r d -w e --ts line=1G");
    assert_eq!(packets(&bench.get("e")), train);
    // Packets that arrive while the link still transmits a superframe wait, and keep their order.
    let all = [vec![(START_NS - 10, frame(9, 0, 14_600))], train].concat();
    bench.put("c", &capture_of(Format::Pcapng, ETHERNET, &all));
    bench.ok("coalesce -q -r c -w d");
    bench.ok("wire -q -r d -w e --mss 1460 --ts line=1G");
    let written = packets(&bench.get("e"));
    assert_eq!(written.len(), 13);
    assert!(written.is_sorted_by_key(|(time, _)| *time), "{written:?}");
    assert!(written[10].0 >= START_NS - 10 + 10 * takes(1514));
}

#[test]
fn each_interface_and_direction_is_a_line_of_its_own() {
    let bench = Bench::new();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    for _ in 0..2 {
        writer.add_interface(&Interface::new(ETHERNET)).unwrap();
    }
    let lanes = [(0, flag::INBOUND), (0, flag::OUTBOUND), (1, flag::INBOUND)];
    for (number, (interface, flags)) in (0..).zip(lanes) {
        let meta = PacketMeta {
            timestamp_ns: Some(START_NS + number),
            interface,
            flags: Some(flags),
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &frame(number as u16 + 1, 0, 14_600)).unwrap();
    }
    bench.put("a", &writer.finish().unwrap());
    bench.ok("wire -q -r a -w b --mss 1460 --ts line=1G");
    let mut written = Vec::new();
    each(&bench.get("b"), |packet| written.push(packet.timestamp_ns.unwrap() - START_NS));
    for (number, lane) in (0..).zip(written.chunks(10)) {
        let expected: Vec<u64> = (0..10).map(|i| number + i * takes(1514)).collect();
        assert_eq!(lane, expected);
    }
}
