//! Tests the memory layout: queues that run in parallel never share a cache line, or a pair of adjacent lines that CPUs
//! fetch together.

use grosso::{Coalescer, reassemble::Reassembler};
use grosso_io::path::Direction;

/// Minimum distance in bytes between the data of two queues: two cache lines of 64 bytes, or one of 128 bytes.
const APART_BYTES: usize = 128;

#[test]
fn queues_lie_apart() {
    for (name, align, size) in [
        ("a coalescer", align_of::<Coalescer<Vec<u8>>>(), size_of::<Coalescer<Vec<u8>>>()),
        ("a reassembler", align_of::<Reassembler<Vec<u8>>>(), size_of::<Reassembler<Vec<u8>>>()),
        ("a direction", align_of::<Direction>(), size_of::<Direction>()),
    ] {
        assert!(align >= APART_BYTES && size % APART_BYTES == 0, "{name}: {align}, {size}");
    }
}
