//! Tests that several compressed captures with long windows are read as one capture.

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture};

/// Returns a Zstandard frame with the longest window, 128 MiB, around these bytes.
fn with_longest_window(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88];
    let mut blocks = bytes.chunks(100_000).peekable();
    while let Some(block) = blocks.next() {
        let is_last = u32::from(blocks.peek().is_none());
        frame.extend_from_slice(&((block.len() as u32) << 3 | is_last).to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

#[test]
fn captures_whose_windows_take_too_much_memory_together_are_refused_with_the_reason() {
    let bench = Bench::new();
    // The datagram exceeds the readahead of a capture.
    let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(60_000);
    let packets = vec![datagram.build(); 60];
    let compressed = with_longest_window(&capture(Format::Pcap, ETHERNET, &packets));
    let names: Vec<String> = (0..12).map(|number| format!("{number}.pcap.zst")).collect();
    names.iter().for_each(|name| bench.put(name, &compressed));
    bench.ok(&format!("inspect {}", names[..8].join(" ")));
    let refused = bench.run(&format!("inspect {}", names.join(" ")));
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    for text in ["8.pcap.zst: needs a decompression window of 134217728 bytes", "zstd -d FILE"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
}
