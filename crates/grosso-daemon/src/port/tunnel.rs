//! A tunnel as a port, which only configuration files can describe.

use std::io;

use grosso::{
    features::Features,
    tunnel::{Carrier, Header},
};
use grosso_io::live::Opening;
use grosso_sys::tun::Layer;

use super::kind::PortDevice;
use crate::{error::Failure, tunnel::Description};

impl PortDevice for Description {
    /// Returns the name of the tunnel. Two tunnels may share a name, because it does not include the local address.
    fn spelling(&self) -> String {
        Self::name(self)
    }

    fn opening(&self, _: Features) -> Option<Opening> {
        None
    }

    fn refusal(&self, _: &str, _: usize, _: &io::Error) -> Option<Failure> {
        None
    }

    fn needs(&self) -> &'static [&'static str] {
        match self.endpoint.carrier {
            Carrier::Ip => &["net_raw"],
            _ => &[],
        }
    }

    fn check_queues(&self, queues: usize) -> Result<(), String> {
        let name = Self::name(self);
        if queues > 1 && matches!(self.endpoint.header, Header::Gre { sequence: true, .. }) {
            // All packets of a direction share one series of sequence numbers.
            return Err(format!(
                "{name} has seq, but the path has {queues} queues: the peer drops late packets, so \
                 use queues = 1"
            ));
        }
        if self.senders(queues) == Some(0) {
            return Err(format!(
                "{name} has too few source ports: each of the {queues} queues needs a separate \
                 port; use fewer queues, or more ports with {}",
                if self.kind.has_port() { "srcport" } else { "encap-sport auto" }
            ));
        }
        Ok(())
    }

    fn layer(&self) -> Option<Layer> {
        Some(if self.endpoint.carries_ethernet() { Layer::Ethernet } else { Layer::Ip })
    }

    fn tunnel(&self) -> Option<&Description> {
        Some(self)
    }
}
