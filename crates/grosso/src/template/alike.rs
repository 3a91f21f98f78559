//! The laws applied to packets that are alike: between the first and the last of a train, and as long as one another.
//!
//! Only identifications, the sequence number and two kinds of checksum vary there. A header checksum follows from its
//! identification (RFC 1624). The innermost checksum is a sum that they all share, and those of the sequence number and
//! the payload. A checksum around it is the same in all: what it covers inside ends with a checksum of its own, and so
//! sums to the complement of a pseudo-header that they share, as in local checksum offload (rule C40).

use grosso_checksum::{Sum, nonzero, update};
use grosso_wire::ipv4;

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    coalesce::HEADER_BYTES_MAX,
    meta::IpLevels,
    template::{
        render::{Checksums, Place, Template, pseudo_of, sum_of},
        shape::{Covering, Shape},
    },
};

/// The headers of one of the packets, of which those of the others are made.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    header: [u8; HEADER_BYTES_MAX],
    /// Where its packet is in the train. It says how long they all are.
    place: Place,
    /// What the innermost checksum covers, without sequence number and payload; none where it is not written, or is the
    /// same in all.
    sum: Option<Sum>,
}

impl Alike {
    /// Learns from the headers of the packet at `place`, if others can be made of them: a checksum that a receiver
    /// completes, or that is not there, leaves the payload to those around it.
    pub(crate) fn learn(
        template: &Template<'_>,
        place: Place,
        checksums: Checksums,
        header: &[u8],
    ) -> Option<Self> {
        let shape = template.shape;
        let innermost = shape.covers.last()?;
        let is_written = template.checksum_wanted
            || !innermost.zero_means_none
            || u16_at(template.header, innermost.at as usize) != 0;
        let is_alone = shape.covers.len() == 1;
        if place.index == 0 || shape.remote_checksum.is_some() || !(is_written || is_alone) {
            return None;
        }
        let mut alike = Self { header: [0; HEADER_BYTES_MAX], place, sum: None };
        alike.header.get_mut(..header.len())?.copy_from_slice(header);
        if let (Checksums::Complete(_), true) = (checksums, is_written) {
            alike.sum = Some(shared_sum(innermost, shape.sequence, header, place.payload));
        }
        Some(alike)
    }

    /// Whether the packet at `place`, which is not before the one that was learned from, is one of them.
    #[inline]
    pub(crate) fn includes(&self, place: Place) -> bool {
        place.payload == self.place.payload && !place.last
    }

    /// Writes the headers of the packet at `place`, whose payload sums to `payload`.
    #[inline]
    pub(crate) fn render(
        &self,
        shape: &Shape,
        fixed_ids: IpLevels,
        place: Place,
        payload: Sum,
        header: &mut [u8],
    ) {
        let Some(same) = self.header.get(..header.len()) else { return };
        header.copy_from_slice(same);
        let packets = place.index.wrapping_sub(self.place.index) as u16;
        for ip in &shape.identifications {
            if fixed_ids.contains(ip.level as usize) {
                continue;
            }
            let at = ip.header as usize + ipv4::field::IDENTIFICATION.start;
            let first = u16_at(same, at);
            let identification = first.wrapping_add(packets);
            put_u16(header, at, identification);
            let at = ip.header as usize + ipv4::field::CHECKSUM.start;
            put_u16(header, at, update(u16_at(same, at), first, identification));
        }
        let mut sum = payload;
        if let Some(at) = shape.sequence {
            let bytes = place.before.wrapping_sub(self.place.before);
            let sequence = u32_at(same, at as usize).wrapping_add(bytes);
            put_u32(header, at as usize, sequence);
            sum += Sum::from_u32(sequence);
        }
        if let (Some(shared), Some(innermost)) = (self.sum, shape.covers.last()) {
            let checksum = (sum + shared).checksum();
            let is_udp = innermost.zero_means_none;
            let checksum = if is_udp { nonzero(checksum) } else { checksum };
            put_u16(header, innermost.at as usize, checksum);
        }
    }
}

/// The sum of the innermost header of one packet, its pseudo-header included, without its checksum and sequence number.
fn shared_sum(innermost: &Covering, sequence: Option<u16>, header: &[u8], payload: usize) -> Sum {
    let start = innermost.start as usize;
    let whole = sum_of(header, start, header.len());
    let checksum = Sum::from_word(u16_at(header, innermost.at as usize));
    let sequence = sequence.map_or(Sum::ZERO, |at| Sum::from_u32(u32_at(header, at as usize)));
    let pseudo = pseudo_of(innermost, header, header.len() + payload - start);
    whole.subtract(checksum).subtract(sequence) + pseudo
}
