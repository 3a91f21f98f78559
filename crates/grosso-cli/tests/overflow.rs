//! Tests that the report counts the packets of flows beyond the maximum number of tracked flows.

use grosso_capture::Format;

use crate::common::{Bench, ETHERNET, capture};

/// Returns a packet of flow `flow`, with these flags and one byte of data.
fn packet(flow: u32, flags: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 41, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([(flow >> 16) as u8 + 1, 1, (flow >> 8) as u8, flow as u8]);
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0, 7]);
    frame
}

/// A packet is counted once, however often it is examined, and only packets that are split count as split.
#[test]
fn d16_no_more_packets_of_unknown_flows_than_there_are_packets() {
    let bench = Bench::new();
    let mut notes = 0;
    for flags in [0x02, 0x10] {
        let frames: Vec<_> = (0..140_000).map(|flow| packet(flow, flags)).collect();
        bench.put("a", &capture(Format::Pcap, ETHERNET, &frames));
        let run = bench.ok("wire -r a -w b");
        let Some(note) = run.stderr.lines().find(|line| line.contains("flows:")) else { continue };
        // The note has the form "the flow table is full with N flows: M packets ...".
        let numbers: Vec<u64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [flows, packets] = numbers[..] else { panic!("{note}") };
        assert!(packets + flows <= frames.len() as u64, "{note}");
        assert!(!note.contains("split"), "nothing was split: {note}");
        notes += 1;
    }
    assert!(notes > 0, "no note on the flow table");
}
