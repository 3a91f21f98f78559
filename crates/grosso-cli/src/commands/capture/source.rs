//! The captured interface, or all interfaces, and the receive ring for their frames.

use std::{collections::HashMap, io, rc::Rc, time::Duration};

use grosso_capture::{INTERFACES_MAX, Resolution};
use grosso_sys::{
    errno::ErrorClass,
    interface::Control,
    netlink::{Link, Netlink},
    packet::{PacketKind, PacketSocket, ReceiveRing, RingFrame, RingLayout},
    wait::{Interest, Ready, Waiter},
};
use grosso_wire::LinkType;

use super::{
    blocks::{DeviceFacts, KernelCounts},
    device::{ANY, CapturedDevice, LOOPBACK, LiveFilter, LivePass, PacketForm, link_type},
    list,
    opener::Opener,
};
use crate::{arguments::Capture, device as devices, error::Failure};

/// Captured interface, or all interfaces.
pub(super) struct CapturedInterface {
    control: Control,
    netlink: Netlink,
    /// Thread that looks up an interface's properties after its first packet.
    opener: Option<Rc<Opener>>,
    ring: ReceiveRing,
    waiter: Waiter,
    ready: Vec<Ready>,
    /// The captured interface. If all interfaces are captured, contains those from which a packet has arrived, in the
    /// order of their first packets.
    pub(super) devices: Vec<CapturedDevice>,
    /// The only captured interface; `None` if all interfaces are captured.
    link: Option<Link>,
    /// Positions in `devices` by interface index; `None` for an interface whose packets cannot be parsed.
    places: HashMap<u32, Option<usize>>,
    /// Filters for packets from all interfaces, by link type.
    wanted: Vec<(LinkType, LivePass)>,
    snaplen: u32,
    resolution: Resolution,
    /// Packet counts reported by the kernel so far.
    pub(super) counted: KernelCounts,
    /// Packets from interfaces with an unsupported link type.
    pub(super) unknown: u64,
}

/// State of a captured interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Up,
    Down,
    Gone,
}

impl CapturedInterface {
    /// Opens the interface that the user selected.
    pub(super) fn open(options: &Capture) -> Result<Self, Failure> {
        let control = Control::new().map_err(|error| failed("opening a socket", &error))?;
        let asked = list::named(options.interface())?;
        if asked == ANY {
            return Self::open_all(options, control);
        }
        let name = devices::find("capture", &control, &asked)?;
        let netlink = Netlink::new().map_err(|error| failed("opening a netlink socket", &error))?;
        let link = netlink.link(&name);
        let link = link.map_err(|error| failed("querying the interface", &error))?;
        let Some(link_type) = link_type(link.hardware_type) else {
            let message = format!(
                "capture: the link type of {name} is not supported (hardware type {})",
                link.hardware_type
            );
            return Err(Failure::environment("environment.link_type", message));
        };
        if !link.up {
            let message = format!("capture: {name} is down");
            let hint = format!("sudo ip link set {name} up");
            return Err(Failure::environment("environment.interface_down", message).hint(hint));
        }
        let text = options.filter();
        let filter = text.map(|text| LiveFilter::compile(&text, link_type)).transpose()?;
        let layout = layout(core::slice::from_ref(&link), options);
        let socket = PacketSocket::builder()
            .virtio_header(true)
            .promiscuous(!options.no_promiscuous)
            // A socket on loopback receives each packet twice. Only the incoming copy is captured.
            .ignore_outgoing(link.hardware_type == LOOPBACK);
        let ring = match &filter {
            Some(filter) if filter.is_kernels => {
                socket.bind_receive_ring_through(&name, layout, &filter.program)
            }
            _ => socket.bind_receive_ring(&name, layout),
        };
        let ring = ring.map_err(|error| refused(name.as_str(), options.ring, &error))?;
        let wanted = match filter {
            Some(filter) if !filter.is_kernels => LivePass::Passing(Rc::new(filter.program)),
            _ => LivePass::All,
        };
        let (snaplen, resolution) = (super::snaplen(options), options.resolution());
        let form = PacketForm { link_type, snaplen, resolution };
        let facts = DeviceFacts::of(&link, &control);
        let device = CapturedDevice::new(&link, form, &facts, wanted);
        Self::over((control, netlink), ring, options, vec![device], Some(link), Vec::new())
    }

