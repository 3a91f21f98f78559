//! An experiment on hold times: trains on paths with various delays, held for a fixed or a controlled time.

use std::{io, time::Duration};

use grosso::{Profile, coalesce::Hold};
use grosso_io::impair::Impairment;

use super::{
    Comparison, Consumer, Offload, OffloadGroup, OffloadParameters, OffloadRow, Row, RowGroup,
    experiments::layout_words,
};
use crate::{
    experiment::Plan,
    statistics::Spread,
    trial::{Carrier, Extent, Setting},
    verdict::{Bound, Evidence, Unit, Verdict},
};

impl Offload {
    /// Creates an experiment on a stream from its start, over paths with five different delays. On each path, nothing
    /// is merged, trains are held for a fixed time, or trains are held for as long as the controller chooses, up to the
    /// same limit.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn rtt(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let processors = plan.layouts()?.into_iter().next().unwrap_or_default();
        let groups = ROUND_TRIPS_US.map(|round_trip_us| {
            let mut setting = plan.setting(plan.stream(), processors);
            let delay = Duration::from_micros(round_trip_us);
            let mut impairment = Impairment::default();
            impairment.delay = delay;
            setting.impairment = Some(impairment);
            // Slow start is included, because it depends most on when acknowledgments arrive.
            let measured = plan.measured.max(delay * ROUNDS_MIN);
            setting.extent = Extent::Time { warm_up: Duration::ZERO, measured };
            if delay >= LONG {
                setting.layout.tcp_buffer_bytes = LONG_BUFFER_BYTES;
                setting.layout.under_way_bytes = LONG_BUFFER_BYTES;
            }
            RowGroup {
                title: format!(
                    "Wire with {} ms delay, from the start of the stream, {}",
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
    let pairs = |name| groups.iter().filter_map(move |group| Some((group, group.pair(name, OFF)?)));
    let evidence = |(group, [held, off]): (&OffloadGroup, [&OffloadRow; 2]), bound| {
        let wire = group.title.split(',').next().unwrap_or_default().to_owned();
        (Evidence::ratio(&held.gigabits_a_second, &off.gigabits_a_second, bound), wire)
    };
    let controlled = pairs(CONTROLLED).map(|pair| evidence(pair, Bound::AtLeast(0.95)));
    let controlled = Evidence::all_of(controlled).map(|(evidence, wire)| {
        let claim = "a controlled hold costs at most 5 % of the speed";
        let cause = "the controller held packets too long";
        evidence.verdict(claim, Unit::Change, cause).with(wire).for_every_row()
    });
    // The publication says that connections with long round-trip times suffer, but not which times are long, so the
    // claim must hold for all of them.
    let fixed = pairs(FIXED).skip(LONG_FROM).map(|pair| evidence(pair, Bound::Under(1.0)));
    let fixed = Evidence::all_of(fixed).map(|(evidence, wire)| {
        let claim = "a fixed hold slows round trips of 10 ms and more";
        evidence.verdict(claim, Unit::Change, UNLIMITED).with(wire).for_every_row()
    });
    [controlled, fixed, saved(groups)].into_iter().flatten().collect()
}

/// Judges how much of what a fixed hold time saves the controller also saves, on the wire with the shortest delay.
fn saved(groups: &[OffloadGroup]) -> Option<Verdict> {
    let group = groups.first()?;
    let costs = |name| Some(group.row(name)?.cpu_s_per_gb);
    let (off, fixed, controlled) = (costs(OFF)?, costs(FIXED)?, costs(CONTROLLED)?);
    let saving = off.median - fixed.median;
    let shares = controlled.values().iter().map(|cost| (off.median - cost) / saving);
    Some(Evidence::median(&Spread::of(shares), Bound::AtLeast(SAVED / ROUNDED)).verdict(
        "at 0.1 ms, a controlled hold keeps 90 % of the saving",
        Unit::Percent,
        "the controller flushed trains too early",
    ))
}

/// Fraction of the saving with a fixed hold time that the controller must reach.
const SAVED: f64 = 0.9;
/// Tolerance for rounded figures.
const ROUNDED: f64 = 1.000_001;
/// Index of the first group with a long round-trip time.
const LONG_FROM: usize = 2;
const UNLIMITED: &str = "Linux counts all acknowledged bytes; `grosso lab acks` also tests senders with a \
                         limit per acknowledgment, which were usual in 2011";
const OFF: &str = "coalescing off";
const FIXED: &str = "fixed hold";
const CONTROLLED: &str = "controlled";

/// Delays of packets to the receiver, in microseconds. Acknowledgments take no time, so these are round-trip times.
const ROUND_TRIPS_US: [u64; 5] = [100, 1_000, 10_000, 50_000, 100_000];

/// Minimum number of round trips for which a stream is measured; some of them are in slow start.
const ROUNDS_MIN: u32 = 20;

/// Minimum delay at which a stream needs more bytes in flight than the usual buffers can hold.
const LONG: Duration = Duration::from_millis(10);
const LONG_BUFFER_BYTES: usize = 4 << 20;

const NOTES: &[&str] =
    &["Only data is delayed by the time in the title; acknowledgments are not delayed.\n\
     Each stream is measured from its first byte, to include slow start, which\n\
     depends on acknowledgments. If the delay is long, the TCP window limits the\n\
     stream."];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cpu_time::CpuSeconds, experiment::Series, trial::Measured};

    /// Returns whether each verdict holds if every group has these gigabytes and CPU-seconds per second in its three
    /// rows: without merging, with a fixed hold time, and with the controller.
    fn judged(rows: [(f64, f64); 3]) -> Vec<bool> {
        let experiment = Offload::rtt(Plan::default()).unwrap();
        let result = |group: &RowGroup| {
            let series = group.rows.iter().zip(rows).map(|(row, (gigabytes, receiver))| {
                let bytes = (gigabytes * 1e9) as u64;
                let cpu_seconds = CpuSeconds { receiver, ..CpuSeconds::default() };
                let run = Measured { seconds: 1.0, bytes, cpu_seconds, ..Measured::default() };
                Series::new(row.clone(), vec![run; 5])
            });
            OffloadGroup::new(group, series.collect())
        };
        let groups: Vec<_> = experiment.groups.iter().map(result).collect();
        judge(&groups, None).iter().map(|verdict| verdict.holds()).collect()
    }

    #[test]
    fn the_controller_is_judged_beside_no_merging_and_the_fixed_hold() {
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (0.96, 0.96)]), [true, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (0.94, 0.94)]), [false, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (1.0, 1.09)]), [true, false, true]);
        assert_eq!(judged([(1.0, 2.0), (1.0, 1.0), (1.0, 1.11)]), [true, false, false]);
        assert_eq!(judged([(1.0, 2.0), (0.9, 0.9), (1.0, 1.0)]), [true, true, true]);
    }

    #[test]
    fn every_wire_is_measured_for_twenty_round_trips() {
        let plan = Plan { measured: Duration::from_millis(1), ..Plan::default() };
        let experiment = Offload::rtt(plan).unwrap();
        assert_eq!(experiment.groups.len(), 5);
        let last = &experiment.groups[4];
        assert!(last.title.starts_with("Wire with 100 ms"), "{}", last.title);
        let measured = Duration::from_secs(2);
        let extent = Extent::Time { warm_up: Duration::ZERO, measured };
        assert!(last.rows.iter().all(|row| row.setting.extent == extent));
    }
}
