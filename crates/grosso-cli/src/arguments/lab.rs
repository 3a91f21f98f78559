//! `grosso lab`.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand, ValueEnum};
use grosso_io::impair::Impairment;

use super::values::{
    parse_cpus, parse_offer, parse_peer, parse_run_ns, parse_share, parse_time_ns,
};
use crate::error::Failure;

/// Without an experiment, the headline: MTU 1500, coalescing on and off
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "EXPERIMENT")]
#[command(subcommand_help_heading = "Experiments")]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) experiment: Option<LabExperiment>,
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
}

/// The experiments of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabExperiment {
    #[command(flatten)]
    Measure(LabMeasurement),
    /// Table R3: acknowledgments merged and whole
    #[command(after_long_help = ACKS_HELP)]
    Acks(LabAcks),
    /// Cost of a packet on a data path, by part
    #[command(after_long_help = COST_HELP)]
    Cost(LabTrials),
    /// Table R2: fragments inside ESP to a NIC with few receive buffers, coalesced and queued
    #[command(after_long_help = FRAGMENTS_HELP)]
    Fragments(LabFragments),
    /// Table R4: tunnels, remote checksum offload
    #[command(after_long_help = TUNNELS_HELP)]
    Tunnels(LabTunnels),
    /// Virtual machines, beside QEMU's TAP and passt
    #[command(after_long_help = VM_HELP)]
    Vm(LabVm),
    /// Each feature of a device of yours, on and off
    #[command(after_long_help = NIC_HELP)]
    Nic(LabNic),
    /// The other end of `lab nic`, until Ctrl-C
    Sink(LabSink),
    /// One trace through every profile: trains, losses, time a packet
    Profiles(LabProfiles),
    /// Run a command of yours on hosts with Grosso and a wire that may be bad between them
    #[command(after_long_help = RUN_HELP)]
    Run(LabRun),
}

/// The profiles that the trace goes through.
#[derive(Args, Debug)]
pub(crate) struct LabProfiles {
    /// Add this profile: a file, see `grosso profiles`
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) profile: Vec<String>,
}

/// The measurements of the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabMeasurement {
    /// Table R1: MTUs, copies, and the kernel's GRO
    Lro(LabLro),
    /// Table R5: the sender's superframes on and off
    Gso(LabOptions),
    /// Trains against the number of connections
    Flows(LabOptions),
    /// Loads from 10 Mb/s on, coalescing on and off
    Load(LabOptions),
    /// Two paths, one of them 0 to 200 us longer: not repaired, repaired within a poll, behind holes
    Reorder(LabReorder),
    /// Paths of 0.1 to 100 ms, and how long to hold
    Rtt(LabOptions),
    /// One connection, as many bytes as it takes
    TcpStream(LabOptions),
    /// The other way round: the receiver sends
    TcpMaerts(LabOptions),
    /// A byte there and one back: latency of 50, 90, 95 and 99 % of requests
    #[command(visible_alias = "rr")]
    TcpRr(LabOptions),
    /// Datagrams that fill the MTU, as many as arrive
    UdpStream(LabOptions),
    /// As tcp-rr, with datagrams
    UdpRr(LabOptions),
}

impl LabMeasurement {
    /// Its name on the command line, the options of all, and those that only some have.
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

/// The options that only some measurements have.
#[cfg(feature = "lab")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LabMore {
    /// Bits a second of the wire, if that has a rate.
    pub(crate) wire_bits: Option<u64>,
    /// Whether TCP's segments are without timestamps.
    pub(crate) no_timestamps: bool,
    /// Greatest size of a socket's buffer in bytes.
    pub(crate) buffers: Option<u32>,
}

