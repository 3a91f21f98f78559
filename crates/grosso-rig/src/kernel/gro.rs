//! An oracle that passes a list of frames ("vector") through the kernel's GRO and returns what the kernel delivers.

use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use grosso_sys::ethtool;
use grosso_sys::interface::{Control, InterfaceName, write_attribute};
use grosso_sys::netlink::Netlink;
use grosso_sys::packet::{PacketSocket, ReceivedPacket};
use grosso_sys::scheduling;
use grosso_sys::tun::{Tun, TunBuilder};

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::virtio::VirtioHeader;
use super::worker::Worker;
use super::{FRAME_BYTES_MAX, MTU_BYTES, QUIET, isolate};

/// Maximum number of frames in a vector with [`Batching::Poll`]: a poll ends after 64 (rule G72).
pub const FRAMES_MAX: usize = 63;
/// Number of times that [`GroOracle::coalesce`] writes a vector.
const REPEATS: usize = 3;
/// Maximum number of attempts to write a vector within one jiffy. A few percent of the attempts fail, most of them on a
/// host whose CPUs are all busy.
const JIFFIES_MAX: usize = 500;
/// Size of the oracle's receive buffer in bytes: enough for many vectors of jumbo frames.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// EtherType of the frame that ends a vector: the first one for local experiments (IEEE 802), for which GRO has no
/// handler.
const FENCE_ETHERTYPE: u16 = 0x88b5;
/// Length of the shortest Ethernet frame, without its frame check sequence.
const FENCE_BYTES: usize = 60;
/// Maximum time until a poll delivers its first packet; after that, the whole vector counts as dropped. A poll normally
/// takes microseconds; the margin is for oracles that share a CPU.
const POLL_WAIT: Duration = Duration::from_millis(250);
/// Maximum time until a fence frame returns. This normally takes microseconds; the margin is for hosts that stall.
const FENCE_WAIT: Duration = Duration::from_secs(5);
/// `gro_flush_timeout` in nanoseconds: shorter than a jiffy at HZ=250, but longer than it takes to write a vector.
const FLUSH_TIMEOUT_NS: &str = "2000000";

/// Method of making the kernel coalesce a vector as if it had arrived in one burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// All frames are read in one NAPI poll, which delivers all held packets when it ends. This method is exact: the
    /// NAPI thread shares a CPU with the writer, whose real-time priority is higher, so the writer finishes before the
    /// poll begins. Limited to [`FRAMES_MAX`] frames.
    Poll,
    /// Each frame is read in a separate poll, and `gro_flush_timeout` delivers held packets. The number of frames is
    /// unlimited, and a vector takes 20 ms or more. A vector whose writing spans two jiffies may be split, so it is
    /// written again until it fits into one.
    Timer,
}

/// Configuration of an oracle.
#[derive(Clone, Debug, Default)]
pub struct GroOptions {
    /// Method of making the kernel coalesce a vector as one burst; by default, the best method that the system allows.
    pub batching: Option<Batching>,
    /// Device features to turn on, named as in `ethtool -k`.
    pub features: Vec<&'static str>,
    /// `gro_max_size` and `gro_ipv4_max_size` in bytes (rule G60).
    pub max_size: Option<(u32, u32)>,
    /// A UDP port on which a VXLAN device listens (rule T5).
    pub vxlan_port: Option<u16>,
}

/// One packet that the kernel delivered.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The kernel's metadata for the packet. If `bytes` contains a VLAN tag, the offsets include it.
    pub virtio: VirtioHeader,
    /// The frame. If the kernel removed a VLAN tag, the tag is restored.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Delivered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { virtio, bytes } = self;
        write!(formatter, "{} bytes {virtio:?} ", bytes.len())?;
        bytes.iter().take(128).try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// An oracle that uses the kernel's GRO. Each oracle has its own namespace, TAP device and thread, so several can run
/// at once.
pub struct GroOracle {
    worker: Worker<GroThread>,
    batching: Batching,
}