    /// Opens all interfaces, including those that will be added later.
    fn open_all(options: &Capture, control: Control) -> Result<Self, Failure> {
        let filter = options.filter();
        // Reject an invalid expression now rather than at the first packet.
        let wanted = [LinkType::Ethernet, LinkType::Raw].map(|link_type| {
            let Some(text) = &filter else { return Ok((link_type, LivePass::All)) };
            match LiveFilter::compile(text, link_type) {
                Ok(filter) => Ok((link_type, LivePass::Passing(Rc::new(filter.program)))),
                Err(failure) if link_type == LinkType::Ethernet => Err(failure),
                Err(_) => Ok((link_type, LivePass::Nothing)),
            }
        });
        let wanted = wanted.into_iter().collect::<Result<_, _>>()?;
        let netlink = Netlink::new().map_err(|error| failed("opening a netlink socket", &error))?;
        let links = netlink.links();
        let links = links.map_err(|error| failed("listing the interfaces", &error))?;
        let socket = PacketSocket::builder().virtio_header(true);
        let ring = socket.bind_receive_ring_of_all(layout(&links, options));
        let ring = ring.map_err(|error| refused("all interfaces", options.ring, &error))?;
        Self::over((control, netlink), ring, options, Vec::new(), None, wanted)
    }

    fn over(
        (control, netlink): (Control, Netlink),
        ring: ReceiveRing,
        options: &Capture,
        devices: Vec<CapturedDevice>,
        link: Option<Link>,
        wanted: Vec<(LinkType, LivePass)>,
    ) -> Result<Self, Failure> {
        let waiter = Waiter::new().and_then(|waiter| {
            waiter.add(&ring, 0, Interest::READ)?;
            Ok(waiter)
        });
        Ok(Self {
            control,
            netlink,
            opener: None,
            ring,
            waiter: waiter.map_err(|error| failed("waiting", &error))?,
            ready: Vec::new(),
            devices,
            link,
            places: HashMap::new(),
            wanted,
            snaplen: super::snaplen(options),
            resolution: options.resolution(),
            counted: KernelCounts::default(),
            unknown: 0,
        })
    }

    /// Makes `opener` look up interface properties from now on.
    pub(super) fn read_facts_in(&mut self, opener: Option<Rc<Opener>>) {
        self.opener = opener;
    }

    /// Returns the next frame, if one is waiting.
    pub(super) fn receive(&mut self) -> Option<RingFrame> {
        self.ring.receive()
    }

    /// Returns the position among the devices of the interface that received a frame; `None` if the frame is not to be
    /// captured.
    pub(super) fn place(&mut self, frame: &RingFrame) -> Option<usize> {
        if self.link.is_some() {
            return Some(0);
        }
        let index = frame.interface();
        let place = match self.places.get(&index) {
            Some(place) => *place,
            None => {
                let place = self.learn(index, frame.hardware_type());
                self.places.insert(index, place);
                place
            }
        };
        let Some(place) = place else {
            self.unknown += 1;
            return None;
        };
        let is_second = self.devices[place].is_loopback && frame.kind() == PacketKind::Outgoing;
        (!is_second).then_some(place)
    }

