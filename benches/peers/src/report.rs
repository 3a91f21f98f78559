//! The findings of a run. The text, the JSON and the page are generated from them.

use std::fmt;

use serde::Serialize;

use crate::{
    contender::Peer,
    goals::Verdict,
    row_report::{RowReport, is_grosso},
    semantics::Finding,
};

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) machine: Machine,
    pub(crate) rounds: u16,
    pub(crate) absent: Vec<Absent>,
    pub(crate) rows: Vec<RowReport>,
    pub(crate) goals: Vec<Verdict>,
    pub(crate) semantics: Vec<Finding>,
}

/// The machine on which the run took place.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) kernel: String,
    /// The core to which all contenders were pinned, or `None` if pinning was refused.
    pub(crate) core: Option<usize>,
    /// CPU features for which the Rust contenders were compiled, in addition to the features that they detect at run
    /// time.
    pub(crate) compiled_for: &'static str,
}

/// A peer that did not take part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Absent {
    pub(crate) peer: &'static str,
    pub(crate) why: String,
    /// Command that installs the peer, or an empty string if the user skipped the peer.
    pub(crate) hint: &'static str,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hint {
            "" => write!(f, "not here: {}: {}", self.peer, self.why),
            hint => write!(f, "not here: {}: {hint}\n  why: {}", self.peer, self.why),
        }
    }
}

impl Absent {
    pub(crate) fn new(peer: Peer, why: &str, hint: &'static str) -> Self {
        Self { peer: peer.name(), why: why.to_owned(), hint }
    }
}

impl Report {
    /// Schema identifier of the JSON.
    pub(crate) const SCHEMA: &'static str = "grosso.peers/1";

    /// Returns the faults found in Grosso's own output. A correct run has none.
    pub(crate) fn own_faults(&self) -> Vec<String> {
        let lines = self.rows.iter().flat_map(|row| row.contenders.iter().map(move |l| (row, l)));
        let faults = lines.filter(|(_, line)| line.is_grosso()).flat_map(|(row, line)| {
            let wrong = line.wrong.iter().chain(&line.failed);
            wrong.map(|wrong| format!("{} {}: {wrong}", row.work.name(), row.workload))
        });
        let findings = self.semantics.iter().filter(|finding| is_grosso(&finding.contender));
        faults.chain(findings.filter_map(|finding| finding.wrong.map(str::to_owned))).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        goals::Aim,
        row_report::tests::{line, row},
        work::Work,
    };

    fn finding(case: &'static str, wrong: Option<&'static str>) -> Finding {
        Finding { contender: "dpdk, burst".to_owned(), work: Work::CoalesceTrusted, case, wrong }
    }

    /// Returns a report of one row.
    pub(crate) fn report() -> Report {
        Report {
            schema: Report::SCHEMA,
            machine: Machine {
                processor: "a processor".to_owned(),
                kernel: "6.1".to_owned(),
                core: Some(1),
                compiled_for: "x86-64",
            },
            rounds: 15,
            absent: vec![Absent::new(Peer::Gvisor, "why", "get it")],
            rows: vec![row(NAME, vec![line("grosso", 26.5, 1.0), line("dpdk, burst", 53.0, 2.0)])],
            goals: vec![Verdict {
                row: NAME.to_owned(),
                aim: Aim::AsFast,
                wanted: 2.5,
                measured: 2.0,
                beside: "dpdk, burst".to_owned(),
                met: false,
            }],
            semantics: vec![
                finding("CE among ECT", Some("loses a CE mark")),
                finding("TTL 64, then 10", None),
            ],
        }
    }

    const NAME: &str = "coalesce-trusted/hot/tcp4_1";

    #[test]
    fn the_json_has_its_schema_and_every_round() {
        let json = serde_json::to_value(report()).expect("JSON");
        assert_eq!(json["schema"], "grosso.peers/1");
        assert_eq!(json["rows"][0]["work"], "coalesce-trusted");
        assert_eq!(json["goals"][0]["aim"], "as-fast");
        assert_eq!(json["rows"][0]["contenders"][1]["ratio"], 2.0);
        assert_eq!(json["rows"][0]["contenders"][0]["rounds_ns"][0], 26.5);
    }

    #[test]
    fn only_own_faults_are_own() {
        let mut report = report();
        assert_eq!(report.own_faults(), Vec::<String>::new());
        report.rows[0].contenders[0].wrong.push("3 bytes of 1 flows are lost".to_owned());
        report.rows[0].contenders[1].wrong.push("3 bytes of 1 flows are lost".to_owned());
        report.semantics[1].contender = "grosso".to_owned();
        report.semantics[1].wrong = Some("lets an RST overtake data");
        assert_eq!(report.own_faults().len(), 2);
    }
}
