//! Packets received in mapped memory (`TPACKET_V2`), without a system call or a copy per packet.

use core::ops::Range;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::ring::{Direction, RingLayout, RingMemory};
use super::{PacketKind, PacketSocket, ReceivedPacket, Statistics, Status, VlanTag};
use crate::abi;

/// Status of a slot that this program has taken and not returned. The kernel treats every value but
/// `TP_STATUS_KERNEL`, which is zero, as not its own.
const TAKEN: u32 = 1 << 27;

/// A packet socket whose packets arrive in a mapped ring.
///
/// While the newest packet is held, `poll` reports the socket as readable even if no other packet
/// waits. Do not wait while packets are held, or wait with an edge-triggered
/// [`crate::wait::Waiter`].
#[derive(Debug)]
pub struct ReceiveRing {
    socket: PacketSocket,
    memory: Arc<RingMemory>,
    next: usize,
    malformed: u64,
}

impl ReceiveRing {
    pub(super) fn new(socket: PacketSocket, layout: RingLayout) -> io::Result<Self> {
        let memory = Arc::new(RingMemory::attach(&socket, layout, Direction::Receive)?);
        Ok(Self { socket, memory, next: 0, malformed: 0 })
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// As [`PacketSocket::fanout_group`].
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn fanout_group(&self) -> io::Result<Option<u16>> {
        self.socket.fanout_group()
    }

    /// The next packet in the order of arrival; `None` if none waits, or if the next slot is still
    /// held from the previous round.
    pub fn receive(&mut self) -> Option<RingFrame> {
        // A correct kernel fills every slot validly; the bound is for one that does not.
        for _ in 0..self.memory.layout().slots {
            let slot = self.next;
            if self.memory.status(slot).load(Ordering::Acquire) & abi::TP_STATUS_USER == 0 {
                return None;
            }
            self.next = self.memory.after(slot, 1);
            // SAFETY: the kernel released the slot, and nobody else takes it.
            let header = unsafe { self.memory.header(slot) };
            let frame = RingFrame {
                range: header.range(),
                header,
                slot,
                virtio_bytes: usize::from(self.socket.virtio_bytes),
                memory: Arc::clone(&self.memory),
            };
            self.memory.release(slot, TAKEN);
            if frame.is_inside_its_slot() {
                return Some(frame);
            }
            self.malformed += 1;
        }
        None
    }

    /// The bytes of a packet that waits behind so many others, without taking it; `None` if there
    /// are no more than these. A packet outside of its slot has no bytes.
    pub fn peek(&self, behind: usize) -> Option<&[u8]> {
        if behind >= self.memory.layout().slots {
            return None;
        }
        let slot = self.memory.after(self.next, behind);
        if self.memory.status(slot).load(Ordering::Acquire) & abi::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel released the slot, and taking it requires `&mut self`.
        let range = unsafe { self.memory.header(slot) }.range();
        if range.start > range.end || range.end > self.memory.layout().slot_bytes {
            return Some(&[]);
        }
        // SAFETY: as above, and nothing writes to a slot that is not taken.
        Some(unsafe { self.memory.bytes(slot, range) })
    }

    /// Receives a packet that the kernel kept whole in the socket's queue, its virtio header first.
    /// Call it once for each frame whose status is [`Status::kept`], in their order.
    ///
    /// # Errors
    ///
    /// As [`PacketSocket::receive`].
    pub fn receive_long(&self, buffer: &mut [u8]) -> io::Result<Option<ReceivedPacket>> {
        self.socket.receive(buffer)
    }

    /// Waits until packets arrive, and returns whether any did. An interrupted wait ends early.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`, without `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.socket.wait(at_most)
    }

    /// Packets received, and packets dropped for want of a free slot, since the last call.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        self.socket.take_statistics()
    }

    /// Takes the pending error of the socket, such as `ENETDOWN` after the interface went down.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Number of slots whose header pointed outside of them; they were returned unread.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Number and size of the slots.
    pub fn layout(&self) -> RingLayout {
        self.memory.layout()
    }
}