    /// Sleeps until a frame or a signal arrives, or for at most `at_most`.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<(), Failure> {
        let waited = self.waiter.wait(&mut self.ready, Some(at_most));
        waited.map_err(|error| failed("waiting", &error))
    }

    /// Returns the number of slots in the ring.
    pub(super) fn slots(&self) -> usize {
        self.ring.layout().slots
    }

    /// Returns the state of the interface. The socket does not provide enough information: the kernel reports only once
    /// that the interface went down, and never that it was removed, after which another interface may have taken its
    /// name. If all interfaces are captured, the state is always up.
    pub(super) fn state(&mut self) -> LinkState {
        // The error itself does not matter, but a pending error would end every wait immediately.
        let _ = self.ring.take_error();
        let Some(known) = &self.link else { return LinkState::Up };
        match (self.netlink.link(&known.name), self.control.index(&known.name)) {
            (Ok(link), Ok(index)) if index == known.index => {
                if link.up {
                    LinkState::Up
                } else {
                    LinkState::Down
                }
            }
            _ => LinkState::Gone,
        }
    }

    /// Adds the packets that the kernel has counted since the last call.
    pub(super) fn count(&mut self) {
        if let Ok(statistics) = self.ring.take_statistics() {
            self.counted.seen += u64::from(statistics.packets);
            self.counted.drops += u64::from(statistics.drops);
        }
    }

    /// Returns whether all interfaces are captured.
    pub(super) const fn is_any(&self) -> bool {
        self.link.is_none()
    }

    /// Returns the name for messages.
    pub(super) fn name(&self) -> &str {
        self.link.as_ref().map_or(ANY, |link| link.name.as_str())
    }

    /// Adds an interface after its first packet; returns `None` if its packets cannot be parsed.
    fn learn(&mut self, index: u32, hardware_type: u16) -> Option<usize> {
        if self.devices.len() >= INTERFACES_MAX {
            return None;
        }
        let link_type = link_type(hardware_type)?;
        let form = PacketForm { link_type, snaplen: self.snaplen, resolution: self.resolution };
        let is_same = |(other, _): &&(LinkType, LivePass)| *other == link_type;
        let wanted = self.wanted.iter().find(is_same);
        let wanted = wanted.map_or(LivePass::Nothing, |(_, wanted)| wanted.clone());
        let facts = move || {
            let links = Netlink::new().and_then(|netlink| netlink.links()).ok()?;
            let link = links.into_iter().find(|link| link.index == index)?;
            let facts = DeviceFacts::of(&link, &Control::new().ok()?);
            Some((link, facts))
        };
        let asked = self.opener.as_ref().and_then(|opener| opener.ask(facts).ok()).flatten();
        let device = match asked {
            Some((link, facts)) => CapturedDevice::new(&link, form, &facts, wanted),
            None => CapturedDevice::gone(index, hardware_type, form, wanted),
        };
        self.devices.push(device);
        Some(self.devices.len() - 1)
    }
}

/// Returns a ring layout with slots large enough for the longest packet on the interfaces, or for the part of it that
/// is kept.
fn layout(links: &[Link], options: &Capture) -> RingLayout {
    let longest = links.iter().flat_map(|link| {
        let sizes = [
            link.gso_max_size,
            link.gso_ipv4_max_size,
            link.gro_max_size,
            link.gro_ipv4_max_size,
            Some(link.mtu),
        ];
        sizes.into_iter().flatten()
    });
    let packet = longest.max().unwrap_or(0).saturating_add(LINK_HEADER_BYTES);
    // A superframe must be complete, or it cannot be segmented.
    let kept =
        if options.is_wire() { packet } else { packet.min(super::snaplen(options)) } as usize;
    let slot_bytes = kept + SLOT_OVERHEAD_BYTES;
    let slots = (options.ring / slot_bytes as u64).clamp(SLOTS_MIN, SLOTS_MAX);
    RingLayout::fitting(slot_bytes, slots as usize)
}

fn refused(name: &str, ring: u64, error: &io::Error) -> Failure {
    match ErrorClass::of(error) {
        ErrorClass::Exhausted | ErrorClass::Malformed => {
            let message = format!("capture: cannot allocate a ring of {ring} bytes: {error}");
            Failure::environment("environment.memory", message)
                .hint("use a smaller ring: --ring 8M")
        }
        _ => devices::refused("capture", &format!("opening {name}"), "net_raw", error),
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    devices::refused("capture", what, "net_raw", error)
}

/// Length of the longest header expected before the first IP header: Ethernet with two VLAN tags.
const LINK_HEADER_BYTES: u32 = 22;
/// Number of bytes in a slot that the kernel reserves.
const SLOT_OVERHEAD_BYTES: usize = 128;
/// Minimum and maximum number of slots in a ring. A smaller ring loses packets in every burst, and a larger one only
/// wastes memory.
const SLOTS_MIN: u64 = 16;
const SLOTS_MAX: u64 = 1 << 18;
