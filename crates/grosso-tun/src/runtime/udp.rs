//! UDP socket for use with tokio.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    task::{Context, Poll},
};

use super::Readiness;
use crate::udp::{Datagram, Received, Udp, UdpReceiver, UdpSender};

/// A [`Udp`] socket that waits in a tokio runtime instead of blocking.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use grosso_tun::{AsyncUdp, Udp, UdpOptions};
///
/// let udp = Udp::bind("0.0.0.0:51820".parse().unwrap(), &UdpOptions::new())?;
/// let mut udp = AsyncUdp::new(udp)?;
/// udp.receiver.recv(|datagram| println!("{} bytes", datagram.payload.len())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncUdp {
    /// The receiving half.
    pub receiver: AsyncUdpReceiver,
    /// The sending half.
    pub sender: AsyncUdpSender,
}

impl AsyncUdp {
    /// Registers the socket with the current tokio runtime.
    ///
    /// # Errors
    /// Returns the errors of `epoll_ctl(2)` and `fcntl(2)`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with IO enabled.
    ///
    /// ```no_run
    /// # async fn example(udp: grosso_tun::Udp) -> std::io::Result<()> {
    /// let udp = grosso_tun::AsyncUdp::new(udp)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(socket: Udp) -> io::Result<Self> {
        let [reads, writes] = Readiness::register(&socket)?;
        let (receiver, sender) = socket.split();
        Ok(Self {
            receiver: AsyncUdpReceiver { receiver, readiness: reads },
            sender: AsyncUdpSender { sender, readiness: writes },
        })
    }

    /// Returns the two halves, for two tasks.
    ///
    /// ```no_run
    /// # async fn example(udp: grosso_tun::AsyncUdp) {
    /// let (mut receiver, sender) = udp.split();
    /// tokio::spawn(async move { receiver.recv(|datagram| println!("{datagram:?}")).await });
    /// # }
    /// ```
    #[must_use]
    pub fn split(self) -> (AsyncUdpReceiver, AsyncUdpSender) {
        (self.receiver, self.sender)
    }

    /// Returns the local address and port.
    ///
    /// ```no_run
    /// # fn example(udp: grosso_tun::AsyncUdp) {
    /// println!("port {}", udp.local().port());
    /// # }
    /// ```
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.sender.sender.local()
    }
}

/// The receiving half of an [`AsyncUdp`].
///
/// ```no_run
/// # async fn example(mut receiver: grosso_tun::AsyncUdpReceiver) -> std::io::Result<()> {
/// receiver.recv(|datagram| println!("{} bytes", datagram.payload.len())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncUdpReceiver {
    receiver: UdpReceiver,
    readiness: Readiness,
}

impl AsyncUdpReceiver {
    /// Receives datagrams as [`UdpReceiver::recv`] does, but waits in the runtime.
    ///
    /// # Cancellation
    /// If the future is dropped, the call has received no datagram.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpReceiver::recv`].
    ///
    /// ```no_run
    /// # async fn example(mut receiver: grosso_tun::AsyncUdpReceiver) -> std::io::Result<()> {
    /// receiver.recv(|datagram| println!("{} bytes", datagram.payload.len())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, &mut each)).await
    }

    /// Receives datagrams as [`AsyncUdpReceiver::recv`] does; use this function to implement poll-based traits. Only
    /// the task of the last call is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpReceiver::recv`].
    ///
    /// ```no_run
    /// # async fn example(mut receiver: grosso_tun::AsyncUdpReceiver) -> std::io::Result<usize> {
    /// std::future::poll_fn(|cx| receiver.poll_recv(cx, |datagram| println!("{datagram:?}"))).await
    /// # }
    /// ```
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<usize>> {
        let Self { receiver, readiness } = self;
        // More datagrams may be available even if few were received, because a pending error ends a call early.
        readiness.poll(cx, || Ok(some(receiver.try_recv(&mut each)?).into()))
    }

    /// Returns the inner half, for calls that do not wait.
    ///
    /// ```no_run
    /// # fn example(receiver: grosso_tun::AsyncUdpReceiver) {
    /// println!("{} datagrams", receiver.inner().stats().received);
    /// # }
    /// ```
    #[must_use]
    pub fn inner(&self) -> &UdpReceiver {
        &self.receiver
    }
}

/// The sending half of an [`AsyncUdp`].
///
/// ```no_run
/// # use grosso_tun::Datagram;
/// # async fn example(mut sender: grosso_tun::AsyncUdpSender) -> std::io::Result<()> {
/// let to = "192.0.2.1:51820".parse().unwrap();
/// sender.send(&mut &[Datagram::new(b"hello", to)][..]).await
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncUdpSender {
    sender: UdpSender,
    readiness: Readiness,
}

impl AsyncUdpSender {
    /// Sends datagrams as [`UdpSender::send`] does, but waits in the runtime.
    ///
    /// # Cancellation
    /// If the future is dropped, the list contains exactly the datagrams that were not sent.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::Datagram;
    /// # async fn example(mut sender: grosso_tun::AsyncUdpSender) -> std::io::Result<()> {
    /// let to = "192.0.2.1:51820".parse().unwrap();
    /// sender.send(&mut &[Datagram::new(b"hello", to)][..]).await
    /// # }
    /// ```
    pub async fn send(&mut self, datagrams: &mut &[Datagram<'_>]) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx, datagrams)).await
    }

    /// Sends datagrams as [`AsyncUdpSender::send`] does; use this function to implement poll-based traits. Returns
    /// `Ready` once the list is empty. Only the task of the last call is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`UdpSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{AsyncUdpSender, Datagram};
    /// # async fn example(mut sender: AsyncUdpSender, list: &[Datagram<'_>]) -> std::io::Result<()> {
    /// let mut rest = list;
    /// std::future::poll_fn(|cx| sender.poll_send(cx, &mut rest)).await
    /// # }
    /// ```
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &mut &[Datagram<'_>],
    ) -> Poll<io::Result<()>> {
        let Self { sender, readiness } = self;
        readiness.poll(cx, || {
            sender.try_send(datagrams)?;
            Ok(datagrams.is_empty().then_some(()).into())
        })
    }

    /// Returns the inner half, for calls that do not wait.
    ///
    /// ```no_run
    /// # fn example(sender: grosso_tun::AsyncUdpSender) {
    /// println!("{} datagrams", sender.inner().stats().sent);
    /// # }
    /// ```
    #[must_use]
    pub fn inner(&self) -> &UdpSender {
        &self.sender
    }
}

/// Returns `None` for 0 datagrams, which makes the caller wait.
fn some(received: usize) -> Option<usize> {
    (received > 0).then_some(received)
}
