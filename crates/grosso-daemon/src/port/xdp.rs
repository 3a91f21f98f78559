//! A port that accesses queues of an interface through AF_XDP: `xdp:IFACE`, `xdp:IFACE:QUEUE`.

use std::io;

use grosso::features::Features;
use grosso_io::live::{Opening, XdpPortOptions};
use grosso_sys::xdp::{QUEUES_MAX, XdpOptions};

use super::{
    kind::{HasLink, LinkSettings, PortDevice, PortKind, mtu, up},
    registry::interface,
    setting::{PortSetting, Set},
};
use crate::{error::Failure, refusal};

/// An interface, with the options of AF_XDP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpDevice {
    interface: String,
    /// The first queue.
    queue: u32,
    link: LinkSettings,
    /// Whether packets may have partial checksums because they come from senders on this host. AF_XDP does not report
    /// whether a checksum is partial.
    partial_checksums: bool,
}

pub(super) const KIND: PortKind<XdpDevice> = PortKind {
    word: "xdp",
    forms: &["xdp:IFACE[:QUEUE]"],
    examples: "`xdp:eth1`, `xdp:eth1:2`",
    meaning: "queues of an interface, accessed through AF_XDP, starting at the given queue (default: \
              0)",
    parse: |name| {
        let (interface_name, queue) = name.split_once(':').unwrap_or((name, "0"));
        let queue = queue.parse().ok().filter(|queue| *queue < QUEUES_MAX);
        let queue = queue
            .ok_or_else(|| format!("\"xdp:{name}\": expected a queue number below {QUEUES_MAX}"))?;
        Ok(XdpDevice { interface: interface(interface_name)?, queue, ..XdpDevice::default() })
    },
    settings: &[
        mtu(),
        up("unchanged"),
        PortSetting::new(
            "partial-checksums",
            "treat a checksum field that equals the pseudo-header sum as partial: senders on this host leave \
             pseudo-header sums in place, and AF_XDP does not mark them",
            "`false`",
            Set::Switch(|device: &mut XdpDevice, is_on| device.partial_checksums = is_on),
        ),
    ],
};

impl HasLink for XdpDevice {
    fn link_mut(&mut self) -> &mut LinkSettings {
        &mut self.link
    }
}

impl PortDevice for XdpDevice {
    fn spelling(&self) -> String {
        match self.queue {
            0 => format!("xdp:{}", self.interface),
            queue => format!("xdp:{}:{queue}", self.interface),
        }
    }

    fn name(&self) -> String {
        self.interface.clone()
    }

    fn opening(&self, _: Features) -> Option<Opening> {
        let mut options = XdpPortOptions::default();
        options.queue = self.queue;
        options.socket = XdpOptions::default();
        options.assume_partial = self.partial_checksums;
        Some(Opening::Xdp { name: self.interface.clone(), options })
    }

    fn refusal(&self, command: &str, queues: usize, error: &io::Error) -> Option<Failure> {
        let name = &self.interface;
        refusal::interface(command, name).or_else(|| refusal::xdp(command, name, queues, error))
    }

    fn needs(&self) -> &'static [&'static str] {
        refusal::XDP_NEEDS
    }

    fn check(&self) -> Result<(), String> {
        self.link.check(&self.spelling(), u16::MAX)
    }

    fn check_queues(&self, queues: usize) -> Result<(), String> {
        if self.queue as usize + queues > QUEUES_MAX as usize {
            return Err(format!(
                "{}: the first queue number plus the number of queues ({queues}) exceeds the limit \
                 of {QUEUES_MAX}",
                self.spelling()
            ));
        }
        Ok(())
    }

    fn link(&self) -> Option<&LinkSettings> {
        Some(&self.link)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}
