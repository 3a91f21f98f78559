//! Prepares a captured packet for replays.

use std::borrow::Cow;

use grosso::{Meta, checksum::Checksum, meta::Gso};
use grosso_capture::{
    ENTERPRISE_NUMBER, Interface, MAGIC, Offload, Packet, PacketMeta, TunnelPort, flag,
    options::code,
};
use grosso_wire::{LinkType, Ports, dissect};

use super::{Aside, Purpose};
use crate::{
    checksums::{Claim, Levels, Verdict, is_seeded, judge},
    evidence::{Judge, Judgment, Nature, Seal, Sight},
    links::Links,
};

/// A packet and its capture metadata, computed once for any number of replays.
pub(crate) struct Seen<'a> {
    pub(crate) packet: &'a Packet<'a>,
    /// Bytes of the packet. Bytes that were not captured are zero, because merging reads only the headers.
    pub(crate) data: Cow<'a, [u8]>,
    /// Link type used to parse the packet.
    pub(crate) link: Option<LinkType>,
    /// UDP ports that identify tunnels in the packet.
    pub(crate) ports: Ports,
    /// Tunnels around the packet that use non-standard ports. These ports must be recorded when the packet is written.
    pub(crate) tunnels: Vec<TunnelPort>,
    pub(crate) said: RecordedOptions,
    /// Arrival time in nanoseconds, or the reason why the packet bypasses the engine.
    pub(crate) time: Result<u64, Aside>,
    /// Metadata for the engine.
    pub(crate) meta: Meta,
    /// Classification of the packet; `None` if it is not parsed.
    pub(crate) judgment: Option<Judgment>,
}

impl<'a> Seen<'a> {
    /// Parses and classifies a packet.
    pub(crate) fn of(
        packet: &'a Packet<'a>,
        links: Links,
        purpose: Purpose,
        judge: &mut Judge,
    ) -> Self {
        let described = packet.meta();
        let ports = judge.ports(&described);
        let Some(link) = links.of(packet) else {
            return Self::unparsed(packet, &described, ports, purpose);
        };
        let stack = dissect(packet.data, link, &ports);
        let sight = Sight::new(packet, &described, &stack, link, ports);
        let judgment = judge.judge(&sight);
        let tunnels = TunnelPort::of_packet(packet.data, &stack, &ports);
        Self { tunnels, ..Self::judged(packet, &sight, judgment, purpose, judge) }
    }

    /// Returns a parsed and classified packet, without looking for its tunnels.
    pub(crate) fn judged(
        packet: &'a Packet<'a>,
        sight: &Sight<'_>,
        judgment: Judgment,
        purpose: Purpose,
        judge: &mut Judge,
    ) -> Self {
        let &Sight { said: described, link, ports, .. } = sight;
        let mut seen = Self::unparsed(packet, described, ports, purpose);
        (seen.link, seen.judgment) = (Some(link), Some(judgment));
        if packet.is_cut() {
            // A superframe has a single captured length, so it cannot restore how much of each packet was captured.
            let stays_apart = purpose == Purpose::Writes;
            if stays_apart || sight.transport.is_none() || packet.original_len > CUT_BYTES_MAX {
                seen.time = seen.time.and(Err(Aside::Length));
            } else {
                let mut whole = packet.data.to_vec();
                whole.resize(packet.original_len as usize, 0);
                seen.data = Cow::Owned(whole);
            }
        }
        if let Ok(now_ns) = seen.time {
            let checksum = checksum(sight, judge);
            let meta = Meta { checksum, timestamp_ns: Some(now_ns), ..Meta::default() };
            seen.meta = with_offloads(meta, described, &judgment, ports);
        }
        seen
    }

    fn unparsed(
        packet: &'a Packet<'a>,
        described: &PacketMeta,
        ports: Ports,
        purpose: Purpose,
    ) -> Self {
        let said = RecordedOptions::by(packet, described);
        Self {
            packet,
            data: Cow::Borrowed(packet.data),
            link: None,
            ports,
            tunnels: Vec::new(),
            time: time(packet, &said, purpose),
            said,
            meta: Meta::default(),
            judgment: None,
        }
    }

    /// Returns the properties needed by a replay.
    pub(crate) fn arrived(&self) -> Arrived<'_> {
        Arrived {
            data: &self.data,
            device: self.packet.device,
            timestamp_ns: self.packet.timestamp_ns,
            time: self.time,
            flags: self.said.kept_flags(),
            link: self.link,
            ports: self.ports,
            meta: self.meta,
        }
    }
}

