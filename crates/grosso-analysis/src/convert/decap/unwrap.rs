//! Decapsulates one packet.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    tunnel::decapsulate::{
        Decapsulation, DecapsulationRules, OuterChecksum, Path, Refusal, RemoteChecksumMode,
    },
};
use grosso_capture::{Packet, PacketMeta, TunnelPort};
use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, Stop, dissect_into, udp};

use super::joiner::{Join, Joiner};
use crate::{
    checksums::{complete_header, is_large_send_without_length, is_seeded, seeded_around},
    fragments::Arrival,
    meta,
    reports::decap::DecapTally,
    suspicion::Suspicions,
};

/// Decapsulator with reused buffers.
pub(super) struct Unwrapper {
    rules: DecapsulationRules,
    /// UDP ports that identify tunnels in packets for which the capture does not record any.
    given: Ports,
    wanted: DepthLimit,
    pub(super) tally: DecapTally,
    pub(super) suspicions: Suspicions,
    /// Critical Geneve options by class and type, each with the number of packets that contain it.
    pub(super) critical_options: BTreeMap<(u16, u8), u64>,
    /// Number of packets with reserved bits set in their tunnel header.
    pub(super) reserved_bits: u64,
    hasher: RandomState,
    buffer: Vec<u8>,
    stack: Stack,
    /// Offset of the current packet in the buffer.
    start: usize,
}

/// Number of tunnels to remove from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepthLimit {
    One,
    /// All tunnels, up to [`TUNNELS_MAX`].
    All,
}

/// Result of decapsulating a captured packet.
pub(super) enum DecapFate {
    /// The packet stays unchanged.
    Unchanged,
    /// The packet is a fragment of a datagram that a later packet completes.
    Waits,
    /// The packet was decapsulated or reassembled. The value is the metadata of the result.
    Changed(PacketMeta),
}

/// State of a packet while it is decapsulated.
struct PacketUnderWay {
    depth: u32,
    /// End of the captured bytes in the buffer. Zeros pad the packet to its original length.
    captured: usize,
    /// Identifier of the tunnels removed so far.
    network: u64,
    meta: Meta,
    /// Remaining tunnels whose ports the capture recorded.
    tunnels: Vec<TunnelPort>,
    is_joined: bool,
}

impl Unwrapper {
    pub(super) fn new(
        given: Ports,
        wanted: DepthLimit,
        is_strict: bool,
        hasher: RandomState,
    ) -> Self {
        let mut rules = DecapsulationRules::default();
        // The receiver's configuration is unknown, so even packets that only some configurations accept are
        // decapsulated.
        rules.remote_checksum = RemoteChecksumMode::Complete;
        rules.ipv6_without_checksum = true;
        rules.critical_options = true;
        rules.reserved_bits = !is_strict;
        Self {
            rules,
            given,
            wanted,
            tally: DecapTally::default(),
            suspicions: Suspicions::default(),
            critical_options: BTreeMap::new(),
            reserved_bits: 0,
            hasher,
            buffer: Vec::new(),
            stack: Stack::new(0),
            start: 0,
        }
    }

