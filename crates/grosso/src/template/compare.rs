//! Whether a packet obeys the laws of equality beside the first packet of a train.

use grosso_wire::{Kind, Layer, Stack, tcp};

use crate::{
    coalesce::{HEADER_BYTES_MAX, Rules, Vary, reason::NoMerge},
    template::laws::{self, Cover, Field, Law},
};

/// A mask over all headers of a stack, for one comparison of raw bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    /// None behind `len`.
    bits: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Mask {
    /// The bits that the laws want equal along a train, unless the rules let them vary.
    pub(crate) fn equality(stack: &Stack, header: &[u8], rules: &Rules) -> Self {
        let mut mask = Self::every(stack.header_len());
        for layer in stack.layers() {
            let start = header.get(layer.offset as usize..).unwrap_or_default();
            for field in laws::of(layer.kind, start) {
                mask.set(layer, field, equal_bits(field.law, rules));
            }
        }
        if let Some(timestamps) = timestamps(stack, header).filter(|_| rules.varies_timestamps()) {
            mask.bits[timestamps].fill(0);
        }
        mask
    }

    /// Whether two frames agree in the bits of the mask; both are at least as long.
    #[inline(always)]
    pub(crate) fn agrees(&self, first: &[u8], other: &[u8]) -> bool {
        self.agrees_mostly_in::<USUAL_BYTES>(first, other)
    }

    /// The same where most headers are no longer than so many bytes, a whole number of blocks: they are compared by as
    /// many as the compiler knows, without a loop.
    #[inline(always)]
    pub(crate) fn agrees_mostly_in<const BYTES: usize>(&self, first: &[u8], other: &[u8]) -> bool {
        if self.len <= BYTES
            && let Some(agree) = agree_in::<BYTES>(&self.bits, first, other)
        {
            return agree;
        }
        self.agrees_in_all(first, other)
    }

    /// The same for headers of any length, also where less than a block follows.
    #[inline(never)]
    fn agrees_in_all(&self, first: &[u8], other: &[u8]) -> bool {
        if self.len <= TUNNEL_BYTES
            && let Some(agree) = agree_in::<TUNNEL_BYTES>(&self.bits, first, other)
        {
            return agree;
        }
        let (Some(mask), Some(first), Some(other)) =
            (self.bits.get(..self.len), first.get(..self.len), other.get(..self.len))
        else {
            return false;
        };
        // What the blocks leave is in one that overlaps the last of them; no stack is shorter.
        let (Some(last_mask), Some(last), Some(other_last)) =
            (mask.last_chunk(), first.last_chunk(), other.last_chunk())
        else {
            return false;
        };
        let (firsts, others) = (first.as_chunks().0, other.as_chunks().0);
        let mut differing = differing_in(last_mask, last, other_last);
        for ((mask, first), other) in mask.as_chunks().0.iter().zip(firsts).zip(others) {
            differing |= differing_in(mask, first, other);
        }
        differing == 0
    }

    /// The first byte that differs in bits of the mask, or the end of the headers.
    fn first_difference(&self, first: &[u8], other: &[u8]) -> usize {
        let masks = self.bits[..self.len].as_chunks().0;
        let mut blocks = masks.iter().zip(first.as_chunks().0).zip(other.as_chunks().0);
        let block = blocks.position(|((mask, first), other)| differing_in(mask, first, other) != 0);
        let start = block.unwrap_or(masks.len()) * BLOCK;
        let bytes = self.bits.iter().zip(first).zip(other).take(self.len).skip(start);
        let mut differs = bytes.map(|((mask, first), other)| (first ^ other) & mask != 0);
        differs.position(|differs| differs).map_or(self.len, |place| start + place)
    }

    /// No bit of `len` bytes.
    pub(crate) fn nothing(len: usize) -> Self {
        Self { bits: [0; HEADER_BYTES_MAX], len: len.min(HEADER_BYTES_MAX) }
    }

    /// Adds bits of one byte.
    pub(crate) fn add(&mut self, at: usize, bits: u8) {
        if let Some(byte) = self.bits.get_mut(at) {
            *byte |= bits;
        }
    }

    /// Every bit of `len` bytes.
    pub(crate) fn every(len: usize) -> Self {
        let mut mask = Self::nothing(0);
        mask.fill(len);
        mask
    }

    /// Whether it has every bit of another one.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.len >= other.len && self.bits.iter().zip(other.bits).all(|(own, its)| its & !own == 0)
    }

    /// Makes it every bit of `len` bytes.
    pub(crate) fn fill(&mut self, len: usize) {
        let len = len.min(HEADER_BYTES_MAX);
        if let Some(behind) = self.bits.get_mut(len..self.len) {
            behind.fill(0);
        }
        self.bits[..len].fill(0xff);
        self.len = len;
    }

    /// Takes the bits of one byte away.
    pub(crate) fn remove(&mut self, at: usize) {
        if let Some(byte) = self.bits.get_mut(at) {
            *byte = 0;
        }
    }

    fn set(&mut self, layer: &Layer, field: &Field, bits: [u8; 3]) {
        let start = layer.offset as usize;
        for (i, at) in field.bytes.clone().enumerate() {
            if let Some(byte) = self.bits.get_mut(start + at) {
                *byte = bits[i.min(2)];
            }
        }
    }
}