/// The options of a measurement.
#[derive(Args, Debug)]
pub(crate) struct LabOptions {
    /// Measurements of each setting: 3, and 5 for lro
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: Option<u16>,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Congestion control of the lab's sockets
    #[arg(long, value_name = "NAME", default_value = "cubic", hide_short_help = true)]
    pub(crate) congestion: String,
    /// Hold trains across polls for this long: 0, 20us, 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Send from a file, without a copy in the sender
    #[arg(long, hide_short_help = true)]
    pub(crate) sendfile: bool,
    /// Device through which Grosso hands packets to a host; auto: a TAP where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto", hide_short_help = true)]
    pub(crate) device: LabDevice,
    /// Party that verifies checksums: none, as behind a NIC that did, or the receiver
    #[arg(long, value_name = "WHAT", default_value = "nic", hide_short_help = true)]
    pub(crate) checksums: LabChecksums,
    /// Program that makes the traffic
    #[arg(long, value_name = "TOOL", default_value = "built-in", hide_short_help = true)]
    pub(crate) tool: LabTool,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// `grosso lab lro`.
#[derive(Args, Debug)]
pub(crate) struct LabLro {
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
    /// Send TCP segments without timestamps, as in 2007
    #[arg(long, hide_short_help = true)]
    pub(crate) no_timestamps: bool,
    /// Let TCP's socket buffers grow to this size, in bytes; 16777216 in 2007
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(65_536..=67_108_864))]
    pub(crate) buffers: Option<u32>,
}

/// `grosso lab reorder`.
#[derive(Args, Debug)]
pub(crate) struct LabReorder {
    #[command(flatten)]
    pub(crate) measuring: LabOptions,
    /// Bits a second of both paths together: less than this machine can carry, which else is the limit
    #[arg(long, value_name = "BITS", default_value = "1G", value_parser = parse_offer)]
    pub(crate) rate: u64,
}

/// The CPUs that threads run on.
#[derive(Args, Debug)]
pub(crate) struct LabProcessors {
    /// CPUs of sender, data path and receiver, as in 0,1,2; a path of the sender's host has its [default: the last two]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus, hide_short_help = true)]
    pub(crate) cpus: Option<[usize; 3]>,
}

/// The page with plots.
#[derive(Args, Debug)]
pub(crate) struct LabPage {
    /// File for the page with plots [default: grosso-lab.html in this folder, named after the experiment]
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no page
    #[arg(long, conflicts_with = "html", hide_short_help = true)]
    pub(crate) no_html: bool,
}

/// `grosso lab fragments`.
#[derive(Args, Debug)]
pub(crate) struct LabFragments {
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Offered bits a second: less than this machine can carry
    #[arg(long, value_name = "BITS", default_value = "1.5G", value_parser = parse_offer)]
    pub(crate) rate: u64,
    /// Share of fragments lost on the wire in the second half; 0 leaves that half out
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse_share)]
    pub(crate) loss: f64,
    /// Time that a datagram may be incomplete; 60s by RFC 8200
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_run_ns)]
    pub(crate) timeout: u64,
    /// Bytes of each datagram, without headers
    #[arg(long, value_name = "BYTES", default_value = "64000")]
    #[arg(value_parser = clap::value_parser!(u16).range(8000..=65_000))]
    pub(crate) size: u16,
    /// Send over IPv4, and not over IPv6
    #[arg(long)]
    pub(crate) ipv4: bool,
    /// Device through which Grosso hands packets to a host; auto: a TAP where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// `grosso lab acks`.
#[derive(Args, Debug)]
pub(crate) struct LabAcks {
    /// Measurements of each setting; with fewer than 3, noise decides
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Length of each measurement of a stream
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Round-trip times of the timed transfers; the first with every treatment
    #[arg(long, value_name = "TIME", default_values = ["20ms", "1ms", "100ms"], value_parser = parse_time_ns)]
    pub(crate) round_trip: Vec<u64>,
    /// Bytes of each transfer
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(65536..))]
    pub(crate) transfer: u64,
    /// Senders of the transfers; auto: the kernel's, loaded as BPF, where it takes them, else some in userspace
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) senders: LabSenders,
    /// Congestion control of the streams
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Device through which Grosso hands packets to a host; auto: a TAP where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// The options of a measurement of kernel TCP through two data paths.
#[derive(Args, Debug)]
pub(crate) struct LabTrials {
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Congestion control of the lab's sockets
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Device through which Grosso hands packets to a host; auto: a TAP or TUN where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// `grosso lab tunnels`.
#[derive(Args, Debug)]
pub(crate) struct LabTunnels {
    #[command(flatten)]
    pub(crate) measuring: LabTrials,
    /// Carry the tunnels over IPv6
    #[arg(long)]
    pub(crate) ipv6: bool,
    /// Send from a file, without a copy in the sender
    #[arg(long)]
    pub(crate) sendfile: bool,
    /// Number of TCP connections at once; 200 when the table was published
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) streams: u16,
}