impl AsFd for ReceiveRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A received packet in its slot of the ring. Dropping it returns the slot to the kernel, in any
/// order. Frames held for too long stop the ring.
#[derive(Debug)]
pub struct RingFrame {
    memory: Arc<RingMemory>,
    header: abi::PacketRingHeader,
    range: Range<usize>,
    slot: usize,
    virtio_bytes: usize,
}

impl RingFrame {
    /// The virtio header of the packet; empty if the socket was opened without one.
    pub fn virtio_header(&self) -> &[u8] {
        let range = self.range.start - self.virtio_bytes..self.range.start;
        // SAFETY: this frame owns its slot until it is dropped, and writing requires `&mut self`.
        unsafe { self.memory.bytes(self.slot, range) }
    }

    /// Offset of the network header in the packet's bytes.
    pub fn network_offset(&self) -> usize {
        usize::from(self.header.net.saturating_sub(self.header.mac))
    }

    /// Length of the packet in bytes, of which the slot may hold only a part.
    pub fn original_bytes(&self) -> usize {
        self.header.length as usize
    }

    /// Whether the slot was too short for the packet.
    pub fn truncated(&self) -> bool {
        self.range.len() < self.original_bytes()
    }

    /// State of the packet's checksum, and whether packets are being lost.
    pub fn status(&self) -> Status {
        Status(self.header.status)
    }

    /// The outermost VLAN tag, which the kernel removed from the bytes.
    pub fn vlan(&self) -> Option<VlanTag> {
        self.status().tag(self.header.vlan_tpid, self.header.vlan_tci)
    }

    /// Destination type of the packet.
    pub fn kind(&self) -> PacketKind {
        // SAFETY: this frame owns its slot until it is dropped, and nothing writes this part of it.
        match unsafe { self.memory.bytes(self.slot, abi::PACKET_RING_KIND) } {
            [0] => PacketKind::Host,
            [1] => PacketKind::Broadcast,
            [2] => PacketKind::Multicast,
            [3] => PacketKind::OtherHost,
            [4] => PacketKind::Outgoing,
            _ => PacketKind::Other,
        }
    }

    /// Index of the interface at which the packet was seen.
    pub fn interface(&self) -> u32 {
        // SAFETY: this frame owns its slot until it is dropped, and nothing writes this part of it.
        let bytes = unsafe { self.memory.bytes(self.slot, abi::PACKET_RING_INTERFACE) };
        bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// Type of that interface's link-layer header as an ARP hardware type (`ARPHRD_*`).
    pub fn hardware_type(&self) -> u16 {
        // SAFETY: this frame owns its slot until it is dropped, and nothing writes this part of it.
        let bytes = unsafe { self.memory.bytes(self.slot, abi::PACKET_RING_HARDWARE) };
        bytes.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes))
    }

    /// Time of arrival, since 1970.
    pub fn timestamp(&self) -> Duration {
        let nanoseconds = self.header.nanoseconds.min(999_999_999);
        Duration::new(u64::from(self.header.seconds), nanoseconds)
    }

    /// Leaves out the virtio header and the first `bytes` of the packet, such as its link-layer
    /// header.
    pub fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.range.len());
        self.range.start += bytes;
        self.virtio_bytes = 0;
        self.header.length = self.header.length.saturating_sub(bytes as u32);
    }

    fn is_inside_its_slot(&self) -> bool {
        self.range.end <= self.memory.layout().slot_bytes
            && self.range.start >= abi::PACKET_RING_HEADER_BYTES + self.virtio_bytes
    }
}

/// The bytes of the packet, from its link-layer header on.
impl AsRef<[u8]> for RingFrame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: this frame owns its slot until it is dropped, and writing requires `&mut self`.
        unsafe { self.memory.bytes(self.slot, self.range.clone()) }
    }
}

impl AsMut<[u8]> for RingFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: this frame owns its slot until it is dropped, and is borrowed mutably.
        unsafe { self.memory.bytes_mut(self.slot, self.range.clone()) }
    }
}

impl Drop for RingFrame {
    fn drop(&mut self) {
        self.memory.release(self.slot, abi::TP_STATUS_KERNEL);
    }
}
