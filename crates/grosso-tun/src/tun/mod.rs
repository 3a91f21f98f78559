//! TUN or TAP devices.

mod fallback;
mod interface;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
pub(crate) mod merger;
mod options;
#[cfg(any(test, target_os = "macos", windows))]
mod plain;
mod receiver;
pub(crate) mod room;
mod sender;

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use grosso::{
    Meta,
    features::{Device, Features},
};
use grosso_io::PortError;
#[cfg(any(target_os = "linux", target_os = "android"))]
use grosso_io::live::LiveStats;

pub use fallback::Fallback;
pub use interface::Interface;
pub use options::{Layer, Persistence, Queues, TunOptions};
pub use receiver::TunReceiver;
pub use room::{Filled, Room};
pub use sender::TunSender;

use crate::batch::Batch;
use fallback::Missing;
#[cfg(any(target_os = "linux", target_os = "android"))]
use linux as system;
use merger::Merger;
#[cfg(any(target_os = "macos", windows))]
use plain::device as system;

/// Open queue of a device, as returned by the module for the operating system.
struct Opened {
    reader: system::Reader,
    writer: system::Writer,
    link: system::Link,
    missing: Missing,
    name: String,
}

/// Queue of a TUN or TAP device. Packets to send are in buffers of type `B`.
///
/// ```no_run
/// use grosso_tun::{Batch, Tun, TunOptions};
///
/// let mut tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
/// let mut batch = Batch::new();
/// tun.recv(|packet, _meta| batch.push_copy(packet))?;
/// tun.send(&mut batch)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Tun<B = Vec<u8>> {
    /// Receiving half.
    pub receiver: TunReceiver,
    /// Sending half.
    pub sender: TunSender<B>,
    name: String,
}

