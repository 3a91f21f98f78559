//! Summarizes the causes found in all directions.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    cause::{Cause, Finding},
    flows::{FlowTable, JudgedFlow, Ranking},
};
use crate::headers::Endpoints;

/// Causes that slow down TCP in a capture.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Slowdowns {
    /// Number of flow directions that carry data.
    pub directions: u64,
    /// Number of flow directions in which a cause was found.
    pub slow_directions: u64,
    /// Connections that were evaluated before they ended, to make room for others.
    pub evicted: u64,
    /// Packets that were acknowledged but not captured.
    pub uncaptured_packets: u64,
    /// Table of the highest-ranked flow directions, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowTable>,
    /// Causes, most important first. A cause is ranked by the number of packets in the directions for which it is the
    /// most important one.
    pub causes: Vec<Slow>,
}

/// Cause, summarized over all directions in which it was found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Slow {
    /// Number of flow directions with this cause.
    pub directions: u64,
    /// Direction with the most affected packets, in the form `source > destination`.
    pub flow: String,
    /// The cause in the direction `flow`.
    #[serde(flatten)]
    pub finding: Finding,
    /// Linux settings that remove the cause or reveal where it originates.
    pub linux: Cow<'static, str>,
    /// Grosso command that helps, if any.
    pub grosso: Option<String>,
}

/// Totals over the directions analyzed so far.
#[derive(Debug, Default)]
pub(super) struct Totals {
    directions: u64,
    slow_directions: u64,
    pub(super) evicted: u64,
    pub(super) ranking: Option<Ranking>,
    uncaptured: u64,
    causes: BTreeMap<Cause, CauseTotal>,
}

#[derive(Debug)]
struct CauseTotal {
    directions: u64,
    /// Number of packets in the directions for which this is the most important cause.
    first_packets: u64,
    worst: (Endpoints, Finding),
}

impl Totals {
    /// Adds the causes found in one direction, ordered by importance.
    pub(super) fn add(&mut self, judged: &JudgedFlow<'_>, findings: Vec<Finding>) {
        let &JudgedFlow { flow, figures, .. } = judged;
        if let Some(ranking) = &mut self.ranking {
            ranking.add(judged);
        }
        self.directions += 1;
        self.slow_directions += u64::from(!findings.is_empty());
        self.uncaptured += u64::from(figures.uncaptured);
        for (place, finding) in findings.into_iter().enumerate() {
            let first_packets = if place == 0 { u64::from(figures.packets) } else { 0 };
            match self.causes.get_mut(&finding.cause) {
                Some(total) => {
                    total.directions += 1;
                    total.first_packets += first_packets;
                    if finding.packets > total.worst.1.packets {
                        total.worst = (*flow, finding);
                    }
                }
                None => {
                    let total =
                        CauseTotal { directions: 1, first_packets, worst: (*flow, finding) };
                    self.causes.insert(total.worst.1.cause, total);
                }
            }
        }
    }

    pub(super) fn conclude(self) -> Slowdowns {
        let mut causes: Vec<CauseTotal> = self.causes.into_values().collect();
        causes.sort_by_key(|total| std::cmp::Reverse(total.first_packets));
        let slow = |total: CauseTotal| {
            let (flow, finding) = total.worst;
            Slow {
                directions: total.directions,
                flow: flow.to_string(),
                linux: finding.linux(),
                grosso: finding.grosso(),
                finding,
            }
        };
        Slowdowns {
            directions: self.directions,
            slow_directions: self.slow_directions,
            evicted: self.evicted,
            uncaptured_packets: self.uncaptured,
            flows: self.ranking.map(Ranking::conclude),
            causes: causes.into_iter().map(slow).collect(),
        }
    }
}
