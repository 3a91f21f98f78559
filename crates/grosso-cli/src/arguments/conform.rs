//! Arguments of `grosso conform`.

use core::time::Duration;
use std::ffi::OsString;

use clap::{Args, ValueEnum};
use grosso_conform::Task;

use super::{own::Detail, values::parse_time_ns};

/// Task that the program under test performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConformTask {
    /// Merge packets into superframes
    Coalesce,
    /// Split superframes into packets
    Segment,
    /// Reassemble IP fragments
    Reassemble,
}

#[derive(Args, Debug)]
pub(crate) struct Conform {
    /// Select the task that the program performs
    #[arg(long, value_enum, default_value = "coalesce")]
    task: ConformTask,
    /// Set the program's time limit per poll
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_timeout)]
    timeout: u64,
    /// Also exit 1 if packets that may be merged were not merged
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) detail: Detail,
    /// Program to test, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Conform {
    /// Returns the task that the program performs.
    pub(crate) fn task(&self) -> Task {
        match self.task {
            ConformTask::Coalesce => Task::Coalesce,
            ConformTask::Segment => Task::Segment,
            ConformTask::Reassemble => Task::Reassemble,
        }
    }

    /// Returns the program's time limit for each poll.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.timeout)
    }
}

fn parse_timeout(text: &str) -> Result<u64, String> {
    match parse_time_ns(text)? {
        0 => Err("expected a time longer than 0".into()),
        time => Ok(time),
    }
}

pub(crate) const CONFORM_HELP: &str = "\
The program reads frames on standard input and writes its output, for example
superframes, on standard output. A record is a 4-byte little-endian length,
followed by that many bytes: a 10-byte virtio_net_hdr and an Ethernet frame. A
length of 0 ends a poll: the program then writes the packets that it holds,
discards incomplete datagrams, and answers with a length of 0.
docs/conformance.md lists the rules and has a sample program of 30 lines.

Exits 0 if no rule was violated, otherwise 1. With --strict, also exits 1 if
packets that may be merged were not merged.

Examples:
  grosso conform -- ./mine --udp
  grosso conform --json -- ./mine | jq '.rules[] | select(.wrong > 0)'
  grosso conform --task segment -- ./mine      splits superframes
  grosso conform -- cat                        merges no packets, violates no rules";
