//! Results of the experiment, as the JSON has them.

use std::io;

use grosso_sys::scheduling::allowed_processors;
use serde::Serialize;

use super::{
    Carrier, Group, Measured, Paired, Plan, Roles, Setting, Tunnel, Watched, WatchedPath, verdict,
};
use crate::{
    conditions::Conditions,
    experiment::{Latency, Spread, Verdict},
    hosts::Device,
};

/// Results of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Conditions of the measurement, needed to compare the figures with others.
    pub environment: Environment,
    /// The results: Grosso's tunnels, then those they are compared with.
    pub groups: Vec<GroupResult>,
    /// Each tunnel with remote checksum offload, compared with the same without.
    pub paired: Vec<Paired>,
    /// Grosso's VXLAN, compared with that of others.
    pub comparisons: Vec<Compared>,
    /// Table R4 as it was published.
    pub published: [Published; 7],
    /// Claims to be shown, and whether they hold.
    pub verdicts: Vec<Verdict>,
    /// Notes on reading the figures.
    pub notes: Vec<String>,
}

/// Conditions of the measurement, needed to compare figures with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// Conditions that every experiment reports.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// TCP connections at once.
    pub streams: usize,
    /// The congestion control of TCP.
    pub congestion: String,
}

/// Results to compare with each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupResult {
    /// Title of the group.
    pub title: &'static str,
    /// One for each setting.
    pub rows: Vec<RowResult>,
}

/// The result of one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RowResult {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether inner checksums were left to the other end; `None` if the headers have no room for that, or if the
    /// kernel's tunnel was not asked for it.
    pub remote_checksum: Option<bool>,
    /// Carrier of the tunnel.
    pub carrier: Carrier,
    /// Megabits a second of all streams.
    pub megabits_a_second: Spread,
    /// Processor time of the sender and path a, in percent of all processors, during streams.
    pub tx_cpu_percent: Spread,
    /// Processor time of path b and the receiver, in percent of all processors, during streams.
    pub rx_cpu_percent: Spread,
    /// Processor seconds a gigabyte of all threads.
    pub cpu_s_per_gb: Spread,
    /// Processor seconds a gigabyte by role: medians.
    pub roles_s_per_gb: Roles,
    /// Requests answered a second, over all connections.
    pub transactions_a_second: Spread,
    /// Processor time of all threads, in percent of all processors, during requests.
    pub requests_cpu_percent: Spread,
    /// Latency of the requests, in all runs.
    pub latency: Option<Latency>,
    /// Time of checksums and tunnels, from trials with the clock: medians; `None` if the kernel did this work.
    pub costs: Option<[Costs; 2]>,
    /// Segments retransmitted, in all runs of streams.
    pub retransmits: u64,
    /// Segments with a wrong checksum, in all runs.
    pub checksum_errors: u64,
    /// The measurements.
    pub runs: Vec<Run>,
}

/// One measurement of each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// Trials of streams.
    pub streams: Vec<Measured>,
    /// Trials of streams with the clock: its readings.
    pub watched: Vec<Watched>,
    /// The trial of requests.
    pub requests: Measured,
}

/// Time of one data path during streams. In `[Costs; 2]`, the first is path a, which sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// Seconds a gigabyte in checksums of more than 64 bytes.
    pub checksums_s_per_gb: f64,
    /// Their share of the path's processor time without the clock, in percent.
    pub checksums_percent: f64,
    /// Seconds a gigabyte for encapsulation and decapsulation: all work outside the kernel on the headers of packets,
    /// without checksums.
    pub tunnel_s_per_gb: f64,
}

/// Grosso's VXLAN compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// Whether Grosso left the inner checksum to the other end.
    pub remote_checksum: bool,
    /// The other carrier.
    pub with: Carrier,
    /// Ratio of Grosso's throughput to the other's.
    pub throughput: f64,
    /// Ratio of Grosso's processor time a gigabyte to the other's.
    pub cpu_a_gigabyte: f64,
    /// Ratio of Grosso's requests a second to the other's.
    pub transactions: f64,
}

/// A row of table R4 as published in 2014.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Published {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether inner checksums were left to the other end.
    pub remote_checksum: Option<bool>,
    /// Megabits a second of 200 streams.
    pub megabits_a_second: u32,
    /// Load of the sender's processors, in percent.
    pub tx_cpu_percent: f64,
    /// Load of the receiver's processors, in percent.
    pub rx_cpu_percent: f64,
    /// Requests a second.
    pub transactions_a_second: u32,
    /// Load of the processors during requests, in percent.
    pub requests_cpu_percent: f64,
    /// The 90th, 95th and 99th percentile of latency, in microseconds.
    pub latency_us: [u16; 3],
}

impl Report {
    pub(super) fn new(plan: &Plan, groups: &[Group], rows: Vec<Vec<Vec<Run>>>) -> io::Result<Self> {
        Self::on(allowed_processors()?.len(), plan, groups, rows)
    }

    /// The report for that many processors.
    pub(super) fn on(
        processors: usize,
        plan: &Plan,
        groups: &[Group],
        rows: Vec<Vec<Vec<Run>>>,
    ) -> io::Result<Self> {
        let groups = groups.iter().zip(rows).map(|(group, rows)| {
            let rows = group.settings.iter().zip(rows);
            let rows = rows.map(|(setting, runs)| RowResult::new(setting, runs, processors));
            GroupResult { title: group.title, rows: rows.collect() }
        });
        let groups: Vec<GroupResult> = groups.collect();
        let paired = Paired::all(&groups);
        let conditions = Conditions::of(plan.runs, plan.measured, plan.device)?;
        Ok(Self {
            experiment: "tunnels",
            environment: Environment {
                conditions: Conditions { processors, ..conditions },
                streams: plan.streams,
                congestion: plan.congestion.clone(),
            },
            comparisons: compare(&groups),
            published: PUBLISHED,
            verdicts: verdict::judge(&groups, &paired),
            paired,
            notes: notes(plan, &groups),
            groups,
        })
    }
}

