//! How long trains may be held on paths of any length.

use std::{io, time::Duration};

use grosso::{Profile, coalesce::Hold};
use grosso_io::impair::Impairment;
use grosso_sys::scheduling::allowed_processors;

use super::{Comparison, Consumer, Experiment, Group, GroupResult, Plan, Row, Verdict};
use crate::trial::{Carrier, Extent, Setting};

impl Experiment {
    /// A stream from its start, on paths of five lengths: with nothing merged, with trains held for
    /// a fixed time, and for as long as the controller says, at most as long.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn rtt(plan: Plan) -> io::Result<Self> {
        let processor = allowed_processors()?.last().copied().unwrap_or(0);
        let groups = ROUND_TRIPS_US.map(|round_trip_us| {
            let mut setting = plan.setting(plan.stream(), [processor; 2]);
            let delay = Duration::from_micros(round_trip_us);
            let mut impairment = Impairment::default();
            impairment.delay = delay;
            setting.impairment = Some(impairment);
            // Slow start is where a sender's clock counts most.
            setting.extent = Extent::Time { warm_up: Duration::ZERO, measured: plan.measured };
            if delay >= LONG {
                setting.layout.tcp_buffer_bytes = LONG_BUFFER_BYTES;
                setting.layout.under_way_bytes = LONG_BUFFER_BYTES;
            }
            Group {
                title: format!("A wire of {delay:?}, from the stream's start, one CPU"),
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

fn rows(plan: &Plan, setting: &Setting) -> Vec<Row> {
    let mut profile = Profile::default();
    profile.hold = Hold::Controlled;
    profile.limits.hold_ns = u64::try_from(plan.hold.as_nanos()).unwrap_or(u64::MAX);
    let profile = Some(Box::new(profile));
    vec![
        Row::new(OFF, setting, Carrier::grosso(None, false)),
        Row::new(FIXED, setting, Carrier::grosso(Some(plan.hold), false)),
        Row::new(CONTROLLED, setting, Carrier::Grosso { profile, copy: false }),
    ]
}

fn judge(groups: &[GroupResult], _: Option<&Consumer>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let speed = |group: &GroupResult| {
        let [off, controlled] = [group.row(OFF)?, group.row(CONTROLLED)?];
        Some(controlled.gigabits_a_second.median / off.gigabits_a_second.median)
    };
    if let Some(worst) = groups.iter().filter_map(speed).min_by(f64::total_cmp) {
        verdicts.push(Verdict {
            claim: "the controller is nowhere more than 5 % slower than no merging",
            holds: worst >= 0.95,
            measured: format!("{worst:.2} times where it is worst"),
        });
    }
    let saved = groups.first().and_then(|group| {
        let cost = |name| group.row(name).map(|row| row.cpu_s_per_gb.median);
        let (off, fixed, controlled) = (cost(OFF)?, cost(FIXED)?, cost(CONTROLLED)?);
        Some((off - controlled) / (off - fixed))
    });
    if let Some(saved) = saved {
        verdicts.push(Verdict {
            claim: "on the shortest wire it saves 90 % of the CPU that the fixed hold saves",
            holds: saved >= 0.9,
            measured: format!("{:.0} %", saved * 100.0),
        });
    }
    verdicts
}

const OFF: &str = "coalescing off";
const FIXED: &str = "fixed hold";
const CONTROLLED: &str = "controlled";

/// How long packets take to the receiver; acknowledgments take no time, so that these are round
/// trips.
const ROUND_TRIPS_US: [u64; 5] = [100, 1_000, 10_000, 50_000, 100_000];

/// From this delay on a stream wants more under way than the usual buffers hold.
const LONG: Duration = Duration::from_millis(10);
const LONG_BUFFER_BYTES: usize = 4 << 20;

const NOTES: &[&str] =
    &["Data takes the time named, acknowledgments none. A stream is measured from its first\n\
     byte, because in slow start each acknowledgment counts; on long wires its window\n\
     is what bounds it."];
