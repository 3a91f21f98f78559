//! The device and the socket for tokio.

use std::{io, ops::Deref, os::fd::AsRawFd};

use grosso::Meta;
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    datagrams::Datagram,
    device::Tun,
    socket::{Received, Udp},
};

/// A [`Tun`] that waits in a tokio runtime instead of blocking.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use grosso_tun::{AsyncTun, Tun, TunOptions};
///
/// let mut tun: AsyncTun = AsyncTun::new(Tun::open("vpn%d", &TunOptions::default())?)?;
/// let mut packets = Vec::new();
/// tun.recv(|packet, _meta| packets.push(packet.to_vec())).await?;
/// tun.send(&mut packets).await
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncTun<B: AsRef<[u8]> = Vec<u8>> {
    device: AsyncFd<Tun<B>>,
}

impl<B: AsRef<[u8]>> AsyncTun<B> {
    /// Registers the device with the current tokio runtime.
    ///
    /// # Errors
    /// Errors from `epoll_ctl(2)`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with IO enabled.
    pub fn new(device: Tun<B>) -> io::Result<Self> {
        Ok(Self { device: registered(device)? })
    }

    /// Receives like [`Tun::recv`]. Cancel-safe: a dropped future has received no frame.
    ///
    /// # Errors
    /// See [`Tun::recv`].
    pub async fn recv(&mut self, mut each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        loop {
            let mut guard = self.device.ready_mut(READ).await?;
            let read = guard.try_io(|device| some(device.get_mut().try_recv(&mut each)));
            if let Ok(result) = read {
                return result;
            }
        }
    }

    /// Sends like [`Tun::send`]. A future that is dropped while it waits has accepted either the whole batch or no
    /// packet.
    ///
    /// # Errors
    /// See [`Tun::send`].
    pub async fn send(&mut self, packets: &mut Vec<B>) -> io::Result<()> {
        self.flush().await?;
        self.device.get_mut().try_send(packets)?;
        self.flush().await
    }

    /// Sends like [`Tun::send_frame`]. A future that is dropped while it waits may or may not have accepted the frame.
    ///
    /// # Errors
    /// See [`Tun::send_frame`].
    pub async fn send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        self.flush().await?;
        self.device.get_mut().try_send_frame(slices, meta)?;
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        while !self.device.get_mut().try_flush()? {
            self.device.ready_mut(WRITE).await?.clear_ready();
        }
        Ok(())
    }
}

/// A [`Udp`] socket that waits in a tokio runtime instead of blocking.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use grosso_tun::{AsyncUdp, Udp};
///
/// let mut udp = AsyncUdp::new(Udp::bind("0.0.0.0:51820".parse().unwrap(), false)?)?;
/// udp.recv(|datagram| println!("{} bytes", datagram.payload.len())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncUdp {
    socket: AsyncFd<Udp>,
}

impl AsyncUdp {
    /// Registers the socket with the current tokio runtime.
    ///
    /// # Errors
    /// Errors from `epoll_ctl(2)`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with IO enabled.
    pub fn new(socket: Udp) -> io::Result<Self> {
        Ok(Self { socket: registered(socket)? })
    }

    /// Receives like [`Udp::recv`]. Cancel-safe: a dropped future has received no datagram.
    ///
    /// # Errors
    /// See [`Udp::recv`].
    pub async fn recv(&mut self, mut each: impl FnMut(Received<'_>)) -> io::Result<usize> {
        loop {
            let mut guard = self.socket.ready_mut(READ).await?;
            let read = guard.try_io(|socket| some(socket.get_mut().try_recv(&mut each)));
            if let Ok(result) = read {
                return result;
            }
        }
    }

    /// Sends like [`Udp::send`]. A future that is dropped while it waits may have sent the first datagrams of the
    /// batch.
    ///
    /// # Errors
    /// See [`Udp::send`].
    pub async fn send(&mut self, mut datagrams: &[Datagram<'_>]) -> io::Result<()> {
        loop {
            datagrams = &datagrams[self.socket.get_mut().try_send(datagrams)?..];
            if datagrams.is_empty() {
                return Ok(());
            }
            self.socket.ready_mut(WRITE).await?.clear_ready();
        }
    }
}

/// Registers a device or a socket, which owns its descriptor for its whole lifetime.
#[allow(deprecated, reason = "its successor is unsafe, for types whose descriptor may change")]
fn registered<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, READ.add(WRITE))
}

/// Converts 0 to the error that makes the runtime wait.
fn some(received: io::Result<usize>) -> io::Result<usize> {
    match received {
        Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
        result => result,
    }
}

impl<B: AsRef<[u8]>> Deref for AsyncTun<B> {
    type Target = Tun<B>;

    fn deref(&self) -> &Tun<B> {
        self.device.get_ref()
    }
}

impl Deref for AsyncUdp {
    type Target = Udp;

    fn deref(&self) -> &Udp {
        self.socket.get_ref()
    }
}

/// Readable, or an error, which is how a removed device is noticed.
const READ: Interest = Interest::READABLE.add(Interest::ERROR);
/// Writable, or an error.
const WRITE: Interest = Interest::WRITABLE.add(Interest::ERROR);
