//! Commands for devices on this host.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use grosso_capture::{Format, Resolution, SNAPLEN_DEFAULT};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    ports::TunnelPorts,
    values::{FORMATS, one_of, parse_bytes, parse_file_bytes, parse_time_ns},
};

#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// Show the offload features (the default)
    #[arg(short = 'k', long, visible_alias = "show-offload", group = "action")]
    pub(crate) show_features: bool,
    /// Set features: NAME on|off ...
    #[arg(short = 'K', long, visible_alias = "offload", group = "action")]
    pub(crate) features: bool,
    /// Show the driver's counters
    #[arg(short = 'S', long, group = "action")]
    pub(crate) statistics: bool,
    /// Show interrupt coalescing
    #[arg(short = 'c', long, group = "action")]
    pub(crate) show_coalesce: bool,
    /// Set interrupt coalescing: NAME N ...
    #[arg(short = 'C', long, group = "action")]
    pub(crate) coalesce: bool,
    /// Device name
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Feature or parameter names with their new values
    #[arg(value_name = "NAME VALUE")]
    pub(crate) changes: Vec<String>,
}

#[derive(Args, Debug)]
#[command(override_usage = "grosso capture -i <IFACE> -w <FILE> [OPTIONS] [EXPRESSION]...")]
#[command(group = clap::ArgGroup::new("turn").args(["file_size", "rotate_seconds"]).multiple(true))]
#[command(group = clap::ArgGroup::new("outputs").args(["write", "listen", "to", "list"]).required(true).multiple(true))]
pub(crate) struct Capture {
    /// Capture on IFACE: name, number from -D, or any
    #[arg(short, long, value_name = "IFACE", required_unless_present = "list")]
    interface: Option<String>,
    /// List the interfaces
    #[arg(short = 'D', long = "list-interfaces")]
    #[arg(conflicts_with_all = ["interface", "write", "listen", "to", "filter", "words"])]
    pub(crate) list: bool,
    /// Write to this file or - (standard output); repeat to distribute the flows over several files
    #[arg(short, long, value_name = "FILE")]
    write: Vec<PathBuf>,
    /// Split superframes and complete checksums
    #[arg(long)]
    wire: bool,
    /// Serve wire packets as pcap-over-IP; repeat to distribute the flows over several addresses
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Send wire packets to a device that a monitor reads; tap:NAME creates a TAP device
    #[arg(long, value_name = "DEV")]
    pub(crate) to: Vec<String>,
    /// Start a new file after SIZE million bytes; the suffixes K, M and G are powers of 1024
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = parse_file_bytes)]
    file_size: Option<u64>,
    /// Start a new file after this many seconds; the name may contain strftime fields such as %H%M%S
    #[arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    rotate_seconds: Option<u64>,
    /// Limit the number of files: with -C the oldest is overwritten, with -G the capture ends
    #[arg(short = 'W', long, value_name = "FILES", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    #[arg(requires = "turn")]
    file_count: Option<u64>,
    /// Stop after this many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Capture at most this many bytes of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAPLEN_DEFAULT,
          value_parser = clap::value_parser!(u32).range(..=i64::from(SNAPLEN_DEFAULT)))]
    pub(crate) snaplen: u32,
    /// Stop after this time, for example 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) duration: Option<u64>,
    /// Do not set the interface to promiscuous mode
    #[arg(short = 'p', long, hide_short_help = true)]
    pub(crate) no_promiscuous: bool,
    /// Set the capture buffer size, for example 8M or 1G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_bytes, hide_short_help = true)]
    pub(crate) ring: u64,
    /// Set the file format; pcap stores no metadata
    #[arg(short = 'F', long, value_name = "FORMAT", default_value = "pcapng", value_parser = one_of(FORMATS))]
    format: Format,
    /// Set the timestamp precision in files and pcap-over-IP; Arkime needs micro
    #[arg(long, value_name = "UNIT", default_value = "nano", hide_short_help = true)]
    time_stamp_precision: Precision,
    #[command(flatten)]
    pub(crate) tunnels: TunnelPorts,
    /// Capture only packets that match this filter
    #[arg(short, long, value_name = "EXPRESSION", conflicts_with = "words")]
    filter: Option<String>,
    /// Filter expression; same as -f
    #[arg(value_name = "EXPRESSION")]
    words: Vec<String>,
}

/// Timestamp units, with tcpdump's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Precision {
    Micro,
    Nano,
}