impl<B: AsRef<[u8]>> Tun<B> {
    /// Creates the device `name`, or attaches to it, in the calling thread's network namespace. The kernel replaces
    /// `%d` in the name with a number. On macOS and Windows, the system chooses the whole name if it contains `%d`; on
    /// macOS, any other name must be `utun` followed by a number. On these systems the device is brought up
    /// immediately, has one queue, and carries only IP packets; Windows needs `wintun.dll`.
    ///
    /// # Errors
    /// Returns `Unsupported` for an option that this system does not have; `InvalidInput` for an invalid interface
    /// name, or if the interface exists with another layer, another number of queues or another driver; `NotFound` if
    /// the kernel has no TUN driver; `PermissionDenied` without `CAP_NET_ADMIN`; or `ResourceBusy` if another program
    /// uses the device. Also returns any error from setting the MTU and the addresses. The message contains the name,
    /// the cause and the remedy. A missing offload is not an error; see [`Tun::fallbacks`].
    ///
    /// ```no_run
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// println!("created {}", tun.name());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(name: &str, options: &TunOptions) -> io::Result<Self> {
        let tun = Self::new(system::open(name, options)?, options);
        tun.interface().configure(options)?;
        Ok(tun)
    }

    /// Opens `queues` queues of one device; 0 opens one queue. The kernel keeps each flow in one queue.
    ///
    /// # Errors
    /// Returns the same errors as [`Tun::open`], and `E2BIG` for more queues than the kernel allows per device.
    ///
    /// ```no_run
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// for mut queue in Tun::<Vec<u8>>::open_queues("vpn0", &TunOptions::new(), 4)? {
    ///     std::thread::spawn(move || queue.recv(|packet, _| println!("{} bytes", packet.len())));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_queues(name: &str, options: &TunOptions, queues: usize) -> io::Result<Vec<Self>> {
        let options = options.clone().queues(Queues::Several);
        let first = Self::open(name, &options)?;
        let name = first.name().to_owned();
        let further = (1..queues).map(|_| Ok(Self::new(system::open(&name, &options)?, &options)));
        core::iter::once(Ok(first)).chain(further).collect()
    }

    /// Adopts a queue that another program, for example a service manager, has opened. The options for MTU, addresses
    /// and state are ignored. [`Tun::interface`] requires the device to be in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns `ENOTTY` if the descriptor is not a TUN queue, `EBADFD` if the queue has no device, and `Unsupported` on
    /// macOS.
    ///
    /// ```no_run
    /// use std::os::fd::AsFd;
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// let queue = std::io::stdin().as_fd().try_clone_to_owned()?; // inherited as descriptor 0
    /// let tun: Tun = Tun::adopt(queue, &TunOptions::new())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(unix)]
    pub fn adopt(file: OwnedFd, options: &TunOptions) -> io::Result<Self> {
        Ok(Self::new(system::adopt(file, options)?, options))
    }

    fn new(opened: Opened, options: &TunOptions) -> Self {
        let Opened { reader, writer, link, missing, name } = opened;
        // If the caller accepts superframes, the segmentation metadata need not be verified, because it comes from this
        // host's own stack.
        let robust =
            if options.takes == Features::NONE { options.takes } else { Features::GSO_ROBUST };
        let takes = Device::new((options.takes | robust).active());
        let interface = Interface::new(link);
        let merger = Merger::new(reader.link(), writer, options.trust);
        Self {
            receiver: TunReceiver::new(reader, takes, interface.clone()),
            sender: TunSender::new(merger, interface, missing),
            name,
        }
    }

    /// Returns the two halves, for two threads or tasks. The queue stays open until both halves are dropped.
    ///
    /// ```no_run
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// let (mut receiver, sender) = Tun::<Vec<u8>>::open("vpn%d", &TunOptions::new())?.split();
    /// std::thread::spawn(move || receiver.recv(|packet, _| println!("{} bytes", packet.len())));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn split(self) -> (TunReceiver, TunSender<B>) {
        (self.receiver, self.sender)
    }

    /// Waits for frames; see [`TunReceiver::recv`].
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// tun.recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        self.receiver.recv(each)
    }

    /// Receives frames without blocking; see [`TunReceiver::try_recv`].
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// let frames = tun.try_recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// // if it is 0, wait until `tun` is readable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv(&mut self, each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        self.receiver.try_recv(each)
    }

    /// Sends a batch; see [`TunSender::send`].
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Batch, Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// let mut batch = Batch::from_iter([vec![0x45; 40]]); // decrypted packets
    /// tun.send(&mut batch)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, batch: &mut Batch<B>) -> io::Result<()> {
        self.sender.send(batch)
    }

    /// Sends a batch without blocking; see [`TunSender::try_send`].
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Batch, Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// let mut batch = Batch::from_iter([vec![0x45; 40]]);
    /// let taken = tun.try_send(&mut batch)?; // if it is 0, wait until `tun` is writable
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send(&mut self, batch: &mut Batch<B>) -> io::Result<usize> {
        self.sender.try_send(batch)
    }

    /// Sends one frame that `meta` describes; see [`TunSender::send_frame`].
    ///
    /// # Errors
    /// Returns the same errors as [`TunSender::send_frame`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Meta, Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// # let (headers, payload) = ([0; 40], [0; 100]);
    /// tun.send_frame(&[&headers, &payload], &Meta::default())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        self.sender.send_frame(slices, meta)
    }

    /// Returns the interface name at the time of opening, with `%d` replaced by the kernel. [`Interface::name`] returns
    /// the current name.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// let tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
    /// println!("created {}", tun.name()); // vpn0
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the network interface of the device: name, index and MTU.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// tun.interface().set_mtu(1420)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn interface(&self) -> &Interface {
        self.sender.interface()
    }

    /// Returns the offloads that the options request and the device lacks.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// for missing in tun.fallbacks() {
    ///     eprintln!("{}: no {missing}", tun.name());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fallbacks(&self) -> impl Iterator<Item = Fallback> + use<B> {
        self.sender.fallbacks()
    }

    /// Returns the offloads that the device accepts now; see [`TunSender::offloads`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Features, Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// let has_uso = tun.offloads().contains(Features::UDP_SEGMENTATION);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn offloads(&self) -> Features {
        self.sender.offloads()
    }

    /// Returns the counters of both halves (Linux and Android).
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::new())?;
    /// tun.stats().named().for_each(|(name, count)| println!("{name} {count}"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[must_use]
    pub fn stats(&self) -> LiveStats {
        self.receiver.stats().plus(self.sender.stats())
    }
}

#[cfg(unix)]
impl<B> AsFd for Tun<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

#[cfg(unix)]
impl<B> AsRawFd for Tun<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Converts a port error to an IO error, keeping the kernel's error kind.
pub(crate) fn failed(error: PortError) -> io::Error {
    let kind = match &error {
        PortError::Device { source, .. } => source.kind(),
        PortError::Gone { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
