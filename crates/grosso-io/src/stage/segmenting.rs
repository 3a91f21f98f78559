//! The transmitting half of the fragmentation stage, which fragments packets.

use core::{num::NonZeroU16, ops::Range};

use grosso::{
    Meta,
    meta::{Gso, GsoSize},
    segment::{FragmentOptions, Fragments, NoFragments, Outgoing, Segments},
};
use grosso_checksum::update;
use grosso_wire::{LinkType, Ports, Stack, ethernet, ipv4, ipv6, ipv6_fragment};

use super::{identification::Identifications, outbox::Outbox};
use crate::port::{Port, PortCounter, PortError, Transmitted};

/// Transmitter that fragments packets that are too long.
#[derive(Debug)]
pub(super) struct Segmenting {
    link: LinkType,
    ports: Ports,
    /// Maximum length of a packet, or `None` if only packets that arrived in fragments are fragmented.
    mtu: Option<u16>,
    ignore_df: bool,
    identifications: Identifications,
    stack: Stack,
    outbox: Outbox,
    /// The current fragment.
    scratch: Vec<u8>,
    /// The packet to fragment, if it is a segment of a superframe.
    packet: Vec<u8>,
    /// The packet to fragment, if it had to be changed.
    changed: Vec<u8>,
    pub(super) stats: SegmentingStats,
}

/// Counters of fragmented packets, and of packets that could not be fragmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentingStats {
    /// Number of packets fragmented.
    pub cut: u64,
    /// Number of fragments created.
    pub fragments: u64,
    /// Number of superframes segmented because their packets exceed the MTU.
    pub superframes: u64,
    refused: [u64; REFUSALS.len()],
}

impl SegmentingStats {
    /// Returns the number of packets longer than the MTU that were dropped because they have DF set or cannot be
    /// fragmented.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Returns every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> {
        let event = |name, sentence| PortCounter { name, is_loss: false, sentence };
        let totals = [
            (event("ip_frag_oks", "A packet was split into fragments."), self.cut),
            (event("ip_frag_creates", "A fragment was created."), self.fragments),
            (
                event("ip_frag_fails", "A packet longer than the MTU was not fragmented."),
                self.refused(),
            ),
            (
                event(
                    "frag_superframes",
                    "A superframe whose packets are longer than the MTU was split.",
                ),
                self.superframes,
            ),
        ];
        let refused = REFUSALS.into_iter().zip(self.refused).map(|((name, sentence), count)| {
            (PortCounter { name, is_loss: true, sentence }, count)
        });
        totals.into_iter().chain(refused)
    }
}

impl Segmenting {
    pub(super) fn new(
        link: LinkType,
        ports: Ports,
        mtu: Option<u16>,
        ignore_df: bool,
        seed: u64,
    ) -> Self {
        Self {
            link,
            ports,
            mtu,
            ignore_df,
            identifications: Identifications::new(seed),
            stack: Stack::new(0),
            outbox: Outbox::default(),
            scratch: Vec::new(),
            packet: Vec::new(),
            changed: Vec::new(),
            stats: SegmentingStats::default(),
        }
    }

    /// Sets the maximum length of a packet in bytes, including the IP header.
    pub(super) const fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// Sends a frame, in fragments if it is too long. Packets that the port has no room for are queued here, and no
    /// other frame is accepted until they are sent.
    pub(super) fn transmit(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut impl Port,
    ) -> Result<Transmitted, PortError> {
        if self.outbox.drain(to)? == Transmitted::NoRoom {
            return Ok(Transmitted::NoRoom);
        }
        if self.fits(slices, meta) {
            return to.transmit(slices, meta);
        }
        match meta.gso.map(|gso| gso.size) {
            None if !self.cut(slices, meta, to)? => return to.transmit(slices, meta),
            None => {}
            Some(GsoSize::Fragments(size)) => self.cut_datagram(slices, meta, size, to)?,
            Some(_) => self.cut_superframe(slices, meta, to)?,
        }
        Ok(Transmitted::Taken)
    }

    /// Sends queued packets. Returns [`Transmitted::NoRoom`] while any of them remain.
    pub(super) fn flush(&mut self, to: &mut impl Port) -> Result<Transmitted, PortError> {
        self.outbox.flush(to)
    }