impl GroOracle {
    /// Starts an oracle with the kernel's default settings.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn new() -> Result<Self, String> {
        Self::with(&GroOptions::default())
    }

    /// Starts an oracle.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn with(options: &GroOptions) -> Result<Self, String> {
        let options = options.clone();
        let worker = Worker::start(move || GroThread::new(&options))?;
        let batching = worker.run(|state| state.batching);
        Ok(Self { worker, batching })
    }

    /// Returns what the kernel delivers for a vector of frames, in order. The vector is written three times and the
    /// most frequent result is returned, because in rare cases the timing prevents some merges.
    ///
    /// # Errors
    ///
    /// Fails with `InvalidInput` for more than [`FRAMES_MAX`] frames with [`Batching::Poll`], with `EINVAL` for a frame
    /// that a TAP refuses (under 14 bytes), if the kernel dropped a packet for lack of memory, or if, with
    /// [`Batching::Timer`], no attempt wrote the vector within a jiffy.
    pub fn coalesce(&mut self, frames: &[Vec<u8>]) -> io::Result<Vec<Delivered>> {
        let answers =
            (0..REPEATS).map(|_| self.coalesce_once(frames)).collect::<io::Result<Vec<_>>>()?;
        Ok(most_frequent(answers))
    }

    /// Returns what the kernel delivers for a vector of frames that is written once.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`GroOracle::coalesce`].
    pub fn coalesce_once(&mut self, frames: &[Vec<u8>]) -> io::Result<Vec<Delivered>> {
        if self.batching == Batching::Poll && frames.len() > FRAMES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} frames do not fit in one poll", frames.len()),
            ));
        }
        let frames: Vec<Vec<u8>> = frames.iter().map(|frame| with_plain_header(frame)).collect();
        self.worker.run(move |state| {
            for _ in 0..JIFFIES_MAX {
                if let Some(delivered) = state.coalesce(&frames)? {
                    return Ok(delivered);
                }
            }
            let what = format!("cannot write {} frames within one jiffy", frames.len());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }

    /// Turns a device feature on or off for subsequent vectors.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`ethtool::set_feature`].
    pub fn set_feature(&mut self, feature: &'static str, on: bool) -> io::Result<()> {
        self.worker
            .run(move |state| ethtool::set_feature(&state.control, state.tap.name(), feature, on))
    }

    /// Returns the method that makes the kernel coalesce a vector as one burst.
    pub fn batching(&self) -> Batching {
        self.batching
    }
}

/// Returns the most frequent result; if there are several, the one with the fewest packets.
///
/// # Panics
///
/// Panics if `answers` is empty.
pub fn most_frequent(answers: Vec<Vec<Delivered>>) -> Vec<Delivered> {
    let count = |answer| answers.iter().filter(|&other| other == answer).count();
    let best = answers.iter().max_by_key(|&answer| (count(answer), usize::MAX - answer.len()));
    best.expect("at least one answer").clone()
}

/// State of the oracle's thread.
struct GroThread {
    tap: Tun,
    socket: PacketSocket,
    control: Control,
    batching: Batching,
    fences: u64,
    buffer: Vec<u8>,
}

impl GroThread {
    fn new(options: &GroOptions) -> Result<Self, String> {
        let control = isolate()?;
        let name = unique_name();
        let describe = |what: &str, error: io::Error| format!("{what}: {error}");
        let tap = TunBuilder::tap(name)
            .virtio_header(true)
            .napi(true)
            .nonblocking(true)
            .open()
            .map_err(|error| describe("cannot open a TAP with NAPI", error))?;
        control.set_mtu(&name, MTU_BYTES).map_err(|error| describe("cannot set the MTU", error))?;
        for feature in &options.features {
            ethtool::set_feature(&control, &name, feature, true)
                .map_err(|error| describe(feature, error))?;
        }
        if let Some((ipv6, ipv4)) = options.max_size {
            let index = control
                .index(&name)
                .map_err(|error| describe("cannot get the interface index", error))?;
            Netlink::new()
                .and_then(|netlink| netlink.set_gro_max_size(index, ipv6, ipv4))
                .map_err(|error| describe("cannot set gro_max_size", error))?;
        }
        if let Some(port) = options.vxlan_port {
            add_vxlan(&control, port)
                .map_err(|error| describe("cannot add a VXLAN device", error))?;
        }
        control
            .set_up(&name, true)
            .map_err(|error| describe("cannot bring the interface up", error))?;
        let socket = PacketSocket::builder()
            .virtio_header(true)
            .ignore_outgoing(true)
            .receive_buffer_bytes(RECEIVE_BUFFER_BYTES)
            .bind(&name)
            .map_err(|error| describe("cannot open a packet socket", error))?;
        let batching = batch(&name, options.batching)?;
        Ok(Self { tap, socket, control, batching, fences: 0, buffer: vec![0; FRAME_BYTES_MAX] })
    }

    /// Writes a vector, starting each frame with its virtio header, and collects what the kernel delivers. Returns
    /// `None` if the vector may have been split.
    fn coalesce(&mut self, frames: &[Vec<u8>]) -> io::Result<Option<Vec<Delivered>>> {
        let before = self.jiffy();
        // A frame that the TAP refuses ends the vector, but the frames written before it must still be delivered.
        let written = frames.iter().try_for_each(|frame| self.tap.write(frame).map(drop));
        let is_whole = before == self.jiffy();
        let mut delivered = Vec::new();
        match self.batching {
            // The poll runs while this thread sleeps. Nothing preempts it, so it has ended when this thread wakes up.
            Batching::Poll if frames.is_empty() => {}
            Batching::Poll => _ = self.socket.wait(POLL_WAIT)?,
            Batching::Timer => {
                while self.socket.wait(QUIET)? {
                    while let Some(packet) = self.receive()? {
                        delivered.push(packet);
                    }
                }
            }
        }
        self.drain_to_fence(&mut delivered)?;
        written?;
        match self.socket.take_drops()? {
            0 => Ok(is_whole.then_some(delivered)),
            drops => Err(io::Error::other(format!("the packet socket dropped {drops} packets"))),
        }
    }

