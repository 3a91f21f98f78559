//! UDP superframes cut into IP fragments: UFO (rules S30 to S32).
//!
//! Unlike segments, fragments repeat only the headers up to IP; the UDP header and its one
//! checksum, over the whole datagram, travel in the first.

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Kind, Layer, LinkType, Ports, dissect, ipv4, ipv6, udp};

use crate::{
    bytes::{put_u16, put_u32, u16_at},
    checksum::Checksum,
    coalesce::HEADER_BYTES_MAX,
    meta::{Cut, Meta},
    segment::{BufferTooSmall, NoCut, Payload, Segment, check_stack, transport},
    template::{render::pseudo_of, shape::Shape},
};

/// The IP fragments of one UDP superframe, in order.
#[must_use]
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    /// The headers that every fragment repeats, with room for a fragment header behind them.
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    ip: Layer,
    identification: u32,
    /// The UDP header with its checksum, which is the start of the first fragment's data.
    udp: [u8; udp::HEADER_LEN],
    payload: Payload<'a>,
    /// Bytes of IP payload, the UDP header included.
    data_len: usize,
    /// Bytes of it in each fragment but the last: a multiple of 8.
    unit: usize,
    before: usize,
    meta: Meta,
}

impl<'a> Fragments<'a> {
    /// Plans how to cut the frame that `slices` make together. `identification` is that of IPv6
    /// fragments and should be random (RFC 7739); IPv4 fragments keep the packet's own.
    ///
    /// # Errors
    /// When the frame cannot be cut into fragments, or need not be.
    pub fn new(
        slices: &'a [&'a [u8]],
        meta: &Meta,
        link: LinkType,
        ports: &Ports,
        identification: u32,
    ) -> Result<Self, NoCut> {
        let Some(Cut::Fragments(size)) = meta.gso.map(|gso| gso.cut) else {
            return Err(NoCut::NotSuperframe);
        };
        let head = slices.first().copied().unwrap_or_default();
        let stack = dissect(head, link, ports);
        let transport = transport(&stack)?;
        check_stack(&stack, head)?;
        let shape = Shape::new(&stack, head);
        if shape.is_tcp || shape.ip_levels != 1 {
            return Err(NoCut::Headers);
        }
        let header_len = transport.offset as usize;
        if header_len + ipv6::HEADER_LEN > HEADER_BYTES_MAX {
            return Err(NoCut::HeaderTooLong);
        }
        let frame_len: usize = slices.iter().map(|slice| slice.len()).sum();
        let data_len = frame_len.saturating_sub(header_len);
        // Offsets count in units of 8 bytes, so what does not fill one stays for the next fragment
        // (rule S32).
        let unit = usize::from(size.get()) & !7;
        if unit == 0 {
            return Err(NoCut::Fragments);
        }
        if data_len <= unit {
            return Err(NoCut::Whole);
        }
        let ip_header_len = header_len - shape.network;
        if ip_header_len + data_len > usize::from(u16::MAX) {
            return Err(NoCut::TooLong);
        }
        let ip = stack.layers().iter().copied().find(|l| matches!(l.kind, Kind::Ipv4 | Kind::Ipv6));
        let mut header = [0; HEADER_BYTES_MAX];
        header[..header_len].copy_from_slice(&head[..header_len]);
        let mut fragments = Self {
            header,
            header_len,
            ip: ip.ok_or(NoCut::Headers)?,
            identification,
            udp: [0; udp::HEADER_LEN],
            payload: Payload { slices, slice: 0, offset: transport.end() },
            data_len,
            unit,
            before: 0,
            meta: Meta { checksum: Checksum::None, gso: None, ..*meta },
        };
        fragments.complete_datagram(head, &shape);
        if fragments.ip.kind == Kind::Ipv6 {
            fragments.insert_fragment_header();
        }
        Ok(fragments)
    }

    /// Writes the next fragment into `out`. `None` after the last.
    ///
    /// # Errors
    /// When `out` is too small; the fragment is still the next.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<Segment>, BufferTooSmall> {
        let left = self.data_len - self.before;
        if left == 0 {
            return Ok(None);
        }
        let len = left.min(self.unit);
        let needed = self.header_len + len;
        let Some(out) = out.get_mut(..needed) else { return Err(BufferTooSmall { needed }) };
        let (header, data) = out.split_at_mut(self.header_len);
        header.copy_from_slice(&self.header[..self.header_len]);
        self.write_header(header, len, len < left);
        let in_udp_header = if self.before == 0 { udp::HEADER_LEN } else { 0 };
        data[..in_udp_header].copy_from_slice(&self.udp[..in_udp_header]);
        self.payload.copy(&mut data[in_udp_header..]);
        self.before += len;
        Ok(Some(Segment { header_len: self.header_len, payload_len: len, meta: self.meta }))
    }

    /// The UDP checksum covers the whole datagram, so it is made before anything is cut (rule S30).
    fn complete_datagram(&mut self, head: &[u8], shape: &Shape) {
        let start = shape.transport;
        if let Some(header) = head.get(start..start + udp::HEADER_LEN) {
            self.udp.copy_from_slice(header);
        }
        put_u16(&mut self.udp, udp::field::LENGTH.start, self.data_len as u16);
        let Some(covering) = shape.covers.last() else { return };
        let at = udp::field::CHECKSUM.start;
        if u16_at(&self.udp, at) == 0 {
            return;
        }
        put_u16(&mut self.udp, at, 0);
        let mut sum = pseudo_of(covering, head, self.data_len) + Sum::of(&self.udp);
        let mut len = 0;
        let mut payload = self.payload;
        payload.take(self.data_len - udp::HEADER_LEN, |slice| {
            sum = sum.append(len, Sum::of(slice));
            len += slice.len();
        });
        put_u16(&mut self.udp, at, nonzero(sum.checksum()));
    }

    /// A fragment header behind the headers that every router reads (RFC 8200 section 4.5).
    fn insert_fragment_header(&mut self) {
        let next_header_at = self.ip.offset as usize + ipv6::field::NEXT_HEADER.start;
        let last_next_header = self.last_next_header(next_header_at);
        let next_header = core::mem::replace(&mut self.header[last_next_header], FRAGMENT_PROTOCOL);
        let at = self.header_len;
        self.header[at..at + FRAGMENT_HEADER_LEN].fill(0);
        self.header[at] = next_header;
        put_u32(&mut self.header, at + 4, self.identification);
        self.header_len += FRAGMENT_HEADER_LEN;
    }

    /// Where the next-header field in front of the UDP header lies: in the fixed header, or in the
    /// last extension.
    fn last_next_header(&self, fixed: usize) -> usize {
        let mut field = fixed;
        let mut at = self.ip.end();
        while at < self.header_len {
            field = at;
            at += (self.header[at + 1] as usize + 1) * 8;
        }
        field
    }

    fn write_header(&self, header: &mut [u8], len: usize, more: bool) {
        let start = self.ip.offset as usize;
        let offset = self.before as u16;
        if self.ip.kind == Kind::Ipv4 {
            put_u16(
                header,
                start + ipv4::field::TOTAL_LENGTH.start,
                (header.len() - start + len) as u16,
            );
            let at = start + ipv4::field::FRAGMENT.start;
            // DF and the reserved bit are kept, which Linux loses here (rule S31).
            let kept = u16_at(header, at) & 0xc000;
            put_u16(header, at, kept | (u16::from(more) << 13) | (offset / 8));
            let at = start + ipv4::field::CHECKSUM.start;
            put_u16(header, at, 0);
            let sum = header.get(start..self.ip.end()).map_or(Sum::ZERO, Sum::of);
            put_u16(header, at, sum.checksum());
        } else {
            let payload_len = header.len() - start - ipv6::HEADER_LEN + len;
            put_u16(header, start + ipv6::field::PAYLOAD_LENGTH.start, payload_len as u16);
            let at = header.len() - FRAGMENT_HEADER_LEN;
            put_u16(header, at + 2, offset | u16::from(more));
        }
    }
}

