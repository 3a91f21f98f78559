//! One row of the table, and the lines of its contenders.

use serde::Serialize;

use crate::{
    contender::{About, Peer},
    measure::Figures,
    work::{Row, Work},
};

/// One row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct RowReport {
    /// The name that `--only` is compared with.
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) workload: &'static str,
    pub(crate) cache: &'static str,
    pub(crate) contenders: Vec<Line>,
}

/// One contender in a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Work inside the timed part.
    pub(crate) inside: &'static str,
    /// Whether the contender omits checksums that belong to the row's work.
    pub(crate) does_less: bool,
    /// Median nanoseconds per packet.
    pub(crate) ns: f64,
    /// Median of the absolute differences between the rounds and their median.
    pub(crate) spread_ns: f64,
    /// Ratio of the contender's time to Grosso's.
    pub(crate) ratio: f64,
    /// Gigabytes per second, for checksums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gigabytes_a_second: Option<f64>,
    /// Number of frames delivered in one pass.
    pub(crate) frames: usize,
    /// Faults in the delivered frames.
    pub(crate) wrong: Vec<String>,
    /// Nanoseconds per packet of each round.
    pub(crate) rounds_ns: Vec<f64>,
    /// The error, if there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
}

impl Line {
    /// Creates a line for a contender that was measured, or that failed with an error.
    pub(crate) fn new(
        row: &Row,
        about: &About,
        figures: Result<Figures, String>,
        frames: usize,
        wrong: Vec<String>,
    ) -> Self {
        let (figures, failed) = match figures {
            Ok(figures) => (figures, None),
            Err(error) => (Figures::default(), Some(error)),
        };
        let bytes: Option<f64> = row.traffic().parse().ok().filter(|_| row.work == Work::Checksum);
        Self {
            name: about.name(),
            inside: about.inside,
            does_less: about.does_less,
            ns: figures.median,
            spread_ns: figures.spread,
            ratio: figures.ratio,
            gigabytes_a_second: bytes.map(|bytes| bytes / figures.median),
            frames,
            wrong,
            rounds_ns: figures.rounds,
            failed,
        }
    }

    /// Returns whether the contender is Grosso's.
    pub(crate) fn is_grosso(&self) -> bool {
        is_grosso(&self.name)
    }
}

/// Returns whether this name belongs to one of Grosso's contenders.
pub(crate) fn is_grosso(contender: &str) -> bool {
    contender.split(", ").next() == Some(Peer::Grosso.name())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(name: &str, ns: f64, ratio: f64) -> Line {
        Line {
            name: name.to_owned(),
            inside: "parse & join; and a description too long for the first line",
            ns,
            spread_ns: 0.5,
            ratio,
            gigabytes_a_second: None,
            does_less: false,
            frames: 3,
            wrong: Vec::new(),
            rounds_ns: vec![ns],
            failed: None,
        }
    }

    pub(crate) fn row(name: &str, contenders: Vec<Line>) -> RowReport {
        let (work, workload, cache) = (Work::CoalesceTrusted, "tcp4_1", "hot");
        RowReport { name: name.to_owned(), work, workload, cache, contenders }
    }
}
