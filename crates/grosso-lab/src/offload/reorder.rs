//! An experiment on reordering: every other packet takes the longer of two paths, and the receiver repairs the order to
//! various degrees.

use std::{io, time::Duration};

use grosso::{Profile, coalesce::Reorder};
use grosso_io::impair::Impairment;

use super::{Comparison, Consumer, Offload, OffloadGroup, OffloadParameters, Row, RowGroup};
use crate::{
    experiment::Plan,
    statistics::{Spread, digits},
    traffic::Traffic,
    trial::{Carrier, Setting},
    verdict::{Bound, Evidence, Published, Unit, Verdict},
};

impl Offload {
    /// Creates an experiment with TCP over two paths that differ in delay. It compares four levels of repair: none;
    /// within a poll; also continuing held trains; and also waiting until holes are filled.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn reorder(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let processors = plan.layouts()?.into_iter().next_back().unwrap_or_default();
        let groups = SKEWS_US.map(|skew_us| {
            let mut setting = plan.setting(Traffic::TcpStream, processors);
            setting.impairment = Some(wire(skew_us, plan.parameters.wire_bits));
            let rows = levels(&plan, skew_us).map(|(name, profile)| row(name, &setting, profile));
            let title = match skew_us {
                0 => format!(
                    "All packets in order, at {} Gb/s",
                    plan.parameters.wire_bits as f64 / 1e9
                ),
                _ => format!("Every other packet is delayed by {skew_us} us"),
            };
            let comparisons = vec![Comparison::new("holes / off", HOLES, OFF)];
            RowGroup { title, rows: rows.to_vec(), comparisons }
        });
        let (groups, notes) = (groups.to_vec(), NOTES);
        Ok(Self { name: "reorder", plan, groups, notes, judge, ..Self::receiving() })
    }
}

/// Returns a wire with two paths. Both have the delay of a switched network, and one path adds `skew_us`.
fn wire(skew_us: u64, rate_bits: u64) -> Impairment {
    let mut impairment = Impairment::default();
    impairment.delay = PATH;
    impairment.skew = Duration::from_micros(skew_us);
    impairment.rate_bits = Some(rate_bits);
    impairment
}

