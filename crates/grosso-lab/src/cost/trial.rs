//! One measurement, on its own hosts and data paths.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io,
    sync::{Arc, atomic::AtomicBool},
    thread::{self, Scope},
};

use grosso_io::{
    Port,
    live::{LivePort, XdpPort, XdpPortOptions},
    path::DirectionStats,
    runner::{RunOptions, Snapshot},
};
use grosso_sys::tun::Layer;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{CostSetting, Offloads, Wire};
use crate::{
    netns::{Device, Ends, Family, Hosts, Inside, Layout, open_packet},
    profiler::{Observing, Part, Profiler, Side, Spent, Timed},
    running::Running,
    traffic::Traffic,
    trial::{self, PATHS, Tool, TrialError, gone, observe_gauged, settle},
    tunnel::{self, Tunnel},
};

/// Results of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CostRun {
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Work of path a, which runs from its host to the wire, and of path b, which runs from the wire to its host.
    pub paths: [PathRun; 2],
    /// Number of segments retransmitted during the whole connection.
    pub retransmits: u64,
    /// Number of segments with a wrong checksum.
    pub checksum_errors: u64,
}

impl CostRun {
    /// Returns the throughput in Gb/s.
    #[must_use]
    pub fn gigabits_a_second(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds
    }
}

/// Packets that a data path forwarded, and the time that its thread took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PathRun {
    /// Number of wire packets in the direction of the data.
    pub packets: u64,
    /// Number of frames that contained the packets at the host.
    pub frames: u64,
    /// CPU time of the thread in nanoseconds, excluding the reading of clocks.
    pub total_ns: f64,
    /// CPU time of each part, in nanoseconds.
    pub parts: Parts,
    /// System calls that received the packets.
    pub receive: Calls,
    /// System calls that sent the packets.
    pub send: Calls,
}

/// System calls, and the packets and bytes that they transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Calls {
    /// Number of calls, including those that transferred nothing. Packets in a mapped ring need no calls.
    pub calls: u64,
    /// Number of wire packets.
    pub packets: u64,
    /// Total length of the frames in bytes.
    pub bytes: u64,
}

/// A part of a data path's work. The parts are in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum PartName {
    /// System calls that receive packets.
    ReceiveCalls,
    /// Other work of the receiving port.
    Receive,
    /// Work of the engine: verification, coalescing, segmentation, and tunnels.
    Engine,
    /// Checksums over more than 64 bytes, no matter which part computes them.
    Checksums,
    /// System calls that send packets.
    SendCalls,
    /// Other work of the sending port.
    Send,
    /// All work for packets in the other direction, which are acknowledgments.
    Acknowledgments,
    /// Time to fall asleep and to wake up.
    Wait,
    /// The loop that runs the other parts.
    Loop,
    /// Time that is not attributed to any part.
    Unexplained,
}

impl PartName {
    /// All parts.
    pub const ALL: [Self; 10] = [
        Self::ReceiveCalls,
        Self::Receive,
        Self::Engine,
        Self::Checksums,
        Self::SendCalls,
        Self::Send,
        Self::Acknowledgments,
        Self::Wait,
        Self::Loop,
        Self::Unexplained,
    ];
}

/// A figure for each part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts([f64; PartName::ALL.len()]);

impl Parts {
    /// Computes a figure for each part.
    pub(super) fn each(make: impl Fn(PartName) -> f64) -> Self {
        Self(PartName::ALL.map(make))
    }

    /// Returns the figure for one part.
    #[must_use]
    pub fn get(&self, part: PartName) -> f64 {
        self.0[part as usize]
    }

    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

impl Serialize for Parts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(PartName::ALL.iter().map(|part| (part, self.get(*part))))
    }
}

impl JsonSchema for Parts {
    fn schema_name() -> Cow<'static, str> {
        "Parts".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<PartName, f64>::json_schema(generator)
    }
}

