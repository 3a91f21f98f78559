//! Computes the activity of a device from two readings of its counters.

use schemars::JsonSchema;
use serde::Serialize;

use crate::observe::{
    reading::{DeviceReading, Values},
    table::COUNTERS,
};

/// A device and its activity.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Rates {
    pub pid: u32,
    pub path: String,
    pub device: String,
    pub peer: String,
    /// Whether the path is stuck: one of its threads did not reply in time. Its rates are then unknown.
    pub stuck: bool,
    /// Age of the counters in nanoseconds if the path is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_ns: Option<u64>,
    /// Receive rate of wire packets, including headers, in Gbit/s.
    pub rx_gbit_per_s: f64,
    /// Rate at which packets arrive, in thousands per second.
    pub rx_kpackets_per_s: f64,
    /// Wire packets per frame that was passed on from the device.
    pub rx_packets_per_batch: f64,
    /// Transmit rate of wire packets, including headers, in Gbit/s.
    pub tx_gbit_per_s: f64,
    /// Wire packets per frame queued for sending.
    pub tx_packets_per_send: f64,
    /// Number of held trains of packets from the device.
    pub trains_held: u64,
    /// Frames with wrong checksums and frames lost, so far.
    pub total: Faults,
    /// Frames with wrong checksums and frames lost, in the interval.
    pub interval: Faults,
    /// Shares of the flushed trains by kind of reason; `None` if no train was flushed.
    pub flush: Option<Flush>,
    /// Reasons why trains were flushed and frames were lost in the interval, most frequent first.
    #[serde(skip)]
    pub reasons: Reasons,
}

/// Counts of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Faults {
    pub csum_bad: u64,
    pub drops: u64,
}

/// Shares of flushed trains, from 0 to 1. The shares of other reasons are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Flush {
    /// Trains that had reached the maximum size.
    pub size: f64,
    /// Trains that ended because a timestamp or another TCP option differed.
    pub ts: f64,
    /// Trains that ended with PSH or FIN.
    pub psh: f64,
    /// Trains that ended because a packet was lost or arrived too late.
    pub gap: f64,
    /// Trains that ended with the poll or after the maximum hold time.
    pub time: f64,
}

