//! Options for opening a socket for a tunnel.

use core::ffi::c_int;
use core::net::SocketAddr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, socket_with, sockopt};

use super::super::{filter, set, set_coalescing};
use super::{DatagramSocket, level};
use crate::abi;
use crate::filter::attach;
use crate::interface::{Control, InterfaceName};

/// Protocol of a socket, which determines the headers that its messages contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP. Messages have no headers: the kernel adds and removes UDP and IP headers.
    Udp,
    /// Raw packets of this IP protocol. A sent message has no IPv4 header, as with UDP, but it has all IPv6 headers,
    /// which the kernel sends unchanged. A received message has its IPv4 header, but no IPv6 headers.
    Raw(u8),
}

/// Options for opening a socket. The socket is always nonblocking.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSocketBuilder {
    pub(super) protocol: Protocol,
    local: SocketAddr,
    shared: bool,
    sends_checksum: bool,
    takes_no_checksum: bool,
    wants_checksum: bool,
    send_only: bool,
    coalescing: bool,
    hop_limit: Option<u8>,
    pub(super) flow_label: Option<u32>,
    buffer_bytes: Option<usize>,
    dual_stack: bool,
    mark: Option<u32>,
    device: Option<InterfaceName>,
    reports_local: bool,
}

impl DatagramSocketBuilder {
    /// Creates options for a socket bound to this address. Use port 0 for raw IP. For UDP, port 0 lets the kernel
    /// choose a port.
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

    /// Sets whether other sockets may use the same address and port; the kernel then distributes the flows among them
    /// (`SO_REUSEPORT`).
    #[must_use]
    pub const fn shared(mut self, on: bool) -> Self {
        self.shared = on;
        self
    }

    /// Sets whether sent UDP datagrams have a checksum, which they have by default (`SO_NO_CHECK`, `UDP_NO_CHECK6_TX`).
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
    /// the checksums of all received datagrams.
    #[must_use]
    pub const fn wants_checksum(mut self, on: bool) -> Self {
        self.wants_checksum = on;
        self
    }

    /// Sets whether the socket only sends. Even then, a raw IP socket prevents the kernel from reporting the protocol
    /// as unreachable while the socket is open.
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

    /// Sets the TTL or hop limit of messages that do not specify one. By default, the system's value applies.
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

    /// Sets the size in bytes of the send buffer and of the receive buffer. If the process has the privilege, the size
    /// may exceed the system's limit.
    #[must_use]
    pub const fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = Some(bytes);
        self
    }

    /// Sets whether a UDP socket for an IPv6 address also supports IPv4, if the address is `::`. Addresses of IPv4
    /// peers are then IPv4 addresses, not IPv4-mapped ones.
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

    /// Sets whether received UDP messages report the local address that they were sent to (`IP_PKTINFO`,
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
    /// Returns `ENODEV` for an interface that does not exist, `EADDRINUSE` and `EADDRNOTAVAIL` for the address, `EPERM`
    /// for raw IP without `CAP_NET_RAW`, and `ENOPROTOOPT` if the kernel lacks a requested option.
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
        // A raw socket has a protocol in place of the port, and supports only one address family.
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

    /// Adopts a socket that another program bound. The protocol of the socket must match these options; its address is
    /// kept.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::InvalidInput`] for a socket of another type, or any error from
    /// [`DatagramSocketBuilder::open`].
    pub fn adopt(self, file: OwnedFd) -> io::Result<DatagramSocket> {
        let kind = match self.protocol {
            Protocol::Udp => SocketType::DGRAM,
            Protocol::Raw(_) => SocketType::RAW,
        };
        let local = SocketAddr::try_from(rustix::net::getsockname(&file)?);
        let (Ok(local), true) = (local, sockopt::socket_type(&file)? == kind) else {
            let why = "the descriptor refers to a socket of a different type";
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
                set_coalescing(file, true)?;
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

    /// Returns whether the socket supports both IPv4 and IPv6 and the caller wants IPv4 peers to have IPv4 addresses.
    pub(super) fn has_both(&self, file: &OwnedFd) -> io::Result<bool> {
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