/// Measures once, on new hosts that are removed afterward.
///
/// # Errors
/// Fails if the hosts cannot be created, if the traffic stalls or is damaged, or if the measurement is interrupted.
pub fn measure(setting: &CostSetting, interrupted: &AtomicBool) -> Result<CostRun, TrialError> {
    let superframes = setting.offloads != Offloads::Off;
    let (layout, device) = (Layout::default(), setting.device);
    let trial = CostTrial { setting, interrupted };
    match setting.wire {
        Wire::Ring => {
            let (hosts, ends) = Hosts::apart_by(&layout, (device, superframes), MTU, open_packet)?;
            trial.run(&layout, &hosts, ends)
        }
        Wire::Xdp => {
            let options = XdpPortOptions::default();
            let open = |name: &str, _: &_| XdpPort::open(name, &options).map(LivePort::Xdp);
            let (hosts, ends) = Hosts::apart_by(&layout, (device, superframes), MTU, open)?;
            trial.run(&layout, &hosts, ends)
        }
        Wire::Udp => {
            let (tunnel, layer) = match device {
                Device::Tap => (Tunnel::IpipGue, Layer::Ip),
                Device::Veth => (Tunnel::Vxlan, Layer::Ethernet),
            };
            let layout = tunnel::layout((tunnel, Family::V4), false, 1);
            let inside = Inside { device, layer, superframes };
            let (hosts, [near, far]) =
                Hosts::tunnelled(&layout, inside, (tunnel::WIRE_MTU, Family::V4))?;
            let open = |side| {
                let around = |socket| Timed::new(socket, Side::Wire);
                let network = hosts.underlay().get(side).ok_or_else(gone)?;
                tunnel::open_end(
                    (network, side),
                    (tunnel, Family::V4),
                    (false, false),
                    superframes,
                    around,
                )
            };
            trial.run_timed(&layout, &hosts, [(open(0)?, near), (open(1)?, far)])
        }
    }
}

/// The setting of a trial, and the flag that interrupts the trial.
#[derive(Clone, Copy)]
struct CostTrial<'a> {
    setting: &'a CostSetting,
    interrupted: &'a AtomicBool,
}

impl CostTrial<'_> {
    /// Measures both data paths, each of which connects the wire to a device of host a or host b.
    fn run(self, layout: &Layout, hosts: &Hosts, ends: [Ends; 2]) -> Result<CostRun, TrialError> {
        let timed = ends.map(|Ends { wire, device }| (Timed::new(wire, Side::Wire), device));
        self.run_timed(layout, hosts, timed)
    }

    /// Runs the trial. The ports at the wire must already be wrapped so that the time of their work is measured.
    fn run_timed<W: Port + Send>(
        self,
        layout: &Layout,
        hosts: &Hosts,
        ends: [(W, LivePort); 2],
    ) -> Result<CostRun, TrialError> {
        let _observing = Observing::start();
        let [near, far] = ends;
        thread::scope(|scope| {
            let a = TimedPath::start(scope, self.setting, 0, near)?;
            let b = TimedPath::start(scope, self.setting, 1, far)?;
            let observed = self.observe(layout, hosts, [&a, &b]);
            a.running.end()?;
            b.running.end()?;
            observed
        })
    }

    /// Sends a stream, and reads the counters and clocks of the data paths before and after it.
    fn observe(
        self,
        layout: &Layout,
        hosts: &Hosts,
        ends: [&TimedPath<'_>; 2],
    ) -> Result<CostRun, TrialError> {
        let setting = self.setting;
        let traffic = trial::Setting {
            traffic: Traffic::TcpStream,
            connections: 1,
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
        let gauge = || Ok([ends[0].take()?, ends[1].take()?]);
        let observed = observe_gauged(&traffic, hosts, self.interrupted, gauge)?;
        let (measured, [[a_before, b_before], [a_after, b_after]]) = observed;
        let from_host = |gauged: &PathReading| gauged.snapshot.right_to_left;
        let from_wire = |gauged: &PathReading| gauged.snapshot.left_to_right;
        let a = Traversed::between(&from_host(&a_before), &from_host(&a_after));
        let b = Traversed::between(&from_wire(&b_before), &from_wire(&b_after));
        let (a_spent, b_spent) =
            (a_after.spent.since(&a_before.spent), b_after.spent.since(&b_before.spent));
        Ok(CostRun {
            seconds: measured.seconds,
            bytes: measured.bytes,
            paths: [
                PathRun::new(&a_spent, Side::Host, &a, a.frames_in),
                PathRun::new(&b_spent, Side::Wire, &b, b.frames_out),
            ],
            retransmits: measured.retransmits,
            checksum_errors: measured.checksum_errors,
        })
    }
}

/// A running data path, and the clocks of its thread.
struct TimedPath<'scope> {
    running: Running<'scope, ()>,
    profiler: Arc<Profiler>,
}

