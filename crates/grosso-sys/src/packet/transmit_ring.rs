//! Sends packets from mapped memory (`TPACKET_V2`). Packets are written into slots, and one system call sends them all.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::PacketSocket;
use super::ring::{Direction, RingLayout, RingMemory, SlotPlace};
use crate::abi;
use crate::calls::seen;
use crate::errno::ErrorClass;

/// Offset of a packet's bytes in a transmit slot.
const DATA_START: usize = abi::PACKET_RING_HEADER_BYTES;

/// Offset of the GSO type in a virtio header; the length of the headers follows.
const GSO_TYPE: usize = 1;
/// `VIRTIO_NET_HDR_GSO_NONE`: no segmentation.
const GSO_NONE: u8 = 0;
/// Number of bytes that the kernel charges to the send buffer for the shortest packet (`SKB_TRUESIZE`): 512 for data
/// and trailer, and 256 for the `sk_buff`.
const PACKET_ACCOUNT_BYTES_MIN: usize = 768;
/// Maximum send buffer size in bytes to request: the kernel doubles it and stores it in an `int`.
const SEND_BUFFER_BYTES_MAX: usize = (i32::MAX / 2) as usize;

/// A packet socket that sends from a mapped ring and receives no packets.
///
/// With [`PacketSocket::send_batch`], other threads may run after each packet, for example a receiver on this host as
/// soon as it has a packet. This ring sends the whole batch first.
#[derive(Debug)]
pub struct TransmitRing {
    socket: PacketSocket,
    memory: RingMemory,
    /// The slot that the kernel will read next.
    next: SlotPlace,
    /// Number of slots, starting at `next`, whose packets the kernel had no room for.
    waiting: usize,
    /// Whether the kernel had no room for the waiting packets and has not reported room since then.
    is_full: bool,
}

impl TransmitRing {
    pub(super) fn new(socket: PacketSocket, layout: RingLayout) -> io::Result<Self> {
        let memory = RingMemory::attach(&socket, layout, Direction::Transmit)?;
        let ring = Self { socket, memory, next: SlotPlace::FIRST, waiting: 0, is_full: false };
        ring.bound_send_buffer()?;
        Ok(ring)
    }

