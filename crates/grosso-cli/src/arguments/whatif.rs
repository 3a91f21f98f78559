//! Arguments of `grosso whatif`: the settings to try on a capture.

use std::path::PathBuf;

use clap::Args;
use grosso_analysis::{
    replay::{Batch, HoldTime, Repair},
    whatif,
};

use super::{
    captures::{Bounds, ListedFlows},
    grammar::Captures,
    known::Assumptions,
    own::Naming,
    values::{JOBS, whole},
};

#[derive(Args, Debug)]
pub(crate) struct Whatif {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    /// Compare these profiles, separated by commas; "all" compares every profile
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = whatif::Whatif::PROFILES
    )]
    pub(crate) profile: Vec<String>,
    /// Compare these hold times (capture time), separated by commas; "auto" adapts the time to each flow
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = whatif::Whatif::HOLDS,
        value_parser = HoldTime::parse
    )]
    pub(crate) hold: Vec<HoldTime>,
    /// Compare these reorder levels, separated by commas: off, batch, holes, or holes:TIME [default: from the
    /// profile]
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', value_parser = Repair::parse)]
    pub(crate) reorder: Vec<Repair>,
    /// End a poll after N packets, at each new timestamp ("stamp"), or before a gap longer than TIME (and after
    /// 64 packets)
    #[arg(long, value_name = "WHEN", default_value = whatif::Whatif::BATCH, value_parser = Batch::parse)]
    pub(crate) batch: Batch,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) listed: ListedFlows,
    /// Use this many threads; the number does not affect the report
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = whole(JOBS))]
    pub(crate) jobs: u16,
    /// Write an HTML page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

pub(crate) const WHATIF_HELP: &str = "\
Replays the capture through a coalescer for every combination of profile, reorder
level and hold time; the capture's timestamps are the clock. The column
`segments/train` counts wire packets with a payload, including single packets. The
column `packets held` shows the delay due to reordering and holding, accurate to
0.1 %.

Examples:
  grosso whatif wire.pcapng
  grosso whatif -r wire.pcapng --profile linux --hold 0,20us,100us --html w.html
  grosso whatif -r two-paths.pcapng --profile linux --reorder off,batch,holes:200us
  grosso wire -r send.pcap -w - | grosso whatif -r -";
