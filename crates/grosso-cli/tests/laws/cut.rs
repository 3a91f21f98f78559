//! Law: `segment` restores the input of `coalesce` from its output, regardless of where the snap length truncated
//! packets.

use grosso_capture::Format;
use proptest::prelude::*;

use super::{
    captures::{Captured, Recipe, capture, read, recipe},
    cases, flows,
};
use crate::common::Bench;

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn packets_with_random_cuts_come_back(recipe in recipe()) {
        come_back(&recipe);
    }
}

/// Truncates half of the packets in some flows at random, and compares the input with the result. Both are sorted,
/// because packets of different flows may overtake each other.
fn come_back(recipe: &Recipe) {
    let mut random = recipe.random();
    let frames = recipe.frames(flows::on_wire).into_iter();
    let packets: Vec<Captured> = frames
        .map(|frame| {
            let mut packet = Captured::whole(recipe.link_type(), frame);
            if random.below(2) == 0 {
                packet.data.truncate(random.within(1, packet.original_len));
            }
            packet
        })
        .collect();
    let bench = Bench::new();
    bench.put("a", &capture(recipe.format(), &packets));
    bench.ok("coalesce -r a -w b");
    bench.ok("segment -r b -w c");
    assert!(sorted(&read(&bench.get("c"))) == sorted(&packets));
}

fn sorted(packets: &[Captured]) -> Vec<(Vec<u8>, usize)> {
    let mut sorted: Vec<_> =
        packets.iter().map(|packet| (packet.data.clone(), packet.original_len)).collect();
    sorted.sort_unstable();
    sorted
}

/// Tests a record of classic pcap with 60 captured bytes of a packet of 40 bytes.
#[test]
fn captured_length_beyond_the_packet_length_stays_in_pcapng() {
    let whole = Captured::whole(1, vec![0x42; 60]);
    let mut bytes = capture(Format::Pcap, &[whole]);
    let original_len = bytes.len() - 60 - 4..bytes.len() - 60;
    assert_eq!(bytes[original_len.clone()], 60_u32.to_le_bytes());
    bytes[original_len].copy_from_slice(&40_u32.to_le_bytes());
    let bench = Bench::new();
    bench.put("a", &bytes);
    bench.ok("coalesce -r a -w b");
    bench.ok("segment -r b -w c -F pcap");
    for name in ["b", "c"] {
        assert_eq!(sorted(&read(&bench.get(name))), [(vec![0x42; 60], 40)], "{name}");
    }
}
