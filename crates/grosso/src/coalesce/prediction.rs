//! Header prediction: the headers that the next packet of a flow will have.
//!
//! Once the laws of a train are settled, which takes two packets, they say of every further one what
//! its headers are: the sequence number goes on, identifications step or stay, the checksums of IPv4
//! headers follow, and everything else is as it was. A packet that has these headers obeys every law
//! at once, and one masked comparison and that of a few numbers show it; only the checksums over its
//! payload are still to be looked at. A packet that has others is compared law by law.
//!
//! A prediction outlives its train. Between trains a flow's acknowledgments, window, timestamps and numbers
//! change, and its headers have the same form: a packet that resembles the others in all else can start a train without
//! being parsed, and what comes behind it is predicted at once.

use arrayvec::ArrayVec;
use grosso_checksum::{Sum, incremented};
use grosso_wire::ipv4;

use crate::{
    bytes::{byte_at, u16_at, u32_at, u64_at},
    checksum::Checksum,
    coalesce::{
        Rules, Vary,
        examine::{Candidate, verify_apart},
        prediction_id::PredictionId,
        shape_id::ShapeId,
        shapes::{Known, Shapes},
        train_id::TrainId,
    },
    flow::FlowHash,
    meta::{IpLevels, Meta, VlanTag},
    segment::IP_LEVELS_MAX,
    template::{compare::USUAL_BYTES, render::pseudo_of, shape::Shape},
};

/// The next packet of one flow: byte for byte that of its train, and by its form that of a train to come.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    /// The hash of the flow.
    pub(super) flow: FlowHash,
    /// The train; none since it left.
    pub(super) train: TrainId,
    /// Number of such packets that the train takes.
    pub(super) room: u16,
    /// Place of the prediction that followed this one.
    pub(super) follower: PredictionId,
    /// Bytes of the packet, with its headers; zero where nothing is predicted.
    pub(super) len: usize,
    pub(super) header_len: u16,
    /// Start of the ports.
    transport: u16,
    ports: u32,
    /// The place of its headers among the known ones.
    pub(super) known: ShapeId,
    vlan: Option<VlanTag>,
    /// The sequence number; UDP has none.
    sequence: Option<Sequence>,
    identifications: ArrayVec<Identification, IP_LEVELS_MAX>,
    /// The IP levels whose identification stays.
    pub(super) fixed_ids: IpLevels,
    /// Values that the checksums over the payload must have, or not have.
    forms: ArrayVec<Form, CHECKSUMS_MAX>,
    /// The only checksum over the payload that is complete; `None` if there are more.
    single: Option<Single>,
    /// Whether the innermost checksum is partial.
    is_partial: bool,
    /// Whether more is known of the train than the exact laws ask, and whether that is a summary of what its packets
    /// acknowledge.
    pub(super) is_watched: bool,
    pub(super) is_summed: bool,
    /// Headers that are equal where the mask says so.
    header: [u8; HEADER_BYTES_MAX],
}

/// A packet that joined a train, alone, and behind which the next one is known: what is known of both, whatever their
/// buffers are.
#[derive(Debug)]
pub(super) struct Joined<'a> {
    /// The slot of the train.
    pub(super) slot: TrainId,
    pub(super) flow: FlowHash,
    /// The place of its headers among the known ones, and these.
    pub(super) id: ShapeId,
    pub(super) known: &'a Known,
    pub(super) rules: &'a Rules,
    pub(super) vlan: Option<VlanTag>,
    pub(super) packets: u16,
    pub(super) payload_len: usize,
    pub(super) size: usize,
    pub(super) fixed_ids: IpLevels,
    pub(super) is_partial: bool,
    /// Whether more is known of the train than the exact laws ask: what its packets acknowledge, or how long it pays.
    pub(super) is_watched: bool,
    /// The first packet of the train, and the one that joined.
    pub(super) first: &'a [u8],
    pub(super) last: &'a [u8],
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
    /// Place of the identification.
    at: u16,
    numbers: IpNumbers,
    /// From the numbers of one packet to those of the next.
    step: u64,
}

/// The word of an IPv4 header that begins with the identification and ends with the checksum; of what is in between
/// nothing varies along a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IpNumbers(u64);

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

impl Prediction {
    /// Whether a packet is the next one of the train, which has room for it.
    #[inline(always)]
    pub(super) fn is_next(&self, packet: &[u8], meta: &Meta, shapes: &Shapes) -> bool {
        self.known_if_next(packet, meta, shapes)
            .is_some_and(|known| self.checksums_agree(packet, meta, known))
    }

    /// The same of a packet whose checksums were looked at.
    pub(super) fn is_next_of_examined(
        &self,
        packet: &[u8],
        meta: &Meta,
        candidate: &Candidate,
        shapes: &Shapes,
    ) -> bool {
        let is_next = self.known_if_next(packet, meta, shapes).is_some();
        is_next && candidate.partial == self.is_partial && self.forms_hold(packet)
    }