/// `grosso lab vm`.
#[derive(Args, Debug)]
pub(crate) struct LabVm {
    /// Measurements of each setting, for each of which machines boot
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Length of each stream
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Folder with the guest's kernel: boot/vmlinuz-RELEASE and lib/modules/RELEASE in it
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub(crate) kernel: PathBuf,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// `grosso lab nic`.
#[derive(Args, Debug)]
pub(crate) struct LabNic {
    /// Device to measure, of this network
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Address behind the device where `grosso lab sink` runs, with its port if that is another one
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_peer, required_unless_present = "watch")]
    pub(crate) peer: Option<SocketAddr>,
    /// Measure this feature, and not all that can be changed; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) feature: Vec<String>,
    /// Measurements of each setting; with fewer than 3, noise decides
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// Be the watchdog: put the features back when standard input ends
    #[arg(long, hide = true)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) page: LabPage,
}

/// `grosso lab sink`.
#[derive(Args, Debug)]
pub(crate) struct LabSink {
    /// Address to listen at, with another port if need be
    #[arg(value_name = "ADDRESS[:PORT]", default_value = "::", value_parser = parse_peer)]
    pub(crate) listen: SocketAddr,
    /// Call the sink at this address instead, in this direction, and print the figures
    #[arg(long, value_name = "DIRECTION", hide = true)]
    pub(crate) call: Option<LabCall>,
    /// Length of the stream; without it bytes are compared
    #[arg(long, value_name = "TIME", hide = true, requires = "call", value_parser = parse_run_ns)]
    pub(crate) time: Option<u64>,
}

/// Directions of a stream to or from a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabCall {
    /// To the sink.
    Transmit,
    /// From it.
    Receive,
}

/// `grosso lab run`.
#[derive(Args, Debug)]
pub(crate) struct LabRun {
    /// Hosts, and what connects them
    #[arg(value_name = "TOPOLOGY", required_unless_present = "config")]
    pub(crate) topology: Option<LabTopology>,
    /// Measure what this file describes: hosts, wires, paths, settings, claims; see docs/lab.md
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_TWO_HOSTS)]
    pub(crate) config: Option<PathBuf>,
    /// Measurements of each setting, instead of what the file says
    #[arg(long, value_name = "N", conflicts_with = "topology", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: Option<u16>,
    /// Maximum size of a packet in bytes, from the IP header on
    #[arg(long, value_name = "N", default_value = "1500", value_parser = clap::value_parser!(u16).range(1280..=65521))]
    pub(crate) mtu: u16,
    /// Impairments of the wire, each way: 'delay 5ms jitter 1ms loss 0.1% reorder 0.5% seed 7'
    #[arg(long, value_name = "WORDS")]
    pub(crate) impair: Option<Impairment>,
    /// Merge nothing: hand on every packet by itself
    #[arg(long)]
    pub(crate) no_coalesce: bool,
    /// Hold trains across polls for this long: 0, 20us, 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Start a server first, on a or b, and wait until it listens
    #[arg(long, num_args = 2, value_names = ["HOST", "COMMAND"])]
    pub(crate) on: Vec<String>,
    /// Length of the built-in stream, without a command [default: 5s, or what the file says]
    #[arg(long, value_name = "TIME", value_parser = parse_run_ns)]
    pub(crate) time: Option<u64>,
    /// Congestion control of the built-in stream
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Device through which Grosso hands packets to b; auto: a TAP where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    #[command(flatten)]
    pub(crate) processors: LabProcessors,
    /// File for the page with plots of an experiment [default: grosso-lab-run.html in this folder]
    #[arg(long, value_name = "FILE", conflicts_with = "topology", hide_short_help = true)]
    pub(crate) html: Option<PathBuf>,
    /// Write no page
    #[arg(long, conflicts_with_all = ["html", "topology"], hide_short_help = true)]
    pub(crate) no_html: bool,
    /// Command to run on a; its exit code is the lab's [default: a stream from a to b]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The arguments of `lab run` that say what a file says otherwise.
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

