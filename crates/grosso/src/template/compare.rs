//! Comparison of a packet with the first packet of a train, under the laws of equality.

use grosso_wire::{Cover, Ends, Field, Kind, Law, Layer, Role, Stack, tcp};

use super::HEADER_BYTES_MAX;

/// Relaxations of the laws that a profile permits.
pub(crate) trait Relaxed {
    /// Returns whether a field with this role may vary although its law requires it to be equal.
    fn lets_vary(&self, role: Role) -> bool;

    /// Returns whether TCP timestamps may vary.
    fn lets_timestamps_vary(&self) -> bool;
}

/// Difference between the headers of two packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// A field with this role differs.
    Field(Role),
    /// The TCP options differ only in the timestamps.
    Timestamps,
    /// The headers differ in type or length rather than in a single field.
    Headers,
}

/// Mask over all headers of a stack. Two packets can be compared under it without being parsed.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    /// Mask of each byte; zero from `len` on.
    bits: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Mask {
    /// Returns the bits that the laws require to be equal in all packets of a train, except bits that the rules let
    /// vary.
    pub(crate) fn equality(stack: &Stack, header: &[u8], rules: &impl Relaxed) -> Self {
        let mut mask = Self::every(stack.header_len());
        for layer in stack.layers() {
            let start = header.get(layer.offset as usize..).unwrap_or_default();
            for field in layer.kind.spec().layout(start).fields {
                mask.set(layer, field, equal_bits(field, rules));
            }
        }
        if let Some(timestamps) = timestamps(stack, header).filter(|_| rules.lets_timestamps_vary())
        {
            mask.bits[timestamps].fill(0);
        }
        mask
    }

    /// Returns the bits that the dissector reads, except length fields, and the bits that determine where the addresses
    /// of pseudo-headers are.
    pub(crate) fn structure(stack: &Stack, header: &[u8]) -> Self {
        let mut mask = Self::nothing(stack.header_len());
        for layer in stack.layers() {
            let bytes = header.get(layer.offset.into()..).unwrap_or_default();
            for (at, bits) in layer.kind.spec().structure.bits(bytes, layer.len.into()) {
                mask.add(layer.offset as usize + at, bits);
            }
            Ends::deciding(header, layer, |at| mask.add(at, 0xff));
        }
        mask
    }

    /// Returns whether two frames agree in the bits of the mask. Neither may be shorter than the mask.
    #[inline(always)]
    pub(crate) fn agrees(&self, first: &[u8], other: &[u8]) -> bool {
        self.agrees_mostly_in::<USUAL_BYTES>(first, other)
    }

    /// Works like [`Self::agrees`], but is faster for masks of at most `BYTES` bytes, which must be a whole number of
    /// blocks. The number of blocks is known at compile time, so there is no loop.
    #[inline(always)]
    pub(crate) fn agrees_mostly_in<const BYTES: usize>(&self, first: &[u8], other: &[u8]) -> bool {
        if self.len <= BYTES
            && let Some(agree) = agree_in::<BYTES>(&self.bits, first, other)
        {
            return agree;
        }
        self.agrees_in_all(first, other)
    }

    /// Works like [`Self::agrees`], but accepts headers of any length, even if less than a block follows them.
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
        // The remaining bytes are compared as a block that overlaps the previous one. No stack is shorter than a block.
        let (Some(last_mask), Some(last), Some(other_last)) =
            (mask.last_chunk(), first.last_chunk(), other.last_chunk())
        else {
            return false;
        };
        // This is the path for short frames with the usual headers and no payload, for example acknowledgments with
        // timestamps.
        if self.len <= USUAL_BYTES
            && let Some(agree) = agree_in::<{ USUAL_BYTES - BLOCK }>(mask, first, other)
        {
            return agree && differing_in(last_mask, last, other_last) == 0;
        }
        let (firsts, others) = (first.as_chunks().0, other.as_chunks().0);
        let mut differing = differing_in(last_mask, last, other_last);
        for ((mask, first), other) in mask.as_chunks().0.iter().zip(firsts).zip(others) {
            differing |= differing_in(mask, first, other);
        }
        differing == 0
    }

    /// Returns the first byte that differs in bits of the mask, or the end of the headers.
    fn first_difference(&self, first: &[u8], other: &[u8]) -> usize {
        let masks = self.bits[..self.len].as_chunks().0;
        let blocks = masks.iter().zip(first.as_chunks().0).zip(other.as_chunks().0);
        for (index, ((mask, first), other)) in blocks.enumerate() {
            let differing = differing_in(mask, first, other);
            if differing != 0 {
                return index * BLOCK + u128::from_le(differing).trailing_zeros() as usize / 8;
            }
        }
        let start = masks.len() * BLOCK;
        let bytes = self.bits.iter().zip(first).zip(other).take(self.len).skip(start);
        let mut differs = bytes.map(|((mask, first), other)| (first ^ other) & mask != 0);
        differs.position(|differs| differs).map_or(self.len, |place| start + place)
    }

    /// Returns an empty mask for `len` bytes.
    pub(crate) fn nothing(len: usize) -> Self {
        Self { bits: [0; HEADER_BYTES_MAX], len: len.min(HEADER_BYTES_MAX) }
    }

    /// Adds bits to the mask of one byte.
    pub(crate) fn add(&mut self, at: usize, bits: u8) {
        if let Some(byte) = self.bits.get_mut(at) {
            *byte |= bits;
        }
    }

    /// Returns a mask for `len` bytes in which every bit is set.
    pub(crate) fn every(len: usize) -> Self {
        let mut mask = Self::nothing(0);
        mask.fill(len);
        mask
    }

    /// Returns whether this mask contains every bit of another.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self.len >= other.len && self.bits.iter().zip(other.bits).all(|(own, its)| its & !own == 0)
    }

    /// Sets every bit of the first `len` bytes, and clears all other bits.
    pub(crate) fn fill(&mut self, len: usize) {
        let len = len.min(HEADER_BYTES_MAX);
        if let Some(behind) = self.bits.get_mut(len..self.len) {
            behind.fill(0);
        }
        self.bits[..len].fill(0xff);
        self.len = len;
    }

    /// Clears bits in the mask of one byte.
    pub(crate) fn clear(&mut self, at: usize, bits: u8) {
        if let Some(byte) = self.bits.get_mut(at) {
            *byte &= !bits;
        }
    }

    /// Adds every bit of another mask, which must not be longer.
    pub(crate) fn include(&mut self, other: &Self) {
        self.bits.iter_mut().zip(other.bits).for_each(|(own, its)| *own |= its);
    }

    /// Clears all bits in the mask of one byte.
    pub(crate) fn remove(&mut self, at: usize) {
        if let Some(byte) = self.bits.get_mut(at) {
            *byte = 0;
        }
    }

    fn set(&mut self, layer: &Layer, field: &Field, bits: u64) {
        let start = layer.offset as usize;
        for (i, at) in field.bytes.clone().enumerate() {
            if let Some(byte) = self.bits.get_mut(start + at) {
                *byte = bits_of_byte(bits, i);
            }
        }
    }
}

