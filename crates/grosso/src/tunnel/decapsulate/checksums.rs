//! Verification of a tunnel's checksums, except those that a device has already verified, and the resulting state of
//! the inner checksums.

use arrayvec::ArrayVec;
use grosso_checksum::Sum;
use grosso_wire::{Ends, Kind, Layer, ipv4, udp};

use super::{OuterChecksum, headers::OuterHeaders, reason::Refusal};
use crate::{
    Meta,
    bytes::u16_at,
    checksum::Checksum,
    template::{render::pseudo_of, shape::Covering},
};

/// State of the checksums around a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verified {
    /// Whether any checksum protects the packet.
    pub(super) is_protected: bool,
    /// Whether there is a UDP header without a checksum.
    pub(super) lacks_udp_checksum: bool,
    /// State of the inner checksums. The offset of a partial checksum is relative to the frame.
    pub(super) inside: Checksum,
}

/// Ranges covered by the checksums of a tunnel, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    /// Offset of the tunnel's payload.
    pub(super) start: usize,
    /// Offset of the first IP header in the inner packet.
    pub(super) network: Option<usize>,
    /// End of the inner packet.
    pub(super) end: usize,
}

/// Verifies the tunnel's checksums that have not been verified yet.
pub(super) fn verify(
    frame: &[u8],
    outer: &OuterHeaders,
    meta: &Meta,
    covered: &Covered,
    outer_checksum: OuterChecksum,
) -> Result<Verified, Refusal> {
    let Covered { start, network, end } = *covered;
    let state = &meta.checksum;
    verify_ipv4(frame, &outer.ip)?;
    if outer_checksum == OuterChecksum::CapturedShort {
        let inside = match *state {
            partial @ Checksum::Partial { start: at, .. } if usize::from(at) >= start => partial,
            _ => Checksum::None,
        };
        return Ok(Verified { is_protected: false, lacks_udp_checksum: false, inside });
    }
    let is_hidden = outer.udp.is_some() && outer_checksum == OuterChecksum::VerifiedBelow;
    let covers = covers(frame, outer, state, is_hidden);
    let verified = match *state {
        Checksum::None | Checksum::Complete { .. } => 0,
        // A hidden outermost checksum was verified below: it is the first of the verified levels, but not in `covers`.
        Checksum::Unnecessary { levels } => usize::from(levels) + usize::from(!is_hidden),
        Checksum::Partial { start: partial, offset } => {
            check_partial(&covers, start, end, partial, offset)?;
            covers.iter().filter(|(covering, _)| covering.start <= partial).count()
        }
    };
    let unverified = covers.get(verified..).unwrap_or_default();
    let sum = match *state {
        Checksum::Complete { sum } => Some(sum_of_payload(frame, outer, sum, start)),
        // A device that merged packets has verified the checksum of each packet, but no checksum of the superframe.
        Checksum::Unnecessary { .. } if verified == covers.len() && meta.gso.is_none() => covers
            .last()
            .map(|(covering, _)| Sum::ZERO.subtract(sum_around(frame, outer, covering, start))),
        _ if unverified.is_empty() => None,
        _ => Some(frame.get(start..outer.end).map_or(Sum::ZERO, Sum::of)),
    };
    for (covering, refusal) in unverified {
        let around = sum_around(frame, outer, covering, start);
        if !(around + sum.unwrap_or(Sum::ZERO)).is_valid() {
            return Err(*refusal);
        }
    }
    let inside = match (*state, sum, network) {
        (partial @ Checksum::Partial { start: at, .. }, ..) if usize::from(at) >= start => partial,
        (Checksum::Unnecessary { .. }, ..) if verified > covers.len() => {
            Checksum::Unnecessary { levels: (verified - covers.len() - 1) as u8 }
        }
        // The sum of the packet follows from the verified checksum around it (rule C30).
        (_, Some(sum), Some(network)) => {
            let before = frame.get(start..network).map_or(Sum::ZERO, Sum::of);
            let behind = trailer(frame, start, end, outer.end);
            Checksum::Complete { sum: sum.subtract(before).subtract(behind).fold() }
        }
        _ => Checksum::None,
    };
    let has_udp = covers.iter().any(|(_, refusal)| *refusal == Refusal::UdpChecksum);
    Ok(Verified {
        is_protected: is_hidden || !covers.is_empty(),
        lacks_udp_checksum: outer.udp.is_some() && !has_udp && !is_hidden,
        inside,
    })
}

