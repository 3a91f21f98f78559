//! TUN or TAP device for smoltcp, a TCP stack in user space.

use std::{
    io,
    num::{NonZeroU16, NonZeroUsize},
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Meta, Ports,
    checksum::{Checksum, complete, make_partial},
    features::Features,
    meta::{Gso, GsoSize},
};

use grosso_wire::{LinkType, Stack, dissect_into};
use smoltcp::{
    phy::{self, Device, DeviceCapabilities, Medium, PacketMeta, SegmentationCapabilities},
    time::Instant,
};

use crate::tun::{Layer, Tun, TunOptions};

/// TUN or TAP device for smoltcp with TCP segmentation: it handles superframes and checksums in both directions.
///
/// ```no_run
/// use grosso_tun::{Layer, StackDevice};
/// use smoltcp::{iface::{Config, Interface}, time::Instant, wire::HardwareAddress};
///
/// let mut device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
/// let config = Config::new(HardwareAddress::Ip);
/// let interface = Interface::new(config, &mut device, Instant::now());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StackDevice {
    tun: Tun,
    link: LinkType,
    mtu: usize,
    /// Frames received for the stack, newest first.
    received: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    outlet: Outlet,
}

/// Transmit side of a stack device. It has a buffer for the next frame, and remembers whether earlier frames could be
/// sent.
#[derive(Debug)]
struct Outlet {
    frame: Vec<u8>,
    stack: Stack,
    sent: u64,
    is_full: bool,
    failed: Option<io::Error>,
}

impl StackDevice {
    /// Opens a device as [`Tun::open`] does. `mtu` is the maximum length in bytes of an IP packet that is sent without
    /// segmentation.
    ///
    /// # Errors
    /// Returns the same errors as [`Tun::open`].
    ///
    /// ```no_run
    /// use grosso_tun::{Layer, StackDevice};
    ///
    /// let device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(name: &str, layer: Layer, mtu: usize) -> io::Result<Self> {
        let takes = Features::SCATTER_GATHER
            | Features::CHECKSUM_GENERIC
            | Features::TCP_SEGMENTATION
            | Features::TCP_ECN_SEGMENTATION
            | Features::TCP6_SEGMENTATION;
        let options = TunOptions::new().layer(layer).takes(takes);
        let link = if layer == Layer::Ip { LinkType::Raw } else { LinkType::Ethernet };
        let outlet = Outlet {
            frame: Vec::new(),
            stack: Stack::new(0),
            sent: 0,
            is_full: false,
            failed: None,
        };
        let (received, spare) = (Vec::new(), Vec::new());
        Ok(Self { tun: Tun::open(name, &options)?, link, mtu, received, spare, outlet })
    }

    /// Returns the interface name, with `%d` replaced by the kernel.
    ///
    /// ```no_run
    /// # use grosso_tun::{Layer, StackDevice};
    /// # let mut device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
    /// println!("created {}", device.name());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.tun.name()
    }

    /// Returns the number of frames sent; a superframe counts once.
    ///
    /// ```no_run
    /// # use grosso_tun::{Layer, StackDevice};
    /// # let mut device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
    /// println!("{} frames", device.sent());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.outlet.sent
    }

    /// Returns whether the device had no room for a frame. If so, wait until the device is writable.
    ///
    /// ```no_run
    /// # use grosso_tun::{Layer, StackDevice};
    /// # let mut device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
    /// if device.is_full() {
    ///     // wait until `device` is writable
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.outlet.is_full
    }

    /// Returns the first device error since the last call. The stack itself cannot report device errors, because
    /// smoltcp's device trait has no way to return them.
    ///
    /// # Errors
    /// Returns the same errors as [`TunReceiver::try_recv`](crate::TunReceiver::try_recv) and
    /// [`TunSender::try_send_frame`](crate::TunSender::try_send_frame).
    ///
    /// ```no_run
    /// # use grosso_tun::{Layer, StackDevice};
    /// # let mut device = StackDevice::open("smol%d", Layer::Ip, 1500)?;
    /// device.check()?; // after `Interface::poll`
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn check(&mut self) -> io::Result<()> {
        self.outlet.failed.take().map_or(Ok(()), Err)
    }

    /// Receives frames from the device and completes partial checksums, because smoltcp verifies either all checksums
    /// or none.
    fn fill(&mut self) {
        let Self { tun, received, spare, .. } = self;
        let result = tun.receiver.try_recv(|frame, meta| {
            let mut buffer: Vec<u8> = spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(frame);
            let done = match meta.checksum {
                Checksum::Partial { start, offset } => complete(&mut buffer, start, offset).is_ok(),
                _ => true,
            };
            if done { received.push(buffer) } else { spare.push(buffer) }
        });
        received.reverse();
        if let Err(error) = result {
            self.outlet.failed = Some(error);
        }
    }
}

