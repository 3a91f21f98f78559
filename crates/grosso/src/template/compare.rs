//! Whether a packet obeys the laws of equality beside the first packet of a train.

use grosso_wire::{Kind, Layer, Stack, gre, ipv4, ipv6, pppoe, tcp, udp};

use crate::{
    bytes::u16_at,
    coalesce::reason::NoMerge,
    template::laws::{self, Field, Law},
};

/// Whether all bytes that must be equal are, in the headers of `stack`.
///
/// Both slices start where the frame starts and hold at least the headers. When this holds, the second packet has the
/// same stack as the first: every byte that decides what header comes next is among those compared.
#[inline]
pub(crate) fn equal(stack: &Stack, first: &[u8], other: &[u8]) -> bool {
    stack.layers().iter().all(|layer| {
        let range = layer.offset as usize..layer.end();
        match (first.get(range.clone()), other.get(range)) {
            (Some(first), Some(other)) => header_equal(layer.kind, first, other),
            _ => false,
        }
    })
}

/// What to call the outermost difference between the headers of two packets; [`equal`] is false for them.
#[cold]
pub(crate) fn difference(stack: &Stack, first: &[u8], other: &[u8]) -> NoMerge {
    stack
        .layers()
        .iter()
        .find_map(|layer| {
            let range = layer.offset as usize..layer.end();
            let (first, other) = (first.get(range.clone())?, other.get(range)?);
            header_difference(layer, first, other)
        })
        .unwrap_or(NoMerge::HeaderStack)
}

#[inline]
fn header_equal(kind: Kind, first: &[u8], other: &[u8]) -> bool {
    match kind {
        Kind::Ipv4 => masked(&IPV4, first, other) && tail_equal::<{ ipv4::HEADER_LEN }>(first, other),
        Kind::Ipv6 => masked(&IPV6, first, other),
        Kind::Tcp => masked(&TCP, first, other) && tail_equal::<{ tcp::HEADER_LEN }>(first, other),
        Kind::Udp => masked(&UDP, first, other) && same_presence(first, other),
        Kind::Pppoe => masked(&PPPOE, first, other),
        Kind::Gre if has_checksum(first) => {
            masked(&GRE, first, other) && tail_equal::<GRE_WITH_CHECKSUM>(first, other)
        }
        _ => first == other,
    }
}

#[inline]
fn masked<const N: usize>(mask: &[u8; N], first: &[u8], other: &[u8]) -> bool {
    let (Some(first), Some(other)) = (first.first_chunk::<N>(), other.first_chunk::<N>()) else {
        return false;
    };
    let mut differing = 0;
    for i in 0..N {
        differing |= (first[i] ^ other[i]) & mask[i];
    }
    differing == 0
}

#[inline]
fn tail_equal<const FIXED: usize>(first: &[u8], other: &[u8]) -> bool {
    first.get(FIXED..) == other.get(FIXED..)
}

/// A UDP checksum of zero means that there is none; packets with and without one do not mix (rules T2, U11).
#[inline]
fn same_presence(first: &[u8], other: &[u8]) -> bool {
    let at = udp::field::CHECKSUM.start;
    (u16_at(first, at) == 0) == (u16_at(other, at) == 0)
}

fn header_difference(layer: &Layer, first: &[u8], other: &[u8]) -> Option<NoMerge> {
    if header_equal(layer.kind, first, other) {
        return None;
    }
    let fields = laws::of(layer.kind);
    let fixed = fields.last().map_or(0, |field| field.bytes.end);
    let in_fixed_part = fields.iter().find_map(|field| {
        let (first, other) = (first.get(field.bytes.clone())?, other.get(field.bytes.clone())?);
        match field.law {
            Law::Key(refusal) | Law::Equal(refusal) if first != other => Some(refusal),
            Law::Flags(refusal) if !flags_equal(first, other) => Some(refusal),
            Law::Checksum(laws::Cover::Datagram) if first == [0, 0] || other == [0, 0] => {
                Some(NoMerge::ChecksumPresence)
            }
            _ => None,
        }
    });
    in_fixed_part.or_else(|| {
        let differs = layer.kind == Kind::Tcp && timestamps_only(first.get(fixed..)?, other.get(fixed..)?);
        Some(if differs { NoMerge::TcpTimestamp } else { laws::tail_refusal(layer.kind) })
    })
}

fn flags_equal(first: &[u8], other: &[u8]) -> bool {
    let mask = [0xff, !ON_LAST_ONLY];
    first.iter().zip(other).zip(mask).all(|((a, b), mask)| (a ^ b) & mask == 0)
}

/// Whether two option areas have the usual layout NOP NOP TIMESTAMP, and so differ in nothing but the timestamps.
fn timestamps_only(first: &[u8], other: &[u8]) -> bool {
    const LAYOUT: [u8; 4] = [1, 1, 8, 10];
    first.len() == 12 && first.starts_with(&LAYOUT) && other.starts_with(&LAYOUT)
}

#[inline]
pub(crate) fn has_checksum(gre_header: &[u8]) -> bool {
    gre_header.first().is_some_and(|flags| flags & 0x80 != 0)
}

/// TCP flags that only the last packet of a train has: FIN and PSH (rule G35).
pub(crate) const ON_LAST_ONLY: u8 = (tcp::FIN | tcp::PSH) as u8;

/// The base header, the checksum and the reserved word behind it.
const GRE_WITH_CHECKSUM: usize = 8;

const IPV4: [u8; ipv4::HEADER_LEN] = mask_of(laws::IPV4);
const IPV6: [u8; ipv6::HEADER_LEN] = mask_of(laws::IPV6);
const TCP: [u8; tcp::HEADER_LEN] = mask_of(laws::TCP);
const UDP: [u8; udp::HEADER_LEN] = mask_of(laws::UDP);
const PPPOE: [u8; pppoe::HEADER_LEN] = mask_of(laws::PPPOE);
const GRE: [u8; GRE_WITH_CHECKSUM] = mask_of(laws::GRE);

const _: () = assert!(gre::field::CHECKSUM.end <= GRE_WITH_CHECKSUM);

/// The bits of a header that must be equal along a train, from the table of its laws.
const fn mask_of<const N: usize>(fields: &[Field]) -> [u8; N] {
    let mut mask = [0xff; N];
    let mut i = 0;
    while i < fields.len() {
        let (mut at, end) = (fields[i].bytes.start, fields[i].bytes.end);
        while at < end {
            mask[at] = match fields[i].law {
                Law::Key(_) | Law::Equal(_) => 0xff,
                Law::Flags(_) if at == fields[i].bytes.start => 0xff,
                Law::Flags(_) => !ON_LAST_ONLY,
                Law::Length { .. } | Law::Identification | Law::Sequence | Law::Checksum(_) => 0,
            };
            at += 1;
        }
        i += 1;
    }
    mask
}