/// Which bits of a field must be equal: those of its first byte, its second, and the others.
fn equal_bits(law: Law, rules: &Rules) -> [u8; 3] {
    match law {
        Law::Equal(refusal) if rules.vary(refusal) != Vary::Equal => match refusal {
            NoMerge::TypeOfService => [ECN, 0, 0],
            // The version, the class and the label.
            NoMerge::TrafficClassOrFlowLabel => [0xf0, ECN << 4, 0],
            NoMerge::DontFragment => [!DONT_FRAGMENT, 0xff, 0xff],
            _ => [0, 0, 0],
        },
        Law::Key(_) | Law::Equal(_) => [0xff, 0xff, 0xff],
        Law::Flags(_) => [0xff, !ON_LAST_ONLY, 0xff],
        Law::Length { .. } | Law::Identification | Law::Sequence | Law::Checksum(_) => [0, 0, 0],
    }
}

/// Whether two values of a field differ in bits that must be equal.
fn differs(law: Law, rules: &Rules, first: &[u8], other: &[u8]) -> bool {
    let bits = equal_bits(law, rules);
    let bits = |i: usize| bits[i.min(2)];
    first.iter().zip(other).enumerate().any(|(i, (a, b))| (a ^ b) & bits(i) != 0)
}

/// Where the timestamps lie in a frame whose TCP header has them in the usual layout.
pub(crate) fn timestamps(stack: &Stack, header: &[u8]) -> Option<core::ops::Range<usize>> {
    let tcp = stack.last().filter(|layer| layer.kind == Kind::Tcp)?;
    let options = tcp.offset as usize + tcp::HEADER_LEN;
    let is_usual = header.get(options..tcp.end())?.len() == TIMESTAMP_LAYOUT.len() + 8
        && header.get(options..)?.starts_with(&TIMESTAMP_LAYOUT);
    is_usual.then_some(options + TIMESTAMP_LAYOUT.len()..tcp.end())
}

/// Bytes compared at once: fewer than an IPv4 and a UDP header have.
pub(crate) const BLOCK: usize = 16;

/// What most headers are no longer than, in whole blocks: TCP with timestamps over IPv4 has 66 bytes with Ethernet.
pub(crate) const USUAL_BYTES: usize = 5 * BLOCK;

/// What most headers with a tunnel are no longer than: the same in VXLAN over IPv4 has 116 bytes.
pub(crate) const TUNNEL_BYTES: usize = 8 * BLOCK;

type Block = [u8; BLOCK];

/// Whether two frames agree in the bits of a mask over so many bytes; `None` where one of them is shorter.
#[inline(always)]
fn agree_in<const BYTES: usize>(mask: &[u8], first: &[u8], other: &[u8]) -> Option<bool> {
    let blocks = |bytes| <[u8]>::first_chunk::<BYTES>(bytes).map(|bytes| bytes.as_chunks().0);
    let (masks, firsts, others) = (blocks(mask)?, blocks(first)?, blocks(other)?);
    let mut differing = 0;
    for ((mask, first), other) in masks.iter().zip(firsts).zip(others) {
        differing |= differing_in(mask, first, other);
    }
    Some(differing == 0)
}

/// The bits of the mask in which two blocks differ.
#[inline(always)]
fn differing_in(mask: &Block, first: &Block, other: &Block) -> u128 {
    (u128::from_ne_bytes(*first) ^ u128::from_ne_bytes(*other)) & u128::from_ne_bytes(*mask)
}

