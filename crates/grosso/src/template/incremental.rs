//! Incremental headers: a packet between the first and the last of a train gets its headers from an earlier packet of
//! the same length, with only the varying fields changed.
//!
//! Among these packets, only identifications, the sequence number and two kinds of checksums vary. A header checksum
//! follows from its identification (RFC 1624). The innermost checksum that covers the payload is the sum of a part that
//! all packets share, the sequence number and the payload. Checksums inside that one do not vary: each is absent, or is
//! a pseudo-header sum that a receiver completes (rule C52). Checksums outside it do not vary either. The last part of
//! the bytes that they cover has a checksum of its own, so this part sums to the complement of a pseudo-header sum that
//! all packets share, as in local checksum offload (rule C40).

use grosso_checksum::{Sum, nonzero, update};
use grosso_wire::ipv4;

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    meta::IpLevels,
    template::{
        HEADER_BYTES_MAX,
        render::{Checksums, Portion, Template, pseudo_of, sum_of},
        shape::{Covering, Shape},
    },
};

/// Headers of one packet, from which those of later packets can be derived.
#[derive(Clone, Debug)]
pub(crate) struct IncrementalHeader {
    header: [u8; HEADER_BYTES_MAX],
    /// Portion of the train that the stored packet covers. All packets derived from it have the same payload length.
    portion: Portion,
    /// Innermost checksum that depends on the payload, or `None` if all checksums are the same in all packets.
    summed: Option<Summed>,
}

/// Checksum that depends on the payload.
#[derive(Clone, Copy, Debug)]
struct Summed {
    /// Offset of the checksum field.
    at: u16,
    /// Sum of the covered bytes, except the sequence number and the payload.
    shared: Sum,
    /// Whether a result of zero would mean "no checksum".
    is_udp: bool,
}

impl IncrementalHeader {
    /// Stores the headers of the packet at `portion`. Returns `None` for the first packet of a train, because its flags
    /// differ from those of the other packets.
    pub(crate) fn learn(
        template: &Template<'_>,
        portion: Portion,
        checksums: Checksums,
        header: &[u8],
    ) -> Option<Self> {
        if portion.index == 0 {
            return None;
        }
        let mut incremental = Self { header: [0; HEADER_BYTES_MAX], portion, summed: None };
        incremental.header.get_mut(..header.len())?.copy_from_slice(header);
        if let Checksums::Complete(_) = checksums {
            let Template { shape, checksum_wanted, .. } = template;
            let summed = shape.made_of_payload(template.header, *checksum_wanted);
            incremental.summed = summed.map(|covering| Summed {
                at: covering.at,
                shared: shared_sum(covering, shape.sequence, header, portion.payload),
                is_udp: covering.zero_means_none,
            });
        }
        Some(incremental)
    }

    /// Returns whether the headers of the packet at `portion` can be derived. The packet must not precede the stored
    /// one.
    pub(crate) fn includes(&self, portion: Portion) -> bool {
        portion.payload == self.portion.payload && !portion.last
    }

    /// Writes the headers of the packet at `portion`, whose payload sums to `payload`.
    #[inline]
    pub(crate) fn render(
        &self,
        shape: &Shape,
        fixed_ids: IpLevels,
        portion: Portion,
        payload: Sum,
        header: &mut [u8],
    ) {
        let Some(same) = self.header.get(..header.len()) else { return };
        header.copy_from_slice(same);
        let packets = portion.index.wrapping_sub(self.portion.index) as u16;
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
            let bytes = portion.before.wrapping_sub(self.portion.before);
            let sequence = u32_at(same, at as usize).wrapping_add(bytes);
            put_u32(header, at as usize, sequence);
            sum += Sum::from_u32(sequence);
        }
        if let Some(Summed { at, shared, is_udp }) = self.summed {
            let checksum = (sum + shared).checksum();
            let checksum = if is_udp { nonzero(checksum) } else { checksum };
            put_u16(header, at as usize, checksum);
        }
    }
}

/// Returns the part of a checksum that is the same for all packets: the sum of the covered headers and the
/// pseudo-header, without the checksum and the sequence number.
fn shared_sum(covering: &Covering, sequence: Option<u16>, header: &[u8], payload: usize) -> Sum {
    let start = covering.start as usize;
    let whole = sum_of(header, start, header.len());
    let checksum = Sum::from_word(u16_at(header, covering.at as usize));
    let sequence = sequence.map_or(Sum::ZERO, |at| Sum::from_u32(u32_at(header, at as usize)));
    let pseudo = pseudo_of(covering, header, header.len() + payload - start);
    whole.subtract(checksum).subtract(sequence) + pseudo
}
