//! Header prediction: the headers that the next packet of a train will have, byte for byte.
//!
//! Once the laws of a train are settled, which takes two packets, they say of every further one what
//! its headers are: the sequence number goes on, identifications step or stay, the checksums of IPv4
//! headers follow, and everything else is as it was. A packet that has these headers obeys every law
//! at once, and one masked comparison and that of a few numbers show it; only the checksums over its
//! payload are still to be looked at. A packet that has others is compared law by law.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use grosso_checksum::{Sum, incremented};
use grosso_wire::{LAYERS_MAX, ipv4};

use crate::{
    bytes::{u16_at, u32_at},
    checksum::Checksum,
    coalesce::{
        Rules, Vary,
        examine::verify,
        shape_id::ShapeId,
        shapes::{Known, Shapes},
        train::{Train, Trains},
        train_id::TrainId,
    },
    meta::{Meta, VlanTag},
    template::{render::pseudo_of, shape::Shape},
};

/// The prediction of each held train, by its slot.
#[derive(Debug, Default)]
pub(crate) struct Predictions {
    slots: Vec<Prediction>,
}

/// The next packet of one train.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    /// Bytes of the packet, with its headers; zero where nothing is predicted.
    pub(super) len: usize,
    /// Number of such packets that the train takes.
    pub(super) room: u16,
    pub(super) header_len: u16,
    /// The place of its headers among the known ones.
    pub(super) known: ShapeId,
    vlan: Option<VlanTag>,
    /// The sequence number; UDP has none.
    sequence: Option<Sequence>,
    identifications: ArrayVec<Identification, LAYERS_MAX>,
    /// Values that the checksums over the payload must have, or not have.
    forms: ArrayVec<Form, LAYERS_MAX>,
    /// The only checksum over the payload that is complete; `None` if there are more.
    single: Option<Single>,
    /// Whether the innermost checksum is partial.
    is_partial: bool,
    /// Headers that are equal where the mask says so.
    header: [u8; HEADER_BYTES_MAX],
}

// What changes from packet to packet is beside the header: a vector loaded from where a word was just written waits for
// the word to arrive in the cache.

/// The sequence number of the next packet.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    at: u16,
    value: u32,
}

/// The identification of one IPv4 header of the next packet, and its checksum.
#[derive(Clone, Copy, Debug)]
struct Identification {
    /// Start of the header.
    header: u16,
    value: u16,
    checksum: u16,
    steps: bool,
}

/// Value of a checksum field along a train, whatever the payload is: a value, or anything but that.
#[derive(Clone, Copy, Debug)]
struct Form {
    at: u16,
    value: u16,
    is_equal: bool,
}

/// A checksum that nothing but the payload makes differ from packet to packet.
#[derive(Clone, Copy, Debug)]
struct Single {
    form: Form,
    /// From where it sums.
    start: u16,
    /// The sum of the pseudo-header.
    pseudo: Sum,
}

impl Predictions {
    /// Whether a packet is the next one in the train of this slot, which has room for it.
    #[inline(always)]
    pub(super) fn agrees<B: AsRef<[u8]>>(
        &self,
        slot: TrainId,
        packet: &[u8],
        meta: &Meta,
        shapes: &Shapes,
        trains: &Trains<B>,
    ) -> bool {
        let Some(next) = self.slots.get(slot.slot()) else { return false };
        if next.len != packet.len()
            || next.room == 0
            || next.vlan != meta.vlan
            || meta.gso.is_some()
        {
            return false;
        }
        let Some(known) = shapes.get(next.known) else { return false };
        if !known.predicted.agrees(&next.header, packet) || !next.numbers_agree(packet) {
            return false;
        }
        match (&meta.checksum, &next.single) {
            (Checksum::Unnecessary { .. }, Some(single)) => single.form.holds(packet),
            (Checksum::None, Some(single)) => single.form.holds(packet) && single.is_valid(packet),
            (Checksum::Unnecessary { levels }, None)
                if !next.is_partial && usize::from(*levels) + 1 >= next.forms.len() =>
            {
                next.forms.iter().all(|form| form.holds(packet))
            }
            (state, _) => trains.held(slot).is_some_and(|train| {
                train.tunnel_checksums_agree(packet, &known.shape)
                    && verify(packet, &known.shape, state) == Ok(train.partial)
            }),
        }
    }

    #[inline(always)]
    pub(super) fn next(&mut self, slot: TrainId) -> Option<&mut Prediction> {
        self.slots.get_mut(slot.slot())
    }

