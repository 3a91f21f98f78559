//! Figures that the experiment measures. Their structure is that of the JSON report.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Roles, TunnelCarrier, TunnelSetting, TunnelTrial, Watched, WatchedPath};
use crate::{
    experiment::Series,
    statistics::{Latency, Spread},
    tunnel::Tunnel,
};

/// Results that are compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelGroup {
    /// Title of the group.
    pub title: &'static str,
    /// Results, one for each setting.
    pub rows: Vec<TunnelRow>,
}

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelRow {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether inner checksums were left to the peer; `None` if the tunnel's headers do not support this, or if the
    /// kernel's tunnel was not configured for it.
    pub remote_checksum: Option<bool>,
    /// The carrier that forwarded the packets.
    pub carrier: TunnelCarrier,
    /// Total throughput of all streams in Mb/s.
    pub megabits_a_second: Spread,
    /// CPU time of the sender and path a during streams, in percent of all CPUs.
    pub tx_cpu_percent: Spread,
    /// CPU time of path b and the receiver during streams, in percent of all CPUs.
    pub rx_cpu_percent: Spread,
    /// CPU-seconds per gigabyte, over all threads.
    pub cpu_s_per_gb: Spread,
    /// Median CPU-seconds per gigabyte for each role.
    pub roles_s_per_gb: Roles,
    /// Requests answered per second, over all connections.
    pub transactions_a_second: Spread,
    /// CPU time of all threads during requests, in percent of all CPUs.
    pub requests_cpu_percent: Spread,
    /// Request latency in all runs.
    pub latency: Option<Latency>,
    /// Median times for checksums and tunnels in trials with clock readings; `None` if the kernel did this work.
    pub costs: Option<[Costs; 2]>,
    /// Number of segments retransmitted in all stream runs.
    pub retransmits: u64,
    /// Number of segments with a wrong checksum in all runs.
    pub checksum_errors: u64,
    /// The measurements.
    pub runs: Vec<TunnelRun>,
}

impl TunnelRow {
    /// Returns the seconds per gigabyte that path b spent on checksums, for each trial with clock readings.
    pub(super) fn received_checksums(&self) -> Spread {
        let watched = self.runs.iter().flat_map(|run| &run.watched);
        Spread::of(watched.map(|one| one.paths[1].checksums_seconds / one.gigabytes))
    }
}

/// One run: trials with streams and a trial with requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelRun {
    /// Trials with streams.
    pub streams: Vec<TunnelTrial>,
    /// Clock readings from trials with streams.
    pub watched: Vec<Watched>,
    /// Trial with requests.
    pub requests: TunnelTrial,
    /// Number of trials of any kind that were repeated because nothing arrived.
    pub repeated: u64,
}

/// Time that a data path spent during streams. In `[Costs; 2]`, the first element is path a, which sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Costs {
    /// Seconds per gigabyte for checksums over more than 64 bytes.
    pub checksums_s_per_gb: f64,
    /// Percentage of the path's CPU time that checksums took, excluding the cost of the clock readings.
    pub checksums_percent: f64,
    /// Seconds per gigabyte for encapsulation and decapsulation: all work on packet headers outside the kernel,
    /// excluding checksums.
    pub tunnel_s_per_gb: f64,
}

/// A comparison of Grosso's VXLAN with another VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelComparison {
    /// Whether Grosso left the inner checksum to the peer.
    pub remote_checksum: bool,
    /// Carrier to compare with.
    pub with: TunnelCarrier,
    /// Grosso's throughput divided by the other carrier's.
    pub throughput: f64,
    /// Grosso's CPU time per gigabyte divided by the other carrier's.
    pub cpu_a_gigabyte: f64,
    /// Grosso's requests per second divided by the other carrier's.
    pub transactions: f64,
}

