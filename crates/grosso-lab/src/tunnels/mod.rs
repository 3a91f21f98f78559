//! Table R4: streams and requests through tunnels that end in userspace, with remote checksum offload and without.
//!
//! ```text
//!  a (kernel)    data path of a                     data path of b    b (kernel)
//!  socket - s0 - tunnel - UDP socket ---- wire ---- UDP socket - tunnel - r0 - socket
//! ```
//!
//! A superframe from a's kernel is encapsulated as it is and sent with one call (`UDP_SEGMENT`). A datagram train that
//! b's kernel joined (`UDP_GRO`) is decapsulated and handed on as a superframe. For comparison, the kernel's own VXLAN
//! device carries the same traffic over the same wire, and so does Grosso with every offload off.

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use serde::Serialize;

use crate::{
    conditions::two_processors,
    hosts::Device,
    traffic::Traffic,
    trial::{Extent, TrialError},
};

mod page;
mod paired;
mod report;
mod table;
mod trial;
mod tunnel;
mod verdict;

pub use paired::Paired;
pub use report::{Compared, Costs, Environment, GroupResult, Published, Report, RowResult, Run};
pub use trial::{Measured, Roles, Watched, WatchedPath, measure};
pub(crate) use trial::{WIRE_MTU, layout, open_end};
pub use tunnel::Tunnel;

/// Parameters of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// TCP connections at once.
    pub streams: usize,
    /// The congestion control of TCP.
    pub congestion: String,
    /// Device through which the data paths exchange packets with a host. Tunnels of IP packets need a TUN: with
    /// [`Device::Veth`] they are left out.
    pub device: Device,
}

impl Default for Plan {
    /// Three runs of a second, [`STREAMS`], cubic, and the device that works everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            streams: STREAMS,
            congestion: "cubic".into(),
            device: Device::Veth,
        }
    }
}

/// Carriers of packets between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// Grosso, with a tunnel end at each host.
    Grosso,
    /// The same without superframes, segmentation by the socket, or coalescing: a packet at a time.
    Plain,
    /// The kernel's own tunnel device.
    Kernel,
}

impl fmt::Display for Carrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Grosso => "Grosso",
            Self::Plain => "plain",
            Self::Kernel => "kernel",
        })
    }
}

/// One setting to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Whether the inner checksum is left to the other end.
    pub remote_checksum: bool,
    /// Its carrier; for the kernel, the tunnel must be VXLAN.
    pub carrier: Carrier,
    /// Traffic between the hosts: [`Traffic::TcpStream`] or [`Traffic::TcpRequests`].
    pub traffic: Traffic,
    /// TCP connections at once.
    pub streams: usize,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The processor of the sender and its data path, and that of the receiver and its data path.
    pub processors: [usize; 2],
    /// The congestion control of TCP.
    pub congestion: String,
    /// Duration or size of the measurement.
    pub extent: Extent,
    /// Whether every byte received is compared with the one sent.
    pub compare: bool,
    /// Whether the time of checksums and encapsulation is measured, which itself takes time.
    pub watched: bool,
}

/// The settings of table R4, and those that are compared with them.
#[derive(Clone, Debug)]
pub struct Experiment {
    plan: Plan,
    groups: Vec<Group>,
}

/// Settings to compare with each other.
#[derive(Clone, Debug)]
struct Group {
    title: &'static str,
    /// Settings of the streams; requests use the same.
    settings: Vec<Setting>,
}

impl Experiment {
    /// An experiment with every tunnel that the device can carry, and two comparisons.
    ///
    /// # Errors
    /// Those of `sched_getaffinity(2)`.
    pub fn new(plan: Plan) -> io::Result<Self> {
        let processors = two_processors()?;
        let vxlan = |carrier| Setting {
            tunnel: Tunnel::Vxlan,
            remote_checksum: false,
            carrier,
            traffic: Traffic::TcpStream,
            streams: plan.streams,
            device: plan.device,
            processors,
            congestion: plan.congestion.clone(),
            extent: Extent::Time { warm_up: WARM_UP, measured: plan.measured },
            compare: false,
            watched: false,
        };
        let tunnels = Tunnel::ALL.into_iter();
        let tunnels = tunnels.filter(|tunnel| plan.device == Device::Tap || tunnel.is_ethernet());
        let settings = tunnels.flat_map(|tunnel| {
            let uses = if tunnel.has_remote_checksum() { &[true, false][..] } else { &[false] };
            let setting =
                |&remote_checksum| Setting { tunnel, remote_checksum, ..vxlan(Carrier::Grosso) };
            uses.iter().map(setting).collect::<Vec<_>>()
        });
        let groups = vec![
            Group { title: "Tunnels that end in userspace", settings: settings.collect() },
            Group {
                title: "VXLAN by others, over the same wire",
                settings: vec![vxlan(Carrier::Kernel), vxlan(Carrier::Plain)],
            },
        ];
        Ok(Self { plan, groups })
    }

