//! Transmits to an interface. Packets are sent in batches through a mapped ring, and frames longer than the MTU are
//! sent through a socket.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use grosso_sys::{
    errno::{ErrorClass, is_full_queue},
    interface::{Control, InterfaceName},
    packet::{PacketSocket, PacketSocketBuilder, RingLayout, TransmitRing},
};
use grosso_wire::{ethernet, vlan};

use super::{
    stats::LiveEvent,
    tx_offload::{Queued, Wire},
};

/// Transmitter for an interface. It passes each frame to the ring or to the socket, and preserves the order of the
/// frames.
#[derive(Debug)]
pub(super) struct Transmitter {
    ring: Option<TransmitRing>,
    /// Maximum frame length for the ring in bytes, including the virtio header. The kernel checks frames that are sent
    /// through the socket against the MTU, but not frames in the ring.
    ring_bytes_max: usize,
    /// Maximum frame length without tags that the device accepted when it was opened, in bytes.
    frame_bytes_max: usize,
    /// Whether the device queue dropped the last packet (`ENOBUFS`). Further packets would also be dropped, although
    /// the socket has room.
    drops: bool,
    /// Number of upcoming sends through the socket that check for room first. The checks start when the send buffer has
    /// been full, because on a slow link it soon fills up again.
    careful_sends: u32,
    socket: PacketSocket,
}

impl Transmitter {
    pub(super) fn open(
        builder: PacketSocketBuilder,
        control: &Control,
        name: &InterfaceName,
        slots: Option<usize>,
    ) -> io::Result<Self> {
        let frame_bytes_max = (control.mtu(name)? as usize).saturating_add(ethernet::HEADER_LEN);
        let bytes_max = frame_bytes_max.saturating_add(VIRTIO_BYTES);
        let slot_bytes = bytes_max.saturating_add(SLOT_HEADER_BYTES);
        let slot_bytes = slot_bytes.clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX);
        let layout = slots.map(|slots| RingLayout::fitting(slot_bytes, slots));
        let ring = match layout.map(|layout| builder.bind_transmit_ring(name, layout)) {
            // The kernel does not support transmit rings or has no memory for one, so `has_ring` is false.
            Some(Err(error))
                if matches!(
                    ErrorClass::of(&error),
                    ErrorClass::Malformed | ErrorClass::Unsupported | ErrorClass::Exhausted
                ) =>
            {
                None
            }
            ring => ring.transpose()?,
        };
        let longest = ring.as_ref().map_or(0, TransmitRing::packet_bytes_max);
        let socket = builder.bind(name)?;
        Ok(Self {
            ring,
            ring_bytes_max: bytes_max.min(longest),
            frame_bytes_max,
            drops: false,
            careful_sends: 0,
            socket,
        })
    }

    /// Returns whether packets are sent from a mapped ring.
    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns the descriptor that becomes writable when there is room for a frame of `frame_len` bytes, or `None`
    /// while the device queue is full, because no descriptor signals when it has room again.
    pub(super) fn blocked(&self, frame_len: usize) -> Option<BorrowedFd<'_>> {
        match &self.ring {
            _ if self.drops => None,
            Some(ring) if frame_len <= self.ring_bytes_max => Some(ring.as_fd()),
            _ => Some(self.socket.as_fd()),
        }
    }

    /// Sends packets through the socket if it has room; see [`PacketSocket::send_batch`].
    fn send_by_socket(&mut self, packets: &[&[IoSlice<'_>]]) -> io::Result<usize> {
        if self.careful_sends > 0 {
            if !self.socket.wait_for_room(Duration::ZERO)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.careful_sends -= 1;
        }
        let sent = self.socket.send_batch(packets);
        let was_full = match &sent {
            Ok(sent) => *sent < packets.len(),
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if was_full {
            self.careful_sends = CAREFUL_SENDS;
        }
        sent
    }
}

impl Wire for Transmitter {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.socket.send_vectored(parts).map(|_| ())
    }

    fn send_some(&mut self, frames: &VecDeque<Queued>) -> io::Result<usize> {
        let is_for_ring = |frame: &Queued| frame.bytes.len() <= self.ring_bytes_max;
        let by_ring = frames.front().is_some_and(is_for_ring);
        let mut parts = [IoSlice::new(&[]); BATCH];
        let mut count = 0;
        let alike = frames.iter().take_while(|frame| is_for_ring(frame) == by_ring);
        for (part, frame) in parts.iter_mut().zip(alike) {
            *part = IoSlice::new(&frame.bytes);
            count += 1;
        }
        let mut packets: [&[IoSlice<'_>]; BATCH] = [&[]; BATCH];
        for (packet, part) in packets.iter_mut().zip(&parts) {
            *packet = core::slice::from_ref(part);
        }
        let sent = match &mut self.ring {
            Some(ring) if by_ring => ring.send_batch(&packets[..count]),
            _ => self.send_by_socket(&packets[..count]),
        };
        self.drops = sent.as_ref().is_err_and(is_full_queue);
        sent
    }

    /// Returns the event for a frame that is too long. On a packet socket, the kernel lets a frame exceed the MTU only
    /// by the length of an 802.1Q tag.
    fn too_long(&self, frame: &[u8]) -> LiveEvent {
        let words = frame.get(ethernet::field::ETHERTYPE.start..).unwrap_or_default();
        let protocols = words.chunks(vlan::HEADER_LEN).filter_map(|tag| tag.first_chunk());
        let is_tag = |word: &u16| vlan::ETHERTYPES.contains(word);
        let mut tags = protocols.map(|word| u16::from_be_bytes(*word)).take_while(is_tag);
        let is_service = tags.next() == Some(ethernet::ETHERTYPE_VLAN_SERVICE);
        let untagged = frame.len().saturating_sub((1 + tags.count()) * vlan::HEADER_LEN);
        match is_service && untagged <= self.frame_bytes_max {
            true => LiveEvent::TransmitServiceTag,
            false => LiveEvent::TransmitTooLong,
        }
    }
}

/// Maximum number of frames that one call sends.
pub(super) const BATCH: usize = 64;
/// Number of sends that check for room first after the socket's send buffer was full. With this many, less than 1 % of
/// the sends to a slow link are refused.
const CAREFUL_SENDS: u32 = 256;
/// Length of the virtio header of a packet socket.
const VIRTIO_BYTES: usize = 10;
/// Upper bound on the number of bytes that the kernel reserves in a slot.
const SLOT_HEADER_BYTES: usize = 64;
/// Minimum slot length in bytes, for the usual Ethernet MTU.
const SLOT_BYTES_MIN: usize = 1664;
/// Maximum slot length in bytes, for jumbo frames. The longer the frames, the less the cost of a system call per frame
/// matters.
const SLOT_BYTES_MAX: usize = 16 << 10;
