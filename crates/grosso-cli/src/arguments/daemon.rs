//! Arguments of `grosso bridge`, `grosso run` and `grosso config`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use grosso_analysis::replay::{HoldTime, Repair};
use grosso_io::impair::Impairment;

use super::{own::Detail, values::parse_time_ns};

#[derive(Args, Debug)]
pub(crate) struct Bridge {
    /// First port: IFACE, packet:IFACE, tap:NAME, tun:NAME, xdp:IFACE[:QUEUE] or fd:N; for a VM unix:PATH or
    /// vhost-user:PATH
    ///
    /// Options follow PATH, separated by commas. unix and vhost-user accept connect, offloads=csum+tso4+tso6+uso and
    /// mode=660. unix also accepts dgram, vnet and local=PATH. vhost-user also accepts memory=4G, which limits the
    /// memory that a VM can share, and driver, for a peer that is a device instead of a VM.
    #[arg(value_name = "A")]
    pub(crate) left: String,
    /// Second port
    #[arg(value_name = "B")]
    pub(crate) right: String,
    /// Hold trains across polls for this long, for example 20us or 1ms; "auto" adapts the time to each flow, up to
    /// 100us, and auto:TIME up to TIME [default: from the profile]
    #[arg(long, value_name = "TIME", value_parser = HoldTime::parse)]
    pub(crate) hold: Option<HoldTime>,
    /// Restore the order of TCP segments before merging: off, batch, holes, or holes:TIME [default: from the profile]
    #[arg(long, value_name = "LEVEL", value_parser = Repair::parse, hide_short_help = true)]
    pub(crate) reorder: Option<Repair>,
    /// Use this merge profile: a name from `grosso profiles`, or a file [default: linux]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) profile: Option<String>,
    /// Allow lossy profiles: this host terminates all TCP from its TUN or TAP device
    #[arg(long)]
    pub(crate) terminates: bool,
    /// Expand each acknowledgment of merged packets into one acknowledgment per two packets
    #[arg(long, requires = "terminates")]
    pub(crate) expand_acks: bool,
    /// Merge nothing; still split superframes for ports without segmentation offload
    #[arg(long)]
    pub(crate) no_coalesce: bool,
    /// Open this many queues per port, each with a thread
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: u16,
    /// Pin the threads to these CPUs in turn, for example 0,1
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    pub(crate) cpus: Vec<usize>,
    /// Read at most this many frames per poll [default: 64]
    #[arg(long, value_name = "FRAMES", hide_short_help = true)]
    pub(crate) poll_budget: Option<u16>,
    /// Poll for frames this long before sleeping, for example 50us; like net.core.busy_poll [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) busy_poll: Option<u64>,
    /// Impair frames in both directions, for example 'delay 5ms jitter 1ms loss 0.1%'
    #[arg(long, value_name = "IMPAIRMENTS", hide_short_help = true)]
    pub(crate) impair: Option<Impairment>,
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT", hide_short_help = true)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Set the name of the path in counters [default: the names of its ports]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) name: Option<String>,
    /// Set the MTU of the TUN and TAP devices
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Keep the TUN and TAP devices after the command ends
    #[arg(long, hide_short_help = true)]
    pub(crate) persist: bool,
    /// Do not set interfaces to promiscuous mode
    #[arg(long, hide_short_help = true)]
    pub(crate) no_promisc: bool,
    /// Switch to this user before opening devices, keeping only the required capabilities
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Set the receive ring size of interfaces in packets, a power of two [default: 4096]
    #[arg(long, value_name = "SLOTS")]
    pub(crate) rx: Option<usize>,
    /// Set the transmit ring size of interfaces in packets, a power of two [default: 256]
    #[arg(long, value_name = "SLOTS", hide_short_help = true)]
    pub(crate) tx: Option<usize>,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Read the paths from this file
    #[arg(short, long, value_name = "FILE.toml")]
    pub(crate) config: PathBuf,
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics; overrides the file
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Switch to this user before opening devices, keeping only the required capabilities; overrides the file
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a file for `run` without opening devices
    Check(ConfigCheck),
    /// Convert the output of `ip xfrm state` to an `esp` table and a key file
    #[command(after_long_help = CONFIG_ESP_HELP)]
    Esp(ConfigEsp),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCheck {
    /// File to check
    #[arg(value_name = "FILE.toml")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigEsp {
    /// Output of `ip xfrm state`, or `ip xfrm state add` commands; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Set the address of this host
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) here: IpAddr,
    /// Set the address of the peer; required if the input has several peers
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) there: Option<IpAddr>,
    /// Write the keys to this new file, readable only by you
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: PathBuf,
    /// Accept one key for both directions, if the SPIs differ
    #[arg(long)]
    pub(crate) shared_key: bool,
}

pub(crate) const CONFIG_HELP: &str = "\
Examples:
  grosso config check edge.toml
  sudo ip xfrm state | grosso config esp --here 192.0.2.2 --key-file edge.key";

const CONFIG_ESP_HELP: &str = "\
The input must have one association per direction, with the same settings.
Settings that a port does not support are errors; `ip xfrm policy add` commands
are skipped with a note. The table is printed to standard output; the keys go
only to the key file.

Example:
  sudo ip xfrm state | grosso config esp --here 192.0.2.2 --key-file edge.key";

pub(crate) const BRIDGE_HELP: &str = "\
Creates the TUN or TAP device, or attaches to an existing one, and brings it up.
The interface should have no addresses: the host's stack still receives the
frames that Grosso reads. Ctrl-C flushes held packets and prints a summary
(exit 130); SIGTERM does the same and exits 0; SIGUSR1 prints counters.

Examples:
  sudo grosso bridge eth1 tap:grosso0    eth1's packets reach grosso0 as superframes
  sudo ip addr add 192.0.2.2/24 dev grosso0
  sudo grosso bridge eth1 tap:grosso0 --hold 20us --queues 2 --cpus 0,1
  sudo grosso bridge eth1 eth2 --impair 'delay 5ms jitter 1ms loss 0.1%'
  sudo grosso bridge eth1 tap:grosso0 --persist
                           connections survive a restart";

pub(crate) const RUN_HELP: &str = "\
SIGHUP reloads the file: unchanged paths keep running, changed paths restart, and
an invalid file changes nothing. SIGTERM and Ctrl-C flush held packets and end the
command (exit 0 and 130). SIGUSR1 prints counters. Notifies systemd when ready,
reloading and stopping.

Example of a file (all keys are in docs/configuration.md):
  [[path]]
  name = \"edge\"
  left = \"eth1\"
  right = { port = \"tap:grosso0\", mtu = 9000, persist = true }
  rx-usecs = 20
  queues = 2

  grosso config check edge.toml && sudo grosso run -c edge.toml";