    /// Returns whether each packet of a frame fits the MTU and did not arrive in fragments. For nearly all frames, the
    /// length alone gives the answer, so it is checked before the headers.
    fn fits(&mut self, slices: &[&[u8]], meta: &Meta) -> bool {
        if meta.fragmented.is_some() {
            return false;
        }
        let Some(mtu) = self.mtu else { return true };
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let link_len = match self.link {
            LinkType::Ethernet => ethernet::HEADER_LEN,
            _ => 0,
        };
        if len <= link_len + usize::from(mtu) {
            return true;
        }
        let Some(gso) = meta.gso else { return false };
        let Some(start) = self.dissect(slices, meta) else { return true };
        let header_len = self.stack.header_len().saturating_sub(start);
        gso.size().is_some_and(|size| header_len + usize::from(size) <= mtu.into())
    }

    /// Dissects the headers of a frame, and returns the offset of the outermost IP header.
    fn dissect(&mut self, slices: &[&[u8]], meta: &Meta) -> Option<usize> {
        let head = slices.first().copied().unwrap_or_default();
        meta.dissect_into(head, self.link, &self.ports, &mut self.stack);
        let ip = self.stack.layers().iter().find(|layer| layer.kind.is_ip())?;
        Some(ip.offset.into())
    }

    /// Fragments a packet or refuses it. Returns `false` if the packet can be sent whole.
    fn cut(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut impl Port,
    ) -> Result<bool, PortError> {
        // The MTU does not apply to a frame without an IP packet; the port enforces its own limit.
        let Some(start) = self.dissect(slices, meta) else { return Ok(false) };
        let head = slices.first().copied().unwrap_or_default();
        let identification = self.identification(head.get(start..).unwrap_or_default());
        let options = FragmentOptions::new(self.most(), identification);
        match Fragments::of_packet(slices, meta, self.link, &options) {
            Ok(plan) => self.send(plan, to)?,
            Err(NoFragments::Whole | NoFragments::NotIp) => return Ok(false),
            Err(NoFragments::DontFragment { .. }) if self.ignore_df => {
                self.cut_anyway(slices, start, meta, to)?;
            }
            Err(reason) => self.refuse(place(reason)),
        }
        Ok(true)
    }

    /// Fragments an IPv4 packet with DF. Packets with DF may share an identification (RFC 6864
    /// section 4.1), but fragments may not, so the packet gets a new one.
    fn cut_anyway(
        &mut self,
        slices: &[&[u8]],
        start: usize,
        meta: &Meta,
        to: &mut impl Port,
    ) -> Result<(), PortError> {
        let mut packet = core::mem::take(&mut self.changed);
        packet.clear();
        slices.iter().for_each(|slice| packet.extend_from_slice(slice));
        if let Some(ip) = packet.get_mut(start..start + ipv4::HEADER_LEN) {
            let identification = self.identification(ip) as u16;
            let word =
                |field: Range<usize>| u16::from_be_bytes([ip[field.start], ip[field.start + 1]]);
            let (fragment, found) = (word(ipv4::field::FRAGMENT), word(ipv4::field::CHECKSUM));
            let changed = [
                (ipv4::field::IDENTIFICATION, identification),
                (ipv4::field::FRAGMENT, fragment & !ipv4::DONT_FRAGMENT),
            ];
            // The checksum is updated for the changed fields, so that a wrong checksum stays wrong. A checksum of zero
            // is left for a device to compute.
            let follow = |checksum, (field, new): &(Range<usize>, u16)| {
                if found == 0 { 0 } else { update(checksum, word(field.clone()), *new) }
            };
            let checksum = changed.iter().fold(found, follow);
            for (field, value) in changed.into_iter().chain([(ipv4::field::CHECKSUM, checksum)]) {
                ip[field].copy_from_slice(&value.to_be_bytes());
            }
        }
        let whole = [&packet[..]];
        let options = FragmentOptions::new(self.most(), 0);
        let sent = match Fragments::of_packet(&whole, meta, self.link, &options) {
            Ok(plan) => self.send(plan, to),
            Err(reason) => {
                self.refuse(place(reason));
                Ok(())
            }
        };
        self.changed = packet;
        sent
    }

