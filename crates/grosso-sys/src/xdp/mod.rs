//! AF_XDP sockets, whose packets are in chunks of memory shared with the kernel.
//!
//! Two pitfalls: packets from a sender with checksum offload arrive with partial checksums, which AF_XDP does not mark
//! as such; and a packet longer than a chunk is lost, unless the socket accepts multi-buffer packets
//! ([`XdpOptions::multi_buffer`]).
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
//!     socket.transmit(&mut frames)?; // a frame is a buffer: send each back
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

/// Length of an address in the fill and completion rings, in bytes.
const ADDRESS_BYTES: usize = 8;
/// Length of `struct xdp_desc` in the receive and transmit rings, in bytes.
const DESCRIPTOR_BYTES: usize = 16;

/// Whether packets are copied between the device and the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Zero copy if the driver supports it, otherwise copying.
    #[default]
    Automatic,
    /// The kernel copies packets.
    Copy,
    /// The device reads and writes the chunks; binding fails if the driver cannot.
    ZeroCopy,
}

/// Options of an AF_XDP socket.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Length of a chunk in bytes: 2048 or 4096. On receive, the kernel uses the first 256 bytes.
    pub chunk_bytes: u32,
    /// Number of chunks of the socket. Without `CAP_IPC_LOCK` their memory counts against
    /// `RLIMIT_MEMLOCK`.
    pub chunks: u32,
    /// Number of chunks reserved for sending, which are never given to the kernel for receiving.
    pub transmit_chunks: u32,
    /// Number of slots in each of the four rings, a power of two.
    pub ring_slots: u32,
    /// Whether packets are copied between the device and the chunks.
    pub copy: CopyMode,
    /// Whether to receive and send multi-buffer packets (`XDP_USE_SG`, Linux 6.6).
    pub multi_buffer: bool,
}

impl Default for XdpOptions {
    /// Returns options for packets of up to 3840 bytes, with 8192 chunks (32 MiB in total); 2048 chunks are reserved
    /// for sending.
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

/// Counters of an AF_XDP socket, which start at 0 when the socket is created. Counters that the kernel lacks stay 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Number of packets dropped because they were too long for a chunk, or for another reason that has no counter.
    pub receive_dropped: u64,
    /// Number of packets dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// Number of packets dropped because the kernel had no chunk for them.
    pub fill_ring_empty: u64,
    /// Number of receive addresses that the kernel rejected.
    pub receive_invalid: u64,
    /// Number of transmit descriptors that the kernel rejected.
    pub transmit_invalid: u64,
    /// Number of addresses that the kernel returned although it did not own the chunk, or that were outside a chunk.
    /// This is 0 unless the kernel has a bug.
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
    /// Whether the kernel owns each chunk. The safety argument in `umem` relies on it.
    with_kernel: Vec<bool>,
    transmit_chunks: usize,
    implausible: u64,
}

impl XdpSocket {
    /// Creates a socket with its own memory, in the calling thread's network namespace. It receives
    /// once a program redirects packets to it: see [`Redirect`].
    ///
    /// # Errors
    ///
    /// Returns `ENOBUFS` over `RLIMIT_MEMLOCK`, `EOPNOTSUPP` if zero copy is requested and the driver lacks it,
    /// `EINVAL` for invalid options or a queue that the device lacks, `EBUSY` if the queue has a socket, or
    /// `EAFNOSUPPORT` if the kernel lacks AF_XDP.
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

    /// Appends at most `at_most` received frames to `frames` and returns their number. A packet ends with the first
    /// frame that does not continue. The call never blocks; poll the descriptor to wait.
    ///
    /// # Errors
    ///
    /// Returns any error from waking the driver, for example `ENETDOWN`.
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

    /// Returns a free frame to fill and send, or `None` if all chunks are in use, including chunks of sent packets that
    /// the kernel still owns.
    pub fn allocate(&mut self) -> Option<Frame> {
        self.reap();
        self.region.allocate()
    }

    /// Sends frames from the front of `frames`, whole packets only, and returns the number of frames sent. The other
    /// frames stay in the list and can be sent once the kernel has room.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::InvalidInput`] if a frame belongs to another socket; no frame is sent in this case.
    /// Copy such a frame into one from [`XdpSocket::allocate`]. Returns `ENETDOWN` or `ENXIO` from the kernel; the next
    /// [`XdpSocket::flush`] sends the frames that the kernel did not read.
    pub fn transmit(&mut self, frames: &mut Vec<Frame>) -> io::Result<usize> {
        if !frames.iter().all(|frame| frame.is_of(&self.region)) {
            let why = "the frame is in the memory of a different socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.reap();
        let room = (self.transmit.room() as usize).min(frames.len());
        // Only whole packets are sent: up to the last frame that fits and does not continue in another one.
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

    /// Wakes the kernel to read the queued frames, and returns the number of frames that it has not read yet.
    ///
    /// # Errors
    ///
    /// Returns `ENETDOWN` if the interface is down, or `ENXIO` if it is gone.
    pub fn flush(&mut self) -> io::Result<usize> {
        let mut pending = self.transmit.pending();
        while pending > 0 && self.transmit.needs_wakeup() {
            let result = self.wake_transmit();
            let left = self.transmit.pending();
            match result {
                // The kernel sends only a few frames per call: repeat while it makes progress.
                Ok(()) | Err(libc::EAGAIN) if left < pending => pending = left,
                Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => break,
                Err(code) => return Err(io::Error::from_raw_os_error(code)),
            }
        }
        self.reap();
        Ok(self.transmit.pending() as usize)
    }

    /// Returns the kernel's counters.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
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

    /// Returns whether the socket uses zero copy.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        Ok(sockopt::xdp_options(&self.file)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Returns the number of chunks that are neither in frames nor owned by the kernel.
    pub fn free_chunks(&self) -> usize {
        self.region.free().len()
    }

    /// Returns the length of a chunk in bytes.
    pub fn chunk_bytes(&self) -> usize {
        self.region.chunk_bytes()
    }

    /// Gives free chunks to the kernel for receiving, except for the chunks reserved for sending.
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

    /// Frees the chunks of packets that have been sent.
    fn reap(&mut self) {
        for _ in 0..self.completion.available() {
            let address = u64::from_ne_bytes(self.completion.read());
            if let Some(chunk) = self.take_back(address) {
                self.region.free().push(chunk);
            }
        }
        self.completion.publish();
    }

    /// Takes the chunk at an address back from the kernel, if the kernel owns it.
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
            // SAFETY: no buffer and no address are passed.
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
            // SAFETY: neither bytes nor an address are passed: the packets are in the ring.
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

/// Encodes a `struct xdp_desc`: address, length, options.
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
    fn a_chunk_is_reclaimed_once_and_only_from_its_holder() {
        let options = XdpOptions { chunks: 8, transmit_chunks: 4, ..XdpOptions::default() };
        // Loopback has index 1 in every network namespace.
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
