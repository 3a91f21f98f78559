//! Writes the headers of one packet of a train, or of the whole train as a superframe, as their laws determine.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{ipv4, tcp};

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    meta::{Cwr, IpLevels},
    template::{
        compare::ON_LAST_ONLY,
        shape::{Covering, Shape},
    },
};

/// Headers of a train, and the modes that some laws need: fixed identifications, CWR, and checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template<'a> {
    /// Offsets of the varying fields.
    pub(crate) shape: &'a Shape,
    /// Headers of the first packet, or of the superframe.
    pub(crate) header: &'a [u8],
    /// IP levels whose identification is fixed.
    pub(crate) fixed_ids: IpLevels,
    /// Packets that have CWR.
    pub(crate) cwr: Cwr,
    /// Whether to write a transport checksum even if the checksum field is zero. In UDP, zero normally means that there
    /// is no checksum, but here the source of the superframe may have omitted even the pseudo-header sum.
    pub(crate) checksum_wanted: bool,
}

/// Packet, or range of packets, in a train for which headers are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    /// Number of packets in the train before this one.
    pub(crate) index: u32,
    /// Number of payload bytes in the train before this packet.
    pub(crate) before: u32,
    /// Number of payload bytes in this packet.
    pub(crate) payload: usize,
    /// Whether the train ends with this packet.
    pub(crate) last: bool,
}

/// Form in which to write checksums that cover the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checksums {
    /// All checksums are complete. The value is the sum of the payload.
    Complete(Sum),
    /// The innermost checksum is the pseudo-header sum, which a device completes, and the outer checksums are complete
    /// (local checksum offload, C40).
    Partial,
    /// All checksums are pseudo-header sums, as in a superframe (rules G51, T11).
    PseudoHeader,
}

impl Template<'_> {
    /// Writes the headers of the packet at `portion` into `header`, which contains a copy of the template's headers.
    #[inline]
    pub(crate) fn render(&self, portion: Portion, checksums: Checksums, header: &mut [u8]) {
        let end = header.len() + portion.payload;
        for length in &self.shape.lengths {
            let value = end - length.from as usize;
            // Only an IP length may exceed its field (rules G50, G63). The limits on trains ensure this.
            put_u16(header, length.at as usize, u16::try_from(value).unwrap_or(0));
        }
        for ip in &self.shape.identifications {
            let start = ip.header as usize;
            if !self.fixed_ids.contains(ip.level as usize) {
                let at = start + ipv4::field::IDENTIFICATION.start;
                put_u16(header, at, u16_at(self.header, at).wrapping_add(portion.index as u16));
            }
            let at = start + ipv4::field::CHECKSUM.start;
            put_u16(header, at, 0);
            let sum = sum_of(header, start, start + ip.header_len as usize);
            put_u16(header, at, sum.checksum());
        }
        if let Some(at) = self.shape.sequence {
            let first = u32_at(self.header, at as usize);
            put_u32(header, at as usize, first.wrapping_add(portion.before));
        }
        if let Some(flags) = self.shape.flags.and_then(|at| header.get_mut(at as usize)) {
            self.render_flags(portion, flags);
        }
        self.render_checksums(end, checksums, header);
    }

    #[inline]
    fn render_flags(&self, portion: Portion, flags: &mut u8) {
        if !portion.last {
            *flags &= !ON_LAST_ONLY;
        }
        if portion.index > 0 && self.cwr == Cwr::First {
            *flags &= !(tcp::CWR as u8);
        }
    }

    /// Writes checksums, innermost first, because each checksum covers those inside it.
    #[inline]
    fn render_checksums(&self, end: usize, checksums: Checksums, header: &mut [u8]) {
        let mut from = header.len();
        // Sum of all bytes from `from` to the end of the packet.
        let mut behind = match checksums {
            Checksums::Complete(payload) => payload,
            Checksums::Partial | Checksums::PseudoHeader => Sum::ZERO,
        };
        for (depth, covering) in self.shape.covers.iter().rev().enumerate() {
            let (start, at) = (covering.start as usize, covering.at as usize);
            let innermost = depth == 0;
            let is_wanted = innermost && self.checksum_wanted;
            if covering.zero_means_none && !is_wanted && u16_at(self.header, at) == 0 {
                continue;
            }
            put_u16(header, at, 0);
            let pseudo = pseudo_of(covering, header, end - start);
            let left_to_others = match checksums {
                Checksums::PseudoHeader => true,
                Checksums::Partial => innermost,
                Checksums::Complete(_) => innermost && self.shape.remote_checksum.is_some(),
            };
            if left_to_others {
                put_u16(header, at, pseudo.fold());
                behind = match checksums {
                    // Once the device has completed the innermost checksum, the bytes that it covers sum to the
                    // complement of its pseudo-header sum.
                    Checksums::Partial => Sum::from_word(!pseudo.fold()),
                    _ => sum_of(header, start, from) + behind,
                };
            } else {
                behind += sum_of(header, start, from);
                let checksum = (behind + pseudo).checksum();
                let checksum = if covering.zero_means_none { nonzero(checksum) } else { checksum };
                put_u16(header, at, checksum);
                behind += Sum::from_word(checksum);
            }
            from = start;
        }
    }
}

#[inline]
pub(crate) fn sum_of(header: &[u8], from: usize, to: usize) -> Sum {
    header.get(from..to).map_or(Sum::ZERO, Sum::of)
}

/// Returns the pseudo-header sum for a checksum that covers `len` bytes.
#[inline]
pub(crate) fn pseudo_of(covering: &Covering, packet: &[u8], len: usize) -> Sum {
    if covering.protocol == 0 {
        return Sum::ZERO;
    }
    covering.ends.pseudo(packet, covering.protocol, len)
}