/// The hosts of an experiment, and the wire between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabTopology {
    /// a, a wire, and b, whose NIC is Grosso.
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
                .hint("the hosts are a and b: --on b 'iperf3 -s'")),
        }
    }
}

/// The device through which the data path hands packets to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabDevice {
    /// A TAP if one may be made, else a veth pair.
    Auto,
    /// A TAP device, like the NIC of a virtual machine; needs /dev/net/tun.
    Tap,
    /// A veth pair with a packet socket on its far end; needs nothing.
    Veth,
}

/// The senders of timed transfers, which count acknowledgments in three ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabSenders {
    /// The kernel's TCP with congestion controls loaded as BPF, which needs root and bpftool; else TCP in userspace.
    Auto,
    /// TCP in userspace, the same on every machine; needs nothing.
    Userspace,
}

/// The party that verifies the checksums of what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabChecksums {
    /// Nobody, as behind a NIC that did.
    Nic,
    /// The receiver: Grosso, or the kernel in measurements without Grosso.
    Receiver,
}

/// The program that makes the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabTool {
    /// The lab's own threads.
    BuiltIn,
    /// iperf3, which must be installed.
    Iperf3,
}

pub(super) const LAB_HELP: &str = "\
Hosts are network namespaces of a user namespace of the lab's own: it needs no
root, changes nothing outside and leaves nothing behind. What is measured is the
kernel's own TCP, with Grosso in the place of the receiver's NIC and its driver.
The senders of `acks` alone want root and bpftool, and leave with the lab; else
they run in userspace. `nic` is another matter: it wants root, and puts back what
it changes of your device. --cpus says who runs where; `profiles` has one thread,
`nic` leaves its other end to another machine, and `vm` its machines to QEMU.

Examples:
  grosso lab                      the headline, in twenty seconds
  grosso lab --html report.html   the page with plots elsewhere
  grosso lab lro                  table R1, with the kernel's own GRO beside
  grosso lab gso                  table R5: superframes of the sender, cut by Grosso
  grosso lab fragments            table R2: the collapse without buffers, and its cure
  grosso lab reorder              packets of two paths, put in order or not
  grosso lab acks                 table R3: merged acknowledgments, and a sender's clock
  grosso lab tunnels              table R4: tunnels, checksums left to the other end
  grosso lab nic eth0 --peer 192.0.2.7   each feature of eth0 on and off
  grosso lab cost                 where the nanoseconds of a packet go
  grosso lab vm                   virtual machines, by what carries their frames
  grosso lab tcp-stream --tool iperf3
  grosso lab run two-hosts --impair 'delay 5ms loss 0.1% seed 7'
  grosso lab --json | jq '.groups[].ratio'";

const FRAGMENTS_HELP: &str = "\
Host a sends datagrams of 64000 bytes; Grosso encrypts each (ESP, AES-GCM) and
cuts it into 45 fragments. Host b's NIC has few receive buffers. A receiver that
queues fragments in them runs out: one lost fragment kills its datagram, and the
others keep their buffers until the timeout. One that copies each fragment to
its place gives the buffer back at once.

Examples:
  grosso lab fragments                      both, for about a minute
  grosso lab fragments --rate 800M --loss 1%
  grosso lab fragments --runs 1 --loss 0    the quickest look
  grosso lab fragments --json | jq -c '.groups[].rows[] | [.receiver, .buffers]'";

const TUNNELS_HELP: &str = "\
Each host's packets go into a tunnel that Grosso ends, over UDP sockets. With
remote checksum offload (RCO) the checksum inside is left to the other end,
which need not make it either. Beside that, the kernel's own VXLAN on the same
wire, and Grosso's with every offload off.

