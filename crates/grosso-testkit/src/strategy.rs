//! Strategies for `proptest`; every value contains its seed, which a failure prints.

use proptest::prelude::*;
use proptest::strategy::NoShrink;

use crate::oracle::Link;
use crate::random::Random;
use crate::stack::Stack;
use crate::traffic::{Sender, Traffic};

/// A value generated from a seed.
#[derive(Clone, Debug)]
pub struct Seeded<T> {
    /// The seed of the value.
    pub seed: u64,
    /// The value.
    pub value: T,
}

/// A train: packets of one flow, all of which can merge.
#[derive(Clone)]
pub struct GeneratedTrain {
    /// The headers of the packets.
    pub stack: Stack,
    /// The packets in order; the last may be shorter, or have PSH.
    pub frames: Vec<Vec<u8>>,
}

impl std::fmt::Debug for GeneratedTrain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lens: Vec<usize> = self.frames.iter().map(Vec::len).collect();
        write!(formatter, "{:?}, frames of {lens:?} bytes", self.stack)
    }
}

/// Generates any stack of the kit over Ethernet.
pub fn stack() -> impl Strategy<Value = Seeded<Stack>> {
    seed().prop_map(|seed| Seeded {
        seed,
        value: Stack::random(&mut Random::new(seed), Link::Ethernet),
    })
}

/// Generates a train of 1 to 20 packets (fewer if the size forbids it) over any stack that can merge.
pub fn train() -> impl Strategy<Value = Seeded<GeneratedTrain>> {
    (seed(), 1..=20_usize).prop_map(|(seed, count)| Seeded { seed, value: train_of(seed, count) })
}

/// Generates up to `frames_max` frames of [`Traffic::new`].
pub fn traffic(frames_max: usize) -> impl Strategy<Value = Seeded<Vec<Vec<u8>>>> {
    (seed(), 1..=frames_max)
        .prop_map(|(seed, count)| Seeded { seed, value: Traffic::new(seed).take(count).collect() })
}

/// Returns the train of at most `count` packets with this seed.
pub fn train_of(seed: u64, count: usize) -> GeneratedTrain {
    let mut random = Random::new(seed);
    let stack = loop {
        let stack = Stack::random(&mut random, Link::Ethernet);
        if stack.couples() {
            break stack;
        }
    };
    let mut sender = Sender::new(stack.clone(), random.bits() as u16 & 0xfff, &mut random);
    // The length of the superframe must fit into the 16-bit length fields of all headers.
    let count = count.min(TRAIN_BYTES_MAX / sender.segment).max(1);
    let mut frames: Vec<Vec<u8>> = (1..count).map(|_| sender.next(&mut random).build()).collect();
    let last = if random.percent(50) { sender.last(&mut random) } else { sender.next(&mut random) };
    frames.push(last.build());
    GeneratedTrain { stack, frames }
}

/// Maximum payload of a train in bytes: 65535 minus ample room for headers.
const TRAIN_BYTES_MAX: usize = 65_000;

/// Generates a seed that is not shrunk, because a smaller one is not simpler.
fn seed() -> NoShrink<proptest::num::u64::Any> {
    any::<u64>().no_shrink()
}
