//! A packet of a capture as a replay takes it.

use grosso::{Meta, checksum::Checksum};
use grosso_io::capture::{
    ChecksumState, ENTERPRISE_NUMBER, Interface, MAGIC, Offload, Packet, flag, options::code,
};
use grosso_wire::{LinkType, Ports, dissect};

use super::Aside;
use crate::{checksums::is_seeded, input::Links, meta};

/// A packet, and what the capture says about it: worked out once, however many replays it goes
/// through.
pub(crate) struct Seen<'a> {
    pub(crate) packet: &'a Packet<'a>,
    /// How it is parsed.
    pub(crate) link: Option<LinkType>,
    pub(super) said: Said,
    /// When it arrived, unless it has to stay outside.
    pub(crate) time: Result<u64, Aside>,
    /// What is told to the engine.
    pub(crate) meta: Meta,
}

impl<'a> Seen<'a> {
    /// Looks at a packet.
    pub(crate) fn of(packet: &'a Packet<'a>, links: Links) -> Self {
        let said = Said::by(packet);
        let link = links.of(packet);
        let time = time(packet, &said);
        let meta = match (link, time) {
            (Some(link), Ok(now_ns)) => engine_meta(packet.data, link, &said, now_ns),
            _ => Meta::default(),
        };
        Self { packet, link, said, time, meta }
    }
}

/// What the options of a packet say.
#[derive(Default)]
pub(super) struct Said {
    pub(super) flags: Option<u32>,
    pub(super) offload: Option<Offload>,
    /// Whether our own option is there, and not only flags.
    pub(super) has_option: bool,
    /// Whether there are options that a superframe could not give back.
    has_others: bool,
}

impl Said {
    fn by(packet: &Packet<'_>) -> Self {
        let options = packet.options();
        let mut said = Self::default();
        if options.as_bytes().is_empty() {
            return said;
        }
        for option in &options {
            match option {
                Ok(option) if option.code == code::PACKET_FLAGS && option.value.len() == 4 => {}
                Ok(option)
                    if option.code == code::CUSTOM_BINARY && is_ours(packet, option.value) =>
                {
                    said.has_option = true;
                }
                _ => said.has_others = true,
            }
        }
        let meta = packet.meta();
        said.flags = meta.flags;
        said.offload = meta.offload;
        said
    }

    /// The flags that a superframe keeps. That a checksum was partial is kept elsewhere; that it was
    /// verified is not kept.
    pub(super) fn kept_flags(&self) -> u32 {
        self.flags.unwrap_or(0) & !flag::OFFLOADS
    }
}

/// When the packet arrived, unless it has to stay outside.
fn time(packet: &Packet<'_>, said: &Said) -> Result<u64, Aside> {
    if said.has_others {
        return Err(Aside::Options);
    }
    if packet.original_len as usize != packet.data.len() {
        return Err(Aside::Length);
    }
    let time = packet.timestamp_ns.filter(|&time| is_exact(packet.description, time));
    time.ok_or(Aside::Time)
}

/// Whether a time in nanoseconds gives back the time in the file.
fn is_exact(interface: &Interface, time_ns: u64) -> bool {
    let unit = interface.resolution.to_byte();
    let is_coarse = if unit & 0x80 == 0 { unit <= 9 } else { unit & 0x7f <= 28 };
    let is_clamped = time_ns == u64::MAX || (time_ns == 0 && interface.offset_seconds != 0);
    is_coarse && !is_clamped
}

fn is_ours(packet: &Packet<'_>, value: &[u8]) -> bool {
    let number = packet.order().u32_bytes(ENTERPRISE_NUMBER);
    value.strip_prefix(&number).is_some_and(|rest| rest.starts_with(&MAGIC))
}

/// What is told to the engine about a packet of which the capture says nothing.
pub(crate) fn meta_of(data: &[u8], link: LinkType) -> Meta {
    engine_meta(data, link, &Said::default(), 0)
}

/// What is told to the engine. That a checksum is valid is not: it costs little to verify, and if
/// the capture were wrong, cutting would write another checksum than was there. That one is partial
/// the packet tells itself when the capture does not.
fn engine_meta(data: &[u8], link: LinkType, said: &Said, now_ns: u64) -> Meta {
    let mut meta = Meta { timestamp_ns: Some(now_ns), ..Meta::default() };
    let stack = dissect(data, link, &Ports::ASSIGNED);
    let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
    meta.checksum = match state.to_engine(&stack) {
        partial @ Checksum::Partial { .. } => partial,
        _ if is_seeded(data, &stack) => ChecksumState::Partial { place: None }.to_engine(&stack),
        _ => Checksum::None,
    };
    if data.len() > WIRE_BYTES_MAX {
        meta.gso = meta::opaque();
    }
    let Some(offload) = &said.offload else { return meta };
    if let Some(gso) = &offload.gso {
        meta.gso = gso.to_engine().or_else(meta::opaque);
    }
    meta.vlan = offload.vlan();
    meta.hash = offload.hash;
    meta
}

/// The longest frame that any wire carries: jumbo frames with room for tags. What is longer is a
/// superframe, and one that does not say its segment size must not give its own as that.
const WIRE_BYTES_MAX: usize = 9216 + 64;
