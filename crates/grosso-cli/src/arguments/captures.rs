//! Commands on capture files.

use clap::{Args, Subcommand, ValueEnum};
use grosso::reassemble::Overlap;

use super::{
    grammar::{Captures, Files},
    known::{Known, Sizes},
    own::{Detail, Naming, Strictness},
    ports::TunnelPorts,
    values::{
        Batch, HoldTime, Repair, parse_batch, parse_flows, parse_hold, parse_memory, parse_repair,
        parse_spacing, parse_time_ns,
    },
};
use crate::{error::Failure, line::Spacing, sources::Sources, units::exact_time};

#[derive(Debug, Subcommand)]
pub(crate) enum Csum {
    /// A verdict for every checksum; exit 1 if any is bad
    #[command(after_long_help = VERIFY_HELP)]
    Verify(CsumVerify),
    /// Fix checksums, and change nothing else
    #[command(after_long_help = FIX_HELP)]
    Fix(CsumFix),
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    #[command(flatten)]
    pub(crate) known: Known,
}

#[derive(Args, Debug)]
pub(crate) struct Coalesce {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// The rules of merging, and of the times at which trains leave.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rules {
    /// Rules to merge by: a profile that `grosso profiles` lists, or a file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "linux")]
    pub(crate) profile: String,
    /// Packets per poll; "stamp": a run of equal timestamps; 5us: a run without a longer gap
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_batch)]
    pub(crate) batch: Batch,
    /// Hold trains across polls for this long, by capture time: 20us, 1ms; "auto": flow by flow, as
    /// long as it pays, at most 100us, or auto:TIME [default: the profile's]
    #[arg(long, value_name = "TIME", value_parser = parse_hold)]
    pub(crate) hold: Option<HoldTime>,
    /// Put TCP in order first: "batch": within a poll; "holes": also hold what follows a hole, for
    /// 100us or holes:TIME; "off": not at all [default: the profile's]
    #[arg(long, value_name = "LEVEL", value_parser = parse_repair)]
    pub(crate) reorder: Option<Repair>,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// The limits of a profile that options override.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bounds {
    /// Keep superframes below this many bytes, from the IP header on
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=524_280))]
    pub(crate) max_size: Option<u32>,
    /// Maximum number of packets in a superframe
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), hide_short_help = true)]
    pub(crate) max_segs: Option<u16>,
    /// Maximum number of trains held at once
    #[arg(long, value_name = "N", value_parser = parse_flows, hide_short_help = true)]
    pub(crate) flows: Option<usize>,
    /// Maximum number of tunnels around a packet that is merged
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) tunnels: Option<u8>,
    /// Merge TCP only
    #[arg(long, hide_short_help = true)]
    pub(crate) no_udp: bool,
    /// Shortest round trip of connections whose own is unknown, for "auto" and "holes"
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) round_trip: Option<u64>,
}

impl Bounds {
    /// The options as they would be typed.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { max_size, max_segs, flows, tunnels, no_udp, round_trip } = self;
        let options = [
            max_size.map(|size| format!("--max-size={size}")),
            max_segs.map(|segments| format!("--max-segs={segments}")),
            flows.map(|flows| format!("--flows={flows}")),
            tunnels.map(|tunnels| format!("--tunnels={tunnels}")),
            no_udp.then(|| "--no-udp".into()),
            round_trip.map(|time_ns| format!("--round-trip={}", exact_time(time_ns))),
        ];
        options.into_iter().flatten().collect()
    }
}

