//! Packet offload for captures and for live devices, and a lab that shows what it is worth.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `positions` | the grammar of the command line |
//! | `commands` | one module per command |
//! | `daemon` | data paths on live devices, as used by `bridge` and `run` |
//! | `reports` | the report of each command on captures, and those about tunnels |
//! | `checksums` | a verdict for every checksum of a packet, and the repair of those that are not right |
//! | `evidence` | the judgment whether a frame is a packet of the wire or a superframe, and its segment size |
//! | `device` | interfaces that the user names, and the failures to open or change them (Linux) |
//! | `headers` | offsets and fields of packets that several commands need |
//! | `meta` | translation of a capture's packet metadata to the engine's, and back |
//! | `fuzzing` | the parsers of what strangers and users write, for the fuzz targets |
//! | `fragments` | IP fragments in captures: those that become datagrams, and why the others do not |
//! | `suspicion` | hints at UDP datagrams that look like a tunnel on an unknown port |
//! | `transform` | a capture in, a capture out, packet by packet |
//! | `sources` | the captures that a command reads, as one, once or twice |
//! | `shard` | the share of the flows whose rows one of several runs of `export` takes |
//! | `filter` | filters in the language of tcpdump |
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
//! | `distribution` | the distribution of values, in bounded memory |
//!
//! Reports, failures and everything that is printed are in [`grosso_report`], the judgment on other coalescers is in
//! [`grosso_conform`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

#[cfg(target_os = "linux")]
mod acceptor;
mod arguments;
mod checksums;
mod commands;
#[cfg(target_os = "linux")]
mod confinement;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod device;
mod digest;
mod distribution;
mod evidence;
mod filter;
mod fragments;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub mod fuzzing;
mod headers;
mod input;
#[cfg(any(test, feature = "library"))]
pub mod library;
mod line;
mod meta;
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
mod suspicion;
mod transform;
mod tunnel;
mod usage;

use std::process::ExitCode;

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
