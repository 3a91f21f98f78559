//! The grammar of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use grosso_io::capture::Format;
use grosso_wire::LinkType;

use crate::{input::Session, style::When};

/// Packet offload in userspace: see captures as the wire saw them, or as a stack would.
#[derive(Debug, Parser)]
#[command(
    name = "grosso",
    version,
    max_term_width = 80,
    after_help = HELP,
    override_usage = "grosso <COMMAND> [OPTIONS]\n       grosso FILE",
    disable_help_subcommand = false
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print failures only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to colour; NO_COLOR and CLICOLOR_FORCE count when this is auto
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,
    /// Parse packets as this link type: ethernet, raw, null, sll, sll2, or a number
    #[arg(long, global = true, value_name = "TYPE", value_parser = parse_link)]
    pub(crate) linktype: Option<LinkType>,
    /// Exit 0 although the input ends inside a packet
    #[arg(long, global = true)]
    pub(crate) allow_truncated: bool,
    /// Refuse what would have to be guessed: exit 1 if anything was left as it was
    #[arg(long, global = true)]
    pub(crate) strict: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Is this capture the wire?
    #[command(after_help = INSPECT_HELP)]
    Inspect(Inspect),
    /// Merge packets as a receiving host would
    #[command(after_help = COALESCE_HELP)]
    Coalesce(Coalesce),
    /// Split superframes that say where they split
    #[command(after_help = SEGMENT_HELP)]
    Segment(Segment),
    /// Make it look like the wire: split superframes, complete checksums
    #[command(after_help = WIRE_HELP)]
    Wire(Wire),
    /// Verify or fix checksums
    #[command(subcommand)]
    Csum(Csum),
    /// Why was this packet merged, or not?
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// What is offload worth here? Kernel TCP through Grosso, measured
    #[command(after_help = LAB_HELP)]
    Lab(Lab),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Csum {
    /// A verdict for every checksum; exit 1 if any is bad
    #[command(after_help = VERIFY_HELP)]
    Verify(CsumVerify),
    /// Set checksums right, and nothing else
    #[command(after_help = FIX_HELP)]
    Fix(CsumFix),
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Captures; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// A capture in, a capture out.
#[derive(Args, Clone, Debug)]
pub(crate) struct Files {
    /// Read this capture (pcap, pcapng; also gzip, zstd); - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) read: PathBuf,
    /// Write this capture; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Output format [default: what the file's name ends in, else that of the input]
    #[arg(short = 'F', long, value_name = "FORMAT")]
    format: Option<OutputFormat>,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

impl Files {
    /// The format of the output: what the user says or the name of the file does, or `default`.
    pub(crate) fn format(&self, default: Format) -> Format {
        let by_name = || match self.write.extension()?.to_str()? {
            "pcap" => Some(OutputFormat::Pcap),
            "pcapng" => Some(OutputFormat::Pcapng),
            _ => None,
        };
        self.format.or_else(by_name).map_or(default, Into::into)
    }

    /// Whether the hash of the input goes anywhere: into pcapng or into JSON.
    pub(crate) fn keeps_hash(&self, session: &Session) -> bool {
        session.talk.json || self.format(Format::Pcapng) != Format::Pcap
    }
}

/// Words behind the options, which tcpdump takes as a filter.
#[derive(Args, Clone, Debug)]
pub(crate) struct Filter {
    #[arg(hide = true, value_name = "FILTER")]
    pub(crate) words: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Coalesce {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

/// What is merged, and when trains leave.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rules {
    /// Whose rules to merge by
    #[arg(long, value_name = "NAME", default_value = "linux")]
    pub(crate) profile: String,
    /// Packets a poll, or "stamp": a poll is a run of equal timestamps
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_batch)]
    pub(crate) batch: Batch,
    /// Hold trains across polls for so long, by capture time: 20us, 1ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Superframes stay below so many bytes, from the IP header on
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=524_280))]
    pub(crate) max_size: Option<u32>,
    /// Most packets in one superframe
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_segs: Option<u16>,
    /// Most trains held at once
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub(crate) flows: Option<usize>,
    /// Most tunnels that a merged packet may be inside of
    #[arg(long, value_name = "N")]
    pub(crate) tunnels: Option<u8>,
    /// Merge TCP only
    #[arg(long)]
    pub(crate) no_udp: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Segment {
    #[command(flatten)]
    pub(crate) files: Files,
}

