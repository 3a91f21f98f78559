//! Ports that are the network device of a VM (a vhost-user back end), or the driver of such a device (a front end).

mod device;
mod flows;
mod role;
mod stats;

use std::{io, os::fd::BorrowedFd, path::PathBuf};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
};
pub use grosso_vhost::memory::MAPPED_BYTES_MAX;
pub use grosso_vhost::ring::Side as VhostSide;
use grosso_vhost::{features as bits, ring::ChainFault};
use grosso_wire::{LinkType, Ports, virtio::Form};

use self::device::VhostDevice;
pub use self::stats::{VhostEvent, VhostStats};
use super::{
    broken,
    incoming::{Arrival, FrameReceiver, Incoming},
    stats::{LiveEvent, LiveStats},
    tx_offload::TxOffload,
    unix::{FRAME_BYTES_MAX, MODE, PACKETS_MAX, UnixRole},
};
use crate::{
    buffer::PortBuffer,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of a vhost-user port, which shares memory with the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VhostOptions {
    /// Path of the socket file.
    pub path: PathBuf,
    /// Whether the port listens or connects. The `local` path, which is for datagrams, is ignored.
    pub role: UnixRole,
    /// Role of the port: the device of a virtual machine (back end), or the driver of a device that another program
    /// implements, for example a switch (front end).
    pub side: VhostSide,
    /// Offloads in both directions. A back end offers them to the guest; a front end uses the ones that the device
    /// supports.
    pub features: Features,
    /// Maximum size in bytes of the memory that the front end may share, if the port is a device. By referring to
    /// unused pages, a guest can make this process grow by at most this amount. The default is [`MAPPED_BYTES_MAX`].
    pub memory_bytes_max: u64,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl VhostOptions {
    /// Creates options for a listening socket at `path`, to which only this user may connect. The port is a device that
    /// offers all features to its guest.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            role: UnixRole::Listen { mode: MODE },
            side: VhostSide::Device,
            features: Features::ALL,
            memory_bytes_max: MAPPED_BYTES_MAX,
            ports: Ports::ASSIGNED,
        }
    }
}

/// A vhost-user port: the device of a VM, or the driver of a device. Frames start with an Ethernet header.
///
/// Every frame is copied once per direction, out of the shared memory or into it. Frames are dropped and counted while
/// no peer is connected or the peer has not started its rings. A peer may connect and disconnect at any time. Until
/// features are negotiated, the port reports the maximum features.
#[derive(Debug)]
pub struct VhostPort {
    name: String,
    vhost: VhostDevice,
    side: VhostSide,
    /// Maximum features of the port's frames, which apply until features are negotiated.
    possible: Features,
    device: Device,
    receiver: FrameReceiver,
    tx_offload: TxOffload,
    /// Number of calls since messages were last checked.
    calls: u32,
    chosen: Option<u64>,
}

impl VhostPort {
    /// Opens a port. The peer need not be running yet.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for an invalid socket path, [`io::ErrorKind::AddrInUse`] if another
    /// program uses the socket or the file is not a socket, or any error from the system calls.
    pub fn open(options: &VhostOptions) -> io::Result<Self> {
        let wanted = (options.features | Features::SCATTER_GATHER).active();
        let offered = offered_bits(wanted, options.side);
        let vhost = VhostDevice::open(options, offered)?;
        let (link, form) = (LinkType::Ethernet, Some(Form::Buffers));
        let features = device_features(offered, options.side) & wanted;
        Ok(Self {
            name: format!("vhost-user:{}", options.path.display()),
            vhost,
            side: options.side,
            possible: features,
            device: Device::new(features),
            receiver: FrameReceiver::new(
                Incoming::new(link, options.ports, form),
                FRAME_BYTES_MAX,
                PACKETS_MAX,
            ),
            tx_offload: TxOffload::new(link, options.ports, form, features),
            calls: 0,
            chosen: None,
        })
    }

    /// Returns the socket's path with the prefix `vhost-user:`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters of frames.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        &self.tx_offload.stats
    }

    /// Returns the counters of the device.
    #[must_use]
    pub fn machine_stats(&self) -> &VhostStats {
        &self.vhost.stats
    }

    /// Handles messages, and applies the changes that they request. Returns whether anything may have changed.
    fn serve(&mut self) -> bool {
        self.calls = 0;
        if !self.vhost.serve() {
            return false;
        }
        let chosen = self.vhost.chosen();
        if chosen == core::mem::replace(&mut self.chosen, chosen) {
            return true;
        }
        let (form, features) = match chosen {
            None => (Form::Buffers, self.possible),
            Some(bits) => (form_of(bits), device_features(bits, self.side) & self.possible),
        };
        self.receiver.incoming.form = Some(form);
        self.vhost.header_bytes = form.len();
        self.tx_offload.renew(Some(form), features);
        true
    }
}

