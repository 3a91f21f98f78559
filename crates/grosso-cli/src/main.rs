//! Packet offload for captures and for live devices, and a lab that shows what it is worth.
//!
//! | module | job |
//! |---|---|
//! | `arguments`, `positions` | the grammar of the command line |
//! | `commands` | one module a command |
//! | `daemon` | data paths on live devices, as `bridge` and `run` have them |
//! | `report` | what each command found, as text and as JSON from one value |
//! | `checksums` | a verdict for every checksum of a packet, and how to set it right |
//! | `mss` | where a superframe was cut on the wire, and how that is known |
//! | `headers` | places in a packet that several commands ask for |
//! | `meta` | what captures say about packets, in the engine's words |
//! | `fragments` | IP fragments in captures: which become datagrams, and why the others do not |
//! | `suspicion` | what UDP datagrams look like that nobody said to be a tunnel |
//! | `transform` | a capture in, a capture out, packet by packet |
//! | `twice` | a capture that is read twice |
//! | `tunnel` | tunnels in the words of `ip link` |
//! | `name` | text that strangers chose, without its power over a terminal |
//! | `input`, `output` | captures, with everything that a command owes to its user around them |
//! | `line` | when packets leave on a line of a known rate |
//! | `observe` | what running data paths count, for people and for programs (Linux) |
//! | `profile` | profiles as users write them |
//! | `wrong` | what is wrong with a text that the user wrote, and what may have been meant |
//! | `digest` | the hash of what is read |
//! | `distribution` | how values are spread, in bounded memory |
//! | `error` | every way to fail, with its exit code |
//! | `talk`, `style`, `progress` | what goes to standard error |
#![forbid(unsafe_code)]

mod arguments;
mod checksums;
mod commands;
#[cfg(target_os = "linux")]
mod daemon;
mod digest;
mod distribution;
mod error;
mod evidence;
mod fragments;
mod headers;
mod input;
mod line;
mod meta;
mod name;
#[cfg(target_os = "linux")]
mod observe;
mod output;
mod positions;
mod profile;
mod progress;
mod report;
mod style;
mod suspicion;
mod talk;
mod transform;
mod tunnel;
mod twice;
mod wrong;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(std::env::args_os().collect()).into()
}
