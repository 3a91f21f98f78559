//! The definition of a kind of port: the operations of its devices, the syntax of their names, and their options.

use std::io;

use grosso::features::Features;
use grosso_io::live::Opening;
use grosso_sys::tun::Layer;
use grosso_wire::ipv4;

use super::setting::{PortSetting, Set};
use crate::{error::Failure, tunnel::Description};

/// One kind of port.
pub(super) struct PortKind<D: 'static> {
    /// The word before the colon in a name.
    pub(super) word: &'static str,
    /// Syntax of the names, for messages.
    pub(super) forms: &'static [&'static str],
    /// Examples of names for the documentation, in Markdown.
    pub(super) examples: &'static str,
    /// Description of the devices for the documentation, in Markdown.
    pub(super) meaning: &'static str,
    /// Parses the name after the colon.
    pub(super) parse: fn(&str) -> Result<D, String>,
    /// Options in a configuration file.
    pub(super) settings: &'static [PortSetting<D>],
}

/// A device that a path can open. Most kinds override only a few of the provided methods.
pub trait PortDevice {
    /// Returns the name that the user typed, with options.
    fn spelling(&self) -> String;

    /// Returns the name that identifies the device.
    fn name(&self) -> String {
        self.spelling()
    }

    /// Returns the port to open, which uses `features`; `None` for a tunnel.
    fn opening(&self, features: Features) -> Option<Opening>;

    /// Explains the error that the kernel returned when it refused to open `queues` queues. Returns `None` if this kind
    /// of device has no better explanation than the error text.
    fn refusal(&self, command: &str, queues: usize, error: &io::Error) -> Option<Failure>;

    /// Returns the capabilities that opening the device requires.
    fn needs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the features that the device can have.
    fn features(&self) -> Features {
        Features::ALL
    }

    /// Checks that the device's options are compatible.
    ///
    /// # Errors
    /// The message says which option is wrong.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Checks that the device can have this many queues.
    ///
    /// # Errors
    /// The message says what to change.
    fn check_queues(&self, queues: usize) -> Result<(), String> {
        match queues {
            0..=1 => Ok(()),
            _ => Err(format!("{} has only one queue; set queues = 1", self.spelling())),
        }
    }

    /// Returns the layer of the packets; `None` if it is known only once the device is open.
    fn layer(&self) -> Option<Layer> {
        Some(Layer::Ethernet)
    }

    /// Returns the settings of the port's interface, if the port has one.
    fn link(&self) -> Option<&LinkSettings> {
        None
    }

    /// Returns the settings of the host that uses the device, if there is one.
    fn host(&self) -> Option<&HostSettings> {
        None
    }

    /// Returns the name of an interface that must exist.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Returns whether only one path may use the interface.
    fn is_claimed(&self) -> bool {
        false
    }

    /// Returns the name of a device that is created if it does not exist.
    fn created(&self) -> Option<&str> {
        None
    }

    /// Returns the paths of the sockets that the device creates or connects to.
    fn socket_paths(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether the path's threads create sockets, in order to reconnect.
    fn makes_sockets(&self) -> bool {
        false
    }

    /// Returns whether the path's threads share memory with a VM.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Returns the description of the tunnel, if the device is a tunnel.
    fn tunnel(&self) -> Option<&Description> {
        None
    }
}

/// Settings of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// The MTU to set, in bytes.
    pub mtu: Option<u16>,
    /// Whether to bring the device up or down; by default, a TUN or TAP device that Grosso opens is brought up.
    pub up: Option<bool>,
}

impl LinkSettings {
    /// Checks the MTU of a device whose packets are at most `longest` bytes long.
    pub(super) fn check(&self, device: &str, longest: u16) -> Result<(), String> {
        match self.mtu.filter(|mtu| !(ipv4::MTU_MIN..=longest).contains(mtu)) {
            Some(mtu) => {
                let least = ipv4::MTU_MIN;
                Err(format!("mtu {mtu} is out of range: {device} accepts {least} to {longest}"))
            }
            None => Ok(()),
        }
    }
}

/// A device that has a network interface.
pub(super) trait HasLink {
    fn link_mut(&mut self) -> &mut LinkSettings;
}

/// Returns the option that sets the MTU of a port's interface.
pub(super) const fn mtu<D: HasLink>() -> PortSetting<D> {
    let set: fn(&mut D, u16) = |device, mtu| device.link_mut().mtu = Some(mtu);
    PortSetting::new("mtu", "MTU to set", "unchanged", Set::Bytes(set))
}

/// Returns the option that brings a port's interface up or takes it down.
pub(super) const fn up<D: HasLink>(default: &'static str) -> PortSetting<D> {
    let set: fn(&mut D, bool) = |device, up| device.link_mut().up = Some(up);
    PortSetting::new("up", "bring the device up or down", default, Set::Switch(set))
}

/// Settings of a host behind a TUN or TAP device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// Whether the host behind the device terminates all TCP that it receives from the device, and forwards none.
    pub terminates: bool,
    /// Whether each acknowledgment that the host sends for a train is expanded into one acknowledgment per packet.
    pub expand_acks: bool,
}

impl HostSettings {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.expand_acks && !self.terminates {
            return Err(
                "expand-acks needs a port with terminates = true: a host that forwards packets \
                 does not acknowledge them"
                    .into(),
            );
        }
        Ok(())
    }
}
