//! Packet offloads for captures and live devices, and a lab that measures their benefit.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `arg_order` | the grammar of the command line |
//! | `commands` | one module per command; the capture commands share `captures`, and [`grosso_analysis`] does their work |
//! | `fuzzing` | access to the parsers of untrusted input, for the fuzz targets |
//! | `session` | the state that commands share, and console output while captures are read |
//! | `pages` | the manual pages and completions of packages |
//! | `usage` | messages about errors in the command line |
//!
//! Other crates do most of the work: [`grosso_report`] contains reports, failures and printing, [`grosso_conform`]
//! tests other coalescers, [`grosso_analysis`] contains the capture commands, and [`grosso_daemon`] runs data paths.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

mod arg_order;
mod arguments;
mod commands;
#[cfg(all(feature = "fuzzing", target_os = "linux"))]
pub mod fuzzing;
#[cfg(any(test, feature = "pages"))]
pub mod pages;
mod session;
mod usage;

use std::process::ExitCode;

#[cfg(all(feature = "fuzzing", target_os = "linux"))]
use grosso_analysis::links;
#[cfg(any(test, feature = "parquet"))]
use grosso_analysis::shard;
use grosso_analysis::{
    checksums, evidence, fragments, headers, line, meta, profile, reports, slowdown,
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

/// Runs the command given by the arguments of this process, just as the program `grosso` does.
#[must_use]
pub fn main() -> ExitCode {
    commands::run(std::env::args_os().collect()).into()
}
