//! Headers of the previous fragment. The next fragment usually has the same headers, except for the fields that locate
//! its data, so they need not be parsed again.

use grosso_wire::{Kind, Stack, ipv4, ipv6, ipv6_fragment};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    meta::{Meta, VlanTag},
    reassemble::{examine::ArrivedFragment, queue::NONE},
    template::compare::{BLOCK, Mask},
};

/// Fragment whose headers were examined, with the slot of its datagram.
#[derive(Debug)]
pub(super) struct Recent {
    /// Fields of the fragment, except the offset of its data, or `None` if its headers cannot be reused for the next
    /// fragment.
    told: Option<ArrivedFragment>,
    /// The slot of the datagram.
    slot: u32,
    vlan: Option<VlanTag>,
    header: [u8; HEADER_BYTES_MAX],
    equal: Mask,
    /// Sum of the varying IPv4 words, modulo 65535. It is the same in all headers with a valid checksum.
    varying: u32,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            told: None,
            slot: NONE,
            vlan: None,
            header: [0; HEADER_BYTES_MAX],
            equal: Mask::nothing(0),
            varying: 0,
        }
    }

    /// Stores an examined fragment, unless the length of a header before its IP header depends on the data.
    pub(super) fn remember(
        &mut self,
        slot: u32,
        arrival: &ArrivedFragment,
        packet: &[u8],
        stack: &Stack,
        meta: &Meta,
    ) {
        let len = arrival.data.start as usize;
        let around = stack.layers().get(..arrival.outside).unwrap_or_default();
        let is_plain = around.iter().all(|layer| matches!(layer.kind, Kind::Ethernet | Kind::Vlan));
        let (Some(header), true) = (packet.get(..len), is_plain && len <= HEADER_BYTES_MAX) else {
            self.told = None;
            return;
        };
        let places = Places::of(arrival);
        self.told = Some(ArrivedFragment { flow: None, sum: None, ..arrival.clone() });
        (self.slot, self.vlan) = (slot, meta.vlan);
        self.header[..len].copy_from_slice(header);
        self.varying = places.sum(packet);
        self.equal.fill(len);
        for place in [places.length, places.fragment, places.checksum.unwrap_or(places.length)] {
            self.equal.remove(place);
            self.equal.remove(place + 1);
        }
    }

    /// Clears the stored fragment.
    pub(super) fn clear(&mut self) {
        self.told = None;
    }

    /// Clears the stored fragment if its datagram, which is being removed, is in this slot.
    pub(super) fn forget(&mut self, slot: u32) {
        if self.slot == slot {
            self.told = None;
        }
    }

    /// Examines a frame whose headers equal the previous fragment's, and returns the slot of its datagram. Returns
    /// `None` for first fragments, fragments that might hide a TCP header, and frames that are not fragments;
    /// [`examine`](super::examine::examine) handles these.
    pub(super) fn examine(&self, packet: &[u8], meta: &Meta) -> Option<(u32, ArrivedFragment)> {
        let told = self.told.as_ref()?;
        let summed = matches!(meta.checksum, Checksum::Complete { .. });
        if summed
            || meta.vlan != self.vlan
            || !self.equal.agrees_mostly_in::<MOST_BYTES>(&self.header, packet)
        {
            return None;
        }
        let places = Places::of(told);
        let word = u16_at(packet, places.fragment);
        let (offset, more, dont_fragment) = match told.is_ipv6 {
            true => (
                u32::from(word & ipv6_fragment::OFFSET_MASK),
                word & ipv6_fragment::MORE_FRAGMENTS != 0,
                false,
            ),
            false => (
                u32::from(word & ipv4::OFFSET_MASK) * 8,
                word & ipv4::MORE_FRAGMENTS != 0,
                word & ipv4::DONT_FRAGMENT != 0,
            ),
        };
        let end = places.behind_length + u32::from(u16_at(packet, places.length));
        let is_there = end >= told.data.start && end as usize <= packet.len();
        // All other header words equal those of a header with a valid checksum.
        let is_right = places.checksum.is_none() || places.sum(packet) == self.varying;
        (offset > 8 && is_there && is_right).then(|| {
            let data = told.data.start..end;
            (self.slot, ArrivedFragment { data, offset, more, dont_fragment, ..told.clone() })
        })
    }
}

/// Offsets of the header words that locate a fragment's data.
struct Places {
    length: usize,
    /// Number of bytes at the start of the frame that the length field does not cover.
    behind_length: u32,
    fragment: usize,
    /// Offset of the checksum that covers both words.
    checksum: Option<usize>,
}

impl Places {
    fn of(arrival: &ArrivedFragment) -> Self {
        let ip = usize::from(arrival.ip);
        if arrival.is_ipv6 {
            let header = arrival.data.start as usize - ipv6_fragment::HEADER_LEN;
            return Self {
                length: ip + ipv6::field::PAYLOAD_LENGTH.start,
                behind_length: (ip + ipv6::HEADER_LEN) as u32,
                fragment: header + ipv6_fragment::field::FRAGMENT.start,
                checksum: None,
            };
        }
        Self {
            length: ip + ipv4::field::TOTAL_LENGTH.start,
            behind_length: ip as u32,
            fragment: ip + ipv4::field::FRAGMENT.start,
            checksum: Some(ip + ipv4::field::CHECKSUM.start),
        }
    }

    #[inline(always)]
    fn sum(&self, packet: &[u8]) -> u32 {
        let checksum = self.checksum.map_or(0, |checksum| u16_at(packet, checksum));
        let length = u32::from(u16_at(packet, self.length));
        (length + u32::from(u16_at(packet, self.fragment)) + u32::from(checksum)) % 0xffff
    }
}

/// Number of bytes that suffices for the headers of most fragments: Ethernet, a VLAN tag and IPv6 take 62 bytes.
const MOST_BYTES: usize = 4 * BLOCK;

/// Maximum length of reused headers in bytes. Longer headers are examined for each fragment.
const HEADER_BYTES_MAX: usize = 128;
