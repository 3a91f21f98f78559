//! The TUN or TAP device.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Instant,
};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Ports, Profile,
    features::{Device, Features},
};
use grosso_io::{
    Port, PortBuffer, PortError, Transmitted,
    egress::Egress,
    live::{LiveStats, TapOptions, TapPort},
    port::Transmit,
};
use grosso_sys::{
    tun::Layer,
    wait::{Interest, wait_for},
};

use crate::{fallback::Fallback, joiner::unjoined};

/// Options of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunOptions {
    /// IP packets (TUN) or Ethernet frames (TAP).
    pub layer: Layer,
    /// Superframes and partial checksums that [`Tun::recv`] hands out. Without any, every packet is as a wire would
    /// have it.
    pub takes: Features,
    /// Whether the checksums of packets to send need not be verified, because an AEAD vouched for them.
    pub trusted: bool,
    /// Whether a new device outlives the program; `None` leaves an existing one as it is.
    pub persistent: Option<bool>,
    /// Whether the device has several queues, each of them a [`Tun`].
    pub multi_queue: bool,
    /// Offloads of the kernel to use for sending, of those that there are.
    pub offloads: Features,
}

impl Default for TunOptions {
    /// A TUN device whose packets to send are verified; the caller takes plain packets.
    fn default() -> Self {
        Self {
            layer: Layer::Ip,
            takes: Features::NONE,
            trusted: false,
            persistent: None,
            multi_queue: false,
            offloads: Features::ALL,
        }
    }
}

impl TunOptions {
    /// IP packets or Ethernet frames.
    #[must_use]
    pub const fn layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Superframes and partial checksums that the caller takes.
    #[must_use]
    pub const fn takes(self, takes: Features) -> Self {
        Self { takes, ..self }
    }

    /// Whether the packets to send were vouched for.
    #[must_use]
    pub const fn trusted(self, trusted: bool) -> Self {
        Self { trusted, ..self }
    }

    /// Whether the device outlives the program.
    #[must_use]
    pub const fn persistent(self, persistent: bool) -> Self {
        Self { persistent: Some(persistent), ..self }
    }

    /// Whether further queues will be opened.
    #[must_use]
    pub const fn multi_queue(self, multi_queue: bool) -> Self {
        Self { multi_queue, ..self }
    }

    /// Offloads to use at most.
    #[must_use]
    pub const fn offloads(self, offloads: Features) -> Self {
        Self { offloads, ..self }
    }
}

/// One queue of a TUN or TAP device, which takes packets in buffers of type `B`.
#[derive(Debug)]
pub struct Tun<B = Vec<u8>> {
    port: TapPort,
    /// Towards the device.
    coalescer: Coalescer<B>,
    egress: Egress,
    /// Towards the caller.
    inlet: Egress,
    takes: Device,
    /// Metadata of each packet of a batch.
    meta: Meta,
    epoch: Instant,
    /// Lists and a buffer kept for their capacity.
    received: Vec<PortBuffer>,
    done: Vec<B>,
    whole: Vec<u8>,
}

impl<B: AsRef<[u8]>> Tun<B> {
    /// Creates a device of this name, or attaches to it, in the calling thread's network namespace. For `%d` in the
    /// name the kernel inserts a number.
    ///
    /// # Errors
    /// Invalid input if it is no name of an interface, not found if the kernel has no TUN, `EPERM` without
    /// `CAP_NET_ADMIN`, `EBUSY` if another program has the device, `EINVAL` if it exists with another layer or other
    /// queues. What the kernel merely lacks is no error: see [`Tun::fallbacks`].
    pub fn open(name: &str, options: &TunOptions) -> io::Result<Self> {
        Ok(Self::new(TapPort::open(name, options.layer, &port_options(options))?, options))
    }

    /// Opens this many queues of one device, and one at least. The kernel keeps a flow in one queue.
    ///
    /// # Errors
    /// As [`Tun::open`], and `E2BIG` for more queues than the kernel has for a device.
    pub fn open_queues(name: &str, options: &TunOptions, queues: usize) -> io::Result<Vec<Self>> {
        let options = options.multi_queue(true);
        let first = Self::open(name, &options)?;
        let name = first.name().to_owned();
        let further = (1..queues).map(|_| Self::open(&name, &options));
        core::iter::once(Ok(first)).chain(further).collect()
    }

    /// Takes over a queue that another program opened, such as a service manager.
    ///
    /// # Errors
    /// `ENOTTY` for another kind of descriptor, `EBADFD` for a queue without a device.
    pub fn adopt(file: OwnedFd, options: &TunOptions) -> io::Result<Self> {
        Ok(Self::new(TapPort::adopt(file, &port_options(options))?, options))
    }

    fn new(port: TapPort, options: &TunOptions) -> Self {
        let (link, device) = (Port::link(&port), Port::device(&port));
        let mut profile = Profile::linux();
        profile.udp = device.features.contains(Features::UDP_SEGMENTATION);
        let seed = RandomState::new().build_hasher().finish();
        // What this host's own stack describes needs no second look by who takes superframes at all.
        let robust =
            if options.takes == Features::NONE { options.takes } else { Features::GSO_ROBUST };
        let takes = Device::new((options.takes | robust).active());
        Self {
            coalescer: Coalescer::new(CoalesceOptions::new(link, seed).profile(profile)),
            egress: Egress::new(link, device, Ports::ASSIGNED),
            inlet: Egress::new(link, takes, Ports::ASSIGNED),
            takes,
            meta: unjoined(options.trusted),
            epoch: Instant::now(),
            received: Vec::new(),
            done: Vec::new(),
            whole: Vec::new(),
            port,
        }
    }

