//! The UDP socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use grosso_sys::{
    datagram::{
        Datagram as Message, DatagramSocket, DatagramSocketBuilder, Protocol, ReceivedMessage,
    },
    wait::{Interest, wait_for},
};

use crate::datagrams::{Datagram, Refusal, alike};

/// Maximum number of messages per system call.
const MESSAGES_MAX: usize = 16;
/// Length of a receive buffer in bytes: the longest message that the kernel creates.
const MESSAGE_BYTES: usize = 64 << 10;
/// Size of each socket buffer in bytes, as far as permitted.
const SOCKET_BYTES: usize = 4 << 20;
/// TTL or hop limit of sent datagrams.
const HOP_LIMIT: u8 = 64;

/// A UDP socket that sends and receives datagrams in batches, many per message and per system call.
///
/// ```
/// use grosso_tun::{Datagram, Udp};
///
/// let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), false)?;
/// let to = udp.local();
/// udp.send(&[Datagram { payload: b"one", to, class: 0 }, Datagram { payload: b"two", to, class: 0 }])?;
/// udp.recv(|datagram| assert_eq!(datagram.payload.len(), 3))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Udp {
    socket: DatagramSocket,
    segments: bool,
    buffers: Vec<Vec<u8>>,
    received: Vec<ReceivedMessage>,
    stats: UdpStats,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received<'a> {
    /// UDP payload, borrowed from the socket's receive buffer.
    pub payload: &'a [u8],
    /// Source address and port.
    pub from: SocketAddr,
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class: u8,
}

/// Counters of a [`Udp`] socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Messages that carried the sent datagrams; fewer than `sent` with `UDP_SEGMENT`.
    pub sent_messages: u64,
    /// Datagrams received.
    pub received: u64,
    /// Messages that carried the received datagrams; fewer than `received` with `UDP_GRO`.
    pub received_messages: u64,
    /// Datagrams that the kernel did not send: longer than the link allows, to an invalid address (for example port 0),
    /// or to an unreachable host.
    pub lost: u64,
    /// Messages that the kernel could not segment; their datagrams were sent one by one.
    pub uncut: u64,
}

