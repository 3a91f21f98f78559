//! Commands that work on capture files.

use clap::{Args, Subcommand};
use grosso::reassemble::Overlap;
use grosso_analysis::{
    capture, convert,
    replay::{self, Batch, HoldTime, Repair},
};

use super::{
    grammar::{Captures, Files},
    known::{Assumptions, Sizes},
    own::{Detail, Naming, Strictness},
    ports::TunnelPorts,
    values::{
        CHECKSUMS, MAX_SIZE, MTU, OVERLAPS, POSITIVE, ROWS, flow_order, one_of, parse_flows,
        parse_memory, parse_rows, parse_spacing, parse_time_ns, whole,
    },
};
use crate::{
    error::Failure,
    fragments,
    line::Spacing,
    session::Session,
    slowdown::{Connections, FlowOrder},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Csum {
    /// Verify every checksum; exit 1 if any is bad
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
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) listed: ListedFlows,
}

/// Options for the flow table.
#[derive(Args, Debug)]
pub(crate) struct ListedFlows {
    /// List the N largest flows [default for N: 20]
    ///
    /// Each direction of a TCP or UDP flow has a row: size, trains, round trip, loss and cause.
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ROWS,
        value_parser = parse_rows
    )]
    flows: Option<usize>,
    /// Sort the flow table by this column
    #[arg(long, value_name = "FIGURE", requires = "flows", default_value = "bytes", value_parser = flow_order())]
    #[arg(hide_short_help = true)]
    sort: FlowOrder,
}

impl ListedFlows {
    /// Returns an empty table of connections that will keep the requested flows.
    ///
    /// # Errors
    /// Fails if a number follows the option without an equals sign. In earlier versions, such a number limited the
    /// trains held at once.
    pub(crate) fn connections(&self, captures: &Captures) -> Result<Connections, Failure> {
        let mut connections = Connections::default();
        let Some(limit) = self.flows else { return Ok(connections) };
        if let Some(number) = captures.stray_number() {
            let message = format!("--flows {number}: the number needs an equals sign");
            let hint = format!(
                "--flows={number} lists {number} flows; --max-flows {number} limits the trains \
                 held at once"
            );
            return Err(Failure::usage("usage.flows", message).hint(hint));
        }
        connections.list_flows(self.sort, limit);
        Ok(connections)
    }
}

#[derive(Args, Debug)]
pub(crate) struct Coalesce {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) listed: ListedFlows,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// Options that control merging, and when trains are delivered.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rules {
    /// Use this merge profile: a name from `grosso profiles`, or a file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = replay::Rules::PROFILE)]
    pub(crate) profile: String,
    /// End a poll after N packets, at each new timestamp ("stamp"), or before a gap longer than TIME, for example 5us
    #[arg(long, value_name = "N", default_value = replay::Rules::BATCH, value_parser = Batch::parse)]
    pub(crate) batch: Batch,
    /// Hold trains across polls for this long in capture time, for example 20us, or auto [default: from the profile]
    ///
    /// "auto" adapts the time to each flow, up to 100us; auto:TIME adapts it up to TIME.
    #[arg(long, value_name = "TIME", value_parser = HoldTime::parse)]
    pub(crate) hold: Option<HoldTime>,
    /// Restore the order of TCP segments before merging: off, batch or holes [default: from the profile]
    ///
    /// "batch" restores the order within a poll. "holes" also waits up to 100us for missing segments; holes:TIME
    /// waits up to TIME.
    #[arg(long, value_name = "LEVEL", value_parser = Repair::parse)]
    pub(crate) reorder: Option<Repair>,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

impl Rules {
    /// Converts the options to the library's rules.
    pub(crate) fn rules(&self) -> replay::Rules {
        let Self { profile, batch, hold, reorder, bounds } = self.clone();
        replay::Rules { profile, batch, hold, reorder, bounds: bounds.bounds() }
    }
}

/// Options that override a profile's limits.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bounds {
    /// Limit superframes to fewer than this many bytes, counted from the IP header
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    #[arg(value_parser = whole(MAX_SIZE))]
    pub(crate) max_size: Option<u32>,
    /// Limit superframes to this many packets
    #[arg(long, value_name = "N", value_parser = whole(POSITIVE), hide_short_help = true)]
    pub(crate) max_segs: Option<u16>,
    /// Limit the number of trains held at once
    #[arg(long, value_name = "N", value_parser = parse_flows, hide_short_help = true)]
    pub(crate) max_flows: Option<usize>,
    /// Limit the number of tunnel layers around merged packets
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) tunnels: Option<u8>,
    /// Merge TCP only
    #[arg(long, hide_short_help = true)]
    pub(crate) no_udp: bool,
    /// Assume this round-trip time for connections without a measured one; applies to --hold auto and --reorder holes
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns, hide_short_help = true)]
    pub(crate) round_trip: Option<u64>,
}