    /// Hands out packets, or superframes as far as [`TunOptions::takes`] says, with their metadata; waits until there
    /// are some. Returns the number of frames that the device gave.
    ///
    /// # Errors
    /// The device is gone, or broken.
    pub fn recv(&mut self, mut each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        loop {
            match self.try_recv(&mut each)? {
                0 => wait_for(&[(self.as_fd(), Interest::READ)], None).map(drop)?,
                frames => return Ok(frames),
            }
        }
    }

    /// As [`Tun::recv`], and never waits: 0 means none for now.
    ///
    /// # Errors
    /// As [`Tun::recv`].
    pub fn try_recv(&mut self, mut each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        let Self { port, inlet, received, whole, takes, .. } = self;
        let mut caller = Caller { device: *takes, whole, each: &mut each };
        let mut result = Ok(());
        let frames = port.receive(0, FRAMES_MAX, &mut |frame| {
            if result.is_ok() {
                result = inlet.send(&[frame.buffer.as_ref()], &frame.meta, &mut caller);
            }
            received.push(frame.buffer);
        });
        port.recycle_all(received);
        result.and(frames).map_err(failed)
    }

    /// Sends packets, those of a flow as superframes, and waits for room if there is none. The list then holds their
    /// buffers for the next batch, in any order and with whatever was in them.
    ///
    /// # Errors
    /// The device is gone, or broken. A device that is down drops packets instead, as a wire would.
    pub fn send(&mut self, packets: &mut Vec<B>) -> io::Result<()> {
        self.flush()?;
        self.try_send(packets)?;
        self.flush()
    }

    /// Sends one frame as it is described, such as a superframe of a guest or of a TCP stack in userspace, and waits
    /// for room if there is none. The first slice holds the headers. What the device cannot take is cut or completed.
    ///
    /// # Errors
    /// As [`Tun::send`].
    pub fn send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        self.flush()?;
        self.try_send_frame(slices, meta)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.try_flush()? {
            wait_for(&[(self.as_fd(), Interest::WRITE)], None)?;
        }
        Ok(())
    }

    /// As [`Tun::send`], and never waits. What the device had no room for is kept until [`Tun::try_flush`], and
    /// meanwhile no further batch is taken, so that one batch is all that ever waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if an earlier batch still waits: the packets are left in the list. Otherwise as
    /// [`Tun::send`].
    pub fn try_send(&mut self, packets: &mut Vec<B>) -> io::Result<()> {
        if !self.try_flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        let Self { port, coalescer, egress, done, meta, .. } = self;
        let mut result = Ok(());
        let mut sink = |delivery: Delivery<'_, B>| {
            let sent = egress.deliver(delivery, port, |buffer| done.push(buffer));
            if result.is_ok() {
                result = sent;
            }
        };
        for buffer in packets.drain(..) {
            coalescer.push(Frame { buffer, meta: *meta }, now_ns, &mut sink);
        }
        coalescer.poll_end(now_ns, &mut sink);
        coalescer.finish(&mut sink);
        packets.append(done);
        result.map_err(failed)
    }

    /// As [`Tun::send_frame`], and never waits.
    ///
    /// # Errors
    /// As [`Tun::try_send`].
    pub fn try_send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        if !self.try_flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Self { port, egress, .. } = self;
        egress.send(slices, meta, port).map_err(failed)
    }

    /// Sends what waits for room, and returns whether nothing does any more.
    ///
    /// # Errors
    /// As [`Tun::send`].
    pub fn try_flush(&mut self) -> io::Result<bool> {
        let Self { port, egress, .. } = self;
        let drained = egress.drain(port).map_err(failed)?;
        Ok(drained && Port::flush(port).map_err(failed)? == Transmitted::Taken)
    }

    /// The name of the device, as the kernel completed it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.port.name()
    }

    /// Offloads that the device does without.
    pub fn fallbacks(&self) -> impl Iterator<Item = Fallback> {
        let all = Fallback::ALL.iter().copied();
        all.filter(|fallback| fallback.is_taken(&self.port))
    }

    /// Superframes and checksums that the device takes now.
    #[must_use]
    pub fn offloads(&self) -> Features {
        Port::device(&self.port).features
    }

    /// Counters of the device's losses and refusals.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        self.port.stats()
    }
}

impl<B> AsFd for Tun<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl<B> AsRawFd for Tun<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// The caller of a receive, as one who takes frames.
struct Caller<'a> {
    device: Device,
    whole: &'a mut Vec<u8>,
    each: &'a mut dyn FnMut(&[u8], &Meta),
}

impl Transmit for Caller<'_> {
    fn device(&self) -> Device {
        self.device
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        match slices {
            [only] => (self.each)(only, meta),
            _ => {
                self.whole.clear();
                slices.iter().for_each(|slice| self.whole.extend_from_slice(slice));
                (self.each)(self.whole, meta);
            }
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::Taken)
    }
}

fn port_options(options: &TunOptions) -> TapOptions {
    let mut port = TapOptions::default();
    port.transmit = options.offloads;
    port.multi_queue = options.multi_queue;
    port.persistent = options.persistent;
    port
}

/// The error of a port, with the kind that it has in the kernel.
fn failed(error: PortError) -> io::Error {
    let kind = match &error {
        PortError::Device { source, .. } => source.kind(),
        PortError::Gone { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Most frames that one receive reads: at 64 KiB each, more than two caches hold.
const FRAMES_MAX: usize = 64;