    /// The headers of a packet that is the next one of the train if its checksums are right.
    #[inline(always)]
    fn known_if_next<'a>(
        &self,
        packet: &[u8],
        meta: &Meta,
        shapes: &'a Shapes,
    ) -> Option<&'a Known> {
        if self.room == 0 || !self.is_alike_outside(packet, meta) || !self.follows(packet) {
            return None;
        }
        let known = shapes.get(self.known)?;
        let is_next =
            known.predicted.agrees(&self.header, packet) && self.identifications_follow(packet);
        is_next.then_some(known)
    }

    /// Whether a packet has the form of those of its flow that were in trains, and the same length: it is in one as
    /// well, and needs neither be parsed nor examined.
    #[inline(always)]
    pub(super) fn is_resembled_by(&self, packet: &[u8], meta: &Meta, shapes: &Shapes) -> bool {
        if !self.is_alike_outside(packet, meta) {
            return false;
        }
        let Some(known) = shapes.get(self.known) else { return false };
        known.recurring.agrees(&self.header, packet)
            && self.ip_checksums_hold(packet)
            && self.checksums_agree(packet, meta, known)
    }

    /// Whether a packet has these ports where this flow has its own.
    #[inline(always)]
    pub(super) fn has_ports_of(&self, packet: &[u8]) -> bool {
        self.ports == u32_at(packet, self.transport.into())
    }

    /// Whether a packet has the same headers, of the same flow, whatever their varying fields say.
    #[inline(always)]
    pub(super) fn has_headers_of(&self, packet: &[u8], known: &Known) -> bool {
        packet.len() >= self.header_len.into()
            && self.len > 0
            && known.identity.agrees(&self.header, packet)
    }

    /// The sequence number of the next packet; UDP has none.
    #[inline(always)]
    pub(super) fn sequence(&self) -> Option<u32> {
        self.sequence.map(|next| next.value)
    }

    /// Payload bytes of a packet.
    #[inline(always)]
    pub(super) fn payload_len(&self) -> usize {
        self.len - usize::from(self.header_len)
    }

    /// A packet that resembles, as examining it would give it.
    #[inline(always)]
    pub(super) fn candidate(&self, packet: &[u8], shape: &Shape) -> Candidate {
        let payload_len = self.payload_len();
        Candidate {
            payload_len,
            flags: shape.flags.map_or(0, |at| byte_at(packet, at.into())),
            packets: 1,
            size: payload_len as u16,
            short_tail: false,
            partial: self.is_partial,
            fixed_ids: IpLevels::NONE,
        }
    }

    /// Predicts what comes behind a packet that joined a train.
    pub(super) fn predict(&mut self, joined: &Joined<'_>) {
        let &Joined { known, rules, size, first, last, .. } = joined;
        let shape = &known.shape;
        // A second packet without payload that says the same is never joined.
        let is_whole = size > 0 && last.len() == shape.header_len + size;
        let can_be = shape.header_len <= HEADER_BYTES_MAX
            && shape.identifications.len() <= IP_LEVELS_MAX
            && shape.covers.len() <= CHECKSUMS_MAX;
        let Some(header) = last.get(..shape.header_len).filter(|_| is_whole && can_be) else {
            return self.forget();
        };
        self.flow = joined.flow;
        self.train = joined.slot;
        self.header[..header.len()].copy_from_slice(header);
        self.header_len = header.len() as u16;
        self.len = last.len();
        self.transport = shape.transport as u16;
        self.ports = u32_at(header, shape.transport);
        self.room = room(known, joined.packets, joined.payload_len, size);
        self.known = joined.id;
        self.vlan = joined.vlan;
        self.sequence = shape.sequence.map(|at| Sequence { at, value: u32_at(header, at.into()) });
        let numbers = shape.identifications.iter().map(|ip| {
            let at = usize::from(ip.header) + ipv4::field::IDENTIFICATION.start;
            let steps = match rules.identification {
                Vary::Equal => !joined.fixed_ids.contains(ip.level.into()),
                Vary::First | Vary::Latest => u16_at(header, at) != u16_at(first, at),
            };
            let step = if steps { STEP } else { 0 };
            Identification { at: at as u16, numbers: IpNumbers::read(header, at), step }
        });
        self.identifications.clear();
        self.identifications.extend(numbers);
        self.fixed_ids = joined.fixed_ids;
        self.forms.clear();
        self.forms.extend(forms(shape, last, joined.is_partial));
        self.single = Single::of(joined);
        self.is_partial = joined.is_partial;
        self.is_watched = joined.is_watched;
        self.is_summed = !known.is_invertible;
        self.step(size);
    }

    /// Goes on behind a packet that resembles the others, and which started a train.
    #[inline(always)]
    pub(super) fn go_on(&mut self, slot: TrainId, packet: &[u8], known: &Known) {
        let size = self.payload_len();
        self.train = slot;
        self.room = room(known, 1, size, size);
        self.take_header(packet);
        if let Some(sequence) = &mut self.sequence {
            sequence.value = u32_at(packet, sequence.at.into());
        }
        for ip in &mut self.identifications {
            ip.numbers = IpNumbers::read(packet, ip.at.into());
        }
        self.step(size);
    }

    /// Ends the train. What is known of the flow stays.
    #[inline(always)]
    pub(super) fn end_train(&mut self) {
        self.train = TrainId::NONE;
        self.room = 0;
    }

    /// Predicts nothing any more.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.end_train();
        self.len = 0;
    }

    /// From the numbers of one packet with so much payload to those of the next.
    #[inline(always)]
    pub(super) fn step(&mut self, payload_len: usize) {
        if let Some(sequence) = &mut self.sequence {
            sequence.value = sequence.value.wrapping_add(payload_len as u32);
        }
        // Most packets have one, for which no loop is wanted.
        match &mut self.identifications[..] {
            [only] => only.step(),
            several => several.iter_mut().for_each(Identification::step),
        }
    }

    /// Whether length and metadata are the same.
    #[inline(always)]
    fn is_alike_outside(&self, packet: &[u8], meta: &Meta) -> bool {
        self.len == packet.len() && self.vlan == meta.vlan && meta.gso.is_none()
    }

    /// Whether a packet has the next sequence number.
    #[inline(always)]
    fn follows(&self, packet: &[u8]) -> bool {
        self.sequence.is_none_or(|next| u32_at(packet, next.at.into()) == next.value)
    }

    /// Whether the identifications of a packet are the next ones, and the checksums beside them.
    #[inline(always)]
    fn identifications_follow(&self, packet: &[u8]) -> bool {
        match &self.identifications[..] {
            [only] => only.is_in(packet),
            several => several.iter().all(|next| next.is_in(packet)),
        }
    }

    /// Whether the checksums of IPv4 headers are right that differ from these in nothing but their identification.
    #[inline(always)]
    fn ip_checksums_hold(&self, packet: &[u8]) -> bool {
        for next in &self.identifications {
            let numbers = IpNumbers::read(packet, next.at.into());
            // The complement of a header's sum is never all ones, so cutting would not write this form again.
            if numbers.checksum() == 0xffff || numbers.sum() != next.numbers.sum() {
                return false;
            }
        }
        true
    }

    /// Whether the checksums over the payload are there as in other packets of the flow, and right.
    #[inline(always)]
    fn checksums_agree(&self, packet: &[u8], meta: &Meta, known: &Known) -> bool {
        match (&meta.checksum, &self.single) {
            (Checksum::Unnecessary { .. }, Some(single)) => single.form.holds(packet),
            (Checksum::None, Some(single)) => single.form.holds(packet) && single.is_valid(packet),
            (Checksum::Unnecessary { levels }, None)
                if !self.is_partial && usize::from(*levels) + 1 >= self.forms.len() =>
            {
                self.forms_hold(packet)
            }
            (state, _) => self.forms_hold(packet) && self.is_verified(packet, state, known),
        }
    }

    /// Whether checksums of the right forms are right.
    #[inline(always)]
    fn is_verified(&self, packet: &[u8], state: &Checksum, known: &Known) -> bool {
        let Checksum::Partial { start, offset } = *state else {
            return verify_apart(packet, &known.shape, state) == Ok(self.is_partial);
        };
        // Of packets with equal addresses and lengths the pseudo-header is the same, and so is the seed, whose form is
        // its value.
        let is_right = self.is_partial
            && known.shape.covers.last().is_some_and(|transport| {
                (start, start.wrapping_add(offset)) == (transport.start, transport.at)
            });
        debug_assert!(!is_right || verify_apart(packet, &known.shape, state) == Ok(true));
        is_right
    }

    #[inline(always)]
    fn forms_hold(&self, packet: &[u8]) -> bool {
        self.forms.iter().all(|form| form.holds(packet))
    }

    #[inline(always)]
    fn take_header(&mut self, packet: &[u8]) {
        // Most headers are copied in one piece whose length the compiler knows.
        if usize::from(self.header_len) <= USUAL_BYTES
            && let Some(usual) = packet.first_chunk::<USUAL_BYTES>()
        {
            self.header[..USUAL_BYTES].copy_from_slice(usual);
            return;
        }
        let header = packet.get(..self.header_len.into()).unwrap_or_default();
        self.header[..header.len()].copy_from_slice(header);
    }
}

