//! `grosso export`: tables of captures as Parquet.

use std::path::PathBuf;

use clap::Args;

use super::{captures::Rules, grammar::Captures, known::Known, own::Naming};
use crate::shard::Shard;

#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    /// Write a row for each packet of the wire here
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write a row for each train of a receiving host
    #[arg(long, value_name = "FILE")]
    pub(crate) trains: Option<PathBuf>,
    /// Write the rows of one share of the flows only, such as 2/4
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = Shard::parse)]
    pub(crate) shard: Shard,
    #[command(flatten)]
    pub(crate) known: Known,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

pub(super) const EXPORT_HELP: &str = "\
Superframes are rows of the packets that they were cut into, by the evidence of
`grosso wire`. Trains are those of `grosso coalesce`. The columns are in
docs/export.md. Every share reads and judges all packets, so the rows of N
shares are those of one run. A pipe is kept in a temporary file.

Examples:
  grosso export ring/ --parquet packets.parquet --trains trains.parquet
  grosso export monday.pcapng --parquet dns.parquet -f 'udp port 53'
  duckdb -c \"select closed, why, count(*) from 'trains.parquet' group by all\"";

#[derive(Args, Debug)]
pub(crate) struct Merge {
    /// Reports of `grosso export --shard I/N --json`, one for each share
    #[arg(value_name = "REPORT", required = true)]
    pub(crate) reports: Vec<PathBuf>,
}

pub(super) const MERGE_HELP: &str = "\
Counts are added, and of times the earliest and the latest stay; whatever else
the reports say must be the same in all of them. Reports of other commands are
refused.

Example:
  grosso export ring/ --parquet 1.parquet --shard 1/2 --json > 1.json
  grosso export ring/ --parquet 2.parquet --shard 2/2 --json > 2.json
  grosso merge 1.json 2.json --json";