    /// Number of trials: streams, streams with the clock, and requests, each several times.
    #[must_use]
    pub fn trials(&self) -> usize {
        let settings = || self.groups.iter().flat_map(|group| &group.settings);
        let watched = settings().filter(|setting| setting.carrier != Carrier::Kernel).count();
        (settings().count() * (TURNS + 1) + watched * TURNS) * self.plan.runs
    }

    /// Measures every setting in turn and repeats that, so that changes on the machine affect all settings alike. A
    /// tunnel with remote checksum offload and the same without alternate several times, and each goes first equally
    /// often. `done` is called with the number of trials done.
    ///
    /// Before that, every setting carries streams of which every byte is compared with the one sent. The kernel's
    /// tunnel is left out if the kernel has none.
    ///
    /// # Errors
    /// Fails if a trial fails or `interrupted` is set.
    pub fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report, TrialError> {
        let groups = self.verify(interrupted)?;
        let mut trials = 0;
        let mut trial = |setting: &Setting, change: &dyn Fn(&mut Setting)| {
            let mut setting = setting.clone();
            change(&mut setting);
            let measured = measure(&setting, interrupted)?;
            trials += 1;
            done(trials);
            Ok::<_, TrialError>(measured)
        };
        let mut rows: Vec<Vec<Vec<Run>>> =
            groups.iter().map(|group| vec![Vec::new(); group.settings.len()]).collect();
        for _ in 0..self.plan.runs {
            for (group, rows) in groups.iter().zip(&mut rows) {
                let mut rows = &mut rows[..];
                for settings in group.settings.chunk_by(Setting::is_pair) {
                    let (these, others) = rows.split_at_mut(settings.len());
                    let runs = measure_in_turn(settings, &mut trial)?;
                    these.iter_mut().zip(runs).for_each(|(kept, run)| kept.push(run));
                    rows = others;
                }
            }
        }
        Report::new(&self.plan, &groups, rows).map_err(TrialError::from)
    }

    /// Lets every setting carry streams whose bytes are compared, and leaves out the kernel's tunnel if the kernel has
    /// none.
    fn verify(&self, interrupted: &AtomicBool) -> Result<Vec<Group>, TrialError> {
        let mut groups = self.groups.clone();
        for group in &mut groups {
            for setting in core::mem::take(&mut group.settings) {
                let extent = Extent::Bytes(VERIFIED_BYTES);
                match measure(&Setting { extent, compare: true, ..setting.clone() }, interrupted) {
                    Err(TrialError::Io(error))
                        if setting.carrier == Carrier::Kernel
                            && error.kind() == io::ErrorKind::Unsupported => {}
                    measured => {
                        measured?;
                        group.settings.push(setting);
                    }
                }
            }
        }
        Ok(groups)
    }
}

impl Setting {
    /// Makes the setting one of several turns, with the clock or without.
    fn take_turns(&mut self, watched: bool) {
        self.watched = watched;
        if let Extent::Time { measured, .. } = &mut self.extent {
            *measured /= TURNS as u32;
        }
    }

    /// Whether the other setting is the same except for remote checksum offload.
    fn is_pair(&self, other: &Self) -> bool {
        (self.tunnel, self.carrier) == (other.tunnel, other.carrier)
    }
}

/// Measures each of these settings in turn: streams without the clock and with it, several times, and requests.
fn measure_in_turn(
    settings: &[Setting],
    trial: &mut impl FnMut(&Setting, &dyn Fn(&mut Setting)) -> Result<Measured, TrialError>,
) -> Result<Vec<Run>, TrialError> {
    let mut runs = vec![Run::default(); settings.len()];
    let mut order: Vec<usize> = (0..settings.len()).collect();
    for _ in 0..TURNS {
        for &i in &order {
            runs[i].streams.push(trial(&settings[i], &|setting| setting.take_turns(false))?);
        }
        for &i in order.iter().filter(|&&i| settings[i].carrier != Carrier::Kernel) {
            let measured = trial(&settings[i], &|setting| setting.take_turns(true))?;
            runs[i].watched.extend(measured.watched);
        }
        order.reverse();
    }
    for (setting, run) in settings.iter().zip(&mut runs) {
        run.requests = trial(setting, &|setting| setting.traffic = Traffic::TcpRequests)?;
    }
    Ok(runs)
}

