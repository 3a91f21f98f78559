//! Whether a packet obeys the laws of equality beside the first packet of a train.

use grosso_wire::{Kind, Layer, Stack, tcp};

use crate::{
    coalesce::{HEADER_BYTES_MAX, Rules, Vary, reason::NoMerge},
    template::laws::{self, Cover, Field, Law},
};

/// A mask over all headers of a stack, for one comparison of raw bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    bits: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl Mask {
    /// The bits that the laws want equal along a train, unless the rules let them vary.
    pub(crate) fn equality(stack: &Stack, header: &[u8], rules: &Rules) -> Self {
        let mut mask = Self { bits: [0xff; HEADER_BYTES_MAX], len: stack.header_len() };
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
    #[inline]
    pub(crate) fn agrees(&self, first: &[u8], other: &[u8]) -> bool {
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
        let (firsts, others) = (first.as_chunks::<BLOCK>().0, other.as_chunks::<BLOCK>().0);
        let mut differing = differing_in(last_mask, last, other_last);
        for ((mask, first), other) in mask.as_chunks().0.iter().zip(firsts).zip(others) {
            let block = differing_in(mask, first, other);
            differing = core::array::from_fn(|i| differing[i] | block[i]);
        }
        u128::from_ne_bytes(differing) == 0
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

    /// Makes it all bits of `len` bytes.
    pub(crate) fn fill(&mut self, len: usize) {
        self.len = len.min(HEADER_BYTES_MAX);
        self.bits[..self.len].fill(0xff);
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
const BLOCK: usize = 16;

/// The bits of the mask in which two blocks differ: a byte at a time, which becomes a vector of them.
#[inline(always)]
fn differing_in(mask: &[u8; BLOCK], first: &[u8; BLOCK], other: &[u8; BLOCK]) -> [u8; BLOCK] {
    core::array::from_fn(|i| (first[i] ^ other[i]) & mask[i])
}

/// What to call the outermost difference between the headers of two packets that do not agree.
#[cold]
pub(crate) fn difference(stack: &Stack, first: &[u8], other: &[u8], rules: &Rules) -> NoMerge {
    stack
        .layers()
        .iter()
        .find_map(|layer| {
            let range = layer.offset as usize..layer.end();
            header_difference(layer.kind, first.get(range.clone())?, other.get(range)?, rules)
        })
        .unwrap_or(NoMerge::HeaderStack)
}

fn header_difference(kind: Kind, first: &[u8], other: &[u8], rules: &Rules) -> Option<NoMerge> {
    let fields = laws::of(kind, first);
    let in_fixed_part = fields.iter().find_map(|field| {
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