impl Bounds {
    /// Converts the options to the library's limits.
    pub(crate) fn bounds(&self) -> replay::Bounds {
        let Self { max_size, max_segs, max_flows, tunnels, no_udp, round_trip } = *self;
        replay::Bounds { max_size, max_segs, flows: max_flows, tunnels, no_udp, round_trip }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Segment {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Wire {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    /// Set the timestamps of split packets: "same" (as the superframe), or spaced at a line rate, for example line=10G,
    /// per interface and direction
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

/// Limits on incomplete datagrams, and the policy for overlapping fragments.
#[derive(Args, Clone, Debug)]
pub(crate) struct Waiting {
    /// Wait this long in capture time for the rest of a datagram, for example 500ms
    #[arg(long, value_name = "TIME", default_value = fragments::Waiting::TIMEOUT, value_parser = parse_time_ns)]
    pub(crate) timeout: u64,
    /// Resolve overlapping fragments with this policy
    #[arg(long, value_name = "POLICY", default_value = fragments::Waiting::OVERLAP, value_parser = one_of(OVERLAPS))]
    pub(crate) overlap: Overlap,
    /// Limit the memory for incomplete datagrams, for example 8M or 1G; at least 128K
    #[arg(long, value_name = "SIZE", default_value = fragments::Waiting::MEMORY, value_parser = parse_memory)]
    pub(crate) memory: usize,
    /// Discard an IPv4 datagram once N other fragments from its source have arrived since its last fragment
    /// (Linux: 64); 0 means no limit
    #[arg(long, value_name = "N", default_value = fragments::Waiting::DISTANCE, hide_short_help = true)]
    pub(crate) distance: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Decap {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Decapsulate all tunnel layers, and reassemble IP fragments between them
    #[arg(long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) known: Assumptions,
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
    pub(crate) known: Assumptions,
    /// Seed the random source ports, flow labels and identifications [default: random]
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
    /// Set the MTU, counted from the IP header
    #[arg(long, value_name = "BYTES", value_parser = whole(MTU))]
    pub(crate) mtu: u16,
    /// Fragment IPv4 packets even if DF is set
    #[arg(long)]
    pub(crate) ignore_df: bool,
    /// Seed the random identifications of IPv6 fragments [default: random]
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
    pub(crate) known: Assumptions,
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
    pub(crate) known: Assumptions,
    /// Select the checksums to change
    #[arg(long, value_name = "WHICH", default_value = "partial", value_parser = one_of(CHECKSUMS))]
    pub(crate) only: convert::Which,
    #[command(flatten)]
    pub(crate) strictness: Strictness,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(super) captures: Captures,
    /// Select the packet by its number, counted from 1; the number may also be the last argument
    #[arg(
        short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..)
    )]
    number: Option<u64>,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

impl Explain {
    /// Returns the captures and the packet number, which starts at 1.
    ///
    /// # Errors
    /// Fails if the arguments contain no packet number.
    pub(crate) fn asked(&self, session: &Session) -> Result<(capture::Files, u64), Failure> {
        let (captures, last) = match self.number {
            Some(number) => (self.captures.clone(), Some(number)),
            None => self.captures.split_number(),
        };
        let hint = "grosso explain FILE 231; `grosso csum verify` and tshark number packets in the same way";
        match last {
            Some(number) if number > 0 => Ok((captures.files("explain", session)?, number)),
            Some(_) => {
                let message = "explain: packet 0 does not exist; packet numbers start at 1";
                Err(Failure::usage("usage.packet", message).hint(hint))
            }
            None => Err(Failure::usage("usage.packet", "explain: no packet number").hint(hint)),
        }
    }
}

impl From<&Waiting> for fragments::Waiting {
    fn from(options: &Waiting) -> Self {
        let &Waiting { timeout, overlap, memory, distance } = options;
        Self { timeout, overlap, memory, distance }
    }
}

pub(crate) const INSPECT_HELP: &str = "\
Examples:
  grosso inspect send.pcap
  grosso inspect ring/ -f 'tcp port 443'";

pub(crate) const COALESCE_HELP: &str = "\
Writes pcapng unless you pass -F pcap: only pcapng records how to split
superframes again.
`grosso profiles` lists the profiles. Some keep only the header fields of the
last packet; `segment` cannot restore the others.

Examples:
  grosso coalesce -r wire.pcapng -w gro.pcapng
  grosso coalesce -r wire.pcapng -w gro.pcapng --hold 20us --max-segs 45
  grosso coalesce -r wire.pcapng -w lro.pcapng --profile freebsd
  tcpdump -i eth0 -w - | grosso coalesce -r - -w gro.pcapng";

pub(crate) const SEGMENT_HELP: &str = "\
Splits superframes using the metadata that `coalesce` and `capture` record, and
never guesses. For other captures use `grosso wire`.

Example:
  grosso segment -r gro.pcapng -w wire.pcapng";

pub(crate) const WIRE_HELP: &str = "\
Evidence decides whether a frame is a superframe and where to split it. Strongest
first: --mss, --mtu and --uso-size; metadata in the capture; a complete checksum;
increments of the IPv4 identification; repeated headers; ICMP too-big messages;
other packets of the flow; the MSS in the SYNs; an MTU of 1500. `grosso explain
FILE N` names the deciding evidence. Guesses and contradictions are reported;
with --strict such frames stay unchanged. Superframes with a bad checksum and UDP
superframes of unknown segment size are never split.

Examples:
  grosso wire -r send.pcap -w wire.pcapng
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso wire -r udp.pcap -w udp-wire.pcap --uso-size 1200 --ts line=10G
  grosso wire monday.pcap tuesday.pcap -w both.pcapng -f 'host 192.0.2.7'";

pub(crate) const REASSEMBLE_HELP: &str = "\
A reassembled datagram takes the position and timestamp of its last fragment.
Fragments that cannot be reassembled stay unchanged, and the report lists the
missing or overlapping bytes. --timeout and --memory limit how long and how many
fragments are kept. Linux also limits the number of other fragments that may arrive
in between, as --distance 64 does. A pipe is copied to a temporary file.

Examples:
  grosso reassemble -r sip.pcap -w whole.pcap
  grosso reassemble -r odd.pcap -w first.pcap --overlap first --timeout 5s";

pub(crate) const ENCAP_USAGE: &str =
    "grosso encap [OPTIONS] <FILE>... [--write <FILE>] type <TYPE> [WORD]...";

pub(crate) const ENCAP_HELP: &str = "\
The arguments after the options are those of `ip link add NAME`, with local and
remote; `grosso help tunnel add` lists them. Superframes stay superframes inside
the tunnel, and partial checksums stay partial: use `grosso wire` to convert them.
The segment size of superframes comes from the input's metadata, or from --mss,
--mtu or --uso-size. Packets that do not fit into the tunnel stay unchanged; with
--strict the exit code is then 1.

The tunnel headers follow the frame's link-layer header. If the tunnel carries
Ethernet frames, the outer frame gets a copy of that header. pcapng output records
the UDP port of the tunnel if it is not the assigned one; pcap output does not, so
read it with --port.

Examples:
  grosso encap -r in.pcap -w out.pcap type vxlan id 42 local 192.0.2.1 \\
      remote 192.0.2.2
  grosso encap -r in.pcap -w out.pcap type ipip local 192.0.2.1 remote 192.0.2.2 \\
      encap gue encap-dport 6080
  grosso encap -r in.pcap -w - type gre key 7 local 192.0.2.1 remote 192.0.2.2 |
      grosso decap -r - -w again.pcap";

pub(crate) const DECAP_HELP: &str = "\
Removes the outermost tunnel. With --recursive it removes all tunnels and
reassembles IP fragments outside, between and inside them; --timeout, --overlap,
--memory and --distance work as in `grosso reassemble`. Packets without a tunnel,
or with one that cannot be removed, stay unchanged and are counted by reason.

Tunnels: VXLAN, Geneve, GRE, GUE, FOU, IP in IP, MPLS in IP, on their assigned
ports. For the old VXLAN port of Linux pass --port vxlan=8472.

Examples:
  grosso decap -r overlay.pcap -w inner.pcap
  grosso decap --recursive -r overlay.pcap -w inner.pcap
  grosso decap -r fou.pcap -w inner.pcap --port fou=5555/4";

pub(crate) const FRAGMENT_HELP: &str = "\
Packets that must not or cannot be fragmented stay unchanged and are counted by
reason. Superframes are not fragmented: convert them with `grosso wire` first.
TCP superframes are detected as in `grosso wire`. A long UDP datagram counts as a
superframe only with --uso-size, because IP fragments long datagrams.

Examples:
  grosso fragment -r big.pcap -w fragments.pcap --mtu 1280
  grosso fragment -r big.pcap -w fragments.pcap --mtu 1280 --ignore-df --seed 7";

pub(crate) const VERIFY_HELP: &str = "\
Verdicts: valid; partial (the network card would complete it, so nothing is
corrupt); zero-udp (UDP without checksum); bad; unverifiable (bytes are missing).

Example:
  grosso csum verify -r mixed.pcapng; echo $?";

pub(crate) const FIX_HELP: &str = "\
Example:
  grosso csum fix -r mixed.pcapng -w fixed.pcapng";

pub(crate) const EXPLAIN_HELP: &str = "\
Shows whether the frame is a wire packet or a superframe, and the evidence for it.
Then replays the capture through the coalescer and shows whether the packet was
merged, and why.

Example:
  grosso explain wire.pcapng 231";
