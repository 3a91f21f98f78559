//! One endpoint of a path: its name and its options.

use core::{fmt, ops::RangeInclusive};
use std::str::FromStr;

use grosso::features::Features;
use grosso_io::live::{Opening, PacketOptions, TapOptions, XdpPortOptions};
use grosso_sys::{
    interface::InterfaceName,
    packet::RingLayout,
    tun::Layer,
    xdp::{self, XdpOptions},
};
use grosso_wire::{ipv4, virtio::Form};

use super::{
    stages::{EspSpec, FragmentsMode, FragmentsSpec},
    unix::Unix,
    vhost::Vhost,
};
use crate::tunnel::Description;

/// A device, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// An interface, through packet sockets: `eth1` or `packet:eth1`.
    Packet(String),
    /// A TAP device: `tap:NAME`.
    Tap(String),
    /// A TUN device: `tun:NAME`.
    Tun(String),
    /// An interface, through AF_XDP: `xdp:IFACE`, `xdp:IFACE:QUEUE`.
    Xdp {
        /// The interface.
        name: String,
        /// First queue of the port.
        queue: u32,
    },
    /// An inherited descriptor: `fd:N`.
    Passed(i32),
    /// A Unix socket: `unix:PATH`, and options after commas.
    Unix(Unix),
    /// The device of a VM: `vhost-user:PATH`, and options after commas.
    Vhost(Vhost),
    /// A tunnel endpoint, which only configuration files can describe.
    Tunnel(Box<Description>),
}

impl Device {
    /// Returns the paths of the sockets that the device creates or connects to.
    pub fn socket_paths(&self) -> Vec<&str> {
        match self {
            Self::Unix(unix) => unix.paths(),
            Self::Vhost(vhost) => vec![&vhost.path],
            _ => Vec::new(),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or(("packet", text));
        match kind {
            "packet" => interface(rest).map(Self::Packet),
            "tap" => interface(rest).map(Self::Tap),
            "tun" => interface(rest).map(Self::Tun),
            "xdp" => {
                let (name, queue) = rest.split_once(':').unwrap_or((rest, "0"));
                let queue = queue.parse().ok().filter(|queue| *queue < xdp::QUEUES_MAX);
                let queue = queue.ok_or_else(|| {
                    format!("\"{text}\": expected a queue number below {}", xdp::QUEUES_MAX)
                })?;
                Ok(Self::Xdp { name: interface(name)?, queue })
            }
            "unix" => rest.parse().map(Self::Unix),
            "vhost-user" => rest.parse().map(Self::Vhost),
            "fd" => match rest.parse() {
                Ok(number @ 3..) => Ok(Self::Passed(number)),
                _ => Err(format!("\"{text}\": expected a descriptor number of at least 3")),
            },
            _ => Err(format!("no port type \"{kind}\"; expected {WORDS}")),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(name) => write!(formatter, "{name}"),
            Self::Tap(name) => write!(formatter, "tap:{name}"),
            Self::Tun(name) => write!(formatter, "tun:{name}"),
            Self::Xdp { name, queue: 0 } => write!(formatter, "xdp:{name}"),
            Self::Xdp { name, queue } => write!(formatter, "xdp:{name}:{queue}"),
            Self::Passed(number) => write!(formatter, "fd:{number}"),
            Self::Unix(unix) => write!(formatter, "{unix}"),
            Self::Vhost(vhost) => write!(formatter, "{vhost}"),
            Self::Tunnel(description) => formatter.write_str(&description.name()),
        }
    }
}

impl Device {
    /// Returns the name that identifies the device. The name of a tunnel leaves out its own address, so two tunnels may
    /// share it.
    pub fn name(&self) -> String {
        match self {
            Self::Packet(name) | Self::Tap(name) | Self::Tun(name) | Self::Xdp { name, .. } => {
                name.clone()
            }
            Self::Passed(number) => format!("fd:{number}"),
            Self::Unix(unix) => format!("unix:{}", unix.path),
            Self::Vhost(vhost) => format!("vhost-user:{}", vhost.path),
            Self::Tunnel(description) => description.name(),
        }
    }

