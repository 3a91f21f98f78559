//! The command line.

use std::path::PathBuf;

use clap::{Parser, builder::PossibleValuesParser};

use crate::contender::Peer;

/// Compare Grosso with its alternatives on the same packets, on one core, in alternating rounds.
///
/// Each row measures one kind of work on one workload. All installed peers take part; for each missing peer, the report
/// says how to install it.
#[derive(Debug, Parser)]
#[command(name = "grosso-peers", max_term_width = 80, after_help = HELP)]
pub(crate) struct Arguments {
    /// Rounds per contender; with 15 rounds, all rows take two to four minutes
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Measure only rows whose name contains this text, such as coalesce-verified, hot/tcp4_1 or checksum
    #[arg(long, value_name = "ROW")]
    pub(crate) only: Option<String>,
    /// Skip a peer; may be repeated
    #[arg(long, value_name = "PEER", value_parser = PossibleValuesParser::new(Peer::OTHERS.map(Peer::name)))]
    pub(crate) without: Vec<String>,
    /// List the rows and their contenders without measuring
    #[arg(long)]
    pub(crate) list: bool,
    /// Write all measurements as JSON; with - to standard output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with the tables and bars
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Arguments {
    /// Returns whether a peer is requested.
    pub(crate) fn wants(&self, peer: Peer) -> bool {
        self.without.iter().all(|without| without != peer.name())
    }

    /// Returns whether the JSON replaces the tables.
    pub(crate) fn json_is_output(&self) -> bool {
        self.json.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }
}

const HELP: &str = "\
Examples:
  grosso-peers --html peers.html            everything, and a page to look at
  grosso-peers --only hot/tcp4_1            the rows of one workload
  grosso-peers --only segment --rounds 51   quieter figures of fewer rows
  grosso-peers --json - | jq .goals         what is aimed at, and what was met

Exit codes: 0 measured, 2 usage, 3 a file cannot be written, 4 nothing could
run, 5 Grosso's own output is wrong. Set NO_COLOR for plain tables.";
