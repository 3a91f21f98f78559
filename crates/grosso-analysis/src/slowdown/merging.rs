//! Counts the trains of one direction that a coalescer delivers.

use schemars::JsonSchema;
use serde::Serialize;

use super::mark::EndedTrain;
use crate::{
    distribution::{Distribution, Quantiles},
    report::Counts,
};

/// Trains of one direction so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Merging {
    trains: u64,
    packets: u64,
    /// Trains by the reason for their end; at most as many entries as the engine has reasons.
    ended: Vec<(&'static str, u64)>,
    /// Waiting times of frames in nanoseconds.
    held: Distribution<HOLD_STEPS>,
}

/// Trains of a direction with data, as a coalescer delivers them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FlowMerging {
    /// Delivered frames: superframes, and packets that did not merge.
    pub trains: u64,
    /// Packets of the wire per delivered frame.
    pub packets_per_train: f64,
    /// Delivered frames by the reason for their end: the property of the next packet that prevented merging, or of a
    /// packet that passed through; otherwise the event that ended the train.
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

    /// Counts the waiting time of a frame of the direction.
    pub(super) fn hold(&mut self, waited_ns: u64) {
        self.held.add(waited_ns, 1);
    }

    pub(super) const fn trains(&self) -> u64 {
        self.trains
    }

    /// Returns the packets per train in tenths.
    pub(super) fn train_tenths(&self) -> u64 {
        (10 * self.packets + self.trains / 2) / self.trains.max(1)
    }

    /// Returns the waiting time that 99 % of the frames do not exceed, in nanoseconds.
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

/// Number of nanoseconds below which waiting times are exact. Longer times are accurate to an eighth, so a direction
/// has at most 496 counts.
const HOLD_STEPS: u64 = 16;
