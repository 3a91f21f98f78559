//! The headers that the next packet of a train will have, byte for byte.
//!
//! Once the laws of a train are settled, which takes two packets, they say of every further one what
//! its headers are: the sequence number goes on, identifications step or stay, the checksums of IPv4
//! headers follow, and everything else is as it was. A packet that has these headers obeys every law
//! at once, and one masked comparison shows it; only the checksums over its payload are still to be
//! looked at. A packet that has others is compared law by law.

use alloc::vec::Vec;

use grosso_checksum::update;
use grosso_wire::ipv4;

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    coalesce::{
        Coalescer, Part, Pass, Sink, Verdict,
        examine::verify,
        reason::Close,
        shapes::{Known, Shapes},
        train::Train,
    },
    frame::Frame,
    meta::{IpLevels, Meta},
    template::shape::Shape,
};

/// What is foreseen of each held train, by its slot.
#[derive(Debug, Default)]
pub(crate) struct Forecasts {
    slots: Vec<Forecast>,
}

/// The next packet of one train.
#[derive(Clone, Debug)]
struct Forecast {
    /// Bytes of the packet, with its headers; zero where nothing is foreseen.
    len: usize,
    /// How many such packets the train takes.
    room: u16,
    /// The place of its headers among the known ones.
    known: usize,
    header: [u8; HEADER_BYTES_MAX],
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Whether a packet is the one that comes next in a train, and may join it at once.
    #[inline(always)]
    pub(super) fn is_foreseen(&self, slot: u32, packet: &[u8], meta: &Meta) -> bool {
        if let Some(known) = self.forecasts.agrees(slot, packet, &self.shapes)
            && let Some(Known { shape, .. }) = self.shapes.get(known)
            && let Some(train) = self.trains.train(slot)
        {
            meta.gso.is_none()
                && meta.vlan == train.meta.vlan
                && train.tunnel_checksums_agree(packet, shape)
                && verify(packet, shape, &meta.checksum) == Ok(train.partial)
        } else {
            false
        }
    }

    /// Takes the packet that comes next in a train.
    #[inline(always)]
    pub(super) fn join_foreseen(
        &mut self,
        slot: u32,
        frame: Frame<B>,
        now_ns: u64,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        let Some((train, known)) = self.trains.train_mut(slot).and_then(|train| {
            let known = self.shapes.get(train.known)?;
            Some((train, known))
        }) else {
            return self.pass(frame, Pass::Protocol, sink);
        };
        let payload = known.shape.header_len..frame.buffer.as_ref().len();
        let payload_len = payload.len();
        if let Err(part) = self.pool.push(&mut train.rest, Part::new(frame.buffer, payload)) {
            let frame = Frame { buffer: part.buffer, ..frame };
            let place = train.known;
            self.close(slot, Close::PartsFull, sink);
            return self.push_known(frame, place, None, now_ns, sink);
        }
        train.packets += 1;
        train.payload_len += payload_len;
        self.forecasts.advance(slot, &known.shape, train.fixed_ids);
        self.recent = (self.previous == Some(slot)).then_some(slot);
        self.previous = Some(slot);
        Verdict::Joined
    }
}

impl Forecasts {
    /// The place of a packet's headers among the known ones, if they are those that come next in the
    /// train of this slot, and it has room.
    #[inline(always)]
    pub(crate) fn agrees(&self, slot: u32, packet: &[u8], shapes: &Shapes) -> Option<usize> {
        let next = self.slots.get(slot as usize)?;
        let is_next = next.len == packet.len()
            && next.room > 0
            && shapes.get(next.known)?.foreseen.agrees(&next.header, packet);
        is_next.then_some(next.known)
    }

    /// Goes on behind a packet that was as foreseen.
    #[inline(always)]
    pub(crate) fn advance(&mut self, slot: u32, shape: &Shape, fixed_ids: IpLevels) {
        if let Some(next) = self.slots.get_mut(slot as usize) {
            next.room -= 1;
            next.step(shape, fixed_ids);
        }
    }

    /// Foresees what comes behind `last`, which joined the train of this slot as one packet.
    #[inline]
    pub(crate) fn foresee<B>(&mut self, slot: u32, train: &Train<B>, known: &Known, last: &[u8]) {
        let Known { shape, bounds, .. } = known;
        let size = usize::from(train.size);
        let is_whole = last.len() == shape.header_len + size;
        let header = last.get(..shape.header_len).filter(|_| is_whole);
        let Some(header) = header.filter(|header| header.len() <= HEADER_BYTES_MAX) else {
            return self.forget(slot);
        };
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, Forecast::default);
        }
        let bytes_left = bounds.payload_max.saturating_sub(train.payload_len);
        let packets_left = bounds.packets_max.saturating_sub(train.packets);
        // The last packet of a train of datagrams ends it.
        let packets_left = packets_left.saturating_sub(u16::from(!shape.is_tcp));
        let next = &mut self.slots[slot as usize];
        next.header[..header.len()].copy_from_slice(header);
        next.len = last.len();
        next.room = packets_left.min(u16::try_from(bytes_left / size.max(1)).unwrap_or(u16::MAX));
        next.known = train.known;
        next.step(shape, train.fixed_ids);
    }

    /// Foresees nothing any more.
    #[inline]
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(next) = self.slots.get_mut(slot as usize) {
            next.len = 0;
        }
    }
}

impl Forecast {
    /// From the headers of one packet to those of the next.
    #[inline(always)]
    fn step(&mut self, shape: &Shape, fixed_ids: IpLevels) {
        if let Some(at) = shape.sequence {
            let payload_len = self.len - shape.header_len;
            let sequence = u32_at(&self.header, at.into());
            put_u32(&mut self.header, at.into(), sequence.wrapping_add(payload_len as u32));
        }
        for ip in &shape.identifications {
            if fixed_ids.contains(ip.level.into()) {
                continue;
            }
            let at = usize::from(ip.header) + ipv4::field::IDENTIFICATION.start;
            let checksum_at = usize::from(ip.header) + ipv4::field::CHECKSUM.start;
            let (old, checksum) = (u16_at(&self.header, at), u16_at(&self.header, checksum_at));
            let new = old.wrapping_add(1);
            put_u16(&mut self.header, at, new);
            put_u16(&mut self.header, checksum_at, update(checksum, old, new));
        }
    }
}

impl Default for Forecast {
    fn default() -> Self {
        Self { len: 0, room: 0, known: 0, header: [0; HEADER_BYTES_MAX] }
    }
}

/// Most bytes of headers that are foreseen: those of TCP with timestamps in VXLAN over IPv6. Nothing
/// is foreseen of trains with longer ones.
const HEADER_BYTES_MAX: usize = 160;