    /// Returns the time of the kernel's tick clock, from which a poll computes the age of held packets; `None` if one
    /// poll reads the whole vector.
    fn jiffy(&self) -> Option<Timespec> {
        let is_asked = self.batching == Batching::Timer;
        is_asked.then(|| clock_gettime(ClockId::MonotonicCoarse))
    }

    /// Sends a frame that GRO leaves unchanged, and collects everything that arrives before it, so that no packet is
    /// attributed to the next vector.
    fn drain_to_fence(&mut self, delivered: &mut Vec<Delivered>) -> io::Result<()> {
        self.fences += 1;
        let mut fence = vec![0; FENCE_BYTES];
        fence[12..14].copy_from_slice(&FENCE_ETHERTYPE.to_be_bytes());
        fence[14..22].copy_from_slice(&self.fences.to_be_bytes());
        self.tap.write(&with_plain_header(&fence))?;
        loop {
            match self.receive()? {
                Some(packet) if packet.bytes == fence => return Ok(()),
                Some(packet) => delivered.push(packet),
                None if self.socket.wait(FENCE_WAIT)? => {}
                None => {
                    return Err(io::Error::other(
                        "the kernel did not deliver the frame that ends the vector",
                    ));
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<Option<Delivered>> {
        let received = self.socket.receive(&mut self.buffer)?;
        Ok(received.map(|received| delivered(&self.buffer, &received)))
    }
}

/// Chooses the method of delivering a vector as one burst, and prepares the device for it.
fn batch(name: &InterfaceName, wanted: Option<Batching>) -> Result<Batching, String> {
    let poll = || match wanted {
        Some(Batching::Timer) => Err("method not selected".to_owned()),
        _ => share_processor_with_napi(name),
    };
    let timer = || match wanted {
        Some(Batching::Poll) => Err("method not selected".to_owned()),
        _ => write_attribute(name, "threaded", "0")
            .and_then(|()| write_attribute(name, "napi_defer_hard_irqs", "0"))
            .and_then(|()| write_attribute(name, "gro_flush_timeout", FLUSH_TIMEOUT_NS))
            .map_err(|error| format!("cannot set gro_flush_timeout: {error}")),
    };
    let refused = match poll() {
        Ok(()) => return Ok(Batching::Poll),
        Err(why) => why,
    };
    match timer() {
        Ok(()) => Ok(Batching::Timer),
        Err(why) => Err(format!("cannot deliver the frames as one burst: {refused}; {why}")),
    }
}

/// Binds the device's NAPI thread to the calling thread's CPU, with a lower real-time priority.
fn share_processor_with_napi(name: &InterfaceName) -> Result<(), String> {
    let describe = |what: &str, error: io::Error| format!("{what}: {error}");
    write_attribute(name, "threaded", "1")
        .map_err(|error| describe("cannot enable threaded NAPI", error))?;
    let threads = scheduling::kernel_threads(&format!("napi/{name}-"))
        .map_err(|error| describe("cannot list the kernel threads", error))?;
    let (napi, _) = threads.into_iter().next().ok_or("cannot find the NAPI thread")?;
    let processors =
        scheduling::allowed_processors().map_err(|error| describe("CPU affinity", error))?;
    let processor = processors[ORACLES.load(Ordering::Relaxed) % processors.len()];
    for (thread, priority) in [(Some(napi), 1), (None, 2)] {
        scheduling::pin(thread, processor).map_err(|error| describe("CPU affinity", error))?;
        scheduling::set_realtime(thread, priority)
            .map_err(|error| describe("cannot set real-time priority", error))?;
    }
    Ok(())
}

/// Adds a VXLAN device and brings it up, so that its socket listens.
fn add_vxlan(control: &Control, port: u16) -> io::Result<()> {
    let name = InterfaceName::new("vxlan0")?;
    Netlink::new()?.add_vxlan(&name, port)?;
    control.set_up(&name, true)
}

/// Number of oracles started. Used to spread them over the CPUs and to name their devices.
static ORACLES: AtomicUsize = AtomicUsize::new(0);

/// Returns a name that is unique on the host, because the device's NAPI thread is found by that name.
fn unique_name() -> InterfaceName {
    let number = ORACLES.fetch_add(1, Ordering::Relaxed) & 0xffff;
    InterfaceName::new(&format!("g{:x}n{number:x}", process::id())).expect("at most 14 bytes")
}

fn with_plain_header(frame: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; VirtioHeader::BYTES];
    packet.extend_from_slice(frame);
    packet
}

fn delivered(buffer: &[u8], received: &ReceivedPacket) -> Delivered {
    let (header, frame) = buffer[..received.length]
        .split_first_chunk()
        .expect("a packet socket puts a virtio header first");
    let mut virtio = VirtioHeader::parse(header);
    let mut bytes = frame.to_vec();
    if let Some(tag) = received.vlan {
        let [high, low] = tag.protocol.to_be_bytes();
        let [control_high, control_low] = tag.control.to_be_bytes();
        bytes.splice(12..12, [high, low, control_high, control_low]);
        virtio.header_length += if virtio.header_length > 0 { 4 } else { 0 };
        virtio.checksum_start += if virtio.checksum_start > 0 { 4 } else { 0 };
    }
    Delivered { virtio, bytes }
}
