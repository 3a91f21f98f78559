//! The definition of a tunnel with its device, read from the file of its path.

use std::path::Path;

use super::{
    config::Config,
    path::PathSpec,
    port::{Device, PortSpec},
};
use crate::{error::Failure, tunnel::Definition};

/// Reads a file that [`Definition::to_toml`] made and that may have been edited since.
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
    let (PortSpec { device: Device::Tun(name) | Device::Tap(name), mtu, .. }, right) =
        (&path.left, &path.right)
    else {
        return None;
    };
    let Device::Tunnel(description) = &right.device else { return None };
    Some(Definition { name: name.clone(), mtu: (*mtu)?, description: (**description).clone() })
}

/// Returns the port specification of the device that leads into a tunnel.
pub fn port(definition: &Definition) -> PortSpec {
    let name = definition.name.clone();
    let device = match definition.description.endpoint.carries_ethernet() {
        true => Device::Tap(name),
        false => Device::Tun(name),
    };
    let mut port = PortSpec::new(device);
    (port.mtu, port.persistent) = (Some(definition.mtu), Some(true));
    port
}
