//! Packet offload for captures and for live devices, and a lab that measures its gain.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `arg_order` | the grammar of the command line |
//! | `commands` | one module per command |
//! | `fuzzing` | parsers of input from strangers and users, for the fuzz targets |
//! | `transform` | from a capture to a capture, packet by packet |
//! | `sources` | the captures that a command reads, as one stream, once or twice |
//! | `filter` | filters in tcpdump's language |
//! | `survey` | the first pass over a capture, in which the classifier learns its flows |
//! | `input`, `output` | reading and writing of captures, with progress, hash and provenance |
//! | `library` | the commands, and tables of packets and of trains, for programs that link this crate |
//! | `pages` | the manual pages and completions of packages |
//! | `usage` | messages about a wrong command line |
//!
//! [`grosso_report`] has reports, failures and everything that is printed; [`grosso_conform`] the test of other
//! coalescers; [`grosso_analysis`] the classifier of captured packets and their checksums; and [`grosso_daemon`]
//! everything about running data paths.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

mod arg_order;
mod arguments;
mod commands;
mod filter;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub mod fuzzing;
mod input;
#[cfg(any(test, feature = "library"))]
pub mod library;
mod output;
#[cfg(any(test, feature = "pages"))]
pub mod pages;
mod sources;
mod survey;
mod transform;
mod usage;

use std::process::ExitCode;

#[cfg(any(test, feature = "parquet"))]
use grosso_analysis::shard;
use grosso_analysis::{
    checksums, digest, distribution, evidence, fragments, headers, line, links, meta, profile,
    reports, slowdown, suspicion,
};
use grosso_daemon::tunnel;
#[cfg(target_os = "linux")]
use grosso_daemon::{self as daemon, acceptor, confinement, device, observe};
#[cfg(target_os = "linux")]
use grosso_report::needs;
use grosso_report::{
    console as talk, diagnostic as wrong, error, name, progress, report, schema as form, style,
    units,
};

/// Runs the command in the arguments of this process, as the program `grosso` does.
#[must_use]
pub fn main() -> ExitCode {
    commands::run(std::env::args_os().collect()).into()
}
