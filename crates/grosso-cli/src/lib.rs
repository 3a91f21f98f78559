//! Packet offload for captures and for live devices, and a lab that shows what it is worth.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `arg_order` | the grammar of the command line |
//! | `commands` | one module per command |
//! | `fuzzing` | the parsers of what strangers and users write, for the fuzz targets |
//! | `transform` | a capture in, a capture out, packet by packet |
//! | `sources` | the captures that a command reads, as one, once or twice |
//! | `filter` | filters in the language of tcpdump |
//! | `survey` | the first reading of a capture, which teaches a judge its flows |
//! | `input`, `output` | reading and writing of captures, with progress, hash and provenance |
//! | `library` | the commands, and tables of packets and of trains, for programs that link this crate |
//! | `pages` | the manual pages and completions of packages |
//! | `usage` | messages about a wrong command line |
//!
//! Reports, failures and everything that is printed are in [`grosso_report`], the judgment on other coalescers is in
//! [`grosso_conform`], the judgment on captured packets and their checksums in [`grosso_analysis`], and everything
//! about running data paths in [`grosso_daemon`].
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

/// Runs the command that the arguments of this process name, as the program `grosso` does.
#[must_use]
pub fn main() -> ExitCode {
    commands::run(std::env::args_os().collect()).into()
}
