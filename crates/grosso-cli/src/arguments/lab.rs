//! Arguments of `grosso lab`.
//!
//! Longer than 600 lines: the help of each experiment is next to its arguments.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand, ValueEnum};
use grosso_io::impair::Impairment;

use super::values::{
    parse_cpus, parse_offer, parse_peer, parse_run_ns, parse_share, parse_time_ns,
};
use crate::error::Failure;

/// Without an experiment, runs the main measurement: MTU 1500, coalescing on and off
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "EXPERIMENT")]
#[command(subcommand_help_heading = "Experiments")]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) experiment: Option<LabExperiment>,
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
}

/// Lab experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum LabExperiment {
    #[command(flatten)]
    Measure(LabMeasurement),
    /// Table R3: acknowledgments with and without merging
    #[command(after_long_help = ACKS_HELP)]
    Acks(LabAcks),
    /// Cost per packet on a data path, by part
    #[command(after_long_help = COST_HELP)]
    Cost(LabTrials),
    /// Table R2: reassembly of ESP datagrams in a NIC with few receive buffers
    #[command(after_long_help = FRAGMENTS_HELP)]
    Fragments(LabFragments),
    /// Table R4: tunnels with remote checksum offload
    #[command(after_long_help = TUNNELS_HELP)]
    Tunnels(LabTunnels),
    /// VM networks: Grosso, QEMU's TAP and passt
    #[command(after_long_help = VM_HELP)]
    Vm(LabVm),
    /// Each offload of a real device, on and off
    #[command(after_long_help = NIC_HELP)]
    Nic(LabNic),
    /// Run the peer of `lab nic` until Ctrl-C
    Sink(LabSink),
    /// Packets merged by each profile on one trace
    Profiles(LabProfiles),
    /// Run your own command on two hosts, with Grosso and an impaired link between them
    #[command(after_long_help = RUN_HELP)]
    Run(LabRun),
}

/// Profiles that process the trace.
#[derive(Args, Debug)]
pub(crate) struct LabProfiles {
    /// Add this profile from a file; see `grosso profiles`
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) profile: Vec<String>,
}

/// Lab measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum LabMeasurement {
    /// Table R1: receive offload at several MTUs, compared with the kernel's GRO
    Lro(LabLro),
    /// Table R5: sender superframes on and off
    Gso(LabOptions),
    /// Train length by number of connections
    Flows(LabOptions),
    /// Coalescing on and off, at loads from 10 Mb/s
    Load(LabOptions),
    /// Reordering on two paths with different delays, at each reorder level
    Reorder(LabReorder),
    /// Hold times at round trips of 0.1 to 100 ms
    Rtt(LabOptions),
    /// Throughput of one TCP connection
    TcpStream(LabOptions),
    /// Throughput in the reverse direction
    TcpMaerts(LabOptions),
    /// TCP request-response latency: 50th, 90th, 95th and 99th percentile
    #[command(visible_alias = "rr")]
    TcpRr(LabOptions),
    /// Throughput of MTU-sized UDP datagrams
    UdpStream(LabOptions),
    /// UDP request-response latency, like tcp-rr
    UdpRr(LabOptions),
}

impl LabMeasurement {
    /// Returns the measurement's name on the command line, the options that every measurement has, and the options that
    /// only some measurements have.
    #[cfg(feature = "lab")]
    pub(crate) fn parts(&self) -> (&'static str, &LabOptions, LabMore) {
        let more = LabMore::default();
        let (name, options) = match self {
            Self::Reorder(LabReorder { measuring, rate }) => {
                return ("reorder", measuring, LabMore { wire_bits: Some(*rate), ..more });
            }
            Self::Lro(LabLro { measuring, no_timestamps, buffers }) => {
                let (no_timestamps, buffers) = (*no_timestamps, *buffers);
                return ("lro", measuring, LabMore { no_timestamps, buffers, ..more });
            }
            Self::Load(options) => ("load", options),
            Self::Gso(options) => ("gso", options),
            Self::Flows(options) => ("flows", options),
            Self::Rtt(options) => ("rtt", options),
            Self::TcpStream(options) => ("tcp-stream", options),
            Self::TcpMaerts(options) => ("tcp-maerts", options),
            Self::TcpRr(options) => ("tcp-rr", options),
            Self::UdpStream(options) => ("udp-stream", options),
            Self::UdpRr(options) => ("udp-rr", options),
        };
        (name, options, more)
    }
}

