//! Benchmarks of coalescing in polls of 64 packets, in nanoseconds per packet. Parsing is included.

use criterion::{Criterion, criterion_group, criterion_main};
use grosso_benches::{Bench, COALESCED, Cache, Receiver, SEED, Trust, configuration, group};
use grosso_testkit::workloads::workload;

/// Workloads that are also measured cold, with packets that must be fetched from memory: one flow, a thousand flows,
/// and a tunnel.
const COLD: &[&str] = &["tcp4_1", "tcp4_1000rr", "vxlan_tcp4"];

fn hot(criterion: &mut Criterion) {
    coalesce(criterion, Cache::Hot, COALESCED);
}

fn cold(criterion: &mut Criterion) {
    coalesce(criterion, Cache::Cold, COLD);
}

fn coalesce(criterion: &mut Criterion, cache: Cache, names: &[&str]) {
    for trust in Trust::ALL {
        let mut group = group(criterion, &format!("coalesce/{}/{}", cache.name(), trust.name()));
        for name in names {
            let workload = workload(name, SEED);
            group.packets(name, cache, &mut Receiver::new(&workload, trust));
        }
    }
}

criterion_group! { name = benches; config = configuration(); targets = hot, cold }
criterion_main!(benches);
