//! A socket for a tunnel: UDP, or raw IP.
//!
//! Longer than 600 lines: one socket type whose options all have a getter, a setter and their `unsafe` calls here.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, socket_with, sockopt};

use super::address::Address;
use super::control::{ControlMessages, each_message, number};
use super::{filter, read, set};
use crate::abi;
use crate::calls::seen;
use crate::filter::attach;
use crate::interface::{Control, InterfaceName};

/// Maximum number of messages per call; further messages are not tried.
pub const BATCH_MAX: usize = 64;

/// Protocol of a socket, which determines the headers in its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP. Messages have no headers: the kernel adds and removes UDP and IP headers.
    Udp,
    /// Raw packets of this IP protocol. Sent messages have no IPv4 header, as with UDP, but complete IPv6 headers,
    /// which are sent unchanged. Received messages have their IPv4 header, but no IPv6 headers.
    Raw(u8),
}

/// Options for opening a socket, which is always nonblocking.
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
    dual_stack: bool,
    mark: Option<u32>,
    device: Option<InterfaceName>,
    reports_local: bool,
}

impl DatagramSocketBuilder {
    /// Creates options for a socket bound to this address. Use port 0 for raw IP; for UDP it lets the kernel choose.
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
            dual_stack: false,
            mark: None,
            device: None,
            reports_local: false,
        }
    }

    /// Sets whether other sockets may share address and port; the kernel then distributes flows (`SO_REUSEPORT`).
    #[must_use]
    pub const fn shared(mut self, on: bool) -> Self {
        self.shared = on;
        self
    }

    /// Sets whether sent UDP datagrams have a checksum, which is the default (`SO_NO_CHECK`, `UDP_NO_CHECK6_TX`).
    #[must_use]
    pub const fn sends_checksum(mut self, on: bool) -> Self {
        self.sends_checksum = on;
        self
    }

    /// Sets whether to receive UDP datagrams without a checksum over IPv6 (`UDP_NO_CHECK6_RX`). Over IPv4 they are
    /// always received.
    #[must_use]
    pub const fn takes_no_checksum(mut self, on: bool) -> Self {
        self.takes_no_checksum = on;
        self
    }

    /// Sets whether to receive only UDP datagrams with a checksum (`SO_ATTACH_FILTER`), so that the kernel has verified
    /// all of them.
    #[must_use]
    pub const fn wants_checksum(mut self, on: bool) -> Self {
        self.wants_checksum = on;
        self
    }

    /// Sets whether the socket only sends. For raw IP, the open socket still prevents the kernel from reporting the
    /// protocol as unreachable.
    #[must_use]
    pub const fn send_only(mut self, on: bool) -> Self {
        self.send_only = on;
        self
    }

    /// Sets whether several datagrams of a flow are received as one message (`UDP_GRO`).
    #[must_use]
    pub const fn coalescing(mut self, on: bool) -> Self {
        self.coalescing = on;
        self
    }

    /// Sets the TTL or hop limit of messages without their own; the default is the system's.
    #[must_use]
    pub const fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = Some(hop_limit);
        self
    }

    /// Sets the flow label of UDP over IPv6, 20 bits (`IPV6_FLOWINFO`, Linux 5.3); by default the kernel derives it
    /// from the flow.
    #[must_use]
    pub const fn flow_label(mut self, flow_label: Option<u32>) -> Self {
        self.flow_label = flow_label;
        self
    }

    /// Sets the size of the send buffer and of the receive buffer in bytes, above the system's limit if permitted.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = Some(bytes);
        self
    }

    /// Sets whether a UDP socket for an IPv6 address also supports IPv4, if the address is `::`. IPv4 addresses are
    /// then not converted to IPv4-mapped IPv6 addresses.
    #[must_use]
    pub const fn dual_stack(mut self, on: bool) -> Self {
        self.dual_stack = on;
        self
    }

    /// Sets the mark of sent packets (`SO_MARK`), which requires `CAP_NET_ADMIN` or `CAP_NET_RAW`.
    #[must_use]
    pub const fn mark(mut self, mark: Option<u32>) -> Self {
        self.mark = mark;
        self
    }

    /// Restricts the socket to one interface (`SO_BINDTOIFINDEX`, Linux 5.1).
    #[must_use]
    pub const fn device(mut self, device: Option<InterfaceName>) -> Self {
        self.device = device;
        self
    }

    /// Sets whether received UDP messages have the local address to which they were sent (`IP_PKTINFO`,
    /// `IPV6_RECVPKTINFO`).
    #[must_use]
    pub const fn reports_local(mut self, on: bool) -> Self {
        self.reports_local = on;
        self
    }

    /// Opens the socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// `ENODEV` for an interface that does not exist, `EADDRINUSE` and `EADDRNOTAVAIL` for the address, `EPERM` for raw
    /// IP without `CAP_NET_RAW`, and `ENOPROTOOPT` if the kernel lacks a requested option.
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
        // The port of a raw socket is its protocol, and it has one address family.
        if !self.local.is_ipv4() && self.protocol == Protocol::Udp {
            sockopt::set_ipv6_v6only(&file, !self.dual_stack)?;
        }
        if self.shared {
            sockopt::set_socket_reuseport(&file, true)?;
        }
        // All options are set before the socket is bound, so that it never receives without them.
        self.prepare(&file)?;
        bind(&file, &self.local)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&file)?)?;
        DatagramSocket::new(file, &self, bound)
    }

    /// Adopts a socket that another program bound. Its protocol must match; its address is kept.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a socket of another type; see [`DatagramSocketBuilder::open`].
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
                set(file, libc::SOL_SOCKET, abi::SO_NO_CHECK, no_checksum)?;
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
        if let Some(mark) = self.mark {
            set(file, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())?;
        }
        if let Some(device) = &self.device {
            let index = Control::new()?.index(device)?.cast_signed();
            set(file, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, index)?;
        }
        let families = [is_ipv4, true];
        let families = if self.has_both(file)? { &families[..] } else { &families[..1] };
        for &is_ipv4 in families {
            let wanted = match is_ipv4 {
                true => [libc::IP_RECVTOS, libc::IP_RECVTTL],
                false => [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT],
            };
            for option in wanted {
                set(file, level(is_ipv4), option, 1)?;
            }
            if self.reports_local {
                let option = if is_ipv4 { libc::IP_PKTINFO } else { libc::IPV6_RECVPKTINFO };
                set(file, level(is_ipv4), option, 1)?;
            }
            if let Some(hop_limit) = self.hop_limit {
                let option = if is_ipv4 { libc::IP_TTL } else { libc::IPV6_UNICAST_HOPS };
                set(file, level(is_ipv4), option, hop_limit.into())?;
            }
        }
        if self.flow_label.is_some() && !is_ipv4 && self.protocol == Protocol::Udp {
            // A label of zero means no label, and the kernel would replace it with its own label.
            set(file, libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0)?;
        }
        self.set_buffers(file)
    }

    /// Returns whether the socket supports both IPv4 and IPv6, and the caller wants IPv4 addresses unmapped.
    fn has_both(&self, file: &OwnedFd) -> io::Result<bool> {
        let may_have = self.dual_stack && !self.local.is_ipv4() && self.protocol == Protocol::Udp;
        Ok(may_have && !sockopt::ipv6_v6only(file)?)
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

/// A nonblocking UDP or raw IP socket at an address.
#[derive(Debug)]
pub struct DatagramSocket {
    file: Arc<OwnedFd>,
    protocol: Protocol,
    local: SocketAddr,
    /// Whether an IPv6 socket supports IPv4 too.
    has_both: bool,
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
    /// Content of the message: for UDP and raw IPv4 the payload, for raw IPv6 the whole packet.
    pub parts: &'a [IoSlice<'a>],
    /// Destination; the port is 0 for raw IP.
    pub destination: SocketAddr,
    /// TOS or traffic class. For raw IPv6 it is in the packet instead.
    pub traffic_class: u8,
    /// TTL or hop limit, not 0. For raw IPv6 it is in the packet instead.
    pub hop_limit: u8,
    /// Length of each datagram but the last in bytes, into which the kernel segments the message (`UDP_SEGMENT`, Linux
    /// 4.18); `None` sends one datagram.
    pub segment_bytes: Option<u16>,
    /// Source address for UDP; `None` for the address of the socket, or the one that the route prefers.
    pub source: Option<IpAddr>,
}

