//! `grosso whatif`: the settings that are tried on a capture.

use std::path::PathBuf;

use clap::Args;

use super::{
    captures::Bounds,
    grammar::Captures,
    known::Known,
    own::Naming,
    values::{Batch, HoldTime, Repair, parse_batch, parse_hold, parse_repair},
};

#[derive(Args, Debug)]
pub(crate) struct Whatif {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    /// Profiles to try, separated by commas; "all" tries every profile
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "linux,linux-8x8,freebsd,rsc-82599"
    )]
    pub(crate) profile: Vec<String>,
    /// Times to hold trains across polls, by capture time, separated by commas; auto: as long as it pays
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = "0,2us,16us,20us,50us,100us,1ms,auto",
        value_parser = parse_hold
    )]
    pub(crate) hold: Vec<HoldTime>,
    /// Ways to put TCP in order first, separated by commas: off, batch, holes, or holes:TIME [default: the profile's]
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', value_parser = parse_repair)]
    pub(crate) reorder: Vec<Repair>,
    /// End of a poll: before a gap longer than this (or after 64 packets), after N packets, or "stamp"
    #[arg(long, value_name = "WHEN", default_value = "5us", value_parser = parse_batch)]
    pub(crate) batch: Batch,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    #[command(flatten)]
    pub(crate) known: Known,
    /// Threads that try the settings; the report is the same with any number
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

pub(super) const WHATIF_HELP: &str = "\
Replays the capture once through a coalescer for every profile, level of order
and hold, with the times of the capture as the clock. Segments a train count
packets of the wire with a payload, alone or not; held is how long these waited,
for their order and for their train, to 0.1 %.

Examples:
  grosso whatif wire.pcapng
  grosso whatif -r wire.pcapng --profile linux --hold 0,20us,100us --html w.html
  grosso whatif -r two-paths.pcapng --profile linux --reorder off,batch,holes:200us
  grosso wire -r send.pcap -w - | grosso whatif -r -";
