//! Table R4: streams and requests through tunnels that end in userspace, with and without remote checksum offload.
//!
//! ```text
//!  a (kernel)    data path of a                     data path of b    b (kernel)
//!  socket - s0 - tunnel - UDP socket ---- wire ---- UDP socket - tunnel - r0 - socket
//! ```
//!
//! A superframe from a's kernel is encapsulated without segmentation and sent with one call (`UDP_SEGMENT`). Datagrams
//! that b's kernel has merged (`UDP_GRO`) are decapsulated and delivered as one superframe. For comparison, the same
//! traffic is also sent over the same wire by the kernel's own VXLAN device, and by Grosso with every offload off.

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use grosso_sys::scheduling::allowed_processors;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    experiment::{
        Bench, Experiment, Plan, RunsOf, Series, VERIFIED_BYTES, brief, three_processors,
    },
    netns::{Device, Family},
    report::FailedRow,
    traffic::Traffic,
    trial::{Extent, TrialError, stalls},
    tunnel::Tunnel,
    verdict::Verdict,
};

mod findings;
mod paired;
mod published;
mod table;
mod trial;
mod verdict;

use self::published::PUBLISHED;
pub use findings::{Costs, TunnelComparison, TunnelGroup, TunnelRow, TunnelRun};
pub use paired::Paired;
pub use published::PublishedTunnel;
pub use trial::{Roles, TunnelTrial, Watched, WatchedPath, measure};

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TunnelParameters {
    /// Number of concurrent TCP connections.
    pub streams: usize,
    /// TCP congestion control.
    pub congestion: String,
    /// IP version outside the tunnels.
    pub outer: Family,
    /// Whether streams are sent from a file, which saves the sender a copy.
    pub sendfile: bool,
}

impl Default for TunnelParameters {
    /// Returns the defaults: CUBIC over IPv4, with the maximum number of connections whose buffers can still hold whole
    /// superframes.
    fn default() -> Self {
        Self { streams: 16, congestion: "cubic".into(), outer: Family::V4, sendfile: false }
    }
}

/// Figures that the experiment measures.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelFindings {
    /// The results: first Grosso's tunnels, then the tunnels to compare with.
    pub groups: Vec<TunnelGroup>,
    /// Comparisons of each tunnel with and without remote checksum offload.
    pub paired: Vec<Paired>,
    /// Comparisons of Grosso's VXLAN with that of other carriers.
    pub comparisons: Vec<TunnelComparison>,
    /// Table R4 as published.
    pub published: [PublishedTunnel; 7],
}

impl TunnelFindings {
    /// Returns the rows of all groups.
    fn rows(&self) -> impl Iterator<Item = &TunnelRow> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

/// A way to forward packets between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelCarrier {
    /// Grosso, with a tunnel endpoint at each host.
    Grosso,
    /// Grosso one packet at a time: without superframes, segmentation by the socket, or coalescing.
    Plain,
    /// Grosso with a tunnel endpoint at each host. The receiver completes checksums that were left to it.
    Completes,
    /// The kernel's own tunnel device.
    Kernel,
}

impl fmt::Display for TunnelCarrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Grosso => "Grosso",
            Self::Plain => "plain",
            Self::Completes => "summed",
            Self::Kernel => "kernel",
        })
    }
}

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelSetting {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// The outer IP version. Must be IPv4 with the kernel's tunnel.
    pub outer: Family,
    /// Whether the inner checksum is left to the peer.
    pub remote_checksum: bool,
    /// The carrier that forwards the packets. With the kernel, the tunnel must be VXLAN.
    pub carrier: TunnelCarrier,
    /// Traffic between the hosts: [`Traffic::TcpStream`], [`Traffic::TcpSendfile`] or [`Traffic::TcpRequests`].
    pub traffic: Traffic,
    /// Number of concurrent TCP connections.
    pub streams: usize,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The CPUs of the sender and its data path, of the receiver's data path, and of the receiver.
    pub processors: [usize; 3],
    /// TCP congestion control.
    pub congestion: String,
    /// Duration or amount of data of the measurement.
    pub extent: Extent,
    /// Whether every received byte is compared with the byte that was sent.
    pub compare: bool,
    /// Whether the time for checksums and encapsulation is measured, which itself takes time.
    pub watched: bool,
}

