//! Benchmarks of coalescing on several CPUs at once, with one queue per CPU, and of queue selection. Figures are in
//! nanoseconds per packet.
//!
//! A thousand connections are distributed by flow hash, and each thread coalesces the packets of its own queue. Two
//! CPUs should take half the time of one, because they share no data.

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use grosso::{Meta, steering::Steering};
use grosso_benches::{Cache, Receiver, SEED, Step, Trust, configuration, group};
use grosso_testkit::workloads::{Workload, workload};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

const SPREAD: &str = "tcp4_1000rr";

fn coalesce(criterion: &mut Criterion) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for trust in Trust::ALL {
        let mut group = group(criterion, &format!("queues/{}", trust.name()));
        let counts = std::iter::successors(Some(1), |count| Some(count * 2));
        for queues in counts.take_while(|&queues| queues <= processors) {
            let shares = spread(queues);
            group.bench_function(format!("{queues}"), |bencher| {
                bencher.iter_custom(|packets| together(&shares, trust, packets));
            });
        }
    }
}

fn steer(criterion: &mut Criterion) {
    let Workload { frames, .. } = workload(SPREAD, SEED);
    let steering = Steering::new(4);
    let mut stack = Stack::new(0);
    let mut group = group(criterion, "queues/steer");
    for (name, meta) in [
        ("its own hash", Meta::default()),
        ("the device's", Meta { hash: Some(5), ..Meta::default() }),
    ] {
        let mut next = frames.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let packet = next.next().map_or(&[][..], Vec::as_slice);
                dissect_into(packet, LinkType::Ethernet, &Ports::ASSIGNED, &mut stack);
                black_box(steering.queue(packet, &stack, &meta))
            });
        });
    }
}

/// Returns the packets of each queue.
fn spread(queues: usize) -> Vec<Workload> {
    let steering = Steering::new(queues);
    let mut shares: Vec<_> =
        (0..queues).map(|_| Workload { frames: Vec::new(), ..workload(SPREAD, SEED) }).collect();
    let mut stack = Stack::new(0);
    for frame in workload(SPREAD, SEED).frames {
        dissect_into(&frame, LinkType::Ethernet, &Ports::ASSIGNED, &mut stack);
        shares[steering.queue(&frame, &stack, &Meta::default())].frames.push(frame);
    }
    shares
}

/// Coalesces the packets of all queues in parallel, and returns the elapsed time.
fn together(shares: &[Workload], trust: Trust, packets: u64) -> Duration {
    let all: usize = shares.iter().map(|share| share.frames.len()).sum();
    let start = Barrier::new(shares.len());
    let work = |processor: usize, share: &Workload| {
        stay(processor);
        let wanted = packets * share.frames.len() as u64 / all as u64;
        let mut receiver = Receiver::new(share, trust).fetching(Cache::Cold);
        receiver.trace();
        start.wait();
        let began = Instant::now();
        let mut done = 0;
        while done < wanted {
            done += receiver.step() as u64;
        }
        began.elapsed()
    };
    let work = &work;
    thread::scope(|scope| {
        let spawn = |(processor, share)| scope.spawn(move || work(processor, share));
        let threads: Vec<_> = shares.iter().enumerate().map(spawn).collect();
        let times = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
        times.max().unwrap_or_default()
    })
}

/// Pins the thread to its own CPU. Otherwise the thread that wakes it at a barrier would pull it to another CPU.
fn stay(processor: usize) {
    #[cfg(target_os = "linux")]
    if let Ok(allowed) = grosso_sys::scheduling::allowed_processors()
        && let Some(&processor) = allowed.get(processor)
    {
        let _ = grosso_sys::scheduling::pin(None, processor);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

criterion_group! { name = benches; config = configuration(); targets = steer, coalesce }
criterion_main!(benches);
