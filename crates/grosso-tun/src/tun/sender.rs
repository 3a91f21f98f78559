//! Sending half of a device.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use grosso::{Meta, features::Features};
#[cfg(any(target_os = "linux", target_os = "android"))]
use grosso_io::live::LiveStats;
use grosso_io::port::Transmit;

use super::{
    failed,
    fallback::{Fallback, Missing},
    interface::Interface,
    merger::Merger,
    system,
};
use crate::batch::Batch;

/// Sending half of a [`Tun`](crate::Tun). Packets to send are in buffers of type `B`.
///
/// ```no_run
/// use grosso_tun::{Batch, Tun, TunOptions, TunSender};
///
/// let (_receiver, mut sender): (_, TunSender) = Tun::open("vpn%d", &TunOptions::new())?.split();
/// let mut batch = Batch::from_iter([vec![0x45; 40]]);
/// sender.send(&mut batch)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TunSender<B = Vec<u8>> {
    pub(crate) merger: Merger<B, system::Writer>,
    interface: Interface,
    missing: Missing,
}

impl<B: AsRef<[u8]>> TunSender<B> {
    pub(super) fn new(
        merger: Merger<B, system::Writer>,
        interface: Interface,
        missing: Missing,
    ) -> Self {
        Self { merger, interface, missing }
    }

    /// Sends a batch of packets, merging the packets of each flow into superframes. Blocks while the device's queue is
    /// full. Afterwards the batch is empty and keeps the buffers for reuse.
    ///
    /// # Errors
    /// Returns `NotFound` if the device is gone, or another error from `write(2)`. After an error, the batch holds
    /// exactly the packets that were not sent; packets of a flow keep their order. A device that is down drops packets
    /// without an error.
    ///
    /// ```no_run
    /// # use grosso_tun::{Batch, Tun, TunOptions};
    /// # let (_, mut sender) = Tun::open("vpn0", &TunOptions::new())?.split();
    /// let mut batch = Batch::from_iter([vec![0x45; 40]]); // decrypted packets
    /// sender.send(&mut batch)?;
    /// assert!(batch.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, batch: &mut Batch<B>) -> io::Result<()> {
        while self.merger.try_send_all(batch).map_err(failed)?.is_none() {
            self.wait()?;
        }
        Ok(())
    }

    /// Sends a batch as [`TunSender::send`] does, but never blocks. Returns the number of packets that were removed
    /// from the batch; the remaining packets did not fit into the device's queue.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Batch, Tun, TunOptions};
    /// # let (_, mut sender) = Tun::open("vpn0", &TunOptions::new())?.split();
    /// let mut batch = Batch::from_iter([vec![0x45; 40]]);
    /// while !batch.is_empty() {
    ///     sender.try_send(&mut batch)?; // if it returns 0, wait until `sender` is writable
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send(&mut self, batch: &mut Batch<B>) -> io::Result<usize> {
        self.merger.try_send(batch).map_err(failed)
    }

    /// Sends one frame that `meta` describes, for example a superframe from a guest or from a user-space TCP stack.
    /// Blocks while the device's queue is full. The first slice must contain all headers. If the device does not
    /// support the superframe, it is segmented first; if the device does not support the partial checksum, it is
    /// completed.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Meta, Tun, TunOptions};
    /// # let (_, mut sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// # let (headers, payload) = ([0; 40], [0; 100]);
    /// sender.send_frame(&[&headers, &payload], &Meta::default())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        self.flush()?;
        self.try_send_frame(slices, meta)?;
        self.flush()
    }

    /// Sends a frame as [`TunSender::send_frame`] does, but never blocks. Segments that do not fit into the device's
    /// queue are kept and sent by [`TunSender::try_flush`].
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] while an earlier frame is queued. Otherwise returns the same errors as
    /// [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Meta, Tun, TunOptions};
    /// # let (_, mut sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// sender.try_send_frame(&[&[0x45; 40]], &Meta::default())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        let accepted = self.merger.try_send_frame(slices, meta).map_err(failed)?;
        accepted.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Sends queued segments of an earlier frame. Returns true once no segment is queued.
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (_, mut sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let is_idle = sender.try_flush()?; // if false, wait until `sender` is writable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_flush(&mut self) -> io::Result<bool> {
        self.merger.try_flush().map_err(failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.try_flush()? {
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        system::wait_to_send(&self.merger.port)
    }
}

impl<B> TunSender<B> {
    /// Returns the network interface of the device.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (_, sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// println!("MTU {}", sender.interface().mtu()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the offloads that the options request but the device lacks.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (_, sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// for missing in sender.fallbacks() {
    ///     eprintln!("{missing}: {}", missing.sentence());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fallbacks(&self) -> impl Iterator<Item = Fallback> + use<B> {
        self.missing.fallbacks(system::is_refused(&self.merger.port))
    }

    /// Returns the offloads that the device currently accepts: superframes and partial checksums. The set shrinks when
    /// the kernel rejects a superframe.
    ///
    /// ```no_run
    /// # use grosso_tun::{Features, Tun, TunOptions};
    /// # let (_, sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// let has_uso = sender.offloads().contains(Features::UDP_SEGMENTATION);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn offloads(&self) -> Features {
        self.merger.port.device().features
    }

    /// Returns the counters of frames that were dropped or rejected (Linux and Android).
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let (_, sender) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
    /// sender.stats().named().for_each(|(name, count)| println!("{name} {count}"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        self.merger.port.stats()
    }
}

#[cfg(unix)]
impl<B> AsFd for TunSender<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.merger.port.tun().as_fd()
    }
}

#[cfg(unix)]
impl<B> AsRawFd for TunSender<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