/// Default number of TCP connections: as many as have buffers for whole superframes.
pub const STREAMS: usize = 16;
/// Turns of streams, without the clock and with it, in one run of the experiment: together they last as long as a run.
const TURNS: usize = 4;
/// Time before the measurement, in which connections find their speed.
const WARM_UP: Duration = Duration::from_millis(200);
/// Bytes that are compared one by one for every setting: some hundred superframes.
const VERIFIED_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a second that was never measured, of that many megabits.
    fn run(megabits: f64, watched: Vec<Watched>) -> Run {
        let roles = Roles { sender: 0.2, path_a: 0.4, path_b: 0.6, receiver: 0.2, kernel: 0.1 };
        let mut stream = Measured::default();
        (stream.seconds, stream.bytes) = (1.0, (megabits * 125e3) as u64);
        stream.cpu = roles;
        let mut requests = Measured { seconds: 1.0, cpu: stream.cpu, ..Measured::default() };
        requests.units = 50_000;
        requests.latencies = (1..=200).map(Duration::from_micros).collect();
        Run { streams: vec![stream], watched, requests }
    }

    /// Results that were never measured: remote checksum offload leaves a fifth of the cost, the kernel is twice as
    /// fast, and without offloads a fifth of the throughput is left.
    pub(super) fn report() -> Report {
        let plan = Plan { device: Device::Tap, ..Plan::default() };
        let experiment = Experiment::new(plan).unwrap();
        let rows = |setting: &Setting| {
            let megabits = match setting.carrier {
                Carrier::Grosso => 10_000.0,
                Carrier::Plain => 2_000.0,
                Carrier::Kernel => 20_000.0,
            };
            let checksums_seconds = if setting.remote_checksum { 0.0025 } else { 0.03 };
            let path = |part: f64| WatchedPath {
                cpu_seconds: 1.0,
                checksums_seconds: part * checksums_seconds,
                tunnel_seconds: part * 0.02,
            };
            let watched = |gigabytes| Watched { gigabytes, paths: [path(1.0), path(0.5)] };
            let is_ours = setting.carrier != Carrier::Kernel;
            let watched = |gigabytes| Vec::from_iter(is_ours.then(|| watched(gigabytes)));
            let run = |(share, gigabytes)| run(megabits * share, watched(gigabytes));
            [(0.98, 1.25), (1.0, 9.0), (1.02, 0.1)].map(run).to_vec()
        };
        let rows = experiment.groups.iter().map(|group| group.settings.iter().map(rows).collect());
        Report::on(2, &experiment.plan, &experiment.groups, rows.collect()).unwrap()
    }

    #[test]
    fn figures_are_the_middle_of_all_runs_and_what_is_missing_is_said() {
        let report = report();
        let row = &report.groups[0].rows[1];
        assert_eq!(row.remote_checksum, Some(false));
        // The runs with the clock carried 1.25, 9 and 0.1 GB.
        let [path_a, path_b] = row.costs.unwrap();
        let milliseconds = |costs: Costs| {
            [costs.checksums_s_per_gb, costs.tunnel_s_per_gb].map(|s| (s * 1e3).round())
        };
        assert_eq!((milliseconds(path_a), milliseconds(path_b)), ([24.0, 16.0], [12.0, 8.0]));
        assert_eq!(path_a.checksums_percent.round(), 8.0, "of 0.32 seconds a GB");
        let said: Vec<bool> =
            report.comparisons.iter().map(|compared| compared.remote_checksum).collect();
        assert_eq!(said, [true, false, true, false]);
        assert_eq!(report.notes.len(), 1);

        let plan = Plan { device: Device::Veth, ..Plan::default() };
        let mut groups = Experiment::new(plan.clone()).unwrap().groups;
        groups[1].settings.retain(|setting| setting.carrier != Carrier::Kernel);
        let rows =
            groups.iter().map(|group| vec![vec![run(1.0, Vec::new())]; group.settings.len()]);
        let report = Report::on(2, &plan, &groups, rows.collect()).unwrap();
        assert!(report.groups[0].rows.iter().all(|row| row.costs.is_none()));
        assert!(report.notes[1].contains("TUN") && report.notes[2].contains("VXLAN"));
        assert_eq!(report.comparisons.len(), 2);
    }

    #[test]
    fn every_tunnel_is_there_with_rco_and_without_and_a_veth_has_those_of_ethernet() {
        let rows = |device| {
            let experiment = Experiment::new(Plan { device, runs: 2, ..Plan::default() }).unwrap();
            let settings = experiment.groups[0].settings.iter();
            let rows: Vec<_> =
                settings.map(|one| (one.tunnel.to_string(), one.remote_checksum)).collect();
            (rows, experiment.trials())
        };
        let (tap, trials) = rows(Device::Tap);
        assert_eq!(tap.len(), 9);
        assert_eq!(tap.iter().filter(|(_, remote_checksum)| *remote_checksum).count(), 4);
        let each = (9 + 2) * 5 + 10 * 4;
        assert_eq!(trials, each * 2, "streams in turns, requests, a clock at our own");
        let veth = [("VXLAN".into(), true), ("VXLAN".into(), false), ("Geneve".into(), false)];
        assert_eq!(rows(Device::Veth), (veth.to_vec(), ((3 + 2) * 5 + 4 * 4) * 2));
    }
}
