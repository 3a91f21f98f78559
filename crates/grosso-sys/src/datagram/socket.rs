//! Sockets for tunnels: UDP or raw IP.

mod builder;

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::sockopt;

use super::address::Address;
use super::control::{ControlMessages, each_message, number};
use super::{read, set};
use crate::abi;
use crate::calls::seen;

pub use builder::{DatagramSocketBuilder, Protocol};

/// Maximum number of messages per call. Further messages are not passed to the kernel.
pub const BATCH_MAX: usize = 64;

/// A nonblocking UDP or raw IP socket at an address.
#[derive(Debug)]
pub struct DatagramSocket {
    file: Arc<OwnedFd>,
    protocol: Protocol,
    local: SocketAddr,
    /// Whether an IPv6 socket also supports IPv4.
    has_both: bool,
    hop_limit: u8,
    flow_label: Option<u32>,
    /// Last value set in the kernel, or `None` if no value has been set.
    dont_fragment: Option<bool>,
    /// Addresses for the messages in one call.
    addresses: Vec<Address>,
    /// Control messages for the messages in one call.
    controls: Vec<ControlMessages>,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Content of the message: the payload for UDP and raw IPv4, the whole packet for raw IPv6.
    pub parts: &'a [IoSlice<'a>],
    /// Destination; the port is 0 for raw IP.
    pub destination: SocketAddr,
    /// TOS or traffic class. For raw IPv6 it is in the packet instead.
    pub traffic_class: u8,
    /// TTL or hop limit, not 0. For raw IPv6 it is in the packet instead.
    pub hop_limit: u8,
    /// Length in bytes of each datagram except the last if the kernel is to segment the message (`UDP_SEGMENT`, Linux
    /// 4.18). `None` sends the message as one datagram.
    pub segment_bytes: Option<u16>,
    /// Source address, for UDP only. `None` uses the address that the socket is bound to; if that is unspecified, the
    /// kernel selects an address for the route.
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
    /// Length in bytes of each datagram except the last, or `None` for a single datagram.
    pub segment_bytes: Option<u16>,
    /// Local address; see [`DatagramSocketBuilder::reports_local`].
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
    /// "packet too big", only if the socket is connected, regardless of who sent the packet.
    ///
    /// # Errors
    ///
    /// Returns any error from `connect(2)`.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.file, &self.mapped(remote))?)
    }

    /// Returns another handle to the same socket, for example so that one thread can send and another receive.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self { file: Arc::clone(&self.file), addresses: Vec::new(), controls: Vec::new(), ..*self }
    }

    /// Returns whether the socket can send to addresses of this family.
    #[must_use]
    pub fn reaches(&self, remote: SocketAddr) -> bool {
        remote.is_ipv4() == self.local.is_ipv4() || (remote.is_ipv4() && self.has_both)
    }

    /// Converts the address to the socket's address family.
    fn mapped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.has_both => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => address,
        }
    }

    /// Sets the DF bit of IPv4 packets, which is on by default. In both settings, only the link MTU determines which
    /// packets are too long, and ICMP messages have no effect. Packets that are too long are rejected if DF is set
    /// (`IP_PMTUDISC_PROBE`), and fragmented otherwise (`IP_PMTUDISC_OMIT`). IPv6 has no DF bit; see
    /// [`Self::heed_path`].
    ///
    /// # Errors
    ///
    /// Returns any error from `setsockopt(2)`.
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

    /// Sets whether the path MTU determines which IPv6 datagrams are fragmented. If on, datagrams that exceed the
    /// kernel's path MTU are fragmented to that MTU, but to no less than 1280 bytes (`IPV6_PMTUDISC_DONT`); note that
    /// forged ICMP messages can lower the path MTU. If off, the default, only datagrams that exceed the link MTU are
    /// fragmented (`IPV6_PMTUDISC_OMIT`), which `IPV6_PMTUDISC_PROBE` would reject. The kernel never fragments packets
    /// of a raw socket.
    ///
    /// # Errors
    ///
    /// Returns any error from `setsockopt(2)`.
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
    /// the path MTU, or `EIO` or `EINVAL` for segments that the kernel cannot create.
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

    /// Receives at most [`BATCH_MAX`] messages with one system call, each into its own buffers, and returns the number
    /// of messages, which is 0 if none is available. Replaces the content of `received` with the properties of the
    /// messages.
    ///
    /// # Errors
    ///
    /// Returns any error from `recvmmsg(2)`, except would-block.
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

    /// Returns the number of datagrams for the socket that the kernel has dropped since the socket was opened, because
    /// the buffer was full, the checksum was wrong, or a filter rejected them (`SO_MEMINFO`, Linux 4.12).
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn drops(&self) -> io::Result<u32> {
        let numbers: [c_int; MEMORY_NUMBERS] = read(&self.file, libc::SOL_SOCKET, abi::SO_MEMINFO)?;
        Ok(numbers[MEMORY_DROPS].cast_unsigned())
    }

    /// Returns and clears the socket's pending error.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.file)?.err().map(io::Error::from))
    }

    /// Returns the control messages that set properties of the datagram to values other than the socket's defaults.
    fn control(&self, datagram: &Datagram<'_>) -> ControlMessages {
        let mut control = ControlMessages::empty();
        // For a socket that supports both families, the destination determines the family.
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

/// Encodes a `struct in_pktinfo`: interface index, source address, and an address that the kernel sets only on receive.
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