impl TunnelRow {
    pub(super) fn new(series: Series<TunnelSetting, TunnelRun>, processors: usize) -> Self {
        let Series { setting, runs, .. } = series;
        let streams = || runs.iter().flat_map(|run| &run.streams);
        let stream = |value: &dyn Fn(&TunnelTrial) -> f64| Spread::of(streams().map(value));
        let requests = |value: &dyn Fn(&TunnelTrial) -> f64| {
            Spread::of(runs.iter().map(|run| value(&run.requests)))
        };
        let percent = |cpu: f64, run: &TunnelTrial| cpu / (run.seconds * processors as f64) * 100.0;
        let has_remote_checksum =
            setting.tunnel.has_remote_checksum() && setting.carrier != TunnelCarrier::Kernel;
        let roles_s_per_gb =
            Roles::each(|role| stream(&|run| role(&run.cpu) / run.gigabytes()).median);
        let latencies = runs.iter().flat_map(|run| &run.requests.latencies).copied();
        Self {
            tunnel: setting.tunnel,
            remote_checksum: has_remote_checksum.then_some(setting.remote_checksum),
            carrier: setting.carrier,
            megabits_a_second: stream(&TunnelTrial::megabits_a_second),
            tx_cpu_percent: stream(&|run| percent(run.cpu.sender + run.cpu.path_a, run)),
            rx_cpu_percent: stream(&|run| percent(run.cpu.path_b + run.cpu.receiver, run)),
            cpu_s_per_gb: stream(&|run| run.cpu.total() / run.gigabytes()),
            roles_s_per_gb,
            transactions_a_second: requests(&|run| run.units as f64 / run.seconds),
            requests_cpu_percent: requests(&|run| percent(run.cpu.total(), run)),
            latency: Latency::of(latencies),
            costs: costs(&runs, &roles_s_per_gb),
            retransmits: streams().map(|run| run.retransmits).sum(),
            checksum_errors: (streams().chain(runs.iter().map(|run| &run.requests)))
                .map(|run| run.checksum_errors)
                .sum(),
            runs,
        }
    }
}

/// Returns the median costs over all trials with clock readings. The percentage for checksums is relative to each
/// path's CPU time in the trials without clock readings.
fn costs(runs: &[TunnelRun], roles_s_per_gb: &Roles) -> Option<[Costs; 2]> {
    let watched: Vec<Watched> = runs.iter().flat_map(|run| run.watched.iter().copied()).collect();
    if watched.is_empty() {
        return None;
    }
    let cost = |side: usize, path_s_per_gb: f64| {
        let median = |value: fn(&WatchedPath) -> f64| {
            let values = watched.iter().map(|one| value(&one.paths[side]) / one.gigabytes);
            Spread::of(values).median
        };
        let checksums_s_per_gb = median(|path| path.checksums_seconds);
        Costs {
            checksums_s_per_gb,
            checksums_percent: checksums_s_per_gb / path_s_per_gb * 100.0,
            tunnel_s_per_gb: median(|path| path.tunnel_seconds),
        }
    };
    Some([cost(0, roles_s_per_gb.path_a), cost(1, roles_s_per_gb.path_b)])
}

/// Compares Grosso's VXLAN, with and without remote checksum offload, with every other VXLAN.
pub(super) fn compare(groups: &[TunnelGroup]) -> Vec<TunnelComparison> {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let is_ours =
        |row: &&TunnelRow| (row.tunnel, row.carrier) == (Tunnel::Vxlan, TunnelCarrier::Grosso);
    let others =
        rows().filter(|row| [TunnelCarrier::Plain, TunnelCarrier::Kernel].contains(&row.carrier));
    let pairs = others.flat_map(|other| rows().filter(is_ours).map(move |ours| (ours, other)));
    let ratio = |ours: Spread, other: Spread| ours.median / other.median;
    let compared = pairs.map(|(ours, other)| TunnelComparison {
        remote_checksum: ours.remote_checksum == Some(true),
        with: other.carrier,
        throughput: ratio(ours.megabits_a_second, other.megabits_a_second),
        cpu_a_gigabyte: ratio(ours.cpu_s_per_gb, other.cpu_s_per_gb),
        transactions: ratio(ours.transactions_a_second, other.transactions_a_second),
    });
    compared.collect()
}
