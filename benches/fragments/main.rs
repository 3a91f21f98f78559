//! Nanoseconds a fragment of joining, parsing included, and of making fragments; beside them the reassembly of
//! others on the same frames.

mod peers;

use criterion::{Criterion, criterion_group, criterion_main};
use grosso_benches::{Bench, CUT, Cache, Cutter, JOINED, Join, Joiner, SEED, configuration, group};
use grosso_testkit::workloads::workload;

use crate::peers::{Etherparse, Smoltcp};

fn join(criterion: &mut Criterion) {
    for cache in [Cache::Hot, Cache::Cold] {
        for name in JOINED {
            let workload = workload(name, SEED);
            for join in Join::ALL {
                let group_name = format!("fragments/join/{}/{}", cache.name(), join.name());
                let mut joiner = Joiner::new(&workload, join);
                group(criterion, &group_name).packets(name, cache, &mut joiner);
            }
            let group_name = |peer| format!("fragments/join/{}/{peer}", cache.name());
            let mut etherparse = Etherparse::new(&workload);
            group(criterion, &group_name("etherparse")).packets(name, cache, &mut etherparse);
            // smoltcp joins no IPv6 fragments.
            if !name.starts_with("frag6") {
                let mut smoltcp = Smoltcp::new(&workload);
                group(criterion, &group_name("smoltcp")).packets(name, cache, &mut smoltcp);
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
