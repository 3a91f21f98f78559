//! IP fragments of one packet (rules S30 to S32 and S60 to S62).
//!
//! Unlike segments, fragments repeat only the headers that every router reads; the rest of the packet is their data.
//! Checksums in this data are therefore completed before the packet is fragmented.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{LinkType, Ports, Stack, dissect, udp};

use self::header::FragmentHeader;
use crate::{
    bytes::{put_u16, u16_at},
    checksum::Checksum,
    meta::{GsoSize, Meta},
    segment::{BufferTooSmall, NoSegments, Payload, Segment, check_stack, transport},
    template::{render::pseudo_of, shape::Shape},
};

mod header;
mod refusal;

pub use refusal::NoFragments;

/// Options of IP fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentOptions {
    /// Maximum length of a fragment in bytes, including its IP header.
    pub mtu: u16,
    /// Identification of IPv6 fragments. Use a random value (RFC 7739). It is ignored for IPv4, and for a reassembled
    /// packet, which keeps its identification.
    pub identification: u32,
    /// Whether to fragment IPv4 packets even if DF is set.
    pub ignore_dont_fragment: bool,
}

impl FragmentOptions {
    /// Creates options for a link with this MTU in bytes; `identification` applies to IPv6 fragments.
    #[must_use]
    pub const fn new(mtu: u16, identification: u32) -> Self {
        Self { mtu, identification, ignore_dont_fragment: false }
    }
}

/// Writer of the IP fragments of one packet, in order.
///
/// ```
/// use grosso::{LinkType, Meta, segment::{FragmentOptions, Fragments}};
/// # let packet = grosso_testkit::Packet::new().ipv4(|ip| ip.df(false)).udp(|u| u).payload_len(3000).build();
///
/// let (slices, options) = ([&packet[..]], FragmentOptions::new(1500, 7));
/// let mut fragments = Fragments::of_packet(&slices, &Meta::default(), LinkType::Raw, &options)?;
/// let mut buffer = [0; 1500];
/// while let Some(fragment) = fragments.write_next(&mut buffer)? {
///     println!("send {} bytes", fragment.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    header: FragmentHeader,
    data: Payload<'a>,
    /// Checksum that replaces the one in the data.
    patch: Patch,
    data_len: usize,
    /// Number of data bytes in each fragment except the last, a multiple of 8.
    unit: usize,
    /// Maximum number of data bytes in the last fragment.
    last_max: usize,
    before: usize,
    meta: Meta,
}