impl Identification {
    #[inline(always)]
    fn is_in(&self, packet: &[u8]) -> bool {
        IpNumbers::read(packet, self.at.into()) == self.numbers
    }

    #[inline(always)]
    fn step(&mut self) {
        self.numbers = self.numbers.stepped(self.step);
    }
}

impl IpNumbers {
    /// The numbers of a header whose identification is at this place.
    #[inline(always)]
    fn read(packet: &[u8], at: usize) -> Self {
        Self(u64_at(packet, at))
    }

    /// Those of the next packet: as the identification grows by one, the checksum shrinks by one.
    #[inline(always)]
    fn stepped(self, step: u64) -> Self {
        let Self(word) = self;
        if word as u16 == 0 || word >= LAST_IDENTIFICATION {
            return self.stepped_around(step);
        }
        Self(word.wrapping_add(step))
    }

    /// The same where one of the numbers wraps.
    #[cold]
    fn stepped_around(self, step: u64) -> Self {
        let Self(word) = self;
        match step {
            0 => self,
            // The step to zero leaves the sum as it is.
            _ if word >= LAST_IDENTIFICATION => Self(word - LAST_IDENTIFICATION),
            _ => Self((word + (STEP + 1)) & !0xffff | u64::from(incremented(self.checksum()))),
        }
    }

