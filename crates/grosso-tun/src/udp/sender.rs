//! Sending half of a socket.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use grosso_sys::{
    datagram::{Datagram as Message, DatagramSocket},
    wait::{Interest, wait_for},
};

use super::{
    MESSAGES_MAX, UdpStats,
    datagrams::{Datagram, Refusal, alike},
};

/// Sending half of a [`Udp`](crate::Udp) socket.
///
/// ```
/// use grosso_tun::{Datagram, Udp, UdpOptions};
///
/// let (_, mut sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
/// let to = sender.local();
/// sender.send(&mut &[Datagram::new(b"one", to), Datagram::new(b"two", to)][..])?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UdpSender {
    socket: DatagramSocket,
    sending: Sending,
}

impl UdpSender {
    pub(super) fn new(socket: DatagramSocket, hop_limit: u8) -> Self {
        let sending = Sending { segments: true, hop_limit, stats: UdpStats::default() };
        Self { socket, sending }
    }

    /// Sends datagrams, and blocks while the socket buffer is full. Afterwards the list is empty. Datagrams that the
    /// kernel rejects are counted and dropped; see [`UdpStats::lost`].
    ///
    /// # Errors
    /// Returns `InvalidInput` for a destination of another address family, or for more segments than a message can
    /// have; no datagram is sent in this case. Also returns errors that affect the socket rather than one datagram; in
    /// that case, the list contains exactly the datagrams that were not sent.
    ///
    /// ```no_run
    /// # use grosso_tun::{Datagram, Udp, UdpOptions};
    /// # let (_, mut sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// let to = "192.0.2.1:51820".parse().unwrap();
    /// sender.send(&mut &[Datagram::new(b"hello", to)][..])?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, datagrams: &mut &[Datagram<'_>]) -> io::Result<()> {
        loop {
            self.try_send(datagrams)?;
            if datagrams.is_empty() {
                return Ok(());
            }
            wait_for(&[(self.as_fd(), Interest::WRITE)], None)?;
        }
    }

    /// Sends datagrams as [`UdpSender::send`] does, but never blocks. Returns the number of entries that were removed
    /// from the list; the remaining entries did not fit into the socket buffer.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Datagram, Udp, UdpOptions};
    /// # let (_, mut sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// # let list = [Datagram::new(b"hello", "192.0.2.1:51820".parse().unwrap())];
    /// let mut rest = &list[..];
    /// sender.try_send(&mut rest)?; // if it returns 0, wait until `sender` is writable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send(&mut self, datagrams: &mut &[Datagram<'_>]) -> io::Result<usize> {
        for datagram in *datagrams {
            datagram.check()?;
            if !self.socket.reaches(datagram.to()) {
                let (to, local) = (datagram.to(), self.local());
                let family = if local.is_ipv4() { "IPv4" } else { "IPv6" };
                let why =
                    format!("cannot send to {to}: the socket at {local} supports only {family}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        let before = datagrams.len();
        self.sending.send(&mut self.socket, datagrams, MaySegment::Yes)?;
        Ok(before - datagrams.len())
    }

    /// Returns the local address and port.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let (_, sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// assert_ne!(sender.local().port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Returns whether the kernel segments messages (`UDP_SEGMENT`), which is true until the kernel rejects the option.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let (_, sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// assert!(sender.segments());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn segments(&self) -> bool {
        self.sending.segments
    }

    /// Returns the counters of this half.
    ///
    /// ```
    /// # use grosso_tun::{Udp, UdpOptions};
    /// let (_, sender) = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new())?.split();
    /// assert_eq!(sender.stats().sent, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> &UdpStats {
        &self.sending.stats
    }

    pub(super) fn socket_mut(&mut self) -> &mut DatagramSocket {
        &mut self.socket
    }
}

