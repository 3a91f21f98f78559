//! A tunnel with its device: a file with one path for `grosso run`.

use std::path::Path;

use super::Description;
use crate::{
    daemon::{
        config::Config,
        path::PathSpec,
        port::{Device, PortSpec},
    },
    error::Failure,
};

/// A tunnel and the TUN or TAP device that leads into it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// The name of the device, and of the path.
    pub(crate) name: String,
    /// The MTU of the device, in bytes.
    pub(crate) mtu: u16,
    pub(crate) description: Description,
}

impl Definition {
    /// The file for `grosso run`.
    pub(crate) fn to_toml(&self) -> String {
        let Self { name, mtu, description } = self;
        let kind = if description.endpoint.carries_ethernet() { "tap" } else { "tun" };
        // A string of JSON is also one of TOML.
        let quoted = |text: String| serde_json::Value::from(text);
        format!(
            "[[path]]\nname = {}\nleft = {{ port = {}, mtu = {mtu}, persist = true }}\n\n\
             [path.right.tunnel]\n{}",
            quoted(name.clone()),
            quoted(format!("{kind}:{name}")),
            description.to_toml()
        )
    }

    /// Reads a file that was made by [`Self::to_toml`], and may have been edited since.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let config = Config::read(path)?;
        let found = config.paths.into_iter().find_map(|path| Self::of(&path));
        found.ok_or_else(|| {
            let message = format!("{}: no path of a tun or tap device to a tunnel", path.display());
            Failure::input("input.config", message)
        })
    }

    fn of(path: &PathSpec) -> Option<Self> {
        let (PortSpec { device: Device::Tun(name) | Device::Tap(name), mtu, .. }, right) =
            (&path.left, &path.right)
        else {
            return None;
        };
        let Device::Tunnel(description) = &right.device else { return None };
        Some(Self { name: name.clone(), mtu: (*mtu)?, description: (**description).clone() })
    }

    /// The port specification of its device.
    pub(crate) fn device(&self) -> PortSpec {
        let name = self.name.clone();
        let device = match self.description.endpoint.carries_ethernet() {
            true => Device::Tap(name),
            false => Device::Tun(name),
        };
        let mut port = PortSpec::new(device);
        (port.mtu, port.persistent) = (Some(self.mtu), Some(true));
        port
    }
}
