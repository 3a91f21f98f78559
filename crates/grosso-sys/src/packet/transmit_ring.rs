//! Packets sent from mapped memory (`TPACKET_V2`): written into slots, sent by one system call.

use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::PacketSocket;
use super::ring::{Direction, RingLayout, RingMemory};
use crate::abi;

/// Where the bytes of a packet start in a slot to be sent.
const DATA_START: usize = abi::PACKET_RING_HEADER_BYTES;

/// A packet socket that sends from a mapped ring and receives nothing.
#[derive(Debug)]
pub struct TransmitRing {
    socket: PacketSocket,
    memory: RingMemory,
    /// The oldest slot that the kernel has not taken.
    oldest: usize,
    /// Slots from the oldest on that wait for the kernel.
    waiting: usize,
}

/// Why a packet was not taken into a [`TransmitRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushRefusal {
    /// Every slot is in use: flush, wait, and push again.
    Full,
    /// The packet is longer than a slot, which holds so many bytes.
    TooLong {
        /// The most bytes a slot holds, the virtio header included.
        bytes_max: usize,
    },
}

impl fmt::Display for PushRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => formatter.write_str("the transmit ring is full"),
            Self::TooLong { bytes_max } => {
                write!(formatter, "the packet is longer than the {bytes_max} bytes of a slot")
            }
        }
    }
}

impl std::error::Error for PushRefusal {}

/// What became of the packets that waited in a [`TransmitRing`].
#[derive(Debug, Default)]
pub struct Flushed {
    /// Packets the kernel took, in order.
    pub sent: usize,
    /// Packets the kernel refused for what they are; they are gone.
    pub refused: usize,
    /// Why it refused the first of them: `EINVAL` for a virtio header (rules V1 to V8), `EMSGSIZE`
    /// above the MTU.
    pub first_refusal: Option<io::Error>,
    /// Packets that still wait, because the kernel has no room: flush again.
    pub waiting: usize,
}

impl TransmitRing {
    pub(super) fn new(socket: PacketSocket, layout: RingLayout) -> io::Result<Self> {
        let memory = RingMemory::attach(&socket, layout, Direction::Transmit)?;
        Ok(Self { socket, memory, oldest: 0, waiting: 0 })
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Copies a packet from its parts into the next slot, its virtio header first if the socket has
    /// one. It is sent by [`TransmitRing::flush`].
    ///
    /// # Errors
    ///
    /// [`PushRefusal`]; then nothing has changed.
    pub fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<(), PushRefusal> {
        let bytes_max = self.memory.layout().slot_bytes - DATA_START;
        let bytes =
            parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len())).unwrap_or(!0);
        if bytes > bytes_max {
            return Err(PushRefusal::TooLong { bytes_max });
        }
        let slot = self.memory.after(self.oldest, self.waiting);
        let status = self.memory.status(slot).load(Ordering::Acquire);
        if self.waiting == self.memory.layout().slots || status != abi::TP_STATUS_AVAILABLE {
            return Err(PushRefusal::Full);
        }
        // SAFETY: a slot that is available and does not wait is this ring's alone.
        let target = unsafe { self.memory.bytes_mut(slot, DATA_START..DATA_START + bytes) };
        let mut rest = target;
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        self.set_length(slot, bytes as u32);
        self.memory.release(slot, abi::TP_STATUS_SEND_REQUEST);
        self.waiting += 1;
        Ok(())
    }

    /// Sends what waits, without blocking. A packet that is refused for what it is does not stop
    /// those after it.
    ///
    /// # Errors
    ///
    /// `ENETDOWN`, `ENXIO` if the interface is gone; everything that waits still does.
    pub fn flush(&mut self) -> io::Result<Flushed> {
        let mut flushed = Flushed::default();
        // Each turn but the last drops one refused packet.
        while self.waiting > 0 {
            let result = self.kick();
            flushed.sent += self.reap();
            let Err(error) = result else { break };
            if self.drop_refused() {
                flushed.refused += 1;
                flushed.first_refusal.get_or_insert(error);
            } else if is_want_of_room(&error) {
                break;
            } else {
                return Err(error);
            }
        }
        flushed.waiting = self.waiting;
        Ok(flushed)
    }

    /// Waits until a slot is free, and says whether one is. An interrupted wait ends early.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`, without `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.socket.wait_for(rustix::event::PollFlags::OUT, at_most)
    }

    /// Packets that are written and not sent.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Slots of the ring, and their size.
    pub fn layout(&self) -> RingLayout {
        self.memory.layout()
    }

    fn kick(&self) -> io::Result<()> {
        // SAFETY: neither bytes nor an address are handed over: the packets are in the ring, and
        // the socket is bound.
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
    }

    /// Counts and forgets the oldest slots that the kernel took.
    fn reap(&mut self) -> usize {
        let mut taken = 0;
        while taken < self.waiting {
            let slot = self.memory.after(self.oldest, taken);
            let status = self.memory.status(slot).load(Ordering::Acquire);
            if status & (abi::TP_STATUS_SEND_REQUEST | abi::TP_STATUS_WRONG_FORMAT) != 0 {
                break;
            }
            taken += 1;
        }
        self.oldest = self.memory.after(self.oldest, taken);
        self.waiting -= taken;
        taken
    }

    /// Drops the oldest packet if the kernel called it wrong.
    ///
    /// The kernel will look at that very slot again and send nothing until it finds a packet there,
    /// so those behind it move up by one.
    fn drop_refused(&mut self) -> bool {
        let refused = self.oldest;
        let status = self.memory.status(refused).load(Ordering::Acquire);
        if self.waiting == 0 || status & abi::TP_STATUS_WRONG_FORMAT == 0 {
            return false;
        }
        for distance in 1..self.waiting {
            let from = self.memory.after(refused, distance);
            let to = self.memory.after(refused, distance - 1);
            // SAFETY: the kernel touches slots only while it is in `kick`, and these wait.
            let length = unsafe { self.memory.header(from) }.length as usize;
            // Behind the status, which is set last.
            let copied = 4..DATA_START + length;
            // SAFETY: as above.
            let source = unsafe { self.memory.bytes(from, copied.clone()) };
            // SAFETY: as above, and the two slots differ.
            let target = unsafe { self.memory.bytes_mut(to, copied) };
            target.copy_from_slice(source);
            self.memory.release(to, abi::TP_STATUS_SEND_REQUEST);
        }
        self.waiting -= 1;
        let freed = self.memory.after(refused, self.waiting);
        self.memory.release(freed, abi::TP_STATUS_AVAILABLE);
        true
    }

    fn set_length(&self, slot: usize, bytes: u32) {
        // SAFETY: the only caller has just found the slot to be this ring's alone.
        let field = unsafe { self.memory.bytes_mut(slot, abi::PACKET_RING_LENGTH) };
        field.copy_from_slice(&bytes.to_ne_bytes());
    }
}

impl AsFd for TransmitRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_want_of_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR))
}
