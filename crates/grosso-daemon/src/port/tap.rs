//! Ports that are TAP or TUN devices: `tap:NAME`, `tun:NAME`.

use std::io;

use grosso::features::Features;
use grosso_io::live::{Opening, TapOptions};
use grosso_sys::tun::Layer;
use grosso_wire::virtio::Form;

use super::{
    kind::{HasLink, HostSettings, LinkSettings, PortDevice, PortKind, mtu, up},
    registry::interface,
    setting::{PortSetting, Set, header, header_form},
};
use crate::{error::Failure, refusal};

/// A TAP or TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapDevice {
    name: String,
    layer: Layer,
    link: LinkSettings,
    queue: QueueSettings,
}

/// Options for one queue of a TAP or TUN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueSettings {
    pub(super) host: HostSettings,
    /// Virtio header of frames.
    header: Option<Form>,
    /// Whether the device outlives the path.
    persistent: Option<bool>,
}

/// A kind of port whose queues are queues of a TUN or TAP device.
pub(super) trait HasQueue {
    fn queue_mut(&mut self) -> &mut QueueSettings;
}

pub(super) const TAP: PortKind<TapDevice> = PortKind {
    word: "tap",
    forms: &["tap:NAME"],
    examples: "`tap:NAME`",
    meaning: "a TAP device, which is created if it does not exist; the kernel replaces `%d` in the \
              name with a number",
    parse: |name| Ok(TapDevice::new(interface(name)?, Layer::Ethernet)),
    settings: SETTINGS,
};

pub(super) const TUN: PortKind<TapDevice> = PortKind {
    word: "tun",
    forms: &["tun:NAME"],
    examples: "`tun:NAME`",
    meaning: "a TUN device, which is created if it does not exist",
    parse: |name| Ok(TapDevice::new(interface(name)?, Layer::Ip)),
    settings: SETTINGS,
};

const SETTINGS: &[PortSetting<TapDevice>] =
    &[mtu(), up("up"), persist(), vnet_hdr(), terminates(), expand_acks()];

/// Returns the option that decides whether the device outlives the path.
pub(super) const fn persist<D: HasQueue>() -> PortSetting<D> {
    let set: fn(&mut D, bool) = |device, is_on| device.queue_mut().persistent = Some(is_on);
    let meaning = "keep the device after the path ends";
    PortSetting::new("persist", meaning, "unchanged; a new device is removed", Set::Switch(set))
}

pub(super) const fn vnet_hdr<D: HasQueue>() -> PortSetting<D> {
    header("12", |device, bytes| {
        device.queue_mut().header = Some(header_form(bytes)?);
        Ok(())
    })
}

pub(super) const fn terminates<D: HasQueue>() -> PortSetting<D> {
    let set: fn(&mut D, bool) = |device, is_on| device.queue_mut().host.terminates = is_on;
    let meaning = "the host terminates all TCP that it receives from the device, and forwards none";
    PortSetting::new("terminates", meaning, "`false`", Set::Switch(set))
}

pub(super) const fn expand_acks<D: HasQueue>() -> PortSetting<D> {
    let set: fn(&mut D, bool) = |device, is_on| device.queue_mut().host.expand_acks = is_on;
    let meaning = "with `terminates`: send the acknowledgments that the host would have sent \
                   without merging ([details](#acknowledgment-expansion))";
    PortSetting::new("expand-acks", meaning, "`false`", Set::Switch(set))
}

impl QueueSettings {
    pub(super) fn options(&self, features: Features) -> TapOptions {
        let mut options = TapOptions::default();
        options.header = self.header.unwrap_or(options.header);
        (options.transmit, options.receive) = (features, features);
        options.persistent = self.persistent;
        options
    }
}

impl TapDevice {
    /// Creates a device with the default options.
    pub fn new(name: String, layer: Layer) -> Self {
        Self { name, layer, link: LinkSettings::default(), queue: QueueSettings::default() }
    }

    /// Returns a device with this MTU that outlives the path.
    pub fn persistent(mut self, mtu: u16) -> Self {
        (self.link.mtu, self.queue.persistent) = (Some(mtu), Some(true));
        self
    }
}

impl HasLink for TapDevice {
    fn link_mut(&mut self) -> &mut LinkSettings {
        &mut self.link
    }
}

impl HasQueue for TapDevice {
    fn queue_mut(&mut self) -> &mut QueueSettings {
        &mut self.queue
    }
}

impl PortDevice for TapDevice {
    fn spelling(&self) -> String {
        let word = match self.layer {
            Layer::Ethernet => TAP.word,
            Layer::Ip => TUN.word,
        };
        format!("{word}:{}", self.name)
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn opening(&self, features: Features) -> Option<Opening> {
        let options = self.queue.options(features);
        Some(Opening::Tun { name: self.name.clone(), layer: self.layer, options })
    }

    fn refusal(&self, command: &str, queues: usize, error: &io::Error) -> Option<Failure> {
        refusal::tun(command, &self.name, queues, error)
    }

    fn needs(&self) -> &'static [&'static str] {
        &["net_admin"]
    }

    fn check(&self) -> Result<(), String> {
        let longest = if self.layer == Layer::Ethernet { MTU_TAP_MAX } else { u16::MAX };
        self.link.check(&self.spelling(), longest)?;
        self.queue.host.check()
    }

    fn check_queues(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn layer(&self) -> Option<Layer> {
        Some(self.layer)
    }

    fn link(&self) -> Option<&LinkSettings> {
        Some(&self.link)
    }

    fn host(&self) -> Option<&HostSettings> {
        Some(&self.queue.host)
    }

    fn created(&self) -> Option<&str> {
        Some(&self.name)
    }
}

/// Maximum MTU of a TAP device in bytes: the longest frame without its Ethernet header.
const MTU_TAP_MAX: u16 = 65521;
