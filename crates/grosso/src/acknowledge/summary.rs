//! Counts of merged acknowledgments that congestion control still needs.

use grosso_wire::tcp;

use crate::acknowledge::Record;

/// Counts of the acknowledgments in one train, taken before a lossy profile keeps only the last one.
///
/// A sender with byte counting (RFC 3465 sections 2.1 and 2.3) grows its congestion window by the bytes that `last`
/// newly acknowledges, but at most by a fixed limit for each of the `packets` acknowledgments. Without this count, it
/// would treat the train as a single acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of packets with ACK set, with or without payload.
    pub packets: u32,
    /// Number of packets without payload.
    pub without_payload: u32,
    /// Number of packets without payload whose acknowledgment number and window equal those of the previous packet.
    pub duplicates: u32,
    /// Acknowledgment number of the first packet.
    pub first: u32,
    /// Acknowledgment number of the last packet.
    pub last: u32,
    /// Arrival time of the first packet in nanoseconds, on the device's clock if there is one.
    pub first_arrived_ns: u64,
    /// Arrival time of the last packet in nanoseconds, on the same clock.
    pub last_arrived_ns: u64,
    /// Range of the TCP timestamps, if any packet had one.
    pub timestamps: Option<Timestamps>,
    /// Number of packets with ECE. RFC 3168 only distinguishes zero from nonzero; DCTCP needs the exact count.
    pub congestion_echoes: u32,
    /// Number of packets with CWR.
    pub windows_reduced: u32,
    /// Number of packets with AE. Together with the counts of ECE and CWR, this gives the increment of the AccECN
    /// counter (RFC 9768).
    pub accurate_echoes: u32,
    /// Unscaled TCP window of the last packet.
    pub window: u16,
    /// Whether a packet's window was smaller than the previous packet's.
    pub window_shrank: bool,
    /// Number of packets with each ECN codepoint in the IP header.
    pub codepoints: [u32; 4],
}

/// Range of the TCP timestamps of several packets, in serial arithmetic (RFC 7323 section 5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// Earliest timestamp value.
    pub value_earliest: u32,
    /// Latest timestamp value.
    pub value_latest: u32,
    /// Earliest timestamp echo.
    pub echo_earliest: u32,
    /// Latest timestamp echo.
    pub echo_latest: u32,
}

impl Summary {
    /// Summarizes `records`, which must be in order of arrival.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let mut summary = Self::default();
        records.iter().for_each(|record| summary.add(record, false));
        summary
    }

    /// Adds a packet that arrived after the packets counted so far.
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
    /// Adds packets with payload that repeat the last acknowledgment. They arrived after the packets counted so far.
    /// `record` is the record of that acknowledgment, with the arrival time of the last added packet.
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