impl Capture {
    /// Returns the interface that the user selected.
    pub(crate) fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or_default()
    }

    /// Returns the names of the output files.
    pub(crate) fn write(&self) -> &[PathBuf] {
        &self.write
    }

    /// Returns the timestamp unit.
    pub(crate) fn resolution(&self) -> Resolution {
        match self.time_stamp_precision {
            Precision::Micro => Resolution::MICROSECONDS,
            Precision::Nano => Resolution::NANOSECONDS,
        }
    }

    /// Returns whether an output file is standard output.
    pub(crate) fn is_standard(&self) -> bool {
        self.write.iter().any(|path| path == Path::new("-"))
    }

    /// Returns whether superframes are split and checksums completed.
    pub(crate) fn is_wire(&self) -> bool {
        self.wire || !self.listen.is_empty() || !self.to.is_empty()
    }

    /// Returns the file rotation rule.
    pub(crate) fn turning(&self) -> FileTurning {
        let (bytes, seconds) = (self.file_size, self.rotate_seconds);
        FileTurning { bytes, seconds, files: self.file_count }
    }

    /// Returns the output format.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Returns the filter expression.
    pub(crate) fn filter(&self) -> Option<String> {
        let words = (!self.words.is_empty()).then(|| self.words.join(" "));
        self.filter.clone().or(words).filter(|text| !text.trim().is_empty())
    }
}

/// File rotation rule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileTurning {
    /// Size in bytes at which the next packet starts a new file.
    pub(crate) bytes: Option<u64>,
    /// Age in seconds at which the next packet starts a new file.
    pub(crate) seconds: Option<u64>,
    /// Maximum number of files. With only `bytes`, the first file is overwritten after the last one. With only
    /// `seconds`, the capture ends. With both, the number only determines how many digits a file number has.
    pub(crate) files: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Exit 1 unless this use case works
    #[arg(value_name = "USE")]
    pub(crate) uses: Vec<Use>,
}

/// Uses of Grosso that require more than capture files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Use {
    /// `grosso capture` with interfaces on this machine
    Capture,
    /// `grosso bridge` and `grosso run` with interfaces, TUN and TAP devices on this machine
    Bridge,
    /// `grosso tunnel` with TUN and TAP devices on this machine
    Tunnel,
    /// `grosso lab` in private network namespaces
    Lab,
    /// AF_XDP ports
    Xdp,
}

pub(crate) const DOCTOR_HELP: &str = "\
Runs each check in a private network namespace, so nothing on this machine changes.
A failed check is only a warning, because captures can be read without these
features. If you name a USE that needs a feature, a failed check of that feature is
an error (exit code 1).

Examples:
  grosso doctor
  grosso doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .fix'
  grosso doctor -q bridge || exit         in a script or an init container";

pub(crate) const CAPTURE_HELP: &str = "\
Records metadata in pcapng that tcpdump loses: the segment size of superframes
(gso_size), partial checksums, direction, drops, and the offloads of the interface.
Wireshark opens the file as usual; Grosso can split its superframes exactly.

Tunnel ports set with --port (vxlan=8472) are recorded with the packets.

-i any keeps the link type of each interface, and thus the Ethernet headers, which
tcpdump drops.

--wire splits superframes and completes checksums as a network card does, using
the kernel's metadata; it never guesses. --listen and --to imply --wire. If -w,
--listen or --to is repeated, the flows are distributed over the outputs; both
directions of a flow go to the same output. A slow monitor loses packets, which are
counted, but it does not delay the other monitors.

-C, -G and -W name and rotate files as tcpdump does; each file is a complete
capture. -c, -W with -G, --duration and SIGTERM end the capture with exit code 0,
Ctrl-C with 130. The last file is complete in each case.

Examples:
  sudo grosso capture -i eth0 -w send.pcapng
  grosso wire -r send.pcapng -w wire.pcapng       convert to wire packets
  sudo grosso capture -i eth0 -w quic.pcapng udp port 443
  sudo grosso capture -i any -w ring.pcapng -C 100 -W 10   the last 1 GB
  sudo grosso capture -i eth0 -G 3600 -w %Y%m%d-%H.pcapng  one file per hour
  sudo grosso capture -i eth0 -w - | tshark -r -  live
  sudo grosso capture -i eth0 --wire -F pcap -w - | tcpflow -r -
  sudo grosso capture -i eth0 --to tap:mon0       for AF_PACKET readers on mon0
  sudo grosso capture -i eth0 --listen 127.0.0.1:57012   tshark -i TCP@127.0.0.1:57012";

pub(crate) const DEV_HELP: &str = "\
Names, layout and JSON are the same as in ethtool. Short names: rx tx sg tso gso
gro lro rxvlan txvlan ntuple rxhash. All names in the output of -k work as well.

Examples:
  grosso dev -k eth0                    features, as ethtool -k
  grosso dev -k eth0 | grep -v fixed    features that can be changed
  grosso dev -K eth0 gro on rx-udp-gro-forwarding on
  grosso dev -K eth0 rx-gro-hw off      captures then show wire packets
  grosso dev -C eth0 rx-usecs 20 rx-frames 64
  grosso dev --json -k eth0 | jq '.[0][\"rx-gro-hw\"].active'";
