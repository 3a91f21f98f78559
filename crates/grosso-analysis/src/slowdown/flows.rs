//! Table of the flow directions that rank highest by a chosen column, such as bytes or lost packets.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use grosso_report::{style::Style, units};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    cause::Cause,
    figures::Figures,
    merging::{FlowMerging, Merging},
};
use crate::{
    evidence::{Evidence, Size},
    headers::Endpoints,
    report::{count_lines, list_lines, wrap},
};

/// Sort key of the flow table, whose rows are in descending order.
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
    /// Round-trip time.
    RoundTrip,
    /// Retransmissions.
    Retransmissions,
    /// Packets lost before and after the capture point.
    Lost,
    /// Packets per train after merging.
    Merged,
    /// Frames delivered after merging: flows that merge badly come first.
    Delivered,
    /// 99th percentile of the waiting times of packets.
    Held,
}

/// Flows in a capture: TCP and UDP directions that carry data.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowTable {
    /// Number of flow directions that carry data.
    pub directions: u64,
    /// Column by which the rows were selected and sorted.
    pub sorted_by: FlowOrder,
    /// Rules used to merge packets into trains; `None` if no packets were merged.
    pub merged_by: Option<String>,
    /// Rows for the highest-ranked flow directions.
    pub rows: Vec<FlowRow>,
}

/// One direction of a TCP or UDP flow. Packets are wire packets: a superframe counts as its segments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowRow {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Source and destination, in the form `source > destination`.
    pub flow: String,
    /// Source and destination.
    #[serde(skip)]
    pub endpoints: Endpoints,
    /// Payload bytes.
    pub bytes: u64,
    /// Packets with data.
    pub packets: u64,
    /// Frames that contain several packets.
    pub superframes: u64,
    /// Wire packets per captured frame.
    pub packets_per_train: f64,
    /// Payload bytes in a full packet.
    pub segment_bytes: u32,
    /// Evidence for the segment size; `None` if the size was taken from the largest packet.
    pub segment_source: Option<Evidence>,
    /// Whether the evidence also allows a different segment size.
    pub segment_guess: bool,
    /// Minimum round-trip time; `None` if the capture does not reveal it.
    pub round_trip_ns: Option<u64>,
    /// Packets that repeat earlier data; `None` for UDP.
    pub retransmissions: Option<u64>,
    /// Packets lost before the capture point; `None` for UDP.
    pub lost_before: Option<u64>,
    /// Packets lost after the capture point; `None` for UDP.
    pub lost_after: Option<u64>,
    /// Most important cause that slows down the direction.
    pub cause: Option<Cause>,
    /// Statistics on the direction's trains; `None` if no packets were merged.
    pub merging: Option<FlowMerging>,
}

/// Direction with the results of the search for causes.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedFlow<'a> {
    pub(super) flow: &'a Endpoints,
    pub(super) figures: &'a Figures,
    /// Minimum round-trip time in nanoseconds; 0 if unknown.
    pub(super) round_trip_ns: u64,
    /// Most important cause.
    pub(super) cause: Option<Cause>,
    pub(super) merging: Option<&'a Merging>,
}

/// Ranking that keeps the highest-ranked flow directions seen so far.
#[derive(Debug)]
pub(super) struct Ranking {
    order: FlowOrder,
    limit: usize,
    /// Min-heap, with the smallest direction at the top.
    rows: BinaryHeap<Reverse<Ranked>>,
    directions: u64,
    pub(super) merged_by: Option<String>,
}

/// Direction, its sort value, and its index among all directions.
#[derive(Debug)]
struct Ranked {
    key: (u64, Reverse<u64>),
    row: Box<FlowRow>,
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
        Self { order, limit, rows: BinaryHeap::new(), directions: 0, merged_by: None }
    }

    /// Adds a direction, and drops the smallest one if there are too many.
    pub(super) fn add(&mut self, judged: &JudgedFlow<'_>) {
        let key = (self.order.key(judged), Reverse(self.directions));
        self.directions += 1;
        let is_small = self.rows.peek().is_some_and(|Reverse(least)| key < least.key);
        if self.rows.len() >= self.limit && is_small {
            return;
        }
        self.rows.push(Reverse(Ranked { key, row: Box::new(judged.row()) }));
        if self.rows.len() > self.limit {
            self.rows.pop();
        }
    }

    /// Removes and returns all rows so far, in no particular order.
    #[cfg(feature = "tables")]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = FlowRow> {
        self.rows.drain().map(|Reverse(ranked)| *ranked.row)
    }

    pub(super) fn conclude(self) -> FlowTable {
        let rows = self.rows.into_sorted_vec();
        FlowTable {
            directions: self.directions,
            sorted_by: self.order,
            merged_by: self.merged_by,
            rows: rows.into_iter().map(|Reverse(ranked)| *ranked.row).collect(),
        }
    }
}