/// Options that only some measurements have.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LabMore {
    /// Rate of the wire in bits per second, if it is limited.
    pub(crate) wire_bits: Option<u64>,
    /// Whether TCP segments are sent without timestamps.
    pub(crate) no_timestamps: bool,
    /// Maximum size of socket buffers in bytes.
    pub(crate) buffers: Option<u32>,
}

/// Options of a measurement.
#[derive(Args, Debug)]
pub(crate) struct LabOptions {
    /// Repeat each measurement N times [default: 3; 5 for lro]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: Option<u16>,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Set the congestion control of the lab's sockets
    #[arg(long, value_name = "NAME", default_value = "cubic", hide_short_help = true)]
    pub(crate) congestion: String,
    /// Hold trains across polls for this long, for example 20us or 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Send from a file, without a copy in the sender
    #[arg(long, hide_short_help = true)]
    pub(crate) sendfile: bool,
    /// Set the device that delivers packets to a host; auto: TAP if /dev/net/tun is accessible, else veth
    #[arg(long, value_name = "KIND", default_value = "auto", hide_short_help = true)]
    pub(crate) device: LabDevice,
    /// Select where checksums are verified; verification in the NIC is not measured
    #[arg(long, value_name = "WHERE", default_value = "nic", hide_short_help = true)]
    pub(crate) checksums: LabChecksums,
    /// Select the traffic generator
    #[arg(long, value_name = "TOOL", default_value = "built-in", hide_short_help = true)]
    pub(crate) tool: LabTool,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// Options for `grosso lab lro`.
#[derive(Args, Debug)]
pub(crate) struct LabLro {
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
    /// Send TCP segments without timestamps, as in the 2007 measurement
    #[arg(long, hide_short_help = true)]
    pub(crate) no_timestamps: bool,
    /// Set the maximum size of TCP socket buffers; the 2007 measurement used 16777216
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(65_536..=67_108_864))]
    pub(crate) buffers: Option<u32>,
}

/// Options for `grosso lab reorder`.
#[derive(Args, Debug)]
pub(crate) struct LabReorder {
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
    /// Set the total rate of both paths in bit/s; must be below what this machine can carry
    #[arg(long, value_name = "BITS", default_value = "1G", value_parser = parse_offer)]
    pub(crate) rate: u64,
}

/// CPUs to which threads are pinned.
#[derive(Args, Debug)]
pub(crate) struct LabProcessors {
    /// Pin sender, data path and receiver to these CPUs, for example 0,1,2 [default: the last two CPUs]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus, hide_short_help = true)]
    pub(crate) cpus: Option<[usize; 3]>,
}

/// Output page with plots.
#[derive(Args, Debug)]
pub(crate) struct LabPage {
    /// Write the HTML page with plots to this file [default: grosso-lab.html, or grosso-lab-EXPERIMENT.html]
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Do not write an HTML page
    #[arg(long, conflicts_with = "html", hide_short_help = true)]
    pub(crate) no_html: bool,
}

/// Number and duration of measurements.
#[derive(Args, Debug)]
pub(crate) struct LabRepeats {
    /// Repeat each measurement N times
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
}

/// Device and CPUs of a measurement, and its output page.
#[derive(Args, Debug)]
pub(crate) struct LabSetup {
    /// Set the device that delivers packets to a host; auto: TAP if /dev/net/tun is accessible, else veth
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// Options for `grosso lab fragments`.
#[derive(Args, Debug)]
pub(crate) struct LabFragments {
    /// Repeat each measurement N times; claims about silences need at least 5
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Set the offered load in bit/s; must be below what this machine can carry
    #[arg(long, value_name = "BITS", default_value = "1.5G", value_parser = parse_offer)]
    pub(crate) rate: u64,
    /// Set the loss rate of fragments in the second group; 0 skips that group
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse_share)]
    pub(crate) loss: f64,
    /// Set the reassembly timeout; RFC 8200 requires 60s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_run_ns)]
    pub(crate) timeout: u64,
    /// Set the payload size of each datagram
    #[arg(long, value_name = "BYTES", default_value = "64000")]
    #[arg(value_parser = clap::value_parser!(u16).range(8000..=65_000))]
    pub(crate) size: u16,
    /// Send over IPv4 instead of IPv6
    #[arg(long)]
    pub(crate) ipv4: bool,
    #[command(flatten)]
    pub(crate) setup: LabSetup,
}