fn verify_ipv4(frame: &[u8], ip: &Layer) -> Result<(), Refusal> {
    let header = frame.get(usize::from(ip.offset)..ip.end()).unwrap_or_default();
    if ip.kind == Kind::Ipv4 && !Sum::of(header).is_valid() {
        return Err(Refusal::Ipv4Checksum);
    }
    Ok(())
}

/// Returns the checksums present in a tunnel, outermost first, each with the refusal to report if the checksum is
/// wrong.
fn covers(
    frame: &[u8],
    outer: &OuterHeaders,
    state: &Checksum,
    is_hidden: bool,
) -> ArrayVec<(Covering, Refusal), 2> {
    let mut covers = ArrayVec::new();
    let cover = |layer: &Layer, at: usize, protocol| Covering {
        start: layer.offset,
        at: layer.offset + at as u16,
        ends: Ends::of(frame, &outer.ip),
        protocol,
        zero_means_none: protocol != 0,
    };
    if let Some(udp) = outer.udp.as_ref().filter(|_| !is_hidden) {
        let covering = cover(udp, udp::field::CHECKSUM.start, ipv4::PROTOCOL_UDP);
        // A pseudo-header sum of zero also counts as partial.
        let is_partial = matches!(state, Checksum::Partial { start, .. } if *start == udp.offset);
        if is_partial || u16_at(frame, usize::from(covering.at)) != 0 {
            covers.push((covering, Refusal::UdpChecksum));
        }
    }
    if let Some(gre) = &outer.gre {
        let header = frame.get(gre.offset.into()..gre.end()).unwrap_or_default();
        if let Some((at, cover_of)) = gre.kind.spec().checksum(header) {
            covers.push((cover(gre, at, cover_of.protocol()), Refusal::GreChecksum));
        }
    }
    covers
}

/// Checks that the partial checksum is either that of a tunnel header or inside the inner packet.
fn check_partial(
    covers: &[(Covering, Refusal)],
    start: usize,
    end: usize,
    partial: u16,
    offset: u16,
) -> Result<(), Refusal> {
    let at = usize::from(partial) + usize::from(offset);
    let is_inside = usize::from(partial) >= start && at + 2 <= end;
    let is_cover = covers
        .iter()
        .any(|(covering, _)| (covering.start, usize::from(covering.at)) == (partial, at));
    if is_inside || is_cover { Ok(()) } else { Err(Refusal::ChecksumOutside) }
}

/// Returns the sum of a tunnel's payload, derived from the sum of everything from the outermost IP header on. All
/// headers in between have even lengths (rule C22).
fn sum_of_payload(frame: &[u8], outer: &OuterHeaders, sum: u16, start: usize) -> Sum {
    let network = usize::from(outer.ip.offset);
    let before = frame.get(network..start).map_or(Sum::ZERO, Sum::of);
    let behind = trailer(frame, start, outer.end, frame.len());
    Sum::from_word(sum).subtract(before).subtract(behind)
}

/// Returns the sum of everything that a checksum covers except the tunnel's payload: the header with the checksum, the
/// headers after it, and the pseudo-header. If the checksum is correct, the payload sums to the negative of this sum.
fn sum_around(frame: &[u8], outer: &OuterHeaders, covering: &Covering, start: usize) -> Sum {
    let from = usize::from(covering.start);
    let headers = frame.get(from..start).map_or(Sum::ZERO, Sum::of);
    headers + pseudo_of(covering, frame, outer.end.saturating_sub(from))
}

/// Returns the sum of the bytes from `end` on, as part of a block that starts at `start`.
fn trailer(frame: &[u8], start: usize, end: usize, behind: usize) -> Sum {
    let sum = frame.get(end..behind).map_or(Sum::ZERO, Sum::of);
    if end.wrapping_sub(start) % 2 == 1 { sum.at_odd_offset() } else { sum }
}
