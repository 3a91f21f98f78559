//! Packet sockets (`AF_PACKET`, `SOCK_RAW`) bound to one interface.

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::abi;
use crate::interface::{Control, InterfaceName};

/// Bytes for the control messages of one packet; the one that is asked for needs 36.
const CONTROL_BYTES: usize = 64;

/// How a packet socket is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketSocketBuilder {
    virtio_header: bool,
    ignore_outgoing: bool,
    receive_buffer_bytes: Option<usize>,
}

impl PacketSocketBuilder {
    /// Puts a 10-byte virtio header before each packet, in both directions (`PACKET_VNET_HDR`, rule
    /// V21).
    pub fn virtio_header(mut self, on: bool) -> Self {
        self.virtio_header = on;
        self
    }

    /// Leaves out packets the host sends (`PACKET_IGNORE_OUTGOING`, Linux 4.20).
    pub fn ignore_outgoing(mut self, on: bool) -> Self {
        self.ignore_outgoing = on;
        self
    }

    /// Bytes of packets, the kernel's bookkeeping included, that wait to be received before packets
    /// are dropped.
    ///
    /// The system's limit is overridden where the caller may, and silently obeyed where not.
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// Opens the socket in the calling thread's network namespace; it receives every protocol from
    /// now on.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_RAW` in the namespace, `ENODEV`, `ENETDOWN`.
    pub fn bind(self, interface: &InterfaceName) -> io::Result<PacketSocket> {
        let index = Control::new()?.index(interface)?;
        // Protocol 0 receives nothing, so no packet of another interface slips in before the socket
        // is bound.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set_option(&file, abi::PACKET_AUXDATA, 1)?;
        if self.virtio_header {
            set_option(&file, abi::PACKET_VNET_HDR, 1)?;
        }
        if self.ignore_outgoing {
            set_option(&file, abi::PACKET_IGNORE_OUTGOING, 1)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            match sockopt::set_socket_recv_buffer_size_force(&file, bytes) {
                Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(&file, bytes)?,
                result => result?,
            }
        }
        bind(&file, &LinkAddress::new(index))?;
        Ok(PacketSocket { file })
    }
}

/// A packet socket bound to one interface. It never blocks: see [`PacketSocket::wait`].
#[derive(Debug)]
pub struct PacketSocket {
    file: OwnedFd,
}

/// What is known about a received packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer, the virtio header included.
    pub length: usize,
    /// Whether the packet was longer than the buffer.
    pub truncated: bool,
    /// The outermost VLAN tag. The kernel takes it out of the bytes before a packet socket sees
    /// them.
    pub vlan: Option<VlanTag>,
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
    /// Says how a socket is to be opened.
    pub fn builder() -> PacketSocketBuilder {
        PacketSocketBuilder::default()
    }

    /// Receives one packet, its virtio header first; nothing if none waits.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` once after the interface went down, `EINVAL` for a packet the virtio header
    /// cannot express.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = ControlBuffer([0; CONTROL_BYTES]);
        let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all fields of a `msghdr` are numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &raw mut parts;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the message names one buffer and one control buffer, both borrowed until the call
        // returns.
        let length = unsafe { libc::recvmsg(self.file.as_raw_fd(), &raw mut message, 0) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        };
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Some(Received { length, truncated, vlan: vlan_tag(&message) }))
    }

    /// Sends one packet, its virtio header first if the socket has one.
    ///
    /// # Errors
    ///
    /// Would-block if the send buffer is full, `EINVAL` for a refused virtio header, `EMSGSIZE`
    /// above the MTU.
    pub fn send(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.file, packet, SendFlags::empty())?)
    }

    /// Waits until a packet can be received, and says whether one can. An interrupted wait ends
    /// early.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`, without `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(at_most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// How many packets were dropped for want of buffer since the last call.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn take_drops(&self) -> io::Result<u32> {
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
        if result == 0 { Ok(statistics.drops) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Control messages start with a length and want its alignment.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// `struct sockaddr_ll` for binding: every protocol of one interface.
struct LinkAddress(libc::sockaddr_ll);

impl LinkAddress {
    fn new(index: u32) -> Self {
        Self(libc::sockaddr_ll {
            sll_family: AddressFamily::PACKET.as_raw(),
            sll_protocol: abi::ETH_P_ALL.to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        })
    }
}

// SAFETY: the closure is given a pointer to a whole `struct sockaddr_ll`, which lives until it
// returns.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        call: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        call((&raw const self.0).cast(), length)
    }
}

fn set_option(file: &OwnedFd, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: every option given here is an `int`, and the kernel reads as many bytes as announced.
    let result = unsafe {
        libc::setsockopt(
            file.as_raw_fd(),
            abi::SOL_PACKET,
            option,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The tag in the auxiliary data, which is the only control message that is asked for.
fn vlan_tag(message: &libc::msghdr) -> Option<VlanTag> {
    // SAFETY: the kernel filled the control buffer and its length; the buffer outlives the message.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    // SAFETY: a header that is not null lies whole inside the control buffer, which is aligned for
    // it.
    let described = unsafe { header.read() };
    let is_auxiliary =
        described.cmsg_level == abi::SOL_PACKET && described.cmsg_type == abi::PACKET_AUXDATA;
    // SAFETY: only the address after the header is computed.
    let data = unsafe { libc::CMSG_DATA(header) };
    let header_bytes = data.addr() - header.addr();
    let length = header_bytes + size_of::<abi::PacketAuxiliaryData>();
    if !is_auxiliary || (described.cmsg_len as usize) < length {
        return None;
    }
    // SAFETY: the control message is as long as header and auxiliary data, checked above.
    let auxiliary = unsafe { data.cast::<abi::PacketAuxiliaryData>().read_unaligned() };
    if auxiliary.status & abi::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_protocol = auxiliary.status & abi::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_protocol { auxiliary.vlan_tpid } else { abi::ETH_P_8021Q };
    Some(VlanTag { protocol, control: auxiliary.vlan_tci })
}