    /// Fragments a UDP superframe that represents one datagram (rule S30), with at most `size` bytes of data per
    /// fragment.
    fn cut_datagram(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        size: NonZeroU16,
        to: &mut impl Port,
    ) -> Result<(), PortError> {
        let Some(start) = self.dissect(slices, meta) else {
            self.refuse(SUPERFRAME);
            return Ok(());
        };
        let head = slices.first().copied().unwrap_or_default();
        let identification = self.identification(head.get(start..).unwrap_or_default());
        let transport = self.stack.layers().last().map_or(start, |layer| layer.offset.into());
        // The fragment header follows the IPv6 headers.
        let headers = transport - start + ipv6_fragment::HEADER_LEN;
        let room = self.most().saturating_sub(u16::try_from(headers).unwrap_or(u16::MAX));
        let size = NonZeroU16::new(room).map_or(size, |room| room.min(size));
        let gso = meta.gso.map(|gso| Gso { size: GsoSize::Fragments(size), ..gso });
        let meta = Meta { gso, ..*meta };
        match Fragments::of_superframe(slices, &meta, self.link, &self.ports, identification) {
            Ok(plan) => self.send(plan, to)?,
            Err(_) => self.refuse(SUPERFRAME),
        }
        Ok(())
    }

    /// Segments a superframe into its packets, and fragments them.
    fn cut_superframe(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut impl Port,
    ) -> Result<(), PortError> {
        let complete = Outgoing::COMPLETE;
        let Ok(mut segments) = Segments::new(slices, meta, self.link, &self.ports, complete) else {
            self.refuse(SUPERFRAME);
            return Ok(());
        };
        self.stats.superframes += 1;
        let mut buffer = core::mem::take(&mut self.packet);
        buffer.resize(segments.packet_len_max(), 0);
        let mut result = Ok(());
        while let (Ok(()), Ok(Some(segment))) = (&result, segments.write_next(&mut buffer)) {
            let packet = buffer.get(..segment.len()).unwrap_or_default();
            result = match self.cut(&[packet], &segment.meta, to) {
                Ok(false) => self.outbox.send(packet, &segment.meta, to),
                done => done.map(|_| ()),
            };
        }
        self.packet = buffer;
        result
    }

    /// Sends all fragments of one packet, and queues fragments that the port has no room for.
    fn send(&mut self, mut plan: Fragments<'_>, to: &mut impl Port) -> Result<(), PortError> {
        self.stats.cut += 1;
        self.scratch.resize(plan.packet_len_max(), 0);
        while let Ok(Some(fragment)) = plan.write_next(&mut self.scratch) {
            self.stats.fragments += 1;
            let bytes = self.scratch.get(..fragment.len()).unwrap_or_default();
            self.outbox.send(bytes, &fragment.meta, to)?;
        }
        Ok(())
    }

    /// Returns the maximum length of a packet.
    fn most(&self) -> u16 {
        self.mtu.unwrap_or(u16::MAX)
    }

    fn identification(&mut self, ip: &[u8]) -> u32 {
        let addresses = match ip.first().map(|byte| byte >> 4) {
            Some(4) => ip.get(ipv4::field::SOURCE.start..ipv4::field::DESTINATION.end),
            _ => ip.get(ipv6::field::SOURCE.start..ipv6::field::DESTINATION.end),
        };
        self.identifications.next(addresses.unwrap_or_default())
    }

    fn refuse(&mut self, place: usize) {
        self.stats.refused[place] += 1;
    }
}

/// Returns the index of a reason in [`REFUSALS`].
const fn place(reason: NoFragments) -> usize {
    match reason {
        NoFragments::DontFragment { .. } => 0,
        NoFragments::MtuTooSmall => 1,
        NoFragments::AlreadyFragment => 2,
        NoFragments::HeadersSplit | NoFragments::HeaderTooLong => 3,
        NoFragments::TooLong => 4,
        NoFragments::ChecksumOutside => 5,
        NoFragments::Ipv4Checksum => 6,
        NoFragments::Superframe => SUPERFRAME,
        _ => 7,
    }
}

const SUPERFRAME: usize = 8;

/// Reasons for dropping a packet longer than the MTU: counter name and description.
const REFUSALS: [(&str, &str); 9] = [
    ("frag_dont_fragment", "DF forbids fragmentation of a packet longer than the MTU."),
    ("frag_mtu_too_small", "The MTU leaves no room for data after the headers of a packet."),
    (
        "frag_already_fragment",
        "An IPv6 fragment is longer than the MTU, and is not fragmented \
                               again.",
    ),
    (
        "frag_headers",
        "The headers of a packet longer than the MTU are too long, or not contiguous.",
    ),
    ("frag_too_long", "A packet is too long for the fragment offset field."),
    (
        "frag_checksum_outside",
        "The partial checksum of a packet is outside the part that is \
                               fragmented.",
    ),
    ("frag_ipv4_checksum", "The IPv4 header checksum of a packet longer than the MTU is wrong."),
    ("frag_bytes_missing", "A packet is shorter than its header says."),
    ("frag_superframe", "A superframe whose packets are longer than the MTU could not be split."),
];
