//! Packet offload for captures and for live devices, and a lab that shows what it is worth.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `positions` | the grammar of the command line |
//! | `commands` | one module per command |
//! | `daemon` | data paths on live devices, as used by `bridge` and `run` |
//! | `reports` | the report of each command on captures, and those about tunnels |
//! | `device` | interfaces that the user names, and the failures to open or change them (Linux) |
//! | `fuzzing` | the parsers of what strangers and users write, for the fuzz targets |
//! | `fragments` | IP fragments in captures: those that become datagrams, and why the others do not |
//! | `transform` | a capture in, a capture out, packet by packet |
//! | `sources` | the captures that a command reads, as one, once or twice |
//! | `shard` | the share of the flows whose rows one of several runs of `export` takes |
//! | `filter` | filters in the language of tcpdump |
//! | `survey` | the first reading of a capture, which teaches a judge its flows |
//! | `tunnel` | tunnels, described as for `ip link` |
//! | `input`, `output` | reading and writing of captures, with progress, hash and provenance |
//! | `line` | the times at which packets leave on a line of a given rate |
//! | `library` | the commands, and tables of packets and of trains, for programs that link this crate |
//! | `pages` | the manual pages and completions of packages |
//! | `confinement` | the privileges that each thread of running data paths gives up (Linux) |
//! | `observe` | the counters of running data paths, for people and for programs (Linux) |
//! | `profile` | profiles as users write them |
//! | `digest` | the hash of the input |
//! | `acceptor` | accepting clients of listeners, with bounds |
//! | `usage` | messages about a wrong command line |
//!
//! Reports, failures and everything that is printed are in [`grosso_report`], the judgment on other coalescers is in
//! [`grosso_conform`], and the judgment on captured packets and their checksums in [`grosso_analysis`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

#[cfg(target_os = "linux")]
mod acceptor;
mod arguments;
mod commands;
#[cfg(target_os = "linux")]
mod confinement;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod device;
mod digest;
mod filter;
mod fragments;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub mod fuzzing;
mod input;
#[cfg(any(test, feature = "library"))]
pub mod library;
mod line;
#[cfg(target_os = "linux")]
mod observe;
mod output;
#[cfg(any(test, feature = "pages"))]
pub mod pages;
mod positions;
mod profile;
mod reports;
#[cfg(any(test, feature = "parquet"))]
mod shard;
mod sources;
mod survey;
mod transform;
mod tunnel;
mod usage;

use std::process::ExitCode;

use grosso_analysis::{
    checksums, distribution, evidence, headers, links, meta, slowdown, suspicion,
};
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