impl<'a> Fragments<'a> {
    /// Prepares the fragmentation of the UDP superframe in `slices`, whose metadata requests fragments (UFO, rules S30
    /// to S32). `identification` applies to IPv6 fragments and should be random (RFC 7739).
    ///
    /// # Errors
    /// Returns the reason why the frame cannot or need not be fragmented.
    pub fn of_superframe(
        slices: &'a [&'a [u8]],
        meta: &Meta,
        link: LinkType,
        ports: &Ports,
        identification: u32,
    ) -> Result<Self, NoSegments> {
        let Some(GsoSize::Fragments(size)) = meta.gso.map(|gso| gso.size) else {
            return Err(NoSegments::NotSuperframe);
        };
        let head = slices.first().copied().unwrap_or_default();
        let mut stack = Stack::new(0);
        meta.dissect_into(head, link, ports, &mut stack);
        let transport = transport(&stack)?;
        check_stack(&stack, head)?;
        let shape = Shape::new(&stack, head);
        if shape.is_tcp || shape.ip_levels != 1 {
            return Err(NoSegments::Headers);
        }
        let header = FragmentHeader::new(head, &stack, identification)
            .map_err(|_| NoSegments::HeaderTooLong)?;
        // Offsets count in units of 8 bytes, so a remainder goes into the next fragment (rule S32).
        let unit = usize::from(size.get()) & !7;
        if unit == 0 {
            return Err(NoSegments::Fragments);
        }
        let frame_len = length(slices);
        let data_len = frame_len.saturating_sub(header.data_start);
        if data_len <= unit {
            return Err(NoSegments::Whole);
        }
        if header.ip_header_len() + data_len > usize::from(u16::MAX) {
            return Err(NoSegments::TooLong);
        }
        let data = Payload { slices, slice: 0, offset: header.data_start };
        let datagram = Payload { offset: transport.offset.into(), ..data };
        let datagram_len = frame_len.saturating_sub(transport.offset.into());
        let patch = Patch {
            at: usize::from(transport.offset) - header.data_start + udp::field::LENGTH.start,
            ..Patch::of_datagram(datagram, datagram_len, head, &shape)
        };
        let meta = Meta { checksum: Checksum::None, gso: None, fragmented: None, ..*meta };
        Ok(Self { header, data, patch, data_len, unit, last_max: unit, before: 0, meta })
    }

    /// Prepares the fragmentation of the IP packet in `slices`; the first slice must contain all headers. Trailing
    /// bytes such as Ethernet padding are dropped, and a partial checksum is completed. If the packet is tunneled, its
    /// outermost IP packet is fragmented.
    ///
    /// A reassembled packet ([`Meta::fragmented`]) is split into fragments no larger than the original ones (rules S61,
    /// S62); in this case, DF only forbids fragments longer than the largest original one. Any other IPv6 packet must
    /// originate from the caller, because routers do not fragment IPv6 (RFC 8200 section 5).
    ///
    /// # Errors
    /// Returns the reason why the packet cannot, must not or need not be fragmented.
    pub fn of_packet(
        slices: &'a [&'a [u8]],
        meta: &Meta,
        link: LinkType,
        options: &FragmentOptions,
    ) -> Result<Self, NoFragments> {
        if meta.gso.is_some() {
            return Err(NoFragments::Superframe);
        }
        let head = slices.first().copied().unwrap_or_default();
        let stack = dissect(head, link, &Ports::NONE);
        let came = meta.fragmented;
        let identification = came.map_or(options.identification, |came| came.identification);
        let header = FragmentHeader::new(head, &stack, identification)?;
        let frame_len = length(slices);
        let data_len = header.data_len(frame_len)?;
        let largest = came.map_or(u16::MAX, |came| came.largest.get());
        let most = usize::from(options.mtu.min(largest.max(header.largest_min())));
        if header.whole_len() <= most {
            return Err(NoFragments::Whole);
        }
        if header.forbids_fragments() && !options.ignore_dont_fragment {
            // A packet that arrived in fragments may be sent in fragments again if they fit (rule S61).
            let may_again = came.is_some_and(|came| came.largest.get() <= options.mtu);
            if !may_again {
                return Err(NoFragments::DontFragment { mtu: options.mtu });
            }
        }
        if !header.is_intact() {
            return Err(NoFragments::Ipv4Checksum);
        }
        let last_max = most.saturating_sub(header.ip_header_len());
        let unit = last_max & !7;
        let known = head.get(header.data_start..).unwrap_or_default();
        let first_len_min = header.first_len_min(&stack, known, data_len);
        if unit < first_len_min.ok_or(NoFragments::HeadersSplit)? {
            return Err(NoFragments::MtuTooSmall);
        }
        let data = Payload { slices, slice: 0, offset: header.data_start };
        let patch = match meta.checksum {
            Checksum::Partial { start, offset } => {
                let whole = Payload { slices, slice: 0, offset: 0 };
                Patch::of_partial(whole, (start, offset), header.data_start, data_len)?
            }
            _ => Patch::default(),
        };
        let meta = Meta { checksum: Checksum::None, fragmented: None, ..*meta };
        Ok(Self { header, data, patch, data_len, unit, last_max, before: 0, meta })
    }

    /// Writes the next fragment to `out`. Returns `None` after the last fragment.
    ///
    /// # Errors
    /// Returns [`BufferTooSmall`] if `out` is too short; call again with a larger buffer.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<Segment>, BufferTooSmall> {
        let left = self.data_len - self.before;
        if left == 0 {
            return Ok(None);
        }
        let payload_len = if left <= self.last_max { left } else { self.unit };
        let header_len = self.header.len();
        let needed = header_len + payload_len;
        let Some(out) = out.get_mut(..needed) else { return Err(BufferTooSmall { needed }) };
        let (header, data) = out.split_at_mut(header_len);
        self.header.write(header, self.before, payload_len, payload_len < left);
        self.data.copy(data);
        self.patch.apply(self.before, data);
        self.before += payload_len;
        Ok(Some(Segment { header_len, payload_len, meta: self.meta }))
    }

    /// Returns the length in bytes of the longest fragment. A buffer of this size suffices.
    #[must_use]
    pub fn packet_len_max(&self) -> usize {
        self.header.len() + self.last_max.min(self.data_len)
    }
}

