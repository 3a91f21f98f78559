//! Comparison of a fragment with earlier fragments of its datagram.

use core::hash::{BuildHasher, Hasher};

use crate::{
    keyed_hash::KeyedHash,
    reassemble::{
        Discard, Overlap, Reassembler,
        examine::ArrivedFragment,
        incomplete::Contents,
        reason::IcmpError,
        store::{Bit, Store, units},
    },
};

/// Result of comparing a fragment with earlier fragments of its datagram.
pub(super) enum Judgement {
    /// The fragment contains only new bytes.
    Fits,
    /// The fragment contains new bytes and overlapping bytes, which the rules allow.
    Mixes,
    /// The same fragment has arrived before.
    Duplicate,
    /// The datagram must be discarded, and its sender may be notified.
    Kills(Discard, Option<IcmpError>),
}

impl<B: AsRef<[u8]>> Reassembler<B> {
    /// Compares a fragment with the earlier fragments. If the rules require it, truncates a fragment other than the
    /// last to whole units.
    pub(super) fn judge(
        &mut self,
        slot: u32,
        arrival: &mut ArrivedFragment,
        packet: &[u8],
    ) -> Judgement {
        let Some(datagram) = self.datagrams.used_mut(slot) else {
            return Judgement::Kills(Discard::TableFull, None);
        };
        let contents = &mut datagram.contents;
        let overlap = self.rules.overlap;
        if let Err((reason, error)) = alone(arrival, overlap) {
            return Judgement::Kills(reason, error);
        }
        // The fragment must agree with the known end of the datagram, and a newly known end with the data that has
        // arrived (rule F12).
        let (end, known) = (arrival.end(), contents.end);
        let contradicts = match arrival.more {
            true => known.is_some_and(|known| end > known),
            false => end < contents.reach || known.is_some_and(|known| end != known),
        };
        if contradicts {
            return Judgement::Kills(Discard::EndConflict, None);
        }
        let units = units(arrival.offset, end);
        // A fragment that starts at or after the end of all others needs no bitmap lookup.
        let is_new = arrival.offset >= contents.reach || {
            contents.chart(&mut self.store);
            !self.store.any(&contents.pages, Bit::Covered, &units)
        };
        if !is_new {
            match overlap {
                Overlap::Drop => {
                    let same = is_same(&self.store, contents, arrival, packet, &self.state);
                    return match same {
                        true => Judgement::Duplicate,
                        false => Judgement::Kills(Discard::Overlap, None),
                    };
                }
                Overlap::Linux => {
                    let inner = units.start + 1..units.end;
                    let in_run = self.store.all(&contents.pages, Bit::Covered, &units)
                        && !self.store.any(&contents.pages, Bit::Run, &inner);
                    if !in_run {
                        return Judgement::Kills(Discard::Overlap, None);
                    }
                    if !arrival.more {
                        contents.end = Some(end);
                    }
                    return Judgement::Duplicate;
                }
                Overlap::First | Overlap::Last => {}
            }
        }
        if contents.fragments >= self.rules.limits.fragments {
            return Judgement::Kills(Discard::FragmentLimit, None);
        }
        if is_new { Judgement::Fits } else { Judgement::Mixes }
    }
}

/// Applies rules F10, F11 and F13 to a single fragment.
fn alone(
    arrival: &mut ArrivedFragment,
    overlap: Overlap,
) -> Result<(), (Discard, Option<IcmpError>)> {
    let is_ipv6 = arrival.is_ipv6;
    let in_packet = arrival.data.start - u32::from(arrival.ip);
    let problem = |pointer| is_ipv6.then_some(IcmpError::ParameterProblem { code: 0, pointer });
    let end_max = if is_ipv6 { DATAGRAM_BYTES_MAX } else { DATAGRAM_BYTES_MAX - IPV4_HEADER_LEN };
    if arrival.end() > end_max {
        // The pointer refers to the offset field, two bytes into the fragment header.
        return Err((Discard::Oversize, problem(in_packet.saturating_sub(6))));
    }
    let hanging = if arrival.more { arrival.len() % 8 } else { 0 };
    if hanging > 0 {
        if is_ipv6 || overlap == Overlap::Drop {
            return Err((Discard::Misaligned, problem(PAYLOAD_LENGTH_AT)));
        }
        arrival.data.end -= hanging;
        arrival.sum = None;
    }
    if arrival.len() == 0 { Err((Discard::ZeroLength, None)) } else { Ok(()) }
}

/// Returns whether the same fragment has arrived before, that is, with the same position, bytes and more-fragments
/// flag.
fn is_same<B: AsRef<[u8]>>(
    store: &Store<B>,
    contents: &Contents,
    arrival: &ArrivedFragment,
    packet: &[u8],
    state: &KeyedHash,
) -> bool {
    let pages = &contents.pages;
    let units = units(arrival.offset, arrival.end());
    let (first, behind) = (units.start..units.start + 1, units.end..units.end + 1);
    let same_place = store.any(pages, Bit::Start, &first)
        && store.all(pages, Bit::Covered, &units)
        && !store.any(pages, Bit::Start, &(first.end..units.end))
        && (store.any(pages, Bit::Start, &behind) || !store.any(pages, Bit::Covered, &behind));
    let was_last = contents.end == Some(arrival.end());
    if !same_place || was_last == arrival.more {
        return false;
    }
    let range = arrival.data.start as usize..arrival.data.end as usize;
    let data = packet.get(range).unwrap_or_default();
    let number = store.index(pages, units.start);
    if contents.is_released {
        return number == digest_of(state, data);
    }
    if let Some(fragment) = store.fragments.get(number) {
        return fragment.bytes() == data;
    }
    let mut rest = data;
    store.slices(pages, arrival.offset, arrival.end()).all(|slice| {
        let Some((now, behind)) = rest.split_at_checked(slice.len()) else { return false };
        rest = behind;
        now == slice
    })
}

/// Returns the digest of a forwarded fragment, by which duplicates are recognized.
pub(super) fn digest_of(state: &KeyedHash, data: &[u8]) -> u32 {
    let mut hasher = state.build_hasher();
    hasher.write(data);
    hasher.finish() as u32
}

/// Maximum end of a datagram's data.
pub(super) const END_MAX: u32 = DATAGRAM_BYTES_MAX - IPV4_HEADER_LEN;
/// Maximum length of an IP packet.
const DATAGRAM_BYTES_MAX: u32 = 65535;
const IPV4_HEADER_LEN: u32 = grosso_wire::ipv4::HEADER_LEN as u32;
/// Offset of the IPv6 payload length field (rule F10).
const PAYLOAD_LENGTH_AT: u32 = grosso_wire::ipv6::field::PAYLOAD_LENGTH.start as u32;
