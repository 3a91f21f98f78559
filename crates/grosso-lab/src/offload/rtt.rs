//! The time for which trains may be held, on paths of various lengths.

use std::{io, time::Duration};

use grosso::{Profile, coalesce::Hold};
use grosso_io::impair::Impairment;

use super::{
    Comparison, Consumer, Offload, OffloadGroup, OffloadParameters, OffloadRow, Row, RowGroup,
    experiments::layout_words,
};
use crate::{
    experiment::Plan,
    trial::{Carrier, Extent, Setting},
    verdict::{Bound, Evidence, Verdict},
};

impl Offload {
    /// A stream from its start, on paths of five lengths: nothing merged, trains held for a fixed time, and trains held
    /// for the time that the controller chooses, up to the same limit.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn rtt(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let processors = plan.layouts()?.into_iter().next().unwrap_or_default();
        let groups = ROUND_TRIPS_US.map(|round_trip_us| {
            let mut setting = plan.setting(plan.stream(), processors);
            let delay = Duration::from_micros(round_trip_us);
            let mut impairment = Impairment::default();
            impairment.delay = delay;
            setting.impairment = Some(impairment);
            // Slow start depends most on the arrival of acknowledgments.
            let measured = plan.measured.max(delay * ROUNDS_MIN);
            setting.extent = Extent::Time { warm_up: Duration::ZERO, measured };
            if delay >= LONG {
                setting.layout.tcp_buffer_bytes = LONG_BUFFER_BYTES;
                setting.layout.under_way_bytes = LONG_BUFFER_BYTES;
            }
            RowGroup {
                title: format!(
                    "A wire of {} ms, from the stream's start, {}",
                    delay.as_secs_f64() * 1e3,
                    layout_words(processors),
                ),
                rows: rows(&plan, &setting),
                comparisons: vec![
                    Comparison::new("controlled / off", CONTROLLED, OFF),
                    Comparison::new("fixed / off", FIXED, OFF),
                ],
            }
        });
        let groups = groups.to_vec();
        Ok(Self { name: "rtt", plan, groups, judge, notes: NOTES, ..Self::receiving() })
    }
}

fn rows(plan: &Plan<OffloadParameters>, setting: &Setting) -> Vec<Row> {
    let mut profile = Profile::default();
    profile.hold = Hold::Controlled;
    profile.limits.hold_ns = u64::try_from(plan.parameters.hold.as_nanos()).unwrap_or(u64::MAX);
    let profile = Some(Box::new(profile));
    vec![
        Row::new(OFF, setting, Carrier::grosso(None, false)),
        Row::new(FIXED, setting, Carrier::grosso(Some(plan.parameters.hold), false)),
        Row::new(CONTROLLED, setting, Carrier::Grosso { profile, copy: false, expand: false }),
    ]
}

fn judge(groups: &[OffloadGroup], _: Option<&Consumer>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let pairs = |name| groups.iter().filter_map(move |group| group.pair(name, OFF));
    let share = |[held, off]: [&OffloadRow; 2]| {
        held.gigabits_a_second.median / off.gigabits_a_second.median
    };
    let word = |[held, off]: [&OffloadRow; 2], bound| {
        Evidence::ratio(&held.gigabits_a_second, &off.gigabits_a_second, bound)
    };
    let behind = |share: f64| format!("{:+.0} % at worst", (share - 1.0) * 100.0);
    if let Some(worst) = pairs(CONTROLLED).map(share).min_by(f64::total_cmp) {
        let word = Evidence::all(pairs(CONTROLLED).map(|pair| word(pair, Bound::AtLeast(0.95))));
        verdicts.push(
            word.verdict(
                "held as it pays is never more than 5 % behind no merging",
                behind(worst),
                "a path on which the controller held what it should have let go",
            )
            .for_every_row(),
        );
    }
    let long = || pairs(FIXED).skip(LONG_FROM);
    if let Some((worst, pair)) =
        long().map(|pair| (share(pair), pair)).min_by(|one, other| one.0.total_cmp(&other.0))
    {
        verdicts.push(word(pair, Bound::Under(0.95)).verdict(
            "a fixed hold hurts on round trips of 10 ms and more",
            behind(worst),
            "this kernel's sender counts bytes without a limit: `grosso lab acks` has senders that \
             do not, as those of 2011",
        ).for_every_row());
    }
    let saved = groups.first().and_then(|group| {
        let costs = |name| Some(group.row(name)?.cpu_s_per_gb);
        let (off, fixed, controlled) = (costs(OFF)?, costs(FIXED)?, costs(CONTROLLED)?);
        let wanted = off.median - SAVED * (off.median - fixed.median);
        let saved = (off.median - controlled.median) / (off.median - fixed.median);
        let word = Evidence::median(&controlled, Bound::Under(wanted * ROUNDED));
        saved.is_finite().then_some((word, format!("{:.0} %", saved * 100.0)))
    });
    if let Some((word, saved)) = saved {
        verdicts.push(word.verdict(
            "at 0.1 ms it saves 90 % of the CPU that a fixed hold saves",
            saved,
            "trains that the controller let go early",
        ));
    }
    verdicts
}

