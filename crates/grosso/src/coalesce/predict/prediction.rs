//! Header prediction: the headers expected in the next packet of a flow.
//!
//! The first two packets of a train determine the headers of every further packet: the sequence number advances,
//! identifications increase or stay fixed, the IPv4 header checksums change accordingly, and everything else stays the
//! same. One masked comparison and a few comparisons of numbers show that a packet has these headers and therefore fits
//! into the train; only the checksums over the payload remain to be verified. For any other packet, each condition is
//! checked separately.
//!
//! A prediction outlives its train. Between the trains of a flow, sequence numbers, identifications, acknowledgments,
//! windows and timestamps change, but the layout of the headers does not. A packet that otherwise resembles the earlier
//! packets can start a train without being parsed, and the packets after it are predicted immediately.

use arrayvec::ArrayVec;
use grosso_checksum::{Sum, incremented};
use grosso_wire::ipv4;

use crate::{
    bytes::{byte_at, u16_at, u32_at, u64_at},
    checksum::Checksum,
    coalesce::{
        profile::{Rules, Vary},
        rx::{
            examine::{Candidate, verify_apart},
            shapes::{CachedStack, Shapes},
        },
        slots::{prediction_id::PredictionId, shape_id::ShapeId, train_id::TrainId},
    },
    flow::FlowHash,
    meta::{IpLevels, Meta, VlanTag},
    segment::IP_LEVELS_MAX,
    template::{compare::USUAL_BYTES, render::pseudo_of, shape::Shape},
};

/// Prediction of the next packet of a flow. It gives every header byte of a packet that continues the train, and only
/// the shape of the headers of one that starts the next train.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    pub(crate) flow: FlowHash,
    /// Train of the flow, or `NONE` after its delivery.
    pub(crate) train: TrainId,
    /// Number of further predicted packets that fit into the train.
    pub(crate) room: u16,
    /// Prediction that matched the next packet, of any flow, after this flow's previous packet.
    pub(crate) follower: PredictionId,
    /// Length of the packet including headers; zero if nothing is predicted.
    pub(crate) len: usize,
    pub(crate) header_len: u16,
    /// Offset of the ports.
    transport: u16,
    ports: u32,
    /// ID of the headers.
    pub(crate) known: ShapeId,
    vlan: Option<VlanTag>,
    /// Sequence number, or `None` for UDP.
    sequence: Option<Sequence>,
    identifications: ArrayVec<Identification, IP_LEVELS_MAX>,
    /// IP levels whose identification is fixed.
    pub(crate) fixed_ids: IpLevels,
    /// Permitted values of the checksums over the payload.
    forms: ArrayVec<Form, CHECKSUMS_MAX>,
    /// Complete checksum over the payload if there is only one, otherwise `None`.
    single: Option<Single>,
    /// Whether the innermost checksum is partial.
    is_partial: bool,
    /// Whether the train has state that the exact rules do not need.
    pub(crate) is_watched: bool,
    /// Whether this state includes a summary of acknowledgments.
    pub(crate) is_summed: bool,
    /// Expected headers, compared under the mask.
    header: [u8; HEADER_BYTES_MAX],
}

/// Packet that was appended to a train, with everything needed to predict the next one. The type is independent of the
/// buffer type.
#[derive(Debug)]
pub(crate) struct Joined<'a> {
    pub(crate) slot: TrainId,
    pub(crate) flow: FlowHash,
    /// ID of the headers.
    pub(crate) id: ShapeId,
    pub(crate) known: &'a CachedStack,
    pub(crate) rules: &'a Rules,
    pub(crate) vlan: Option<VlanTag>,
    pub(crate) packets: u16,
    pub(crate) payload_len: usize,
    pub(crate) size: usize,
    pub(crate) fixed_ids: IpLevels,
    pub(crate) is_partial: bool,
    /// Whether the train has state that the exact rules do not need.
    pub(crate) is_watched: bool,
    /// First packet of the train.
    pub(crate) first: &'a [u8],
    /// The appended packet.
    pub(crate) last: &'a [u8],
}

// Values that change with every packet are stored outside `header`, because loading a vector that contains a word
// written just before would stall until that word reaches the cache.

/// Sequence number of the next packet.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    at: u16,
    value: u32,
}

/// Identification and checksum of one IPv4 header in the next packet.
#[derive(Clone, Copy, Debug)]
struct Identification {
    /// Offset of the identification.
    at: u16,
    numbers: IpNumbers,
    /// Difference between the `numbers` of consecutive packets.
    step: u64,
}

/// Eight bytes of an IPv4 header, from the identification to the checksum. The bytes between these two fields are
/// constant within a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IpNumbers(u64);

/// Values that a checksum field may have within a train: either exactly one value, or all values but one.
#[derive(Clone, Copy, Debug)]
struct Form {
    at: u16,
    value: u16,
    is_equal: bool,
}

/// Checksum that differs between packets only because of their payload.
#[derive(Clone, Copy, Debug)]
struct Single {
    form: Form,
    /// Offset of the first byte in the sum.
    start: u16,
    /// Pseudo-header sum.
    pseudo: Sum,
}

