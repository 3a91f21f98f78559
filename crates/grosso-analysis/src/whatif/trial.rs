//! Replays a capture with one setting.

use grosso::coalesce::reason::{Close, NoMerge, Pass, Release};

use super::meter::{Kept, Meter};
use crate::{
    error::Failure,
    replay::{Aside, Fate, HoldTime, Purpose, Repair, Replay, Rules},
    report::counts,
    reports::whatif::{SegmentsPerTrain, Setting},
};

/// Replay with one setting, and its measurements.
pub(super) struct Trial {
    rules: Rules,
    replay: Replay,
    meter: Meter,
}

impl Trial {
    pub(super) fn new(rules: Rules) -> Result<Self, Failure> {
        let replay = Replay::new(&rules, Purpose::Looks)?;
        Ok(Self { rules, replay, meter: Meter::default() })
    }

    pub(super) fn push(&mut self, kept: &Kept) {
        let fate = self.replay.push_as(&kept.arrived(), &mut self.meter, |_| kept.buffer());
        if let Fate::Aside(_) = fate {
            self.meter.count_aside(kept);
        }
    }

    pub(super) fn finish(&mut self) {
        self.replay.finish(&mut self.meter);
    }

    pub(super) fn result(self) -> Setting {
        let Self { rules, replay, meter } = self;
        let stats = replay.stats();
        let asides: u64 = replay.asides.iter().sum();
        let mut passed = counts(Pass::ALL.iter().map(|reason| reason.name()), &stats.passed);
        passed.extend(counts(Aside::ALL.iter().map(|aside| aside.name()), &replay.asides));
        Setting {
            profile: rules.profile,
            invertible: replay.profile().rules.is_invertible(),
            reorder: Repair::of(replay.profile()).to_string(),
            hold: HoldTime::of(replay.profile()).to_string(),
            hold_ns: replay.profile().limits.hold_ns,
            packets_up: stats.frames_out + asides,
            superframes: stats.superframes,
            merged_packets: stats.superframe_packets,
            trains: meter.segments.total(),
            segments_per_train: SegmentsPerTrain::of(&meter.segments),
            held_ns: meter.held.quantiles(),
            passed,
            not_merged: counts(NoMerge::ALL.iter().map(|reason| reason.name()), &stats.refused),
            closed: counts(Close::ALL.iter().map(|reason| reason.name()), &stats.closed),
            waited: counts(Release::ALL.iter().map(|why| why.name()), &stats.reorder.released),
            blind_flows: replay.blind_flows,
            segments: meter.segments,
        }
    }
}