Examples:
  grosso lab tunnels                         all of it, in two or three minutes
  grosso lab tunnels --runs 1 --time 300ms   the quickest look
  grosso lab tunnels --streams 200           as when the table was published
  grosso lab tunnels --ipv6 --sendfile       over IPv6, without a copy in the sender
  grosso lab tunnels --json | jq -c '.comparisons[]'";

const NIC_HELP: &str = "\
Each feature of DEV that can be changed and works on packets of a stream is
turned off and on, in turn, while one TCP connection runs between DEV and
`grosso lab sink` at the other end. It wants root (CAP_NET_ADMIN), and the device
carries other traffic meanwhile with the features of the moment; some drivers
lose their link for a moment. A watchdog process puts everything back at the end,
after Ctrl-C, and after SIGKILL of the lab.

Examples:
  grosso lab sink                              at the other end, as any user
  grosso lab nic eth0 --peer 192.0.2.7         all features, some minutes
  grosso lab nic eth0 --peer 192.0.2.7 --feature rx-gro --feature tx-tcp-segmentation
  grosso lab nic eth0 --peer 192.0.2.7 --json | jq -c '.rows[] | [.feature, .on]'";

const COST_HELP: &str = "\
Two hosts, each with a data path of Grosso in the place of its NIC, and kernel
TCP through both. Their threads look at clocks where one part of the work ends
and another begins: system calls, the ports around them, the engine, checksums.
The wire ends in packet sockets, AF_XDP sockets (as root) or UDP sockets.

Examples:
  grosso lab cost                         all of it, in half a minute
  grosso lab cost --runs 1 --time 200ms   the quickest look
  grosso lab cost --device veth           without a TUN
  grosso lab cost --json | jq -c '.rows[] | [.wire, .offloads, .paths[].parts]'";

const VM_HELP: &str = "\
Machines that QEMU emulates, without /dev/kvm, boot a kernel that is installed
here or unpacked in a folder. In them this program serves one TCP stream each
way: from the host, from another guest, and from a host behind a tunnel. Their
frames are carried by Grosso over vhost-user or a socket, by QEMU's own TAP, or
by passt. It wants qemu-system-x86_64, busybox, dash, ip, modprobe, depmod and
cpio; what is missing is said.

Examples:
  grosso lab vm                         all of it, in some minutes
  grosso lab vm --runs 1 --time 300ms   the quickest look
  grosso lab vm --kernel unpacked       after dpkg -x linux-image-*.deb unpacked
  grosso lab vm --json | jq -c '.groups[].rows[] | [.carrier, .to_guest]'";

const ACKS_HELP: &str = "\
Acknowledgments are the clock of a sender. In 2011 receive offload in software
merged those as well, and halved the rate of senders. Here Grosso is the NIC of
the sender or of the receiver, and merges by several profiles; beside that, a
model of the sender, and the reordering of acknowledgments that go past the
coalescer. Of --cpus, timed transfers have the path's CPU for all.

Examples:
  grosso lab acks                         all of it, in a minute
  grosso lab acks --runs 1 --time 200ms   the quickest look
  grosso lab acks --congestion reno
  grosso lab acks --json | jq -c '.rows[] | [.side, .handling, .hold_us]'";

const RUN_HELP: &str = "\
A command finds the addresses of the hosts in its environment: GROSSO_A and
GROSSO_B, GROSSO_A6 and GROSSO_B6 for IPv6; GROSSO_HOST is a or b. Whatever it
starts ends with it. Packets from a come over the wire to Grosso, which is b's
NIC: trains go to b, and what b sends goes back over the wire. A file describes
other hosts, wires and paths, and settings of these to compare. --cpus binds the
path and the built-in stream; a command binds itself (taskset), a file has cpus.

Examples:
  grosso lab run --config examples/lab/lro-in-the-middle.toml
  grosso lab run two-hosts --impair 'delay 5ms jitter 1ms loss 0.1% seed 7'
  grosso lab run two-hosts --on b 'iperf3 -s' -- sh -c 'iperf3 -c $GROSSO_B'
  grosso lab run two-hosts --no-coalesce -- sh";