impl RowResult {
    fn new(setting: &Setting, runs: Vec<Run>, processors: usize) -> Self {
        let streams = || runs.iter().flat_map(|run| &run.streams);
        let stream = |value: &dyn Fn(&Measured) -> f64| Spread::of(streams().map(value));
        let requests = |value: &dyn Fn(&Measured) -> f64| {
            Spread::of(runs.iter().map(|run| value(&run.requests)))
        };
        let percent = |cpu: f64, run: &Measured| cpu / (run.seconds * processors as f64) * 100.0;
        let has_remote_checksum =
            setting.tunnel.has_remote_checksum() && setting.carrier != Carrier::Kernel;
        let roles_s_per_gb =
            Roles::each(|role| stream(&|run| role(&run.cpu) / run.gigabytes()).median);
        let latencies = runs.iter().flat_map(|run| &run.requests.latencies).copied();
        Self {
            tunnel: setting.tunnel,
            remote_checksum: has_remote_checksum.then_some(setting.remote_checksum),
            carrier: setting.carrier,
            megabits_a_second: stream(&Measured::megabits_a_second),
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

/// Medians of the clock's readings over all runs, and their share of the paths' time without the clock.
fn costs(runs: &[Run], roles_s_per_gb: &Roles) -> Option<[Costs; 2]> {
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

/// Comparisons of Grosso's VXLAN with each other one, with remote checksum offload and without.
fn compare(groups: &[GroupResult]) -> Vec<Compared> {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let is_ours = |row: &&RowResult| (row.tunnel, row.carrier) == (Tunnel::Vxlan, Carrier::Grosso);
    let others = rows().filter(|row| row.carrier != Carrier::Grosso);
    let pairs = others.flat_map(|other| rows().filter(is_ours).map(move |ours| (ours, other)));
    let ratio = |ours: Spread, other: Spread| ours.median / other.median;
    let compared = pairs.map(|(ours, other)| Compared {
        remote_checksum: ours.remote_checksum == Some(true),
        with: other.carrier,
        throughput: ratio(ours.megabits_a_second, other.megabits_a_second),
        cpu_a_gigabyte: ratio(ours.cpu_s_per_gb, other.cpu_s_per_gb),
        transactions: ratio(ours.transactions_a_second, other.transactions_a_second),
    });
    compared.collect()
}

/// Notes on reading the figures.
fn notes(plan: &Plan, groups: &[GroupResult]) -> Vec<String> {
    let mut notes: Vec<String> = vec![NOTE.into()];
    if plan.device == Device::Veth {
        notes.push(
            "Tunnels of IP packets want a TUN, and are left out where there is a veth.".into(),
        );
    }
    let mut rows = groups.iter().flat_map(|group| &group.rows);
    if !rows.any(|row| row.carrier == Carrier::Kernel) {
        notes.push("The kernel has no VXLAN here, and is left out.".into());
    }
    notes
}

const NOTE: &str = "\
TX is the sender and path a, RX path b and the receiver, of all processors. The
kernel's work for a packet is done in whose call it is: the sender's, where the
kernel has the tunnel. Over a veth, superframes cross whole in any tunnel.
Plain: Grosso without superframes, UDP_SEGMENT, UDP_GRO and coalescing.
Checksums and tunnels are timed by the clock in trials of their own, for looking
at it takes time; that is left out. Tunnel: all that path a does outside the
kernel to put packets in, with the headers of each, and path b to take them out,
without checksums. TX cost is both of a together: of trials that follow each
other, with RCO and without, how many times as much it is with it.
With RCO nobody sums what is inside: path a leaves it to path b, which hands it
to a kernel that takes it for made on the same machine; so does the kernel's
VXLAN over a veth. The checksum outside is made by the kernel's sockets, over a
veth by nobody; a NIC would do it.";

const fn published(
    tunnel: Tunnel,
    remote_checksum: Option<bool>,
    (megabits_a_second, tx_cpu_percent, rx_cpu_percent): (u32, f64, f64),
    (transactions_a_second, requests_cpu_percent): (u32, f64),
    latency_us: [u16; 3],
) -> Published {
    Published {
        tunnel,
        remote_checksum,
        megabits_a_second,
        tx_cpu_percent,
        rx_cpu_percent,
        transactions_a_second,
        requests_cpu_percent,
        latency_us,
    }
}

/// 200 streams, a NIC of 40 Gb/s, with the outer checksum (November 2014).
const PUBLISHED: [Published; 7] = {
    use Tunnel::{GreGue, IpipGue, SitGue, Vxlan};
    let (on, off) = (Some(true), Some(false));
    [
        published(GreGue, on, (36380, 9.71, 7.42), (1_951_270, 77.79), [91, 144, 216]),
        published(GreGue, off, (36591, 12.40, 7.36), (1_954_580, 78.70), [89, 152, 297]),
        published(IpipGue, on, (36486, 10.30, 7.43), (1_987_350, 77.80), [87, 153, 270]),
        published(IpipGue, off, (36694, 12.47, 7.49), (1_987_370, 77.98), [87, 150, 287]),
        published(SitGue, on, (35971, 9.68, 7.36), (1_888_420, 79.32), [94, 158, 295]),
        published(SitGue, off, (36177, 12.95, 8.04), (1_903_380, 80.23), [94, 149, 226]),
        published(Vxlan, None, (36230, 35.03, 20.85), (2_080_630, 77.36), [84, 146, 270]),
    ]
};
