//! Figures that the experiments measure. Their structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Comparison, Consumer, Row, RowGroup};
use crate::{
    experiment::Series,
    netns::{Family, Mtu},
    statistics::{Latency, Spread, ratio},
    traffic::Traffic,
    trial::Measured,
    verdict::Published,
};

/// Figures that an experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OffloadFindings {
    /// Host for which Grosso acts as the NIC.
    pub nic_of: &'static str,
    /// The results, in groups.
    pub groups: Vec<OffloadGroup>,
    /// Gain from delivery in parts for a consumer in memory, if it was measured.
    pub consumer: Option<Consumer>,
}

/// Results that are compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OffloadGroup {
    /// Properties that the settings have in common.
    pub title: String,
    /// MTUs of the hosts.
    pub mtu: Mtu,
    /// IP version.
    pub family: Family,
    /// Traffic between the sockets.
    pub traffic: Traffic,
    /// Number of CPUs that all threads together used.
    pub processors: usize,
    /// The CPUs of sender, data path and receiver, if path and receiver ran on separate CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<[usize; 3]>,
    /// Results, one for each setting.
    pub rows: Vec<OffloadRow>,
    /// Ratio of the first comparison, if there are comparisons.
    pub ratio: Option<f64>,
    /// Comparisons between rows.
    pub comparisons: Vec<Compared>,
    /// Name of the first planned setting, which may have no figures.
    #[serde(skip)]
    pub(super) first: String,
}

