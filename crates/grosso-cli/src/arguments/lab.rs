//! `grosso lab`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{parse_run_ns, parse_time_ns};

#[derive(Args, Debug)]
pub(crate) struct Lab {
    /// What to measure; without, the headline: MTU 1500, coalescing on and off
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiment: Option<LabExperiment>,
    /// Measurements of each setting
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// How long each measurement is
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_run_ns)]
    pub(crate) time: u64,
    /// The congestion control that the lab's sockets ask for
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Hold trains across polls for so long: 0, 20us, 1ms
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse_time_ns)]
    pub(crate) hold: u64,
    /// Send from a file, without a copy in the sender
    #[arg(long)]
    pub(crate) sendfile: bool,
    /// What Grosso hands packets to a host through; a TAP where /dev/net/tun may be opened
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) device: LabDevice,
    /// Where to write the page with plots; grosso-lab.html in this folder, named after the experiment
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no page
    #[arg(long, conflicts_with = "html")]
    pub(crate) no_html: bool,
}

/// What the data path hands packets to a host through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabDevice {
    /// A TAP where one may be made, else a veth pair.
    Auto,
    /// A TAP device, as a virtual machine's NIC is one; wants /dev/net/tun.
    Tap,
    /// A veth pair with a packet socket on its far end; wants nothing.
    Veth,
}

/// What the lab can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabExperiment {
    /// Three pairs of MTUs, coalescing on and off, and the kernel's own GRO beside.
    Lro,
    /// Superframes on and off in the sender, MTU 1500 and the longest.
    Gso,
    /// A byte there and one back: how long 50, 90, 95 and 99 % of requests take.
    Rr,
}

pub(super) const LAB_HELP: &str = "\
Hosts are network namespaces of a user namespace of the lab's own: it needs no
root, changes nothing outside and leaves nothing behind. What is measured is the
kernel's own TCP, with Grosso in the place of the receiver's NIC and its driver.

Examples:
  grosso lab                      the headline, in twenty seconds
  grosso lab --html report.html   the page with plots elsewhere
  grosso lab lro --runs 5         table R1, with the kernel's own GRO beside
  grosso lab gso                  table R5: superframes of the sender, cut by Grosso
  grosso lab --json | jq '.groups[].ratio'";
