//! A socket for a tunnel: UDP, or raw IP.

use core::ffi::c_int;
use core::net::SocketAddr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, socket_with, sockopt};

use super::address::Address;
use super::control::{ControlMessages, each_message, number};
use super::{filter, read, set};
use crate::calls::seen;
use crate::filter::attach;

/// Greatest number of messages of one call; further ones are not tried.
pub const BATCH_MAX: usize = 64;

/// Protocol of a socket, which determines the headers in its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP. Messages have no headers: the kernel adds and removes those of UDP and IP.
    Udp,
    /// Raw packets of this IP protocol. Sent messages have no IPv4 header, as with UDP, but full
    /// IPv6 headers, which are sent unchanged. Received messages have their IPv4 header, but start
    /// after the IPv6 headers.
    Raw(u8),
}

/// Options for opening a socket. The socket never blocks.
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
    flow_label: Option<u32>,
    buffer_bytes: Option<usize>,
}

impl DatagramSocketBuilder {
    /// A socket bound to this address; the port is 0 for raw IP. Port 0 for UDP lets the kernel
    /// choose one.
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
            flow_label: None,
            buffer_bytes: None,
        }
    }

    /// Whether other sockets may have the same address and port, over which the kernel then
    /// distributes flows (`SO_REUSEPORT`).
    #[must_use]
    pub const fn shared(mut self, on: bool) -> Self {
        self.shared = on;
        self
    }

    /// Whether sent UDP datagrams have a checksum, the default (`SO_NO_CHECK`, `UDP_NO_CHECK6_TX`).
    #[must_use]
    pub const fn sends_checksum(mut self, on: bool) -> Self {
        self.sends_checksum = on;
        self
    }

    /// Whether UDP datagrams without a checksum are received over IPv6 (`UDP_NO_CHECK6_RX`). Over
    /// IPv4 they always are.
    #[must_use]
    pub const fn takes_no_checksum(mut self, on: bool) -> Self {
        self.takes_no_checksum = on;
        self
    }

    /// Whether only UDP datagrams with a checksum are received (`SO_ATTACH_FILTER`), so that the
    /// kernel has verified all that the socket delivers.
    #[must_use]
    pub const fn wants_checksum(mut self, on: bool) -> Self {
        self.wants_checksum = on;
        self
    }

    /// Whether nothing is received. For raw IP the open socket still keeps the kernel from
    /// answering that the protocol is unreachable.
    #[must_use]
    pub const fn send_only(mut self, on: bool) -> Self {
        self.send_only = on;
        self
    }

    /// Whether several datagrams of a flow are received as one message (`UDP_GRO`).
    #[must_use]
    pub const fn coalescing(mut self, on: bool) -> Self {
        self.coalescing = on;
        self
    }

    /// The TTL or hop limit of messages without their own; by default the system's.
    #[must_use]
    pub const fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = Some(hop_limit);
        self
    }

    /// The flow label of UDP over IPv6, 20 bits (`IPV6_FLOWINFO`, Linux 5.3); by default the kernel
    /// makes one of each flow.
    #[must_use]
    pub const fn flow_label(mut self, flow_label: Option<u32>) -> Self {
        self.flow_label = flow_label;
        self
    }

    /// Size of the send and of the receive buffer in bytes, above the system's limit if permitted.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = Some(bytes);
        self
    }

    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` and `EADDRNOTAVAIL` for the address, `EPERM` for raw IP without `CAP_NET_RAW`,
    /// and `ENOPROTOOPT` if the kernel lacks a requested option.
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
        // A raw socket has its protocol as its port already, and has one family.
        if !self.local.is_ipv4() && self.protocol == Protocol::Udp {
            sockopt::set_ipv6_v6only(&file, true)?;
        }
        if self.shared {
            sockopt::set_socket_reuseport(&file, true)?;
        }
        // All options are set before the socket is bound, so that it never receives with others.
        self.prepare(&file)?;
        bind(&file, &self.local)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&file)?)?;
        DatagramSocket::new(file, &self, bound)
    }

    /// Takes over a socket that another program bound. Its protocol must match; its address is
    /// kept.
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
            let why = "the descriptor is a socket of another type";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        rustix::io::ioctl_fionbio(&file, true)?;
        Self { local, ..self }.prepare(&file)?;
        DatagramSocket::new(file, &self, local)
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
        if self.flow_label.is_some() && !is_ipv4 && self.protocol == Protocol::Udp {
            // A label of zero is none, in whose place the kernel would put its own.
            set(file, libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0)?;
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
    flow_label: Option<u32>,
    /// The last value set in the kernel; `None` if never set.
    dont_fragment: Option<bool>,
    /// Addresses and control messages of the messages of one call.
    addresses: Vec<Address>,
    controls: Vec<ControlMessages>,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its bytes: for UDP and raw IPv4 the payload after the headers, for raw IPv6 the whole
    /// packet.
    pub parts: &'a [IoSlice<'a>],
    /// The destination; the port is 0 for raw IP.
    pub destination: SocketAddr,
    /// TOS or traffic class. For raw IPv6 the header has it instead.
    pub traffic_class: u8,
    /// TTL or hop limit, not 0. For raw IPv6 the header has it instead.
    pub hop_limit: u8,
    /// Length of each datagram but the last, into which the kernel segments the message
    /// (`UDP_SEGMENT`, Linux 4.18); `None` to send a single datagram.
    pub segment_bytes: Option<u16>,
}

/// Properties of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Number of bytes written to its buffers.
    pub length: usize,
    /// Whether the message was longer than its buffers.
    pub truncated: bool,
    /// The source address.
    pub source: SocketAddr,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit on arrival.
    pub hop_limit: u8,
    /// Length of each datagram but the last; `None` for a single datagram.
    pub segment_bytes: Option<u16>,
}

impl DatagramSocket {
    fn new(file: OwnedFd, builder: &DatagramSocketBuilder, local: SocketAddr) -> io::Result<Self> {
        let is_ipv4 = local.is_ipv4();
        let option = if is_ipv4 { libc::IP_TTL } else { libc::IPV6_UNICAST_HOPS };
        let [hop_limit] = read(&file, level(is_ipv4), option)?;
        let hop_limit = u8::try_from(hop_limit).unwrap_or_default();
        let mut socket = Self {
            file,
            protocol: builder.protocol,
            local,
            hop_limit,
            flow_label: builder.flow_label,
            dont_fragment: None,
            addresses: Vec::new(),
            controls: Vec::new(),
        };
        socket.set_dont_fragment(true)?;
        socket.heed_path(false)?;
        Ok(socket)
    }

    /// Limits the socket to one other end. The kernel heeds ICMP errors about packets of a raw IPv6
    /// socket, such as that one was too long for the path, only if the socket is connected; whoever
    /// else sent the packet.
    ///
    /// # Errors
    ///
    /// Those of `connect(2)`.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.file, &remote)?)
    }

    /// Whether IPv4 packets forbid fragmentation, the initial state. In either state the length that
    /// the link carries decides what is too long, and nothing that ICMP messages say: longer packets
    /// are refused if they forbid it (`IP_PMTUDISC_PROBE`), and leave in fragments if not
    /// (`IP_PMTUDISC_OMIT`). Over IPv6 there is no such bit, and [`Self::heed_path`] decides.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn set_dont_fragment(&mut self, on: bool) -> io::Result<()> {
        if self.dont_fragment == Some(on) {
            return Ok(());
        }
        if self.local.is_ipv4() {
            let value = if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_OMIT };
            set(&self.file, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
        }
        self.dont_fragment = Some(on);
        Ok(())
    }

    /// Whether datagrams over IPv6 that are longer than the path leave in fragments of what the kernel was told that
    /// the path carries, 1280 bytes at least (`IPV6_PMTUDISC_DONT`); anybody may have told it that. If not, the initial
    /// state, those are fragmented that are longer than the link carries (`IPV6_PMTUDISC_OMIT`: `PROBE` refuses them).
    /// Only the sender fragments IPv6, and the kernel fragments nothing for a raw socket.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn heed_path(&mut self, on: bool) -> io::Result<()> {
        let value = match self.protocol {
            _ if self.local.is_ipv4() => return Ok(()),
            Protocol::Udp if on => libc::IPV6_PMTUDISC_DONT,
            Protocol::Udp | Protocol::Raw(_) => libc::IPV6_PMTUDISC_OMIT,
        };
        set(&self.file, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)
    }

    /// Sends messages with one system call, and returns the number sent; at most the first
    /// [`BATCH_MAX`] are tried. Fewer are sent if one is refused or the buffer is full: call again
    /// with the next one to get its error.
    ///
    /// # Errors
    ///
    /// The error of the first message, if none was sent: would-block if the buffer is full,
    /// `EMSGSIZE` above the path MTU, `EIO` and `EINVAL` for segments that the kernel cannot make.
    pub fn send_batch(&mut self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let count = datagrams.len().min(BATCH_MAX);
        let datagrams = &datagrams[..count];
        self.addresses.clear();
        self.addresses.extend(datagrams.iter().map(|datagram| Address::from(datagram.destination)));
        let mut controls = core::mem::take(&mut self.controls);
        controls.clear();
        controls.extend(datagrams.iter().map(|datagram| self.control(datagram)));
        // SAFETY: all fields of a `mmsghdr` are numbers and pointers, for which zero is a valid
        // value.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { core::mem::zeroed() };
        let said = self.addresses.iter_mut().zip(&mut controls);
        for ((message, datagram), (address, control)) in
            messages.iter_mut().zip(datagrams).zip(said)
        {
            let header = &mut message.msg_hdr;
            header.msg_namelen = address.len() as libc::socklen_t;
            header.msg_name = core::ptr::from_mut(address).cast();
            // The kernel only reads through these; an `IoSlice` has the layout of an `iovec`.
            header.msg_iov = datagram.parts.as_ptr().cast_mut().cast();
            header.msg_iovlen = datagram.parts.len() as _;
            if control.len() > 0 {
                header.msg_controllen = control.len() as _;
                header.msg_control = control.as_mut_ptr();
            }
        }
        let sent = seen(|| {
            let (file, messages) = (self.file.as_raw_fd(), messages.as_mut_ptr());
            // SAFETY: the first `count` messages refer to parts, addresses and control buffers that
            // are borrowed or owned until the call returns.
            let result = unsafe { libc::sendmmsg(file, messages, count as libc::c_uint, 0) };
            usize::try_from(result).map_err(|_| io::Error::last_os_error())
        });
        self.controls = controls;
        sent
    }

    /// Receives messages with one system call, each into its buffers, and returns their number; 0
    /// if none waits. Their properties replace the contents of `received`. At most the first
    /// [`BATCH_MAX`] buffers are filled.
    ///
    /// # Errors
    ///
    /// Those of `recvmmsg(2)`, without would-block.
    pub fn receive_batch(
        &mut self,
        buffers: &mut [&mut [IoSliceMut<'_>]],
        received: &mut Vec<ReceivedMessage>,
    ) -> io::Result<usize> {
        received.clear();
        let count = buffers.len().min(BATCH_MAX);
        self.addresses.clear();
        self.addresses.resize(count, Address::EMPTY);
        self.controls.resize(count.max(self.controls.len()), ControlMessages::empty());
        // SAFETY: all fields of a `mmsghdr` are numbers and pointers, for which zero is a valid
        // value.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { core::mem::zeroed() };
        let said = self.addresses.iter_mut().zip(&mut self.controls);
        for ((message, parts), (address, control)) in messages.iter_mut().zip(buffers).zip(said) {
            let header = &mut message.msg_hdr;
            header.msg_name = core::ptr::from_mut(address).cast();
            header.msg_namelen = Address::CAPACITY as libc::socklen_t;
            // An `IoSliceMut` has the layout of an `iovec`.
            header.msg_iov = parts.as_mut_ptr().cast();
            header.msg_iovlen = parts.len() as _;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = ControlMessages::CAPACITY as _;
        }
        let result = seen(|| {
            let (file, messages) = (self.file.as_raw_fd(), messages.as_mut_ptr());
            let (count, forever) = (count as libc::c_uint, core::ptr::null_mut());
            // SAFETY: the first `count` messages refer to buffers, addresses and control buffers
            // that are borrowed exclusively or owned until the call returns.
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

    /// The address of the socket.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Number of datagrams for the socket that the kernel has dropped since it was opened: for want
    /// of buffer space, for a wrong checksum, or because a filter rejected them (`SO_MEMINFO`,
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

    /// Takes the pending error of the socket.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.file)?.err().map(io::Error::from))
    }

    /// Control messages for the properties that differ from the socket's defaults.
    fn control(&self, datagram: &Datagram<'_>) -> ControlMessages {
        let mut control = ControlMessages::empty();
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
        if let Some(label) = self.flow_label.filter(|label| !is_ipv4 && *label != 0) {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, label.to_be_bytes());
        }
        if let Some(bytes) = datagram.segment_bytes {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, bytes.to_ne_bytes());
        }
        control
    }

    fn describe(
        &self,
        message: &libc::mmsghdr,
        address: &Address,
        control: &ControlMessages,
    ) -> ReceivedMessage {
        let header = &message.msg_hdr;
        let source = address.parse(header.msg_namelen as usize);
        let mut received = ReceivedMessage {
            length: message.msg_len as usize,
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            // The kernel always reports the source of a datagram.
            source: source.unwrap_or(self.local),
            traffic_class: 0,
            hop_limit: 0,
            segment_bytes: None,
        };
        each_message(control.received(header.msg_controllen as _), |level, kind, data| {
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

/// Level of the options and control messages of an address family.
const fn level(is_ipv4: bool) -> c_int {
    if is_ipv4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
}

/// linux/sock_diag.h: the count of numbers in `SO_MEMINFO`, and the index of the drops.
const MEMORY_NUMBERS: usize = 9;
const MEMORY_DROPS: usize = 8;

#[cfg(test)]
mod tests;