/// A comparison of two rows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Compared {
    /// Name of the comparison.
    pub name: &'static str,
    /// Names of the first and the second row.
    #[serde(skip)]
    pub(super) rows: [&'static str; 2],
    /// Gigabits per CPU-second in the first row divided by those in the second; for requests, the ratio of requests per
    /// second.
    pub ratio: f64,
    /// The ratio in the publication whose measurement is repeated.
    pub published: Option<Published>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OffloadRow {
    /// Property that distinguishes the setting from the other rows.
    pub name: String,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Maximum offered rate of each connection in Gb/s; `None` if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_gbps: Option<f64>,
    /// Maximum hold time of trains in microseconds; `None` if Grosso merged nothing.
    pub hold_us: Option<f64>,
    /// Gigabits per CPU-second, over all threads.
    pub gigabits_a_cpu_second: Spread,
    /// Throughput in Gb/s.
    pub gigabits_a_second: Spread,
    /// CPU-seconds per gigabyte, over all threads.
    pub cpu_s_per_gb: Spread,
    /// CPU-seconds per gigabyte for the sender.
    pub sender_cpu_s_per_gb: Spread,
    /// CPU-seconds per gigabyte for the data path and the kernel threads that process packets.
    pub path_cpu_s_per_gb: Spread,
    /// CPU-seconds per gigabyte for the receiver.
    pub receiver_cpu_s_per_gb: Spread,
    /// Percentage of a CPU used by the receiver's host: its thread, the data path that acts as its NIC, and the kernel
    /// threads that process packets.
    pub receiver_cpu_percent: Spread,
    /// Packets per frame that the receiver got; `None` if the kernel forwarded them.
    pub segments_per_train: Option<Spread>,
    /// Packets per receive page; absent if each packet was received into a separate buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_page: Option<Spread>,
    /// Acknowledgments per second.
    pub acknowledgements_a_second: Spread,
    /// Read calls by the receiver per second; for datagrams and requests, their number per second.
    pub reads_a_second: Spread,
    /// Requests answered per second, if there were any.
    pub requests_a_second: Option<Spread>,
    /// Request latency in all runs.
    pub latency: Option<Latency>,
    /// Number of segments retransmitted in all runs.
    pub retransmits: u64,
    /// Number of datagrams and requests lost in all runs.
    pub lost: u64,
    /// Number of bytes that a separate run compared one by one with the bytes sent; `None` for traffic without content.
    pub verified_bytes: Option<u64>,
    /// The measurements.
    pub runs: Vec<Measured>,
}

impl OffloadFindings {
    /// Returns the rows of all groups.
    pub(super) fn rows(&self) -> impl Iterator<Item = &OffloadRow> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

impl OffloadGroup {
    pub(super) fn new(group: &RowGroup, series: Vec<Series<Row, Measured>>) -> Self {
        let rows: Vec<OffloadRow> = series.into_iter().map(OffloadRow::new).collect();
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.name == name)?;
            Some(row.requests_a_second.unwrap_or(row.gigabits_a_cpu_second).median)
        };
        let compared = group.comparisons.iter().filter_map(|comparison| {
            let ratio = ratio(value(comparison.over)?, value(comparison.under)?)?;
            let Comparison { name, over, under, published } = *comparison;
            Some(Compared { name, rows: [over, under], ratio, published })
        });
        let comparisons: Vec<Compared> = compared.collect();
        let setting = &group.rows[0].setting;
        Self {
            title: group.title.clone(),
            first: group.rows[0].name.clone(),
            mtu: setting.layout.mtu,
            family: setting.layout.family,
            traffic: setting.traffic,
            processors: distinct(setting.processors),
            cpus: Some(setting.processors).filter(|[_, path, receiver]| path != receiver),
            ratio: comparisons.first().map(|first| first.ratio),
            comparisons,
            rows,
        }
    }

    /// Returns the row for the first planned setting, if it has figures.
    pub(super) fn first_row(&self) -> Option<&OffloadRow> {
        self.row(&self.first)
    }

    pub(super) fn pair(&self, over: &str, under: &str) -> Option<[&OffloadRow; 2]> {
        Some([self.row(over)?, self.row(under)?])
    }

    /// Returns the row with this name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<&OffloadRow> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl OffloadRow {
    /// Returns the data per CPU-second divided by that in another row, for each run.
    pub(super) fn gain_over(&self, other: &Self) -> Spread {
        let runs = self.runs.iter().zip(&other.runs);
        let gain = |(run, other): (&Measured, &Measured)| {
            run.gigabits_a_cpu_second() / other.gigabits_a_cpu_second()
        };
        Spread::of(runs.map(gain))
    }

    fn new(series: Series<Row, Measured>) -> Self {
        let Series { setting: row, verified_bytes, runs, .. } = series;
        let over = |value: &dyn Fn(&Measured) -> f64| Spread::of(runs.iter().map(value));
        let a_gigabyte = |cpu: f64, run: &Measured| cpu / (run.bytes as f64 * 1e-9);
        let segments = runs.iter().filter_map(|run| run.segments_per_train);
        let in_pages = runs.iter().filter_map(|run| run.packets_per_page);
        let latency = Latency::of(runs.iter().flat_map(|run| &run.latencies).copied());
        Self {
            name: row.name,
            connections: row.setting.connections,
            offered_gbps: row.setting.layout.offered_bits.map(|bits| bits as f64 * 1e-9),
            hold_us: row.setting.hold().map(|hold| hold.as_secs_f64() * 1e6),
            gigabits_a_cpu_second: over(&Measured::gigabits_a_cpu_second),
            gigabits_a_second: over(&Measured::gigabits_a_second),
            cpu_s_per_gb: over(&|run| a_gigabyte(run.cpu_seconds.total(), run)),
            sender_cpu_s_per_gb: over(&|run| a_gigabyte(run.cpu_seconds.sender, run)),
            path_cpu_s_per_gb: over(&|run| {
                a_gigabyte(run.cpu_seconds.path + run.cpu_seconds.kernel, run)
            }),
            receiver_cpu_s_per_gb: over(&|run| a_gigabyte(run.cpu_seconds.receiver, run)),
            receiver_cpu_percent: over(&Measured::receiver_cpu_percent),
            segments_per_train: (segments.clone().count() > 0).then(|| Spread::of(segments)),
            packets_per_page: (in_pages.clone().count() > 0).then(|| Spread::of(in_pages)),
            acknowledgements_a_second: over(&|run| run.acknowledgements as f64 / run.seconds),
            reads_a_second: over(&|run| run.units as f64 / run.seconds),
            requests_a_second: latency.map(|_| over(&|run| run.units as f64 / run.seconds)),
            latency,
            retransmits: runs.iter().map(|run| run.retransmits).sum(),
            lost: runs.iter().map(|run| run.lost).sum(),
            verified_bytes,
            runs,
        }
    }
}

/// Returns how many different CPUs sender, data path and receiver use.
pub(super) fn distinct(processors: [usize; 3]) -> usize {
    let [sender, path, receiver] = processors;
    1 + usize::from(path != sender) + usize::from(receiver != sender && receiver != path)
}
