//! Arguments of `grosso extcap`: the options that Wireshark passes to a capture source.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use grosso_capture::SNAPLEN_DEFAULT;

#[derive(Args, Debug)]
#[command(override_usage = "grosso --extcap-interfaces | --extcap-interface <SOURCE> [OPTIONS]")]
#[command(group = clap::ArgGroup::new("asked").required(true).multiple(true)
    .args(["extcap_interfaces", "extcap_interface"]))]
pub(crate) struct Extcap {
    /// List the capture sources
    #[arg(long)]
    pub(crate) extcap_interfaces: bool,
    /// Capture from this source: grosso- followed by an interface name
    #[arg(long, value_name = "SOURCE")]
    pub(crate) extcap_interface: Option<String>,
    /// Print the link types of the source
    #[arg(long)]
    pub(crate) extcap_dlts: bool,
    /// Print the options of the source
    #[arg(long)]
    pub(crate) extcap_config: bool,
    /// Capture packets and write them to the pipe
    #[arg(long, requires = "fifo", requires = "extcap_interface")]
    pub(crate) capture: bool,
    /// Write packets to this pipe
    #[arg(long, value_name = "PIPE")]
    pub(crate) fifo: Option<PathBuf>,
    /// Capture only packets that match this tcpdump filter; without --capture, only check the filter
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) extcap_capture_filter: Option<String>,
    /// Capture packets as on the wire, or as this host sees them
    #[arg(long, value_name = "VIEW", default_value = "wire")]
    pub(crate) packets: PacketsOf,
    /// Capture at most this many bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN_DEFAULT)))]
    pub(crate) snaplen: u32,
    /// Accept and ignore the version of the calling Wireshark
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    extcap_version: Option<String>,
}

/// Forms in which an interface's packets can be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PacketsOf {
    /// Superframes split, checksums complete
    Wire,
    /// As tcpdump captures them, with offload metadata
    Host,
}

pub(crate) const EXTCAP_HELP: &str = "\
Adds each interface on this machine to Wireshark's capture sources, with packets
as on the wire. Wireshark runs the programs in its extcap directory, so link grosso
there:

  ln -s \"$(command -v grosso)\" ~/.local/lib/wireshark/extcap/

Wireshark shows that directory under Help, About, Folders; tshark -G folders prints
it. The file name does not matter. Capturing requires the same privileges as
grosso capture.

Examples:
  tshark -D | grep grosso
  tshark -i grosso-eth0 -f 'tcp port 443'";
