//! TUN or TAP device for use with tokio.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use grosso::Meta;

use super::{Attempt, Readiness};
use crate::{
    batch::Batch,
    tun::{Filled, Interface, Room, Tun, TunReceiver, TunSender, failed, room::FRAMES_MAX},
};

/// A [`Tun`] that waits in a tokio runtime instead of blocking.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use grosso_tun::{AsyncTun, Batch, Tun, TunOptions};
///
/// let mut tun: AsyncTun = AsyncTun::new(Tun::open("vpn%d", &TunOptions::new())?)?;
/// let mut batch = Batch::new();
/// tun.receiver.recv(|packet, _meta| batch.push_copy(packet)).await?;
/// tun.sender.send(&mut batch).await
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncTun<B = Vec<u8>> {
    /// The receiving half.
    pub receiver: AsyncTunReceiver,
    /// The sending half.
    pub sender: AsyncTunSender<B>,
}

impl<B: AsRef<[u8]>> AsyncTun<B> {
    /// Registers the device with the current tokio runtime.
    ///
    /// # Errors
    /// Returns the errors of `epoll_ctl(2)` and `fcntl(2)`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with IO enabled.
    ///
    /// ```no_run
    /// # async fn example() -> std::io::Result<()> {
    /// use grosso_tun::{AsyncTun, Tun, TunOptions};
    ///
    /// let tun = AsyncTun::new(Tun::<Vec<u8>>::open("vpn%d", &TunOptions::new())?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(device: Tun<B>) -> io::Result<Self> {
        let [reads, writes] = Readiness::register(&device)?;
        let (receiver, sender) = device.split();
        Ok(Self {
            receiver: AsyncTunReceiver { receiver, readiness: reads },
            sender: AsyncTunSender { sender, readiness: writes },
        })
    }

    /// Returns the two halves, for two tasks.
    ///
    /// ```no_run
    /// # async fn example(tun: grosso_tun::AsyncTun) {
    /// let (mut receiver, sender) = tun.split();
    /// tokio::spawn(async move { receiver.recv(|packet, _| println!("{}", packet.len())).await });
    /// # }
    /// ```
    #[must_use]
    pub fn split(self) -> (AsyncTunReceiver, AsyncTunSender<B>) {
        (self.receiver, self.sender)
    }
}

/// The receiving half of an [`AsyncTun`].
///
/// ```no_run
/// # async fn example(mut receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<()> {
/// receiver.recv(|packet, _meta| println!("{} bytes", packet.len())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncTunReceiver {
    receiver: TunReceiver,
    readiness: Readiness,
}

impl AsyncTunReceiver {
    /// Receives frames as [`TunReceiver::recv`] does, but waits in the runtime.
    ///
    /// # Cancellation
    /// If the future is dropped, the call has received no frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # async fn example(mut receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<()> {
    /// receiver.recv(|packet, _meta| println!("{} bytes", packet.len())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv(&mut self, mut each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        poll_fn(|cx| self.poll_recv(cx, &mut each)).await
    }

    /// Receives frames as [`AsyncTunReceiver::recv`] does; use this function to implement poll-based traits. Only the
    /// task of the last call is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # async fn example(mut receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<usize> {
    /// std::future::poll_fn(|cx| receiver.poll_recv(cx, |packet, _| println!("{}", packet.len()))).await
    /// # }
    /// ```
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        mut each: impl FnMut(&[u8], &Meta),
    ) -> Poll<io::Result<usize>> {
        let Self { receiver, readiness } = self;
        readiness.poll(cx, || Ok(Attempt::received(receiver.try_recv(&mut each)?, FRAMES_MAX)))
    }

    /// Receives at most `frames` frames; see [`TunReceiver::recv_up_to`].
    ///
    /// # Cancellation
    /// If the future is dropped, the call has received no frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # async fn example(mut receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<()> {
    /// receiver.recv_up_to(1, |packet, _meta| println!("{} bytes", packet.len())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv_up_to(
        &mut self,
        frames: usize,
        mut each: impl FnMut(&[u8], &Meta),
    ) -> io::Result<usize> {
        let Self { receiver, readiness } = self;
        let attempt = || Ok(Attempt::received(receiver.try_recv_up_to(frames, &mut each)?, frames));
        readiness.wait(attempt).await
    }

    /// Receives into the caller's buffers; see [`TunReceiver::recv_into`].
    ///
    /// # Cancellation
    /// If the future is dropped, the call has received no frame and has not called `make`.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv_into`].
    ///
    /// ```no_run
    /// # use grosso_tun::Room;
    /// # async fn example(mut receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<()> {
    /// let mut filled = Vec::new();
    /// let room = Room::new(16, 16);
    /// receiver.recv_into(&room, |bytes| vec![0; bytes], |buffer| filled.push(buffer)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn recv_into<B: AsMut<[u8]>>(
        &mut self,
        room: &Room,
        mut make: impl FnMut(usize) -> B,
        mut out: impl FnMut(Filled<B>),
    ) -> io::Result<usize> {
        let Self { receiver, readiness } = self;
        let attempt = || {
            let received = receiver.try_recv_into(room, &mut make, &mut out)?;
            Ok(Attempt::received(received, room.frames))
        };
        readiness.wait(attempt).await
    }

    /// Returns the network interface of the device.
    ///
    /// ```no_run
    /// # fn example(receiver: grosso_tun::AsyncTunReceiver) -> std::io::Result<()> {
    /// println!("MTU {}", receiver.interface().mtu()?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn interface(&self) -> &Interface {
        self.receiver.interface()
    }

    /// Returns the inner half, for calls that do not wait.
    ///
    /// ```no_run
    /// # fn example(receiver: grosso_tun::AsyncTunReceiver) {
    /// let stats = receiver.inner().stats();
    /// # }
    /// ```
    #[must_use]
    pub fn inner(&self) -> &TunReceiver {
        &self.receiver
    }
}