#[derive(Args, Debug)]
pub(crate) struct Wire {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Split TCP every N bytes where the capture tells nothing better
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) mss: Option<u16>,
    /// The MTU of the link, where the capture tells nothing better [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    pub(crate) mtu: Option<u16>,
    /// Split UDP packets that are longer than the MTU every N bytes; never guessed
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) uso_size: Option<u16>,
    /// Times of split packets: same, or line=RATE such as line=10G
    #[arg(long, value_name = "HOW", default_value = "same", value_parser = parse_spacing)]
    pub(crate) ts: Spacing,
}

#[derive(Args, Debug)]
pub(crate) struct CsumVerify {
    /// Read this capture; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) read: PathBuf,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

#[derive(Args, Debug)]
pub(crate) struct CsumFix {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Which checksums to set right
    #[arg(long, value_name = "WHICH", default_value = "partial")]
    pub(crate) only: Which,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The capture; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The packet, counted from 1
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) number: u64,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

#[derive(Args, Debug)]
pub(crate) struct Lab {
    /// What to measure; without, the headline: MTU 1500, coalescing on and off
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiment: Option<LabExperiment>,
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// How long each measurement is
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// The congestion control that the lab's sockets ask for
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Hold trains across polls for so long: 0, 20us, 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Send from a file, without a copy in the sender
    #[arg(long)]
    pub(crate) sendfile: bool,
    /// Also write the results as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What the lab can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabExperiment {
    /// Three pairs of MTUs, coalescing on and off, and the kernel's own GRO beside.
    Lro,
    /// Superframes on and off in the sender, MTU 1500 and the longest.
    Gso,
    /// A byte there and one back: how long 50, 90, 95 and 99 % of requests take.
    Rr,
}

/// Which checksums `csum fix` sets right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// Those that were left for a device to complete.
    Partial,
    /// Those that are wrong.
    Bad,
    /// Both.
    All,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Classic pcap.
    Pcap,
    /// pcapng.
    Pcapng,
}

impl From<OutputFormat> for Format {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Pcap => Self::Pcap,
            OutputFormat::Pcapng => Self::Pcapng,
        }
    }
}

/// When a poll ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// After so many packets.
    Packets(u64),
    /// Before a packet with another timestamp.
    Stamp,
}

/// The times of packets that were split from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// All have the time of the superframe.
    Same,
    /// As far apart as they take on a line of so many bits a second.
    Line(u64),
}

fn parse_link(text: &str) -> Result<LinkType, String> {
    let named = match text.to_ascii_lowercase().as_str() {
        "ethernet" | "en10mb" => Some(LinkType::Ethernet),
        "raw" => Some(LinkType::Raw),
        "null" | "loop" => Some(LinkType::Null),
        "sll" | "linux_sll" => Some(LinkType::LinuxSll),
        "sll2" | "linux_sll2" => Some(LinkType::LinuxSll2),
        number => number.parse().ok().and_then(LinkType::from_pcap),
    };
    named.ok_or_else(|| "expected ethernet, raw, null, sll or sll2".into())
}

fn parse_batch(text: &str) -> Result<Batch, String> {
    if text == "stamp" {
        return Ok(Batch::Stamp);
    }
    match text.parse() {
        Ok(packets @ 1..) => Ok(Batch::Packets(packets)),
        _ => Err("expected a number of packets, or stamp".into()),
    }
}

fn parse_flows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(flows @ 1..=FLOWS_MAX) => Ok(flows),
        _ => Err(format!("expected a number from 1 to {FLOWS_MAX}")),
    }
}

/// A time with its unit, in nanoseconds.
fn parse_time_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == "0" => 1,
        _ => return Err("expected a time with its unit: ns, us, ms or s".into()),
    };
    let nanoseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    nanoseconds.ok_or_else(|| "expected a number before the unit".into())
}

/// The length of a measurement, in nanoseconds.
fn parse_run_ns(text: &str) -> Result<u64, String> {
    match parse_time_ns(text)? {
        nanoseconds @ RUN_NS_MIN..=RUN_NS_MAX => Ok(nanoseconds),
        _ => Err("expected a time from 10ms to 1000s".into()),
    }
}

