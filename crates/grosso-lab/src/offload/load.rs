//! An experiment on the load that a sender offers: the length of trains, and the gain from coalescing, at several
//! rates.

use std::io;

use super::{
    Comparison, Consumer, Offload, OffloadGroup, OffloadParameters, Row, RowGroup,
    experiments::layout_words,
};
use crate::{
    experiment::Plan,
    statistics::digits,
    traffic::Traffic,
    trial::Carrier,
    verdict::{Bound, Evidence, Unit, Verdict},
};

impl Offload {
    /// Creates an experiment on a stream at four offered loads and at an unlimited load, each with and without
    /// coalescing.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn load(plan: Plan<OffloadParameters>) -> io::Result<Self> {
        let groups = plan.layouts()?.into_iter().take(1).map(|processors| {
            let (mut rows, mut comparisons) = (Vec::new(), Vec::new());
            for Load { bits, on, off, compared } in LOADS {
                let mut setting = plan.setting(Traffic::TcpStream, processors);
                setting.layout.offered_bits = bits;
                let hold = Some(plan.parameters.hold);
                rows.push(Row::new(on, &setting, Carrier::grosso(hold, false)));
                rows.push(Row::new(off, &setting, Carrier::grosso(None, false)));
                comparisons.push(Comparison::new(compared, on, off));
            }
            let layout = layout_words(processors);
            let title = format!("TCP_STREAM at MTU 1500 by offered load, {layout}");
            RowGroup { title, rows, comparisons }
        });
        let groups = groups.collect();
        Ok(Self { name: "load", plan, groups, judge, notes: NOTES, ..Self::receiving() })
    }
}

fn judge(groups: &[OffloadGroup], _: Option<&Consumer>) -> Vec<Verdict> {
    let Some(group) = groups.first() else { return Vec::new() };
    let (least, most) = (&LOADS[0], &LOADS[LOADS.len() - 2]);
    let trains = |load: &Load| group.row(load.on)?.segments_per_train;
    let grows = trains(most).zip(trains(least)).map(|(most, least)| {
        let evidence = Evidence::ratio(&most, &least, Bound::AtLeast(1.0));
        let trains = format!("{} packets, up from {}", digits(most.median), digits(least.median));
        evidence.verdict("trains grow with the load", Unit::Times, ALREADY).with(trains)
    });
    let worth = |load: &Load| group.pair(load.on, load.off).map(|[on, off]| on.gain_over(off));
    let pays = worth(most).zip(worth(least)).map(|(most, least)| {
        let evidence = Evidence::ratio(&most, &least, Bound::AtLeast(1.0));
        let gains = format!("{} times, up from {}", digits(most.median), digits(least.median));
        evidence
            .verdict("coalescing gains more as the load grows", Unit::Times, ALREADY)
            .with(gains)
    });
    grows.into_iter().chain(pays).collect()
}

/// An offered load, with the names of its rows and their comparison.
struct Load {
    /// Load in bits per second; `None` if unlimited.
    bits: Option<u64>,
    on: &'static str,
    off: &'static str,
    compared: &'static str,
}

/// The offered loads, in ascending order: up to what one CPU can process without coalescing, and then unlimited.
const LOADS: [Load; 5] = [
    Load { bits: Some(10_000_000), on: "10 Mb/s", off: "10 Mb/s, off", compared: "10 Mb/s" },
    Load { bits: Some(100_000_000), on: "100 Mb/s", off: "100 Mb/s, off", compared: "100 Mb/s" },
    Load { bits: Some(400_000_000), on: "400 Mb/s", off: "400 Mb/s, off", compared: "400 Mb/s" },
    Load { bits: Some(1_200_000_000), on: "1.2 Gb/s", off: "1.2 Gb/s, off", compared: "1.2 Gb/s" },
    Load { bits: None, on: "unlimited", off: "unlimited, off", compared: "unlimited" },
];
const ALREADY: &str = "trains already reach their full length at the lowest load";
const NOTES: &[&str] =
    &["The sender paces its packets (SO_MAX_PACING_RATE), and each of its superframes\n\
     covers at most one millisecond. At low loads, it is expensive to wake a thread\n\
     for a few packets, with or without coalescing. The verdicts compare the lowest\n\
     load with 1.2 Gb/s, because this load is possible even without coalescing."];

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{judged_runs, report_of},
        *,
    };
    use crate::{cpu_time::CpuSeconds, page::assert_shown, trial::Measured};

    /// Returns runs with trains of `most` packets at the highest limited load and of `least` packets at all other
    /// loads. The gain from coalescing is proportional to the train length.
    fn runs(least: f64, most: f64) -> impl Fn(&RowGroup, &Row, u64) -> Measured {
        move |_, row, run| {
            let is_most = row.setting.layout.offered_bits == LOADS[3].bits;
            let packets = if is_most { most } else { least };
            let gigabytes = if row.setting.hold().is_some() { packets } else { 1.0 };
            let bytes = (gigabytes * 1e9) as u64 + run;
            let cpu_seconds = CpuSeconds { path: 1.0, ..CpuSeconds::default() };
            let segments_per_train = row.setting.hold().map(|_| packets + run as f64 / 1000.0);
            Measured { seconds: 1.0, bytes, cpu_seconds, segments_per_train, ..Measured::default() }
        }
    }

    fn judged(least: f64, most: f64) -> Vec<String> {
        let experiment = Offload::load(Plan::default()).unwrap();
        let answers = judged_runs(&experiment, runs(least, most));
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    #[test]
    fn the_headline_is_how_trains_grow() {
        let experiment = Offload::load(Plan::default()).unwrap();
        let report = report_of(&experiment, runs(2.0, 8.0));
        let table = report.table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let page = report.page("grosso lab load", "unknown");
        let headline = "10 Mb/s make trains of 2.00 packets; 1.2 Gb/s make trains of 8.00 packets";
        assert!(page.contains(headline), "{page}");
        assert_shown(&page);
    }

    #[test]
    fn trains_and_their_worth_are_judged_by_the_load() {
        assert_eq!(judged(2.0, 8.0), ["reproduced", "reproduced"]);
        assert_eq!(judged(8.0, 8.0), ["undecided", "undecided"]);
        assert_eq!(judged(8.0, 2.0), ["not reproduced", "not reproduced"]);
    }

    #[test]
    fn the_sender_offers_the_load_that_the_row_names() {
        let experiment = Offload::load(Plan::default()).unwrap();
        let rows = &experiment.groups[0].rows;
        assert_eq!(rows.len(), 10);
        assert!(rows[6].name == "1.2 Gb/s" && rows[6].setting.hold().is_some());
        assert!(rows[7].name == "1.2 Gb/s, off" && rows[7].setting.hold().is_none());
        assert_eq!(rows[7].setting.layout.offered_bits, Some(1_200_000_000));
    }
}
