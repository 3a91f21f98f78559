//! AF_XDP sockets: packets in chunks of memory that is shared with the kernel.
//!
//! Two traps. A sender with checksum offload leaves partial checksums in its packets, and AF_XDP
//! has no way to say so. And a packet is lost that is longer than a chunk, unless the socket takes
//! packets in several pieces ([`XdpOptions::multi_buffer`]).
//!
//! ```no_run
//! use grosso_sys::xdp::{AttachMode, Redirect, XdpOptions, XdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let index = 2;
//! let program = Redirect::attach(index, AttachMode::Native)?;
//! let mut socket = XdpSocket::bind(index, 0, &XdpOptions::default())?;
//! program.set_socket(0, &socket)?;
//! let mut frames = Vec::new();
//! while socket.receive(&mut frames, 64)? > 0 {
//!     // A frame is a buffer; here each goes back where it came from.
//!     socket.transmit(&mut frames)?;
//! }
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::abi;
use crate::calls::seen;

mod bpf;
mod ring;
mod umem;

pub use bpf::{AttachMode, QUEUES_MAX, Redirect};
pub use umem::{Frame, TooLong};

use ring::{Consumer, Producer};
use umem::Region;

/// Bytes of an address in the fill and completion rings.
const ADDRESS_BYTES: usize = 8;
/// Bytes of `struct xdp_desc` in the receive and transmit rings.
const DESCRIPTOR_BYTES: usize = 16;

/// Who moves the bytes of a packet between the device and the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// The device if its driver can, else the kernel.
    #[default]
    Automatic,
    /// The kernel, by copying.
    Copy,
    /// The device, or the socket is refused.
    ZeroCopy,
}

/// How an AF_XDP socket is made.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Bytes of a chunk: 2048 or 4096. The first 256 are the kernel's on receive.
    pub chunk_bytes: u32,
    /// Chunks of the socket. Their memory counts against `RLIMIT_MEMLOCK` of who lacks
    /// `CAP_IPC_LOCK`.
    pub chunks: u32,
    /// Chunks that are never given to the kernel for receiving, so that there is something to send
    /// from.
    pub transmit_chunks: u32,
    /// Slots of each of the four rings: a power of two.
    pub ring_slots: u32,
    /// Who moves the bytes.
    pub copy: CopyMode,
    /// Takes and sends packets in several pieces (`XDP_USE_SG`, Linux 6.6).
    pub multi_buffer: bool,
}

impl Default for XdpOptions {
    /// Packets of up to 3840 bytes, 8192 of them in 32 MiB, of which 2048 are kept for sending.
    fn default() -> Self {
        Self {
            chunk_bytes: 4096,
            chunks: 8192,
            transmit_chunks: 2048,
            ring_slots: 2048,
            copy: CopyMode::Automatic,
            multi_buffer: false,
        }
    }
}

/// What an AF_XDP socket counted since it was made. What a kernel does not count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Packets dropped because they were too long for a chunk, or for another reason.
    pub receive_dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// Packets dropped because the kernel had no chunk to put them in.
    pub fill_ring_empty: u64,
    /// Addresses for receiving that the kernel refused.
    pub receive_invalid: u64,
    /// Descriptors for sending that the kernel refused.
    pub transmit_invalid: u64,
    /// Addresses from the kernel that were not its own to tell, or left their chunk: always 0
    /// unless the kernel errs.
    pub implausible: u64,
}

/// An AF_XDP socket bound to one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    file: OwnedFd,
    region: Arc<Region>,
    fill: Producer,
    completion: Consumer,
    receive: Consumer,
    transmit: Producer,
    /// Which chunks are with the kernel: the proof in `umem` rests on it.
    with_kernel: Vec<bool>,
    transmit_chunks: usize,
    implausible: u64,
}

