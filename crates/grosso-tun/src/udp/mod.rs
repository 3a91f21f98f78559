//! UDP sockets.

mod datagrams;
mod options;
mod receiver;
mod sender;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use grosso_sys::datagram::DatagramSocket;

pub use datagrams::{DATAGRAMS_MAX, Datagram};
pub use options::{Families, Sharing, UdpOptions};
pub use receiver::{Received, UdpReceiver};
pub use sender::UdpSender;

/// Maximum number of messages per system call.
const MESSAGES_MAX: usize = 16;

/// UDP socket that sends and receives datagrams in batches: many datagrams per message, and many messages per system
/// call.
///
/// ```
/// use grosso_tun::{Datagram, Udp, UdpOptions};
///
/// let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
/// let to = udp.local();
/// udp.send(&mut &[Datagram::new(b"one", to), Datagram::new(b"two", to)][..])?;
/// udp.recv(|datagram| assert_eq!(datagram.payload.len(), 3))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Udp {
    /// Receiving half.
    pub receiver: UdpReceiver,
    /// Sending half.
    pub sender: UdpSender,
}

/// Counters of a [`Udp`] socket.
///
/// ```
/// let stats = grosso_tun::UdpStats::default();
/// stats.named().for_each(|(name, count)| println!("{name} {count}"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Number of datagrams sent.
    pub sent: u64,
    /// Number of messages that carried the sent datagrams. With `UDP_SEGMENT` there are fewer messages than datagrams.
    pub sent_messages: u64,
    /// Number of datagrams received.
    pub received: u64,
    /// Number of messages that carried the received datagrams. With `UDP_GRO` there are fewer messages than datagrams.
    pub received_messages: u64,
    /// Number of datagrams that the kernel did not send because they were too long for the link, the address was
    /// invalid (for example port 0), or the host was unreachable. If the kernel cannot segment a [`Datagram`], its
    /// segments are sent one by one. If the socket buffer then fills up, the remaining segments are lost and counted
    /// here too.
    pub lost: u64,
    /// Number of messages that the kernel could not segment. Their datagrams were sent one by one.
    pub uncut: u64,
}

impl UdpStats {
    /// Returns every counter with its name.
    ///
    /// ```
    /// let names = grosso_tun::UdpStats::default().named().map(|(name, _)| name);
    /// assert!(names.into_iter().any(|name| name == "lost"));
    /// ```
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("sent", self.sent),
            ("sent-messages", self.sent_messages),
            ("received", self.received),
            ("received-messages", self.received_messages),
            ("lost", self.lost),
            ("uncut", self.uncut),
        ]
        .into_iter()
    }
}

impl Udp {
    /// Binds a socket in the calling thread's network namespace; port 0 lets the kernel choose a port. A socket bound
    /// to an IPv6 address, even the unspecified one, receives IPv6 only unless the options set [`Families::Both`].
    ///
    /// # Errors
    /// Returns `EADDRINUSE` if the address is in use, `EADDRNOTAVAIL` if this host does not have the address,
    /// `InvalidInput` for an invalid interface name in the options, `ENODEV` if the interface does not exist, and
    /// `EPERM` for a mark without `CAP_NET_ADMIN`.
    ///
    /// ```
    /// use grosso_tun::{Udp, UdpOptions};
    ///
    /// let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// assert_ne!(udp.local().port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Ok(Self::new(options.open(local)?, options))
    }

    /// Adopts a bound socket, for example a socket from a service manager, or one on which you have set other socket
    /// options. The socket keeps its address, families and sharing; the other options apply.
    ///
    /// # Errors
    /// Returns `InvalidInput` for a socket of another type; otherwise the same errors as [`Udp::bind`].
    ///
    /// ```
    /// use grosso_tun::{Udp, UdpOptions};
    ///
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let udp = Udp::adopt(socket.into(), &UdpOptions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn adopt(socket: OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        Ok(Self::new(options.adopt(socket)?, options))
    }

    fn new(socket: DatagramSocket, options: &UdpOptions) -> Self {
        let receiver = UdpReceiver::new(socket.twin());
        Self { receiver, sender: UdpSender::new(socket, options.hop_limit) }
    }

    /// Connects the socket to one peer. It then receives only from this peer, and the kernel reports ICMP errors. Each
    /// datagram must still have a destination.
    ///
    /// # Errors
    /// Returns `InvalidInput` for a peer of another address family, or any error from `connect(2)`.
    ///
    /// ```
    /// use grosso_tun::{Udp, UdpOptions};
    ///
    /// let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// udp.connect("127.0.0.1:51820".parse().unwrap())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        let socket = self.sender.socket_mut();
        if !socket.reaches(peer) {
            let why = format!(
                "cannot send to {peer}: the socket at {} has a different address family",
                socket.local()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        socket.connect(peer)
    }

    /// Returns the two halves, for two threads or tasks. The socket stays open until both halves are dropped.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// let (receiver, sender) = udp.split();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn split(self) -> (UdpReceiver, UdpSender) {
        (self.receiver, self.sender)
    }

    /// Sends datagrams; see [`UdpSender::send`].
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSender::send`].
    ///
    /// ```
    /// # use grosso_tun::{Datagram, Udp, UdpOptions};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// let to = udp.local();
    /// udp.send(&mut &[Datagram::new(b"hello", to)][..])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, datagrams: &mut &[Datagram<'_>]) -> io::Result<()> {
        self.sender.send(datagrams)
    }

    /// Sends datagrams without blocking; see [`UdpSender::try_send`].
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSender::send`].
    ///
    /// ```
    /// # use grosso_tun::{Datagram, Udp, UdpOptions};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// let to = udp.local();
    /// udp.try_send(&mut &[Datagram::new(b"hello", to)][..])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send(&mut self, datagrams: &mut &[Datagram<'_>]) -> io::Result<usize> {
        self.sender.try_send(datagrams)
    }

    /// Waits for datagrams; see [`UdpReceiver::recv`].
    ///
    /// # Errors
    /// Returns the same errors as [`UdpReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Udp, UdpOptions};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// udp.recv(|datagram| println!("{} bytes from {}", datagram.payload.len(), datagram.from))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        self.receiver.recv(each)
    }

    /// Receives datagrams without blocking; see [`UdpReceiver::try_recv`].
    ///
    /// # Errors
    /// Returns the same errors as [`UdpReceiver::recv`].
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// assert_eq!(udp.try_recv(|_| ())?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv(&mut self, each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        self.receiver.try_recv(each)
    }

    /// Returns the local address and port.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// println!("port {}", udp.local().port());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.sender.local()
    }

    /// Returns the counters of both halves.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?;
    /// assert_eq!(udp.stats().lost, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> UdpStats {
        let UdpStats { received, received_messages, .. } = *self.receiver.stats();
        UdpStats { received, received_messages, ..*self.sender.stats() }
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }
}

impl AsRawFd for Udp {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