/// Returns the levels of repair. The time to wait for a hole to be filled is five times the delay difference of the
/// paths, but at least twice the hold time and at least [`HOLE_NS_MIN`].
fn levels(plan: &Plan<OffloadParameters>, skew_us: u64) -> [(&'static str, Profile); 4] {
    let hold_ns = u64::try_from(plan.parameters.hold.as_nanos()).unwrap_or(u64::MAX);
    let hole_ns = (5 * skew_us * 1000).max(2 * hold_ns).max(HOLE_NS_MIN);
    let profile = |hold_ns, reorder| {
        let mut profile = Profile::linux();
        (profile.limits.hold_ns, profile.reorder) = (hold_ns, reorder);
        profile
    };
    [
        (OFF, profile(hold_ns, Reorder::OFF)),
        ("batch", profile(0, Reorder::WITHIN_BATCH)),
        ("batch, held", profile(hold_ns, Reorder::WITHIN_BATCH)),
        (HOLES, profile(hold_ns, Reorder::holes(hole_ns))),
    ]
}

fn row(name: &str, setting: &Setting, profile: Profile) -> Row {
    let profile = Some(Box::new(profile));
    Row::new(name, setting, Carrier::Grosso { profile, copy: true, expand: false })
}

fn judge(groups: &[OffloadGroup], _: Option<&Consumer>) -> Vec<Verdict> {
    let group = |skew_us| groups.get(SKEWS_US.iter().position(|&skew| skew == skew_us)?);
    let row = |skew_us, name| group(skew_us)?.row(name);
    let speed = |skew_us, name| Some(row(skew_us, name)?.gigabits_a_second);
    let whole = speed(JUDGED_US, HOLES).zip(speed(0, OFF)).map(|(repaired, ordered)| {
        let evidence = Evidence::ratio(&repaired, &ordered, Bound::AtLeast(0.95));
        let published = Published::new(9.27 / 9.19, "in 2016 at 10 Gb/s");
        let cause = "the wait for missing packets ended before they arrived";
        let claim = "40 us skew: repair keeps 95 % of the in-order speed";
        evidence.verdict(claim, Unit::Percent, cause).beside(published)
    });
    let repeated = |name| {
        let runs = &row(JUDGED_US, name)?.runs;
        Some(Spread::of(runs.iter().map(|run| run.retransmits as f64)))
    };
    let avoided = repeated(HOLES).zip(repeated(OFF)).map(|(repaired, broken)| {
        let counts = format!("{:.0} per run, {:.0} without repair", repaired.median, broken.median);
        Evidence::ratio(&repaired, &broken, Bound::Under(1.0))
            .verdict(
                "40 us skew: repair avoids spurious retransmissions",
                Unit::Times,
                "missing packets arrived after the wait, so the sender treated them as lost",
            )
            .with(counts)
    });
    let trains = |name| row(JUDGED_US, name)?.segments_per_train;
    let longer = trains(HOLES).zip(trains(OFF)).map(|(repaired, broken)| {
        let trains = format!(
            "{} packets, {} without repair",
            digits(repaired.median),
            digits(broken.median)
        );
        Evidence::ratio(&repaired, &broken, Bound::AtLeast(5.0))
            .verdict(
                "repair makes trains five times longer",
                Unit::Times,
                "trains were longer than usual without repair",
            )
            .with(trains)
    });
    [whole, avoided, longer].into_iter().flatten().collect()
}

/// Delay differences between the paths, in microseconds.
const SKEWS_US: [u64; 6] = [0, 20, 40, 80, 120, 200];
/// Delay difference to which the verdicts apply, in microseconds.
const JUDGED_US: u64 = 40;
/// Basic delay of both paths.
const PATH: Duration = Duration::from_micros(250);
/// Shortest time to wait for a hole to be filled, in nanoseconds.
const HOLE_NS_MIN: u64 = 200_000;

/// Name of the row without repair.
pub(super) const OFF: &str = "off";
/// Name of the row in which packets wait until holes are filled.
pub(super) const HOLES: &str = "holes";

const NOTES: &[&str] = &[
    "batch: Grosso puts the packets of each poll in order. batch, held: Grosso also\n\
     holds trains across polls. holes: packets after a missing packet wait for it,\n\
     for up to 5 times the delay difference of the paths, but at least 200 us.",
    "Published in 2016 for 10 Gb/s: if the delays of the two paths differ by 40 us,\n\
     throughput falls from 9.19 to 5.63-5.87 Gb/s. With a wait of 100 us for missing\n\
     packets, it is 9.27 Gb/s.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn every_level_is_measured_on_every_skew_and_waits_for_no_hole_in_vain() {
        let parameters =
            OffloadParameters { wire_bits: 2_500_000_000, ..OffloadParameters::default() };
        let plan = Plan { parameters, ..Plan::default() };
        let experiment = Offload::reorder(plan.clone()).unwrap();
        assert_eq!(experiment.trials(), SKEWS_US.len() * 4 * plan.runs);
        assert_eq!(experiment.groups[0].title, "All packets in order, at 2.5 Gb/s");
        for (group, skew_us) in experiment.groups.iter().zip(SKEWS_US) {
            let skew = group.rows[0].setting.impairment.as_ref().unwrap().skew;
            assert_eq!(skew, Duration::from_micros(skew_us));
            let rates = group.rows.iter().map(|row| row.setting.impairment.as_ref()?.rate_bits);
            assert!(rates.eq([Some(2_500_000_000); 4]));
            let [.., (_, holes)] = levels(&plan, skew_us);
            let left_ns = holes.reorder.total_ns() - holes.limits.hold_ns;
            assert!(left_ns > 2 * skew_us * 1000 && left_ns >= holes.reorder.hole_ns());
        }
    }
}
