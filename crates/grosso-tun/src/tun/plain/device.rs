//! utun devices on macOS and WinTUN devices on Windows, through `tun-rs`.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{io, net::IpAddr, sync::Arc, thread, time::Duration};

use grosso::features::Features;
use tun_rs::{DeviceBuilder, InterruptEvent, SyncDevice};

use super::{
    super::{
        Opened,
        fallback::Missing,
        options::{Layer, Persistence, Queues, TunOptions},
    },
    PacketDevice, PlainReader, PlainWriter,
};

/// Pause before another attempt to send to a full device. Neither system signals when there is room.
const SEND_PAUSE: Duration = Duration::from_millis(1);

/// Receiving half.
pub(crate) type Reader = PlainReader<PlainQueue>;
/// Sending half.
pub(crate) type Writer = PlainWriter<PlainQueue>;
/// Network interface.
pub(crate) type Link = DeviceLink;

/// Opens a device; see [`Tun::open`](crate::Tun::open).
pub(crate) fn open(name: &str, options: &TunOptions) -> io::Result<Opened> {
    check(options)?;
    let mut builder = DeviceBuilder::new().enable(true);
    if !name.contains("%d") {
        builder = builder.name(name);
    }
    if let Some(mtu) = options.mtu {
        builder = builder.mtu(mtu);
    }
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("{name}: cannot open the device: {error}"))
    };
    let device = builder.build_sync().map_err(failed)?;
    #[cfg(unix)]
    device.set_nonblocking(true).map_err(failed)?;
    let name = device.name().map_err(failed)?;
    let queue = Arc::new(PlainQueue { device, never: InterruptEvent::new()? });
    let writer = PlainWriter::new(Arc::clone(&queue), name.clone(), options.sends);
    Ok(Opened {
        reader: PlainReader::new(Arc::clone(&queue), name.clone()),
        missing: Missing::of(options, false, Features::NONE, Features::NONE),
        writer,
        link: DeviceLink { queue },
        name,
    })
}

/// Returns `Unsupported`, because a safe function cannot adopt a descriptor on this system.
#[cfg(unix)]
pub(crate) fn adopt(_: OwnedFd, _: &TunOptions) -> io::Result<Opened> {
    Err(unsupported("cannot use a queue that another program opened: not supported on this system"))
}

/// Rejects options that macOS and Windows do not support.
fn check(options: &TunOptions) -> io::Result<()> {
    if options.layer == Layer::Ethernet {
        return Err(unsupported("TAP devices are not supported on this system: use Layer::Ip"));
    }
    if options.queues == Queues::Several {
        return Err(unsupported(
            "multi-queue devices are not supported on this system: use Queues::One",
        ));
    }
    if options.persistence == Persistence::Persistent {
        return Err(unsupported(
            "persistent devices are not supported on this system: use Persistence::Temporary",
        ));
    }
    Ok(())
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{}: {why}", std::env::consts::OS))
}

/// Waits until the device has a packet.
pub(crate) fn wait_to_receive(reader: &mut Reader) -> io::Result<()> {
    reader.wait()
}

/// Waits before another attempt to send.
#[allow(clippy::unnecessary_wraps, reason = "the wait of other systems can fail")]
pub(crate) fn wait_to_send(_: &Writer) -> io::Result<()> {
    thread::sleep(SEND_PAUSE);
    Ok(())
}

/// Returns false: a device without offloads never rejects a superframe.
pub(crate) const fn is_refused(_: &Writer) -> bool {
    false
}

/// An open device.
pub(crate) struct PlainQueue {
    device: SyncDevice,
    /// Event that never occurs. The function that waits for packets requires one.
    never: InterruptEvent,
}

impl core::fmt::Debug for PlainQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PlainQueue").field("name", &self.device.name()).finish_non_exhaustive()
    }
}

impl PacketDevice for PlainQueue {
    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device.recv_intr(buffer, &self.never)
    }

    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(windows)]
        return self.device.try_recv(buffer);
        #[cfg(unix)]
        return self.device.recv(buffer);
    }

    fn try_send(&self, packet: &[u8]) -> io::Result<()> {
        #[cfg(windows)]
        return self.device.try_send(packet).map(drop);
        #[cfg(unix)]
        return self.device.send(packet).map(drop);
    }
}

#[cfg(unix)]
impl Reader {
    /// Returns the open device.
    pub(crate) fn tun(&self) -> &PlainQueue {
        &self.device
    }
}

#[cfg(unix)]
impl Writer {
    /// Returns the open device.
    pub(crate) fn tun(&self) -> &PlainQueue {
        &self.device
    }
}

#[cfg(unix)]
impl AsFd for PlainQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Network interface of a device. The value keeps the device open.
#[derive(Clone, Debug)]
pub(crate) struct DeviceLink {
    queue: Arc<PlainQueue>,
}

impl DeviceLink {
    /// Returns the current name.
    pub(crate) fn name(&self) -> io::Result<String> {
        self.queue.device.name()
    }

    /// Returns the interface index.
    pub(crate) fn index(&self) -> io::Result<u32> {
        self.queue.device.if_index().map_err(|error| self.failed("read the index", error))
    }

    /// Returns the MTU in bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        let mtu = self.queue.device.mtu();
        mtu.map(u32::from).map_err(|error| self.failed("read the MTU", error))
    }

    /// Sets the MTU in bytes.
    pub(crate) fn set_mtu(&self, bytes: u16) -> io::Result<()> {
        let action = format!("set the MTU to {bytes} bytes");
        self.queue.device.set_mtu(bytes).map_err(|error| self.failed(&action, error))
    }

    /// Adds the addresses from the options. The MTU was set and the interface brought up when the device was opened.
    pub(crate) fn configure(&self, options: &TunOptions) -> io::Result<()> {
        for &(address, prefix) in &options.addresses {
            let result = match address {
                IpAddr::V4(address) => self.queue.device.add_address_v4(address, prefix),
                IpAddr::V6(address) => self.queue.device.add_address_v6(address, prefix),
            };
            let action = format!("add the address {address}/{prefix}");
            result.map_err(|error| self.failed(&action, error))?;
        }
        Ok(())
    }

    /// Adds the device name and the attempted action to an error.
    fn failed(&self, action: &str, error: io::Error) -> io::Error {
        let name = self.queue.device.name().unwrap_or_default();
        io::Error::new(error.kind(), format!("{name}: cannot {action}: {error}"))
    }
}
