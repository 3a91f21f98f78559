//! A port that adds ESP (IPsec encryption) to another port.

mod counters;
mod options;
mod pair;

use std::collections::VecDeque;

use grosso::{
    Frame, Meta,
    checksum::{self, Checksum},
    features::{Device, Features},
    meta::GsoSize,
    segment::{Outgoing, Segments},
    tunnel::{
        LoopGuard,
        esp::{Decryptor, NoAssociation, Refusal, Traffic, classify},
    },
};
use grosso_wire::{Kind, LinkType, Ports, Stack, dissect_into, ipv6};

use self::pair::Pair;
pub use self::{
    counters::{Drops, EspStageStats},
    options::{EspOptions, Level, Scarcity, ScarcityNotice},
};
use super::{outbox::Outbox, own_packets::OwnPackets, recorder::RecordState};
use crate::{
    buffer::{PortBuffer, Spare},
    delegate_port,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// A port that encrypts transmitted packets and decrypts received ones.
///
/// ARP and IPv6 neighbor discovery pass unencrypted in both directions, because without them hosts could not find each
/// other; every other frame is subject to the [`Level`]. Packets that fail ESP processing are dropped at every level
/// and counted by reason.
///
/// The port accepts superframes, segments them and encrypts each packet separately (rule S46); a superframe that
/// represents one datagram (UFO) is encrypted whole. Each packet grows by at most [`overhead_max`](Self::overhead_max)
/// bytes: make the MTU of the hosts lower than the MTU of the inner port by that amount, or insert a
/// [`Fragmentation`](super::Fragmentation) stage. Received packets are copied once, because the buffers of a port are
/// read-only. Fragments must be reassembled first.
///
/// In tunnel mode, packets that this stage encrypted and that come back to be encrypted again are dropped and counted,
/// as are their fragments ([`LoopGuard`]).
///
/// Encrypting a packet uses up a sequence number. Encrypted packets that the inner port has no room for are therefore
/// queued here, and no further frame is accepted until they are sent.
#[derive(Debug)]
pub struct EspStage<P: Port> {
    port: P,
    link: LinkType,
    level: Level,
    ports: Ports,
    pair: Pair,
    inbound_spi: u32,
    inbound_port: Option<u16>,
    outbox: Outbox,
    spare: Spare,
    /// Buffers to return to the inner port after its current call has returned.
    returned: Vec<PortBuffer>,
    /// Scratch space for a frame copied into one slice.
    packet: Vec<u8>,
    /// Scratch space for an encrypted packet.
    scratch: Vec<u8>,
    stack: Stack,
    /// Decrypted packets that wait until their sequence numbers are recorded, in order of arrival.
    held: VecDeque<(Frame<PortBuffer>, u64)>,
    /// Total length of the held packets in bytes.
    held_bytes: usize,
    /// Time of the last packet, in nanoseconds.
    received_ns: u64,
    /// Time of the last call, in nanoseconds.
    now_ns: u64,
    /// Whether the last call returned as many frames as requested, in which case the port may have more.
    more: bool,
    /// Filter that drops packets that this stage itself has encrypted; used in tunnel mode.
    own: Option<OwnPackets>,
    stats: EspStageStats,
}

impl<P: Port> EspStage<P> {
    /// Wraps a port in an ESP stage.
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the options of an association.
    pub fn new(port: P, options: EspOptions) -> Result<Self, NoAssociation> {
        let inbound = &options.inbound;
        let guard = LoopGuard::of_esp(&options.outbound);
        let notice = options.loop_notice.clone();
        Ok(Self {
            link: port.link(),
            port,
            level: options.level,
            ports: options.ports,
            inbound_spi: inbound.spi,
            inbound_port: inbound.udp_ports.map(|ports| ports.destination),
            pair: Pair::new(options)?,
            outbox: Outbox::default(),
            spare: Spare::default(),
            returned: Vec::new(),
            packet: Vec::new(),
            scratch: Vec::new(),
            stack: Stack::new(0),
            held: VecDeque::new(),
            held_bytes: 0,
            received_ns: 0,
            now_ns: 0,
            more: false,
            own: guard.map(|guard| OwnPackets::new(guard, notice)),
            stats: EspStageStats::default(),
        })
    }

    /// Returns the inner port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns mutable access to the inner port.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the inner port and drops all queued packets.
    pub fn into_inner(self) -> P {
        self.port
    }

    /// Returns the maximum overhead per packet in bytes.
    #[must_use]
    pub fn overhead_max(&self) -> usize {
        self.pair.encryptor.overhead_max()
    }

    /// Returns the addresses and lengths of the expanded keys in memory, for `mlock(2)`.
    #[must_use]
    pub fn secrets(&self) -> [(*const u8, usize); 2] {
        [self.pair.encryptor.secret(), self.pair.decryptor.secret()]
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> EspStageStats {
        let (encrypted, decrypted) = (*self.pair.encryptor.stats(), *self.pair.decryptor.stats());
        let looped = self.own.as_ref().map_or(0, |own| own.dropped);
        EspStageStats { encrypted, decrypted, looped, ..self.stats }
    }

    /// Sends a frame unchanged, except that its checksum is completed, because the inner port may not do so.
    fn send_clear(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let sent = match meta.checksum {
            Checksum::Partial { start, offset } => {
                let packet = gathered(&mut self.packet, slices);
                // If the checksum cannot be completed, it stays wrong, and the receiver drops the packet.
                let _ = checksum::complete(packet, start, offset);
                let meta = Meta { checksum: Checksum::None, ..*meta };
                self.port.transmit(&[packet], &meta)?
            }
            _ => self.port.transmit(slices, meta)?,
        };
        self.stats.sent_clear += u64::from(sent == Transmitted::Taken);
        Ok(sent)
    }

    fn encrypt(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<(), PortError> {
        let Self { pair, link, packet, scratch, outbox, port, stats, .. } = self;
        if !pair.reserve(1) {
            stats.unreserved += 1;
            return Ok(());
        }
        let frame = match slices {
            [frame] => frame,
            _ => &*gathered(packet, slices),
        };
        let room = frame.len() + pair.encryptor.overhead_max();
        if scratch.len() < room {
            scratch.resize(room, 0);
        }
        match pair.encryptor.encrypt(frame, meta, *link, scratch) {
            Ok(done) => {
                outbox.send(scratch.get(..done.len).unwrap_or_default(), &done.meta, port)?
            }
            Err(reason) => {
                stats.out_dropped.count(reason);
                if reason == Refusal::SequenceExhausted {
                    pair.look_for_scarcity();
                }
            }
        }
        Ok(())
    }

    fn encrypt_superframe(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<(), PortError> {
        let complete = Outgoing::COMPLETE;
        let Ok(segments) = Segments::new(slices, meta, self.link, &self.ports, complete) else {
            self.stats.out_dropped.count(Refusal::Superframe);
            return Ok(());
        };
        let Self { pair, link, scratch, outbox, port, stats, .. } = self;
        if !pair.reserve(segments.remaining()) {
            stats.unreserved += 1;
            return Ok(());
        }
        let mut packets = match pair.encryptor.encrypt_segments(segments, *link) {
            Ok(packets) => packets,
            Err(reason) => {
                stats.out_dropped.count(reason);
                return Ok(());
            }
        };
        let room = packets.packet_len_max();
        if scratch.len() < room {
            scratch.resize(room, 0);
        }
        loop {
            match packets.write_next(scratch) {
                Ok(Some(done)) => {
                    let packet = scratch.get(..done.len).unwrap_or_default();
                    outbox.send(packet, &done.meta, port)?;
                }
                Ok(None) => return Ok(()),
                Err(reason) => {
                    stats.out_dropped.count(reason);
                    // If the buffer is too small for this packet, it is too small for the remaining packets.
                    if reason == Refusal::BufferTooSmall {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl<P: Port> Port for EspStage<P> {
    delegate_port!(port: is_finished);

    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.port.descriptor()
    }

    #[cfg(unix)]
    fn transmit_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.port.transmit_descriptor()
    }

    #[cfg(unix)]
    fn room_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.port.room_kick()
    }

    fn link(&self) -> LinkType {
        self.link
    }

    /// Returns the features for all superframes and partial checksums, regardless of what the inner port accepts,
    /// because they must be processed before encryption.
    fn device(&self) -> Device {
        Device::new(Features::ALL.without(Features::GSO_PARTIAL))
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.now_ns = now_ns;
        self.take_recorded();
        let mut given = self.release(max, each);
        if given == max {
            self.more = true;
            return Ok(given);
        }
        let max = max - given;
        let Self { port, link, level, pair, spare, returned, stack, stats, .. } = self;
        let (held, held_bytes) = (&mut self.held, &mut self.held_bytes);
        let (spi, udp_port) = (self.inbound_spi, self.inbound_port);
        let mut opened_now = 0;
        let result = port.receive(now_ns, max, &mut |frame| {
            let Frame { buffer, meta } = frame;
            let bytes = buffer.as_ref();
            let is_ours = match classify(bytes, *link, udp_port) {
                Ok(Traffic::Esp { spi: found, .. }) if found == spi => Ok(()),
                Ok(Traffic::Esp { .. }) => Err(Refusal::OtherSpi),
                Ok(Traffic::Ike) => Err(Refusal::Ike),
                Ok(Traffic::Keepalive) => Err(Refusal::Keepalive),
                Err(reason) => Err(reason),
            };
            let opened = match is_ours {
                Ok(()) if meta.gso.is_some() => Err(Refusal::Superframe),
                Ok(()) => open(bytes, &meta, *link, &mut pair.decryptor, spare),
                Err(reason) => {
                    let is_taken = *level == Level::Use && reason != Refusal::Keepalive;
                    if is_taken || is_found_in_the_clear(bytes, *link, stack) {
                        stats.received_clear += 1;
                        given += 1;
                        return each(Frame { buffer, meta });
                    }
                    Err(reason)
                }
            };
            match opened {
                Ok((frame, sequence)) => {
                    opened_now += 1;
                    if held.is_empty() && pair.admits(sequence) {
                        given += 1;
                        each(frame);
                    } else if held.len() < HELD_MAX && *held_bytes < HELD_BYTES_MAX {
                        *held_bytes += frame.buffer.as_ref().len();
                        held.push_back((frame, sequence));
                    } else {
                        stats.in_unreserved += 1;
                        let _ = spare.give(frame.buffer);
                    }
                }
                Err(reason) => stats.in_dropped.count(reason),
            }
            returned.push(buffer);
        });
        returned.drain(..).for_each(|buffer| port.recycle(buffer));
        self.more = result? == max;
        if opened_now > 0 {
            self.received_ns = now_ns;
        }
        if !self.held.is_empty() || opened_now > 0 {
            let recording = self.pair.record_received(opened_now, self.held.len());
            self.drop_unrecorded(recording);
            given += self.release(max, each);
        } else if self.settles_at().is_some_and(|at_ns| now_ns >= at_ns) {
            self.pair.settle();
        }
        Ok(given)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        if let Some(buffer) = self.spare.give(buffer) {
            self.port.recycle(buffer);
        }
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if self.outbox.drain(&mut self.port)? == Transmitted::NoRoom {
            return Ok(Transmitted::NoRoom);
        }
        let (link, now_ns) = (self.link, self.now_ns);
        if self.own.as_mut().is_some_and(|own| own.drops(slices, link, now_ns)) {
            return Ok(Transmitted::Taken);
        }
        let head = slices.first().copied().unwrap_or_default();
        match meta.gso.map(|gso| gso.size) {
            None if self.goes_in_the_clear(head) => return self.send_clear(slices, meta),
            None => self.encrypt(slices, meta)?,
            Some(GsoSize::Fragments(_)) => self.encrypt(slices, &Meta { gso: None, ..*meta })?,
            Some(_) => self.encrypt_superframe(slices, meta)?,
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.outbox.flush(&mut self.port)
    }

    /// Returns 0 (immediately) while the port may have more frames, because its descriptor may not become readable
    /// again for them.
    fn deadline(&self) -> Option<u64> {
        if self.more {
            return Some(0);
        }
        let waits = !self.held.is_empty() && !self.is_notified_by_recorder();
        let recorded = waits.then(|| self.now_ns.saturating_add(RECORDED_AGAIN_NS));
        self.port.deadline().into_iter().chain(recorded).chain(self.settles_at()).min()
    }

    /// Returns the descriptor of the inner port or, if there is none, a descriptor that becomes readable when the
    /// numbers of received packets are recorded.
    #[cfg(unix)]
    fn frames_kick(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        let recorded =
            || self.pair.recorder.as_ref().filter(|_| self.is_notified_by_recorder())?.descriptor();
        self.port.frames_kick().or_else(recorded)
    }

    /// Returns the path MTU of the inner port minus the maximum overhead, so that packets with any padding fit.
    fn path_mtu(&self) -> Option<usize> {
        self.port.path_mtu()?.checked_sub(self.overhead_max())
    }

    fn path_hint(&self) -> Option<usize> {
        self.port.path_hint()?.checked_sub(self.overhead_max())
    }

    fn path_proven(&self) -> Option<usize> {
        self.port.path_proven()?.checked_sub(self.overhead_max())
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.port.counters(each);
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
    }
}

impl<P: Port> EspStage<P> {
    /// Handles the recorder's answer about recorded numbers, if it has arrived.
    fn take_recorded(&mut self) {
        let Some(recorder) = self.pair.recorder.as_mut().filter(|it| it.is_waiting()) else {
            return;
        };
        let recording = recorder.poll();
        self.drop_unrecorded(recording);
    }

    /// Drops the held packets if recording their sequence numbers has failed.
    fn drop_unrecorded(&mut self, recording: RecordState) {
        if recording == RecordState::Failed {
            self.stats.in_unreserved += self.held.len() as u64;
            self.held_bytes = 0;
            for (frame, _) in self.held.drain(..) {
                let _ = self.spare.give(frame.buffer);
            }
        }
    }

    /// Delivers held packets whose numbers are recorded by now, and returns their number.
    fn release(&mut self, max: usize, each: &mut dyn FnMut(Frame<PortBuffer>)) -> usize {
        let mut count = 0;
        while count < max
            && let Some((frame, sequence)) = self.held.pop_front()
        {
            if !self.pair.admits(sequence) {
                self.held.push_front((frame, sequence));
                return count;
            }
            count += 1;
            self.held_bytes -= frame.buffer.as_ref().len();
            each(frame);
        }
        self.more |= !self.held.is_empty();
        count
    }

    /// Returns the time at which the record of received numbers is reduced to the numbers that actually arrived, unless
    /// a packet arrives before then.
    fn settles_at(&self) -> Option<u64> {
        let is_ahead = self.held.is_empty() && self.pair.is_ahead();
        is_ahead.then(|| self.received_ns.saturating_add(SETTLE_NS))
    }

    /// Returns whether the recorder's answer wakes the thread through a descriptor.
    #[cfg(unix)]
    fn is_notified_by_recorder(&self) -> bool {
        !self.held.is_empty() && self.port.frames_kick().is_none()
    }

    #[cfg(not(unix))]
    fn is_notified_by_recorder(&self) -> bool {
        false
    }

    /// Returns whether a frame is sent unencrypted.
    fn goes_in_the_clear(&mut self, head: &[u8]) -> bool {
        is_found_in_the_clear(head, self.link, &mut self.stack)
            || self.level == Level::Use && !has_ip(&self.stack)
    }
}

/// Maximum number of decrypted packets that wait until their numbers are recorded; further packets are dropped.
const HELD_MAX: usize = 1024;
/// Maximum total length of the held packets in bytes.
const HELD_BYTES_MAX: usize = 4 << 20;
/// Time in nanoseconds without a packet after which the record of received numbers is reduced to the numbers that
/// actually arrived.
const SETTLE_NS: u64 = 10_000_000;
/// Interval in nanoseconds between checks for the recorder's answer if no descriptor signals it.
const RECORDED_AGAIN_NS: u64 = 1_000_000;

/// Decrypts a packet in one of the stage's buffers, and also returns its sequence number.
fn open(
    bytes: &[u8],
    meta: &Meta,
    link: LinkType,
    decryptor: &mut Decryptor,
    spare: &mut Spare,
) -> Result<(Frame<PortBuffer>, u64), Refusal> {
    let mut copy = spare.take();
    copy.extend_from_slice(bytes);
    match decryptor.decrypt(&mut copy, link) {
        Ok(opened) => {
            // The device computed the hash of the outer packet; the fragment sizes describe the outer packet too.
            let meta = Meta { checksum: opened.checksum, hash: None, fragmented: None, ..*meta };
            let buffer = PortBuffer::made(copy, opened.frame);
            Ok((Frame { buffer, meta }, opened.sequence))
        }
        Err(reason) => {
            spare.put_back(copy);
            Err(reason)
        }
    }
}

/// Returns whether a frame is ARP or IPv6 neighbor discovery, which hosts use to find each other on a link. Without
/// such frames no packet could be sent, and IPsec has no association for them.
fn is_found_in_the_clear(frame: &[u8], link: LinkType, stack: &mut Stack) -> bool {
    dissect_into(frame, link, &Ports::NONE, stack);
    let word = |at: usize| frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    match stack.layers() {
        [.., ip, icmp] if ip.kind == Kind::Ipv6 && icmp.kind == Kind::Icmp => {
            let is_outermost = stack.layers().iter().filter(|layer| is_ip(layer.kind)).count() == 1;
            let message = frame.get(usize::from(icmp.offset)).copied().unwrap_or_default();
            let hops = usize::from(ip.offset) + ipv6::field::HOP_LIMIT.start;
            // Only a neighbor can send such a packet (RFC 4861 section 6.1).
            is_outermost && NEIGHBOUR_DISCOVERY.contains(&message) && frame.get(hops) == Some(&255)
        }
        [.., last] if matches!(last.kind, Kind::Ethernet | Kind::Vlan | Kind::Sll) => {
            word(last.end() - 2) == Some(ETHERTYPE_ARP)
        }
        _ => false,
    }
}

fn has_ip(stack: &Stack) -> bool {
    stack.layers().iter().any(|layer| is_ip(layer.kind))
}

fn is_ip(kind: Kind) -> bool {
    kind.is_ip()
}

/// Copies a frame into one slice.
fn gathered<'a>(packet: &'a mut Vec<u8>, slices: &[&[u8]]) -> &'a mut [u8] {
    packet.clear();
    slices.iter().for_each(|slice| packet.extend_from_slice(slice));
    packet
}

/// EtherType of ARP (RFC 826).
const ETHERTYPE_ARP: u16 = 0x0806;
/// ICMPv6 types from router solicitation to redirect (RFC 4861 section 4).
const NEIGHBOUR_DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;
