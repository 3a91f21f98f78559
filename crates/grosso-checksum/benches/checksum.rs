//! Measures the throughput of each backend, and of the public functions, which select a backend.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use grosso_checksum::{Backend, Sum, copy, copy_with, of_with};

/// Lengths in bytes: a header, the longest header, small packets, Ethernet payloads and packets, a jumbo packet, and a
/// superframe.
const LENGTHS: [usize; 8] = [20, 64, 128, 576, 1448, 1500, 9000, 65536];

fn sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sum");
    for len in LENGTHS {
        group.throughput(Throughput::BytesDecimal(len as u64));
        let bytes = vec![0x5a; len];
        group.bench_function(BenchmarkId::new("public", len), |bencher| {
            bencher.iter(|| Sum::of(black_box(&bytes)).fold());
        });
        for backend in Backend::available() {
            group.bench_function(BenchmarkId::new(backend.to_string(), len), |bencher| {
                bencher.iter(|| of_with(backend, black_box(&bytes)).fold());
            });
        }
    }
    group.finish();
}

fn copy_and_sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("copy");
    for len in LENGTHS {
        group.throughput(Throughput::BytesDecimal(len as u64));
        let source = vec![0x5a; len];
        let mut destination = vec![0; len];
        group.bench_function(BenchmarkId::new("public", len), |bencher| {
            bencher.iter(|| copy(black_box(&source), black_box(&mut destination)).fold());
        });
        for backend in Backend::available() {
            group.bench_function(BenchmarkId::new(backend.to_string(), len), |bencher| {
                bencher.iter(|| {
                    copy_with(backend, black_box(&source), black_box(&mut destination)).fold()
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .without_plots();
    targets = sum, copy_and_sum
}
criterion_main!(benches);
