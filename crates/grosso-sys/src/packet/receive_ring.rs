//! Receives packets in mapped memory (`TPACKET_V2`), without a system call or a copy per packet.

use core::ops::Range;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::ring::{Direction, RingLayout, RingMemory, SlotPlace};
use super::ring_frame::{FrameMemory, FrameSlot};
use super::{PacketKind, PacketSocket, ReceivedPacket, Statistics, Status, VlanTag};
use crate::{abi, errno::ErrorClass};

/// A packet socket whose packets arrive in a mapped ring.
///
/// While the newest packet is held, `poll` reports the socket as readable even without another packet. Do not wait
/// while packets are held, or wait with an edge-triggered [`crate::wait::Waiter`].
#[derive(Debug)]
pub struct ReceiveRing {
    socket: PacketSocket,
    memory: FrameMemory,
    next: SlotPlace,
    malformed: u64,
}

impl ReceiveRing {
    pub(super) fn new(socket: PacketSocket, layout: RingLayout) -> io::Result<Self> {
        let memory = FrameMemory::new(RingMemory::attach(&socket, layout, Direction::Receive)?);
        Ok(Self { socket, memory, next: SlotPlace::FIRST, malformed: 0 })
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Returns the number of the fanout group; see [`PacketSocket::fanout_group`].
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn fanout_group(&self) -> io::Result<Option<u16>> {
        self.socket.fanout_group()
    }

    /// Returns the next packet in order of arrival, or `None` if there is none, or if the next slot is still held from
    /// the previous round.
    #[inline(always)]
    pub fn receive(&mut self) -> Option<RingFrame> {
        // A correct kernel writes valid data to every slot; the loop limit protects against a kernel that does not.
        for _ in 0..self.memory.layout().slots {
            let slot = self.next;
            if self.memory.status(slot).load(Ordering::Acquire) & abi::TP_STATUS_USER == 0 {
                return None;
            }
            self.next = self.memory.after(slot, 1);
            self.memory.fetch(self.memory.after(self.next, SOON));
            // SAFETY: the kernel released the slot, and no other code takes it.
            let header = unsafe { self.memory.header(slot) };
            let range = header.range();
            let is_inside = range.end <= self.memory.layout().slot_bytes
                && range.start >= abi::PACKET_RING_HEADER_BYTES + self.memory.virtio_bytes;
            if is_inside {
                return Some(self.take(slot, &header));
            }
            self.return_unread(slot);
        }
        None
    }

    /// Takes a packet that lies inside its slot.
    #[inline(always)]
    fn take(&self, slot: SlotPlace, header: &abi::PacketRingHeader) -> RingFrame {
        let range = header.range();
        let is_cut = if header.snap_length < header.length { CUT } else { 0 };
        RingFrame {
            memory: self.memory.take_slot(slot),
            slot,
            status: header.status & !OWN | is_cut,
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    /// Gives a slot back to the kernel unread, because its header points outside the slot.
    #[cold]
    fn return_unread(&mut self, slot: SlotPlace) {
        self.memory.release(slot, abi::TP_STATUS_KERNEL);
        self.malformed += 1;
    }

    /// Returns the bytes of the packet that is `behind` positions after the next one, and leaves it in the ring.
    /// Returns `None` if fewer packets have arrived, and an empty slice if the header of the slot is invalid.
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
        // SAFETY: the kernel released the slot, the range is inside it, and no other code writes to a slot that is not
        // taken.
        Some(unsafe { self.memory.bytes(slot, range) })
    }

    /// Receives a packet that the kernel queued whole in the socket buffer, starting with its virtio header. Call it
    /// once for each frame whose status is [`Status::kept`], in order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocket::receive`], except `ENETDOWN`.
    pub fn receive_long(&self, buffer: &mut [u8]) -> io::Result<Option<ReceivedPacket>> {
        match self.socket.receive(buffer) {
            // The kernel reported the error instead of the packet, which is still queued and would be mistaken for the
            // next one.
            Err(error) if ErrorClass::of(&error) == ErrorClass::Down => self.socket.receive(buffer),
            result => result,
        }
    }

    /// Drops a packet that the kernel queued whole in the socket buffer, instead of receiving it.
    pub fn discard_long(&self) {
        // Only a virtio header is read; if no packet is waiting, there is nothing to drop.
        let _ = self.receive_long(&mut [0; VIRTIO_BYTES_MAX]);
    }

    /// Returns the size of the socket buffer for packets longer than a slot, in bytes including the kernel's
    /// bookkeeping. This is the value of
    /// [`PacketSocketBuilder::receive_buffer_bytes`](super::PacketSocketBuilder::receive_buffer_bytes), after the
    /// kernel has limited and doubled it.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn queue_bytes(&self) -> io::Result<usize> {
        self.socket.receive_buffer_bytes()
    }

    /// Waits until packets arrive and returns whether there are any. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `poll(2)`, except `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.socket.wait(at_most)
    }

    /// Returns the number of packets received and the number of packets dropped because no slot was free, both since
    /// the last call.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        self.socket.take_statistics()
    }

    /// Returns and clears the socket's pending error, for example `ENETDOWN` after the interface went down.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Returns the number of slots that were returned unread because their header pointed outside the slot.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the number and size of the slots.
    pub fn layout(&self) -> RingLayout {
        self.memory.layout()
    }
}