/// Options for `grosso lab acks`.
#[derive(Args, Debug)]
pub(crate) struct LabAcks {
    /// Repeat each measurement N times; fewer than 3 gives noisy results
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Set the duration of each measurement of a stream
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Set the round-trip times of the timed transfers; the first is measured with every profile
    #[arg(long, value_name = "TIME", default_values = ["20ms", "1ms", "100ms"], value_parser = parse_time_ns)]
    pub(crate) round_trip: Vec<u64>,
    /// Set the size of each transfer
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(65536..))]
    pub(crate) transfer: u64,
    /// Select the senders of the transfers; auto: kernel TCP with BPF if available, else userspace TCP
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) senders: LabSenders,
    /// Set the congestion control of the streams
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    #[command(flatten)]
    pub(crate) setup: LabSetup,
}

/// Options for measurements of kernel TCP through two data paths.
#[derive(Args, Debug)]
pub(crate) struct LabTrials {
    #[command(flatten)]
    pub(crate) repeated: LabRepeats,
    /// Set the congestion control of the lab's sockets
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Set the device that delivers packets to a host; auto: TAP or TUN if /dev/net/tun is accessible, else veth
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// Options for `grosso lab tunnels`.
#[derive(Args, Debug)]
pub(crate) struct LabTunnels {
    #[command(flatten)]
    pub(crate) measuring: LabTrials,
    /// Run the tunnels over IPv6
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// Send from a file, without a copy in the sender
    #[arg(long)]
    pub(crate) sendfile: bool,
    /// Set the number of concurrent TCP connections; the published table used 200
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) streams: u16,
}

/// Options for `grosso lab vm`.
#[derive(Args, Debug)]
pub(crate) struct LabVm {
    /// Repeat each measurement N times; the VMs boot again for each run
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Set the duration of each stream
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Boot the kernel in this directory, which contains boot/vmlinuz-RELEASE and lib/modules/RELEASE
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) kernel: PathBuf,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// Options for `grosso lab nic`.
#[derive(Args, Debug)]
pub(crate) struct LabNic {
    /// Device to measure
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Address of the host that runs `grosso lab sink`, reached through the device
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_peer, required_unless_present = "watch")]
    pub(crate) peer: Option<SocketAddr>,
    /// Measure only this feature; repeatable [default: all features that can be changed]
    #[arg(long, value_name = "NAME")]
    pub(crate) feature: Vec<String>,
    /// Repeat each measurement N times; fewer than 3 gives noisy results
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Act as the watchdog: restore the features when standard input ends
    #[arg(long, hide = true)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// Options for `grosso lab sink`.
#[derive(Args, Debug)]
pub(crate) struct LabSink {
    /// Listen on this address and port
    #[arg(value_name = "ADDRESS[:PORT]", default_value = "::", value_parser = parse_peer)]
    pub(crate) listen: SocketAddr,
    /// Connect to a sink at the given address, transfer data in this direction, and print the results
    #[arg(long, value_name = "DIRECTION", hide = true)]
    pub(crate) call: Option<LabCall>,
    /// Measure for this long [default: do not measure, only verify the bytes]
    #[arg(long, value_name = "TIME", hide = true, requires = "call", value_parser = parse_run_ns)]
    pub(crate) time: Option<u64>,
}

/// Direction of a stream between this process and a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabCall {
    /// Send to the sink.
    Transmit,
    /// Receive from the sink.
    Receive,
}

/// Options for `grosso lab run`.
#[derive(Args, Debug)]
pub(crate) struct LabRun {
    /// Topology of the hosts and links
    #[arg(value_name = "TOPOLOGY", required_unless_present = "config")]
    pub(crate) topology: Option<LabTopology>,
    /// Run the experiment in this file: hosts, links, paths, settings, claims; see docs/lab.md
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_TWO_HOSTS)]
    pub(crate) config: Option<PathBuf>,
    /// Repeat each measurement N times; overrides the file
    #[arg(long, value_name = "N", conflicts_with = "topology", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: Option<u16>,
    /// Set the maximum packet size, counted from the IP header
    #[arg(long, value_name = "N", default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=65521))]
    pub(crate) mtu: u16,
    /// Impair the link in both directions, for example 'delay 5ms jitter 1ms loss 0.1% seed 7'
    #[arg(long, value_name = "IMPAIRMENTS")]
    pub(crate) impair: Option<Impairment>,
    /// Merge nothing: forward every packet unchanged
    #[arg(long)]
    pub(crate) no_coalesce: bool,
    /// Hold trains across polls for this long, for example 20us or 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Start a server on host a or b first, and wait until it listens
    #[arg(long, num_args = 2, value_names = ["HOST", "COMMAND"])]
    pub(crate) on: Vec<String>,
    /// Set the duration of the built-in stream, if no command is given [default: 5s, or from the file]
    #[arg(long, value_name = "TIME", value_parser = parse_run_ns)]
    pub(crate) time: Option<u64>,
    /// Set the congestion control of the built-in stream
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Set the device that delivers packets to b; auto: TAP if /dev/net/tun is accessible, else veth
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    /// Write the HTML page of an experiment to this file [default: grosso-lab-run.html]
    #[arg(long, value_name = "FILE", conflicts_with = "topology", hide_short_help = true)]
    pub(crate) html: Option<PathBuf>,
    /// Do not write an HTML page
    #[arg(long, conflicts_with_all = ["html", "topology"], hide_short_help = true)]
    pub(crate) no_html: bool,
    /// Run this command on host a and exit with its code [default: a stream from a to b]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of `lab run` that cannot be combined with a configuration file, because the file replaces them.
