//! Goals for Grosso's speed, and whether a run meets them.

use serde::Serialize;

use crate::row_report::{Line, RowReport};

/// The quantity that a goal bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    /// Minimum ratio of the fastest peer's time to Grosso's. Only peers that do all of the row's work are compared.
    AsFast,
    /// Maximum ratio of any other workload's time to the first workload's time.
    AsLong,
    /// Maximum ratio of Grosso's time to the time that the machine needs to read the same bytes.
    Reading,
}

impl Aim {
    /// Returns the comparison operator between the measured value and the goal.
    pub(crate) const fn bound(self) -> &'static str {
        match self {
            Self::AsFast => ">=",
            Self::AsLong | Self::Reading => "<=",
        }
    }
}

/// One goal, and the figure measured for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) row: String,
    pub(crate) aim: Aim,
    pub(crate) wanted: f64,
    pub(crate) measured: f64,
    /// Contender whose figure decides whether the goal is met.
    pub(crate) beside: String,
    pub(crate) met: bool,
}

/// Returns verdicts on all goals, except goals whose row was not measured or had no peer.
pub(crate) fn verdicts(rows: &[RowReport]) -> Vec<Verdict> {
    GOALS.iter().filter_map(|goal| verdict(goal, rows)).collect()
}

fn verdict(&(name, aim, wanted): &Goal, rows: &[RowReport]) -> Option<Verdict> {
    let row = rows.iter().find(|row| row.name == name)?;
    let measured = row.contenders.iter().filter(|line| line.failed.is_none() && !line.does_less);
    let others = measured.filter(|line| !line.is_grosso());
    let least = |one: &&Line, two: &&Line| one.ratio.total_cmp(&two.ratio);
    let (decides, measured, met) = match aim {
        Aim::AsFast => {
            let fastest = others.min_by(least)?;
            (fastest, fastest.ratio, fastest.ratio >= wanted)
        }
        Aim::AsLong => {
            let counts = |line: &&Line| HEADERS.iter().any(|header| line.name.ends_with(header));
            let slowest = row.contenders.iter().filter(counts).max_by(least)?;
            (slowest, slowest.ratio, slowest.ratio <= wanted)
        }
        Aim::Reading => {
            let machine = others.min_by(least)?;
            let times = 1.0 / machine.ratio;
            (machine, times, times <= wanted)
        }
    };
    let beside = decides.name.clone();
    Some(Verdict { row: name.to_owned(), aim, wanted, measured, beside, met })
}

type Goal = (&'static str, Aim, f64);

/// The goals, each for the row that it names.
const GOALS: &[Goal] = &[
    ("coalesce-trusted/hot/tcp4_1", Aim::AsFast, 1.7),
    ("coalesce-trusted/hot/tcp4_8rr", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/tcp4_64burst", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/tcp4_acks", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/tcp4_reorder", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/tcp4_jumbo", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/tcp4_small", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/vxlan_tcp4", Aim::AsFast, 1.0),
    ("coalesce-trusted/hot/each", Aim::AsLong, 1.7),
    ("coalesce-verified/hot/tcp4_1", Aim::AsFast, 2.0),
    ("coalesce-verified/hot/tcp4_1000rr", Aim::AsFast, 1.5),
    ("coalesce-verified/hot/tcp4_jumbo", Aim::AsFast, 1.0),
    ("coalesce-verified/hot/tcp4_small", Aim::AsFast, 1.1),
    ("coalesce-verified/hot/each", Aim::AsLong, 1.7),
    ("segment-copy/hot/gso_tcp4", Aim::AsFast, 1.9),
    ("segment-scatter/hot/gso_tcp4", Aim::AsFast, 1.9),
    ("reassemble/hot/frag4_8k", Aim::AsFast, 1.1),
    ("reassemble/hot/frag4_64k", Aim::AsFast, 1.1),
    ("checksum/hot/64", Aim::AsFast, 1.0),
    ("checksum/hot/1500", Aim::AsFast, 1.0),
    ("checksum/hot/9000", Aim::AsFast, 1.0),
    ("checksum/hot/65536", Aim::AsFast, 1.0),
    ("coalesce-verified/cold/tcp4_1", Aim::Reading, 1.3),
];

/// Workloads whose headers should cost little more to process than those of TCP over IPv4.
const HEADERS: &[&str] = &["tcp6_16burst", "udp4_quic", "vxlan_tcp4", "gre_tcp4", "gue_rco_tcp4"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        row_report::tests::{line, row},
        work::rows,
    };

    #[test]
    fn every_goal_has_a_row() {
        let names: Vec<String> = rows().iter().map(|row| row.name()).collect();
        for (name, ..) in GOALS {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn the_fastest_peer_that_does_the_same_decides() {
        let mut less = line("dpdk, chain", 10.0, 0.5);
        less.does_less = true;
        let mut failed = line("gvisor", 0.0, 0.0);
        failed.failed = Some("gone".to_owned());
        let peers = vec![line("tun-rs", 42.0, 2.1), line("dpdk", 38.0, 1.9), less, failed];
        let own = vec![line("grosso", 20.0, 1.0), line("grosso, other", 10.0, 0.5)];
        let rows = [row("segment-copy/hot/gso_tcp4", [own, peers].concat())];
        let [verdict] = &verdicts(&rows)[..] else { panic!("one goal") };
        assert_eq!((verdict.beside.as_str(), verdict.measured, verdict.met), ("dpdk", 1.9, true));
        let rows = [row("coalesce-verified/hot/tcp4_1", rows[0].contenders.clone())];
        assert!(!verdicts(&rows)[0].met);
        let alone = [row("segment-copy/hot/gso_tcp4", vec![line("grosso", 20.0, 1.0)])];
        assert_eq!(verdicts(&alone), []);
    }

    #[test]
    fn the_dearest_header_and_the_machine_decide() {
        let lines = vec![
            line("grosso, tcp4_1", 20.0, 1.0),
            line("grosso, tcp4_1000rr", 60.0, 3.0),
            line("grosso, vxlan_tcp4", 36.0, 1.8),
            line("grosso, udp4_quic", 22.0, 1.1),
        ];
        let each = &verdicts(&[row("coalesce-trusted/hot/each", lines)])[0];
        assert_eq!((each.beside.as_str(), each.met), ("grosso, vxlan_tcp4", false));
        let lines = vec![line("grosso", 60.0, 1.0), line("the machine", 48.0, 0.8)];
        let cold = &verdicts(&[row("coalesce-verified/cold/tcp4_1", lines)])[0];
        assert_eq!((cold.measured, cold.met), (1.25, true));
    }
}
