//! The checksums around a packet: computed without its payload, or left to the sender of the packet.

use arrayvec::ArrayVec;
use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Stack, Stop, gre, udp};

use super::{inside::Inside, write::Written};
use crate::{
    bytes::{put_u16, u16_at},
    checksum::Checksum,
    meta::Meta,
    tunnel::{outer::Ends, remote_checksum},
};

/// A checksum that is left to the receiver, in bytes from the start of the inner packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// Start of the sum.
    pub(super) start: u16,
    /// Position of the checksum field, from that start.
    pub(super) offset: u16,
}

impl Remote {
    /// The checksum of a packet whose checksum is partial (rule C52), if no other lies around it: that one would have
    /// to be right both before and after this one is completed.
    pub(super) fn of(inside: &Inside, head: &[u8], stack: &Stack, meta: &Meta) -> Option<Self> {
        let Checksum::Partial { start, offset } = meta.checksum else { return None };
        let (last, around) = stack.layers().split_last()?;
        let is_transport = stack.stop == Stop::Payload && last.offset == start;
        let has_checksum = around.iter().any(|layer| {
            let header = head.get(layer.offset.into()..layer.end()).unwrap_or_default();
            let own = layer.kind.spec().checksum(header);
            own.is_some() || remote_checksum(layer, head).is_some()
        });
        // The receiver counts from the start of the packet, with the tag that is written into it.
        let start = usize::from(start) - inside.start + inside.tagged_len();
        let is_even = start.is_multiple_of(2) && offset.is_multiple_of(2);
        let start = u16::try_from(start).ok()?;
        (is_transport && !has_checksum && is_even).then_some(Self { start, offset })
    }
}

/// A checksum of the tunnel.
struct Cover {
    /// Start of its header in the headers that were written.
    start: usize,
    /// Position of the checksum field.
    at: usize,
    pseudo: Sum,
    /// A result of zero would mean that there is no checksum.
    is_udp: bool,
}

/// Writes the checksums of the tunnel, innermost first, and returns the checksum state of the whole frame.
pub(super) fn seal(
    written: &Written,
    header: &mut [u8],
    ends: &Ends,
    inside: &Inside,
    head: &[u8],
    meta: &Meta,
) -> Checksum {
    let covers = covers(written, header, ends, inside);
    let moved = moved(meta, covers.is_empty(), header.len(), inside);
    if meta.gso.is_some() {
        // Each packet gets its own (rules C40, T11).
        for cover in &covers {
            put_u16(header, cover.at, cover.pseudo.fold());
        }
        return moved;
    }
    // With remote checksum offload the inner checksum is sent as its pseudo-header sum, which is summed with the
    // payload.
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
                let seed = cover.pseudo.fold();
                put_u16(header, cover.at, seed);
                let (start, offset) = (cover.start as u16, (cover.at - cover.start) as u16);
                state = Checksum::Partial { start, offset };
                Sum::from_word(!seed)
            }
        });
        from = cover.start;
    }
    state
}

/// The sum of the inner packet once its partial checksum is completed: the part from `start` on then sums to the
/// complement of the pseudo-header sum (rule C40). `None` if no checksum is partial.
fn completed(inside: &Inside, head: &[u8], meta: &Meta) -> Option<Sum> {
    let Checksum::Partial { start, offset } = meta.checksum else { return None };
    let seed = u16_at(head, usize::from(start) + usize::from(offset));
    let before = head.get(inside.start..usize::from(start)).unwrap_or_default();
    Some(Sum::of(before).append(before.len(), Sum::from_word(!seed)))
}

/// The state of the inner checksums, seen from outside the tunnel.
fn moved(meta: &Meta, is_bare: bool, header_len: usize, inside: &Inside) -> Checksum {
    match meta.checksum {
        Checksum::Partial { start, offset } => {
            let start = usize::from(start) - inside.start + header_len;
            // A frame whose headers reach so far is refused before.
            Checksum::Partial { start: start as u16, offset }
        }
        unnecessary @ Checksum::Unnecessary { .. } if is_bare => unnecessary,
        _ => Checksum::None,
    }
}

/// The checksums that the tunnel is to have, innermost first.
fn covers(written: &Written, header: &[u8], ends: &Ends, inside: &Inside) -> ArrayVec<Cover, 2> {
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
