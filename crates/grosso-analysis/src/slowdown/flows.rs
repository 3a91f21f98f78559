//! Table of the largest TCP directions by one figure.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use grosso_report::{style::Style, units};
use schemars::JsonSchema;
use serde::Serialize;

use super::{cause::Cause, figures::Figures};
use crate::{
    evidence::{Evidence, Size},
    headers::Endpoints,
};

/// The figure by which a table of flows is sorted, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowOrder {
    /// Payload bytes.
    #[default]
    Bytes,
    /// Packets with data.
    Packets,
    /// Superframes.
    Superframes,
    /// Packets per train.
    Train,
    /// Round trip.
    RoundTrip,
    /// Retransmissions.
    Retransmissions,
    /// Packets lost before and after the capture point.
    Lost,
}

/// The flows of a capture: TCP directions with data.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowTable {
    /// Directions with data in the capture.
    pub directions: u64,
    /// The figure that chose and sorted the rows.
    pub sorted_by: FlowOrder,
    /// The largest directions.
    pub rows: Vec<FlowRow>,
}

/// One direction of a TCP connection. Packets are wire packets: a superframe counts as its segments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowRow {
    /// Source and destination, as `source > destination`.
    pub flow: String,
    /// Payload bytes.
    pub bytes: u64,
    /// Packets with data.
    pub packets: u64,
    /// Frames of several packets.
    pub superframes: u64,
    /// Packets per frame, where a frame is a superframe or a single packet.
    pub packets_per_train: f64,
    /// Payload bytes of a full packet.
    pub segment_bytes: u32,
    /// The evidence for the segment size; `None` if it is the largest packet.
    pub segment_source: Option<Evidence>,
    /// Whether the evidence leaves room for another segment size.
    pub segment_guess: bool,
    /// The shortest round trip; `None` if the capture does not show it.
    pub round_trip_ns: Option<u64>,
    /// Packets that repeat data.
    pub retransmissions: u64,
    /// Packets lost before the capture point.
    pub lost_before: u64,
    /// Packets lost after the capture point.
    pub lost_after: u64,
    /// The most important cause that slows the direction.
    pub cause: Option<Cause>,
}

/// Largest directions so far.
#[derive(Debug)]
pub(super) struct Ranking {
    order: FlowOrder,
    limit: usize,
    /// Min-heap: the smallest direction first.
    rows: BinaryHeap<Reverse<Ranked>>,
    directions: u64,
}

/// A direction, its figure, and its index among all directions.
#[derive(Debug)]
struct Ranked {
    key: (u64, Reverse<u64>),
    flow: Endpoints,
    figures: Box<Figures>,
    round_trip_ns: u64,
    cause: Option<Cause>,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl Ranking {
    pub(super) fn new(order: FlowOrder, limit: usize) -> Self {
        Self { order, limit: limit.min(ROWS_MAX), rows: BinaryHeap::new(), directions: 0 }
    }

    /// Adds a direction, and drops the smallest one beyond the limit.
    pub(super) fn add(
        &mut self,
        flow: &Endpoints,
        figures: &Figures,
        round_trip_ns: u64,
        cause: Option<Cause>,
    ) {
        let key = (self.order.key(figures, round_trip_ns), Reverse(self.directions));
        self.directions += 1;
        let is_small = self.rows.peek().is_some_and(|Reverse(least)| key < least.key);
        if self.rows.len() >= self.limit && is_small {
            return;
        }
        let figures = Box::new(figures.clone());
        self.rows.push(Reverse(Ranked { key, flow: *flow, figures, round_trip_ns, cause }));
        if self.rows.len() > self.limit {
            self.rows.pop();
        }
    }

    pub(super) fn conclude(self) -> FlowTable {
        let rows = self.rows.into_sorted_vec();
        FlowTable {
            directions: self.directions,
            sorted_by: self.order,
            rows: rows.into_iter().map(|Reverse(ranked)| ranked.flow()).collect(),
        }
    }
}

impl Ranked {
    fn flow(self) -> FlowRow {
        let figures = &self.figures;
        FlowRow {
            flow: self.flow.to_string(),
            bytes: figures.bytes,
            packets: figures.packets.into(),
            superframes: figures.superframes.into(),
            packets_per_train: train_tenths(figures) as f64 / 10.0,
            segment_bytes: figures.size.map_or(figures.segment_max, |size| size.bytes.into()),
            segment_source: figures.size.map(|size| size.by),
            segment_guess: figures.size.is_some_and(|Size { is_guess, .. }| is_guess),
            round_trip_ns: (self.round_trip_ns > 0).then_some(self.round_trip_ns),
            retransmissions: figures.retransmitted.into(),
            lost_before: figures.lost_before.into(),
            lost_after: figures.lost_after().into(),
            cause: self.cause,
        }
    }
}

impl FlowOrder {
    /// All orders.
    pub const ALL: [Self; 7] = [
        Self::Bytes,
        Self::Packets,
        Self::Superframes,
        Self::Train,
        Self::RoundTrip,
        Self::Retransmissions,
        Self::Lost,
    ];