impl UdpStats {
    /// Returns every counter with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
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
    /// Binds a socket in the calling thread's network namespace; port 0 lets the kernel choose a port. With `shared`,
    /// several sockets may bind the same port, and the kernel distributes flows among them. A socket bound to an IPv6
    /// address, even the unspecified one, receives IPv6 only: use two sockets for both families. Without `UDP_GRO`
    /// (Linux before 5.0) the datagrams arrive one per message.
    ///
    /// # Errors
    /// `EADDRINUSE` if the address is in use, `EADDRNOTAVAIL` if this host does not have it.
    ///
    /// ```
    /// use grosso_tun::Udp;
    ///
    /// let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), false)?;
    /// assert_ne!(udp.local().port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(local: SocketAddr, shared: bool) -> io::Result<Self> {
        let builder = DatagramSocketBuilder::new(Protocol::Udp, local)
            .shared(shared)
            .hop_limit(HOP_LIMIT)
            .buffer_bytes(SOCKET_BYTES);
        let socket = builder.coalescing(true).open().or_else(|_| builder.open())?;
        Ok(Self {
            socket,
            segments: true,
            buffers: vec![vec![0; MESSAGE_BYTES]; MESSAGES_MAX],
            received: Vec::new(),
            stats: UdpStats::default(),
        })
    }

    /// Sends datagrams; blocks while the socket buffer is full. Counts and drops datagrams that the kernel rejects, see
    /// [`UdpStats::lost`].
    ///
    /// # Errors
    /// `InvalidInput` for a destination of the other address family; no datagram of the list is sent then. Errors that
    /// affect the socket rather than one datagram.
    ///
    /// ```no_run
    /// # use grosso_tun::{Datagram, Udp};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), false)?;
    /// let to = "192.0.2.1:51820".parse().unwrap();
    /// udp.send(&[Datagram { payload: b"hello", to, class: 0 }])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, mut datagrams: &[Datagram<'_>]) -> io::Result<()> {
        loop {
            datagrams = &datagrams[self.try_send(datagrams)?..];
            if datagrams.is_empty() {
                return Ok(());
            }
            wait_for(&[(self.as_fd(), Interest::WRITE)], None)?;
        }
    }

    /// Sends like [`Udp::send`] without blocking. Returns the number of datagrams sent or dropped, which is less than
    /// all if the socket buffer is full.
    ///
    /// # Errors
    /// See [`Udp::send`].
    pub fn try_send(&mut self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let is_ipv4 = self.local().is_ipv4();
        if let Some(other) = datagrams.iter().find(|datagram| datagram.to.is_ipv4() != is_ipv4) {
            let family = if is_ipv4 { "IPv4" } else { "IPv6" };
            let why = format!("{}: the socket at {} sends {family} only", other.to, self.local());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut done = 0;
        // Datagrams from `done` on that go one by one, because their message was refused.
        let mut singles = 0;
        while done < datagrams.len() {
            let wants_segments = self.segments && singles == 0;
            let (messages, refusal) = self.send_some(&datagrams[done..], wants_segments);
            for count in messages {
                done += count;
                singles -= singles.min(count);
            }
            match refusal {
                None => {}
                Some((Refusal::Full, ..)) => break,
                Some((Refusal::NoSegments, count, _)) => {
                    self.segments = false;
                    self.stats.uncut += 1;
                    singles = count;
                }
                Some((Refusal::ThisOne, count, _)) => {
                    self.stats.uncut += 1;
                    singles = count;
                }
                Some((Refusal::Lost, count, _)) => {
                    self.stats.lost += count as u64;
                    done += count;
                    singles -= singles.min(count);
                }
                Some((Refusal::Broken, _, error)) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Sends as much as one system call takes. Returns the number of datagrams in each sent message, and for a rejected
    /// message the action, its number of datagrams, and the error.
    fn send_some(
        &mut self,
        datagrams: &[Datagram<'_>],
        wants_segments: bool,
    ) -> (Vec<usize>, Option<(Refusal, usize, io::Error)>) {
        let mut counts = Vec::with_capacity(MESSAGES_MAX);
        let mut rest = datagrams;
        while !rest.is_empty() && counts.len() < MESSAGES_MAX {
            let count = if wants_segments { alike(rest) } else { 1 };
            counts.push(count);
            rest = &rest[count..];
        }
        // Only the datagrams of this call, so that a long list costs linear time.
        let taken = &datagrams[..datagrams.len() - rest.len()];
        let parts: Vec<IoSlice<'_>> =
            taken.iter().map(|datagram| IoSlice::new(datagram.payload)).collect();
        let mut at = 0;
        let messages: Vec<Message<'_>> = counts
            .iter()
            .map(|&count| {
                let first = &datagrams[at];
                let segment_bytes = (count > 1).then_some(first.payload.len() as u16);
                let message = Message {
                    parts: &parts[at..at + count],
                    destination: first.to,
                    traffic_class: first.class,
                    hop_limit: HOP_LIMIT,
                    segment_bytes,
                };
                at += count;
                message
            })
            .collect();
        match self.socket.send_batch(&messages) {
            Ok(sent) => {
                counts.truncate(sent);
                self.stats.sent += counts.iter().sum::<usize>() as u64;
                self.stats.sent_messages += sent as u64;
                (counts, None)
            }
            Err(error) => {
                let count = counts.first().copied().unwrap_or(1);
                (Vec::new(), Some((Refusal::of(&error, count), count, error)))
            }
        }
    }

    /// Waits for datagrams and passes each to `each`, in order of arrival. Returns their number.
    ///
    /// # Errors
    /// Errors from `recvmmsg(2)`.
    ///
    /// ```no_run
    /// # use grosso_tun::{Datagram, Udp};
    /// # let mut udp = Udp::bind("127.0.0.1:0".parse().unwrap(), false)?;
    /// udp.recv(|datagram| println!("{} bytes from {}", datagram.payload.len(), datagram.from))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        loop {
            match self.try_recv(&mut each)? {
                0 => wait_for(&[(self.as_fd(), Interest::READ)], None).map(drop)?,
                datagrams => return Ok(datagrams),
            }
        }
    }

    /// Receives like [`Udp::recv`] without blocking; returns 0 if no datagram has arrived.
    ///
    /// # Errors
    /// See [`Udp::recv`].
    pub fn try_recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        let Self { socket, buffers, received, stats, .. } = self;
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let mut lists: Vec<&mut [IoSliceMut<'_>]> =
            slices.iter_mut().map(|slice| &mut slice[..]).collect();
        match socket.receive_batch(&mut lists, received) {
            // The ICMP error of an earlier datagram, which says nothing of those that arrive.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(0),
            result => result?,
        };
        let mut count = 0;
        for (message, buffer) in received.iter().zip(buffers.iter()) {
            let payload = buffer.get(..message.length).unwrap_or_default();
            let (from, class) = (message.source, message.traffic_class);
            stats.received_messages += 1;
            match message.segment_bytes {
                Some(size) => payload.chunks(size.into()).for_each(|payload| {
                    count += 1;
                    each(Received { payload, from, class });
                }),
                None => {
                    count += 1;
                    each(Received { payload, from, class });
                }
            }
        }
        stats.received += count as u64;
        Ok(count)
    }

    /// Returns the local address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Returns whether the kernel segments messages (`UDP_SEGMENT`). True until the kernel rejects the option.
    #[must_use]
    pub fn segments(&self) -> bool {
        self.segments
    }

    /// Returns the counters of this socket.
    #[must_use]
    pub fn stats(&self) -> &UdpStats {
        &self.stats
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Udp {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
