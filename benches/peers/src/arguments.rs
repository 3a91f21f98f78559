//! The command line.

use std::path::PathBuf;

use clap::{Parser, builder::PossibleValuesParser};

use crate::contender::Peer;

/// Grosso beside what you would otherwise pick: the same packets, one core, rounds in turn.
#[derive(Debug, Parser)]
#[command(name = "grosso-peers", max_term_width = 80, after_help = HELP)]
pub(crate) struct Arguments {
    /// Rounds of each contender
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Only rows whose name contains this: coalesce-verified, hot/tcp4_1, checksum
    #[arg(long, value_name = "WORK")]
    pub(crate) only: Option<String>,
    /// Leave a peer out; may be given again
    #[arg(long, value_name = "PEER", value_parser = PossibleValuesParser::new(Peer::OTHERS.map(Peer::name)))]
    pub(crate) without: Vec<String>,
    /// Write everything that was measured, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the table with bars, as a page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Arguments {
    /// Whether a peer is wanted.
    pub(crate) fn wants(&self, peer: Peer) -> bool {
        self.without.iter().all(|without| without != peer.name())
    }
}

const HELP: &str = "\
A peer that this machine lacks is named with the way to get it; the others run.
Exit codes: 0 measured, 2 usage, 3 a file cannot be written, 4 nothing could run,
5 Grosso's own output is wrong.";
