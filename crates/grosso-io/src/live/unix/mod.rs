//! Ports that use a Unix socket to exchange frames with a VM or another program.

pub(super) mod acceptor;
mod datagram;
mod stats;
mod stream;

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    os::fd::BorrowedFd,
    path::PathBuf,
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
use grosso_sys::{
    errno::ErrorClass,
    unix_socket::{UnixKind, is_absence},
};
use grosso_wire::{LinkType, Ports, virtio::Form};

pub use self::stats::{UnixEvent, UnixStats};
use self::{datagram::DatagramEnd, stream::StreamEnd};
use super::{
    broken,
    incoming::{Arrival, FrameReceiver, Incoming},
    stats::LiveStats,
    tx_offload::{Queued, TxOffload, Wire},
};
use crate::{
    buffer::PortBuffer,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of a port on a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnixOptions {
    /// Path of the socket.
    pub path: PathBuf,
    /// Whether frames are sent as a [stream](crate::framing) or as one datagram each.
    pub kind: UnixKind,
    /// Whether the port listens or connects.
    pub role: UnixRole,
    /// Virtio header before every frame. Both programs must use the same format.
    pub header: Option<Form>,
    /// Offloads that the peer accepts. They must be configured, because the peer has no way to report them. Offloads
    /// that the header cannot express are ignored. Without a header, the peer gets only packets with complete
    /// checksums.
    pub transmit: Features,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

/// Role of the port in the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnixRole {
    /// The port listens. The peer connects, or sends the first datagram.
    Listen {
        /// Permissions of the socket file.
        mode: u32,
    },
    /// The port connects to a peer that listens.
    Connect {
        /// Path of the socket that the peer sends datagrams to. It is not used for a stream.
        local: Option<PathBuf>,
        /// Permissions of the socket file at `local`.
        mode: u32,
    },
}

impl UnixOptions {
    /// Creates options for a listening stream socket at `path`, to which only this user may connect. Frames have no
    /// virtio header.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            kind: UnixKind::Stream,
            role: UnixRole::Listen { mode: MODE },
            header: None,
            transmit: usual_features(),
            ports: Ports::ASSIGNED,
        }
    }
}

/// Returns the offloads that every guest with virtio headers supports, even an old one: partial checksums and TCP
/// superframes.
#[must_use]
pub fn usual_features() -> Features {
    Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP_ECN_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION
        | Features::GSO_ROBUST
}

/// A port on a Unix socket. Frames start with an Ethernet header.
///
/// While no peer is connected, frames are dropped and counted. A peer may connect and disconnect at any time.
#[derive(Debug)]
pub struct UnixPort {
    name: String,
    end: AnyEnd,
    device: Device,
    receiver: FrameReceiver,
    tx_offload: TxOffload,
}

#[derive(Debug)]
enum AnyEnd {
    Stream(Box<StreamEnd>),
    Datagram(DatagramEnd),
}

impl UnixPort {
    /// Opens a port. The peer need not be running yet.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for an invalid socket path, or if a datagram socket connects without a
    /// local path, [`io::ErrorKind::AddrInUse`] if another program uses the socket or the file is not a socket, or any
    /// error from the system calls.
    pub fn open(options: &UnixOptions) -> io::Result<Self> {
        let features = (possible(options.header) & options.transmit).active();
        let incoming = Incoming::new(LinkType::Ethernet, options.ports, options.header);
        let bytes_max = incoming.header_len() + FRAME_BYTES_MAX;
        let end = match options.kind {
            UnixKind::Stream => AnyEnd::Stream(Box::new(StreamEnd::open(options, bytes_max)?)),
            UnixKind::Datagram => AnyEnd::Datagram(DatagramEnd::open(options)?),
        };
        let (link, ports) = (LinkType::Ethernet, options.ports);
        Ok(Self {
            name: format!("unix:{}", options.path.display()),
            end,
            device: Device::new(features),
            receiver: FrameReceiver::new(incoming, FRAME_BYTES_MAX, PACKETS_MAX),
            tx_offload: TxOffload::new(link, ports, options.header, features),
        })
    }

    /// Returns the socket's path with the prefix `unix:`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters of frames.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        &self.tx_offload.stats
    }

    /// Returns the counters of the socket.
    #[must_use]
    pub fn socket_stats(&self) -> &UnixStats {
        match &self.end {
            AnyEnd::Stream(end) => &end.stats,
            AnyEnd::Datagram(end) => &end.stats,
        }
    }

    /// Returns whether to copy a frame into a batch. A system call for each short frame in a stream costs more than a
    /// copy; a datagram always needs a system call.
    fn is_batched(&self, slices: &[&[u8]]) -> bool {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        matches!(self.end, AnyEnd::Stream(_)) && len <= COPIED_BYTES_MAX
    }
}

