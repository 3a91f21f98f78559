//! Benchmarks of the checksum function as the engine calls it, in bytes per second. A separate bench in
//! `grosso-checksum` compares the backends.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use grosso_benches::{configuration, group};
use grosso_checksum::{Sum, copy};

/// Lengths to measure in bytes: an IPv4 header, a small packet, the payload of a full Ethernet packet, the packet
/// itself, a jumbo packet, and a superframe.
const LENGTHS: [usize; 6] = [20, 64, 1448, 1500, 9000, 65536];

fn sum(criterion: &mut Criterion) {
    let mut group = group(criterion, "checksum/sum");
    for len in LENGTHS {
        let bytes = vec![0x5a; len];
        group.throughput(Throughput::BytesDecimal(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |bencher| {
            bencher.iter(|| Sum::of(black_box(&bytes)).fold());
        });
    }
}

fn copy_and_sum(criterion: &mut Criterion) {
    let mut group = group(criterion, "checksum/copy");
    for len in LENGTHS {
        let (source, mut destination) = (vec![0x5a; len], vec![0; len]);
        group.throughput(Throughput::BytesDecimal(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |bencher| {
            bencher.iter(|| copy(black_box(&source), black_box(&mut destination)).fold());
        });
    }
}

criterion_group! { name = benches; config = configuration(); targets = sum, copy_and_sum }
criterion_main!(benches);
