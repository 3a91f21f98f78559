//! Options that state facts about the wire that a capture does not show.

use clap::Args;

use super::{
    ports::TunnelPorts,
    values::{MTU, POSITIVE, whole},
};
use crate::{error::Failure, evidence::Given};

/// Facts about the wire that override what the capture shows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Assumptions {
    #[command(flatten)]
    sizes: Sizes,
    /// Assume this MTU on the wire; overrides the capture
    #[arg(long, value_name = "BYTES", value_parser = whole(MTU))]
    mtu: Option<u16>,
}

/// Facts about the wire except its MTU, for commands in which `--mtu` means something else.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sizes {
    /// Assume this TCP segment size; overrides the capture
    #[arg(long, value_name = "BYTES", value_parser = whole(POSITIVE))]
    mss: Option<u16>,
    /// Assume this UDP segment size for packets longer than the MTU
    #[arg(long, value_name = "BYTES", value_parser = whole(POSITIVE), hide_short_help = true)]
    uso_size: Option<u16>,
    #[command(flatten)]
    tunnels: TunnelPorts,
}

impl Sizes {
    /// Converts the options to the facts that the classifier expects.
    pub(crate) fn given(&self) -> Given {
        let Self { mss, uso_size, tunnels } = self;
        Given { mss: *mss, mtu: None, uso_size: *uso_size, ports: tunnels.ports() }
    }
}

impl Assumptions {
    /// Converts the options to the facts that the classifier expects.
    ///
    /// # Errors
    /// Fails if the facts contradict each other.
    pub(crate) fn given(&self) -> Result<Given, Failure> {
        Given { mtu: self.mtu, ..self.sizes.given() }.checked()
    }
}