/// New bytes to write over the data at one offset, for example a completed checksum.
#[derive(Clone, Copy, Debug, Default)]
struct Patch {
    /// Offset in bytes from the start of the data.
    at: usize,
    bytes: [u8; 4],
    len: usize,
}

impl Patch {
    /// Returns the length and checksum of a UDP superframe's header. The checksum covers the whole datagram, so it is
    /// computed before fragmentation (rule S30).
    fn of_datagram(mut datagram: Payload<'_>, len: usize, head: &[u8], shape: &Shape) -> Self {
        let mut header = [0; udp::HEADER_LEN];
        let bytes = head.get(shape.transport..shape.transport + udp::HEADER_LEN);
        header.copy_from_slice(bytes.unwrap_or(&[0; udp::HEADER_LEN]));
        put_u16(&mut header, udp::field::LENGTH.start, len as u16);
        let at = udp::field::CHECKSUM.start;
        if let Some(covering) = shape.covers.last().filter(|_| u16_at(&header, at) != 0) {
            put_u16(&mut header, at, 0);
            datagram.take(udp::HEADER_LEN, |_| {});
            let mut sum = pseudo_of(covering, head, len) + Sum::of(&header);
            sum += datagram.sum(len.saturating_sub(udp::HEADER_LEN));
            put_u16(&mut header, at, nonzero(sum.checksum()));
        }
        let bytes = *header[udp::field::LENGTH.start..].first_chunk().unwrap_or(&[0; 4]);
        Self { at: 0, bytes, len: 4 }
    }

    /// Completes the partial checksum at `start` and `offset`, and returns the bytes to write (rule C3). The frame has
    /// `data_len` bytes of data, starting at `data_start`.
    fn of_partial(
        mut frame: Payload<'_>,
        (start, offset): (u16, u16),
        data_start: usize,
        data_len: usize,
    ) -> Result<Self, NoFragments> {
        let (start, end) = (usize::from(start), data_start + data_len);
        let field = start + usize::from(offset);
        if start < data_start || field + 2 > end {
            return Err(NoFragments::ChecksumOutside);
        }
        frame.take(start, |_| {});
        let checksum = nonzero(frame.sum(end - start).checksum()).to_be_bytes();
        Ok(Self { at: field - data_start, bytes: [checksum[0], checksum[1], 0, 0], len: 2 })
    }

    /// Applies the part of the patch that lies in a fragment with this `data`, which starts `before` bytes into all
    /// data.
    fn apply(&self, before: usize, data: &mut [u8]) {
        for (at, byte) in (self.at..).zip(&self.bytes[..self.len]) {
            if let Some(place) = at.checked_sub(before).and_then(|at| data.get_mut(at)) {
                *place = *byte;
            }
        }
    }
}

