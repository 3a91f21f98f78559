//! Knowledge of the wire that a user has and a capture does not show.

use clap::Args;

use super::ports::TunnelPorts;
use crate::{error::Failure, evidence::Given};

/// Knowledge of the wire, which counts more than what the capture shows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Known {
    /// TCP was cut every N bytes on the wire, whatever the capture shows
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    mss: Option<u16>,
    /// The MTU of the wire, whatever the capture shows
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// UDP packets that are longer than the MTU were cut every N bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..))]
    uso_size: Option<u16>,
    #[command(flatten)]
    tunnels: TunnelPorts,
}

impl Known {
    /// The same, as the judge of captures takes it.
    ///
    /// # Errors
    /// When no packet can obey all of it.
    pub(crate) fn given(&self) -> Result<Given, Failure> {
        let Self { mss, mtu, uso_size, tunnels } = self;
        let payloads = [("--mss", *mss, TCP_BYTES_MIN), ("--uso-size", *uso_size, UDP_BYTES_MIN)];
        for (option, size, headers) in payloads {
            let (Some(size), Some(mtu)) = (size, *mtu) else { continue };
            if usize::from(size) + headers > mtu.into() {
                let message = format!(
                    "{option} {size} and --mtu {mtu} contradict: with its headers such a packet has at least {} bytes",
                    usize::from(size) + headers
                );
                let hint = format!(
                    "{option} alone, or at most {}",
                    usize::from(mtu).saturating_sub(headers)
                );
                return Err(Failure::usage("usage.contradiction", message).hint(hint));
            }
        }
        Ok(Given { mss: *mss, mtu: *mtu, uso_size: *uso_size, ports: tunnels.ports() })
    }
}

/// The least bytes of IPv4 and TCP headers.
const TCP_BYTES_MIN: usize = 40;
/// The least bytes of IPv4 and UDP headers.
const UDP_BYTES_MIN: usize = 28;
