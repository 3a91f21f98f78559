//! Benchmarks of reassembly and fragmentation, in nanoseconds per fragment. Reassembly includes parsing.

use criterion::{Criterion, criterion_group, criterion_main};
use grosso_benches::{Bench, CUT, Cache, Cutter, JOINED, Join, Joiner, SEED, configuration, group};
use grosso_testkit::workloads::workload;

fn join(criterion: &mut Criterion) {
    for cache in [Cache::Hot, Cache::Cold] {
        for name in JOINED {
            let workload = workload(name, SEED);
            for join in Join::ALL {
                let group_name = format!("fragments/join/{}/{}", cache.name(), join.name());
                let mut joiner = Joiner::new(&workload, join);
                group(criterion, &group_name).packets(name, cache, &mut joiner);
            }
        }
    }
}

fn cut(criterion: &mut Criterion) {
    for cache in [Cache::Hot, Cache::Cold] {
        let mut group = group(criterion, &format!("fragments/cut/{}", cache.name()));
        for name in CUT {
            group.packets(name, cache, &mut Cutter::new(&workload(name, SEED)));
        }
    }
}

criterion_group! { name = benches; config = configuration(); targets = join, cut }
criterion_main!(benches);