/// Counters and clocks of a data path at one point in time.
struct PathReading {
    spent: Spent,
    snapshot: Snapshot,
}

impl<'scope> TimedPath<'scope> {
    /// Starts the data path of host a (0) or host b (1).
    fn start<W: Port + Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        setting: &CostSetting,
        side: usize,
        (wire, device): (W, LivePort),
    ) -> io::Result<Self> {
        let mut options = RunOptions::new(SEED);
        for direction in [&mut options.left_to_right, &mut options.right_to_left] {
            direction.coalesce = setting.offloads != Offloads::Off;
            if setting.offloads == Offloads::OneByOne {
                direction.budget_frames = 1;
                direction.profile.limits.full_poll_ns = 0;
            }
        }
        let profiler = Arc::new(Profiler::default());
        let own = Arc::clone(&profiler);
        let (name, processor) = (PATHS[side], setting.processors[side]);
        let first = move || {
            settle(name, processor)?;
            own.enter();
            Ok(())
        };
        let last = |_| Ok(());
        let ends = (wire, Timed::new(device, Side::Host));
        let running = Running::start(scope, ends, options, first, last)?;
        Ok(Self { running, profiler })
    }

    fn take(&self) -> io::Result<PathReading> {
        let snapshot = self.running.handle().snapshot().ok_or_else(gone)?;
        Ok(PathReading { spent: self.profiler.spent(), snapshot })
    }
}

/// Numbers of packets, frames and bytes that a data path forwarded in one direction.
#[derive(Clone, Copy)]
struct Traversed {
    packets: u64,
    frames_in: u64,
    frames_out: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Traversed {
    fn between(before: &DirectionStats, after: &DirectionStats) -> Self {
        Self {
            packets: after.tx_wire.packets - before.tx_wire.packets,
            frames_in: after.rx_frames - before.rx_frames,
            frames_out: after.tx_frames - before.tx_frames,
            bytes_in: after.rx_bytes - before.rx_bytes,
            bytes_out: after.tx_bytes - before.tx_bytes,
        }
    }
}

impl PathRun {
    /// Returns the measurement for packets that enter on side `from` and leave on the other side.
    fn new(spent: &Spent, from: Side, passed: &Traversed, frames: u64) -> Self {
        use Part::{
            FromHost, FromWire, HostReceive, HostReceiveCall, HostSend, HostSendCall, WireReceive,
            WireReceiveCall, WireSend, WireSendCall,
        };
        let wire_to_host = [WireReceiveCall, WireReceive, FromWire, HostSendCall, HostSend];
        let host_to_wire = [HostReceiveCall, HostReceive, FromHost, WireSendCall, WireSend];
        let (there, back) = match from {
            Side::Wire => (wire_to_host, host_to_wire),
            Side::Host => (host_to_wire, wire_to_host),
        };
        let ns = |part| spent.part_ns(part) as f64;
        let parts = Parts::each(|part| match part {
            PartName::ReceiveCalls => ns(there[0]),
            PartName::Receive => ns(there[1]),
            PartName::Engine => ns(there[2]),
            PartName::Checksums => ns(Part::Checksums),
            PartName::SendCalls => ns(there[3]),
            PartName::Send => ns(there[4]),
            PartName::Acknowledgments => back.into_iter().map(ns).sum(),
            PartName::Wait => ns(Part::Wait),
            PartName::Loop => ns(Part::Loop),
            PartName::Unexplained => spent.unexplained_ns() as f64,
        });
        let calls =
            |part, bytes| Calls { calls: spent.begun(part), packets: passed.packets, bytes };
        Self {
            packets: passed.packets,
            frames,
            total_ns: spent.total_ns() as f64,
            parts,
            receive: calls(there[0], passed.bytes_in),
            send: calls(there[3], passed.bytes_out),
        }
    }
}

/// MTU of a wire without a tunnel.
const MTU: u16 = 1500;
/// Seed of the flow tables, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;