fn length(slices: &[&[u8]]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;
    use std::{vec, vec::Vec};

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports};

    use super::{Fragments, NoSegments};
    use crate::meta::{Gso, GsoSize, Meta};

    fn ufo(size: u16) -> Meta {
        let cut = NonZeroU16::new(size).map(GsoSize::Fragments);
        let gso = cut.and_then(|cut| Gso::every(1).map(|gso| Gso { size: cut, ..gso }));
        Meta { gso, ..Meta::default() }
    }

    fn cut(frame: &[u8], size: u16) -> Result<Vec<Vec<u8>>, NoSegments> {
        let slices = [&frame[..100], &frame[100..]];
        let mut plan = Fragments::of_superframe(
            &slices,
            &ufo(size),
            LinkType::Ethernet,
            &Ports::NONE,
            0x01020304,
        )?;
        let mut fragments = Vec::new();
        let mut buffer = [0xa5; 2000];
        while let Some(fragment) = plan.write_next(&mut buffer).unwrap() {
            fragments.push(buffer[..fragment.len()].to_vec());
        }
        Ok(fragments)
    }

    // Rules: B53
    #[test]
    fn s30_s31_ipv4_fragments_share_one_identification_and_one_checksum() {
        let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(77).df(true)).udp(|u| u);
        let whole = datagram.payload_len(3000).build();
        let fragments = cut(&whole, 1480).unwrap();
        let words: Vec<_> = fragments.iter().map(|f| u16::from_be_bytes([f[20], f[21]])).collect();
        // DF is kept, MF is set in every fragment but the last, and offsets are in units of 8 bytes.
        assert_eq!(words, [0x6000, 0x6000 | 185, 0x4000 | 370]);
        assert!(fragments.iter().all(|f| f[18..20] == [0, 77]));
        assert!(fragments.iter().all(|f| f[16..18] == ((f.len() - 14) as u16).to_be_bytes()));
        assert!(fragments.iter().all(|f| grosso_testkit::oracle::sum(&f[14..34]) == 0xffff));
        let data: Vec<u8> = fragments.iter().flat_map(|f| f[34..].to_vec()).collect();
        assert_eq!(data, whole[34..]);
    }

    #[test]
    fn s31_ipv6_fragments_get_a_header_behind_the_unfragmentable_part() {
        let datagram = Packet::new().ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h).udp(|u| u);
        let whole = datagram.payload_len(2000).build();
        let fragments = cut(&whole, 1448).unwrap();
        for (i, fragment) in fragments.iter().enumerate() {
            // The fixed header is followed by hop-by-hop options, then a fragment header, then UDP.
            assert_eq!((fragment[20], fragment[54], fragment[62], fragment[63]), (0, 44, 17, 0));
            assert_eq!(fragment[18..20], ((fragment.len() - 54) as u16).to_be_bytes());
            let offset = i as u16 * 1448;
            assert_eq!(fragment[64..66], (offset | u16::from(i == 0)).to_be_bytes());
            assert_eq!(fragment[66..70], [1, 2, 3, 4]);
        }
        let data: Vec<u8> = fragments.iter().flat_map(|f| f[70..].to_vec()).collect();
        assert_eq!(data, whole[62..]);
    }

    // Rules: B53
    #[test]
    fn s32_a_size_that_is_no_multiple_of_8_is_rounded_down() {
        let whole =
            Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(2500).build();
        let fragments = cut(&whole, 1001).unwrap();
        let lengths: Vec<_> = fragments.iter().map(|f| f.len() - 34).collect();
        assert_eq!(lengths, [1000, 1000, 508]);
        assert_eq!(cut(&whole, 7), Err(NoSegments::Fragments));
        assert_eq!(cut(&whole, 2512), Err(NoSegments::Whole));
    }

    #[test]
    fn a_datagram_without_checksum_keeps_having_none() {
        let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
        let whole = datagram.payload_len(1600).build();
        assert_eq!(cut(&whole, 800).unwrap()[0][40..42], [0, 0]);
    }

    #[test]
    fn f13_more_than_a_datagram_can_be_is_refused() {
        let mut whole =
            Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(1000).build();
        whole.extend(vec![0; 65_000]);
        assert_eq!(cut(&whole, 1480), Err(NoSegments::TooLong));
    }
}
