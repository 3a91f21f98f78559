//! Ports for TUN and TAP devices, which connect to the network stack of this host.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_sys::{
    errno::ErrorClass,
    interface::InterfaceName,
    tun::{Layer, Offloads, Tun, TunBuilder},
};
use grosso_wire::{LinkType, Ports, virtio::Form};

use super::{
    broken,
    incoming::{Arrival, FrameReceiver, Incoming},
    stats::{LiveEvent, LiveStats},
    tx_offload::{Queued, TxOffload, Wire},
};
use crate::{
    buffer::PortBuffer,
    port::{Port, PortCounter, PortError, Transmit, Transmitted},
};

/// Options of a TUN or TAP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TapOptions {
    /// Longest virtio header to use. If the kernel does not support it, the longest header that it does support is
    /// used.
    pub header: Form,
    /// Offloads that frames written to the device may use. Offloads that the kernel does not support are ignored.
    pub transmit: Features,
    /// Offloads that frames received from the stack may use. Offloads that the kernel does not support are ignored. The
    /// option corresponds to `ethtool -K` on the device.
    pub receive: Features,
    /// Whether other queues of the same device will be opened.
    pub multi_queue: bool,
    /// Whether the device continues to exist after its last queue is closed. `None` keeps the setting of an existing
    /// device; a new device is then not persistent.
    pub persistent: Option<bool>,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
    /// Maximum length of a received frame in bytes.
    pub frame_bytes_max: usize,
}

impl Default for TapOptions {
    /// Returns options with all offloads that the kernel supports, and with the 12-byte header, which every kernel
    /// supports.
    fn default() -> Self {
        Self {
            header: Form::Buffers,
            transmit: Features::ALL,
            receive: Features::ALL,
            multi_queue: false,
            persistent: None,
            ports: Ports::ASSIGNED,
            frame_bytes_max: 66 << 10,
        }
    }
}

/// A port on one queue of a TUN or TAP device.
///
/// ```no_run
/// use grosso_io::live::{TapOptions, TapPort};
/// use grosso_sys::tun::Layer;
///
/// let port = TapPort::open("grosso%d", Layer::Ethernet, &TapOptions::default())?;
/// println!("{}", port.name());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TapPort {
    reader: TapReader,
    writer: TapWriter,
}

/// The receiving half of a [`TapPort`].
#[derive(Debug)]
pub struct TapReader {
    tun: Arc<Tun>,
    receive: Features,
    receiver: FrameReceiver,
    stats: LiveStats,
}

/// The sending half of a [`TapPort`], which implements [`Transmit`].
#[derive(Debug)]
pub struct TapWriter {
    tun: Arc<Tun>,
    device: Device,
    tx_offload: TxOffload,
}

impl TapPort {
    /// Creates the device `name`, or attaches to it, in the calling thread's network namespace. The device is TAP for
    /// [`Layer::Ethernet`] and TUN for [`Layer::Ip`]. The kernel replaces `%d` in the name with a number.
    ///
    /// # Errors
    /// Returns any error from [`TunBuilder::open`].
    pub fn open(name: &str, layer: Layer, options: &TapOptions) -> io::Result<Self> {
        let name = InterfaceName::new(name)?;
        let builder = match layer {
            Layer::Ethernet => TunBuilder::tap(name),
            Layer::Ip => TunBuilder::tun(name),
        };
        let builder = builder.virtio_header(true).multi_queue(options.multi_queue);
        Self::new(builder.nonblocking(true).open()?, options)
    }

    /// Adopts an open queue, for example from a service manager. Offloads and the header length belong to the device
    /// and are set from the options.
    ///
    /// # Errors
    /// Returns any error from [`Tun::adopt`].
    pub fn adopt(file: OwnedFd, options: &TapOptions) -> io::Result<Self> {
        Self::new(Tun::adopt(file)?, options)
    }

