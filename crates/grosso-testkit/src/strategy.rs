//! Strategies for `proptest`. Every value contains its seed, so that a failure prints the seed.

use proptest::prelude::*;
use proptest::strategy::NoShrink;

use crate::oracle::Link;
use crate::random::Random;
use crate::stack::Stack;
use crate::traffic::{Sender, Traffic};

/// A value generated from a seed.
#[derive(Clone, Debug)]
pub struct Seeded<T> {
    /// The seed that generated the value.
    pub seed: u64,
    /// The value.
    pub value: T,
}

/// A train: packets of one flow, all of which can merge.
#[derive(Clone)]
pub struct GeneratedTrain {
    /// The header stack of the packets.
    pub stack: Stack,
    /// The packets in order; the last one may be shorter or have PSH.
    pub frames: Vec<Vec<u8>>,
}

impl std::fmt::Debug for GeneratedTrain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lens: Vec<usize> = self.frames.iter().map(Vec::len).collect();
        write!(formatter, "{:?}, frames of {lens:?} bytes", self.stack)
    }
}

/// Generates any header stack over Ethernet.
pub fn stack() -> impl Strategy<Value = Seeded<Stack>> {
    seed().prop_map(|seed| Seeded {
        seed,
        value: Stack::random(&mut Random::new(seed), Link::Ethernet),
    })
}

/// Generates a train of 1 to 20 packets (fewer if they would be too large together) over any stack whose packets can
/// merge.
pub fn train() -> impl Strategy<Value = Seeded<GeneratedTrain>> {
    (seed(), 1..=20_usize).prop_map(|(seed, count)| Seeded { seed, value: train_of(seed, count) })
}

/// Generates up to `frames_max` frames from [`Traffic::new`].
pub fn traffic(frames_max: usize) -> impl Strategy<Value = Seeded<Vec<Vec<u8>>>> {
    (seed(), 1..=frames_max)
        .prop_map(|(seed, count)| Seeded { seed, value: Traffic::new(seed).take(count).collect() })
}

/// Returns the train that this seed generates, with at most `count` packets.
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

/// Maximum payload of a train in bytes: 65535 minus enough space for any headers.
const TRAIN_BYTES_MAX: usize = 65_000;

/// Generates a seed that is not shrunk, because smaller seeds do not generate simpler values.
fn seed() -> NoShrink<proptest::num::u64::Any> {
    any::<u64>().no_shrink()
}