    /// Sets the size of the send buffer so that the buffer is full no later than when all slots are in use, if the
    /// system's limit permits.
    ///
    /// `poll(2)` reports room when half of the buffer is free. If slots are free at that moment, a wait ends only when
    /// a send can succeed; with a larger buffer it would end immediately although every slot is still in use.
    fn bound_send_buffer(&self) -> io::Result<()> {
        // The kernel doubles the value, and `poll` checks half of the result.
        let bytes = self.memory.layout().slots.saturating_mul(PACKET_ACCOUNT_BYTES_MIN);
        let bytes = bytes.min(SEND_BUFFER_BYTES_MAX);
        match sockopt::set_socket_send_buffer_size_force(&self.socket.file, bytes) {
            Err(Errno::PERM) => Ok(sockopt::set_socket_send_buffer_size(&self.socket.file, bytes)?),
            result => Ok(result?),
        }
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Sends packets, each from its parts and starting with its virtio header if the socket has one, with one system
    /// call, and returns the number sent. Fewer are sent if the ring is full, a packet is too long for a slot, or the
    /// kernel rejects one or has no room: call again with the next packet to get its error.
    ///
    /// Packets that the kernel had no room for stay in their slots. The next call must begin with the same packets: it
    /// offers them again without copying them. Until then `poll(2)` reports the socket as writable only when the kernel
    /// has room for them, and a call before that sends no packet and reports that it would block.
    ///
    /// # Errors
    ///
    /// Returns the error of the first packet if no packet was sent: `WouldBlock` if no slot is free, `EMSGSIZE` above
    /// [`TransmitRing::packet_bytes_max`] or the MTU, `EINVAL` for an invalid virtio header, `ENETDOWN` while the
    /// interface is down, or `ENXIO` if the interface is gone.
    pub fn send_batch(&mut self, packets: &[&[IoSlice<'_>]]) -> io::Result<usize> {
        if self.is_full && !self.wait(Duration::ZERO)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut written = self.waiting;
        debug_assert!(written <= packets.len(), "the caller passes waiting packets again");
        debug_assert!(
            self.holds(packets),
            "the caller passes waiting packets first, in the same order"
        );
        let mut refusal = None;
        for packet in packets.iter().take(self.memory.layout().slots).skip(written) {
            refusal = self.write(self.memory.after(self.next, written), packet).err();
            if refusal.is_some() {
                break;
            }
            written += 1;
        }
        if written > 0 {
            refusal = self.kick().err();
        }
        let sent = self.advance(written);
        self.waiting = written - sent;
        // A device queue that drops packets (`ENOBUFS`) does not keep `poll(2)` from reporting room.
        let has_no_room = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.is_full = self.waiting > 0 && refusal.as_ref().is_none_or(has_no_room);
        if refusal.as_ref().is_some_and(|error| ErrorClass::of(error) != ErrorClass::Later) {
            self.reclaim();
        }
        match refusal {
            Some(error) if sent == 0 => Err(error),
            _ => Ok(sent),
        }
    }

    /// Returns whether the waiting slots hold the first of these packets. Only the lengths are compared.
    fn holds(&self, packets: &[&[IoSlice<'_>]]) -> bool {
        packets.iter().take(self.waiting).enumerate().all(|(distance, packet)| {
            let slot = self.memory.after(self.next, distance);
            // SAFETY: a waiting slot has been offered to the kernel, which reads it only during `kick`.
            let length = unsafe { self.memory.bytes(slot, abi::PACKET_RING_LENGTH) };
            let bytes: usize = packet.iter().map(|part| part.len()).sum();
            length == (bytes as u32).to_ne_bytes()
        })
    }

    /// Waits until a slot is free and returns whether one is. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `poll(2)`, except `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.socket.wait_for_room(at_most)
    }

    /// Returns the maximum length of a packet in a slot in bytes, including the virtio header.
    pub fn packet_bytes_max(&self) -> usize {
        self.memory.layout().slot_bytes - DATA_START
    }

    /// Returns the number and size of the slots.
    pub fn layout(&self) -> RingLayout {
        self.memory.layout()
    }

    /// Copies a packet into a slot and offers it to the kernel, which reads it in the next `kick`.
    fn write(&self, slot: SlotPlace, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes =
            parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len())).unwrap_or(!0);
        if bytes > self.packet_bytes_max() {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        // The driver may still use the bytes of the previous round.
        if self.memory.status(slot).load(Ordering::Acquire) != abi::TP_STATUS_AVAILABLE {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // SAFETY: an available slot belongs to this ring alone until it is released.
        let length = unsafe { self.memory.bytes_mut(slot, abi::PACKET_RING_LENGTH) };
        length.copy_from_slice(&(bytes as u32).to_ne_bytes());
        // SAFETY: the slot belongs to this ring alone until it is released, and the borrow of the length has ended.
        let mut rest = unsafe { self.memory.bytes_mut(slot, DATA_START..DATA_START + bytes) };
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        self.ask_for_a_copy(slot, bytes);
        self.memory.release(slot, abi::TP_STATUS_SEND_REQUEST);
        Ok(())
    }

    /// Sets the header length of a single packet to its full length, because the kernel copies the headers. Otherwise
    /// the kernel would reference the bytes after the headers in place, and a virtual device on this host (veth,
    /// bridge) would have to copy them page by page, which costs more for a single packet. The header length of a
    /// superframe is not changed.
    fn ask_for_a_copy(&self, slot: SlotPlace, bytes: usize) {
        let header = usize::from(self.socket.virtio_bytes);
        let Some(packet) = bytes.checked_sub(header).filter(|_| header > 0) else { return };
        let start = DATA_START + GSO_TYPE;
        // SAFETY: the only caller has checked that the slot belongs to this ring alone, and has not released it.
        let fields = unsafe { self.memory.bytes_mut(slot, start..start + 3) };
        if let ([GSO_NONE, header_bytes @ ..], Ok(packet)) = (fields, u16::try_from(packet)) {
            header_bytes.copy_from_slice(&packet.to_ne_bytes());
        }
    }

    fn kick(&self) -> io::Result<()> {
        seen(|| {
            // SAFETY: neither bytes nor an address are passed: the packets are in the ring, and the
            // socket is bound.
            let result = unsafe {
                libc::sendto(
                    self.socket.file.as_raw_fd(),
                    core::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    core::ptr::null(),
                    0,
                )
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }

    /// Counts the slots that the kernel has taken, and advances to the first of the other slots, which the kernel will
    /// read next.
    fn advance(&mut self, written: usize) -> usize {
        let offered = abi::TP_STATUS_SEND_REQUEST | abi::TP_STATUS_WRONG_FORMAT;
        let is_taken = |distance: &usize| {
            let slot = self.memory.after(self.next, *distance);
            self.memory.status(slot).load(Ordering::Acquire) & offered == 0
        };
        let taken = (0..written).take_while(is_taken).count();
        self.next = self.memory.after(self.next, taken);
        taken
    }

    /// Removes the waiting packets from their slots, because the kernel refused the first of them.
    fn reclaim(&mut self) {
        for distance in 0..core::mem::take(&mut self.waiting) {
            let slot = self.memory.after(self.next, distance);
            // The kernel accesses offered slots only during a `kick`.
            self.memory.release(slot, abi::TP_STATUS_AVAILABLE);
        }
    }
}

impl AsFd for TransmitRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
