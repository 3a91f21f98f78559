//! All flows of a host may share one identification counter. A gap between two identifications of a flow therefore does
//! not prove a number of segments.

use grosso_capture::Format;
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};
use serde_json::Value;

use super::payload;
use crate::common::{Bench, ETHERNET, capture, frames};

/// Returns a packet of the connection at this sequence number, with timestamps.
fn tcp(id: u16, sequence: u32) -> Packet {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
    packet.tcp(|t| t.sequence(sequence).timestamps(1, 1))
}

/// Runs `wire`, and returns its report and the payload lengths of its packets.
fn wire(bench: &Bench, packets: &[Vec<u8>]) -> (Value, Vec<usize>) {
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, packets));
    let report = bench.ok("wire --json -r a.pcap -w out.pcap").json();
    let output = frames(&bench.get("out.pcap"));
    assert!(output.iter().all(|frame| oracle::is_right(frame, Link::Ethernet)), "{report}");
    (report, output.iter().map(|frame| payload(frame)).filter(|&len| len > 0).collect())
}

/// The identifications between a merged frame and the next, short one were used by another packet.
#[test]
fn a_gap_is_no_count_of_segments() {
    let bench = Bench::new();
    let option = [2, 4, 0x05, 0x96];
    let syn = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1));
    let syn = syn.tcp(|t| t.syn().no_ack().sequence(99).options(&option)).build();
    let merged = tcp(100, 100).payload_len(4199).build_superframe().0;
    let next = tcp(115, 100 + 4199).payload_len(284).build();
    let (report, lengths) = wire(&bench, &[syn, merged.clone(), next]);
    assert_eq!(lengths, [1418, 1418, 1363, 284], "{report}");
    assert_eq!(report["superframes"]["sizes"][0]["source"], "syn", "{report}");
    // One pair of identifications allows only a guess, which `--strict` refuses.
    let run = bench.run("wire --json --strict -r a.pcap -w out.pcap");
    assert_eq!(
        (run.code, run.json()["superframes"]["split"].as_u64()),
        (1, Some(0)),
        "{}",
        run.stdout
    );
    assert!(frames(&bench.get("out.pcap")).contains(&merged));
}

/// The sending host leaves the checksums of whole packets to its device, and other flows share its identification
/// counter.
#[test]
fn whole_packets_are_not_cut_by_their_identifications() {
    let lengths = [888_usize, 403, 888, 661, 888, 403];
    let (mut packets, mut sequence, mut id) = (Vec::new(), 100, 7);
    for len in lengths.into_iter().cycle().take(24) {
        packets.push(tcp(id, sequence).payload_len(len).build_partial().0);
        sequence += len as u32;
        id += 3;
    }
    let (report, found) = wire(&Bench::new(), &packets);
    assert_eq!(report["superframes"]["split"], 0, "{report}");
    let expected: Vec<_> = lengths.into_iter().cycle().take(24).collect();
    assert_eq!(found, expected);
}

/// Datagrams from the same host use the identifications between a connection's superframes, so the gaps prove nothing.
#[test]
fn steps_that_packets_of_other_flows_fill_count_nothing() {
    let datagram = |id: u16| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
        packet.udp(|u| u).payload_len(100).build()
    };
    let (mut packets, mut sequence, mut id) = (Vec::new(), 100, 50);
    for _ in 0..12 {
        packets.push(tcp(id, sequence).payload_len(2 * 1448).build_superframe().0);
        packets.extend((2..8).map(|step| datagram(id + step)));
        sequence += 2 * 1448;
        id += 8;
    }
    let (report, found) = wire(&Bench::new(), &packets);
    let sizes = report["superframes"]["sizes"].as_array().unwrap();
    assert_eq!((sizes.len(), &sizes[0]["bytes"]), (1, &1448.into()), "{report}");
    assert_ne!(sizes[0]["source"], "ip_id", "{report}");
    assert_eq!(found.iter().filter(|&&len| len == 1448).count(), 24, "{found:?}");
}