    /// Removes the tunnels from a packet.
    pub(super) fn unwrap(
        &mut self,
        packet: &Packet<'_>,
        said: &PacketMeta,
        link: LinkType,
        joiner: &mut impl Joiner,
    ) -> DecapFate {
        joiner.tick(packet.timestamp_ns);
        self.buffer.clear();
        self.buffer.extend_from_slice(packet.data);
        self.start = 0;
        let captured = packet.data.len();
        let original = packet.original_len as usize;
        let is_cut = packet.is_cut() && original <= CUT_BYTES_MAX;
        if is_cut {
            self.buffer.resize(original, 0);
        }
        self.rules.outer_checksum =
            if is_cut { OuterChecksum::CapturedShort } else { OuterChecksum::InFrame };
        let tunnels = meta::tunnels(said).to_vec();
        self.rules.ports = meta::ports_in(&tunnels, self.given);
        dissect_into(packet.data, link, &self.rules.ports, &mut self.stack);
        let meta = said.known(&self.stack);
        let mut state =
            PacketUnderWay { depth: 0, captured, network: 0, meta, tunnels, is_joined: false };
        loop {
            if is_fragment(&self.stack) {
                let arrival = Arrival {
                    data: &self.buffer[self.start..state.captured],
                    vlan: state.meta.vlan,
                    network: state.network,
                    ..Arrival::of(packet, said, link, self.rules.ports)
                };
                match joiner.join(state.depth as usize, packet.number, &arrival) {
                    Join::Unasked => {}
                    Join::Stays => break,
                    Join::Waits => return DecapFate::Waits,
                    Join::Whole(datagram) => {
                        self.buffer.clear();
                        self.buffer.extend_from_slice(datagram);
                        self.start = 0;
                        state.captured = self.buffer.len();
                        state.is_joined = true;
                        state.meta = Meta { vlan: state.meta.vlan, ..Meta::default() };
                        dissect_into(&self.buffer, link, &self.rules.ports, &mut self.stack);
                    }
                }
            }
            if !self.strip(&mut state, packet.number, link) {
                break;
            }
            if self.wanted == DepthLimit::One {
                break;
            }
            let captured = &self.buffer[self.start..state.captured];
            dissect_into(captured, link, &self.rules.ports, &mut self.stack);
        }
        let original_len = self.buffer.len().saturating_sub(self.start);
        self.buffer.truncate(state.captured);
        let is_short = self.buffer.len() - self.start < original_len;
        self.tally.decapsulated += u64::from(state.depth > 0);
        if state.depth == 0 && !state.is_joined {
            return DecapFate::Unchanged;
        }
        let is_new = state.is_joined && state.depth == 0;
        let meta = if is_new {
            meta::of_segment(said, false)
        } else {
            meta::of_tunnelled(said, &state.meta, state.tunnels)
        };
        let original_len = u32::try_from(original_len).unwrap_or(u32::MAX);
        DecapFate::Changed(if is_short { PacketMeta { original_len, ..meta } } else { meta })
    }

    /// Returns the current packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Removes the outermost tunnel; returns false if the packet stays unchanged.
    fn strip(&mut self, state: &mut PacketUnderWay, number: u64, link: LinkType) -> bool {
        if let Some(outer) = outer(&self.stack).next() {
            complete_header(&mut self.buffer[self.start..], outer);
        }
        let plan = match self.plan(&state.meta, link) {
            Ok(plan) => plan,
            Err(Refusal::NoTunnel) => {
                self.suspicions.observe(&self.buffer[self.start..], &self.stack);
                self.tally.plain += u64::from(state.depth == 0);
                return false;
            }
            Err(refusal) => {
                self.tally.refused.add(refusal.name(), number);
                return false;
            }
        };
        if state.depth == TUNNELS_MAX {
            self.tally.refused.add("tunnel_limit", number);
            return false;
        }
        if let Some(tunnel) = self.outermost() {
            tunnel.leave(&mut state.tunnels);
            self.rules.ports = meta::ports_in(&state.tunnels, self.given);
        }
        self.leave_out(&plan);
        let range = plan.apply(&mut self.buffer[self.start..]);
        self.buffer.truncate(self.start + range.end);
        state.captured = state.captured.min(self.buffer.len());
        self.start += range.start;
        state.depth += 1;
        state.network = self.network(state.network, &plan.path);
        state.meta = plan.meta;
        self.reserved_bits += u64::from(plan.details.reserved_bits);
        if let Some(option) = plan.details.critical_option {
            *self.critical_options.entry(option).or_default() += 1;
        }
        self.tally.count(state.depth, plan.tunnel, plan.congestion);
        true
    }

    /// Counts headers that are lost because the capture's link type cannot represent them, such as inner Ethernet
    /// addresses.
    fn leave_out(&mut self, plan: &Decapsulation) {
        let layers = self.stack.layers().iter();
        let behind = layers.skip_while(|layer| !is_ip(layer.kind)).skip(1);
        let inside = behind.skip_while(|layer| Some(layer.kind) != plan.details.carried);
        let start = plan.inner().start;
        for layer in inside.take_while(|layer| usize::from(layer.offset) < start) {
            self.tally.leave_out(layer.kind.spec().name);
        }
    }

