//! Checksums of the outer headers. They are computed without reading the packet's payload, or left to the sending
//! device.

use arrayvec::ArrayVec;
use grosso_checksum::{Sum, nonzero};
use grosso_wire::{gre, udp};

use super::{inside::Inside, write::Written};
use crate::{
    bytes::{put_u16, u16_at},
    checksum::Checksum,
    meta::Meta,
    tunnel::outer::OuterEnds,
};

/// Checksum in a tunnel header.
struct Cover {
    /// Offset of the header that contains the checksum, in the written headers.
    start: usize,
    /// Offset of the checksum field.
    at: usize,
    pseudo: Sum,
    /// Whether a result of zero would mean "no checksum".
    is_udp: bool,
}

/// Writes the tunnel's checksums, innermost first, and returns the checksum state of the whole frame.
pub(super) fn seal(
    written: &Written,
    header: &mut [u8],
    ends: &OuterEnds,
    inside: &Inside,
    head: &[u8],
    meta: &Meta,
) -> Checksum {
    let covers = covers(written, header, ends, inside);
    let moved = moved(meta, covers.is_empty(), header.len(), inside);
    if meta.gso.is_some() {
        // Segmentation computes the checksum of each packet from the pseudo-header sum (rules C40, T11).
        for cover in &covers {
            put_u16(header, cover.at, cover.pseudo.fold());
        }
        return moved;
    }
    // With remote checksum offload, the inner checksum field holds the pseudo-header sum on the wire, so the outer
    // checksum covers that value.
    let completed = if written.is_remote { None } else { completed(inside, head, meta) };
    let (mut state, mut behind) = (moved, completed);
    let mut from = header.len();
    for cover in &covers {
        behind = Some(match behind {
            Some(sum) => {
                let sum = sum + header.get(cover.start..from).map_or(Sum::ZERO, Sum::of);
                let checksum = (sum + cover.pseudo).checksum();
                let checksum = if cover.is_udp { nonzero(checksum) } else { checksum };
                put_u16(header, cover.at, checksum);
                sum + Sum::from_word(checksum)
            }
            None => {
                let pseudo = cover.pseudo.fold();
                put_u16(header, cover.at, pseudo);
                let (start, offset) = (cover.start as u16, (cover.at - cover.start) as u16);
                state = Checksum::Partial { start, offset };
                Sum::from_word(!pseudo)
            }
        });
        from = cover.start;
    }
    state
}

/// Returns the sum that the inner packet will have once its partial checksum is completed. The bytes from `start` on
/// then sum to the complement of the pseudo-header sum (rule C40). Returns `None` if no checksum is partial.
fn completed(inside: &Inside, head: &[u8], meta: &Meta) -> Option<Sum> {
    let Checksum::Partial { start, offset } = meta.checksum else { return None };
    let pseudo = u16_at(head, usize::from(start) + usize::from(offset));
    let before = head.get(inside.start..usize::from(start)).unwrap_or_default();
    Some(Sum::of(before).append(before.len(), Sum::from_word(!pseudo)))
}

/// Returns the state of the inner checksums, with offsets relative to the encapsulated frame.
fn moved(meta: &Meta, is_bare: bool, header_len: usize, inside: &Inside) -> Checksum {
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            let start = usize::from(start) - inside.start + header_len;
            // This fits into 16 bits, because frames with longer headers have been refused.
            Checksum::Partial { start: start as u16, offset }
        }
        unnecessary @ Checksum::Unnecessary { .. } if is_bare => unnecessary,
        _ => Checksum::None,
    }
}

/// Returns the checksums that the tunnel requires, innermost first.
fn covers(
    written: &Written,
    header: &[u8],
    ends: &OuterEnds,
    inside: &Inside,
) -> ArrayVec<Cover, 2> {
    let mut covers = ArrayVec::new();
    if let Some(start) = written.gre {
        let at = start + gre::field::CHECKSUM.start;
        covers.push(Cover { start, at, pseudo: Sum::ZERO, is_udp: false });
    }
    if let Some(start) = written.udp {
        let pseudo = ends.pseudo_udp(header.len() - start + inside.len());
        covers.push(Cover { start, at: start + udp::field::CHECKSUM.start, pseudo, is_udp: true });
    }
    covers
}