impl Port for UnixPort {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn device(&self) -> Device {
        let mut device = self.device;
        device.features = self.tx_offload.features();
        device
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { receiver, tx_offload, end, name, .. } = self;
        receiver.receive(max, &mut tx_offload.stats, each, |buffers, _| {
            let arrived = match end {
                AnyEnd::Stream(end) => end.receive(now_ns, buffers),
                AnyEnd::Datagram(end) => end.receive(now_ns, buffers),
            };
            let arrived = arrived.map_err(|error| broken(name, "receive", error))?;
            Ok(arrived.map_or(Arrival::Nothing, |(bytes, len)| Arrival::Frame(bytes, len)))
        })
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.receiver.buffers.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if !self.is_batched(slices) {
            let sent = self.tx_offload.transmit(slices, meta, &mut self.end);
            return sent.map_err(|error| broken(&self.name, "send", error));
        }
        if self.tx_offload.waiting() >= BATCH {
            let _ = self.flush()?;
        }
        if self.tx_offload.waiting() >= BATCH {
            return Ok(Transmitted::NoRoom);
        }
        self.tx_offload.enqueue(slices, meta);
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let Self { tx_offload, end, .. } = self;
        let mut sent = tx_offload.flush(end);
        if let (Ok(Transmitted::Taken), AnyEnd::Stream(end)) = (&sent, end) {
            sent = end.flush().map(|whole| match whole {
                true => Transmitted::Taken,
                false => Transmitted::NoRoom,
            });
        }
        sent.map_err(|error| broken(&self.name, "send", error))
    }

    fn deadline(&self) -> Option<u64> {
        match &self.end {
            AnyEnd::Stream(end) => end.deadline(),
            AnyEnd::Datagram(end) => end.deadline(),
        }
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let of_frames = self.stats().counters();
        of_frames.chain(self.socket_stats().counters()).for_each(|(counter, value)| {
            each(counter, value);
        });
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.end {
            AnyEnd::Stream(end) => end.descriptor(),
            AnyEnd::Datagram(end) => end.descriptor(),
        })
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.end {
            AnyEnd::Stream(end) => end.transmit_descriptor(),
            AnyEnd::Datagram(end) => end.descriptor(),
        })
    }
}

impl Wire for AnyEnd {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        match self {
            Self::Stream(end) => end.send(parts),
            Self::Datagram(end) => end.send(parts),
        }
    }

    fn send_some(&mut self, frames: &VecDeque<Queued>) -> io::Result<usize> {
        match self {
            Self::Stream(end) => end.send_some(frames),
            Self::Datagram(end) => end.send_some(frames),
        }
    }
}

/// Returns the features that a virtio header of this format can express.
fn possible(form: Option<Form>) -> Features {
    let Some(form) = form else { return Features::SCATTER_GATHER };
    let plain = usual_features() | Features::UDP_SEGMENTATION;
    let tunnels = Features::UDP_TUNNEL_SEGMENTATION | Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION;
    if form >= Form::Tunnel { plain | tunnels } else { plain }
}

/// Converts the result of the first attempt to connect. It is not an error if the peer is not running yet, because it
/// may start later; other errors are permanent.
pub(super) fn or_later(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match ErrorClass::of(&error) {
        ErrorClass::Later => Ok(()),
        _ if is_absence(&error) => Ok(()),
        _ => Err(error),
    })
}

/// Default permissions of a socket file: access for its owner only.
pub const MODE: u32 = 0o600;
/// Number of packets after which a receive call returns no further frames. The limit is low because a guest could
/// declare that each superframe consists of 60000 packets, and all of them would be queued while the other port has no
/// room.
pub(super) const PACKETS_MAX: usize = 4096;
/// Maximum frame length in bytes without the virtio header.
pub(super) const FRAME_BYTES_MAX: usize = 66 << 10;
/// Socket buffer size in bytes for each direction, unless the system's limit is lower. It suffices for a batch of
/// packets or a few superframes.
const SOCKET_BYTES: usize = 1 << 20;
/// Interval in nanoseconds between attempts to reach a peer that is not running, cannot be connected, or is silent.
const TRY_AGAIN_NS: u64 = 100_000_000;
/// Maximum number of frames in one batch of a stream.
const BATCH: usize = 64;
/// Maximum length in bytes of a frame that is copied into a batch.
const COPIED_BYTES_MAX: usize = 4096;
