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

/// Options for opening a [`Tun`].
///
/// ```
/// use grosso_tun::{Features, Layer, TunOptions};
///
/// let options = TunOptions::default()
///     .layer(Layer::Ethernet) // a TAP device
///     .takes(Features::TCP_SEGMENTATION | Features::CHECKSUM_GENERIC);
/// # assert!(!options.trusted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunOptions {
    /// IP packets (TUN) or Ethernet frames (TAP).
    pub layer: Layer,
    /// Offloads that the caller of [`Tun::recv`] can handle: superframes and partial checksums. With
    /// [`Features::NONE`], the default, `recv` returns complete packets only.
    pub takes: Features,
    /// Skips checksum verification of packets to send, because an AEAD has authenticated them.
    pub trusted: bool,
    /// Whether the device outlives the program; `None` keeps the setting of an existing device.
    pub persistent: Option<bool>,
    /// Whether the device has several queues, each of them a [`Tun`].
    pub multi_queue: bool,
    /// Offloads that sending may use, if the kernel has them.
    pub offloads: Features,
}

impl Default for TunOptions {
    /// Returns the options of a TUN device that verifies packets to send and receives plain packets.
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
    /// Sets whether the device carries IP packets (TUN, the default) or Ethernet frames (TAP).
    #[must_use]
    pub const fn layer(self, layer: Layer) -> Self {
        Self { layer, ..self }
    }

    /// Sets the offloads that [`Tun::recv`] may leave to the caller.
    #[must_use]
    pub const fn takes(self, takes: Features) -> Self {
        Self { takes, ..self }
    }

    /// Sets whether packets to send are trusted, see the crate documentation.
    #[must_use]
    pub const fn trusted(self, trusted: bool) -> Self {
        Self { trusted, ..self }
    }

    /// Sets whether the device outlives the program.
    #[must_use]
    pub const fn persistent(self, persistent: bool) -> Self {
        Self { persistent: Some(persistent), ..self }
    }

    /// Sets whether more queues of the device will be opened; [`Tun::open_queues`] sets this itself.
    #[must_use]
    pub const fn multi_queue(self, multi_queue: bool) -> Self {
        Self { multi_queue, ..self }
    }

    /// Limits the offloads that sending uses.
    #[must_use]
    pub const fn offloads(self, offloads: Features) -> Self {
        Self { offloads, ..self }
    }
}

/// One queue of a TUN or TAP device. Packets to send are in buffers of type `B`.
///
/// ```no_run
/// use grosso_tun::{Tun, TunOptions};
///
/// let mut tun: Tun = Tun::open("vpn%d", &TunOptions::default())?;
/// let mut packets = Vec::new();
/// tun.recv(|packet, _meta| packets.push(packet.to_vec()))?;
/// tun.send(&mut packets)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Tun<B = Vec<u8>> {
    port: TapPort,
    /// Merges packets to send.
    coalescer: Coalescer<B>,
    egress: Egress,
    /// Segments received frames for the caller.
    inlet: Egress,
    takes: Device,
    /// Metadata of each packet to send.
    meta: Meta,
    epoch: Instant,
    /// Vectors kept for their capacity.
    received: Vec<PortBuffer>,
    done: Vec<B>,
    whole: Vec<u8>,
}

