//! Benchmarks of segmenting superframes, in nanoseconds per packet: writing headers, copying payload, and computing
//! checksums.

use criterion::{Criterion, criterion_group, criterion_main};
use grosso_benches::{Bench, Cache, SEED, SEGMENTED, Sender, configuration, group};
use grosso_testkit::workloads::workload;

fn segment(criterion: &mut Criterion) {
    for cache in [Cache::Hot, Cache::Cold] {
        let mut group = group(criterion, &format!("segment/{}", cache.name()));
        for name in SEGMENTED {
            let workload = workload(name, SEED);
            group.packets(name, cache, &mut Sender::new(&workload));
        }
    }
}

criterion_group! { name = benches; config = configuration(); targets = segment }
criterion_main!(benches);