impl XdpSocket {
    /// Makes a socket with memory of its own, in the calling thread's network namespace. It
    /// receives when a program hands it packets: see [`Redirect`].
    ///
    /// # Errors
    ///
    /// `ENOBUFS` over `RLIMIT_MEMLOCK`, `EOPNOTSUPP` if zero copy is wanted and the driver has
    /// none, `EINVAL` for options that make no sense or a queue the device has not, `EBUSY` if the
    /// queue has a socket, `EAFNOSUPPORT` if the kernel has no AF_XDP.
    pub fn bind(index: u32, queue: u32, options: &XdpOptions) -> io::Result<Self> {
        if !options.ring_slots.is_power_of_two() || !matches!(options.chunk_bytes, 2048 | 4096) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let file = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let region = Region::new(options.chunk_bytes as usize, options.chunks)?;
        register(&file, &region)?;
        let slots = options.ring_slots;
        sockopt::set_xdp_umem_fill_ring_size(&file, slots)?;
        sockopt::set_xdp_umem_completion_ring_size(&file, slots)?;
        sockopt::set_xdp_rx_ring_size(&file, slots)?;
        sockopt::set_xdp_tx_ring_size(&file, slots)?;
        let at = sockopt::xdp_mmap_offsets(&file)?;
        let of = file.as_fd();
        let mut socket = Self {
            fill: Producer::map(of, XDP_UMEM_PGOFF_FILL_RING, at.fr, slots, ADDRESS_BYTES)?,
            completion: Consumer::map(
                of,
                XDP_UMEM_PGOFF_COMPLETION_RING,
                at.cr,
                slots,
                ADDRESS_BYTES,
            )?,
            receive: Consumer::map(of, XDP_PGOFF_RX_RING, at.rx, slots, DESCRIPTOR_BYTES)?,
            transmit: Producer::map(of, XDP_PGOFF_TX_RING, at.tx, slots, DESCRIPTOR_BYTES)?,
            with_kernel: vec![false; region.chunks() as usize],
            transmit_chunks: options.transmit_chunks as usize,
            implausible: 0,
            region,
            file,
        };
        socket.refill();
        bind(&socket.file, &SocketAddrXdp::new(bind_flags(options), index, queue))?;
        Ok(socket)
    }

    /// Appends at most so many received frames, and says how many. A packet is the frames up to the
    /// first that does not continue. Never waits: poll the descriptor.
    ///
    /// # Errors
    ///
    /// Those of waking the driver, such as `ENETDOWN`.
    pub fn receive(&mut self, frames: &mut Vec<Frame>, at_most: usize) -> io::Result<usize> {
        let available = (self.receive.available() as usize).min(at_most);
        let before = frames.len();
        for _ in 0..available {
            let descriptor: [u8; DESCRIPTOR_BYTES] = self.receive.read();
            let [address, length, options] = parse(&descriptor);
            let continues = options & u64::from(abi::XDP_PKT_CONTD) != 0;
            if self.take_back(address).is_none() {
                continue;
            }
            match self.region.frame(address, length as u32, continues) {
                Some(frame) => frames.push(frame),
                None => self.implausible += 1,
            }
        }
        self.receive.publish();
        self.refill();
        if self.fill.needs_wakeup() {
            self.wake_receive()?;
        }
        Ok(frames.len() - before)
    }

    /// A free frame to be filled and sent; none if all are in use, when those that were sent are
    /// still with the kernel.
    pub fn allocate(&mut self) -> Option<Frame> {
        self.reap();
        self.region.allocate()
    }

    /// Sends frames from the front of a list, whole packets only, and says how many; the rest stay
    /// in the list and can be sent when the kernel has room.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if a frame is of another socket: copy it into one of
    /// [`XdpSocket::allocate`]; then none was sent. `ENETDOWN`, `ENXIO` from the kernel; the frames
    /// it did not read are sent by the next [`XdpSocket::flush`].
    pub fn transmit(&mut self, frames: &mut Vec<Frame>) -> io::Result<usize> {
        if !frames.iter().all(|frame| frame.is_of(&self.region)) {
            let why = "a frame of another socket's memory";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.reap();
        let room = (self.transmit.room() as usize).min(frames.len());
        // Up to the last frame within the room that ends a packet.
        let whole = frames[..room].iter().rposition(|frame| !frame.continues());
        let count = whole.map_or(0, |last| last + 1);
        for frame in frames.drain(..count) {
            let options = if frame.continues() { abi::XDP_PKT_CONTD } else { 0 };
            let (chunk, address, length) = frame.give_away();
            self.with_kernel[chunk as usize] = true;
            self.transmit.write(&descriptor(address, length, options));
        }
        self.transmit.publish();
        self.flush()?;
        Ok(count)
    }

    /// Makes the kernel read what it has not read of the frames that were sent, and says how many
    /// it left.
    ///
    /// # Errors
    ///
    /// `ENETDOWN`, `ENXIO` if the interface is down or gone.
    pub fn flush(&mut self) -> io::Result<usize> {
        let mut pending = self.transmit.pending();
        while pending > 0 && self.transmit.needs_wakeup() {
            let result = self.wake_transmit();
            let left = self.transmit.pending();
            match result {
                // The kernel sends a few at a time: go on while it gets further.
                Ok(()) | Err(libc::EAGAIN) if left < pending => pending = left,
                Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => break,
                Err(code) => return Err(io::Error::from_raw_os_error(code)),
            }
        }
        self.reap();
        Ok(self.transmit.pending() as usize)
    }

    /// What the kernel counted.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let counted = sockopt::xdp_statistics(&self.file)?;
        Ok(XdpStatistics {
            receive_dropped: counted.rx_dropped,
            receive_ring_full: counted.rx_ring_full.unwrap_or(0),
            fill_ring_empty: counted.rx_fill_ring_empty_descs.unwrap_or(0),
            receive_invalid: counted.rx_invalid_descs,
            transmit_invalid: counted.tx_invalid_descs,
            implausible: self.implausible,
        })
    }

