//! What came of the experiment, as JSON has it.

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

/// What came of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What must be known to compare the figures with others.
    pub environment: Environment,
    /// The results: Grosso's tunnels, then what they are compared with.
    pub groups: Vec<GroupResult>,
    /// Each tunnel with remote checksum offload beside the same without.
    pub paired: Vec<Paired>,
    /// VXLAN by Grosso beside VXLAN by others.
    pub comparisons: Vec<Compared>,
    /// Table R4 as it was published.
    pub published: [Published; 7],
    /// What was to be shown, and whether it was.
    pub verdicts: Vec<Verdict>,
    /// How to read the figures.
    pub notes: Vec<String>,
}

/// What must be known to compare figures with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Environment {
    /// What every experiment says.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// TCP connections at once.
    pub streams: usize,
    /// The congestion control of TCP.
    pub congestion: String,
}

/// Results that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupResult {
    /// What they have in common.
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
    /// Whether checksums inside were left to the other end; `None` where the headers have no room for that, or the
    /// kernel was asked for none.
    pub remote_checksum: Option<bool>,
    /// What carried it.
    pub carrier: Carrier,
    /// Megabits a second of all streams.
    pub megabits_a_second: Spread,
    /// The time of sender and path a, in percent of all processors, while streams ran.
    pub tx_cpu_percent: Spread,
    /// The same of path b and receiver.
    pub rx_cpu_percent: Spread,
    /// Processor seconds a gigabyte of everybody.
    pub cpu_s_per_gb: Spread,
    /// Processor seconds a gigabyte by role: medians.
    pub roles_s_per_gb: Roles,
    /// Requests answered a second, over all connections.
    pub transactions_a_second: Spread,
    /// The time of everybody, in percent of all processors, while requests ran.
    pub requests_cpu_percent: Spread,
    /// How long these took, in all runs.
    pub latency: Option<Latency>,
    /// What trials of their own said of checksums and tunnels: medians; none where the kernel did them.
    pub costs: Option<[Costs; 2]>,
    /// Segments sent again, in all runs of streams.
    pub retransmits: u64,
    /// Segments whose checksum was wrong, in all runs.
    pub checksum_errors: u64,
    /// The measurements.
    pub runs: Vec<Run>,
}

/// One measurement of each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// Of streams, each time.
    pub streams: Vec<Measured>,
    /// Of streams too, before a clock: what it showed each time.
    pub watched: Vec<Watched>,
    /// Of requests.
    pub requests: Measured,
}

/// What one data path spent, while streams ran: of `[Costs; 2]` the first is of path a, which sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// Seconds a gigabyte in checksums of more than 64 bytes.
    pub checksums_s_per_gb: f64,
    /// The share of these in the processor time that it has where nobody looks at the clock, in percent.
    pub checksums_percent: f64,
    /// Seconds a gigabyte of putting packets in and taking them out: all that is done outside the kernel for the
    /// headers of every packet, without checksums.
    pub tunnel_s_per_gb: f64,
}

/// VXLAN by Grosso beside VXLAN by another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// Whether Grosso left the checksum inside to the other end.
    pub remote_checksum: bool,
    /// The other.
    pub with: Carrier,
    /// Grosso's throughput as a multiple of the other's.
    pub throughput: f64,
    /// Grosso's processor time a gigabyte as a multiple of the other's.
    pub cpu_a_gigabyte: f64,
    /// Grosso's requests a second as a multiple of the other's.
    pub transactions: f64,
}

/// A row of table R4 as it was published in 2014.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Published {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether checksums inside were left to the other end.
    pub remote_checksum: Option<bool>,
    /// Megabits a second of 200 streams.
    pub megabits_a_second: u32,
    /// The sender's processors, in percent.
    pub tx_cpu_percent: f64,
    /// The receiver's.
    pub rx_cpu_percent: f64,
    /// Requests a second.
    pub transactions_a_second: u32,
    /// Processors while requests ran, in percent.
    pub requests_cpu_percent: f64,
    /// What 90, 95 and 99 % of requests took at most, in microseconds.
    pub latency_us: [u16; 3],
}

impl Report {
    pub(super) fn new(plan: &Plan, groups: &[Group], rows: Vec<Vec<Vec<Run>>>) -> io::Result<Self> {
        Self::on(allowed_processors()?.len(), plan, groups, rows)
    }

    /// On so many processors.
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

/// What the clock showed in all runs, beside what the paths spend where there is none.
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

/// What Grosso's VXLAN is to each other one, with remote checksum offload and without.
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

/// How to read the figures.
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
