//! The interface that is captured: its properties, and the ring in which its frames arrive.

use std::{io, time::Duration};

use grosso_sys::{
    ethtool,
    fault::Fault,
    interface::{Control, InterfaceName},
    netlink::{Link, Netlink},
    packet::{PacketSocket, ReceiveRing, RingFrame, RingLayout},
    pcap::Program,
    wait::{Interest, Ready, Waiter},
};
use grosso_wire::LinkType;

use super::device;
use crate::{arguments::Capture, error::Failure, filter};

/// An interface that is captured.
pub(super) struct CapturedInterface {
    control: Control,
    ring: ReceiveRing,
    waiter: Waiter,
    ready: Vec<Ready>,
    pub(super) link: Link,
    pub(super) link_type: LinkType,
    /// The filter, unless the kernel runs it.
    filter: Option<Program>,
    /// Frames that reached the socket, by the kernel's count.
    pub(super) seen: u64,
    /// Frames for which the ring had no room.
    pub(super) drops: u64,
}

/// The filter of a live capture.
struct LiveFilter {
    program: Program,
    /// Whether the kernel can run it: it keeps VLAN tags beside its packets, where a program that looks for them in the
    /// packet finds none.
    is_kernels: bool,
}

impl LiveFilter {
    fn compile(text: &str, link_type: LinkType) -> Result<Self, Failure> {
        let program = filter::compile(text, "capture", link_type.to_pcap())?;
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        // Positions in the frame and its length count the tag, as does the word for it.
        let is_kernels = !words.any(|word| ABOUT_TAGS.contains(&word));
        Ok(Self { program, is_kernels })
    }
}

/// The state of an interface from which no frame comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Up,
    Down,
    Gone,
}

impl CapturedInterface {
    /// Opens the interface that the user names.
    pub(super) fn open(options: &Capture) -> Result<Self, Failure> {
        let control = Control::new().map_err(|error| failed("opening a socket", &error))?;
        let name = device::find("capture", &control, &options.interface)?;
        let link = Netlink::new().and_then(|netlink| netlink.link(&name));
        let link = link.map_err(|error| failed("asking for the interface", &error))?;
        let link_type = link_type(&link)?;
        if !link.up {
            let message = format!("capture: {name} is down");
            let hint = format!("sudo ip link set {name} up");
            return Err(Failure::environment("environment.interface_down", message).hint(hint));
        }
        let text = options.filter();
        let filter = text.map(|text| LiveFilter::compile(&text, link_type)).transpose()?;
        let layout = layout(&link, options);
        let socket = PacketSocket::builder()
            .virtio_header(true)
            .promiscuous(!options.no_promiscuous)
            // Loopback shows each packet twice; the incoming copy is the one that counts.
            .ignore_outgoing(link.hardware_type == LOOPBACK);
        let ring = match &filter {
            Some(filter) if filter.is_kernels => {
                socket.bind_receive_ring_through(&name, layout, &filter.program)
            }
            _ => socket.bind_receive_ring(&name, layout),
        };
        let ring = ring.map_err(|error| refused(&name, options.ring, &error))?;
        let waiter = Waiter::new().and_then(|waiter| {
            waiter.add(&ring, 0, Interest::READ)?;
            Ok(waiter)
        });
        let waiter = waiter.map_err(|error| failed("waiting", &error))?;
        let (ready, seen, drops) = (Vec::new(), 0, 0);
        let filter = filter.filter(|filter| !filter.is_kernels).map(|filter| filter.program);
        Ok(Self { control, ring, waiter, ready, link, link_type, filter, seen, drops })
    }