    /// Returns the plan for removing the outermost tunnel.
    ///
    /// A capture from a sending host contains checksums that the device was meant to complete, and does not always mark
    /// them. In such a packet, an outer checksum covers the packet as the device would complete it (rule C40).
    fn plan(&self, meta: &Meta, link: LinkType) -> Result<Decapsulation, Refusal> {
        let frame = &self.buffer[self.start..];
        let planned = Decapsulation::plan(frame, &self.stack, meta, link, &self.rules);
        if meta.gso.is_none()
            && matches!(planned, Err(Refusal::LengthZero))
            && is_large_send_without_length(frame, &self.stack)
        {
            return self.plan_large_send(meta, link);
        }
        if !matches!(planned, Err(Refusal::UdpChecksum | Refusal::GreChecksum)) {
            return planned;
        }
        let checksum = if is_seeded(frame, &self.stack) {
            Checksum::of_transport(&self.stack)
        } else if let Some(udp) = seeded_around(frame, &self.stack) {
            let offset = udp::field::CHECKSUM.start as u16;
            Checksum::Partial { start: udp.offset, offset }
        } else {
            return planned;
        };
        let partial = Meta { checksum, ..*meta };
        Decapsulation::plan(frame, &self.stack, &partial, link, &self.rules)
    }

    /// Returns the plan for a Windows large send whose length field is zero. The result is not marked as a superframe,
    /// because the capture did not mark the original.
    fn plan_large_send(&self, meta: &Meta, link: LinkType) -> Result<Decapsulation, Refusal> {
        let frame = &self.buffer[self.start..];
        let (checksum, gso) = (Checksum::of_transport(&self.stack), Some(Gso::UNKNOWN));
        let recognized = Meta { checksum, gso, ..*meta };
        let mut plan = Decapsulation::plan(frame, &self.stack, &recognized, link, &self.rules)?;
        (plan.meta.checksum, plan.meta.gso) = (Checksum::None, None);
        Ok(plan)
    }

    /// Returns the outermost tunnel, if it uses a UDP port.
    fn outermost(&self) -> Option<TunnelPort> {
        let udp = outer(&self.stack).skip(1).find(|layer| !is_extension(layer.kind))?;
        let header = self.buffer.get(self.start + usize::from(udp.offset)..)?;
        let port = header.get(udp::field::DESTINATION_PORT)?.first_chunk()?;
        let port = (udp.kind == Kind::Udp).then(|| u16::from_be_bytes(*port))?;
        TunnelPort::on(port, &self.rules.ports)
    }

    /// Returns the identifier of the tunnel `path`, which is inside the tunnels identified by `outside`.
    fn network(&self, outside: u64, path: &Path) -> u64 {
        self.hasher.hash_one((outside, path))
    }
}

/// Returns the headers of the outermost packet, starting at IP; empty if that packet is inside an inner Ethernet frame.
fn outer(stack: &Stack) -> impl Iterator<Item = &Layer> {
    let links = stack.layers().iter().take_while(|layer| !is_ip(layer.kind)).count();
    let (links, packet) = stack.layers().split_at(links);
    let has_frame = links.iter().skip(1).any(|layer| layer.kind == Kind::Ethernet);
    packet.iter().filter(move |_| !has_frame)
}

/// Returns whether the outermost IP packet is a fragment.
fn is_fragment(stack: &Stack) -> bool {
    let mut behind = stack.layers().iter().skip_while(|layer| !is_ip(layer.kind)).skip(1);
    stack.stop == Stop::Fragment && behind.all(|layer| is_extension(layer.kind))
}

fn is_ip(kind: Kind) -> bool {
    kind.is_ip()
}

fn is_extension(kind: Kind) -> bool {
    matches!(kind, Kind::Ipv6Extension | Kind::Ipv6Fragment)
}

/// Maximum original length in bytes for a truncated packet to be decapsulated. A capture record may claim any length.
const CUT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of tunnels removed from one packet.
const TUNNELS_MAX: u32 = 16;
