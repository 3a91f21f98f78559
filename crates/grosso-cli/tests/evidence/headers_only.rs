//! Tests captures that contain only headers (`tcpdump -s 96`). GRO inspects only headers, too.

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions};
use grosso_checksum::{pseudo_v4, pseudo_v6};
use grosso_testkit::Packet;
use serde_json::Value;

use super::{FAMILIES, PLAIN, bench, stream, tcp_of};
use crate::{
    common::{Bench, ETHERNET, Timed},
    vantage::{Chain, IPV6},
};

/// Number of bytes that tcpdump captures from each packet.
const SNAPLEN: usize = 96;
/// Maximum number of streams to capture until none of the checksums equals its pseudo-header sum by chance. One stream
/// in 200 has such a checksum.
const STREAMS_MAX: usize = 5;

/// Returns the capture that `tcpdump -s 96` writes for these packets.
fn headers_only(packets: &[Timed]) -> Vec<u8> {
    let mut options = WriterOptions::new(Format::Pcap);
    options.interface = Interface::new(ETHERNET);
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for (timestamp_ns, data) in packets {
        let meta = PacketMeta {
            timestamp_ns: Some(*timestamp_ns),
            original_len: data.len() as u32,
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, &data[..data.len().min(SNAPLEN)]).unwrap();
    }
    writer.finish().unwrap()
}

/// Captures a stream on the wire, once with complete packets and once with only their headers.
///
/// One valid checksum in 65,536 equals its pseudo-header sum. If such a packet is truncated, its checksum cannot be
/// distinguished from a partial one, and another stream is captured.
fn captures(chain: &Chain, family: usize) -> Bench {
    for _ in 0..STREAMS_MAX {
        let [_, wire] = stream(chain, family);
        let bench = bench(&[("whole.pcap", &wire)]);
        bench.put("cut.pcap", &headers_only(&wire));
        if !wire.iter().any(|(_, packet)| is_seeded(packet, family)) {
            return bench;
        }
    }
    panic!("{STREAMS_MAX} streams with such a checksum are no coincidence")
}

/// Returns whether the checksum of a TCP segment equals its pseudo-header sum; false for packets without TCP, for
/// example neighbor discovery.
fn is_seeded(packet: &[u8], family: usize) -> bool {
    let Some(transport) = tcp_of(packet) else { return false };
    let pseudo = if family == IPV6 {
        let (source, destination) =
            (packet[22..38].try_into().unwrap(), packet[38..54].try_into().unwrap());
        pseudo_v6(source, destination, 6, (packet.len() - transport) as u32)
    } else {
        let (source, destination) =
            (packet[26..30].try_into().unwrap(), packet[30..34].try_into().unwrap());
        pseudo_v4(source, destination, 6, (packet.len() - transport) as u32)
    };
    packet[transport + 16..transport + 18] == pseudo.fold().to_be_bytes()
}

/// Between the packets of a stream, a busy host may send a neighbor solicitation: 70 bytes of ICMPv6.
#[test]
fn a7_packets_without_tcp_have_no_tcp_checksum() {
    let solicitation = Packet::new().ethernet(|e| e).ipv6(|ip| ip.next_header(58));
    let solicitation = solicitation.payload(&[135; 16]).build();
    assert_eq!(solicitation.len(), 70);
    assert!(!is_seeded(&solicitation, IPV6));
}

/// Returns the results for each setting that do not depend on payload bytes.
fn outcomes(report: &Value) -> Vec<Vec<Value>> {
    let keys = ["profile", "hold", "packets_up", "superframes", "merged_packets", "not_merged"];
    let settings = report["settings"].as_array().unwrap();
    settings.iter().map(|setting| keys.map(|key| setting[key].clone()).to_vec()).collect()
}

#[test]
fn a7_headers_only_are_enough_for_whatif() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let bench = captures(&chain, family);
        let [whole, cut] = ["whole", "cut"]
            .map(|file| outcomes(&bench.ok(&format!("whatif --json {file}.pcap")).json()));
        assert!(whole.iter().any(|setting| setting[4].as_u64() > Some(100)), "{whole:?}");
        assert_eq!(cut, whole);
    }
}

#[test]
fn a7_headers_only_are_enough_for_coalesce() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let bench = captures(&chain, family);
        let [whole, cut] = ["whole", "cut"].map(|file| {
            // With an output, packets that the snap length truncated are not merged.
            let report = bench.ok(&format!("coalesce --json {file}.pcap")).json();
            ["superframes", "superframe_packets", "not_merged", "closed"]
                .map(|key| report[key].clone())
        });
        assert!(whole[1].as_u64() > Some(100), "{whole:?}");
        assert_eq!(cut, whole);
    }
}

#[test]
fn a7_headers_only_are_enough_for_explain() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let bench = captures(&chain, family);
        for number in [1, 5, 10, 20, 40, 80] {
            let [whole, cut] = ["whole", "cut"].map(|file| {
                let report = bench.ok(&format!("explain {file}.pcap -n {number} --json")).json();
                [report["decision"]["verdict"].clone(), report["decision"]["reason"].clone()]
            });
            assert_eq!(cut, whole, "packet {number}");
        }
    }
}

/// Without payload no data checksum can be verified, and IPv6 has no identifications: nothing distinguishes a packet on
/// the wire from a superframe of this length.
#[test]
fn a7_headers_only_leave_inspect_undecided() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    let bench = captures(&chain, IPV6);
    let run = bench.run("inspect --json cut.pcap");
    let report = run.json();
    assert!(report["checksums"]["unverifiable"].as_u64() > Some(100), "{report}");
    assert_eq!(report["verdict"]["vantage"], "undecided", "{report}");
    assert_eq!(run.code, 1);
}

/// If the identification increases by ten after a frame, the frame represents ten packets, even if its checksum cannot
/// be verified.
#[test]
fn a7_headers_only_captures_show_superframes_by_identifications() {
    for (step, superframes, vantage) in [(1, 0, "undecided"), (10, 5, "host")] {
        let frame = |number: u32| {
            let headers =
                Packet::new().ethernet(|e| e).ipv4(|ip| ip.id((1 + step * number) as u16));
            let segment = headers.tcp(|tcp| tcp.sequence(1 + 14480 * number).flags(0x10));
            (u64::from(number) * 1_000_000, segment.payload_len(14480).build())
        };
        let bench = Bench::new();
        let packets: Vec<Timed> = (0..5).map(frame).collect();
        bench.put("cut.pcap", &headers_only(&packets));
        let run = bench.run("inspect --json cut.pcap");
        let report = run.json();
        let told = (&report["superframes"]["packets"], &report["verdict"]["vantage"]);
        assert_eq!(told, (&superframes.into(), &vantage.into()), "{step}: {report}");
        assert_eq!(run.code, 1, "{report}");
    }
}
