//! `grosso extcap`: the options by which Wireshark speaks to its capture sources.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use grosso_capture::SNAPLEN_DEFAULT;

#[derive(Args, Debug)]
#[command(override_usage = "grosso --extcap-interfaces | --extcap-interface <SOURCE> [OPTIONS]")]
#[command(group = clap::ArgGroup::new("asked").required(true).multiple(true)
    .args(["extcap_interfaces", "extcap_interface"]))]
pub(crate) struct Extcap {
    /// List the sources
    #[arg(long)]
    pub(crate) extcap_interfaces: bool,
    /// The source: grosso- and the name of an interface
    #[arg(long, value_name = "SOURCE")]
    pub(crate) extcap_interface: Option<String>,
    /// Print the link type of the source
    #[arg(long)]
    pub(crate) extcap_dlts: bool,
    /// Print the options of the source
    #[arg(long)]
    pub(crate) extcap_config: bool,
    /// Capture into the pipe
    #[arg(long, requires = "fifo", requires = "extcap_interface")]
    pub(crate) capture: bool,
    /// The pipe
    #[arg(long, value_name = "PIPE")]
    pub(crate) fifo: Option<PathBuf>,
    /// Take only packets that pass this expression of tcpdump; without --capture, check it
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) extcap_capture_filter: Option<String>,
    /// The packets of the wire, or those of this host
    #[arg(long, value_name = "WHOSE", default_value = "wire")]
    pub(crate) packets: PacketsOf,
    /// Keep at most this many bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN_DEFAULT)))]
    pub(crate) snaplen: u32,
    /// Version of the Wireshark that asks
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    extcap_version: Option<String>,
}

/// The form of the packets of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PacketsOf {
    /// Superframes split, checksums complete
    Wire,
    /// As tcpdump has them, with their offload metadata
    Host,
}

pub(super) const EXTCAP_HELP: &str = "\
Makes each interface of this machine a capture source in Wireshark's list, with
the packets that the wire has. Wireshark asks what lies in a folder of its own:

  ln -s \"$(command -v grosso)\" ~/.local/lib/wireshark/extcap/

Help, About, Folders names that folder, tshark -G folders too. Under any name the
program knows Wireshark by its options. The privileges are those of grosso capture.

Examples:
  tshark -D | grep grosso
  tshark -i grosso-eth0 -f 'tcp port 443'";