    #[inline(always)]
    fn checksum(self) -> u16 {
        self.0 as u16
    }

    /// The ones' complement sum of identification and checksum. It tells zero from its other form, which makes two sums
    /// differ at most that are one.
    #[inline(always)]
    fn sum(self) -> u64 {
        let Self(word) = self;
        let sum = (word >> IDENTIFICATION_SHIFT) + (word & 0xffff);
        (sum & 0xffff) + (sum >> 16)
    }
}

/// Number of packets with so much payload that a train takes yet.
#[inline]
fn room(known: &Known, packets: u16, payload_len: usize, size: usize) -> u16 {
    let Known { shape, bounds, .. } = known;
    let bytes_left = bounds.payload_max.saturating_sub(payload_len);
    // The last packet of a train of datagrams ends it.
    let last = u16::from(!shape.is_tcp);
    let packets_left = bounds.packets_max.saturating_sub(packets).saturating_sub(last);
    packets_left.min(u16::try_from(bytes_left / size).unwrap_or(u16::MAX))
}

/// Values of the checksums over the payload of a train, one of whose packets this is, and the innermost of which may be
/// partial.
#[inline]
fn forms(shape: &Shape, packet: &[u8], is_partial: bool) -> impl Iterator<Item = Form> {
    let is_seed = is_partial || shape.remote_checksum.is_some();
    shape.covers.iter().enumerate().map(move |(index, covering)| {
        let is_transport = index + 1 == shape.covers.len();
        let field = u16_at(packet, covering.at.into());
        let (value, is_equal) = match covering.zero_means_none {
            // What is completed later is a seed, which has no payload in it (rule C50).
            _ if is_transport && is_seed => (field, true),
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
    fn of(joined: &Joined<'_>) -> Option<Self> {
        let (shape, packet) = (&joined.known.shape, joined.last);
        let [covering] = &shape.covers[..] else { return None };
        let is_left = joined.is_partial || shape.remote_checksum.is_some();
        let len = packet.len() - usize::from(covering.start);
        let form = forms(shape, packet, false).next().filter(|_| !is_left)?;
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
            flow: FlowHash::NONE,
            train: TrainId::NONE,
            room: 0,
            follower: PredictionId::NONE,
            len: 0,
            header_len: 0,
            transport: 0,
            ports: 0,
            known: ShapeId::default(),
            vlan: None,
            sequence: None,
            identifications: ArrayVec::new_const(),
            fixed_ids: IpLevels::NONE,
            forms: ArrayVec::new_const(),
            single: None,
            is_partial: false,
            is_watched: false,
            is_summed: false,
            header: [0; HEADER_BYTES_MAX],
        }
    }
}

/// Bits of [`IpNumbers`] behind the identification.
const IDENTIFICATION_SHIFT: u32 = 48;

/// One more of the identification, one less of the checksum.
const STEP: u64 = (1 << IDENTIFICATION_SHIFT) - 1;

/// The least [`IpNumbers`] whose identification does not grow but wraps.
const LAST_IDENTIFICATION: u64 = 0xffff << IDENTIFICATION_SHIFT;

/// Maximum length in bytes of headers that are predicted: those of TCP with timestamps in VXLAN over IPv6. Nothing is
/// predicted of trains with longer ones.
const HEADER_BYTES_MAX: usize = 160;

/// Most checksums over the payload of a packet of which something is predicted: one of each tunnel that has one, and
/// the transport's.
const CHECKSUMS_MAX: usize = 6;
