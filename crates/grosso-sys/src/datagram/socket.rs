//! A socket for a tunnel: UDP, or raw IP with headers of one's own.

use core::ffi::c_int;
use core::net::SocketAddr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, socket_with, sockopt};

use super::address::Address;
use super::control::{Control, each_message, number};
use super::{filter, read, set};
use crate::calls::seen;
use crate::filter::attach;

/// Most messages of one call; of more only so many are tried.
pub const BATCH_MAX: usize = 64;

/// What is in front of what a socket sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing: the kernel makes and takes off UDP and IP headers.
    Udp,
    /// Over IPv4 nothing of what is sent, as with UDP; over IPv6 its headers, of which each is sent as
    /// it is. What is received are packets of this IP protocol, over IPv4 with their header, over IPv6
    /// from behind their headers on.
    Raw(u8),
}

/// How a socket is opened. It never blocks.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSocketBuilder {
    protocol: Protocol,
    local: SocketAddr,
    shared: bool,
    sends_checksum: bool,
    takes_no_checksum: bool,
    wants_checksum: bool,
    send_only: bool,
    coalescing: bool,
    hop_limit: Option<u8>,
    buffer_bytes: Option<usize>,
}

impl DatagramSocketBuilder {
    /// A socket at this address; of raw IP the port is 0. Port 0 of UDP lets the kernel choose one.
    #[must_use]
    pub const fn new(protocol: Protocol, local: SocketAddr) -> Self {
        Self {
            protocol,
            local,
            shared: false,
            sends_checksum: true,
            takes_no_checksum: false,
            wants_checksum: false,
            send_only: false,
            coalescing: false,
            hop_limit: None,
            buffer_bytes: None,
        }
    }

    /// Whether other sockets may have the same address and port, among which the kernel then spreads
    /// flows (`SO_REUSEPORT`).
    #[must_use]
    pub const fn shared(mut self, on: bool) -> Self {
        self.shared = on;
        self
    }

    /// Whether UDP is sent with a checksum, as it is by default (`SO_NO_CHECK`,
    /// `UDP_NO_CHECK6_TX`).
    #[must_use]
    pub const fn sends_checksum(mut self, on: bool) -> Self {
        self.sends_checksum = on;
        self
    }

    /// Whether UDP over IPv6 is received without a checksum (`UDP_NO_CHECK6_RX`). Over IPv4 it is.
    #[must_use]
    pub const fn takes_no_checksum(mut self, on: bool) -> Self {
        self.takes_no_checksum = on;
        self
    }

    /// Whether UDP is received with a checksum alone (`SO_ATTACH_FILTER`): then the kernel has verified all
    /// that the socket delivers.
    #[must_use]
    pub const fn wants_checksum(mut self, on: bool) -> Self {
        self.wants_checksum = on;
        self
    }

    /// Whether nothing is received. Of raw IP the kernel still takes packets of the protocol for
    /// somebody's, and tells nobody that it does not know it.
    #[must_use]
    pub const fn send_only(mut self, on: bool) -> Self {
        self.send_only = on;
        self
    }

    /// Whether several datagrams of a flow are received as one (`UDP_GRO`).
    #[must_use]
    pub const fn coalescing(mut self, on: bool) -> Self {
        self.coalescing = on;
        self
    }

