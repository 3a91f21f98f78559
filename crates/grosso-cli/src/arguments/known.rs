//! Facts about the wire that the user knows and a capture does not show.

use clap::Args;

use super::ports::TunnelPorts;
use crate::{error::Failure, evidence::Given};

/// Facts about the wire, which override those that the capture shows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Known {
    #[command(flatten)]
    sizes: Sizes,
    /// Assume this MTU on the wire; overrides the capture
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
}

/// Facts about the wire without its MTU, for commands whose `--mtu` has another meaning.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Assume this TCP segment size; overrides the capture
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    mss: Option<u16>,
    /// Assume this UDP segment size for packets longer than the MTU
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..), hide_short_help = true)]
    uso_size: Option<u16>,
    #[command(flatten)]
    tunnels: TunnelPorts,
}

impl Sizes {
    /// Returns the facts in the form that the classifier takes.
    pub(crate) fn given(&self) -> Given {
        let Self { mss, uso_size, tunnels } = self;
        Given { mss: *mss, mtu: None, uso_size: *uso_size, ports: tunnels.ports() }
    }
}

impl Known {
    /// Returns the facts in the form that the classifier takes.
    ///
    /// # Errors
    /// Fails if no packet can satisfy all facts.
    pub(crate) fn given(&self) -> Result<Given, Failure> {
        let Self { sizes: Sizes { mss, uso_size, .. }, mtu } = self;
        let payloads = [("--mss", *mss, TCP_BYTES_MIN), ("--uso-size", *uso_size, UDP_BYTES_MIN)];
        for (option, size, headers) in payloads {
            let (Some(size), Some(mtu)) = (size, *mtu) else { continue };
            if usize::from(size) + headers > mtu.into() {
                let message = format!(
                    "{option} {size} does not fit into --mtu {mtu}: with headers, a packet has \
                     at least {} bytes",
                    usize::from(size) + headers
                );
                let hint = format!(
                    "omit --mtu, or pass {option} with at most {}",
                    usize::from(mtu).saturating_sub(headers)
                );
                return Err(Failure::usage("usage.contradiction", message).hint(hint));
            }
        }
        Ok(Given { mtu: *mtu, ..self.sizes.given() })
    }
}

/// Length of the shortest IPv4 and TCP headers together.
const TCP_BYTES_MIN: usize = 40;
/// Length of the shortest IPv4 header and a UDP header together.
const UDP_BYTES_MIN: usize = 28;