impl Prediction {
    /// Returns whether a packet continues the train and the train has room for it.
    #[inline(always)]
    pub(crate) fn is_next(&self, packet: &[u8], meta: &Meta, shapes: &Shapes) -> bool {
        self.known_if_next(packet, meta, shapes)
            .is_some_and(|known| self.checksums_agree(packet, meta, known))
    }

    /// Returns whether a packet whose checksums have already been verified continues the train.
    pub(crate) fn is_next_of_examined(
        &self,
        packet: &[u8],
        meta: &Meta,
        candidate: &Candidate,
        shapes: &Shapes,
    ) -> bool {
        let is_next = self.known_if_next(packet, meta, shapes).is_some();
        is_next && candidate.partial == self.is_partial && self.forms_hold(packet)
    }

    /// Returns the headers of a packet if it continues the train. Checksums over the payload are not verified.
    #[inline(always)]
    fn known_if_next<'a>(
        &self,
        packet: &[u8],
        meta: &Meta,
        shapes: &'a Shapes,
    ) -> Option<&'a CachedStack> {
        if self.room == 0 || !self.is_alike_outside(packet, meta) || !self.follows(packet) {
            return None;
        }
        let known = shapes.get(self.known)?;
        let is_next =
            known.predicted.agrees(&self.header, packet) && self.identifications_follow(packet);
        is_next.then_some(known)
    }

    /// Returns whether a packet has the shape and length of earlier merged packets of its flow, so that it can be
    /// merged without being parsed or examined.
    #[inline(always)]
    pub(crate) fn is_resembled_by(&self, packet: &[u8], meta: &Meta, shapes: &Shapes) -> bool {
        if !self.is_alike_outside(packet, meta) {
            return false;
        }
        let Some(known) = shapes.get(self.known) else { return false };
        known.recurring.agrees(&self.header, packet)
            && self.ip_checksums_hold(packet)
            && self.checksums_agree(packet, meta, known)
    }

    /// Returns whether a packet has this flow's ports at the expected offset.
    #[inline(always)]
    pub(crate) fn has_ports_of(&self, packet: &[u8]) -> bool {
        self.ports == u32_at(packet, self.transport.into())
    }

    /// Returns whether a packet has the same headers and flow, ignoring fields that vary.
    #[inline(always)]
    pub(crate) fn has_headers_of(&self, packet: &[u8], known: &CachedStack) -> bool {
        packet.len() >= self.header_len.into()
            && self.len > 0
            && known.identity.agrees(&self.header, packet)
    }

    /// Returns the sequence number of the next packet, or `None` for UDP.
    pub(crate) fn sequence(&self) -> Option<u32> {
        self.sequence.map(|next| next.value)
    }

    /// Returns the number of payload bytes in a packet.
    pub(crate) fn payload_len(&self) -> usize {
        self.len - usize::from(self.header_len)
    }

    /// Returns the candidate that examining the packet would yield.
    #[inline(always)]
    pub(crate) fn candidate(&self, packet: &[u8], shape: &Shape) -> Candidate {
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

    /// Predicts the packet after the one that was last appended to a train.
    pub(crate) fn predict(&mut self, joined: &Joined<'_>) {
        let &Joined { known, rules, size, first, last, .. } = joined;
        let shape = &known.shape;
        // A second packet without payload and with the same fields never merges.
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

    /// Resumes predictions after a packet of this shape has started a train.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, slot: TrainId, packet: &[u8], known: &CachedStack) {
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

    /// Detaches the train, but keeps the state of the flow.
    #[inline(always)]
    pub(crate) fn end_train(&mut self) {
        self.train = TrainId::NONE;
        self.room = 0;
    }

    /// Clears the prediction.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.end_train();
        self.len = 0;
    }

    /// Advances the sequence number and identifications past one packet with this payload.
    #[inline(always)]
    pub(crate) fn step(&mut self, payload_len: usize) {
        if let Some(sequence) = &mut self.sequence {
            sequence.value = sequence.value.wrapping_add(payload_len as u32);
        }
        // Most packets have one IPv4 header, which is handled without a loop.
        match &mut self.identifications[..] {
            [only] => only.step(),
            several => several.iter_mut().for_each(Identification::step),
        }
    }

    /// Returns whether the length and metadata of a packet are as predicted.
    #[inline(always)]
    fn is_alike_outside(&self, packet: &[u8], meta: &Meta) -> bool {
        self.len == packet.len() && self.vlan == meta.vlan && meta.gso.is_none()
    }

    /// Returns whether a packet has the next sequence number.
    #[inline(always)]
    fn follows(&self, packet: &[u8]) -> bool {
        self.sequence.is_none_or(|next| u32_at(packet, next.at.into()) == next.value)
    }

    /// Returns whether a packet has the next identifications, with the matching checksums.
    #[inline(always)]
    fn identifications_follow(&self, packet: &[u8]) -> bool {
        match &self.identifications[..] {
            [only] => only.is_in(packet),
            several => several.iter().all(|next| next.is_in(packet)),
        }
    }

    /// Returns whether the checksums of the IPv4 headers are valid. The headers may differ from the prediction only in
    /// the identification.
    #[inline(always)]
    fn ip_checksums_hold(&self, packet: &[u8]) -> bool {
        for next in &self.identifications {
            let numbers = IpNumbers::read(packet, next.at.into());
            // The complement of a header sum is never all ones, so segmentation would not reproduce this value.
            if numbers.checksum() == 0xffff || numbers.sum() != next.numbers.sum() {
                return false;
            }
        }
        true
    }

    /// Returns whether the checksums over the payload are valid, and whether the same ones are present as in other
    /// packets of the flow.
    #[inline(always)]
    fn checksums_agree(&self, packet: &[u8], meta: &Meta, known: &CachedStack) -> bool {
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

    /// Returns whether the checksums are valid. The caller has already checked that their values are permitted.
    #[inline(always)]
    fn is_verified(&self, packet: &[u8], state: &Checksum, known: &CachedStack) -> bool {
        let Checksum::Partial { start, offset } = *state else {
            return verify_apart(packet, &known.shape, state) == Ok(self.is_partial);
        };
        // Packets with equal addresses and lengths have the same pseudo-header sum, so only one value is permitted.
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
        // Most headers are copied as a block whose length the compiler knows.
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
    /// Reads the identification at this offset, and the checksum of the same header.
    #[inline(always)]
    fn read(packet: &[u8], at: usize) -> Self {
        Self(u64_at(packet, at))
    }

    /// Returns the identification and checksum of the next packet. When the identification increases by one, the
    /// checksum decreases by one.
    #[inline(always)]
    fn stepped(self, step: u64) -> Self {
        let Self(word) = self;
        if word as u16 == 0 || word >= LAST_IDENTIFICATION {
            return self.stepped_around(step);
        }
        Self(word.wrapping_add(step))
    }

    /// Returns the identification and checksum of the next packet if one of them wraps.
    #[cold]
    fn stepped_around(self, step: u64) -> Self {
        let Self(word) = self;
        match step {
            0 => self,
            // Wrapping around to zero leaves the sum unchanged.
            _ if word >= LAST_IDENTIFICATION => Self(word - LAST_IDENTIFICATION),
            _ => Self((word + (STEP + 1)) & !0xffff | u64::from(incremented(self.checksum()))),
        }
    }

    fn checksum(self) -> u16 {
        self.0 as u16
    }

    /// Returns the one's complement sum of identification and checksum. Zero has two representations, which remain
    /// distinct: equal sums may compare as different, but different sums never compare as equal.
    #[inline(always)]
    fn sum(self) -> u64 {
        let Self(word) = self;
        let sum = (word >> IDENTIFICATION_SHIFT) + (word & 0xffff);
        (sum & 0xffff) + (sum >> 16)
    }
}

/// Returns the number of further packets with this payload that fit into the train.
#[inline]
fn room(known: &CachedStack, packets: u16, payload_len: usize, size: usize) -> u16 {
    let bounds = &known.bounds;
    let bytes_left = bounds.payload_open.saturating_sub(payload_len);
    // The packet that fills the train is not predicted if it also ends the train.
    let last = u16::from(bounds.ends_full);
    let packets_left = bounds.packets_max.saturating_sub(packets).saturating_sub(last);
    packets_left.min(u16::try_from(bytes_left / size).unwrap_or(u16::MAX))
}

/// Returns the values permitted for the checksums over the payload in the train of this packet.
#[inline]
fn forms(shape: &Shape, packet: &[u8], is_partial: bool) -> impl Iterator<Item = Form> {
    let is_seed = is_partial || shape.remote_checksum.is_some();
    shape.covers.iter().enumerate().map(move |(index, covering)| {
        let is_transport = index + 1 == shape.covers.len();
        let field = u16_at(packet, covering.at.into());
        let (value, is_equal) = match covering.zero_means_none {
            // A checksum that is completed later holds the pseudo-header sum, which excludes the payload (rule C50).
            _ if is_transport && is_seed => (field, true),
            // Tunnel packets with and without a checksum do not mix (rule T2).
            true => (0, field == 0),
            // The sum is never zero, so its complement is never 0xffff. Segmentation would not write that value.
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
    /// Returns the checksum over the payload in this train's packets, if there is only one.
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

/// Bit position of the identification in [`IpNumbers`].
const IDENTIFICATION_SHIFT: u32 = 48;

/// Adds one to the identification and subtracts one from the checksum.
const STEP: u64 = (1 << IDENTIFICATION_SHIFT) - 1;

/// Lowest value of [`IpNumbers`] whose identification wraps to zero in the next packet.
const LAST_IDENTIFICATION: u64 = 0xffff << IDENTIFICATION_SHIFT;

/// Maximum length of predicted headers in bytes: enough for TCP with timestamps in VXLAN over IPv6. Trains with longer
/// headers are not predicted.
const HEADER_BYTES_MAX: usize = 160;

/// Maximum number of checksums over the payload in a predicted packet: one per tunnel with a checksum, and one in the
/// transport header.
const CHECKSUMS_MAX: usize = 6;
