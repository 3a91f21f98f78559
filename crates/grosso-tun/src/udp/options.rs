//! Options for opening a socket.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use grosso_sys::{
    datagram::{DatagramSocket, DatagramSocketBuilder, Protocol},
    interface::InterfaceName,
};

/// Default TTL or hop limit of sent datagrams.
const HOP_LIMIT: u8 = 64;
/// Default size of each socket buffer in bytes, unless the system's limit is lower.
const SOCKET_BYTES: usize = 4 << 20;

/// Options for opening a [`Udp`](crate::Udp) socket.
///
/// ```
/// use grosso_tun::{Families, Udp, UdpOptions};
///
/// let options = UdpOptions::new().families(Families::Both).buffer_bytes(1 << 20);
/// let udp = Udp::bind("[::]:0".parse().unwrap(), &options);
/// # let _ = udp;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    sharing: Sharing,
    families: Families,
    buffer_bytes: usize,
    pub(super) hop_limit: u8,
    mark: Option<u32>,
    device: Option<String>,
    reports_local: bool,
}

/// Whether several sockets may use the same port.
///
/// ```
/// use grosso_tun::{Sharing, UdpOptions};
///
/// let options = UdpOptions::new().sharing(Sharing::Shared);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// One socket per address and port.
    #[default]
    Exclusive,
    /// Several sockets may bind the same port, and the kernel distributes flows among them (`SO_REUSEPORT`).
    Shared,
}

/// Address families of a socket that is bound to an IPv6 address.
///
/// ```
/// use grosso_tun::{Families, UdpOptions};
///
/// let options = UdpOptions::new().families(Families::Both);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// Only the family of the address to which the socket is bound.
    #[default]
    One,
    /// Both IPv4 and IPv6, if the socket is bound to the address `::`. Addresses of IPv4 peers are IPv4 addresses, not
    /// IPv4-mapped ones.
    Both,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl UdpOptions {
    /// Returns the default options.
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new();
    /// # assert_eq!(options, Default::default());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sharing: Sharing::Exclusive,
            families: Families::One,
            buffer_bytes: SOCKET_BYTES,
            hop_limit: HOP_LIMIT,
            mark: None,
            device: None,
            reports_local: false,
        }
    }

    /// Sets whether other sockets may bind the same port, for example one per thread.
    ///
    /// ```
    /// use grosso_tun::{Sharing, UdpOptions};
    ///
    /// let options = UdpOptions::new().sharing(Sharing::Shared);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// Sets the address families of a socket that is bound to an IPv6 address.
    ///
    /// ```
    /// use grosso_tun::{Families, UdpOptions};
    ///
    /// let options = UdpOptions::new().families(Families::Both);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn families(self, families: Families) -> Self {
        Self { families, ..self }
    }

    /// Sets the size in bytes of the send buffer and of the receive buffer. The system limits the size; the default is
    /// 4 MiB.
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new().buffer_bytes(1 << 20);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn buffer_bytes(self, buffer_bytes: usize) -> Self {
        Self { buffer_bytes, ..self }
    }

    /// Sets the TTL or hop limit of sent datagrams; the default is 64.
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new().hop_limit(255);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn hop_limit(self, hop_limit: u8) -> Self {
        Self { hop_limit, ..self }
    }

    /// Sets the mark of sent packets for routing and firewalls (`SO_MARK`), for example so that the packets of a VPN
    /// are not routed into the VPN's own device. Requires `CAP_NET_ADMIN`.
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new().mark(0x51820);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Restricts the socket to one network interface (`SO_BINDTOIFINDEX`, Linux 5.1).
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new().device("eth0");
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn device(self, name: &str) -> Self {
        Self { device: Some(name.to_owned()), ..self }
    }

    /// Enables reporting of the local address of each received datagram; see [`Received::to`](crate::Received::to).
    ///
    /// ```
    /// let options = grosso_tun::UdpOptions::new().reports_local();
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn reports_local(self) -> Self {
        Self { reports_local: true, ..self }
    }

    /// Binds a socket. Without `UDP_GRO` (Linux before 5.0), each received message contains one datagram.
    pub(super) fn open(&self, local: SocketAddr) -> io::Result<DatagramSocket> {
        let builder = self.builder(local)?;
        builder.coalescing(true).open().or_else(|_| builder.open())
    }

    /// Adopts a socket. Without `UDP_GRO` (Linux before 5.0), each received message contains one datagram.
    pub(super) fn adopt(&self, file: OwnedFd) -> io::Result<DatagramSocket> {
        let twin = file.try_clone()?;
        // The socket keeps its own address and family.
        let builder = self.builder(SocketAddr::from(([0; 4], 0)))?.dual_stack(true);
        builder.coalescing(true).adopt(file).or_else(|_| builder.adopt(twin))
    }

    fn builder(&self, local: SocketAddr) -> io::Result<DatagramSocketBuilder> {
        let device = self.device.as_deref().map(InterfaceName::new).transpose()?;
        Ok(DatagramSocketBuilder::new(Protocol::Udp, local)
            .shared(self.sharing == Sharing::Shared)
            .dual_stack(self.families == Families::Both)
            .hop_limit(self.hop_limit)
            .buffer_bytes(self.buffer_bytes)
            .mark(self.mark)
            .device(device)
            .reports_local(self.reports_local))
    }
}
