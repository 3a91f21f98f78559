//! Packet sockets (`AF_PACKET`, `SOCK_RAW`) bound to one interface, or to the IP packets of all interfaces.
//!
//! [`PacketSocket`] receives and sends packet by packet. [`ReceiveRing`], [`BlockRing`] and [`TransmitRing`] use mapped
//! memory; each has its own socket.

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use rustix::net::{sendmsg, socket_with, sockopt};

use crate::abi;
use crate::calls::seen;
use crate::wait::limit;

mod block_ring;
mod builder;
mod fanout;
mod filter;
mod receive_ring;
mod ring;
mod ring_frame;
mod transmit_ring;

pub use block_ring::{BlockCounts, BlockLayout, BlockPacket, BlockRing, ReceivedBlock};
pub use builder::PacketSocketBuilder;
pub use fanout::{Fanout, FanoutRule};
pub use filter::{IpFilter, PROTOCOLS_MAX};
pub use receive_ring::{ReceiveRing, RingFrame};
pub use ring::RingLayout;
pub use transmit_ring::TransmitRing;

/// Space in bytes for the control messages of one packet; the only message requested needs 36.
const CONTROL_BYTES: usize = 64;

/// Maximum number of packets that one [`PacketSocket::send_batch`] sends.
const BATCH_MAX: usize = 64;

/// A nonblocking packet socket bound to one interface. Use [`PacketSocket::wait`] to wait for packets.
#[derive(Debug)]
pub struct PacketSocket {
    file: OwnedFd,
    virtio_bytes: u8,
}

/// Properties of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Number of bytes written to the buffer, including the virtio header.
    pub length: usize,
    /// Whether the packet was longer than the buffer.
    pub truncated: bool,
    /// Outermost VLAN tag. The kernel removes the tag from the packet before a packet socket receives it.
    pub vlan: Option<VlanTag>,
    /// State of the packet's checksum.
    pub status: Status,
}

/// Status of a received packet (`TP_STATUS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(u32);

impl Status {
    /// Returns whether the checksum is partial: its field holds the pseudo-header sum, as in packets from a host with
    /// checksum offload.
    pub fn checksum_not_ready(self) -> bool {
        self.0 & abi::TP_STATUS_CSUMNOTREADY != 0
    }

    /// Returns whether the transport checksum was verified (Linux 4.2).
    pub fn checksum_valid(self) -> bool {
        self.0 & abi::TP_STATUS_CSUM_VALID != 0
    }

    /// Returns whether the slot is too short for the packet, so that the whole packet is queued in the socket buffer.
    pub fn kept(self) -> bool {
        self.0 & abi::TP_STATUS_COPY != 0
    }

    /// Returns whether packets have been dropped since the statistics were last read, because the ring was full.
    pub fn losing(self) -> bool {
        self.0 & abi::TP_STATUS_LOSING != 0
    }

    fn has_tag(self) -> bool {
        self.0 & abi::TP_STATUS_VLAN_VALID != 0
    }

    fn tag(self, protocol: u16, control: u16) -> Option<VlanTag> {
        if !self.has_tag() {
            return None;
        }
        let has_protocol = self.0 & abi::TP_STATUS_VLAN_TPID_VALID != 0;
        let protocol = if has_protocol { protocol } else { abi::ETH_P_8021Q };
        Some(VlanTag { protocol, control })
    }
}

/// Destination type of a packet (`sll_pkttype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Addressed to this host.
    Host,
    /// Addressed to all hosts.
    Broadcast,
    /// Addressed to a multicast group.
    Multicast,
    /// Addressed to another host, and received because the interface is promiscuous.
    OtherHost,
    /// Sent by this host.
    Outgoing,
    /// A type that only later kernels use.
    Other,
}

/// Counters of a packet socket since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of packets for the socket, including dropped packets.
    pub packets: u32,
    /// Number of packets dropped because the buffer was full.
    pub drops: u32,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The EtherType of the tag: 0x8100 or 0x88A8.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN identifier.
    pub control: u16,
}