/// Counts by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Flushed trains.
    pub flush: Vec<(&'static str, u64)>,
    /// Packets that merged with no other packet.
    pub pass: Vec<(&'static str, u64)>,
    /// Lost frames.
    pub drops: Vec<(&'static str, u64)>,
}

impl Rates {
    /// Returns the activity of a device between two readings that are `seconds` apart.
    pub fn of(pid: u32, now: &DeviceReading, before: &DeviceReading, seconds: f64) -> Self {
        let change = now.counters.since(&before.counters);
        let a_second = |name: &str, unit: f64| change.value(name) as f64 / unit / seconds;
        let batches: u64 = grouped(&change, "rx_gro_segs")
            .filter(|(key, _)| *key != "sum")
            .map(|(_, frames)| frames)
            .sum();
        let (batched, batches) = match batches {
            0 => (change.value("rx_packets"), change.value("rx_frames")),
            batches => (change.value("rx_gro_segs_sum"), batches),
        };
        let sends = change.value("tx_needs_csum") + change.value("tx_csum_none");
        Self {
            pid,
            path: now.path.clone(),
            device: now.device.clone(),
            peer: now.peer.clone(),
            stuck: now.stuck_ns.is_some(),
            stuck_ns: now.stuck_ns,
            rx_gbit_per_s: 8.0 * a_second("rx_bytes", 1e9),
            rx_kpackets_per_s: a_second("rx_packets", 1e3),
            rx_packets_per_batch: ratio(batched, batches),
            tx_gbit_per_s: 8.0 * a_second("tx_bytes", 1e9),
            tx_packets_per_send: ratio(change.value("tx_packets"), sends),
            trains_held: now.counters.value("rx_gro_held"),
            total: Faults::of(&now.counters),
            interval: Faults::of(&change),
            flush: Flush::of(&change),
            reasons: Reasons::of(&change),
        }
    }
}

impl Faults {
    fn of(values: &Values) -> Self {
        let drops = grouped(values, "drops").map(|(_, count)| count).sum();
        Self { csum_bad: values.value("rx_csum_bad"), drops }
    }
}

impl Flush {
    fn of(change: &Values) -> Option<Self> {
        let all: u64 = grouped(change, "rx_gro_flush").map(|(_, trains)| trains).sum();
        let share = |reasons: &[&str]| {
            let trains = grouped(change, "rx_gro_flush");
            let trains = trains.filter(|(reason, _)| reasons.contains(reason));
            ratio(trains.map(|(_, trains)| trains).sum(), all)
        };
        (all > 0).then(|| Self {
            size: share(&["size_limit", "segment_limit"]),
            ts: share(&["tcp_timestamp", "tcp_options"]),
            psh: share(&["psh", "fin"]),
            gap: share(&["tcp_sequence_ahead", "tcp_sequence_behind"]),
            time: share(&["poll_end", "hold_time"]),
        })
    }

    /// Returns the shares with their names, in the order of the columns.
    pub fn shares(&self) -> [(&'static str, f64); 5] {
        let Self { size, ts, psh, gap, time } = *self;
        [("size", size), ("ts", ts), ("psh", psh), ("gap", gap), ("time", time)]
    }
}

impl Reasons {
    fn of(change: &Values) -> Self {
        let sorted = |group| {
            let mut counts: Vec<_> =
                grouped(change, group).filter(|(_, count)| *count > 0).collect();
            counts.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
            counts
        };
        Self { flush: sorted("rx_gro_flush"), pass: sorted("rx_gro_pass"), drops: sorted("drops") }
    }
}

/// Returns the counters of one object in the JSON reports.
fn grouped<'a>(
    values: &'a Values,
    wanted: &'a str,
) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    COUNTERS.iter().zip(values.in_order()).filter_map(move |(counter, value)| {
        let (group, key) = counter.group.as_ref()?;
        (*group == wanted).then_some((key.as_str(), value?))
    })
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns a table of devices as text of at most 80 columns: two lines of headings, and one line per device.
pub fn table(rates: &[Rates]) -> String {
    let mut text = String::new();
    for head in 0..2 {
        text.push_str(&format!("{:<DEVICE_COLUMNS$}", ["", "dev"][head]));
        COLUMNS.iter().for_each(|column| {
            text.push_str(&format!("{:>width$}", column.heads[head], width = column.width));
        });
        text.push('\n');
    }
    for device in rates {
        text.push_str(&format!("{:<DEVICE_COLUMNS$}", shortened(&device.device, DEVICE_COLUMNS)));
        for (column, cell) in COLUMNS.iter().zip(cells(device, false)) {
            text.push_str(&format!("{cell:>width$}", width = column.width));
        }
        text.push('\n');
    }
    text
}

/// A numeric column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading in two lines.
    pub heads: [&'static str; 2],
    /// Width of the column, including the spaces before the number.
    pub width: usize,
    /// Sort key of the devices.
    pub key: fn(&Rates) -> f64,
}

/// The columns after the device's name.
pub const COLUMNS: [Column; 12] = [
    column(["rx", "Gbit/s"], 7, |device| device.rx_gbit_per_s),
    column(["rx", "kpps"], 7, |device| device.rx_kpackets_per_s),
    column(["in", "batch"], 6, |device| device.rx_packets_per_batch),
    column(["tx", "Gbit/s"], 7, |device| device.tx_gbit_per_s),
    column(["segs", "/send"], 6, |device| device.tx_packets_per_send),
    column(["csum", "bad"], 6, |device| device.total.csum_bad as f64),
    column(["", "drops"], 7, |device| device.total.drops as f64),
    column(["flush", "size"], 6, |device| share(device, 0)),
    column(["%", "ts"], 4, |device| share(device, 1)),
    column(["", "psh"], 4, |device| share(device, 2)),
    column(["", "gap"], 4, |device| share(device, 3)),
    column(["", "time"], 5, |device| share(device, 4)),
];

const fn column(heads: [&'static str; 2], width: usize, key: fn(&Rates) -> f64) -> Column {
    Column { heads, width, key }
}

fn share(device: &Rates, place: usize) -> f64 {
    device.flush.map_or(0.0, |flush| flush.shares()[place].1)
}

/// Returns the cells of a device for the headings of [`COLUMNS`]. With `deltas`, fault counts cover the interval,
/// otherwise they are totals. A device whose path is stuck has [`STUCK`] in the first cell and no numbers.
pub fn cells(device: &Rates, deltas: bool) -> [String; COLUMNS.len()] {
    if device.stuck {
        return core::array::from_fn(|place| if place == 0 { STUCK } else { "-" }.to_owned());
    }
    let faults = if deltas { device.interval } else { device.total };
    let percent = |place: usize| match device.flush {
        Some(flush) => format!("{:.0}", flush.shares()[place].1 * 100.0),
        None => "-".to_owned(),
    };
    [
        format!("{:.2}", device.rx_gbit_per_s),
        thousands(device.rx_kpackets_per_s),
        format!("{:.1}", device.rx_packets_per_batch),
        format!("{:.2}", device.tx_gbit_per_s),
        format!("{:.1}", device.tx_packets_per_send),
        short(faults.csum_bad),
        short(faults.drops),
        percent(0),
        percent(1),
        percent(2),
        percent(3),
        percent(4),
    ]
}

fn thousands(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Formats a count in at most five characters.
fn short(count: u64) -> String {
    match count {
        0..100_000 => count.to_string(),
        100_000..10_000_000 => format!("{}k", count / 1000),
        10_000_000..10_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

/// Returns `name`, shortened or padded to `columns` columns, and a space.
pub fn shortened(name: &str, columns: usize) -> String {
    if name.chars().count() < columns {
        return name.to_owned();
    }
    name.chars().take(columns.saturating_sub(2)).chain(['~']).collect()
}

/// Text in the table for a device whose path is stuck.
pub const STUCK: &str = "stuck";
/// Width of the name in a table of 80 columns.
pub const DEVICE_COLUMNS: usize = 11;
