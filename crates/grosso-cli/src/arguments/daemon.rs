//! `grosso bridge`, `grosso run` and `grosso config`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use grosso_io::impair::Impairment;

use super::{
    own::Detail,
    values::{HoldTime, Repair, parse_hold, parse_repair, parse_time_ns},
};

#[derive(Args, Debug)]
pub(crate) struct Bridge {
    /// One end: IFACE, packet:IFACE, tap:NAME, tun:NAME, xdp:IFACE[:QUEUE], fd:N, or unix:PATH or vhost-user:PATH for a
    /// virtual machine, with words behind commas: connect, offloads=csum+tso4+tso6+uso, mode=660, for unix dgram, vnet,
    /// local=PATH, and for vhost-user memory=4G, the most that a virtual machine may share, and driver, where the other
    /// program is the device
    #[arg(value_name = "A")]
    pub(crate) left: String,
    /// The other end
    #[arg(value_name = "B")]
    pub(crate) right: String,
    /// Hold trains across polls for this long: 0, 20us, 1ms; "auto": flow by flow, as long as it pays, at most 100us,
    /// or auto:TIME [default: the profile's]
    #[arg(long, value_name = "TIME", value_parser = parse_hold)]
    pub(crate) hold: Option<HoldTime>,
    /// Put TCP in order first: off, batch, holes, or holes:TIME [default: the profile's]
    #[arg(long, value_name = "LEVEL", value_parser = parse_repair, hide_short_help = true)]
    pub(crate) reorder: Option<Repair>,
    /// Rules to merge by: a profile that `grosso profiles` lists, or a file [default: linux]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) profile: Option<String>,
    /// Treat this host as the end of all TCP that reaches its TUN or TAP device: rules may merge it although they lose
    /// what other hosts would need
    #[arg(long)]
    pub(crate) terminates: bool,
    /// Replace each acknowledgment of merged packets by one for every second packet
    #[arg(long, requires = "terminates")]
    pub(crate) expand_acks: bool,
    /// Merge no packets; still cut superframes for ports that cannot take them
    #[arg(long)]
    pub(crate) no_coalesce: bool,
    /// Number of queues of both ports, one thread each
    #[arg(long, value_name = "N", default_value = "1", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) queues: u16,
    /// Bind the threads to these CPUs, in turn: 0,1
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    pub(crate) cpus: Vec<usize>,
    /// Take at most this many frames at once from an end [default: 64]
    #[arg(long, value_name = "FRAMES", hide_short_help = true)]
    pub(crate) poll_budget: Option<u16>,
    /// Look for frames for this long before a thread sleeps, as net.core.busy_poll has it: 50us [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) busy_poll: Option<u64>,
    /// Impair frames from both ends as a bad wire does
    #[arg(long, value_name = "WORDS", hide_short_help = true)]
    pub(crate) impair: Option<Impairment>,
    /// Serve Prometheus metrics there, at /metrics
    #[arg(long, value_name = "ADDR:PORT", hide_short_help = true)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Name of the path in counters [default: its ends]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) name: Option<String>,
    /// Set the MTU of the TUN and TAP devices
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Let the TUN and TAP devices outlive the command
    #[arg(long, hide_short_help = true)]
    pub(crate) persist: bool,
    /// Take only frames for this host from interfaces
    #[arg(long, hide_short_help = true)]
    pub(crate) no_promisc: bool,
    /// Become this user before the devices are opened, with the capabilities that they need
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Slots of the receive ring of interfaces, a power of two, of a packet each [default: 4096]
    #[arg(long, value_name = "SLOTS")]
    pub(crate) rx: Option<usize>,
    /// Slots of the transmit ring of interfaces, a power of two, of a packet each [default: 256]
    #[arg(long, value_name = "SLOTS", hide_short_help = true)]
    pub(crate) tx: Option<usize>,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The file that describes the paths
    #[arg(short, long, value_name = "FILE.toml")]
    pub(crate) config: PathBuf,
    /// Serve Prometheus metrics there, at /metrics, whatever the file says
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Become this user before the devices are opened, whatever the file says, with the capabilities that they need
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check that `run` can use the file; opens no device
    Check(ConfigCheck),
    /// Make an `esp` table and a key file of what `ip xfrm state` prints
    #[command(after_long_help = CONFIG_ESP_HELP)]
    Esp(ConfigEsp),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCheck {
    /// The file
    #[arg(value_name = "FILE.toml")]
    pub(crate) file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigEsp {
    /// The output of `ip xfrm state`, or lines of `ip xfrm state add`; - reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// The address of this end
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) here: IpAddr,
    /// The address of the other end, where there are several
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) there: Option<IpAddr>,
    /// Write the keys to this new file, which only you can read
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: PathBuf,
}

const CONFIG_ESP_HELP: &str = "\
The associations of both ways are looked for, and must be alike. What a port
cannot do is refused; nothing is left out. The table goes to standard output,
and the keys only to the file.

Example:
  sudo ip xfrm state | grosso config esp --here 192.0.2.2 --key-file edge.key";

pub(super) const BRIDGE_HELP: &str = "\
A TUN or TAP device is made, or attached to if it is there, and brought up. An
interface should have no addresses of its own: Grosso takes its frames, and the
host's stack sees them too. Ctrl-C delivers what is held and prints a summary
(exit 130), SIGTERM does the same and exits 0, SIGUSR1 prints counters.

Examples:
  sudo grosso bridge eth1 tap:grosso0    eth1's packets reach grosso0 as superframes
  sudo ip addr add 192.0.2.2/24 dev grosso0
  sudo grosso bridge eth1 tap:grosso0 --hold 20us --queues 2 --cpus 0,1
  sudo grosso bridge eth1 eth2 --impair 'delay 5ms jitter 1ms loss 0.1%'
  sudo grosso bridge eth1 tap:grosso0 --persist
                           killed and started again, its connections live on";

pub(super) const RUN_HELP: &str = "\
SIGHUP reads the file again: unchanged paths keep running, changed ones start
anew, and a file that is wrong changes nothing. SIGTERM and Ctrl-C deliver what
is held and end (exit 0 and 130), SIGUSR1 prints counters. Tells systemd when it
is ready, reloading and stopping.

Example of a file (all keys are in docs/configuration.md):
  [[path]]
  name = \"edge\"
  left = \"eth1\"
  right = { port = \"tap:grosso0\", mtu = 9000, persist = true }
  rx-usecs = 20
  queues = 2

  grosso config check edge.toml && sudo grosso run -c edge.toml";