    /// Whether the device moves the bytes itself.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        Ok(sockopt::xdp_options(&self.file)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Chunks that are neither in frames nor with the kernel.
    pub fn free_chunks(&self) -> usize {
        self.region.free().len()
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.region.chunk_bytes()
    }

    /// Gives free chunks to the kernel to receive into, but for those that are kept for sending.
    fn refill(&mut self) {
        let mut free = self.region.free();
        let spare = free.len().saturating_sub(self.transmit_chunks);
        for _ in 0..spare.min(self.fill.room() as usize) {
            let Some(chunk) = free.pop() else { break };
            self.with_kernel[chunk as usize] = true;
            self.fill.write(&self.region.address_of(chunk).to_ne_bytes());
        }
        self.fill.publish();
    }

    /// Frees the chunks of packets that were sent.
    fn reap(&mut self) {
        for _ in 0..self.completion.available() {
            let address = u64::from_ne_bytes(self.completion.read());
            if let Some(chunk) = self.take_back(address) {
                self.region.free().push(chunk);
            }
        }
        self.completion.publish();
    }

    /// Takes the chunk of an address from the kernel, if it is the kernel's.
    fn take_back(&mut self, address: u64) -> Option<u32> {
        let chunk = self.region.locate(address).map(|(chunk, _)| chunk);
        let mark = chunk.and_then(|chunk| self.with_kernel.get_mut(chunk as usize));
        if mark.is_some_and(core::mem::take) {
            return chunk;
        }
        self.implausible += 1;
        None
    }

    fn wake_receive(&self) -> io::Result<()> {
        let woken = seen(|| {
            // SAFETY: no buffer and no address are handed over.
            let result = unsafe {
                libc::recvfrom(
                    self.file.as_raw_fd(),
                    core::ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    core::ptr::null_mut(),
                    core::ptr::null_mut(),
                )
            };
            error_code(result)
        });
        match woken {
            Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::EINTR) => Ok(()),
            Err(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn wake_transmit(&self) -> Result<(), i32> {
        seen(|| {
            // SAFETY: neither bytes nor an address are handed over: the packets are in the ring.
            let result = unsafe {
                libc::sendto(
                    self.file.as_raw_fd(),
                    core::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    core::ptr::null(),
                    0,
                )
            };
            error_code(result)
        })
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Registers the chunks with the kernel.
fn register(file: &OwnedFd, region: &Region) -> io::Result<()> {
    let registration = XdpUmemReg {
        addr: region.mapping().address(),
        len: region.mapping().bytes() as u64,
        chunk_size: region.chunk_bytes() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    Ok(sockopt::set_xdp_umem_reg(file, registration)?)
}

fn bind_flags(options: &XdpOptions) -> SocketAddrXdpFlags {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    match options.copy {
        CopyMode::Automatic => {}
        CopyMode::Copy => flags |= SocketAddrXdpFlags::XDP_COPY,
        CopyMode::ZeroCopy => flags |= SocketAddrXdpFlags::XDP_ZEROCOPY,
    }
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, options.multi_buffer);
    flags
}

/// `struct xdp_desc`: address, length, options.
fn descriptor(address: u64, length: u32, options: u32) -> [u8; DESCRIPTOR_BYTES] {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    bytes[..8].copy_from_slice(&address.to_ne_bytes());
    bytes[8..12].copy_from_slice(&length.to_ne_bytes());
    bytes[12..].copy_from_slice(&options.to_ne_bytes());
    bytes
}

fn parse(descriptor: &[u8; DESCRIPTOR_BYTES]) -> [u64; 3] {
    let (address, rest) = descriptor.split_at(8);
    let word = |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let address = address.first_chunk().copied().map_or(u64::MAX, u64::from_ne_bytes);
    [address, u64::from(word(0)), u64::from(word(4))]
}

fn error_code(result: isize) -> Result<(), i32> {
    if result >= 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_taken_back_once_and_only_from_who_has_it() {
        let options = XdpOptions { chunks: 8, transmit_chunks: 4, ..XdpOptions::default() };
        // Loopback has the index 1 in every network.
        let mut socket = match XdpSocket::bind(1, 0, &options) {
            Err(error) => return println!("skipped: no AF_XDP socket: {error}"),
            Ok(socket) => socket,
        };
        assert_eq!(socket.free_chunks(), 4);
        let mut taken = 0;
        for address in (0..9 * 4096).step_by(512) {
            taken += usize::from(socket.take_back(address).is_some());
        }
        assert_eq!((taken, socket.implausible), (4, 9 * 8 - 4));
        assert!(socket.take_back(u64::MAX).is_none());
    }

    #[test]
    fn a_descriptor_is_read_as_it_is_written() {
        let bytes = descriptor(0x1_0000_0100, 1514, 1);
        assert_eq!(parse(&bytes), [0x1_0000_0100, 1514, 1]);
    }
}