    /// Returns the features that the device can have.
    fn features(&self) -> Features {
        match self {
            Self::Unix(unix) => unix.features(),
            Self::Vhost(vhost) => vhost.features(),
            _ => Features::ALL,
        }
    }
}

fn interface(name: &str) -> Result<String, String> {
    InterfaceName::new(name).map_err(|error| format!("{error}; expected {WORDS}"))?;
    Ok(name.to_owned())
}

/// One endpoint of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Device, or kind of socket.
    pub device: Device,
    /// Features of the device to use, and to offer to its host, as far as supported.
    pub features: Features,
    /// The virtio header of a TUN or TAP device, or of frames at a Unix socket.
    pub header: Option<Form>,
    /// The MTU to set, in bytes.
    pub mtu: Option<u16>,
    /// Whether to bring the device up or down; by default, a TUN or TAP device of our own is brought up.
    pub up: Option<bool>,
    /// Whether the interface receives frames for other hosts; by default, a packet port does.
    pub promiscuous: Option<bool>,
    /// Whether a TUN or TAP device outlives the path.
    pub persistent: Option<bool>,
    /// Number of slots of a packet port's receive ring.
    pub ring_slots: Option<usize>,
    /// Size of a slot in bytes.
    pub slot_bytes: Option<usize>,
    /// Number of slots of a packet port's transmit ring.
    pub transmit_slots: Option<usize>,
    /// Whether senders on this host leave partial checksums, which AF_XDP does not report.
    pub partial_checksums: Option<bool>,
    /// Whether the host of a TUN or TAP device terminates all TCP that it receives there, and forwards none.
    pub terminates: bool,
    /// Whether each acknowledgment of a train that the host sends is expanded to the acknowledgments of its packets.
    pub expand_acks: bool,
    /// Reassembly and fragmentation.
    pub fragments: Option<FragmentsSpec>,
    /// Encryption and decryption of packets.
    pub esp: Option<EspSpec>,
}

impl PortSpec {
    /// Creates a port with the default options.
    pub fn new(device: Device) -> Self {
        let header = match &device {
            Device::Unix(unix) => unix.header,
            _ => None,
        };
        Self {
            features: device.features(),
            header,
            device,
            mtu: None,
            up: None,
            promiscuous: None,
            persistent: None,
            ring_slots: None,
            slot_bytes: None,
            transmit_slots: None,
            partial_checksums: None,
            terminates: false,
            expand_acks: false,
            fragments: None,
            esp: None,
        }
    }