/// Returns a mask of the bits in a field that must be equal. The highest bit of the mask stands for the first bit of
/// the field. In fields longer than the mask, its last eight bits apply to each further byte.
fn equal_bits(field: &Field, rules: &impl Relaxed) -> u64 {
    match field.law {
        Law::Equal if rules.lets_vary(field.role) => field.pinned,
        Law::Key { .. } | Law::Equal => u64::MAX,
        Law::Flags => !(u64::from(ON_LAST_ONLY) << 48),
        Law::Length { .. } | Law::Identification | Law::Sequence | Law::Checksum(_) => 0,
    }
}

/// Returns the bits of the byte at this index of the field.
fn bits_of_byte(bits: u64, place: usize) -> u8 {
    (bits >> (56 - 8 * place.min(7))) as u8
}

/// Returns whether two values of a field differ in bits that must be equal.
fn differs(field: &Field, rules: &impl Relaxed, first: &[u8], other: &[u8]) -> bool {
    let bits = equal_bits(field, rules);
    let mut bytes = first.iter().zip(other).enumerate();
    bytes.any(|(i, (a, b))| (a ^ b) & bits_of_byte(bits, i) != 0)
}

/// Returns the byte range of the timestamps in a frame whose TCP header has them in the usual layout.
pub(crate) fn timestamps(stack: &Stack, header: &[u8]) -> Option<core::ops::Range<usize>> {
    let tcp = stack.last().filter(|layer| has_tcp_options(layer.kind))?;
    let options = tcp.offset as usize + tcp::HEADER_LEN;
    let is_usual = header.get(options..tcp.end())?.len() == TIMESTAMP_LAYOUT.len() + 8
        && header.get(options..)?.starts_with(&TIMESTAMP_LAYOUT);
    is_usual.then_some(options + TIMESTAMP_LAYOUT.len()..tcp.end())
}

/// Number of bytes compared at once. An IPv4 header followed by a UDP header is longer than this.
pub(crate) const BLOCK: usize = 16;

/// Length in bytes of the usual headers, rounded up to whole blocks. The headers of TCP with timestamps over IPv4 and
/// Ethernet are 66 bytes long.
pub(crate) const USUAL_BYTES: usize = 5 * BLOCK;

