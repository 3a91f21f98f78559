//! A captured interface: its identity, and the format of its packets.

use std::rc::Rc;

use grosso_analysis::capture::compile;
use grosso_capture::{Interface, Resolution};
use grosso_sys::{
    ethtool,
    interface::{Control, InterfaceName},
    netlink::Link,
    pcap::Program,
};
use grosso_wire::LinkType;

use super::blocks::{self, DeviceFacts};
use crate::{device, error::Failure};

/// Interface whose packets are captured.
pub(super) struct CapturedDevice {
    pub(super) name: String,
    pub(super) link_type: LinkType,
    /// Description of the interface for the capture writer.
    pub(super) interface: Interface,
    /// pcapng block that describes the interface.
    pub(super) description: Vec<u8>,
    /// Filter for the interface's packets.
    pub(super) wanted: LivePass,
    /// Whether this is a loopback interface. A socket on loopback receives each packet twice, so only the incoming copy
    /// is captured.
    pub(super) is_loopback: bool,
}

/// Rule that decides which packets on an interface are captured.
#[derive(Clone)]
pub(super) enum LivePass {
    /// All packets that reach the socket.
    All,
    /// Packets that match the filter.
    Passing(Rc<Program>),
    /// No packets, because the filter does not apply to the link type.
    Nothing,
}

impl LivePass {
    /// Returns whether to capture a packet. `original` is its length on the link, including its VLAN tag.
    pub(super) fn wants(&self, data: &[u8], original: u32) -> bool {
        match self {
            Self::All => true,
            Self::Passing(program) => program.passes(data, original),
            Self::Nothing => false,
        }
    }
}

impl DeviceFacts {
    pub(super) fn of(link: &Link, control: &Control) -> Self {
        let driver = || ethtool::driver(control, &link.name).ok().map(|driver| driver.name);
        Self {
            kind: link.kind.clone().or_else(driver),
            hardware_address: link.hardware_address,
            speed: speed(&link.name, link.index),
            offloads: offloads(link, control),
        }
    }
}

impl CapturedDevice {
    /// Describes an existing interface.
    pub(super) fn new(
        link: &Link,
        form: PacketForm,
        facts: &DeviceFacts,
        wanted: LivePass,
    ) -> Self {
        let name = link.name.to_string();
        Self::described(name, link.hardware_type, form, Some(facts), wanted)
    }

    /// Describes an interface that no longer exists although frames from it were captured.
    pub(super) fn gone(index: u32, hardware_type: u16, form: PacketForm, wanted: LivePass) -> Self {
        Self::described(format!("if{index}"), hardware_type, form, None, wanted)
    }

    fn described(
        name: String,
        hardware_type: u16,
        form: PacketForm,
        facts: Option<&DeviceFacts>,
        wanted: LivePass,
    ) -> Self {
        let mut interface = Interface::new(form.link_type.to_pcap());
        interface.snaplen = form.snaplen;
        interface.resolution = form.resolution;
        let description = blocks::description(&name, facts, &interface);
        let is_loopback = hardware_type == LOOPBACK;
        let link_type = form.link_type;
        Self { name, link_type, interface, description, wanted, is_loopback }
    }
}

/// Format in which an interface's packets are captured.
#[derive(Clone, Copy)]
pub(super) struct PacketForm {
    pub(super) link_type: LinkType,
    /// Maximum number of bytes to keep of each packet.
    pub(super) snaplen: u32,
    /// Resolution of the timestamps.
    pub(super) resolution: Resolution,
}

/// Live capture filter for one link type.
pub(super) struct LiveFilter {
    pub(super) program: Program,
    /// Whether the kernel can run the filter program. The kernel stores VLAN tags outside the packet, so a program that
    /// looks for a tag in the packet would not find it.
    pub(super) is_kernels: bool,
}

impl LiveFilter {
    pub(super) fn compile(text: &str, link_type: LinkType) -> Result<Self, Failure> {
        let program = compile(text, "capture", link_type.to_pcap())?;
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        // Offsets, the length and the keyword `vlan` refer to the frame with its tag in place.
        let is_kernels = !words.any(|word| ABOUT_TAGS.contains(&word));
        Ok(Self { program, is_kernels })
    }
}

/// Returns the link type for a hardware type; `None` if packets of that type cannot be parsed.
pub(super) fn link_type(hardware_type: u16) -> Option<LinkType> {
    match hardware_type {
        ETHERNET | LOOPBACK => Some(LinkType::Ethernet),
        NONE | RAW_IP | PPP | TUNNEL | TUNNEL6 | SIT | IPGRE | IP6GRE => Some(LinkType::Raw),
        _ => None,
    }
}

/// Returns the speed in bits per second, if the driver reports it.
fn speed(name: &InterfaceName, index: u32) -> Option<u64> {
    let megabits = device::attribute(name, index, "speed")?;
    megabits.parse::<u64>().ok().filter(|speed| *speed > 0)?.checked_mul(1_000_000)
}

/// Returns the settings that affect the captured packets: the offloads, and the maximum superframe size.
fn offloads(link: &Link, control: &Control) -> String {
    let features = ethtool::features(control, &link.name).unwrap_or_default();
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
        ("gso_max_size", link.gso_max_size),
        ("gso_ipv4_max_size", link.gso_ipv4_max_size),
        ("gso_max_segs", link.gso_max_segments),
        ("gro_max_size", link.gro_max_size),
        ("gro_ipv4_max_size", link.gro_ipv4_max_size),
    ] {
        text += &size.map(|size| format!("; {name} {size}")).unwrap_or_default();
    }
    text
}

/// Name that stands for all interfaces.
pub(super) const ANY: &str = "any";
/// Hardware types, called `ARPHRD_*` in linux/if_arp.h.
const ETHERNET: u16 = 1;
const PPP: u16 = 512;
const RAW_IP: u16 = 519;
const TUNNEL: u16 = 768;
const TUNNEL6: u16 = 769;
pub(super) const LOOPBACK: u16 = 772;
const SIT: u16 = 776;
const IPGRE: u16 = 778;
const IP6GRE: u16 = 823;
const NONE: u16 = 0xfffe;
/// Filter keywords that refer to VLAN tags, or to bytes that a tag would shift.
const ABOUT_TAGS: [&str; 6] = ["vlan", "ether", "link", "len", "less", "greater"];