/// Share of what a fixed hold saves that the controller has to save, and a margin for rounded figures.
const SAVED: f64 = 0.9;
const ROUNDED: f64 = 1.000_001;
/// The first group whose round trip is long.
const LONG_FROM: usize = 2;
const OFF: &str = "coalescing off";
const FIXED: &str = "fixed hold";
const CONTROLLED: &str = "controlled";

/// Delay of packets to the receiver, in microseconds; acknowledgments take no time, so these are round-trip times.
const ROUND_TRIPS_US: [u64; 5] = [100, 1_000, 10_000, 50_000, 100_000];

/// Least number of round trips for which a stream is measured, some of them in slow start.
const ROUNDS_MIN: u32 = 20;

/// Delay from which a stream needs more bytes in flight than the usual buffers hold.
const LONG: Duration = Duration::from_millis(10);
const LONG_BUFFER_BYTES: usize = 4 << 20;

const NOTES: &[&str] =
    &["Data takes the time named, acknowledgments none. A stream is measured from its first\n\
     byte, because in slow start each acknowledgment counts; on long wires its window\n\
     is what bounds it."];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cpu_time::CpuSeconds, experiment::Series, trial::Measured};

    /// Verdicts if every group has these gigabytes and processor seconds, in one second: without merging, with the
    /// fixed hold, and with the controller.
    fn judged(rows: [(f64, f64); 3]) -> Vec<bool> {
        let experiment = Offload::rtt(Plan::default()).unwrap();
        let result = |group: &RowGroup| {
            let series = group.rows.iter().zip(rows).map(|(row, (gigabytes, receiver))| {
                let bytes = (gigabytes * 1e9) as u64;
                let cpu_seconds = CpuSeconds { receiver, ..CpuSeconds::default() };
                let run = Measured { seconds: 1.0, bytes, cpu_seconds, ..Measured::default() };
                Series::new(row.clone(), vec![run])
            });
            OffloadGroup::new(group, series.collect())
        };
        let groups: Vec<_> = experiment.groups.iter().map(result).collect();
        judge(&groups, None).iter().map(|verdict| verdict.holds()).collect()
    }

    #[test]
    fn the_controller_is_judged_beside_no_merging_and_the_fixed_hold() {
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (0.95, 0.95)]), [true, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (0.94, 0.94)]), [false, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (1.0, 1.09)]), [true, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (1.0, 1.11)]), [true, false, false]);
    }

    #[test]
    fn every_wire_is_measured_for_twenty_round_trips() {
        let plan = Plan { measured: Duration::from_millis(1), ..Plan::default() };
        let experiment = Offload::rtt(plan).unwrap();
        assert_eq!(experiment.groups.len(), 5);
        let last = &experiment.groups[4];
        assert!(last.title.starts_with("A wire of 100 ms"), "{}", last.title);
        let measured = Duration::from_secs(2);
        let extent = Extent::Time { warm_up: Duration::ZERO, measured };
        assert!(last.rows.iter().all(|row| row.setting.extent == extent));
    }
}