/// Bytes of an IPv6 fragment header.
const FRAGMENT_HEADER_LEN: usize = 8;
/// The next-header value that announces one.
const FRAGMENT_PROTOCOL: u8 = 44;

#[cfg(test)]
mod tests {
    use core::num::NonZeroU16;
    use std::{vec, vec::Vec};

    use grosso_testkit::Packet;
    use grosso_wire::{LinkType, Ports};

    use super::{Fragments, NoCut};
    use crate::meta::{Cut, Gso, Meta};

    fn ufo(size: u16) -> Meta {
        let cut = NonZeroU16::new(size).map(Cut::Fragments);
        let gso = cut.and_then(|cut| Gso::every(1).map(|gso| Gso { cut, ..gso }));
        Meta { gso, ..Meta::default() }
    }

    fn cut(frame: &[u8], size: u16) -> Result<Vec<Vec<u8>>, NoCut> {
        let slices = [&frame[..100], &frame[100..]];
        let mut plan =
            Fragments::new(&slices, &ufo(size), LinkType::Ethernet, &Ports::NONE, 0x01020304)?;
        let mut fragments = Vec::new();
        let mut buffer = [0xa5; 2000];
        while let Some(fragment) = plan.write_next(&mut buffer).unwrap() {
            fragments.push(buffer[..fragment.len()].to_vec());
        }
        Ok(fragments)
    }

    #[test]
    fn s30_s31_ipv4_fragments_share_one_identification_and_one_checksum() {
        let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(77).df(true)).udp(|u| u);
        let whole = datagram.payload_len(3000).build();
        let fragments = cut(&whole, 1480).unwrap();
        let words: Vec<_> = fragments.iter().map(|f| u16::from_be_bytes([f[20], f[21]])).collect();
        // DF stays, MF on all but the last, offsets in units of 8.
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
            // Fixed header, hop-by-hop header announcing the fragment header, which announces UDP.
            assert_eq!((fragment[20], fragment[54], fragment[62], fragment[63]), (0, 44, 17, 0));
            assert_eq!(fragment[18..20], ((fragment.len() - 54) as u16).to_be_bytes());
            let offset = i as u16 * 1448;
            assert_eq!(fragment[64..66], (offset | u16::from(i == 0)).to_be_bytes());
            assert_eq!(fragment[66..70], [1, 2, 3, 4]);
        }
        let data: Vec<u8> = fragments.iter().flat_map(|f| f[70..].to_vec()).collect();
        assert_eq!(data, whole[62..]);
    }

    #[test]
    fn s32_a_size_that_is_no_multiple_of_8_is_rounded_down() {
        let whole =
            Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(2500).build();
        let fragments = cut(&whole, 1001).unwrap();
        let lengths: Vec<_> = fragments.iter().map(|f| f.len() - 34).collect();
        assert_eq!(lengths, [1000, 1000, 508]);
        assert_eq!(cut(&whole, 7), Err(NoCut::Fragments));
        assert_eq!(cut(&whole, 2512), Err(NoCut::Whole));
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
        assert_eq!(cut(&whole, 1480), Err(NoCut::TooLong));
    }
}