impl JudgedFlow<'_> {
    fn row(&self) -> FlowRow {
        let &Self { flow, figures, .. } = self;
        let tcp = |count: u32| flow.is_tcp.then_some(u64::from(count));
        FlowRow {
            protocol: if flow.is_tcp { "tcp" } else { "udp" },
            flow: flow.to_string(),
            endpoints: *flow,
            bytes: figures.bytes,
            packets: figures.packets.into(),
            superframes: figures.superframes.into(),
            packets_per_train: train_tenths(figures) as f64 / 10.0,
            segment_bytes: figures.size.map_or(figures.segment_max, |size| size.bytes.into()),
            segment_source: figures.size.map(|size| size.by),
            segment_guess: figures.size.is_some_and(|Size { is_guess, .. }| is_guess),
            round_trip_ns: (self.round_trip_ns > 0).then_some(self.round_trip_ns),
            retransmissions: tcp(figures.retransmitted),
            lost_before: tcp(figures.lost_before),
            lost_after: tcp(figures.lost_after()),
            cause: self.cause,
            merging: self.merging.map(Merging::row),
        }
    }
}

impl FlowOrder {
    /// All sort keys.
    pub const ALL: [Self; 10] = [
        Self::Bytes,
        Self::Packets,
        Self::Superframes,
        Self::Train,
        Self::RoundTrip,
        Self::Retransmissions,
        Self::Lost,
        Self::Merged,
        Self::Delivered,
        Self::Held,
    ];

    /// Returns the name of the sort key in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::Superframes => "superframes",
            Self::Train => "train",
            Self::RoundTrip => "rtt",
            Self::Retransmissions => "retransmissions",
            Self::Lost => "lost",
            Self::Merged => "merged",
            Self::Delivered => "delivered",
            Self::Held => "held",
        }
    }

    fn key(self, judged: &JudgedFlow<'_>) -> u64 {
        let &JudgedFlow { figures, round_trip_ns, merging, .. } = judged;
        match self {
            Self::Bytes => figures.bytes,
            Self::Packets => figures.packets.into(),
            Self::Superframes => figures.superframes.into(),
            Self::Train => train_tenths(figures),
            Self::RoundTrip => round_trip_ns,
            Self::Retransmissions => figures.retransmitted.into(),
            Self::Lost => u64::from(figures.lost_before) + u64::from(figures.lost_after()),
            Self::Merged => merging.map_or(0, Merging::train_tenths),
            Self::Delivered => merging.map_or(0, Merging::trains),
            Self::Held => merging.map_or(0, Merging::held_p99_ns),
        }
    }
}

/// Returns the number of packets per frame in tenths.
fn train_tenths(figures: &Figures) -> u64 {
    let frames = u64::from(figures.frames.max(1));
    (10 * u64::from(figures.packets) + frames / 2) / frames
}

impl FlowTable {
    /// Returns a table with two lines per direction, and more if packets were merged. Lines are at most 80 columns
    /// wide, unless an IPv6 address is longer.
    pub fn text(&self, style: Style) -> String {
        let Self { directions, sorted_by, merged_by, rows } = self;
        if rows.is_empty() {
            return "no TCP or UDP data, so no flows\n".into();
        }
        let count = match rows.len() as u64 {
            all if all == *directions => units::count(all, "direction"),
            some => format!("{some} of {directions} directions"),
        };
        let merged = merged_by.as_ref().map(|rules| format!("; trains as merged by {rules}"));
        let (merged, order) = (merged.unwrap_or_default(), sorted_by.name());
        let mut text = wrap(&format!("{count}, sorted by {order}{merged}:"));
        text.push_str(&style.faint(&line(&HEAD.map(str::to_owned))));
        text.push('\n');
        for row in rows {
            let cause = row.cause.map(|cause| format!("  {}", style.notice(cause.label())));
            let protocol = if row.protocol == "tcp" { "" } else { "udp " };
            text.push_str(&format!("{protocol}{}{}\n", row.flow, cause.unwrap_or_default()));
            text.push_str(&line(&row.cells()));
            text.push('\n');
            text.push_str(&row.merging.as_ref().map_or(String::new(), FlowMerging::text));
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
        let or_none = |count: Option<u64>| count.map_or_else(|| "-".into(), |n| n.to_string());
        [
            units::bytes(self.bytes),
            self.packets.to_string(),
            self.superframes.to_string(),
            format!("{:.1}", self.packets_per_train),
            format!("{} {source}", self.segment_bytes),
            self.round_trip_ns.map_or_else(|| "-".into(), units::duration),
            or_none(self.retransmissions),
            or_none(self.lost_before),
            or_none(self.lost_after),
        ]
    }
}

impl FlowMerging {
    /// Formats the trains of a direction: their number and size, their waiting times, and why they ended.
    fn text(&self) -> String {
        let Self { trains, packets_per_train, ended, held_ns } = self;
        let held = held_ns.map(|held| {
            let (p50, p99) = (units::duration(held.p50), units::duration(held.p99));
            format!("held p50 {p50}, p99 {p99}")
        });
        let trains =
            [units::count(*trains, "train"), format!("{packets_per_train:.1} packets each")];
        list_lines("merged", trains.into_iter().chain(held)) + &count_lines("ended by", ended)
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

/// Column headings. `before` and `after` are packets lost before and after the capture point.
const HEAD: [&str; 9] =
    ["bytes", "packets", "super", "train", "segment", "rtt", "retrans", "before", "after"];
const WIDTHS: [usize; 9] = [9, 8, 7, 5, 15, 7, 7, 6, 6];
/// Maximum number of rows in a table. This many take about 4 MB.
pub const ROWS_MAX: usize = 10_000;
