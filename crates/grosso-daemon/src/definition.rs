//! Reads the definition of a tunnel and its device from the configuration file of the tunnel's path.

use std::path::Path;

use grosso_sys::tun::Layer;

use super::{
    config::Config,
    path::PathSpec,
    port::{Device, PortSpec, TapDevice},
};
use crate::{error::Failure, tunnel::Definition};

/// Reads a file that [`Definition::to_toml`] wrote and that may have been edited since then.
pub fn read(path: &Path) -> Result<Definition, Failure> {
    let config = Config::read(path)?;
    let found = config.paths.into_iter().find_map(|path| of(&path));
    found.ok_or_else(|| {
        let message =
            format!("{}: no [[path]] leads from a TUN or TAP device to a tunnel", path.display());
        Failure::input("input.config", message)
    })
}

fn of(path: &PathSpec) -> Option<Definition> {
    let device = path.left.device.port();
    let (name, mtu) = (device.created()?.to_owned(), device.link()?.mtu?);
    let description = path.right.device.port().tunnel()?.clone();
    Some(Definition { name, mtu, description })
}

/// Returns the port specification of the device that leads into a tunnel.
pub fn port(definition: &Definition) -> PortSpec {
    let name = definition.name.clone();
    let device = |layer| TapDevice::new(name, layer).persistent(definition.mtu);
    PortSpec::new(match definition.description.endpoint.carries_ethernet() {
        true => Device::Tap(device(Layer::Ethernet)),
        false => Device::Tun(device(Layer::Ip)),
    })
}