    /// Checks that every option applies to this kind of port. The error names one that does not, and the reason.
    pub fn check(&self) -> Result<(), String> {
        let is_tun = matches!(self.device, Device::Tap(_) | Device::Tun(_) | Device::Passed(_));
        let is_packet = matches!(self.device, Device::Packet(_));
        let is_xdp = matches!(self.device, Device::Xdp { .. });
        let is_passed = matches!(self.device, Device::Passed(_));
        let is_tunnel = matches!(self.device, Device::Tunnel(_));
        let has_header = is_tun || matches!(self.device, Device::Unix(_));
        let has_name = is_packet || is_xdp || is_tun && !is_passed;
        let misplaced = [
            ("vnet_hdr", self.header.is_some(), has_header, "tap, tun, fd and unix ports"),
            ("persist", self.persistent.is_some(), is_tun, "tap, tun and fd ports"),
            ("terminates", self.terminates, is_tun, "tap, tun and fd ports"),
            ("promisc", self.promiscuous.is_some(), is_packet, "packet ports"),
            ("rx", self.ring_slots.is_some(), is_packet, "packet ports"),
            ("tx", self.transmit_slots.is_some(), is_packet, "packet ports"),
            ("rx-buf-len", self.slot_bytes.is_some(), is_packet, "packet ports"),
            ("partial-checksums", self.partial_checksums.is_some(), is_xdp, "xdp ports"),
            ("mtu", self.mtu.is_some(), has_name, "ports with a name"),
            ("up", self.up.is_some(), has_name, "ports with a name"),
            ("features", self.features != Features::ALL, !is_tunnel, "devices"),
        ];
        if let Some((key, .., whose)) = misplaced.iter().find(|(_, set, fits, _)| *set && !fits) {
            return Err(format!("{key} applies to {whose}, not to {}", self.device));
        }
        let longest = match self.device {
            Device::Tap(_) => MTU_TAP_MAX,
            _ => u16::MAX,
        };
        if let Some(mtu) = self.mtu.filter(|mtu| !(ipv4::MTU_MIN..=longest).contains(mtu)) {
            let (device, least) = (&self.device, ipv4::MTU_MIN);
            return Err(format!("mtu {mtu}: {device} accepts {least} to {longest}"));
        }
        if self.terminates && self.has_stages() {
            return Err(
                "terminates: fragments and esp forward packets, so the port does not terminate TCP"
                    .into(),
            );
        }
        if self.expand_acks && !self.terminates {
            return Err(
                "expand-acks needs a port with terminates = true: a host that forwards packets \
                 does not acknowledge them"
                    .into(),
            );
        }
        if let Some(fragments) = &self.fragments {
            fragments.check()?;
        }
        if let Device::Unix(unix) = &self.device
            && unix.has_offloads()
            && self.header.is_none()
        {
            return Err(format!("{unix}: offloads need virtio headers: add vnet"));
        }
        let usual = RingLayout::PACKETS;
        let slots = self.ring_slots.unwrap_or(usual.slots);
        let slot_bytes = self.slot_bytes.unwrap_or(usual.slot_bytes);
        if !slots.is_power_of_two() || (RingLayout { slot_bytes, slots }).checked().is_err() {
            return Err(format!(
                "invalid ring of {slots} slots of {slot_bytes} bytes: rx must be a power of two; \
                 rx-buf-len a multiple of 64 from 256 to 16384, or of the page size up to 1 MiB; \
                 the whole ring at most 1 GiB",
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

    /// Returns whether packets of the port pass through stages before they reach the path.
    pub fn has_stages(&self) -> bool {
        self.fragments.is_some() || self.esp.is_some()
    }

    /// Returns the note that names features which are disabled because they depend on features that were turned off.
    pub fn features_lost(&self) -> Option<String> {
        let lost = self.features.without(self.features.active());
        let names = Features::NAMES.iter().filter(|(_, one)| lost.contains(*one));
        let names: Vec<_> = names.map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("{}: disabled features also disable: {names}", self.device)
        })
    }

    /// Returns how the port treats fragments on a path to another port; `None` if it passes them unchanged.
    pub fn fragments_mode(&self, to: &Self) -> Option<FragmentsMode> {
        // Fragments of encrypted packets are reassembled where the packets are decrypted.
        let ends = self.esp.is_some() || to.terminates;
        let usual = if ends { FragmentsMode::Local } else { FragmentsMode::Forward };
        self.fragments.as_ref()?.mode_or(usual)
    }

    /// Returns whether the port accepts packets of any length, because it fragments long packets, or because a host
    /// receives them through its own device.
    pub fn takes_any_length(&self) -> bool {
        let is_tun = matches!(self.device, Device::Tap(_) | Device::Tun(_) | Device::Passed(_));
        is_tun || self.fragments.as_ref().is_some_and(FragmentsSpec::cuts)
    }

    /// Returns the port to open; `None` for a tunnel.
    pub fn opening(&self) -> Option<Opening> {
        Some(match &self.device {
            Device::Packet(name) => {
                Opening::Packet { name: name.clone(), options: self.packet_options() }
            }
            Device::Tap(name) => self.tun(name, Layer::Ethernet),
            Device::Tun(name) => self.tun(name, Layer::Ip),
            Device::Xdp { name, queue } => {
                let mut options = XdpPortOptions::default();
                options.queue = *queue;
                options.socket = XdpOptions::default();
                options.assume_partial = self.partial_checksums.unwrap_or_default();
                Opening::Xdp { name: name.clone(), options }
            }
            Device::Passed(number) => {
                Opening::Passed { number: *number, options: self.tap_options() }
            }
            Device::Unix(unix) => Opening::Unix(unix.options(self.header, self.features)),
            Device::Vhost(vhost) => Opening::Vhost(vhost.options(self.features)),
            Device::Tunnel(_) => return None,
        })
    }

    fn tun(&self, name: &str, layer: Layer) -> Opening {
        Opening::Tun { name: name.to_owned(), layer, options: self.tap_options() }
    }

    fn tap_options(&self) -> TapOptions {
        let mut options = TapOptions::default();
        options.header = self.header.unwrap_or(options.header);
        (options.transmit, options.receive) = (self.features, self.features);
        options.persistent = self.persistent;
        options
    }

    fn packet_options(&self) -> PacketOptions {
        let mut options = PacketOptions::default();
        options.transmit = self.features;
        options.promiscuous = self.promiscuous.unwrap_or(true);
        (options.slots, options.slot_bytes) = (self.ring_slots, self.slot_bytes);
        options.transmit_slots = self.transmit_slots.unwrap_or(options.transmit_slots);
        options
    }
}

/// Forms of port names.
pub const WORDS: &str = "IFACE, packet:IFACE, tap:NAME, tun:NAME, xdp:IFACE[:QUEUE], \
                                unix:PATH[,OPTION...], vhost-user:PATH[,OPTION...] or fd:NUMBER";
/// Maximum MTU of a TAP device in bytes: the longest frame without its Ethernet header.
const MTU_TAP_MAX: u16 = 65521;
/// Range of the slots of a transmit ring: up to the longest queues of NICs.
const TRANSMIT_SLOTS: RangeInclusive<usize> = 2..=8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_devices_and_are_said_back() {
        for word in [
            "eth1",
            "tap:t0",
            "tun:tn%d",
            "xdp:eth1",
            "xdp:eth1:3",
            "unix:/s,vnet",
            "vhost-user:/s",
            "fd:3",
        ] {
            let device: Device = word.parse().unwrap();
            assert_eq!(device.to_string(), word);
        }
        assert_eq!("packet:eth1".parse(), Ok(Device::Packet("eth1".into())));
        assert_eq!("xdp:eth1:0".parse(), "xdp:eth1".parse::<Device>());
    }

    #[test]
    fn words_that_name_nothing_are_refused_with_what_would() {
        let wrong =
            ["", "tap:", "veth:x", "tap:a/b", "xdp:e:64", "xdp:e:x", "fd:2", "fd:-1", "fd:"];
        for word in wrong {
            assert!(word.parse::<Device>().is_err(), "{word}");
        }
        assert!("a23456789012345".parse::<Device>().is_ok());
        assert!("a234567890123456".parse::<Device>().unwrap_err().contains("expected IFACE"));
    }

    #[test]
    fn options_of_other_kinds_of_port_are_refused_by_name() {
        let refused = |word: &str, set: fn(&mut PortSpec)| {
            let mut spec = PortSpec::new(word.parse().unwrap());
            set(&mut spec);
            spec.check().err()
        };
        assert_eq!(
            refused("eth1", |spec| spec.persistent = Some(true)).as_deref(),
            Some("persist applies to tap, tun and fd ports, not to eth1")
        );
        assert!(refused("tap:t", |spec| spec.promiscuous = Some(false)).is_some());
        assert!(refused("fd:3", |spec| spec.mtu = Some(1500)).is_some());
        assert!(refused("xdp:e", |spec| spec.ring_slots = Some(64)).is_some());
        assert!(refused("e", |spec| spec.partial_checksums = Some(true)).is_some());
        assert!(refused("e", |spec| spec.terminates = true).is_some());
        let why = refused("tap:t", |spec| spec.expand_acks = true).unwrap();
        assert!(why.contains("terminates = true"), "{why}");
        assert!(refused("e", |spec| spec.ring_slots = Some(100)).is_some());
        assert!(refused("e", |spec| spec.slot_bytes = Some(128)).is_some());
        assert!(refused("e", |spec| spec.ring_slots = Some(1 << 20)).is_some());
        assert_eq!(refused("e", |spec| spec.ring_slots = Some(1024)), None);
        for slots in [0, 1, 100, 16384] {
            let mut spec = PortSpec::new("e".parse().unwrap());
            spec.transmit_slots = Some(slots);
            assert!(spec.check().unwrap_err().starts_with("tx: "), "{slots}");
        }
        assert!(refused("tap:t", |spec| spec.transmit_slots = Some(64)).is_some());
        assert_eq!(refused("e", |spec| spec.transmit_slots = Some(64)), None);
        assert_eq!(refused("tap:t", |spec| spec.mtu = Some(9000)), None);
        assert_eq!(refused("tap:t", |spec| spec.mtu = Some(65521)), None);
        assert_eq!(refused("tun:t", |spec| spec.mtu = Some(65535)), None);
        assert_eq!(
            refused("tap:t", |spec| spec.mtu = Some(65522)).as_deref(),
            Some("mtu 65522: tap:t accepts 68 to 65521")
        );
        assert!(refused("tun:t", |spec| spec.mtu = Some(67)).is_some());
        assert_eq!(refused("unix:/s", |spec| spec.header = Some(Form::Short)), None);
        assert!(refused("unix:/s", |spec| spec.mtu = Some(9000)).is_some());
        assert!(refused("vhost-user:/s", |spec| spec.header = Some(Form::Short)).is_some());
        let why = refused("unix:/s,offloads=csum", |_| ()).unwrap();
        assert!(why.contains("vnet"), "{why}");
        assert_eq!(refused("fd:3", |spec| spec.terminates = true), None);
        let expands = |spec: &mut PortSpec| (spec.terminates, spec.expand_acks) = (true, true);
        assert_eq!(refused("tap:t", expands), None);
    }
}