/// The experiment behind table R4, with additional settings to compare with.
#[derive(Clone, Debug)]
pub struct Tunnels {
    plan: Plan<TunnelParameters>,
    /// Settings for streams, in the groups that `TITLES` names. Requests use the same settings.
    groups: [Vec<TunnelSetting>; 2],
    /// Number of CPUs that the lab may use.
    processors: usize,
}

impl Tunnels {
    /// Creates an experiment with every tunnel that the device supports, and with VXLAN tunnels to compare with: two of
    /// Grosso's and, over IPv4, the kernel's.
    ///
    /// # Errors
    /// Fails if `sched_getaffinity(2)` fails.
    pub fn new(plan: Plan<TunnelParameters>) -> io::Result<Self> {
        let processors = three_processors(plan.processors)?;
        let vxlan = |carrier| TunnelSetting {
            tunnel: Tunnel::Vxlan,
            outer: plan.parameters.outer,
            remote_checksum: carrier == TunnelCarrier::Completes,
            carrier,
            traffic: match plan.parameters.sendfile {
                true => Traffic::TcpSendfile,
                false => Traffic::TcpStream,
            },
            streams: plan.parameters.streams,
            device: plan.device,
            processors,
            congestion: plan.parameters.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: plan.measured },
            compare: false,
            watched: false,
        };
        let tunnels = Tunnel::ALL.into_iter();
        let tunnels = tunnels.filter(|tunnel| plan.device == Device::Tap || tunnel.is_ethernet());
        let settings = tunnels.flat_map(|tunnel| {
            let uses = if tunnel.has_remote_checksum() { &[true, false][..] } else { &[false] };
            let setting = |&remote_checksum| TunnelSetting {
                tunnel,
                remote_checksum,
                ..vxlan(TunnelCarrier::Grosso)
            };
            uses.iter().map(setting).collect::<Vec<_>>()
        });
        let is_ipv4 = plan.parameters.outer == Family::V4;
        let kernel = is_ipv4.then_some(TunnelCarrier::Kernel);
        let others = kernel.into_iter().chain([TunnelCarrier::Plain, TunnelCarrier::Completes]);
        let groups = [settings.collect(), others.map(vxlan).collect()];
        Ok(Self { plan, groups, processors: allowed_processors()?.len() })
    }
}

impl Experiment for Tunnels {
    type Parameters = TunnelParameters;
    type Setting = TunnelSetting;
    type Run = TunnelRun;
    type Findings = TunnelFindings;

