//! Commands on devices of this machine.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use grosso_capture::{Format, Resolution, SNAPLEN_DEFAULT};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    grammar::OutputFormat,
    ports::TunnelPorts,
    values::{parse_bytes, parse_file_bytes, parse_time_ns},
};

#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// Show what the device and its driver take off the CPU (the default)
    #[arg(short = 'k', long, visible_alias = "show-offload", group = "action")]
    pub(crate) show_features: bool,
    /// Turn features on or off: NAME on|off ...
    #[arg(short = 'K', long, visible_alias = "offload", group = "action")]
    pub(crate) features: bool,
    /// Show the driver's own counters
    #[arg(short = 'S', long, group = "action")]
    pub(crate) statistics: bool,
    /// Show interrupt coalescing
    #[arg(short = 'c', long, group = "action")]
    pub(crate) show_coalesce: bool,
    /// Set interrupt coalescing: NAME N ...
    #[arg(short = 'C', long, group = "action")]
    pub(crate) coalesce: bool,
    /// The device
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Names and their new values
    #[arg(value_name = "NAME VALUE")]
    pub(crate) changes: Vec<String>,
}

#[derive(Args, Debug)]
#[command(override_usage = "grosso capture -i <IFACE> -w <FILE> [OPTIONS] [EXPRESSION]...")]
#[command(group = clap::ArgGroup::new("turn").args(["file_size", "rotate_seconds"]).multiple(true))]
#[command(group = clap::ArgGroup::new("outputs").args(["write", "listen", "to", "list"]).required(true).multiple(true))]
pub(crate) struct Capture {
    /// The interface: name, number in -D, or any
    #[arg(short, long, value_name = "IFACE", required_unless_present = "list")]
    interface: Option<String>,
    /// List the interfaces
    #[arg(short = 'D', long = "list-interfaces")]
    #[arg(conflicts_with_all = ["interface", "write", "listen", "to", "filter", "words"])]
    pub(crate) list: bool,
    /// Write this capture; - is standard output; several share the flows
    #[arg(short, long, value_name = "FILE")]
    write: Vec<PathBuf>,
    /// The wire's packets: split, checksums complete
    #[arg(long)]
    wire: bool,
    /// Serve those packets as pcap over IP; several addresses share the flows
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Send those packets to a monitor's device; tap:NAME makes one
    #[arg(long, value_name = "DEV")]
    pub(crate) to: Vec<String>,
    /// Next file after so many million bytes; 64K, 8M, 1G: units of 1024
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = parse_file_bytes)]
    file_size: Option<u64>,
    /// Next file after so many seconds; %H%M%S in its name is the time
    #[arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    rotate_seconds: Option<u64>,
    /// With -C a ring of this many files, with -G the end after them
    #[arg(short = 'W', long, value_name = "FILES", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    #[arg(requires = "turn")]
    file_count: Option<u64>,
    /// Stop after this many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Keep so many bytes of a packet, at most
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAPLEN_DEFAULT,
          value_parser = clap::value_parser!(u32).range(..=i64::from(SNAPLEN_DEFAULT)))]
    pub(crate) snaplen: u32,
    /// Stop after this time: 500ms, 10s
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) duration: Option<u64>,
    /// Leave out packets for other hosts, as the interface does
    #[arg(short = 'p', long, hide_short_help = true)]
    pub(crate) no_promiscuous: bool,
    /// Memory for packets that wait to be written: 8M, 1G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_bytes, hide_short_help = true)]
    pub(crate) ring: u64,
    /// Output format; pcap has no room for metadata
    #[arg(short = 'F', long, value_name = "FORMAT", default_value = "pcapng")]
    format: OutputFormat,
    /// Unit of times, in files and over IP; Arkime reads no finer ones than microseconds
    #[arg(long, value_name = "UNIT", default_value = "nano", hide_short_help = true)]
    time_stamp_precision: Precision,
    #[command(flatten)]
    pub(crate) tunnels: TunnelPorts,
    /// Take only packets of this tcpdump expression
    #[arg(short, long, value_name = "EXPRESSION", conflicts_with = "words")]
    filter: Option<String>,
    /// The same as words
    #[arg(value_name = "EXPRESSION")]
    words: Vec<String>,
}

/// The unit of times, in tcpdump's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Precision {
    Micro,
    Nano,
}