/// Properties of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Number of bytes written to the buffers.
    pub length: usize,
    /// Whether the message was longer than its buffers.
    pub truncated: bool,
    /// Source address.
    pub source: SocketAddr,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit on arrival.
    pub hop_limit: u8,
    /// Length of each datagram but the last in bytes; `None` for a single datagram.
    pub segment_bytes: Option<u16>,
    /// Local address, see [`DatagramSocketBuilder::reports_local`].
    pub local: Option<IpAddr>,
}

impl DatagramSocket {
    fn new(file: OwnedFd, builder: &DatagramSocketBuilder, local: SocketAddr) -> io::Result<Self> {
        let is_ipv4 = local.is_ipv4();
        let option = if is_ipv4 { libc::IP_TTL } else { libc::IPV6_UNICAST_HOPS };
        let [hop_limit] = read(&file, level(is_ipv4), option)?;
        let hop_limit = u8::try_from(hop_limit).unwrap_or_default();
        let mut socket = Self {
            has_both: builder.has_both(&file)?,
            file: Arc::new(file),
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

    /// Connects the socket to one remote address. The kernel reports ICMP errors for a raw IPv6 socket, for example
    /// "packet too big", only if the socket is connected, regardless of the packet's sender.
    ///
    /// # Errors
    ///
    /// Errors from `connect(2)`.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.file, &self.mapped(remote))?)
    }

    /// Returns another value for the same socket, for example for the other direction on another thread.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self { file: Arc::clone(&self.file), addresses: Vec::new(), controls: Vec::new(), ..*self }
    }