    fn name(&self) -> &'static str {
        "tunnels"
    }

    fn plan(&self) -> &Plan<TunnelParameters> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[TunnelSetting]> {
        self.groups.iter().map(Vec::as_slice).collect()
    }

    /// Returns the number of trials, counting streams, streams with clock readings, and requests, several of each.
    fn trials(&self) -> usize {
        let settings = || self.groups.iter().flatten();
        let watched = settings().filter(|setting| setting.carrier != TunnelCarrier::Kernel).count();
        let turns = rounds(self.plan.measured) as usize;
        (settings().count() * (turns + 1) + watched * turns) * self.plan.runs
    }

    fn verify(
        &self,
        setting: &TunnelSetting,
        interrupted: &AtomicBool,
    ) -> Result<Option<u64>, TrialError> {
        let extent = Extent::Bytes(VERIFIED_BYTES);
        let setting = TunnelSetting { extent, compare: true, ..setting.clone() };
        measure(&setting, interrupted).map(|trial| Some(trial.bytes))
    }

    /// Returns whether the setting may be skipped: only the kernel's tunnel may, if the kernel does not support it.
    fn is_optional(&self, setting: &TunnelSetting, error: &io::Error) -> bool {
        setting.carrier == TunnelCarrier::Kernel && error.kind() == io::ErrorKind::Unsupported
    }

    /// Measures each tunnel several times, with and without remote checksum offload in turn. Both variants come first
    /// equally often.
    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        for pair in group.chunk_by_mut(|one, other| one.setting.is_pair(&other.setting)) {
            measure_interleaved(pair, rounds(self.plan.measured), bench, measure)?;
        }
        Ok(())
    }

    fn label(&self, setting: &TunnelSetting) -> String {
        let rco = match setting.remote_checksum {
            true => ", remote checksum offload",
            false => "",
        };
        format!("{}, {}{rco}", setting.tunnel, setting.carrier)
    }

    fn brief(&self, runs: &[TunnelRun]) -> String {
        brief(
            runs,
            |run| {
                run.streams.iter().map(TunnelTrial::megabits_a_second).sum::<f64>()
                    / run.streams.len() as f64
            },
            "Mb/s",
        )
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> TunnelFindings {
        let group = |(title, group): (_, Vec<_>)| TunnelGroup {
            title,
            rows: group.into_iter().map(|one| TunnelRow::new(one, self.processors)).collect(),
        };
        let groups: Vec<TunnelGroup> = TITLES.into_iter().zip(groups).map(group).collect();
        TunnelFindings {
            paired: Paired::all(&groups),
            comparisons: findings::compare(&groups),
            published: PUBLISHED,
            groups,
        }
    }

    fn judge(&self, findings: &TunnelFindings) -> Vec<Verdict> {
        verdict::judge(&findings.groups, &findings.paired)
    }

    fn notes(&self, findings: &TunnelFindings, failed: &[FailedRow]) -> Vec<String> {
        let mut notes: Vec<String> = vec![NOTE.into()];
        if self.plan.device == Device::Veth {
            notes.push(
                "Tunnels for IP packets were not measured: they need a TUN device, not veth."
                    .into(),
            );
        }
        if self.plan.parameters.outer == Family::V6 {
            notes.push(
                "The kernel's VXLAN was not measured: the lab measures it only over IPv4.".into(),
            );
        } else if !findings.rows().any(|row| row.carrier == TunnelCarrier::Kernel)
            && !failed.iter().any(|row| row.setting.ends_with(&TunnelCarrier::Kernel.to_string()))
        {
            notes.push(
                "The kernel's VXLAN was not measured: this kernel does not support it.".into(),
            );
        }
        let runs = || findings.rows().flat_map(|row| &row.runs);
        let kept = runs().map(|run| run.streams.len() + run.watched.len() + 1).sum();
        notes.extend(stalls(runs().map(|run| run.repeated).sum(), kept));
        let again: u64 = findings.rows().map(|row| row.retransmits).sum();
        let wrong: u64 = findings.rows().map(|row| row.checksum_errors).sum();
        notes.push(format!(
            "Across all streams: {again} segments retransmitted, {wrong} with a wrong checksum."
        ));
        notes
    }
}

impl TunnelSetting {
    /// Returns the same setting, but with the given choice for clock readings.
    fn turn(&self, watched: bool) -> Self {
        let mut setting = Self { watched, ..self.clone() };
        if let Extent::Time { measured, .. } = &mut setting.extent {
            *measured /= rounds(*measured);
        }
        setting
    }

    /// Returns whether two settings differ at most in remote checksum offload.
    fn is_pair(&self, other: &Self) -> bool {
        (self.tunnel, self.carrier) == (other.tunnel, other.carrier)
    }
}

/// Adds a run to each of these settings that has not failed. A run consists of several streams, without and with clock
/// readings in turn, followed by requests.
fn measure_interleaved(
    group: &mut [Series<TunnelSetting, TunnelRun>],
    turns: u32,
    bench: &mut Bench<'_, Tunnels>,
    measure: impl Fn(&TunnelSetting, &AtomicBool) -> Result<TunnelTrial, TrialError>,
) -> Result<(), TrialError> {
    let mut trial = |series: &mut Series<TunnelSetting, TunnelRun>, setting: TunnelSetting| {
        if series.failure.is_some() {
            return Ok(None);
        }
        let trial = bench.trial(&measure, &setting);
        series.keep(trial)
    };
    let was_failed: Vec<bool> = group.iter().map(|series| series.failure.is_some()).collect();
    let mut runs = vec![TunnelRun::default(); group.len()];
    let mut order: Vec<usize> = (0..group.len()).collect();
    for _ in 0..turns {
        for &i in &order {
            let setting = group[i].setting.turn(false);
            let Some(trial) = trial(&mut group[i], setting)? else { continue };
            runs[i].repeated += trial.repeated;
            runs[i].streams.push(trial);
        }
        for &i in &order {
            if group[i].setting.carrier != TunnelCarrier::Kernel {
                let setting = group[i].setting.turn(true);
                let Some(trial) = trial(&mut group[i], setting)? else { continue };
                runs[i].repeated += trial.repeated;
                runs[i].watched.extend(trial.watched);
            }
        }
        order.reverse();
    }
    for (series, run) in group.iter_mut().zip(&mut runs) {
        let setting = TunnelSetting { traffic: Traffic::TcpRequests, ..series.setting.clone() };
        if let Some(requests) = trial(series, setting)? {
            run.requests = requests;
            run.repeated += run.requests.repeated;
        }
    }
    for ((series, run), was_failed) in group.iter_mut().zip(runs).zip(was_failed) {
        if !was_failed {
            let run = series.failure.is_none().then_some(run);
            bench.add(series, run);
        }
    }
    Ok(())
}

