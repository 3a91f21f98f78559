//! Statistics on the trains that a coalescer delivers in one flow direction.

use schemars::JsonSchema;
use serde::Serialize;

use super::mark::EndedTrain;
use crate::{
    distribution::{Distribution, Quantiles},
    report::Counts,
};

/// Trains in one direction so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Merging {
    trains: u64,
    packets: u64,
    /// Number of trains by the reason why they ended, with at most one entry for each reason in the engine.
    ended: Vec<(&'static str, u64)>,
    /// Waiting times of frames in nanoseconds.
    held: Distribution<HOLD_STEPS>,
}

/// Statistics on the trains that a coalescer delivers in a direction that carries data.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowMerging {
    /// Delivered frames: superframes, and packets that did not merge.
    pub trains: u64,
    /// Wire packets per delivered frame.
    pub packets_per_train: f64,
    /// Delivered frames by the reason why the train ended: the property of the next packet that prevented merging, or
    /// of a packet that passed through; otherwise the event that ended the train.
    pub ended: Counts,
    /// Waiting times of packets, accurate to 12 %.
    pub held_ns: Option<Quantiles>,
}

impl Merging {
    pub(super) fn add(&mut self, train: &EndedTrain) {
        self.trains += 1;
        self.packets += train.packets;
        match self.ended.iter_mut().find(|(name, _)| *name == train.ended) {
            Some((_, count)) => *count += 1,
            None => self.ended.push((train.ended, 1)),
        }
    }

    /// Records the waiting time of a frame in this direction.
    pub(super) fn hold(&mut self, waited_ns: u64) {
        self.held.add(waited_ns, 1);
    }

    pub(super) const fn trains(&self) -> u64 {
        self.trains
    }

    /// Returns the average number of packets per train, in tenths.
    pub(super) fn train_tenths(&self) -> u64 {
        (10 * self.packets + self.trains / 2) / self.trains.max(1)
    }

    /// Returns the 99th percentile of waiting times, in nanoseconds.
    pub(super) fn held_p99_ns(&self) -> u64 {
        self.held.quantiles().map_or(0, |held| held.p99)
    }

    pub(super) fn row(&self) -> FlowMerging {
        FlowMerging {
            trains: self.trains,
            packets_per_train: self.train_tenths() as f64 / 10.0,
            ended: self.ended.iter().copied().collect(),
            held_ns: self.held.quantiles(),
        }
    }
}

/// Waiting time in nanoseconds below which values are exact. Longer times are accurate to an eighth, so there are at
/// most 496 counts per direction.
const HOLD_STEPS: u64 = 16;