    /// Predicts what comes behind `last`, which joined the train of this slot as one packet.
    #[inline]
    pub(crate) fn predict<B: AsRef<[u8]>>(
        &mut self,
        slot: TrainId,
        train: &Train<B>,
        known: &Known,
        rules: &Rules,
        last: &[u8],
    ) {
        let Known { shape, bounds, .. } = known;
        let size = usize::from(train.size);
        // A second packet without payload that says the same is never joined.
        let is_whole = size > 0 && last.len() == shape.header_len + size;
        let header = last.get(..shape.header_len).filter(|_| is_whole);
        let Some(header) = header.filter(|header| header.len() <= HEADER_BYTES_MAX) else {
            return self.forget(slot);
        };
        if self.slots.len() <= slot.slot() {
            self.slots.resize_with(slot.slot() + 1, Prediction::default);
        }
        let bytes_left = bounds.payload_max.saturating_sub(train.payload_len);
        let packets_left = bounds.packets_max.saturating_sub(train.packets);
        // The last packet of a train of datagrams ends it.
        let packets_left = packets_left.saturating_sub(u16::from(!shape.is_tcp));
        let next = &mut self.slots[slot.slot()];
        next.header[..header.len()].copy_from_slice(header);
        next.header_len = header.len() as u16;
        next.len = last.len();
        next.room = packets_left.min(u16::try_from(bytes_left / size).unwrap_or(u16::MAX));
        next.known = train.known;
        next.vlan = train.meta.vlan;
        next.sequence = shape.sequence.map(|at| Sequence { at, value: u32_at(header, at.into()) });
        let numbers = shape.identifications.iter().map(|ip| {
            let start = usize::from(ip.header);
            let at = start + ipv4::field::IDENTIFICATION.start;
            let value = u16_at(header, at);
            Identification {
                header: ip.header,
                value,
                checksum: u16_at(header, start + ipv4::field::CHECKSUM.start),
                steps: match rules.identification {
                    Vary::Equal => !train.fixed_ids.contains(ip.level.into()),
                    Vary::First | Vary::Latest => value != u16_at(train.first.buffer.as_ref(), at),
                },
            }
        });
        next.identifications.clear();
        next.identifications.extend(numbers);
        next.forms.clear();
        next.forms.extend(forms(shape, last));
        next.single = Single::of(train, known, last);
        next.is_partial = train.partial;
        next.step(size);
    }

    /// Predicts nothing any more.
    #[inline]
    pub(crate) fn forget(&mut self, slot: TrainId) {
        if let Some(next) = self.slots.get_mut(slot.slot()) {
            next.len = 0;
        }
    }
}

impl Prediction {
    /// Whether a packet has the numbers that change from packet to packet.
    #[inline(always)]
    fn numbers_agree(&self, packet: &[u8]) -> bool {
        let follows = |sequence: Sequence| u32_at(packet, sequence.at.into()) == sequence.value;
        if !self.sequence.is_none_or(follows) {
            return false;
        }
        // A loop, because the compiler makes a call of a closure that stands in so many places.
        for next in &self.identifications {
            let start = usize::from(next.header);
            // One check of the length for both numbers.
            let Some(header) = packet.get(start..start + ipv4::HEADER_LEN) else { return false };
            if u16_at(header, ipv4::field::IDENTIFICATION.start) != next.value
                || u16_at(header, ipv4::field::CHECKSUM.start) != next.checksum
            {
                return false;
            }
        }
        true
    }

    /// From the numbers of one packet with so much payload to those of the next.
    #[inline(always)]
    pub(super) fn step(&mut self, payload_len: usize) {
        if let Some(sequence) = &mut self.sequence {
            sequence.value = sequence.value.wrapping_add(payload_len as u32);
        }
        for next in &mut self.identifications {
            if next.steps {
                next.value = next.value.wrapping_add(1);
                if next.value != 0 {
                    next.checksum = incremented(next.checksum);
                }
            }
        }
    }
}

/// Values of the checksums over the payload of a train, one of whose packets this is.
#[inline]
fn forms(shape: &Shape, packet: &[u8]) -> impl Iterator<Item = Form> {
    shape.covers.iter().enumerate().map(|(index, covering)| {
        let is_transport = index + 1 == shape.covers.len();
        let field = u16_at(packet, covering.at.into());
        let (value, is_equal) = match covering.zero_means_none {
            // The receiver completes what is a seed, and the seed has no payload in it (rule C50).
            _ if is_transport && shape.remote_checksum.is_some() => (field, true),
            // Tunnel packets with and without a checksum do not mix (rule T2).
            true => (0, field == 0),
            // A complement of a sum that is never zero; cutting would not write it again.
            false => (0xffff, false),
        };
        Form { at: covering.at, value, is_equal }
    })
}

impl Form {
    #[inline(always)]
    fn holds(&self, packet: &[u8]) -> bool {
        (u16_at(packet, self.at.into()) == self.value) == self.is_equal
    }
}

impl Single {
    /// The only checksum of a packet of this train over its payload.
    #[inline]
    fn of<B>(train: &Train<B>, known: &Known, packet: &[u8]) -> Option<Self> {
        let shape = &known.shape;
        let [covering] = &shape.covers[..] else { return None };
        let is_left = train.partial || shape.remote_checksum.is_some();
        let len = packet.len() - usize::from(covering.start);
        let form = forms(shape, packet).next().filter(|_| !is_left)?;
        Some(Self { form, start: covering.start, pseudo: pseudo_of(covering, packet, len) })
    }

    #[inline(always)]
    fn is_valid(&self, packet: &[u8]) -> bool {
        let sum = packet.get(self.start.into()..).map_or(Sum::ZERO, Sum::of);
        (sum + self.pseudo).is_valid()
    }
}

impl Default for Prediction {
    fn default() -> Self {
        Self {
            len: 0,
            room: 0,
            header_len: 0,
            known: ShapeId::default(),
            vlan: None,
            sequence: None,
            identifications: ArrayVec::new_const(),
            forms: ArrayVec::new_const(),
            single: None,
            is_partial: false,
            header: [0; HEADER_BYTES_MAX],
        }
    }
}

/// Most bytes of headers that are predicted: those of TCP with timestamps in VXLAN over IPv6. Nothing
/// is predicted of trains with longer ones.
const HEADER_BYTES_MAX: usize = 160;