/// Properties of a packet that are needed by a replay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    /// Bytes of the packet.
    pub(crate) data: &'a [u8],
    pub(crate) device: u32,
    /// Timestamp of the packet in the capture, in nanoseconds.
    pub(crate) timestamp_ns: Option<u64>,
    /// Arrival time in nanoseconds, or the reason why the packet bypasses the engine.
    pub(crate) time: Result<u64, Aside>,
    /// Flags that are kept in a superframe.
    pub(crate) flags: u32,
    pub(crate) link: Option<LinkType>,
    /// UDP ports that identify tunnels in the packet.
    pub(crate) ports: Ports,
    /// Metadata for the engine.
    pub(crate) meta: Meta,
}

/// Contents of a packet's options.
#[derive(Default)]
pub(crate) struct RecordedOptions {
    pub(crate) flags: Option<u32>,
    pub(crate) offload: Option<Offload>,
    /// Whether the packet has Grosso's custom option. Flags alone do not count.
    pub(crate) has_option: bool,
    /// Whether the packet has options that would be lost in a superframe.
    has_others: bool,
}

impl RecordedOptions {
    fn by(packet: &Packet<'_>, described: &PacketMeta) -> Self {
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
        said.flags = described.flags;
        said.offload.clone_from(&described.offload);
        said
    }

    /// Returns the flags that are kept in a superframe. A partial checksum is recorded elsewhere; a verified one is not
    /// recorded.
    pub(super) fn kept_flags(&self) -> u32 {
        self.flags.unwrap_or(0) & !flag::OFFLOADS
    }
}

/// Returns the packet's arrival time in nanoseconds, or the reason why the packet bypasses the engine.
fn time(packet: &Packet<'_>, said: &RecordedOptions, purpose: Purpose) -> Result<u64, Aside> {
    if said.has_others && purpose != Purpose::Looks {
        return Err(Aside::Options);
    }
    if (packet.original_len as usize) < packet.data.len() {
        return Err(Aside::Length);
    }
    let time = packet.timestamp_ns.filter(|&time| is_exact(packet.description, time));
    time.ok_or(Aside::Time)
}

/// Returns whether the timestamp in the file can be restored exactly from `time_ns`.
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

/// Returns the checksum state for the engine. A recorded "valid" state is not passed on: verification is cheap, and if
/// the capture were wrong, segmentation would not restore the original checksum. A partial checksum is recognized from
/// the packet if the capture does not record it. The checksum of a truncated packet cannot be verified, so it is
/// treated as verified by a device.
fn checksum(sight: &Sight<'_>, judge: &mut Judge) -> Checksum {
    let Sight { packet, said, stack, .. } = sight;
    match said.known(stack).checksum {
        told @ Checksum::Partial { .. } => told,
        // One valid checksum in 65,536 also equals its pseudo-header sum.
        _ if is_seeded(packet.data, stack) && judge.seal(sight) != Seal::Either => {
            Checksum::of_transport(stack)
        }
        _ if packet.is_cut() => Checksum::Unnecessary { levels: u8::MAX },
        _ => Checksum::None,
    }
}

/// Returns the engine's metadata for a complete packet without capture metadata.
pub(crate) fn meta_of(data: &[u8], link: LinkType, ports: &Ports) -> Meta {
    let stack = dissect(data, link, ports);
    let mut levels = Levels::default();
    judge(data, false, &stack, Claim::None, &mut levels);
    let is_partial = levels.iter().next_back().is_some_and(|last| last.verdict == Verdict::Partial);
    let checksum = if is_partial { Checksum::of_transport(&stack) } else { Checksum::None };
    Meta { checksum, ..Meta::default() }
}

/// Adds the remaining offload metadata for the engine. A superframe gets an unknown segment size if its size was not
/// recorded, or if it is not to be segmented after its innermost header.
fn with_offloads(meta: Meta, said: &PacketMeta, judgment: &Judgment, ports: Ports) -> Meta {
    let recorded = said.offload.as_ref().map(|offload| offload.meta).unwrap_or_default();
    let gso = match judgment.nature {
        Nature::Superframe { ports: around, .. } if around == ports => {
            recorded.gso.or(Some(Gso::UNKNOWN))
        }
        Nature::Packet => recorded.gso,
        _ => Some(Gso::UNKNOWN),
    };
    Meta { gso, vlan: recorded.vlan, hash: recorded.hash, ..meta }
}

/// Maximum original length, in bytes, of a packet whose missing bytes are replaced by zeros. No superframe is this
/// long.
const CUT_BYTES_MAX: u32 = 1 << 20;