/// Whether two packets with these headers obey every law of equality, asked field by field: what the mask of
/// [`Mask::equality`] tells at once. The bytes of timestamps that vary are not looked at.
#[cold]
pub(crate) fn obeys_equality(
    stack: &Stack,
    first: &[u8],
    other: &[u8],
    rules: &Rules,
    timestamps: Option<usize>,
) -> bool {
    stack.layers().iter().all(|layer| {
        let range = layer.offset as usize..layer.end();
        let (Some(first), Some(other)) = (first.get(range.clone()), other.get(range)) else {
            return false;
        };
        let fields = laws::of(layer.kind, first);
        let in_fixed_part = fields.iter().all(|field| {
            let (first, other) = (first.get(field.bytes.clone()), other.get(field.bytes.clone()));
            first.zip(other).is_some_and(|(first, other)| !differs(field.law, rules, first, other))
        });
        let fixed = fields.last().map_or(0, |field| field.bytes.end);
        let end = match timestamps {
            Some(at) if layer.kind == Kind::Tcp => at - layer.offset as usize,
            _ => first.len(),
        };
        in_fixed_part && first.get(fixed..end) == other.get(fixed..end)
    })
}

/// What to call the outermost difference between the headers of two packets that do not agree.
#[cold]
pub(crate) fn difference(
    mask: &Mask,
    stack: &Stack,
    first: &[u8],
    other: &[u8],
    rules: &Rules,
) -> NoMerge {
    let place = mask.first_difference(first, other);
    // Whether a datagram has a checksum is no bit of the mask.
    let layers =
        stack.layers().iter().filter(|layer| layer.end() > place || layer.kind == Kind::Udp);
    let mut differences = layers.filter_map(|layer| {
        let range = layer.offset as usize..layer.end();
        let place = place.saturating_sub(range.start);
        let (first, other) = (first.get(range.clone())?, other.get(range)?);
        header_difference(layer.kind, first, other, rules, place)
    });
    differences.next().unwrap_or(NoMerge::HeaderStack)
}

/// The same for two headers that agree in the bits of the mask before `place`.
fn header_difference(
    kind: Kind,
    first: &[u8],
    other: &[u8],
    rules: &Rules,
    place: usize,
) -> Option<NoMerge> {
    let fields = laws::of(kind, first);
    let may_differ = |field: &&Field| {
        field.bytes.end > place || matches!(field.law, Law::Checksum(Cover::Datagram))
    };
    let in_fixed_part = fields.iter().filter(may_differ).find_map(|field| {
        let (first, other) = (first.get(field.bytes.clone())?, other.get(field.bytes.clone())?);
        match field.law {
            Law::Key(refusal) | Law::Equal(refusal) | Law::Flags(refusal)
                if differs(field.law, rules, first, other) =>
            {
                Some(refusal)
            }
            Law::Checksum(Cover::Datagram) if (first == [0, 0]) != (other == [0, 0]) => {
                Some(NoMerge::ChecksumPresence)
            }
            _ => None,
        }
    });
    let fixed = fields.last().map_or(0, |field| field.bytes.end);
    in_fixed_part.or_else(|| {
        let (first, other) = (first.get(fixed..)?, other.get(fixed..)?);
        if first == other {
            return None;
        }
        let is_timestamp = kind == Kind::Tcp && differ_in_timestamps_only(first, other);
        Some(if is_timestamp { NoMerge::TcpTimestamp } else { laws::tail_refusal(kind) })
    })
}

/// Whether two option areas have the usual layout NOP NOP TIMESTAMP, and so differ in nothing but
/// the timestamps.
fn differ_in_timestamps_only(first: &[u8], other: &[u8]) -> bool {
    first.len() == 12
        && first.starts_with(&TIMESTAMP_LAYOUT)
        && other.starts_with(&TIMESTAMP_LAYOUT)
}

/// NOP, NOP, and the kind and length of the timestamp option (RFC 7323 appendix A).
pub(crate) const TIMESTAMP_LAYOUT: [u8; 4] = [1, 1, 8, 10];
/// The bits of ECN in TOS and traffic class (RFC 3168 section 5).
const ECN: u8 = 3;
/// The bit in the first byte of the IPv4 fragment word.
const DONT_FRAGMENT: u8 = 0x40;

/// TCP flags that only the last packet of a train has: FIN and PSH (rule G35).
pub(crate) const ON_LAST_ONLY: u8 = (tcp::FIN | tcp::PSH) as u8;