    fn new(tun: Tun, options: &TapOptions) -> io::Result<Self> {
        tun.set_nonblocking(true)?;
        if let Some(persistent) = options.persistent {
            tun.set_persistent(persistent)?;
        }
        let form = choose_form(&tun, options.header)?;
        let kernel = match form {
            Some(form) => probe(&tun, form)?,
            None => Offloads::NONE,
        };
        let features = (transmit_features(kernel, form) & options.transmit).active();
        let (receive, offloads) = receive_offloads(kernel, options.receive);
        if form.is_some() {
            tun.set_offloads(offloads)?;
        }
        let link = match tun.layer() {
            Layer::Ethernet => LinkType::Ethernet,
            Layer::Ip => LinkType::Raw,
        };
        let incoming = Incoming::new(link, options.ports, form);
        let tun = Arc::new(tun);
        let reader = TapReader {
            tun: Arc::clone(&tun),
            receive,
            // The number of packets is not limited, so a call that returns fewer frames than requested has emptied the
            // device. `grosso-tun` relies on this.
            receiver: FrameReceiver::new(incoming, options.frame_bytes_max, usize::MAX),
            stats: LiveStats::default(),
        };
        let tx_offload = TxOffload::new(link, options.ports, form, features);
        Ok(Self { reader, writer: TapWriter { tun, device: Device::new(features), tx_offload } })
    }

    /// Returns the two halves of the port, which may be used on two threads. The queue stays open until both halves are
    /// dropped.
    #[must_use]
    pub fn split(self) -> (TapReader, TapWriter) {
        (self.reader, self.writer)
    }

    /// Returns the device name, with `%d` replaced by the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        self.writer.name()
    }

    /// Returns the virtio header format in use, or `None` for a device created without one.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        self.reader.form()
    }

    /// Returns the offloads that frames from the stack may use. `ethtool -k` on the device reports the same offloads.
    #[must_use]
    pub fn receive_features(&self) -> Features {
        self.reader.features()
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn stats(&self) -> LiveStats {
        self.reader.stats.plus(self.writer.stats())
    }
}

impl TapReader {
    /// Returns the queue, which both halves share.
    #[must_use]
    pub fn tun(&self) -> &Arc<Tun> {
        &self.tun
    }

    /// Returns the link type of all frames.
    #[must_use]
    pub fn link(&self) -> LinkType {
        self.receiver.incoming.link
    }

    /// Returns the virtio header format in use, or `None` for a device created without one.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        self.receiver.incoming.form
    }

    /// Returns the offloads that received frames may use; see [`TapPort::receive_features`].
    #[must_use]
    pub fn features(&self) -> Features {
        self.receive
    }

    /// Returns the counters of received frames.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        &self.stats
    }

    /// Receives at most `max` frames, as [`Port::receive`] does.
    ///
    /// # Errors
    /// Returns the same errors as [`Port::receive`].
    pub fn receive(
        &mut self,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { receiver, stats, tun, .. } = self;
        receiver.receive(max, stats, each, |buffers, stats| {
            let mut bytes = buffers.take();
            let error = match tun.read(&mut bytes) {
                Ok(len) => return Ok(Arrival::Frame(bytes, len)),
                Err(error) => error,
            };
            buffers.put_back(bytes);
            match ErrorClass::of(&error) {
                ErrorClass::Later => Ok(Arrival::Nothing),
                // The packet is lost, because the virtio header cannot express its metadata (rule V20).
                ErrorClass::Malformed => {
                    stats.count(LiveEvent::ReceiveInexpressible, 1);
                    Ok(Arrival::Lost)
                }
                _ => Err(broken(tun.name().as_str(), "read", error)),
            }
        })
    }

    /// Takes back buffers of received frames and empties the list.
    pub fn recycle_all(&mut self, buffers: &mut Vec<PortBuffer>) {
        buffers.drain(..).for_each(|buffer| self.receiver.buffers.recycle(buffer));
    }
}

impl TapWriter {
    /// Returns the queue, which both halves share.
    #[must_use]
    pub fn tun(&self) -> &Arc<Tun> {
        &self.tun
    }

    /// Returns the device name, with `%d` replaced by the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tun.name().as_str()
    }

    /// Returns the counters of sent frames.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        &self.tx_offload.stats
    }
}

impl Transmit for TapWriter {
    fn device(&self) -> Device {
        let mut device = self.device;
        device.features = self.tx_offload.features();
        device
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let Self { tun, tx_offload, .. } = self;
        let sent = tx_offload.transmit(slices, meta, &mut TunWire(tun));
        sent.map_err(|error| broken(self.name(), "write", error))
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let Self { tun, tx_offload, .. } = self;
        let sent = tx_offload.flush(&mut TunWire(tun));
        sent.map_err(|error| broken(self.name(), "write", error))
    }
}

impl Port for TapPort {
    fn link(&self) -> LinkType {
        self.reader.link()
    }

    fn device(&self) -> Device {
        self.writer.device()
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        self.reader.receive(max, each)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.reader.receiver.buffers.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        self.writer.transmit(slices, meta)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.writer.flush()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl AsFd for TapPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writer.tun.as_fd()
    }
}

