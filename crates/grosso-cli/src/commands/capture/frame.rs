//! Converts the kernel's metadata about a frame to the metadata of a captured packet.

use core::num::{NonZeroU16, NonZeroUsize};

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, GsoSize},
    steering::symmetric_hash,
    vnet::{TAG_LEN, understand},
};
use grosso_capture::{Offload, PacketMeta, SegmentTransport, TunnelPort};
use grosso_sys::packet::{PacketKind, RingFrame, VlanTag};
use grosso_wire::{
    LinkType, Ports, Stack, Stop, dissect_into,
    virtio::{
        FLAG_NEEDS_CHECKSUM, Form, GSO_NONE, GSO_TCP_IPV4, GSO_TCP_IPV6, GSO_UDP, GSO_UDP_SEGMENTS,
        Order, VirtioHeader,
    },
};

use super::report::FrameCounts;

/// Converter from kernel frames to captured packets.
pub(super) struct Recorder {
    /// UDP ports of tunnels.
    ports: Ports,
    stack: Stack,
    /// Whether flows are distributed over several outputs, which requires each packet's flow hash.
    spreads: bool,
    /// Buffer for a frame whose VLAN tag is put back.
    tagged: Vec<u8>,
    pub(super) counts: FrameCounts,
}

impl Recorder {
    pub(super) fn new(ports: Ports, spreads: bool) -> Self {
        let (tagged, counts) = (Vec::new(), FrameCounts::default());
        Self { ports, stack: Stack::new(0), spreads, tagged, counts }
    }

    /// Returns the bytes of a frame as they were on a link of this type, with their metadata and the flow hash.
    pub(super) fn record<'a>(
        &'a mut self,
        frame: &'a RingFrame,
        link: LinkType,
    ) -> (PacketMeta, &'a [u8], u32) {
        let bytes = frame.as_ref();
        let mut offload = self.offload(frame, bytes, link);
        let flow = if self.spreads { symmetric_hash(bytes, &self.stack) } else { 0 };
        let mut flags = direction(frame.kind());
        if frame.status().checksum_valid() && offload.meta.checksum == Checksum::None {
            offload.meta.checksum = Checksum::Unnecessary { levels: 0 };
        }
        self.count(frame, &offload);
        let mut original = frame.original_bytes();
        let tag = frame.vlan().filter(|_| link == LinkType::Ethernet);
        let data = match tag {
            Some(tag) if bytes.len() >= ADDRESSES_LEN => {
                original += usize::from(TAG_LEN);
                if let Checksum::Partial { start, .. } = &mut offload.meta.checksum {
                    *start = start.saturating_add(TAG_LEN);
                }
                put_back(&mut self.tagged, bytes, tag);
                &self.tagged[..]
            }
            _ => bytes,
        };
        // The standard flags are sufficient for a packet that has no offloads apart from a verified checksum, and no
        // tunnel ports.
        let is_plain = offload.meta.gso.is_none() && !offload.is_partial();
        let is_plain = is_plain && offload.tunnel_ports.is_empty();
        flags |= if is_plain { offload.to_flags() } else { 0 };
        let timestamp = frame.timestamp();
        let meta = PacketMeta {
            timestamp_ns: u64::try_from(timestamp.as_nanos()).ok(),
            interface: 0,
            original_len: u32::try_from(original).unwrap_or(u32::MAX),
            flags: Some(flags),
            offload: (!is_plain).then_some(offload),
        };
        (meta, data, flow)
    }

    fn offload(&mut self, frame: &RingFrame, bytes: &[u8], link: LinkType) -> Offload {
        dissect_into(bytes, link, &self.ports, &mut self.stack);
        let tunnel_ports = TunnelPort::of_packet(bytes, &self.stack, &self.ports);
        Offload { tunnel_ports, ..self.recorded_offload(frame, bytes, link) }
    }

    /// Returns the offload state described by the kernel's virtio header.
    fn recorded_offload(&self, frame: &RingFrame, bytes: &[u8], link: LinkType) -> Offload {
        let Ok((header, _)) =
            VirtioHeader::parse(frame.virtio_header(), Form::Short, Order::NATIVE)
        else {
            return Offload::default();
        };
        // If the frame is truncated, the payload would appear too short.
        let understood = match frame.truncated() {
            true => None,
            false => understand(&header, bytes, link, &self.stack, Form::Short).ok(),
        };
        match understood {
            Some(mut meta) => {
                // The header comes from this host's own kernel, so it is trusted.
                if let Some(gso) = &mut meta.gso {
                    gso.untrusted = false;
                }
                Offload { transport: transport(&header), ..Offload::new(&meta) }
            }
            // The frame is truncated or has unknown headers.
            None => claimed(&header, frame.original_bytes(), &self.stack),
        }
    }

    fn count(&mut self, frame: &RingFrame, offload: &Offload) {
        let counts = &mut self.counts;
        counts.frames += 1;
        counts.outgoing += u64::from(frame.kind() == PacketKind::Outgoing);
        match (offload.meta.gso, offload.transport) {
            (None, _) => {}
            (Some(_), SegmentTransport::Udp) => counts.superframes_udp += 1,
            (Some(_), _) => counts.superframes_tcp += 1,
        }
        match offload.meta.checksum {
            Checksum::Partial { .. } => counts.checksums_partial += 1,
            Checksum::None => counts.checksums_unknown += 1,
            _ => counts.checksums_verified += 1,
        }
        counts.vlan_tags += u64::from(frame.vlan().is_some());
        counts.cut += u64::from(frame.truncated());
    }
}