    /// Whether a packet of so many bytes on the link, with its VLAN tag, is wanted.
    pub(super) fn wants(&self, data: &[u8], original: u32) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.passes(data, original))
    }

    /// The next frame, if one waits.
    pub(super) fn receive(&mut self) -> Option<RingFrame> {
        self.ring.receive()
    }

    /// Sleeps until a frame or a signal arrives, or the time is over.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<(), Failure> {
        let waited = self.waiter.wait(&mut self.ready, Some(at_most));
        waited.map_err(|error| failed("waiting", &error))
    }

    /// The most frames that may wait.
    pub(super) fn slots(&self) -> usize {
        self.ring.layout().slots
    }

    /// The state of the interface. The kernel tells a socket once that it went down, and nothing when it is removed;
    /// another may have its name by then.
    pub(super) fn state(&mut self) -> LinkState {
        // The error itself is not needed, but a pending one would make every wait end at once.
        let _ = self.ring.take_error();
        let link = Netlink::new().and_then(|netlink| netlink.link(&self.link.name));
        match (link, self.control.index(&self.link.name)) {
            (Ok(link), Ok(index)) if index == self.link.index => {
                if link.up {
                    LinkState::Up
                } else {
                    LinkState::Down
                }
            }
            _ => LinkState::Gone,
        }
    }

    /// Adds the kernel's counts since they were last read.
    pub(super) fn count(&mut self) {
        if let Ok(statistics) = self.ring.take_statistics() {
            self.seen += u64::from(statistics.packets);
            self.drops += u64::from(statistics.drops);
        }
    }

    /// The settings that decide what packets look like here: the offloads, and the largest size of superframes.
    pub(super) fn offloads(&self) -> String {
        let features = ethtool::features(&self.control, &self.link.name).unwrap_or_default();
        let is_telling = |name: &str| {
            let is_checksum = name == "rx-checksum" || name.starts_with("tx-checksum-ip");
            let is_segmentation = name.starts_with("tx-") && name.ends_with("-segmentation");
            let is_joining = name.contains("gro") || name == "rx-lro";
            is_checksum || is_segmentation || is_joining || name.contains("vlan-hw")
        };
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for feature in features.iter().filter(|feature| is_telling(&feature.name)) {
            let list = if feature.active { &mut on } else { &mut off };
            list.push(feature.name.as_str());
        }
        let mut text = format!("ethtool on: {}; off: {}", on.join(" "), off.join(" "));
        for (name, size) in [
            ("gso_max_size", self.link.gso_max_size),
            ("gso_ipv4_max_size", self.link.gso_ipv4_max_size),
            ("gso_max_segs", self.link.gso_max_segments),
            ("gro_max_size", self.link.gro_max_size),
            ("gro_ipv4_max_size", self.link.gro_ipv4_max_size),
        ] {
            text += &size.map(|size| format!("; {name} {size}")).unwrap_or_default();
        }
        text
    }

    /// Bits a second, if the driver says.
    pub(super) fn speed(&self) -> Option<u64> {
        let megabits = device::attribute(&self.link.name, self.link.index, "speed")?;
        megabits.parse::<u64>().ok().filter(|speed| *speed > 0)?.checked_mul(1_000_000)
    }

    /// The driver, as shown by `ethtool -i`.
    pub(super) fn driver(&self) -> Option<String> {
        ethtool::driver(&self.control, &self.link.name).ok().map(|driver| driver.name)
    }
}

fn link_type(link: &Link) -> Result<LinkType, Failure> {
    match link.hardware_type {
        ETHERNET | LOOPBACK => Ok(LinkType::Ethernet),
        NONE | RAW_IP | PPP | TUNNEL | TUNNEL6 | SIT | IPGRE | IP6GRE => Ok(LinkType::Raw),
        other => {
            let message = format!(
                "capture: packets of {} begin with what I cannot parse (hardware type {other})",
                link.name
            );
            Err(Failure::environment("environment.link_type", message))
        }
    }
}

/// A ring whose slots hold the longest packet of the interface, or what is kept of it.
fn layout(link: &Link, options: &Capture) -> RingLayout {
    let longest = [link.gso_max_size, link.gso_ipv4_max_size, link.gro_max_size];
    let longest =
        longest.into_iter().flatten().chain([link.gro_ipv4_max_size.unwrap_or(0), link.mtu]);
    let packet = longest.max().unwrap_or(0).saturating_add(LINK_HEADER_BYTES);
    let kept = packet.min(super::snaplen(options)) as usize;
    let slot_bytes = (kept + SLOT_OVERHEAD_BYTES).next_power_of_two();
    let slots = (options.ring / slot_bytes as u64).clamp(SLOTS_MIN, SLOTS_MAX) as usize;
    RingLayout { slot_bytes, slots: 1 << slots.ilog2() }
}

fn refused(name: &InterfaceName, ring: u64, error: &io::Error) -> Failure {
    match Fault::of(error) {
        Fault::Exhausted | Fault::Malformed => {
            let message = format!("capture: no memory for a ring of {ring} bytes: {error}");
            Failure::environment("environment.memory", message).hint("--ring 8M")
        }
        _ => device::refused("capture", &format!("opening {name}"), "cap_net_raw", error),
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    device::refused("capture", what, "cap_net_raw", error)
}

/// `ARPHRD_*` of linux/if_arp.h.
const ETHERNET: u16 = 1;
const PPP: u16 = 512;
const RAW_IP: u16 = 519;
const TUNNEL: u16 = 768;
const TUNNEL6: u16 = 769;
const LOOPBACK: u16 = 772;
const SIT: u16 = 776;
const IPGRE: u16 = 778;
const IP6GRE: u16 = 823;
const NONE: u16 = 0xfffe;
/// The longest expected header before the first IP header: Ethernet with two tags.
const LINK_HEADER_BYTES: u32 = 22;
/// Bytes of a slot that the kernel keeps for itself.
const SLOT_OVERHEAD_BYTES: usize = 128;
/// Words of a filter that are about VLAN tags, or about bytes that a tag moves.
const ABOUT_TAGS: [&str; 6] = ["vlan", "ether", "link", "len", "less", "greater"];
/// Bounds of a ring, in slots: fewer lose every burst, more only cost memory.
const SLOTS_MIN: u64 = 16;
const SLOTS_MAX: u64 = 1 << 18;