impl AsFd for StackDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

impl Device for StackDevice {
    type RxToken<'a> = ReceivedFrame<'a>;
    type TxToken<'a> = Departing<'a>;

    /// Returns a received frame with a transmit token. A reply that does not fit into the device's queue is dropped.
    fn receive(&mut self, _now: Instant) -> Option<(ReceivedFrame<'_>, Departing<'_>)> {
        if self.received.is_empty() {
            self.fill();
        }
        let frame = self.received.pop()?;
        let Self { tun, link, spare, outlet, .. } = self;
        let departing = Departing { tun, link: *link, outlet, segment: None };
        Some((ReceivedFrame { frame, spare }, departing))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Departing<'_>> {
        let Self { tun, link, outlet, .. } = self;
        match tun.sender.try_flush() {
            Ok(has_room) => outlet.is_full = !has_room,
            Err(error) => outlet.failed = Some(error),
        }
        let is_ready = !outlet.is_full && outlet.failed.is_none();
        is_ready.then_some(Departing { tun, link: *link, outlet, segment: None })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let is_ip = self.link == LinkType::Raw;
        let link_len = if is_ip { 0 } else { ETHERNET_LEN };
        let mut device = DeviceCapabilities::default();
        device.medium = if is_ip { Medium::Ip } else { Medium::Ethernet };
        device.max_transmission_unit = self.mtu + link_len;
        device.checksum.tcp = phy::Checksum::Rx;
        device.segmentation = SegmentationCapabilities::default();
        device.segmentation.tcpv4 = NonZeroUsize::new(SUPERFRAME_MAX + link_len);
        device.segmentation.tcpv6 = device.segmentation.tcpv4;
        device
    }
}

/// Received frame (smoltcp's receive token).
///
/// ```no_run
/// # use smoltcp::{phy::{Device, RxToken}, time::Instant};
/// # fn example(device: &mut grosso_tun::StackDevice) {
/// if let Some((frame, _)) = device.receive(Instant::now()) {
///     frame.consume(|bytes| println!("{} bytes", bytes.len()));
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct ReceivedFrame<'a> {
    frame: Vec<u8>,
    spare: &'a mut Vec<Vec<u8>>,
}

impl phy::RxToken for ReceivedFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.frame);
        self.spare.push(self.frame);
        result
    }
}

/// Frame that the stack is about to write (smoltcp's transmit token).
///
/// ```no_run
/// # use smoltcp::{phy::{Device, TxToken}, time::Instant};
/// # fn example(device: &mut grosso_tun::StackDevice) {
/// if let Some(token) = device.transmit(Instant::now()) {
///     token.consume(40, |bytes| bytes[0] = 0x45);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Departing<'a> {
    tun: &'a mut Tun,
    link: LinkType,
    outlet: &'a mut Outlet,
    segment: Option<NonZeroU16>,
}

impl phy::TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self { tun, link, outlet, segment } = self;
        let Outlet { frame, stack, sent, is_full, failed } = outlet;
        frame.resize(len, 0);
        let result = write(frame);
        dissect_into(frame, link, &Ports::ASSIGNED, stack);
        let checksum = make_partial(frame, stack);
        let payload = len.saturating_sub(stack.header_len());
        let gso = segment.map(|size| Gso {
            size: GsoSize::Every(size),
            segments: payload.div_ceil(size.get().into()) as u16,
            ..Gso::UNKNOWN
        });
        match tun.sender.try_send_frame(&[frame], &Meta { checksum, gso, ..Meta::default() }) {
            Ok(()) => *sent += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *is_full = true,
            Err(error) => *failed = Some(error),
        }
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}

/// Length of an Ethernet header in bytes.
const ETHERNET_LEN: usize = 14;
/// Maximum length of a superframe in bytes, without the link-layer header. It is limited by the IP length field.
const SUPERFRAME_MAX: usize = 65_535;