#[derive(Args, Debug)]
pub(crate) struct Segment {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Wire {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Known,
    /// Timestamps of split packets: same, or line=RATE such as line=10G: one after another on each
    /// interface and direction, and later packets no earlier
    #[arg(long, value_name = "HOW", default_value = "same", value_parser = parse_spacing)]
    pub(crate) ts: Spacing,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Reassemble {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) tunnels: TunnelPorts,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

/// The bounds of the wait for fragments, and the policy for overlaps.
#[derive(Args, Clone, Debug)]
pub(crate) struct Waiting {
    /// Wait this long for the rest of a datagram, by capture time: 500ms, 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time_ns)]
    pub(crate) timeout: u64,
    /// Policy for fragments that share bytes
    #[arg(long, value_name = "POLICY", default_value = "drop")]
    pub(crate) overlap: OverlapPolicy,
    /// Memory for incomplete datagrams: 128K or more, such as 8M or 1G
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_memory)]
    pub(crate) memory: usize,
    /// Give up an IPv4 datagram after more than N other fragments of its source since its last one
    /// (Linux: 64); 0 never does
    #[arg(long, value_name = "N", default_value = "0", hide_short_help = true)]
    pub(crate) distance: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Decap {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Take packets out of all their tunnels, and join IP fragments on the way
    #[arg(long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Encap {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Known,
    /// Seed for source ports, flow labels and identifications [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Fragment {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Maximum size of a packet in bytes, from the IP header on
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub(crate) mtu: u16,
    /// Fragment IPv4 packets although DF is set
    #[arg(long)]
    pub(crate) ignore_df: bool,
    /// Seed for the identifications of IPv6 fragments [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct CsumVerify {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct CsumFix {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Known,
    /// Checksums to fix
    #[arg(long, value_name = "WHICH", default_value = "partial")]
    pub(crate) only: Which,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(super) captures: Captures,
    /// The packet, counted from 1; the last word may say it too
    #[arg(
        short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..)
    )]
    number: Option<u64>,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

impl Explain {
    /// The captures, and the packet, counted from 1.
    ///
    /// # Errors
    /// If the user names none.
    pub(crate) fn asked(&self) -> Result<(Sources, u64), Failure> {
        let (captures, last) = match self.number {
            Some(number) => (self.captures.clone(), Some(number)),
            None => self.captures.split_number(),
        };
        let hint = "grosso explain FILE 231; `grosso csum verify` and tshark number packets so";
        match last {
            Some(number) if number > 0 => Ok((captures.sources("explain")?, number)),
            Some(_) => {
                let message = "explain: packets are counted from 1";
                Err(Failure::usage("usage.packet", message).hint(hint))
            }
            None => Err(Failure::usage("usage.packet", "explain: which packet?").hint(hint)),
        }
    }
}

/// The checksums that `csum fix` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// Those that were left for a device to complete.
    Partial,
    /// Those that are wrong.
    Bad,
    /// Both.
    All,
}

/// The policy for two fragments that share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverlapPolicy {
    /// Do not join the datagram, unless both are the same fragment.
    Drop,
    /// Keep the bytes that came first.
    First,
    /// Keep the bytes that came last.
    Last,
    /// Do as Linux does.
    Linux,
}

impl From<OverlapPolicy> for Overlap {
    fn from(policy: OverlapPolicy) -> Self {
        match policy {
            OverlapPolicy::Drop => Self::Drop,
            OverlapPolicy::First => Self::First,
            OverlapPolicy::Last => Self::Last,
            OverlapPolicy::Linux => Self::Linux,
        }
    }
}

pub(super) const INSPECT_HELP: &str = "\
Examples:
  grosso inspect send.pcap
  grosso inspect ring/ -f 'tcp port 443'";

pub(super) const COALESCE_HELP: &str = "\
Writes pcapng unless -F pcap: only pcapng can say how to cut back.
`grosso profiles` lists the profiles: some let later packets overwrite earlier
ones, which `segment` cannot undo.

Examples:
  grosso coalesce -r wire.pcapng -w gro.pcapng
  grosso coalesce -r wire.pcapng -w gro.pcapng --hold 20us --max-segs 45
  grosso coalesce -r wire.pcapng -w lro.pcapng --profile freebsd
  tcpdump -i eth0 -w - | grosso coalesce -r - -w gro.pcapng";

pub(super) const SEGMENT_HELP: &str = "\
Cuts what says where to cut (as coalesce writes it) and never guesses. For host
captures, which do not say it, there is `grosso wire`.

Example:
  grosso segment -r gro.pcapng -w wire.pcapng";

pub(super) const WIRE_HELP: &str = "\
What is a packet of the wire and where a superframe splits is judged by
evidence, strongest first: --mss, --mtu and --uso-size; what the capture
recorded; a complete checksum; steps of the IPv4 identification; headers that
repeat; ICMP too-big; other packets of the flow; the MSS of the SYNs; last, an
MTU of 1500. `grosso explain FILE N` names what decided. Guesses and
contradictions are noted, and --strict leaves such frames as they are. UDP is
left whole unless its size is known, and so is a superframe with a wrong
checksum.