/// Length in bytes of the usual headers with a tunnel, rounded up to whole blocks. The headers of TCP with timestamps
/// in VXLAN over IPv4 are 116 bytes long.
pub(crate) const TUNNEL_BYTES: usize = 8 * BLOCK;

type Block = [u8; BLOCK];

/// Returns whether two frames agree in the bits of a `BYTES`-byte mask, or `None` if a frame is shorter than that.
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

/// Returns the bits of the mask in which two blocks differ.
fn differing_in(mask: &Block, first: &Block, other: &Block) -> u128 {
    (u128::from_ne_bytes(*first) ^ u128::from_ne_bytes(*other)) & u128::from_ne_bytes(*mask)
}

/// Returns whether two packets with these headers obey every law of equality. Compares each field separately;
/// [`Mask::equality`] gives the same result in a single comparison. Skips timestamps that may vary.
pub(crate) fn obeys_equality(
    stack: &Stack,
    first: &[u8],
    other: &[u8],
    rules: &impl Relaxed,
    timestamps: Option<usize>,
) -> bool {
    stack.layers().iter().all(|layer| {
        let range = layer.offset as usize..layer.end();
        let (Some(first), Some(other)) = (first.get(range.clone()), other.get(range)) else {
            return false;
        };
        let layout = layer.kind.spec().layout(first);
        let in_fixed_part = layout.fields.iter().all(|field| {
            let (first, other) = (first.get(field.bytes.clone()), other.get(field.bytes.clone()));
            first.zip(other).is_some_and(|(first, other)| !differs(field, rules, first, other))
        });
        let fixed = layout.end();
        let end = match timestamps {
            Some(at) if has_tcp_options(layer.kind) => at - layer.offset as usize,
            _ => first.len(),
        };
        in_fixed_part && first.get(fixed..end) == other.get(fixed..end)
    })
}

/// Returns the outermost difference between the headers of two packets that do not agree.
pub(crate) fn difference(
    mask: &Mask,
    stack: &Stack,
    first: &[u8],
    other: &[u8],
    rules: &impl Relaxed,
) -> Difference {
    let place = mask.first_difference(first, other);
    // The mask has no bit for the presence of a UDP checksum.
    let may_differ = |layer: &&Layer| layer.end() > place || layer.kind.is_transport();
    let mut differences = stack.layers().iter().filter(may_differ).filter_map(|layer| {
        let range = layer.offset as usize..layer.end();
        let place = place.saturating_sub(range.start);
        let (first, other) = (first.get(range.clone())?, other.get(range)?);
        header_difference(layer.kind, first, other, rules, place)
    });
    differences.next().unwrap_or(Difference::Headers)
}

/// Returns the outermost difference between two headers that agree in the bits of the mask before `place`.
fn header_difference(
    kind: Kind,
    first: &[u8],
    other: &[u8],
    rules: &impl Relaxed,
    place: usize,
) -> Option<Difference> {
    let spec = kind.spec();
    let layout = spec.layout(first);
    let in_fixed_part = layout.fields.iter().find(|field| {
        let pair = first.get(field.bytes.clone()).zip(other.get(field.bytes.clone()));
        pair.is_some_and(|(first, other)| match field.law {
            Law::Checksum(Cover::Datagram { .. }) => (first == [0, 0]) != (other == [0, 0]),
            _ => field.bytes.end > place && differs(field, rules, first, other),
        })
    });
    if let Some(field) = in_fixed_part {
        return Some(Difference::Field(field.role));
    }
    let tail = first.get(layout.end()..)?;
    let other_tail = other.get(layout.end()..)?;
    if first.len() <= place || tail == other_tail {
        return None;
    }
    let is_timestamp = has_tcp_options(kind) && differ_in_timestamps_only(tail, other_tail);
    Some(if is_timestamp { Difference::Timestamps } else { Difference::Field(spec.tail.role) })
}

/// Returns whether TCP options follow the fixed part of a header.
fn has_tcp_options(kind: Kind) -> bool {
    kind.spec().tail.role == Role::Options
}

/// Returns whether two option areas both have the usual layout NOP NOP TIMESTAMP, so that they differ only in the
/// timestamps.
fn differ_in_timestamps_only(first: &[u8], other: &[u8]) -> bool {
    first.len() == 12
        && first.starts_with(&TIMESTAMP_LAYOUT)
        && other.starts_with(&TIMESTAMP_LAYOUT)
}

/// NOP, NOP, and the kind and length of the timestamp option (RFC 7323 appendix A).
pub(crate) const TIMESTAMP_LAYOUT: [u8; 4] = [1, 1, 8, 10];

/// TCP flags that may be set only in the last packet of a train: FIN and PSH (rule G35).
pub(crate) const ON_LAST_ONLY: u8 = (tcp::FIN | tcp::PSH) as u8;