struct TunWire<'a>(&'a Tun);

impl Wire for TunWire<'_> {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_vectored(parts).map(|_| ())
    }

    fn send_some(&mut self, frames: &VecDeque<Queued>) -> io::Result<usize> {
        let Some(first) = frames.front() else { return Ok(0) };
        self.0.write(&first.bytes).map(|_| 1)
    }
}

/// Sets the longest header format that is accepted by the kernel and not longer than `wanted`.
fn choose_form(tun: &Tun, wanted: Form) -> io::Result<Option<Form>> {
    if tun.header_bytes()? == 0 {
        return Ok(None);
    }
    let mut refusal = None;
    for form in Form::ALL.into_iter().rev().filter(|form| *form <= wanted) {
        match tun.set_header_bytes(form.len() as u8) {
            Ok(()) => return Ok(Some(form)),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

/// Returns the offloads that the kernel accepts from a reader (rule V30).
fn probe(tun: &Tun, form: Form) -> io::Result<Offloads> {
    let mut kernel = Offloads::NONE;
    let tunnels = [Offloads::UDP_TUNNEL, Offloads::UDP_TUNNEL_CHECKSUM];
    let plain = [
        Offloads::CHECKSUM,
        Offloads::TCP_IPV4,
        Offloads::TCP_IPV6,
        Offloads::TCP_ECN,
        Offloads::UDP,
    ];
    let tunnels = tunnels.into_iter().filter(|_| form >= Form::Tunnel);
    for offload in plain.into_iter().chain(tunnels) {
        match tun.set_offloads(kernel | offload) {
            Ok(()) => kernel = kernel | offload,
            Err(error) if ErrorClass::of(&error) == ErrorClass::Malformed => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kernel)
}

/// Returns the features that written frames may use. The features that the reader enabled do not matter (rule V30):
/// every kernel that supports an offload accepts frames that use it.
fn transmit_features(kernel: Offloads, form: Option<Form>) -> Features {
    if form.is_none() {
        return Features::SCATTER_GATHER;
    }
    let mut features = Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP_ECN_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        // The stack ignores the IP identification of received packets that are not fragmented.
        | Features::TCP_MANGLEID_SEGMENTATION
        // The kernel checks superframes that come from this device (rule V7).
        | Features::GSO_ROBUST;
    for (offload, feature) in [
        (Offloads::UDP, Features::UDP_SEGMENTATION),
        (Offloads::UDP_TUNNEL, Features::UDP_TUNNEL_SEGMENTATION),
        (Offloads::UDP_TUNNEL_CHECKSUM, Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION),
    ] {
        if kernel.contains(offload) {
            features |= feature;
        }
    }
    features
}

/// Returns the features and offloads to request from the stack: those in `wanted` that the kernel supports.
fn receive_offloads(kernel: Offloads, wanted: Features) -> (Features, Offloads) {
    let wanted = (wanted | Features::SCATTER_GATHER).active();
    let mut receive = Features::NONE;
    let mut offloads = Offloads::NONE;
    for (offload, feature) in [
        (Offloads::CHECKSUM, Features::CHECKSUM_GENERIC),
        (Offloads::TCP_IPV4, Features::TCP_SEGMENTATION),
        (Offloads::TCP_IPV6, Features::TCP6_SEGMENTATION),
        (Offloads::TCP_ECN, Features::TCP_ECN_SEGMENTATION),
        (Offloads::UDP, Features::UDP_SEGMENTATION),
        (Offloads::UDP_TUNNEL, Features::UDP_TUNNEL_SEGMENTATION),
        (Offloads::UDP_TUNNEL_CHECKSUM, Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION),
    ] {
        // Each offload requires the offloads before it (rule V30), so it is omitted if any of them is missing.
        let needed = match feature {
            Features::CHECKSUM_GENERIC => Features::NONE,
            Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION => Features::UDP_TUNNEL_SEGMENTATION,
            _ => Features::CHECKSUM_GENERIC,
        };
        let segmentation = Features::TCP_SEGMENTATION | Features::TCP6_SEGMENTATION;
        let lacks_tcp =
            matches!(feature, Features::TCP_ECN_SEGMENTATION | Features::UDP_TUNNEL_SEGMENTATION)
                && receive & segmentation == Features::NONE;
        if wanted.contains(feature)
            && kernel.contains(offload)
            && receive.contains(needed)
            && !lacks_tcp
        {
            receive |= feature;
            offloads = offloads | offload;
        }
    }
    (receive, offloads)
}