impl AsFd for UdpSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSender {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Transport that sends several messages with one system call.
trait Transport {
    /// Sends messages; see [`DatagramSocket::send_batch`].
    fn send_batch(&mut self, messages: &[Message<'_>]) -> io::Result<usize>;
}

impl Transport for DatagramSocket {
    fn send_batch(&mut self, messages: &[Message<'_>]) -> io::Result<usize> {
        Self::send_batch(self, messages)
    }
}

/// Whether datagrams may share a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MaySegment {
    Yes,
    No,
}

/// State of the sending side, except the socket.
#[derive(Debug)]
struct Sending {
    segments: bool,
    hop_limit: u8,
    stats: UdpStats,
}

/// Rejected message: what to do about it, the number of list entries in it, and the error.
type Rejected = (Refusal, usize, io::Error);

impl Sending {
    /// Sends entries from the list until the socket buffer is full. Sent entries are removed from the list, even if the
    /// call then fails.
    fn send(
        &mut self,
        socket: &mut impl Transport,
        datagrams: &mut &[Datagram<'_>],
        may_segment: MaySegment,
    ) -> io::Result<()> {
        // Number of entries at the start of the list to send one by one, because their message was rejected.
        let mut singles: usize = 0;
        let mut was_earlier = false;
        while let Some(first) = datagrams.first() {
            let segments = self.segments && singles == 0 && may_segment == MaySegment::Yes;
            if !segments && first.count() > 1 {
                if !self.send_pieces(socket, first)? {
                    return Ok(());
                }
                *datagrams = &datagrams[1..];
                singles = singles.saturating_sub(1);
                continue;
            }
            let (sent, rejected) = self.send_some(socket, datagrams, segments);
            *datagrams = &datagrams[sent..];
            singles = singles.saturating_sub(sent);
            let Some((refusal, count, error)) = rejected else {
                was_earlier = false;
                continue;
            };
            match refusal {
                Refusal::Full => return Ok(()),
                Refusal::NoSegments | Refusal::ThisOne => {
                    self.segments &= refusal != Refusal::NoSegments;
                    self.stats.uncut += 1;
                    singles = count;
                }
                Refusal::Earlier if !was_earlier => was_earlier = true,
                Refusal::Lost | Refusal::Earlier => {
                    let lost = &datagrams[..count];
                    self.stats.lost += lost.iter().map(|lost| lost.count() as u64).sum::<u64>();
                    *datagrams = &datagrams[count..];
                    singles = singles.saturating_sub(count);
                    was_earlier = false;
                }
                Refusal::Broken => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the segments of an entry one by one. Returns false if the socket buffer had no room for the first. If the
    /// buffer fills up later, the remaining segments are lost, so that no segment is sent twice.
    fn send_pieces(
        &mut self,
        socket: &mut impl Transport,
        datagram: &Datagram<'_>,
    ) -> io::Result<bool> {
        let pieces: Vec<Datagram<'_>> = datagram.pieces().collect();
        let mut rest = &pieces[..];
        let result = self.send(socket, &mut rest, MaySegment::No);
        if rest.len() == pieces.len() {
            return result.map(|()| false);
        }
        self.stats.lost += rest.len() as u64;
        Ok(true)
    }

    /// Sends as many entries as one system call accepts. Returns the number of entries sent and, if nothing was sent,
    /// the rejected message.
    fn send_some(
        &mut self,
        socket: &mut impl Transport,
        datagrams: &[Datagram<'_>],
        segments: bool,
    ) -> (usize, Option<Rejected>) {
        let mut counts = Vec::with_capacity(MESSAGES_MAX);
        let mut rest = datagrams;
        while let Some(first) = rest.first()
            && counts.len() < MESSAGES_MAX
            && (segments || first.count() == 1)
        {
            let count = if segments { alike(rest) } else { 1 };
            counts.push(count);
            rest = &rest[count..];
        }
        // Only the datagrams of this system call are considered, so that the total time is linear in the length of the
        // list.
        let taken = &datagrams[..datagrams.len() - rest.len()];
        let parts: Vec<IoSlice<'_>> =
            taken.iter().map(|datagram| IoSlice::new(datagram.payload())).collect();
        let mut at = 0;
        let messages: Vec<Message<'_>> = counts
            .iter()
            .map(|&count| {
                let first = &datagrams[at];
                let equal = (count > 1).then_some(first.payload().len() as u16);
                let message = Message {
                    parts: &parts[at..at + count],
                    destination: first.to(),
                    traffic_class: first.class(),
                    hop_limit: self.hop_limit,
                    segment_bytes: first.segment_bytes().or(equal),
                    source: first.source(),
                };
                at += count;
                message
            })
            .collect();
        match socket.send_batch(&messages) {
            Ok(sent) => {
                let entries = counts[..sent].iter().sum();
                let datagrams = taken[..entries].iter().map(|datagram| datagram.count() as u64);
                self.stats.sent += datagrams.sum::<u64>();
                self.stats.sent_messages += sent as u64;
                (entries, None)
            }
            Err(error) => {
                let count = counts.first().copied().unwrap_or(1);
                let of_message = taken[..count].iter().map(Datagram::count).sum();
                (0, Some((Refusal::of(&error, of_message), count, error)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