const OF_TWO_HOSTS: [&str; 10] = [
    "topology",
    "mtu",
    "impair",
    "no_coalesce",
    "hold",
    "on",
    "congestion",
    "device",
    "cpus",
    "command",
];

/// Hosts in an experiment, and the wire between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabTopology {
    /// Hosts a and b with a link between them; Grosso is the NIC of b.
    TwoHosts,
}

/// A host of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "lab"), expect(dead_code, reason = "only `grosso lab` reads it"))]
pub(crate) enum LabHost {
    A,
    B,
}

impl FromStr for LabHost {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "a" => Ok(Self::A),
            "b" => Ok(Self::B),
            _ => Err(Failure::usage("usage.host", format!("lab run: --on: no host \"{text}\""))
                .hint("the hosts are named a and b, for example: --on b 'iperf3 -s'")),
        }
    }
}

/// Devices that pass packets from the data path to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabDevice {
    /// TAP if available, else a veth pair.
    Auto,
    /// TAP device, like the NIC of a VM; needs /dev/net/tun.
    Tap,
    /// Veth pair with a packet socket at the far end; needs no privileges.
    Veth,
}

/// Sender implementation for timed transfers. The transfers are run with three ways of counting acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabSenders {
    /// Kernel TCP with BPF congestion control (needs root and bpftool), else userspace TCP.
    Auto,
    /// Userspace TCP, the same on every machine; needs no privileges.
    Userspace,
}

/// Place where the checksums of received packets are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabChecksums {
    /// The NIC, which has verified the checksums of arriving packets.
    Nic,
    /// The receiver: Grosso, or the kernel in measurements without Grosso.
    Receiver,
}

/// Programs that can generate the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabTool {
    /// Use the lab's own threads.
    BuiltIn,
    /// Use iperf3, which must be installed.
    Iperf3,
}

pub(crate) const LAB_HELP: &str = "\
Hosts are network namespaces in a private user namespace: the lab needs no root,
changes nothing outside and leaves nothing behind. It measures the kernel's TCP,
with Grosso in place of the receiver's NIC and driver. Two experiments use root:
`acks` loads BPF senders if it can (otherwise the senders run in userspace), and
`nic` needs it to change features of your device, which it restores. --cpus pins
sender, data path and receiver, except in `profiles` (one thread), `nic` and `vm`.

Examples:
  grosso lab                      the main measurement, in twenty seconds
  grosso lab --html report.html   write the page with plots to this file
  grosso lab lro                  table R1, compared with the kernel's GRO
  grosso lab gso                  table R5: sender superframes, split by Grosso
  grosso lab fragments            table R2: goodput with few receive buffers
  grosso lab reorder              packets over two paths, with and without repair
  grosso lab acks                 table R3: merged acknowledgments and ACK clocking
  grosso lab tunnels              table R4: tunnels with remote checksum offload
  grosso lab nic eth0 --peer 192.0.2.7   each feature of eth0 on and off
  grosso lab cost                 nanoseconds per packet, by part
  grosso lab vm                   VMs over different backends
  grosso lab tcp-stream --tool iperf3
  grosso lab run two-hosts --impair 'delay 5ms loss 0.1% seed 7'
  grosso lab --json | jq '.groups[].ratio'";

const FRAGMENTS_HELP: &str = "\
Host a sends datagrams of 64000 bytes; Grosso encrypts each (ESP, AES-GCM) and
splits it into 45 fragments. Host b's NIC has few receive buffers. A receiver that
queues fragments runs out of buffers: if one fragment is lost, the other fragments
of the datagram occupy their buffers until the timeout. A receiver that copies each
fragment to its offset frees the buffer at once. The last group offers 8 Gb/s:
this load uses up the NIC's buffers even if no fragment is lost on the wire.

Examples:
  grosso lab fragments                      everything, in about a minute
  grosso lab fragments --rate 800M --loss 1%
  grosso lab fragments --runs 1 --loss 0    a quick look
  grosso lab fragments --json | jq -c '.groups[].rows[] | [.receiver, .buffers]'";

