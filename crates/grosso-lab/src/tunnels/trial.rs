//! One measurement, on its own hosts and tunnels.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread::{self, Scope},
    time::Duration,
};

use grosso_io::{live::LivePort, runner::RunOptions};
use grosso_sys::scheduling::cpu_time;
use schemars::JsonSchema;
use serde::Serialize;

use super::{TunnelCarrier, TunnelSetting};
use crate::{
    netns::{Hosts, Inside, Layout},
    profiler::{Observing, Part, Profiler, Side, Spent, Timed},
    running::Running,
    trial::{self, PATHS, Tool, TrialError, observe_gauged, repeat_stalled, settle},
    tunnel::{WIRE_MTU, layout, open_end},
};

/// Results of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TunnelTrial {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Number of read calls on a stream, or of requests answered.
    pub units: u64,
    /// CPU time of each role, in seconds.
    pub cpu: Roles,
    /// Number of segments retransmitted between the start of the first connection and the end of the last.
    pub retransmits: u64,
    /// Number of segments with a wrong checksum.
    pub checksum_errors: u64,
    /// Number of retransmission timeouts between the start of the first connection and the end of the last.
    pub timeouts: u64,
    /// Number of earlier measurements that stalled and were repeated.
    #[serde(skip)]
    pub repeated: u64,
    /// Latency of each request.
    #[serde(skip)]
    pub latencies: Vec<Duration>,
    /// Clock readings, if there were any.
    #[serde(skip)]
    pub watched: Option<Watched>,
}

impl TunnelTrial {
    /// Returns the throughput in Mb/s.
    #[must_use]
    pub fn megabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds
    }

    /// Returns the number of gigabytes that arrived.
    #[must_use]
    pub fn gigabytes(&self) -> f64 {
        self.bytes as f64 * 1e-9
    }
}

/// A figure for each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Roles {
    /// Thread on host a, which sends data or requests.
    pub sender: f64,
    /// Host a's data path; zero if the tunnel is the kernel's.
    pub path_a: f64,
    /// Host b's data path; zero if the tunnel is the kernel's.
    pub path_b: f64,
    /// Thread on host b, which receives data or answers requests.
    pub receiver: f64,
    /// Kernel threads that process packets on the same CPUs, if these threads are visible.
    pub kernel: f64,
}

impl Roles {
    /// Returns a figure for each role, computed by `make`.
    pub(super) fn each(make: impl Fn(fn(&Self) -> f64) -> f64) -> Self {
        Self {
            sender: make(|roles| roles.sender),
            path_a: make(|roles| roles.path_a),
            path_b: make(|roles| roles.path_b),
            receiver: make(|roles| roles.receiver),
            kernel: make(|roles| roles.kernel),
        }
    }

    /// Returns the total over all roles.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.sender + self.path_a + self.path_b + self.receiver + self.kernel
    }
}

/// Clock readings during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Watched {
    /// Gigabytes that arrived while the clock was read.
    pub gigabytes: f64,
    /// Clock readings of path a and path b.
    pub paths: [WatchedPath; 2],
}

/// Clock readings of one data path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct WatchedPath {
    /// Total CPU time of the path.
    pub cpu_seconds: f64,
    /// Time spent on checksums over more than 64 bytes.
    pub checksums_seconds: f64,
    /// Time spent in the tunnel and its sockets, outside the kernel and excluding checksums.
    pub tunnel_seconds: f64,
}

/// Measures on new hosts that are removed afterward. If nothing arrives, the measurement has stalled and is repeated a
/// few times.
///
/// # Errors
/// Fails if the hosts cannot be created, if the traffic stops or is damaged, or if the measurement is interrupted.
pub fn measure(
    setting: &TunnelSetting,
    interrupted: &AtomicBool,
) -> Result<TunnelTrial, TrialError> {
    let once = || measure_once(setting, interrupted);
    let (measured, repeated) = repeat_stalled(once, |measured| measured.bytes == 0)?;
    Ok(TunnelTrial { repeated, ..measured })
}

fn measure_once(
    setting: &TunnelSetting,
    interrupted: &AtomicBool,
) -> Result<TunnelTrial, TrialError> {
    let TunnelSetting { tunnel, remote_checksum, outer, streams, .. } = *setting;
    let layout = layout((tunnel, outer), remote_checksum, streams);
    if setting.carrier == TunnelCarrier::Kernel {
        let hosts = Hosts::kernel_vxlan(&layout, WIRE_MTU)?;
        return observe(setting, &layout, &hosts, [], interrupted);
    }
    let inside = Inside {
        device: setting.device,
        layer: setting.tunnel.layer(),
        superframes: setting.carrier != TunnelCarrier::Plain,
    };
    let (hosts, [near, far]) = Hosts::tunnelled(&layout, inside, (WIRE_MTU, outer))?;
    let _observing = setting.watched.then(Observing::start);
    thread::scope(|scope| {
        let a = TunnelEnd::start(scope, setting, &hosts, (0, near))?;
        let b = TunnelEnd::start(scope, setting, &hosts, (1, far))?;
        let observed = observe(setting, &layout, &hosts, [&a, &b], interrupted);
        a.running.end()?;
        b.running.end()?;
        observed
    })
}