    /// Returns the name of the figure in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Superframes => "superframes",
            Self::Train => "train",
            Self::RoundTrip => "rtt",
            Self::Retransmissions => "retransmissions",
            Self::Lost => "lost",
        }
    }

    fn key(self, figures: &Figures, round_trip_ns: u64) -> u64 {
        match self {
            Self::Bytes => figures.bytes,
            Self::Packets => figures.packets.into(),
            Self::Superframes => figures.superframes.into(),
            Self::Train => train_tenths(figures),
            Self::RoundTrip => round_trip_ns,
            Self::Retransmissions => figures.retransmitted.into(),
            Self::Lost => u64::from(figures.lost_before) + u64::from(figures.lost_after()),
        }
    }
}

/// Returns the packets per frame in tenths.
fn train_tenths(figures: &Figures) -> u64 {
    let frames = u64::from(figures.frames.max(1));
    (10 * u64::from(figures.packets) + frames / 2) / frames
}

impl FlowTable {
    /// Returns a table with two lines per direction, at most 80 columns wide unless an IPv6 address is longer.
    pub fn text(&self, style: Style) -> String {
        let Self { directions, sorted_by, rows } = self;
        if rows.is_empty() {
            return "no TCP data, so no flows\n".into();
        }
        let count = match rows.len() as u64 {
            all if all == *directions => units::count(all, "TCP direction"),
            some => format!("{some} of {directions} TCP directions"),
        };
        let mut text = format!("{count}, by {}:\n", sorted_by.name());
        text.push_str(&style.faint(&line(&HEAD.map(str::to_owned))));
        text.push('\n');
        for row in rows {
            let cause = row.cause.map(|cause| format!("  {}", style.notice(cause.label())));
            text.push_str(&format!("{}{}\n", row.flow, cause.unwrap_or_default()));
            text.push_str(&line(&row.cells()));
            text.push('\n');
        }
        text
    }
}

impl FlowRow {
    fn cells(&self) -> [String; 9] {
        let source = match (self.segment_source, self.segment_guess) {
            (None, _) => "largest".to_owned(),
            (Some(by), false) => by.code().to_owned(),
            (Some(by), true) => format!("{}?", by.code()),
        };
        [
            units::bytes(self.bytes),
            self.packets.to_string(),
            self.superframes.to_string(),
            format!("{:.1}", self.packets_per_train),
            format!("{} {source}", self.segment_bytes),
            self.round_trip_ns.map_or_else(|| "-".into(), units::duration),
            self.retransmissions.to_string(),
            self.lost_before.to_string(),
            self.lost_after.to_string(),
        ]
    }
}

/// Returns a line of right-aligned cells.
fn line(cells: &[String; 9]) -> String {
    let mut text = String::from(" ");
    for (cell, width) in cells.iter().zip(WIDTHS) {
        text.push_str(&format!(" {cell:>width$}"));
    }
    text
}

/// Column heads; `before` and `after` are packets lost before and after the capture point.
const HEAD: [&str; 9] =
    ["bytes", "packets", "super", "train", "segment", "rtt", "retrans", "before", "after"];
const WIDTHS: [usize; 9] = [9, 8, 7, 5, 15, 7, 7, 6, 6];
/// Maximum number of rows in a table: about 4 MB.
pub const ROWS_MAX: usize = 10_000;
