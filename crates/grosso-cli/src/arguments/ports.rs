//! placeholder until merged
use clap::Args;
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TunnelPorts {}
impl TunnelPorts {
    pub(crate) fn ports(&self) -> grosso_wire::Ports {
        grosso_wire::Ports::ASSIGNED
    }
}