impl Capture {
    /// The interface that the user names.
    pub(crate) fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or_default()
    }

    /// The names of the files.
    pub(crate) fn write(&self) -> &[PathBuf] {
        &self.write
    }

    /// The unit of times.
    pub(crate) fn resolution(&self) -> Resolution {
        match self.time_stamp_precision {
            Precision::Micro => Resolution::MICROSECONDS,
            Precision::Nano => Resolution::NANOSECONDS,
        }
    }

    /// Whether a file is standard output.
    pub(crate) fn is_standard(&self) -> bool {
        self.write.iter().any(|path| path == Path::new("-"))
    }

    /// Whether superframes are split and checksums completed.
    pub(crate) fn is_wire(&self) -> bool {
        self.wire || !self.listen.is_empty() || !self.to.is_empty()
    }

    /// The rule by which one file follows another.
    pub(crate) fn turning(&self) -> FileTurning {
        let (bytes, seconds) = (self.file_size, self.rotate_seconds);
        FileTurning { bytes, seconds, files: self.file_count }
    }

    /// The format of the output.
    pub(crate) fn format(&self) -> Format {
        self.format.into()
    }

    /// The expression that packets must pass.
    pub(crate) fn filter(&self) -> Option<String> {
        let words = (!self.words.is_empty()).then(|| self.words.join(" "));
        self.filter.clone().or(words).filter(|text| !text.trim().is_empty())
    }
}

/// The rule by which one file of a capture follows another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileTurning {
    /// A packet after this many bytes begins the next file.
    pub(crate) bytes: Option<u64>,
    /// A packet this many seconds after the file began begins the next.
    pub(crate) seconds: Option<u64>,
    /// The number of files: with `bytes` alone the first is written again after the last, with `seconds` alone the
    /// capture ends, with both it decides the width of the numbers only.
    pub(crate) files: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Fail unless all that this takes works
    #[arg(value_name = "USE")]
    pub(crate) uses: Vec<Use>,
}

/// A use of Grosso that takes more than files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Use {
    /// `grosso capture`: interfaces of this machine
    Capture,
    /// `grosso bridge` and `grosso run`: interfaces, TUN and TAP devices of this machine
    Bridge,
    /// `grosso tunnel`: TUN and TAP devices of this machine
    Tunnel,
    /// `grosso lab`: networks of its own
    Lab,
    /// AF_XDP ports
    Xdp,
}

pub(super) const DOCTOR_HELP: &str = "\
Tries everything, in a network namespace of its own: nothing on this machine
changes. What does not work is a warning, since captures need none of it; exit
code 1 if it is among what a named USE takes.

Examples:
  grosso doctor
  grosso doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'
  grosso doctor -q bridge || exit         in a script or an init container";

pub(super) const CAPTURE_HELP: &str = "\
Keeps in pcapng what tcpdump loses: the segment size of superframes (gso_size),
which checksums are still to be computed, direction, drops, and the offloads of
the interface. Wireshark opens it as usual; Grosso splits it exactly.

Tunnels on ports of their own (--port vxlan=8472) are recorded with the packets.

-i any takes each interface with its own link type: Ethernet headers stay, where
tcpdump has none.

--wire splits superframes and completes checksums as a network card does, by what
the kernel says of each: nothing is guessed. So do --listen and --to, for
monitors that cannot. Several -w, --listen or --to share the flows, both
directions of one together. A monitor that is too slow loses packets, which are
counted; it never holds up the others.

-C, -G and -W make the files that they make for tcpdump, with its names; each is
a whole capture. -c, -W with -G, --duration and SIGTERM end it with exit code 0,
Ctrl-C with 130. The file is complete in each case.

Examples:
  sudo grosso capture -i eth0 -w send.pcapng
  grosso wire -r send.pcapng -w wire.pcapng       as it was on the wire
  sudo grosso capture -i eth0 -w quic.pcapng udp port 443
  sudo grosso capture -i any -w ring.pcapng -C 100 -W 10   the last 1 GB
  sudo grosso capture -i eth0 -G 3600 -w %Y%m%d-%H.pcapng  a file an hour
  sudo grosso capture -i eth0 -w - | tshark -r -  live
  sudo grosso capture -i eth0 --wire -F pcap -w - | tcpflow -r -
  sudo grosso capture -i eth0 --to tap:mon0       for AF_PACKET on mon0
  sudo grosso capture -i eth0 --listen 127.0.0.1:57012   tshark -i TCP@127.0.0.1:57012";

pub(super) const DEV_HELP: &str = "\
Names, layout and JSON are ethtool's. Short names: rx tx sg tso gso gro lro rxvlan
txvlan ntuple rxhash; every name of -k is one too.

Examples:
  grosso dev -k eth0                    features, as ethtool -k
  grosso dev -k eth0 | grep -v fixed    those that can be changed
  grosso dev -K eth0 gro on rx-udp-gro-forwarding on
  grosso dev -K eth0 rx-gro-hw off      then captures show the packets of the wire
  grosso dev -C eth0 rx-usecs 20 rx-frames 64
  grosso dev --json -k eth0 | jq '.[0][\"rx-gro-hw\"].active'";