/// Returns how often streams are measured in one run of the experiment, both without and with clock readings. All
/// measurements together take as long as a run. The number is even, so that each variant comes first equally often. In
/// short runs, there are fewer measurements, because starting the streams would take most of the time.
fn rounds(measured: Duration) -> u32 {
    if measured < ROUNDS_MAX * WARM_UP { ROUNDS_MAX / 2 } else { ROUNDS_MAX }
}

/// Maximum number of times that streams are measured in one run.
const ROUNDS_MAX: u32 = 4;
/// Warm-up time, in which the connections reach their full speed.
const WARM_UP: Duration = Duration::from_millis(200);
/// Titles of the groups.
const TITLES: [&str; 2] =
    ["Tunnels terminated in userspace", "VXLAN in the kernel, over the same wire"];
const NOTE: &str = "\
TX is the CPU time of the sender and of path a. RX is the CPU time of path b and
of the receiver. Work in the kernel counts for the thread that makes the system
call. For a kernel tunnel, this thread is the sender.
Over veth, superframes cross every tunnel unsegmented.
plain: Grosso without superframes, UDP_SEGMENT, UDP_GRO and coalescing.
summed: RCO is on, and path b completes the checksums for a network stack that
does not support RCO.
Checksums and tunnels are timed in separate trials, because reading the clock
takes time. That time is subtracted from the results.
tunnel a and b: the time in which path a encapsulates and path b decapsulates,
without checksums and without time in the kernel.
TX cost: the time of path a for tunnel and checksums with RCO, divided by the
time without RCO. The two trials run one after the other.
With RCO, no inner checksum is computed. Path a leaves it to path b, whose
kernel treats the packets as local. The kernel's VXLAN over veth does the same.
A NIC would compute the outer checksum. Here, the kernel's sockets compute it,
except over veth, where nothing computes it.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiment::assert_failures_are_rows, report::Report};

    /// Returns a made-up run of one second with this throughput, in Mb/s.
    fn run(megabits: f64, watched: Vec<Watched>) -> TunnelRun {
        let roles = Roles { sender: 0.2, path_a: 0.4, path_b: 0.6, receiver: 0.2, kernel: 0.1 };
        let mut stream = TunnelTrial::default();
        (stream.seconds, stream.bytes) = (1.0, (megabits * 125e3) as u64);
        stream.cpu = roles;
        let mut requests = TunnelTrial { seconds: 1.0, cpu: stream.cpu, ..TunnelTrial::default() };
        requests.units = 50_000;
        requests.latencies = (1..=200).map(Duration::from_micros).collect();
        TunnelRun { streams: vec![stream], watched, requests, repeated: 0 }
    }

    /// Returns made-up results: remote checksum offload reduces the TX cost to 45 %, the kernel is twice as fast as
    /// Grosso, and without offloads the throughput is a fifth.
    pub(super) fn report() -> Report<TunnelFindings> {
        let (experiment, groups) = measured();
        experiment.report(groups).unwrap()
    }

    fn measured() -> (Tunnels, Vec<Vec<RunsOf<Tunnels>>>) {
        let experiment = experiment(Device::Tap);
        let series = |setting: &TunnelSetting| {
            let megabits = match setting.carrier {
                TunnelCarrier::Grosso | TunnelCarrier::Completes => 10_000.0,
                TunnelCarrier::Plain => 2_000.0,
                TunnelCarrier::Kernel => 20_000.0,
            };
            let checksums_seconds = match setting.carrier {
                TunnelCarrier::Completes => 0.12,
                _ if setting.remote_checksum => 0.0025,
                _ => 0.03,
            };
            let path = |part: f64| WatchedPath {
                cpu_seconds: 1.0,
                checksums_seconds: part * checksums_seconds,
                tunnel_seconds: part * 0.02,
            };
            let watched = |gigabytes| Watched { gigabytes, paths: [path(1.0), path(0.5)] };
            let is_ours = setting.carrier != TunnelCarrier::Kernel;
            let watched = |gigabytes| Vec::from_iter(is_ours.then(|| watched(gigabytes)));
            let run = |(share, gigabytes)| run(megabits * share, watched(gigabytes));
            let runs =
                [(0.98, 1.25), (0.99, 1.5), (1.0, 1.5), (1.01, 1.0), (1.02, 1.0)].map(run).to_vec();
            Series::new(setting.clone(), runs)
        };
        let groups = experiment.groups.iter().map(|group| group.iter().map(series).collect());
        let groups = groups.collect();
        (experiment, groups)
    }

    /// Returns the experiment as it would be on a machine with two CPUs.
    fn experiment(device: Device) -> Tunnels {
        let experiment = Tunnels::new(Plan { device, runs: 2, ..Plan::default() }).unwrap();
        Tunnels { processors: 2, ..experiment }
    }

    #[test]
    fn figures_are_medians_of_all_runs_and_missing_ones_are_reported() {
        let Report { findings: report, notes, .. } = report();
        let row = &report.groups[0].rows[1];
        assert_eq!(row.remote_checksum, Some(false));
        // In half of the runs with clock readings, at least 1.25 GB arrived.
        let [path_a, path_b] = row.costs.unwrap();
        let milliseconds = |costs: Costs| {
            [costs.checksums_s_per_gb, costs.tunnel_s_per_gb].map(|s| (s * 1e3).round())
        };
        assert_eq!((milliseconds(path_a), milliseconds(path_b)), ([24.0, 16.0], [12.0, 8.0]));
        assert_eq!(path_a.checksums_percent.round(), 8.0, "of 0.32 seconds a GB");
        let said: Vec<bool> =
            report.comparisons.iter().map(|compared| compared.remote_checksum).collect();
        assert_eq!(said, [true, false, true, false]);
        assert_eq!(notes.len(), 2);

        let mut experiment = experiment(Device::Veth);
        experiment.groups[1].retain(|setting| setting.carrier != TunnelCarrier::Kernel);
        let series =
            |setting: &TunnelSetting| Series::new(setting.clone(), vec![run(1.0, Vec::new())]);
        let groups = experiment.groups.iter().map(|group| group.iter().map(series).collect());
        let Report { findings: report, notes, .. } = experiment.report(groups.collect()).unwrap();
        assert!(report.groups[0].rows.iter().all(|row| row.costs.is_none()));
        assert!(notes[1].contains("TUN") && notes[2].contains("VXLAN"));
        assert_eq!(report.comparisons.len(), 2);
    }

    #[test]
    fn every_tunnel_is_there_with_rco_and_without_and_a_veth_has_those_of_ethernet() {
        let rows = |device| {
            let experiment = experiment(device);
            let settings = experiment.groups[0].iter();
            let rows: Vec<_> =
                settings.map(|one| (one.tunnel.to_string(), one.remote_checksum)).collect();
            (rows, experiment.trials())
        };
        let (tap, trials) = rows(Device::Tap);
        assert_eq!(tap.len(), 9);
        assert_eq!(tap.iter().filter(|(_, remote_checksum)| *remote_checksum).count(), 4);
        let each = (9 + 3) * 5 + 11 * 4;
        assert_eq!(
            trials,
            each * 2,
            "streams in turn, requests, and profiles of Grosso's own tunnel"
        );
        let veth = [("VXLAN".into(), true), ("VXLAN".into(), false), ("Geneve".into(), false)];
        assert_eq!(rows(Device::Veth), (veth.to_vec(), ((3 + 3) * 5 + 5 * 4) * 2));
    }

    #[test]
    fn a_run_with_rounds_shorter_than_the_warm_up_has_half_as_many() {
        for (milliseconds, turns) in [(10, 2), (100, 2), (799, 2), (800, 4), (60_000, 4)] {
            let measured = Duration::from_millis(milliseconds);
            let plan = Plan { device: Device::Veth, runs: 1, measured, ..Plan::default() };
            let experiment = Tunnels::new(plan).unwrap();
            let of_all = 6 * (turns + 1) + 5 * turns;
            assert_eq!(experiment.trials(), of_all, "{milliseconds} ms");
            let turn = experiment.groups[0][0].turn(true).extent;
            let measured = measured / turns as u32;
            assert_eq!(turn, Extent::Time { warm_up: WARM_UP, measured });
        }
    }

    #[test]
    fn a_failed_setting_is_a_row_without_figures() {
        let (experiment, groups) = measured();
        assert_failures_are_rows(&experiment, || groups.clone());
    }
}