    /// Returns whether the socket can send to addresses of this family.
    #[must_use]
    pub fn reaches(&self, remote: SocketAddr) -> bool {
        remote.is_ipv4() == self.local.is_ipv4() || (remote.is_ipv4() && self.has_both)
    }

    /// Returns the address in the family of the socket.
    fn mapped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.has_both => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => address,
        }
    }

    /// Sets DF of IPv4 packets, which is initially set. With or without DF, only the link MTU determines which packets
    /// are too long; ICMP does not. Packets that are too long are rejected if DF is set (`IP_PMTUDISC_PROBE`), and
    /// fragmented otherwise (`IP_PMTUDISC_OMIT`). IPv6 has no DF bit; see [`Self::heed_path`].
    ///
    /// # Errors
    ///
    /// Errors from `setsockopt(2)`.
    pub fn set_dont_fragment(&mut self, on: bool) -> io::Result<()> {
        if self.dont_fragment == Some(on) {
            return Ok(());
        }
        if self.local.is_ipv4() || self.has_both {
            let value = if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_OMIT };
            set(&self.file, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
        }
        self.dont_fragment = Some(on);
        Ok(())
    }

    /// Sets which IPv6 datagrams the sender fragments. If on, datagrams that exceed the kernel's path MTU are
    /// fragmented to that MTU, but to no less than 1280 bytes (`IPV6_PMTUDISC_DONT`); forged ICMP messages can lower
    /// the path MTU. If off, the default, only datagrams that exceed the link MTU are fragmented
    /// (`IPV6_PMTUDISC_OMIT`), which `IPV6_PMTUDISC_PROBE` would reject. The kernel never fragments packets of a raw
    /// socket.
    ///
    /// # Errors
    ///
    /// Errors from `setsockopt(2)`.
    pub fn heed_path(&mut self, on: bool) -> io::Result<()> {
        let value = match self.protocol {
            _ if self.local.is_ipv4() => return Ok(()),
            Protocol::Udp if on => libc::IPV6_PMTUDISC_DONT,
            Protocol::Udp | Protocol::Raw(_) => libc::IPV6_PMTUDISC_OMIT,
        };
        set(&self.file, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)
    }

    /// Sends at most [`BATCH_MAX`] messages with one system call and returns the number sent. Fewer are sent if one is
    /// rejected or the buffer is full: call again with the next message to get its error.
    ///
    /// # Errors
    ///
    /// Returns the error of the first message if none was sent: `WouldBlock` if the buffer is full, `EMSGSIZE` above
    /// the path MTU, `EIO` and `EINVAL` for segments that the kernel cannot create.
    pub fn send_batch(&mut self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let count = datagrams.len().min(BATCH_MAX);
        let datagrams = &datagrams[..count];
        self.addresses.clear();
        let mut addresses = core::mem::take(&mut self.addresses);
        addresses.extend(
            datagrams.iter().map(|datagram| Address::from(self.mapped(datagram.destination))),
        );
        self.addresses = addresses;
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
            // The kernel only reads through these pointers; an `IoSlice` has the layout of an `iovec`.
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

    /// Receives at most [`BATCH_MAX`] messages with one system call, each into its buffers, and returns their number; 0
    /// if none is available. Replaces the content of `received` with their properties.
    ///
    /// # Errors
    ///
    /// Errors from `recvmmsg(2)`, except would-block.
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

    /// Returns the address of the socket.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the number of datagrams for the socket that the kernel has dropped since it was opened, because the
    /// buffer was full, the checksum was wrong, or a filter rejected them (`SO_MEMINFO`, Linux 4.12).
    ///
    /// # Errors
    ///
    /// Errors from `getsockopt(2)`.
    pub fn drops(&self) -> io::Result<u32> {
        let numbers: [c_int; MEMORY_NUMBERS] = read(&self.file, libc::SOL_SOCKET, abi::SO_MEMINFO)?;
        Ok(numbers[MEMORY_DROPS].cast_unsigned())
    }

    /// Returns the pending error of the socket and clears it.
    ///
    /// # Errors
    ///
    /// Errors from `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.file)?.err().map(io::Error::from))
    }

    /// Returns the control messages for properties that differ from the socket's defaults.
    fn control(&self, datagram: &Datagram<'_>) -> ControlMessages {
        let mut control = ControlMessages::empty();
        // For a socket with both families, the destination determines the family.
        let is_ipv4 = datagram.destination.ip().to_canonical().is_ipv4();
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
        match datagram.source.map(|source| source.to_canonical()) {
            Some(IpAddr::V4(source)) if is_ipv4 => {
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, packet_info_v4(source));
            }
            Some(IpAddr::V6(source)) if !is_ipv4 => {
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, packet_info_v6(source));
            }
            _ => {}
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
        let source = address.parse(header.msg_namelen as usize).map(|source| match self.has_both {
            true => SocketAddr::new(source.ip().to_canonical(), source.port()),
            false => source,
        });
        let mut received = ReceivedMessage {
            length: message.msg_len as usize,
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            // The kernel always reports the source of a datagram.
            source: source.unwrap_or(self.local),
            traffic_class: 0,
            hop_limit: 0,
            segment_bytes: None,
            local: None,
        };
        each_message(control.received(header.msg_controllen as _), |level, kind, data| {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let local = data.get(INDEX_BYTES..).and_then(<[u8]>::first_chunk::<4>);
                    received.local = local.map(|bytes| Ipv4Addr::from(*bytes).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let local = data.first_chunk::<16>();
                    received.local = local.map(|bytes| Ipv6Addr::from(*bytes).to_canonical());
                }
                _ => {}
            }
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

/// Encodes a `struct in_pktinfo`: interface index, source address, and an address that is only received.
fn packet_info_v4(source: Ipv4Addr) -> [u8; 12] {
    let mut info = [0; 12];
    info[INDEX_BYTES..INDEX_BYTES + 4].copy_from_slice(&source.octets());
    info
}

/// Encodes a `struct in6_pktinfo`: source address and interface index.
fn packet_info_v6(source: Ipv6Addr) -> [u8; 20] {
    let mut info = [0; 20];
    info[..16].copy_from_slice(&source.octets());
    info
}

/// Length of the interface index at the start of `struct in_pktinfo`.
const INDEX_BYTES: usize = 4;

/// Returns the level of the options and control messages of an address family.
const fn level(is_ipv4: bool) -> c_int {
    if is_ipv4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
}

/// linux/sock_diag.h: the number of values in `SO_MEMINFO`, and the index of the drop count.
const MEMORY_NUMBERS: usize = 9;
const MEMORY_DROPS: usize = 8;

#[cfg(test)]
mod tests;