impl<B: AsRef<[u8]>> Tun<B> {
    /// Creates the device `name`, or attaches to it, in the calling thread's network namespace. The kernel replaces
    /// `%d` in the name with a number.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid interface name, `NotFound` if the kernel has no TUN driver, `EPERM` without
    /// `CAP_NET_ADMIN`, `EBUSY` if another program uses the device, `EINVAL` if the device exists with another layer or
    /// another queue setting. A missing offload is not an error, see [`Tun::fallbacks`].
    ///
    /// ```no_run
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// let tun: Tun = Tun::open("vpn%d", &TunOptions::default())?;
    /// println!("created {}", tun.name());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(name: &str, options: &TunOptions) -> io::Result<Self> {
        Ok(Self::new(TapPort::open(name, options.layer, &port_options(options))?, options))
    }

    /// Opens `queues` queues of one device, at least one. The kernel keeps each flow in one queue.
    ///
    /// # Errors
    /// See [`Tun::open`]; also `E2BIG` for more queues than the kernel allows per device.
    ///
    /// ```no_run
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// for mut queue in Tun::<Vec<u8>>::open_queues("vpn0", &TunOptions::default(), 4)? {
    ///     std::thread::spawn(move || queue.recv(|packet, _| println!("{} bytes", packet.len())));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_queues(name: &str, options: &TunOptions, queues: usize) -> io::Result<Vec<Self>> {
        let options = options.multi_queue(true);
        let first = Self::open(name, &options)?;
        let name = first.name().to_owned();
        let further = (1..queues).map(|_| Self::open(&name, &options));
        core::iter::once(Ok(first)).chain(further).collect()
    }

    /// Adopts a queue that another program opened, for example a service manager.
    ///
    /// # Errors
    /// `ENOTTY` if the descriptor is not a TUN queue, `EBADFD` if the queue has no device.
    ///
    /// ```no_run
    /// use std::os::fd::AsFd;
    /// use grosso_tun::{Tun, TunOptions};
    ///
    /// let queue = std::io::stdin().as_fd().try_clone_to_owned()?; // inherited as descriptor 0
    /// let tun: Tun = Tun::adopt(queue, &TunOptions::default())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Waits for frames from the device and passes each to `each` with its metadata. [`TunOptions::takes`] decides
    /// whether `each` gets packets or superframes. Returns the number of frames read from the device.
    ///
    /// # Errors
    /// `NotFound` if the device is gone; other errors of `read(2)`.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// tun.recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self, mut each: impl FnMut(&[u8], &Meta)) -> io::Result<usize> {
        loop {
            match self.try_recv(&mut each)? {
                0 => wait_for(&[(self.as_fd(), Interest::READ)], None).map(drop)?,
                frames => return Ok(frames),
            }
        }
    }

    /// Receives like [`Tun::recv`] without blocking; returns 0 if the device has no frame.
    ///
    /// # Errors
    /// See [`Tun::recv`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// let frames = tun.try_recv(|packet, _meta| println!("{} bytes", packet.len()))?;
    /// if frames == 0 {
    ///     // wait until `tun` is readable
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Sends a batch of packets and merges those of a flow into superframes. Blocks while the device's queue is full.
    /// Afterwards `packets` holds the same buffers for reuse, in any order and with unspecified content.
    ///
    /// # Errors
    /// `NotFound` if the device is gone; other errors of `write(2)`. A device that is down drops the packets without an
    /// error.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// # let decrypted = || Vec::new();
    /// let mut packets: Vec<Vec<u8>> = decrypted();
    /// tun.send(&mut packets)?;
    /// packets.clear(); // or reuse the buffers
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&mut self, packets: &mut Vec<B>) -> io::Result<()> {
        self.flush()?;
        self.try_send(packets)?;
        self.flush()
    }

    /// Sends one frame as `meta` describes it, for example a superframe of a guest or of a userspace TCP stack. Blocks
    /// while the device's queue is full. The first slice holds all headers. A superframe or a partial checksum that the
    /// device does not support is segmented or completed first.
    ///
    /// # Errors
    /// See [`Tun::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Meta, Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// # let (headers, payload) = ([0; 40], [0; 100]);
    /// tun.send_frame(&[&headers, &payload], &Meta::default())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Sends like [`Tun::send`] without blocking. Keeps packets that do not fit into the device's queue until
    /// [`Tun::try_flush`], and accepts no further batch until then, so that at most one batch is queued.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] while an earlier batch is queued; `packets` is then unchanged. Otherwise see
    /// [`Tun::send`].
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let mut tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// # let mut packets = vec![vec![0; 60]];
    /// tun.try_send(&mut packets)?;
    /// while !tun.try_flush()? {
    ///     // wait until `tun` is writable
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Sends like [`Tun::send_frame`] without blocking.
    ///
    /// # Errors
    /// See [`Tun::try_send`].
    pub fn try_send_frame(&mut self, slices: &[&[u8]], meta: &Meta) -> io::Result<()> {
        if !self.try_flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Self { port, egress, .. } = self;
        egress.send(slices, meta, port).map_err(failed)
    }

    /// Sends queued packets; returns true once the queue is empty.
    ///
    /// # Errors
    /// See [`Tun::send`].
    pub fn try_flush(&mut self) -> io::Result<bool> {
        let Self { port, egress, .. } = self;
        let drained = egress.drain(port).map_err(failed)?;
        Ok(drained && Port::flush(port).map_err(failed)? == Transmitted::Taken)
    }

    /// Returns the interface name, with `%d` replaced by the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        self.port.name()
    }

    /// Returns the offloads that the device lacks.
    ///
    /// ```no_run
    /// # use grosso_tun::{Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// for missing in tun.fallbacks() {
    ///     eprintln!("{}: no {missing}", tun.name());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fallbacks(&self) -> impl Iterator<Item = Fallback> {
        let all = Fallback::ALL.iter().copied();
        all.filter(|fallback| fallback.is_taken(&self.port))
    }

    /// Returns the superframes and partial checksums that the device accepts now. The set shrinks when the kernel
    /// rejects one.
    ///
    /// ```no_run
    /// # use grosso_tun::{Features, Tun, TunOptions};
    /// # let tun: Tun = Tun::open("vpn0", &TunOptions::default())?;
    /// let has_uso = tun.offloads().contains(Features::UDP_SEGMENTATION);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn offloads(&self) -> Features {
        Port::device(&self.port).features
    }

    /// Returns the counters of drops and rejected frames.
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

/// The callback of a receive call as a transmit port.
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

/// Converts a port error and keeps the kernel's error kind.
fn failed(error: PortError) -> io::Error {
    let kind = match &error {
        PortError::Device { source, .. } => source.kind(),
        PortError::Gone { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// Maximum frames per receive call: at 64 KiB each they already exceed the L1 and L2 caches.
const FRAMES_MAX: usize = 64;