impl AsFd for ReceiveRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A received packet in its slot of the ring. Dropping the frame returns the slot to the kernel; frames may be dropped
/// in any order. The ring stops at a slot that is still held.
///
/// The type is only three words long, because data paths often move frames between lists; rarely used values stay in
/// the slot. It has no `bool` field: an `Option<RingFrame>` would store its discriminant in that one byte, and the next
/// load of the word that contains the byte would have to wait for the store.
#[derive(Debug)]
pub struct RingFrame {
    memory: FrameSlot,
    slot: SlotPlace,
    /// Status that the kernel wrote, which the slot no longer contains, combined with the bits of [`OWN`].
    status: u32,
    /// Range of the packet, which lies inside the slot.
    start: u32,
    end: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<RingFrame>() == 24);

impl RingFrame {
    /// Returns the virtio header of the packet, which is empty if the socket was opened without a virtio header.
    #[inline]
    pub fn virtio_header(&self) -> &[u8] {
        let start = self.start as usize;
        let virtio_bytes = if self.status & BARE == 0 { self.memory.virtio_bytes } else { 0 };
        self.bytes(start - virtio_bytes..start)
    }

    /// Returns the offset of the network header in the received packet, before any [`Self::skip`].
    pub fn network_offset(&self) -> usize {
        let header = self.header();
        usize::from(header.net.saturating_sub(header.mac))
    }

    /// Returns the length of the packet in bytes. If this is more than the frame holds, the packet was truncated.
    #[inline]
    pub fn original_bytes(&self) -> usize {
        let header = self.header();
        let skipped = (self.start as usize).saturating_sub(usize::from(header.mac));
        (header.length as usize).saturating_sub(skipped)
    }

    /// Returns whether the slot was too short for the packet.
    #[inline]
    pub fn truncated(&self) -> bool {
        self.status & CUT != 0
    }

    /// Returns the state of the checksum, and whether packets are being dropped.
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.status & !OWN)
    }

    /// Returns the outermost VLAN tag, which the kernel removed from the bytes.
    #[inline]
    pub fn vlan(&self) -> Option<VlanTag> {
        if !self.status().has_tag() {
            return None;
        }
        let header = self.header();
        self.status().tag(header.vlan_tpid, header.vlan_tci)
    }

    /// Returns the destination type of the packet.
    pub fn kind(&self) -> PacketKind {
        match self.bytes(abi::PACKET_RING_KIND) {
            [0] => PacketKind::Host,
            [1] => PacketKind::Broadcast,
            [2] => PacketKind::Multicast,
            [3] => PacketKind::OtherHost,
            [4] => PacketKind::Outgoing,
            _ => PacketKind::Other,
        }
    }

    /// Returns the index of the interface on which the packet arrived or left.
    pub fn interface(&self) -> u32 {
        let bytes = self.bytes(abi::PACKET_RING_INTERFACE);
        bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// Returns the link-layer type of the packet's interface as an ARP hardware type (`ARPHRD_*`).
    pub fn hardware_type(&self) -> u16 {
        let bytes = self.bytes(abi::PACKET_RING_HARDWARE);
        bytes.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes))
    }

    /// Returns the arrival time since 1970.
    pub fn timestamp(&self) -> Duration {
        let header = self.header();
        Duration::new(u64::from(header.seconds), header.nanoseconds.min(999_999_999))
    }

    /// Skips the virtio header and the first `bytes` bytes of the packet, for example its link-layer header.
    pub fn skip(&mut self, bytes: usize) {
        self.start += bytes.min(self.range().len()) as u32;
        self.status |= BARE;
    }

    #[inline]
    fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the kernel's header, whose status word now belongs to this program.
    #[inline]
    fn header(&self) -> abi::PacketRingHeader {
        // SAFETY: this frame owns its slot until it is dropped.
        unsafe { self.memory.header(self.slot) }
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: callers request the packet, the bytes before it, or the kernel's header; all of these are in the
        // slot. This frame owns the slot until it is dropped, and writing requires `&mut self`.
        unsafe { self.memory.bytes(self.slot, range) }
    }
}

/// Returns the bytes of the packet, starting with its link-layer header.
impl AsRef<[u8]> for RingFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes(self.range())
    }
}

impl AsMut<[u8]> for RingFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: this frame owns its slot until it is dropped, and is borrowed mutably.
        unsafe { self.memory.bytes_mut(self.slot, self.range()) }
    }
}

impl Drop for RingFrame {
    #[inline]
    fn drop(&mut self) {
        self.memory.return_slot(self.slot);
    }
}

/// Status word bits that the kernel does not use and that this program uses for itself.
const OWN: u32 = CUT | BARE;
/// The slot contains only the start of the packet.
const CUT: u32 = 1 << 25;
/// The virtio header before the packet is skipped.
const BARE: u32 = 1 << 26;
/// Length of the longest virtio header of packet sockets, in bytes.
const VIRTIO_BYTES_MAX: usize = 12;
/// Distance from the next slot to the slot whose first cache lines are prefetched. The kernel wrote these lines, so
/// during a burst they are not in this CPU's first-level cache.
const SOON: usize = 1;