/// The sending half of an [`AsyncTun`].
///
/// ```no_run
/// # use grosso_tun::{AsyncTunSender, Batch};
/// # async fn example(mut sender: AsyncTunSender) -> std::io::Result<()> {
/// let mut batch = Batch::from_iter([vec![0x45; 40]]);
/// sender.send(&mut batch).await
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncTunSender<B = Vec<u8>> {
    sender: TunSender<B>,
    readiness: Readiness,
}

impl<B: AsRef<[u8]>> AsyncTunSender<B> {
    /// Sends a batch as [`TunSender::send`] does, but waits in the runtime.
    ///
    /// # Cancellation
    /// If the future is dropped, the batch contains exactly the packets that the device has not accepted.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{AsyncTunSender, Batch};
    /// # async fn example(mut sender: AsyncTunSender) -> std::io::Result<()> {
    /// let mut batch = Batch::from_iter([vec![0x45; 40]]);
    /// sender.send(&mut batch).await
    /// # }
    /// ```
    pub async fn send(&mut self, batch: &mut Batch<B>) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx, batch)).await
    }

    /// Sends a batch as [`AsyncTunSender::send`] does; use this function to implement poll-based traits. Returns
    /// `Ready` once the batch is empty. Only the task of the last call is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{AsyncTunSender, Batch};
    /// # async fn example(mut sender: AsyncTunSender, mut batch: Batch) -> std::io::Result<()> {
    /// std::future::poll_fn(|cx| sender.poll_send(cx, &mut batch)).await
    /// # }
    /// ```
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch<B>,
    ) -> Poll<io::Result<()>> {
        let Self { sender, readiness } = self;
        readiness.poll(cx, || sender.merger.try_send_all(batch).map(Attempt::from).map_err(failed))
    }

    /// Accepts one frame; see [`TunSender::send_frame`]. Segments that do not fit into the device's queue are sent by
    /// the next call, or by [`AsyncTunSender::flush`].
    ///
    /// # Cancellation
    /// If the future is dropped, the call has not accepted the frame.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send_frame`].
    ///
    /// ```no_run
    /// # use grosso_tun::Meta;
    /// # async fn example(mut sender: grosso_tun::AsyncTunSender) -> std::io::Result<()> {
    /// sender.send_frame(&[&[0x45; 40]], &Meta::default()).await?;
    /// sender.flush().await
    /// # }
    /// ```
    pub async fn send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        let Self { sender, readiness } = self;
        let attempt =
            || sender.merger.try_send_frame(slices, meta).map(Attempt::from).map_err(failed);
        readiness.wait(attempt).await
    }

    /// Waits until the segments of earlier frames are sent.
    ///
    /// # Cancellation
    /// If the future is dropped, the next call sends the remaining segments.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # async fn example(mut sender: grosso_tun::AsyncTunSender) -> std::io::Result<()> {
    /// sender.flush().await
    /// # }
    /// ```
    pub async fn flush(&mut self) -> io::Result<()> {
        let Self { sender, readiness } = self;
        readiness.wait(|| Ok(sender.try_flush()?.then_some(()).into())).await
    }

    /// Returns the network interface of the device.
    ///
    /// ```no_run
    /// # fn example(sender: grosso_tun::AsyncTunSender) -> std::io::Result<()> {
    /// println!("MTU {}", sender.interface().mtu()?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn interface(&self) -> &Interface {
        self.sender.interface()
    }

    /// Returns the inner half, for calls that do not wait, for example [`TunSender::fallbacks`].
    ///
    /// ```no_run
    /// # fn example(sender: grosso_tun::AsyncTunSender) {
    /// let stats = sender.inner().stats();
    /// # }
    /// ```
    #[must_use]
    pub fn inner(&self) -> &TunSender<B> {
        &self.sender
    }
}