    /// The TTL or hop limit of what says nothing else; that of the system by default.
    #[must_use]
    pub const fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = Some(hop_limit);
        self
    }

    /// Room for so many bytes each way, past the system's limit where that is permitted.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = Some(bytes);
        self
    }

    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` and `EADDRNOTAVAIL` about the address, `EPERM` for raw IP without
    /// `CAP_NET_RAW`, and `ENOPROTOOPT` if the kernel lacks what was asked for.
    pub fn open(self) -> io::Result<DatagramSocket> {
        let family = if self.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = match self.protocol {
            Protocol::Udp => socket_with(family, SocketType::DGRAM, flags, None)?,
            Protocol::Raw(protocol) => {
                let protocol = core::num::NonZeroU32::new(protocol.into());
                let protocol = protocol.map(rustix::net::Protocol::from_raw);
                socket_with(family, SocketType::RAW, flags, protocol)?
            }
        };
        // A raw socket has its protocol as its port already, and is of one family.
        if !self.local.is_ipv4() && self.protocol == Protocol::Udp {
            sockopt::set_ipv6_v6only(&file, true)?;
        }
        if self.shared {
            sockopt::set_socket_reuseport(&file, true)?;
        }
        // Nothing of another sort slips in before the socket is bound.
        self.prepare(&file)?;
        bind(&file, &self.local)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&file)?)?;
        DatagramSocket::new(file, self.protocol, bound)
    }

    /// Takes over a socket that another program bound, which must be of the protocol; its address is its own.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a socket of another kind, and those of
    /// [`DatagramSocketBuilder::open`].
    pub fn adopt(self, file: OwnedFd) -> io::Result<DatagramSocket> {
        let kind = match self.protocol {
            Protocol::Udp => SocketType::DGRAM,
            Protocol::Raw(_) => SocketType::RAW,
        };
        let local = SocketAddr::try_from(rustix::net::getsockname(&file)?);
        let (Ok(local), true) = (local, sockopt::socket_type(&file)? == kind) else {
            let why = "the descriptor is a socket of another kind";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        rustix::io::ioctl_fionbio(&file, true)?;
        Self { local, ..self }.prepare(&file)?;
        DatagramSocket::new(file, self.protocol, local)
    }

    /// Sets all options.
    fn prepare(&self, file: &OwnedFd) -> io::Result<()> {
        let is_ipv4 = self.local.is_ipv4();
        if self.send_only {
            attach(file, filter::NOTHING)?;
        }
        if self.protocol == Protocol::Udp {
            if self.wants_checksum && !self.send_only {
                attach(file, filter::WITH_CHECKSUM)?;
            }
            let no_checksum = c_int::from(!self.sends_checksum);
            if is_ipv4 {
                set(file, libc::SOL_SOCKET, libc::SO_NO_CHECK, no_checksum)?;
            } else {
                set(file, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, no_checksum)?;
                let takes = c_int::from(self.takes_no_checksum);
                set(file, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, takes)?;
            }
            if self.coalescing {
                super::set_coalescing(file, true)?;
            }
        } else if !is_ipv4 {
            set(file, libc::IPPROTO_IPV6, libc::IPV6_HDRINCL, 1)?;
        }
        let wanted = match is_ipv4 {
            true => [libc::IP_RECVTOS, libc::IP_RECVTTL],
            false => [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT],
        };
        for option in wanted {
            set(file, level(is_ipv4), option, 1)?;
        }
        if let Some(hop_limit) = self.hop_limit {
            let option = if is_ipv4 { libc::IP_TTL } else { libc::IPV6_UNICAST_HOPS };
            set(file, level(is_ipv4), option, hop_limit.into())?;
        }
        self.set_buffers(file)
    }

    fn set_buffers(&self, file: &OwnedFd) -> io::Result<()> {
        let Some(bytes) = self.buffer_bytes else { return Ok(()) };
        match sockopt::set_socket_send_buffer_size_force(file, bytes) {
            Err(Errno::PERM) => sockopt::set_socket_send_buffer_size(file, bytes)?,
            result => result?,
        }
        match sockopt::set_socket_recv_buffer_size_force(file, bytes) {
            Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(file, bytes)?,
            result => result?,
        }
        Ok(())
    }
}

/// A UDP or raw IP socket at an address. It never blocks.
#[derive(Debug)]
pub struct DatagramSocket {
    file: OwnedFd,
    protocol: Protocol,
    local: SocketAddr,
    hop_limit: u8,
    /// What the kernel was told last; `None` before.
    dont_fragment: Option<bool>,
    /// What a call says of each message.
    addresses: Vec<Address>,
    controls: Vec<Control>,
}

/// What to send with one message.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its bytes: of UDP and of raw IPv4 what is behind the header, of raw IPv6 a packet.
    pub parts: &'a [IoSlice<'a>],
    /// Where to; of raw IP the port is 0.
    pub destination: SocketAddr,
    /// TOS or traffic class. Raw IPv6 has it in its header.
    pub traffic_class: u8,
    /// TTL or hop limit, not 0. Raw IPv6 has it in its header.
    pub hop_limit: u8,
    /// The bytes of each datagram that the kernel is to cut it into, the last being what is left
    /// (`UDP_SEGMENT`, Linux 4.18); `None` to send it as one.
    pub segment_bytes: Option<u16>,
}

/// What one message gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in its buffers.
    pub length: usize,
    /// Whether there were more than the buffers have room for.
    pub truncated: bool,
    /// Who sent it.
    pub source: SocketAddr,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit as it arrived.
    pub hop_limit: u8,
    /// Bytes of each datagram but the last, of several that were received as one.
    pub segment_bytes: Option<u16>,
}

impl DatagramSocket {
    fn new(file: OwnedFd, protocol: Protocol, local: SocketAddr) -> io::Result<Self> {
        let is_ipv4 = local.is_ipv4();
        let option = if is_ipv4 { libc::IP_TTL } else { libc::IPV6_UNICAST_HOPS };
        let [hop_limit] = read(&file, level(is_ipv4), option)?;
        let hop_limit = u8::try_from(hop_limit).unwrap_or_default();
        let mut socket = Self {
            file,
            protocol,
            local,
            hop_limit,
            dont_fragment: None,
            addresses: Vec::new(),
            controls: Vec::new(),
        };
        socket.set_dont_fragment(true)?;
        Ok(socket)
    }

    /// Whether what is sent forbids fragments, as it does at first. Then what is longer than the
    /// path's MTU is refused (`IP_MTU_DISCOVER`); over IPv6 the kernel makes fragments otherwise.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_dont_fragment(&mut self, on: bool) -> io::Result<()> {
        if self.dont_fragment == Some(on) {
            return Ok(());
        }
        let (option, value) = match (self.local.is_ipv4(), on) {
            (true, true) => (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (true, false) => (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            (false, true) => (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO),
            (false, false) => (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        };
        set(&self.file, level(self.local.is_ipv4()), option, value)?;
        self.dont_fragment = Some(on);
        Ok(())
    }

    /// Sends messages with one system call, and says how many were sent; of more than [`BATCH_MAX`] only the first are
    /// tried. Fewer than were given are sent when one is refused or the buffer is full: go on with
    /// the next, whose error is then told.
    ///
    /// # Errors
    ///
    /// About the first message, when none was sent: would-block if the buffer is full, `EMSGSIZE`
    /// above the MTU of the path, `EIO` and `EINVAL` for segments that the kernel does not cut.
    pub fn send_batch(&mut self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let count = datagrams.len().min(BATCH_MAX);
        let datagrams = &datagrams[..count];
        self.addresses.clear();
        self.addresses.extend(datagrams.iter().map(|datagram| Address::from(datagram.destination)));
        let mut controls = core::mem::take(&mut self.controls);
        controls.clear();
        controls.extend(datagrams.iter().map(|datagram| self.control(datagram)));
        // SAFETY: all fields of a `mmsghdr` are numbers and pointers, for which zero is a value.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { core::mem::zeroed() };
        let said = self.addresses.iter_mut().zip(&mut controls);
        for ((message, datagram), (address, control)) in
            messages.iter_mut().zip(datagrams).zip(said)
        {
            let header = &mut message.msg_hdr;
            header.msg_namelen = address.len() as libc::socklen_t;
            header.msg_name = core::ptr::from_mut(address).cast();
            // The kernel only reads through these; an `IoSlice` is laid out as an `iovec`.
            header.msg_iov = datagram.parts.as_ptr().cast_mut().cast();
            header.msg_iovlen = datagram.parts.len() as _;
            if control.len() > 0 {
                header.msg_controllen = control.len() as _;
                header.msg_control = control.as_mut_ptr();
            }
        }
        let sent = seen(|| {
            let (file, messages) = (self.file.as_raw_fd(), messages.as_mut_ptr());
            // SAFETY: the first `count` messages name parts, addresses and control buffers that are
            // borrowed or owned until the call returns.
            let result = unsafe { libc::sendmmsg(file, messages, count as libc::c_uint, 0) };
            usize::try_from(result).map_err(|_| io::Error::last_os_error())
        });
        self.controls = controls;
        sent
    }

    /// Receives messages with one system call, each into its buffers, and says how many; none if none
    /// waits. What is known of them replaces what was in `received`. Of more than [`BATCH_MAX`]
    /// buffers only the first are filled.
    ///
    /// # Errors
    ///
    /// Those of `recvmmsg(2)`, without would-block.
    pub fn receive_batch(
        &mut self,
        buffers: &mut [&mut [IoSliceMut<'_>]],
        received: &mut Vec<Received>,
    ) -> io::Result<usize> {
        received.clear();
        let count = buffers.len().min(BATCH_MAX);
        self.addresses.clear();
        self.addresses.resize(count, Address::EMPTY);
        self.controls.resize(count.max(self.controls.len()), Control::empty());
        // SAFETY: all fields of a `mmsghdr` are numbers and pointers, for which zero is a value.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { core::mem::zeroed() };
        let said = self.addresses.iter_mut().zip(&mut self.controls);
        for ((message, parts), (address, control)) in messages.iter_mut().zip(buffers).zip(said) {
            let header = &mut message.msg_hdr;
            header.msg_name = core::ptr::from_mut(address).cast();
            header.msg_namelen = Address::CAPACITY as libc::socklen_t;
            // An `IoSliceMut` is laid out as an `iovec`.
            header.msg_iov = parts.as_mut_ptr().cast();
            header.msg_iovlen = parts.len() as _;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = Control::CAPACITY as _;
        }
        let result = seen(|| {
            let (file, messages) = (self.file.as_raw_fd(), messages.as_mut_ptr());
            let (count, forever) = (count as libc::c_uint, core::ptr::null_mut());
            // SAFETY: the first `count` messages name buffers, addresses and control buffers that are
            // borrowed exclusively or owned until the call returns.
            let filled = unsafe { libc::recvmmsg(file, messages, count, 0, forever) };
            usize::try_from(filled).map_err(|_| io::Error::last_os_error())
        });
        let count = match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => result?,
        };
        let said = self.addresses.iter().zip(&self.controls);
        for (message, (address, control)) in messages.iter().take(count).zip(said) {
            received.push(self.describe(message, address, control));
        }
        Ok(count)
    }

    /// The address that it is at.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// How many datagrams the kernel dropped that were for the socket, since it was opened: for want
    /// of room, for a checksum that was wrong, or for what the socket does not take (`SO_MEMINFO`,
    /// Linux 4.12).
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn drops(&self) -> io::Result<u32> {
        let numbers: [c_int; MEMORY_NUMBERS] =
            read(&self.file, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        Ok(numbers[MEMORY_DROPS].cast_unsigned())
    }

    /// Takes the error the kernel left on the socket.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.file)?.err().map(io::Error::from))
    }

    /// What is said beside the bytes, where it is not what the socket says of itself.
    fn control(&self, datagram: &Datagram<'_>) -> Control {
        let mut control = Control::empty();
        let is_ipv4 = self.local.is_ipv4();
        if !is_ipv4 && self.protocol != Protocol::Udp {
            return control;
        }
        let (class, limit) = match is_ipv4 {
            true => (libc::IP_TOS, libc::IP_TTL),
            false => (libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        };
        if datagram.traffic_class != 0 {
            let class_bytes = c_int::from(datagram.traffic_class).to_ne_bytes();
            control.push(level(is_ipv4), class, class_bytes);
        }
        if datagram.hop_limit != self.hop_limit {
            control.push(level(is_ipv4), limit, c_int::from(datagram.hop_limit).to_ne_bytes());
        }
        if let Some(bytes) = datagram.segment_bytes {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, bytes.to_ne_bytes());
        }
        control
    }

    fn describe(&self, message: &libc::mmsghdr, address: &Address, control: &Control) -> Received {
        let header = &message.msg_hdr;
        let source = address.parse(header.msg_namelen as usize);
        let mut received = Received {
            length: message.msg_len as usize,
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            // The kernel tells who sent a datagram, always.
            source: source.unwrap_or(self.local),
            traffic_class: 0,
            hop_limit: 0,
            segment_bytes: None,
        };
        each_message(control.received(header.msg_controllen), |level, kind, data| {
            let Some(number) = number(data) else { return };
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    received.traffic_class = number as u8;
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    received.hop_limit = number as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    received.segment_bytes = u16::try_from(number).ok().filter(|bytes| *bytes > 0);
                }
                _ => {}
            }
        });
        received
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Where a family has its options and control messages.
const fn level(is_ipv4: bool) -> c_int {
    if is_ipv4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
}

/// linux/sock_diag.h: the numbers of `SO_MEMINFO`, and which is that of drops.
const MEMORY_NUMBERS: usize = 9;
const MEMORY_DROPS: usize = 8;

#[cfg(test)]
mod tests;
