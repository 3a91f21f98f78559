//! Receiving half of a socket.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use grosso_sys::{
    datagram::{DatagramSocket, ReceivedMessage},
    wait::{Interest, wait_for},
};

use super::{MESSAGES_MAX, UdpStats};

/// Length of a receive buffer in bytes, sufficient for the longest message that the kernel creates.
const MESSAGE_BYTES: usize = 64 << 10;

/// Received datagram.
///
/// ```
/// # use grosso_tun::Received;
/// fn show(datagram: &Received<'_>) {
///     println!("{} bytes from {}", datagram.payload.len(), datagram.from);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received<'a> {
    /// UDP payload, borrowed from the socket's receive buffer.
    pub payload: &'a [u8],
    /// Source address and port.
    pub from: SocketAddr,
    /// Local address to which the datagram was sent, if
    /// [`UdpOptions::reports_local`](crate::UdpOptions::reports_local) is set.
    pub to: Option<IpAddr>,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
}

/// Receiving half of a [`Udp`](crate::Udp) socket.
///
/// ```no_run
/// use grosso_tun::{Udp, UdpOptions};
///
/// let udp = Udp::bind("0.0.0.0:51820".parse().unwrap(), &UdpOptions::new())?;
/// let (mut receiver, _sender) = udp.split();
/// receiver.recv(|datagram| println!("{} bytes", datagram.payload.len()))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UdpReceiver {
    socket: DatagramSocket,
    buffers: Vec<Vec<u8>>,
    received: Vec<ReceivedMessage>,
    stats: UdpStats,
}

impl UdpReceiver {
    pub(super) fn new(socket: DatagramSocket) -> Self {
        Self {
            socket,
            buffers: vec![vec![0; MESSAGE_BYTES]; MESSAGES_MAX],
            received: Vec::new(),
            stats: UdpStats::default(),
        }
    }

    /// Waits for datagrams and calls `each` with every datagram, in order of arrival. Returns the number of datagrams.
    ///
    /// # Errors
    /// Returns any error from `recvmmsg(2)`.
    ///
    /// ```no_run
    /// # use grosso_tun::{Udp, UdpOptions};
    /// # let (mut receiver, _) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// receiver.recv(|datagram| println!("{} bytes from {}", datagram.payload.len(), datagram.from))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        loop {
            match self.try_recv(&mut each)? {
                0 => wait_for(&[(self.as_fd(), Interest::READ)], None).map(drop)?,
                count => return Ok(count),
            }
        }
    }

    /// Receives datagrams as [`UdpReceiver::recv`] does, but never blocks. Returns 0 if no datagram is available.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpReceiver::recv`].
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let (mut receiver, _) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// assert_eq!(receiver.try_recv(|_| ())?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        let Self { socket, buffers, received, stats } = self;
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let mut lists: Vec<&mut [IoSliceMut<'_>]> =
            slices.iter_mut().map(|slice| &mut slice[..]).collect();
        loop {
            match socket.receive_batch(&mut lists, received) {
                // This is an ICMP error caused by an earlier datagram on a connected socket. Reading the error has
                // cleared it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                result => {
                    result?;
                    break;
                }
            }
        }
        let mut count = 0;
        for (message, buffer) in received.iter().zip(buffers.iter()) {
            let payload = buffer.get(..message.length).unwrap_or_default();
            let (from, to, class) = (message.source, message.local, message.traffic_class);
            stats.received_messages += 1;
            match message.segment_bytes {
                Some(size) => payload.chunks(size.into()).for_each(|payload| {
                    count += 1;
                    each(Received { payload, from, to, class });
                }),
                None => {
                    count += 1;
                    each(Received { payload, from, to, class });
                }
            }
        }
        stats.received += count as u64;
        Ok(count)
    }

    /// Returns the counters of this half.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let (receiver, _) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// assert_eq!(receiver.stats().received, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> &UdpStats {
        &self.stats
    }
}

impl AsFd for UdpReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpReceiver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