/// A running endpoint of a tunnel.
struct TunnelEnd<'scope> {
    running: Running<'scope, ()>,
    /// Profiler of the endpoint's thread, if its time is measured.
    profiler: Option<Arc<Profiler>>,
}

impl<'scope> TunnelEnd<'scope> {
    /// Starts the data path of host a (0) or host b (1).
    fn start(
        scope: &'scope Scope<'scope, '_>,
        setting: &TunnelSetting,
        hosts: &Hosts,
        (side, device): (usize, LivePort),
    ) -> io::Result<Self> {
        let is_grosso = setting.carrier != TunnelCarrier::Plain;
        let end = (hosts.underlay().get(side).ok_or_else(trial::gone)?, side);
        let completes = setting.carrier == TunnelCarrier::Completes;
        let checksums = (setting.remote_checksum, completes);
        let tunnel = open_end(end, (setting.tunnel, setting.outer), checksums, is_grosso, |s| s)?;
        let profiler = setting.watched.then(|| Arc::new(Profiler::default()));
        let tunnel = Timed::new(tunnel, Side::Wire);
        let mut options = RunOptions::new(SEED);
        (options.left_to_right.coalesce, options.right_to_left.coalesce) = (is_grosso, is_grosso);
        let (processor, watch) = (setting.processors[side], profiler.clone());
        let name = PATHS[side];
        let first = move || {
            settle(name, processor)?;
            watch.into_iter().for_each(Profiler::enter);
            Ok(())
        };
        let running = Running::start(scope, (tunnel, device), options, first, |_| Ok(()))?;
        Ok(Self { running, profiler })
    }

    fn take(&self) -> io::Result<(f64, Spent)> {
        let cpu = cpu_time(self.running.thread())?.running.as_secs_f64();
        Ok((cpu, self.profiler.as_ref().map(|profiler| profiler.spent()).unwrap_or_default()))
    }
}

/// Runs streams or requests. If Grosso provides the tunnel, also reads how much time the tunnel endpoints spent.
fn observe<const ENDS: usize>(
    setting: &TunnelSetting,
    layout: &Layout,
    hosts: &Hosts,
    ends: [&TunnelEnd<'_>; ENDS],
    interrupted: &AtomicBool,
) -> Result<TunnelTrial, TrialError> {
    let traffic = trial::Setting {
        traffic: setting.traffic,
        connections: setting.streams,
        tool: Tool::BuiltIn,
        layout: *layout,
        carrier: trial::Carrier::Kernel { gro: true },
        impairment: None,
        back: None,
        device: setting.device,
        processors: setting.processors,
        congestion: setting.congestion.clone(),
        extent: setting.extent,
        compare: setting.compare,
    };
    let gauge = || ends.iter().map(|end| end.take()).collect::<io::Result<Vec<_>>>();
    let (measured, [before, after]) = observe_gauged(&traffic, hosts, interrupted, gauge)?;
    let paths = before.iter().zip(&after).map(|((old_cpu, old), (cpu, new))| WatchedPath {
        cpu_seconds: cpu - old_cpu,
        checksums_seconds: new.since(old).seconds(&[Part::Checksums]),
        tunnel_seconds: new.since(old).seconds(&[Part::WireReceive, Part::WireSend]),
    });
    let paths: Vec<WatchedPath> = paths.collect();
    let path_cpu = |side: usize| paths.get(side).map_or(0.0, |path| path.cpu_seconds);
    let gigabytes = measured.bytes as f64 * 1e-9;
    Ok(TunnelTrial {
        seconds: measured.seconds,
        bytes: measured.bytes,
        units: measured.units,
        cpu: Roles {
            sender: measured.cpu_seconds.sender,
            path_a: path_cpu(0),
            path_b: path_cpu(1),
            receiver: measured.cpu_seconds.receiver,
            kernel: measured.cpu_seconds.kernel,
        },
        retransmits: measured.retransmits,
        checksum_errors: measured.checksum_errors,
        timeouts: measured.timeouts,
        repeated: 0,
        latencies: measured.latencies,
        watched: match (setting.watched, &paths[..]) {
            (true, &[a, b]) => Some(Watched { gigabytes, paths: [a, b] }),
            _ => None,
        },
    })
}

/// Seed of the flow tables, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;
