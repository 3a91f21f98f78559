//! Arguments of `grosso export`, which writes tables of captures as Parquet.

use std::path::PathBuf;

use clap::Args;

use super::{
    captures::Rules, grammar::Captures, known::Assumptions, own::Naming, values::parse_flow_file,
};
use crate::shard::Shard;

#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) captures: Captures,
    #[command(flatten)]
    pub(super) naming: Naming,
    /// Write one row per wire packet to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write one row per train to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trains: Option<PathBuf>,
    /// Write one row per flow direction to this file
    #[arg(long, value_name = "FILE", value_parser = parse_flow_file)]
    pub(crate) flows: Option<PathBuf>,
    /// Write only the flows of shard I of N, for example 2/4
    #[arg(long, value_name = "I/N", default_value = Shard::ONLY, value_parser = Shard::parse)]
    pub(crate) shard: Shard,
    #[command(flatten)]
    pub(crate) known: Assumptions,
    #[command(flatten)]
    pub(crate) rules: Rules,
}

pub(crate) const EXPORT_HELP: &str = "\
Each superframe becomes one row per packet, split as by `grosso wire`. Trains are
the same as in `grosso coalesce`. docs/export.md lists the columns. Every shard
reads all packets and writes the rows of its own flows; N shards together write the
same rows as a run without --shard. A pipe is copied to a temporary file.

Examples:
  grosso export ring/ --parquet packets.parquet --trains trains.parquet
  grosso export ring/ --flows flows.parquet
  grosso export monday.pcapng --parquet dns.parquet -f 'udp port 53'
  duckdb -c \"select closed, why, count(*) from 'trains.parquet' group by all\"";

#[derive(Args, Debug)]
pub(crate) struct Merge {
    /// Reports of `grosso export --shard I/N --json`, one per shard
    #[arg(value_name = "REPORT", required = true)]
    pub(crate) reports: Vec<PathBuf>,
}

pub(crate) const MERGE_HELP: &str = "\
Adds the counts and keeps the earliest and the latest timestamp. All other fields
must be the same in every report. Reports of other commands are rejected.

Example:
  grosso export ring/ --parquet 1.parquet --shard 1/2 --json > 1.json
  grosso export ring/ --parquet 2.parquet --shard 2/2 --json > 2.json
  grosso merge 1.json 2.json --json";