const TUNNELS_HELP: &str = "\
Each host's packets go through a tunnel that Grosso terminates over UDP sockets.
With remote checksum offload (RCO) the receiver completes the inner checksum, or
does not compute it at all. For comparison, the kernel's VXLAN runs on the same
link, and Grosso's VXLAN also runs with every offload off.

Examples:
  grosso lab tunnels                         everything, in two or three minutes
  grosso lab tunnels --runs 1 --time 300ms   a quick look
  grosso lab tunnels --streams 200           as in the published table
  grosso lab tunnels --ipv6 --sendfile       over IPv6, without a copy in the sender
  grosso lab tunnels --json | jq -c '.comparisons[]'";

const NIC_HELP: &str = "\
Turns each changeable feature of DEV that affects a TCP stream off and on, while
one TCP connection runs between DEV and `grosso lab sink` on the peer. Needs root
(CAP_NET_ADMIN). The changes also affect other traffic of the device, and some
drivers lose the link briefly. A watchdog process restores all features at the
end, after Ctrl-C, and if the lab is killed.

Examples:
  grosso lab sink                              on the peer, as any user
  grosso lab nic eth0 --peer 192.0.2.7         all features, in several minutes
  grosso lab nic eth0 --peer 192.0.2.7 --feature rx-gro --feature tx-tcp-segmentation
  grosso lab nic eth0 --peer 192.0.2.7 --json | jq -c '.rows[] | [.feature, .on]'";

const COST_HELP: &str = "\
Runs kernel TCP between two hosts, each with a Grosso data path in place of its
NIC. The threads of the data path take timestamps between the parts of their work:
system calls, ports, engine, checksums. The data paths access the link through
packet sockets, AF_XDP sockets (as root) or UDP sockets.

Examples:
  grosso lab cost                         everything, in half a minute
  grosso lab cost --runs 1 --time 200ms   a quick look
  grosso lab cost --device veth           without a TUN
  grosso lab cost --json | jq -c '.rows[] | [.wire, .offloads, .paths[].parts]'";

const VM_HELP: &str = "\
QEMU emulates the VMs, without /dev/kvm. They boot the installed kernel, or one
unpacked in a directory. Each VM runs one TCP stream in each direction with the
host, with another VM, and with a host behind a tunnel. Frames go through Grosso
(vhost-user or a socket), QEMU's TAP, or passt. The last table counts the
instructions of a guest that receives into packet buffers or pages. Needs
qemu-system-x86_64, busybox, dash, ip, modprobe, depmod and cpio, and reports
which are missing.

Examples:
  grosso lab vm                         everything, in several minutes
  grosso lab vm --runs 1 --time 300ms   a quick look
  grosso lab vm --kernel unpacked       after dpkg -x linux-image-*.deb unpacked
  grosso lab vm --json | jq -c '.groups[].rows[] | [.carrier, .to_guest]'";

const ACKS_HELP: &str = "\
A TCP sender transmits new data when acknowledgments arrive. In 2011, software
receive offload merged acknowledgments too, which halved the rate of senders. Here
Grosso acts as the NIC of the sender or of the receiver and merges with several
profiles. The report also shows a model of the sender, and how many packets are
overtaken if acknowledgments bypass the coalescer. Timed transfers use only the CPU
of the data path, the second one in --cpus.

Examples:
  grosso lab acks                         everything, in a minute
  grosso lab acks --runs 1 --time 200ms   a quick look
  grosso lab acks --congestion reno
  grosso lab acks --json | jq -c '.rows[] | [.side, .handling, .hold_us]'";

const RUN_HELP: &str = "\
The hosts' addresses are in the environment of the command: GROSSO_A and GROSSO_B,
and for IPv6 GROSSO_A6 and GROSSO_B6. GROSSO_HOST is a or b. When the command ends,
its child processes are killed. Grosso acts as the NIC of host b: it merges the
packets that arrive from host a, and sends the packets of b over the link.

With --config, a file describes other hosts, links and paths, and the settings to
compare. --cpus pins the data path and the built-in stream; use taskset for your
command. A file has its own key `cpus`.

Examples:
  grosso lab run --config examples/lab/lro-in-the-middle.toml
  grosso lab run two-hosts --impair 'delay 5ms jitter 1ms loss 0.1% seed 7'
  grosso lab run two-hosts --on b 'iperf3 -s' -- sh -c 'iperf3 -c $GROSSO_B'
  grosso lab run two-hosts --no-coalesce -- sh";