impl PacketSocket {
    /// Checks that this process may open packet sockets in the calling thread's network namespace, by opening one that
    /// is not bound to an interface.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_NET_RAW` in the namespace, or `EAFNOSUPPORT` if the kernel lacks packet sockets.
    pub fn may_open() -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        Ok(())
    }

    /// Returns default options for opening a socket.
    pub fn builder() -> PacketSocketBuilder {
        PacketSocketBuilder::default()
    }

    /// Returns the size of the receive buffer in bytes, including the kernel's bookkeeping.
    fn receive_buffer_bytes(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.file)?)
    }

    /// Receives one packet, starting with its virtio header. Returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns `ENETDOWN` once after the interface went down, or `EINVAL` for a packet that the virtio header cannot
    /// express.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<ReceivedPacket>> {
        let mut control = ControlBuffer([0; CONTROL_BYTES]);
        let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all fields of a `msghdr` are numbers and pointers, for which zero is a valid
        // value.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &raw mut parts;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the message refers to one buffer and one control buffer, both borrowed until the
        // call returns.
        let length = unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        let (status, vlan) = auxiliary_data(&message);
        Ok(Some(ReceivedPacket { length, truncated, vlan, status }))
    }

    /// Sends one packet, starting with its virtio header if the socket has one.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if the send buffer is full, `EINVAL` for an invalid virtio header, or `EMSGSIZE` above the
    /// MTU.
    pub fn send(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(seen(|| rustix::net::send(&self.file, packet, SendFlags::empty()))?)
    }

    /// Sends one packet from parts, starting with its virtio header if the socket has one.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocket::send`].
    pub fn send_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        Ok(seen(|| sendmsg(&self.file, parts, &mut control, SendFlags::empty()))?)
    }

    /// Sends at most 64 packets, each from its parts, with one system call, and returns the number sent. Fewer are sent
    /// if the kernel rejects a packet or the buffer is full: call again with the next packet to get its error.
    ///
    /// # Errors
    ///
    /// Returns the error of [`PacketSocket::send`] for the first packet; in this case, no packet was sent.
    pub fn send_batch(&self, packets: &[&[IoSlice<'_>]]) -> io::Result<usize> {
        // SAFETY: all fields of a `mmsghdr` are numbers and pointers, for which zero is a valid
        // value.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { core::mem::zeroed() };
        let count = packets.len().min(BATCH_MAX);
        for (message, parts) in messages.iter_mut().zip(packets) {
            // The kernel only reads through these pointers; an `IoSlice` has the layout of an `iovec`.
            message.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_iovlen = parts.len() as _;
        }
        seen(|| {
            let (file, messages) = (self.file.as_raw_fd(), messages.as_mut_ptr());
            // SAFETY: the first `count` messages refer to parts that are borrowed until the call
            // returns.
            let sent = unsafe { libc::sendmmsg(file, messages, count as libc::c_uint, 0) };
            usize::try_from(sent).map_err(|_| io::Error::last_os_error())
        })
    }

    /// Waits until a packet can be received and returns whether there is one. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `poll(2)`, except `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.wait_for(PollFlags::IN, at_most)
    }

    /// Waits until half of the send buffer is free and returns whether it is. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `poll(2)`, except `EINTR`.
    pub fn wait_for_room(&self, at_most: Duration) -> io::Result<bool> {
        self.wait_for(PollFlags::OUT, at_most)
    }

    /// Returns the number of packets that were dropped because the buffer was full. The count starts at the last call
    /// to this function or to [`PacketSocket::take_statistics`].
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_drops(&self) -> io::Result<u32> {
        Ok(self.take_statistics()?.drops)
    }

    /// Returns the number of packets received and the number of packets dropped because the buffer was full, both since
    /// the last call.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        let mut statistics = abi::PacketStatistics::default();
        let mut length = size_of::<abi::PacketStatistics>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of the structure.
        let result = unsafe {
            libc::getsockopt(
                self.file.as_raw_fd(),
                abi::SOL_PACKET,
                abi::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Statistics { packets: statistics.packets, drops: statistics.drops })
    }

    /// Returns and clears the socket's pending error, for example `ENETDOWN` after the interface went down.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.file)?.err().map(io::Error::from))
    }

    /// Returns the number of the socket's fanout group, which other sockets need to join the group, or `None` if the
    /// socket is in no group.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn fanout_group(&self) -> io::Result<Option<u16>> {
        fanout::group(&self.file)
    }

    fn wait_for(&self, events: PollFlags, at_most: Duration) -> io::Result<bool> {
        let timeout = limit(Some(at_most));
        match poll(&mut [PollFd::new(&self.file, events)], timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Buffer for control messages; each starts with a length field, which determines the alignment of the buffer.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// Sets a packet socket option. `Value` is an `int` or a structure of words without padding.
fn set_option<Value: Copy>(file: &OwnedFd, option: c_int, value: &Value) -> io::Result<()> {
    // SAFETY: the kernel reads the stated number of bytes, and the borrow covers all of them.
    let result = unsafe {
        libc::setsockopt(
            file.as_raw_fd(),
            abi::SOL_PACKET,
            option,
            core::ptr::from_ref(value).cast::<c_void>(),
            size_of::<Value>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the status and the VLAN tag from the auxiliary data, which is the only control message requested.
fn auxiliary_data(message: &libc::msghdr) -> (Status, Option<VlanTag>) {
    let nothing = (Status::default(), None);
    // SAFETY: the kernel filled the control buffer and its length; the buffer outlives the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return nothing;
    }
    // SAFETY: a non-null header lies completely inside the control buffer, which is aligned for it.
    let described = unsafe { header.read() };
    let is_auxiliary =
        described.cmsg_level == abi::SOL_PACKET && described.cmsg_type == abi::PACKET_AUXDATA;
    // SAFETY: only the address after the header is computed.
    let data = unsafe { libc::CMSG_DATA(header) };
    let header_bytes = data.addr() - header.addr();
    let length = header_bytes + size_of::<abi::PacketAuxiliaryData>();
    if !is_auxiliary || (described.cmsg_len as usize) < length {
        return nothing;
    }
    // SAFETY: the control message was checked to be as long as its header and the auxiliary data.
    let auxiliary = unsafe { data.cast::<abi::PacketAuxiliaryData>().read_unaligned() };
    let status = Status(auxiliary.status);
    (status, status.tag(auxiliary.vlan_tpid, auxiliary.vlan_tci))
}