fn parse_spacing(text: &str) -> Result<Spacing, String> {
    if text == "same" {
        return Ok(Spacing::Same);
    }
    let expected = || "expected same, or line=RATE such as line=10G".to_string();
    let rate = text.strip_prefix("line=").ok_or_else(expected)?;
    let digits = rate.find(|c: char| !c.is_ascii_digit()).unwrap_or(rate.len());
    let (number, unit) = rate.split_at(digits);
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err(expected()),
    };
    let bits = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bits.filter(|&bits| bits > 0).map(Spacing::Line).ok_or_else(expected)
}

/// A table of a million trains takes some hundred megabytes.
const FLOWS_MAX: usize = 1 << 20;

/// A measurement that is shorter sees a few ticks of the scheduler's clock; one that is longer is meant otherwise.
const RUN_NS_MIN: u64 = 10_000_000;
const RUN_NS_MAX: u64 = 1_000_000_000_000;

const HELP: &str = "\
Examples:
  grosso send.pcap                             is it the wire? (same as inspect)
  grosso wire -r send.pcap -w wire.pcapng      as it was on the wire
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso coalesce -r wire.pcapng -w gro.pcapng as a receiving stack sees it
  grosso segment -r gro.pcapng -w back.pcapng  and back, byte for byte
  grosso explain wire.pcapng -n 231            why was it merged, or not?
  grosso lab                                   what is it worth on kernel TCP?

Exit codes: 0 done, yes; 1 done, no; 2 usage; 3 input damaged or not supported
(what could be written was written); 4 environment; 5 internal error.";

const INSPECT_HELP: &str = "\
Example:
  grosso inspect send.pcap";

const COALESCE_HELP: &str = "\
Writes pcapng unless -F pcap: only pcapng can say how to cut back.
Profiles: linux (default), linux-8x8 (with Linux's own small flow table).

Examples:
  grosso coalesce -r wire.pcapng -w gro.pcapng
  grosso coalesce -r wire.pcapng -w gro.pcapng --hold 20us --max-segs 45
  tcpdump -i eth0 -w - | grosso coalesce -r - -w gro.pcapng";

const SEGMENT_HELP: &str = "\
Cuts what says where to cut (as coalesce writes it) and never guesses. For host
captures, which do not say it, there is `grosso wire`.

Example:
  grosso segment -r gro.pcapng -w wire.pcapng";

const WIRE_HELP: &str = "\
Where to split TCP is taken from, in this order: what the capture recorded, the
MSS in the SYN, steps of the IPv4 identification, the largest plain segment of
the flow, --mss or --mtu, an MTU of 1500. --strict takes the first two only.
UDP is left whole unless its size is recorded or given with --uso-size.

Examples:
  grosso wire -r send.pcap -w wire.pcapng
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso wire -r udp.pcap -w udp-wire.pcap --uso-size 1200 --ts line=10G";

const VERIFY_HELP: &str = "\
Verdicts: valid; partial (left for the network card: no corruption); zero-udp
(UDP without checksum); bad; unverifiable (bytes are missing).

Example:
  grosso csum verify -r mixed.pcapng; echo $?";

const FIX_HELP: &str = "\
Example:
  grosso csum fix -r mixed.pcapng -w fixed.pcapng";

const EXPLAIN_HELP: &str = "\
Replays the capture through the coalescer and shows what became of one packet.

Example:
  grosso explain wire.pcapng -n 231";

const LAB_HELP: &str = "\
Hosts are network namespaces of a user namespace of the lab's own: it needs no
root, changes nothing outside and leaves nothing behind. What is measured is the
kernel's own TCP, with Grosso in the place of the receiver's NIC and its driver.

Examples:
  grosso lab                      the headline, in twenty seconds
  grosso lab --html report.html   and a page to look at
  grosso lab lro --runs 5         table R1, with the kernel's own GRO beside
  grosso lab gso                  table R5: superframes of the sender, cut by Grosso
  grosso lab --json | jq '.groups[].ratio'";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_and_rates_have_units() {
        assert_eq!(parse_time_ns("20us"), Ok(20_000));
        assert_eq!(parse_time_ns("1ms"), Ok(1_000_000));
        assert_eq!(parse_time_ns("0"), Ok(0));
        assert!(parse_time_ns("20").is_err());
        assert!(parse_time_ns("us").is_err());
        assert!(parse_time_ns("99999999999999999999s").is_err());
        assert_eq!(parse_spacing("line=10G"), Ok(Spacing::Line(10_000_000_000)));
        assert!(parse_spacing("line=0").is_err());
        assert!(parse_spacing("10G").is_err());
    }
}
