//! A port that accesses an interface through packet sockets: `eth1` or `packet:eth1`.

use core::ops::RangeInclusive;
use std::io;

use grosso::features::Features;
use grosso_io::live::{Opening, PacketOptions};
use grosso_sys::packet::RingLayout;

use super::{
    kind::{HasLink, LinkSettings, PortDevice, PortKind, mtu, up},
    registry::interface,
    setting::{PortSetting, Set},
};
use crate::{device::refused, error::Failure, refusal};

/// An interface, with the options of packet sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketDevice {
    interface: String,
    link: LinkSettings,
    /// Whether the interface receives frames for other hosts; by default, it does.
    promiscuous: Option<bool>,
    /// Number of slots of the receive ring.
    ring_slots: Option<usize>,
    /// Size of a slot in bytes.
    slot_bytes: Option<usize>,
    /// Number of slots of the transmit ring.
    transmit_slots: Option<usize>,
}

pub(super) const KIND: PortKind<PacketDevice> = PortKind {
    word: "packet",
    forms: &["IFACE", "packet:IFACE"],
    examples: "`eth1`, `packet:eth1`",
    meaning: "an interface, accessed through packet sockets",
    parse: |name| Ok(PacketDevice { interface: interface(name)?, ..PacketDevice::default() }),
    settings: &[
        mtu(),
        up("unchanged"),
        PortSetting::new(
            "promisc",
            "also receive frames for other hosts, as a bridge must",
            "`true`",
            Set::Switch(|device: &mut PacketDevice, is_on| device.promiscuous = Some(is_on)),
        ),
        PortSetting::new(
            "rx",
            "number of slots in the receive ring, a power of two (`--rx` in `grosso bridge`)",
            "4096: 7 MiB per queue; superframe slots 2048: 137 MiB",
            Set::Count(|device, slots| {
                device.ring_slots = Some(slots);
                Ok(())
            }),
        ),
        PortSetting::new(
            "rx-buf-len",
            "bytes per slot: a multiple of 64 from 256 to 16384, or of the page size up to 1 MiB. Longer \
             frames wait in the socket's queue; if that is full, or they exceed 66 KiB, they are \
             dropped and counted. BIG TCP needs 131072 or more",
            "one packet of MTU size; without `CAP_NET_ADMIN` on the host, 64 KiB plus one page",
            Set::Count(|device, bytes| {
                device.slot_bytes = Some(bytes);
                Ok(())
            }),
        ),
        PortSetting::new(
            "tx",
            "number of slots in the transmit ring, a power of two from 2 to 8192, each for one packet of \
             MTU size (`--tx` in `grosso bridge`)",
            "256",
            Set::Count(|device, slots| {
                device.transmit_slots = Some(slots);
                Ok(())
            }),
        ),
    ],
};

impl HasLink for PacketDevice {
    fn link_mut(&mut self) -> &mut LinkSettings {
        &mut self.link
    }
}

impl PortDevice for PacketDevice {
    fn spelling(&self) -> String {
        self.interface.clone()
    }

    fn opening(&self, features: Features) -> Option<Opening> {
        let mut options = PacketOptions::default();
        options.transmit = features;
        options.promiscuous = self.promiscuous.unwrap_or(true);
        (options.slots, options.slot_bytes) = (self.ring_slots, self.slot_bytes);
        options.transmit_slots = self.transmit_slots.unwrap_or(options.transmit_slots);
        Some(Opening::Packet { name: self.interface.clone(), options })
    }

    fn refusal(&self, command: &str, _: usize, error: &io::Error) -> Option<Failure> {
        let name = &self.interface;
        let refused = || refused(command, &refusal::what(name), "net_raw", error);
        Some(refusal::interface(command, name).unwrap_or_else(refused))
    }

    fn needs(&self) -> &'static [&'static str] {
        &["net_raw"]
    }

    fn check(&self) -> Result<(), String> {
        self.link.check(&self.interface, u16::MAX)?;
        let usual = RingLayout::PACKETS;
        let slots = self.ring_slots.unwrap_or(usual.slots);
        let slot_bytes = self.slot_bytes.unwrap_or(usual.slot_bytes);
        if !slots.is_power_of_two() || (RingLayout { slot_bytes, slots }).checked().is_err() {
            return Err(format!(
                "invalid ring of {slots} slots of {slot_bytes} bytes: rx must be a power of two; \
                 rx-buf-len must be a multiple of 64 from 256 to 16384, or of the page size up to \
                 1 MiB; the whole ring must not exceed 1 GiB",
            ));
        }
        match self.transmit_slots {
            Some(slots) if !slots.is_power_of_two() || !TRANSMIT_SLOTS.contains(&slots) => {
                Err(format!(
                    "tx: invalid ring of {slots} slots: expected a power of two from {} to {}",
                    TRANSMIT_SLOTS.start(),
                    TRANSMIT_SLOTS.end(),
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_queues(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn link(&self) -> Option<&LinkSettings> {
        Some(&self.link)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }

    fn is_claimed(&self) -> bool {
        true
    }
}

/// Range for the number of slots in a transmit ring. The maximum is the length of the longest NIC queues.
const TRANSMIT_SLOTS: RangeInclusive<usize> = 2..=8192;
