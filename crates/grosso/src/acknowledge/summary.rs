//! Counts of merged acknowledgments that congestion control still needs.

use grosso_wire::tcp;

use crate::acknowledge::Record;

/// Counts of the acknowledgments in one train, taken before a lossy profile lets the last one overwrite the others.
///
/// A sender that counts bytes grows by at most `packets` times its limit for the bytes that `last` acknowledges beyond
/// the acknowledgment before this train (RFC 3465 sections 2.1 and 2.3); without the count it treats many as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Packets with ACK, with payload or without.
    pub packets: u32,
    /// Those without payload.
    pub without_payload: u32,
    /// Those without news: no payload, and number and window of the packet before them.
    pub duplicates: u32,
    /// The acknowledgment number of the first.
    pub first: u32,
    /// The acknowledgment number of the last.
    pub last: u32,
    /// Arrival of the first, in nanoseconds, by the device's clock if it has one.
    pub first_arrived_ns: u64,
    /// Arrival of the last.
    pub last_arrived_ns: u64,
    /// The timestamps of those that had any.
    pub timestamps: Option<Timestamps>,
    /// Those with ECE: RFC 3168 needs to know of any, DCTCP of each.
    pub congestion_echoes: u32,
    /// Those with CWR.
    pub windows_reduced: u32,
    /// Those with AE; with the two counts before it, the advance of the counter of AccECN (RFC 9768).
    pub accurate_echoes: u32,
    /// The last window, not scaled.
    pub window: u16,
    /// Whether a window was smaller than the one before it.
    pub window_shrank: bool,
    /// Packets by the ECN codepoint of their IP header.
    pub codepoints: [u32; 4],
}

/// The timestamp options of several packets, in serial arithmetic (RFC 7323 section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The earliest value.
    pub value_earliest: u32,
    /// The latest value.
    pub value_latest: u32,
    /// The earliest echo.
    pub echo_earliest: u32,
    /// The latest echo.
    pub echo_latest: u32,
}

impl Summary {
    /// Summarizes records.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let mut summary = Self::default();
        records.iter().for_each(|record| summary.add(record, false));
        summary
    }

    /// Adds a packet that arrived after the others.
    #[inline]
    pub fn add(&mut self, record: &Record, has_payload: bool) {
        if !record.has(tcp::ACK) {
            return;
        }
        let is_first = self.packets == 0;
        if is_first {
            self.first = record.acknowledgment;
            self.first_arrived_ns = record.arrived_ns;
        } else {
            let repeats = record.acknowledgment == self.last && record.window == self.window;
            self.duplicates += u32::from(repeats && !has_payload);
            self.window_shrank |= record.window < self.window;
        }
        self.without_payload += u32::from(!has_payload);
        self.last = record.acknowledgment;
        self.window = record.window;
        self.add_data(record, 1);
        if let Some((value, echo)) = record.timestamps() {
            self.timestamps = Some(match self.timestamps {
                None => Timestamps::first(value, echo),
                Some(before) => before.with(value, echo),
            });
        }
    }
}

impl Summary {
    /// Adds packets with payload that arrived after the others, and say what the one before them said. The record is
    /// that, with the arrival of the last.
    pub(crate) fn add_data(&mut self, record: &Record, packets: u32) {
        if packets == 0 || !record.has(tcp::ACK) {
            return;
        }
        self.packets += packets;
        self.last_arrived_ns = record.arrived_ns;
        let count = |flag| if record.has(flag) { packets } else { 0 };
        self.congestion_echoes += count(tcp::ECE);
        self.windows_reduced += count(tcp::CWR);
        self.accurate_echoes += count(tcp::AE);
        self.codepoints[usize::from(record.congestion())] += packets;
    }
}

impl Timestamps {
    const fn first(value: u32, echo: u32) -> Self {
        Self { value_earliest: value, value_latest: value, echo_earliest: echo, echo_latest: echo }
    }

    const fn with(self, value: u32, echo: u32) -> Self {
        Self {
            value_earliest: earlier(self.value_earliest, value),
            value_latest: later(self.value_latest, value),
            echo_earliest: earlier(self.echo_earliest, echo),
            echo_latest: later(self.echo_latest, echo),
        }
    }
}

const fn earlier(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) < 0 { b } else { a }
}

const fn later(a: u32, b: u32) -> u32 {
    if (b.wrapping_sub(a) as i32) > 0 { b } else { a }
}