impl Port for VhostPort {
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
        self.vhost.now_ns = now_ns;
        self.calls += 1;
        if self.calls >= CALLS_MAX {
            let _ = self.serve();
        }
        let Self { receiver, tx_offload, vhost, .. } = self;
        let received = receiver.receive(max, &mut tx_offload.stats, each, |buffers, stats| {
            let mut bytes = buffers.take();
            let arrival = match vhost.receive(&mut bytes) {
                Ok(Some(len)) => return Ok(Arrival::Frame(bytes, len)),
                Ok(None) => Arrival::Nothing,
                Err(fault) => {
                    let is_long = fault == ChainFault::TooLong;
                    stats.count(LiveEvent::ReceiveTruncated, is_long.into());
                    Arrival::Lost
                }
            };
            buffers.put_back(bytes);
            Ok(arrival)
        })?;
        if received > 0 {
            self.vhost.received();
        } else if self.vhost.rests() {
            let _ = self.serve();
        }
        Ok(received)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.receiver.buffers.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let Self { tx_offload, vhost, .. } = self;
        let mut sent = tx_offload.transmit(slices, meta, vhost);
        let features = tx_offload.features();
        // A peer without room may have disconnected or reconnected, and may now accept fewer features than the frame
        // uses.
        let is_sent_again = matches!(sent, Ok(Transmitted::NoRoom))
            && self.serve()
            && self.tx_offload.features().contains(features);
        if is_sent_again {
            sent = self.tx_offload.transmit(slices, meta, &mut self.vhost);
        }
        sent.map_err(|error| broken(&self.name, "send", error))
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let Self { tx_offload, vhost, .. } = self;
        let mut sent = tx_offload.flush(vhost);
        vhost.flush();
        if matches!(sent, Ok(Transmitted::NoRoom)) && self.serve() {
            sent = self.tx_offload.flush(&mut self.vhost);
            self.vhost.flush();
        }
        sent.map_err(|error| broken(&self.name, "send", error))
    }

    fn deadline(&self) -> Option<u64> {
        self.vhost.deadline().into_iter().chain(self.vhost.looks_again().then_some(0)).min()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        let of_frames = self.stats().counters();
        of_frames.chain(self.machine_stats().counters()).for_each(|(counter, value)| {
            each(counter, value);
        });
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.vhost.descriptor())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frames_kick(&self) -> Option<BorrowedFd<'_>> {
        self.vhost.frames_notification()
    }

    fn room_kick(&self) -> Option<BorrowedFd<'_>> {
        self.vhost.buffers_notification()
    }
}

/// Returns the format of the virtio header that a guest with the features `chosen` uses.
fn form_of(chosen: u64) -> Form {
    if chosen & (bits::VERSION_1 | bits::MRG_RXBUF) == 0 { Form::Short } else { Form::Buffers }
}

/// Port features, each with the virtio bits that allow frames to the guest, and frames from the guest, to use it.
const WORDS: [(Features, u64, u64); 4] = [
    (Features::CHECKSUM_GENERIC, bits::GUEST_CSUM, bits::CSUM),
    (Features::TCP_SEGMENTATION, bits::GUEST_TSO4, bits::HOST_TSO4),
    (Features::TCP6_SEGMENTATION, bits::GUEST_TSO6, bits::HOST_TSO6),
    (Features::UDP_SEGMENTATION, bits::GUEST_USO4 | bits::GUEST_USO6, bits::HOST_USO),
];

/// Returns the virtio feature bits for `features`, which are offered to a guest or requested from a device.
fn offered_bits(features: Features, side: VhostSide) -> u64 {
    let mut offered = match side {
        VhostSide::Device => bits::OF_RINGS | bits::OF_MOVES,
        VhostSide::Driver => bits::OF_RINGS,
    };
    for (_, to, from) in WORDS.iter().filter(|(feature, ..)| features.contains(*feature)) {
        offered |= to | from;
    }
    let has_tcp = offered & (bits::GUEST_TSO4 | bits::GUEST_TSO6) != 0;
    if has_tcp && features.contains(Features::TCP_ECN_SEGMENTATION) {
        offered |= bits::GUEST_ECN | bits::HOST_ECN;
    }
    offered
}

/// Returns the features that frames from the port may use if the negotiated feature bits are `chosen`.
fn device_features(chosen: u64, side: VhostSide) -> Features {
    let mut features = Features::SCATTER_GATHER | Features::GSO_ROBUST;
    let of_side = |to_guest, from_guest| match side {
        VhostSide::Device => to_guest,
        VhostSide::Driver => from_guest,
    };
    for (feature, to_guest, from_guest) in WORDS {
        let needed = of_side(to_guest, from_guest);
        if chosen & needed == needed {
            features |= feature;
        }
    }
    if chosen & of_side(bits::GUEST_TSO4, bits::HOST_TSO4) != 0 {
        features |= Features::TCP_MANGLEID_SEGMENTATION;
    }
    if chosen & of_side(bits::GUEST_ECN, bits::HOST_ECN) != 0 {
        features |= Features::TCP_ECN_SEGMENTATION;
    }
    features.active()
}

/// Number of calls after which messages are checked even if there are frames.
const CALLS_MAX: u32 = 64;