Examples:
  grosso wire -r send.pcap -w wire.pcapng
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso wire -r udp.pcap -w udp-wire.pcap --uso-size 1200 --ts line=10G
  grosso wire monday.pcap tuesday.pcap -w both.pcapng -f 'host 192.0.2.7'";

pub(super) const REASSEMBLE_HELP: &str = "\
A datagram stands where its last fragment stood, with its time. What cannot be
joined stays as it came and is listed: what is missing, what overlaps, and why.
--timeout and --memory bound the wait; a Linux host also bounds how many other
fragments may come in between: --distance 64. A pipe is kept in a temporary file.

Examples:
  grosso reassemble -r sip.pcap -w whole.pcap
  grosso reassemble -r odd.pcap -w first.pcap --overlap first --timeout 5s";

pub(super) const ENCAP_USAGE: &str =
    "grosso encap [OPTIONS] <FILE>... [--write <FILE>] type <TYPE> [WORD]...";

pub(super) const ENCAP_HELP: &str = "\
After the options come the words that `ip link add NAME` takes for a tunnel,
with local and remote; `grosso help tunnel add` lists them. Superframes stay
superframes with the tunnel around them, and checksums that are partial stay
partial: `grosso wire` makes packets of them. pcapng says where a superframe is
cut if the input does or --mss, --mtu or --uso-size do. What cannot be put into
the tunnel is left as it is; with --strict, exit 1 says so.

The link layer stays, and the tunnel follows it. A tunnel of Ethernet frames
follows a copy of the frame's own Ethernet header. pcapng records with each
packet the UDP port of its tunnel, if that is not the assigned one; pcap cannot,
and is read with --port.

Examples:
  grosso encap -r in.pcap -w out.pcap type vxlan id 42 local 192.0.2.1 \\
      remote 192.0.2.2
  grosso encap -r in.pcap -w out.pcap type ipip local 192.0.2.1 remote 192.0.2.2 \\
      encap gue encap-dport 6080
  grosso encap -r in.pcap -w - type gre key 7 local 192.0.2.1 remote 192.0.2.2 |
      grosso decap -r - -w again.pcap";

pub(super) const DECAP_HELP: &str = "\
Takes off one tunnel. With --recursive it takes off all of them and joins IP
fragments around, between and inside them; --timeout, --overlap, --memory and
--distance are those of `grosso reassemble`. What is in no tunnel, or must not be
taken out of it, stays as it is and is counted by its reason.

Tunnels: VXLAN, Geneve, GRE, GUE, FOU, IP in IP, MPLS in IP. Their usual ports
are known; VXLAN of old Linux has --port vxlan=8472.

Examples:
  grosso decap -r overlay.pcap -w inner.pcap
  grosso decap --recursive -r overlay.pcap -w inner.pcap
  grosso decap -r fou.pcap -w inner.pcap --port fou=5555/4";

pub(super) const FRAGMENT_HELP: &str = "\
What must not or cannot be cut stays whole and is counted by its reason.
Superframes have to be packets first: `grosso wire`. Whether TCP is one is judged
as `wire` does it; a UDP datagram is one only if --uso-size says so, because UDP
longer than a link is what IP cuts into fragments.

Examples:
  grosso fragment -r big.pcap -w fragments.pcap --mtu 1280
  grosso fragment -r big.pcap -w fragments.pcap --mtu 1280 --ignore-df --seed 7";

pub(super) const VERIFY_HELP: &str = "\
Verdicts: valid; partial (left for the network card: no corruption); zero-udp
(UDP without checksum); bad; unverifiable (bytes are missing).

Example:
  grosso csum verify -r mixed.pcapng; echo $?";

pub(super) const FIX_HELP: &str = "\
Example:
  grosso csum fix -r mixed.pcapng -w fixed.pcapng";

pub(super) const EXPLAIN_HELP: &str = "\
Says whether one frame is a packet of the wire, and by what evidence; then
replays the capture through the coalescer and shows what became of it.

Example:
  grosso explain wire.pcapng 231";