/// Returns bits 0 to 4 of `epb_flags`: the direction, and the kind of destination address.
fn direction(kind: PacketKind) -> u32 {
    let (way, address) = match kind {
        PacketKind::Host => (INBOUND, 1),
        PacketKind::Multicast => (INBOUND, 2),
        PacketKind::Broadcast => (INBOUND, 3),
        PacketKind::OtherHost => (INBOUND, 4),
        PacketKind::Outgoing => (OUTBOUND, 0),
        PacketKind::Other => (0, 0),
    };
    way | address << 2
}

/// Returns the offload state described by a virtio header, without checking it against the frame. `original_len` is the
/// frame's original length.
fn claimed(header: &VirtioHeader, original_len: usize, stack: &Stack) -> Offload {
    let mut meta = Meta::default();
    if header.flags & FLAG_NEEDS_CHECKSUM != 0 {
        let (start, offset) = (header.checksum_start, header.checksum_offset);
        meta.checksum = Checksum::Partial { start, offset };
    }
    if header.gso_type != GSO_NONE {
        let cut = match (NonZeroU16::new(header.gso_size), header.segmentation()) {
            (None, _) => GsoSize::Unknown,
            (Some(size), GSO_UDP) => GsoSize::Fragments(size),
            (Some(size), _) => GsoSize::Every(size),
        };
        let segments = segments(header, original_len, stack).unwrap_or_default();
        meta.gso = Some(Gso { size: cut, segments, ..Gso::UNKNOWN });
    }
    Offload { transport: transport(header), ..Offload::new(&meta) }
}

/// Returns the number of packets in a superframe with this original length, if its headers are complete.
fn segments(header: &VirtioHeader, original_len: usize, stack: &Stack) -> Option<u16> {
    let mut layers = stack.layers().iter().filter(|_| stack.stop == Stop::Payload);
    let layer = layers.find(|layer| layer.offset == header.checksum_start)?;
    let from = match header.segmentation() {
        GSO_UDP => usize::from(layer.offset),
        _ => layer.end(),
    };
    let size = NonZeroUsize::new(header.gso_size.into())?;
    u16::try_from(original_len.checked_sub(from)?.div_ceil(size.get())).ok()
}

fn transport(header: &VirtioHeader) -> SegmentTransport {
    match header.segmentation() {
        GSO_TCP_IPV4 | GSO_TCP_IPV6 => SegmentTransport::Tcp,
        GSO_UDP | GSO_UDP_SEGMENTS => SegmentTransport::Udp,
        _ => SegmentTransport::Unknown,
    }
}

/// Writes the frame to `out` with the VLAN tag, which the kernel removed, inserted after the addresses.
fn put_back(out: &mut Vec<u8>, bytes: &[u8], tag: VlanTag) {
    let (addresses, rest) = bytes.split_at(ADDRESSES_LEN);
    out.clear();
    out.extend_from_slice(addresses);
    out.extend_from_slice(&tag.protocol.to_be_bytes());
    out.extend_from_slice(&tag.control.to_be_bytes());
    out.extend_from_slice(rest);
}

/// Combined length of the two addresses in an Ethernet frame, in bytes.
const ADDRESSES_LEN: usize = 12;
/// Values of bits 0 and 1 of `epb_flags`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_follows_the_addresses() {
        let mut out = vec![9; 3];
        let frame: Vec<u8> = (0..20).collect();
        put_back(&mut out, &frame, VlanTag { protocol: 0x88a8, control: 0x2007 });
        assert_eq!(out[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0xa8, 0x20, 7, 12, 13]);
        assert_eq!(out.len(), 24);
    }

    #[test]
    fn direction_and_address_are_those_of_the_draft() {
        assert_eq!(direction(PacketKind::Outgoing), 0b00010);
        assert_eq!(direction(PacketKind::Host), 0b00101);
        assert_eq!(direction(PacketKind::Broadcast), 0b01101);
        assert_eq!(direction(PacketKind::OtherHost), 0b10001);
    }

    #[test]
    fn header_claims_are_recorded_unchanged() {
        let header = VirtioHeader {
            flags: FLAG_NEEDS_CHECKSUM,
            gso_type: GSO_UDP_SEGMENTS,
            gso_size: 1200,
            checksum_start: 34,
            checksum_offset: 6,
            ..VirtioHeader::default()
        };
        let offload = claimed(&header, 0, &Stack::new(0));
        assert_eq!(offload.meta.checksum, Checksum::Partial { start: 34, offset: 6 });
        assert_eq!(offload.meta.gso, Gso::every(1200));
        assert_eq!(offload.transport, SegmentTransport::Udp);
        assert_eq!(claimed(&VirtioHeader::default(), 0, &Stack::new(0)), Offload::default());
    }
}
