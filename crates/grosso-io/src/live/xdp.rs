//! A port that accesses an interface through an AF_XDP socket. Each packet is in memory that the port shares with the
//! kernel.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
    vnet::{VnetError, unflagged_partial},
};
use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    xdp::{self, AttachMode, Redirect, XdpOptions, XdpSocket, XdpStatistics},
};
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use super::{
    broken,
    stats::{LiveEvent, LiveStats},
};
use crate::{
    buffer::PortBuffer,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of an AF_XDP port.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct XdpPortOptions {
    /// Queue of the interface.
    pub queue: u32,
    /// Options of the socket. Multi-buffer packets are not supported.
    pub socket: XdpOptions,
    /// Whether to treat the checksum of a packet as partial if the field holds the pseudo-header sum. A sender on the
    /// same host that uses checksum offload sends such packets, and AF_XDP does not mark them. Leave this option off on
    /// an external interface, because packets from other hosts must not be trusted in this way.
    pub assume_partial: bool,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl Default for XdpPortOptions {
    fn default() -> Self {
        let (socket, ports) = (XdpOptions::default(), Ports::ASSIGNED);
        Self { queue: 0, socket, assume_partial: false, ports }
    }
}

/// A port that accesses one queue of an interface through AF_XDP.
#[derive(Debug)]
pub struct XdpPort {
    name: InterfaceName,
    control: Control,
    socket: XdpSocket,
    /// Program attached to the interface. The queues of an interface share it, because an interface can have only one
    /// program.
    program: Arc<Redirect>,
    assume_partial: bool,
    ports: Ports,
    stack: Stack,
    received: Vec<xdp::Frame>,
    waiting: Vec<xdp::Frame>,
    stats: LiveStats,
}

impl XdpPort {
    /// Opens a queue of an interface in the calling thread's network namespace. The socket uses native mode if the
    /// driver supports it, and generic mode otherwise.
    ///
    /// # Errors
    /// Returns any error from [`Redirect::attach`] or [`XdpSocket::bind`].
    pub fn open(name: &str, options: &XdpPortOptions) -> io::Result<Self> {
        let (program, name) = attach(name)?;
        Self::bind(Arc::new(program), name, options)
    }

    /// Opens `queues` consecutive queues of an interface, starting with `options.queue`.
    ///
    /// # Errors
    /// Returns the same errors as [`XdpPort::open`].
    pub fn open_queues(name: &str, options: &XdpPortOptions, queues: u32) -> io::Result<Vec<Self>> {
        let (program, name) = attach(name)?;
        let program = Arc::new(program);
        (0..queues)
            .map(|queue| {
                let options = XdpPortOptions { queue: options.queue + queue, ..*options };
                Self::bind(Arc::clone(&program), name, &options)
            })
            .collect()
    }

    fn bind(
        program: Arc<Redirect>,
        name: InterfaceName,
        options: &XdpPortOptions,
    ) -> io::Result<Self> {
        let control = Control::new()?;
        let socket_options = XdpOptions { multi_buffer: false, ..options.socket };
        let socket = XdpSocket::bind(control.index(&name)?, options.queue, &socket_options)?;
        program.set_socket(options.queue, &socket)?;
        Ok(Self {
            name,
            control,
            socket,
            program,
            assume_partial: options.assume_partial,
            ports: options.ports,
            stack: Stack::new(0),
            received: Vec::new(),
            waiting: Vec::new(),
            stats: LiveStats::default(),
        })
    }

    /// Returns the interface name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the point in the receive path at which packets are redirected.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.program.mode()
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn stats(&self) -> &LiveStats {
        &self.stats
    }

    /// Returns the kernel's counters.
    ///
    /// # Errors
    /// Returns any error from `getsockopt(2)`.
    pub fn kernel_stats(&self) -> io::Result<XdpStatistics> {
        self.socket.statistics()
    }

    fn meta(&mut self, frame: &[u8]) -> Meta {
        if !self.assume_partial {
            return Meta::default();
        }
        dissect_into(frame, LinkType::Ethernet, &self.ports, &mut self.stack);
        let checksum = unflagged_partial(frame, &self.stack).unwrap_or_default();
        Meta { checksum, ..Meta::default() }
    }

    /// Converts a socket error. An interface that is down is not an error, because it may come up again.
    fn failed(&self, action: &'static str, error: io::Error) -> Result<(), PortError> {
        let is_there = self.control.index(&self.name).is_ok();
        match ErrorClass::of(&error) {
            ErrorClass::Down if is_there => Ok(()),
            _ if !is_there => Err(PortError::Gone { name: self.name().to_owned() }),
            _ => Err(broken(self.name(), action, error)),
        }
    }
}

impl Port for XdpPort {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    /// Returns no features, because drivers accept offloads through AF_XDP only with driver-specific metadata.
    fn device(&self) -> Device {
        Device::new(Features::NONE)
    }

    fn receive(
        &mut self,
        _now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let mut received = core::mem::take(&mut self.received);
        let result = self.socket.receive(&mut received, max);
        let count = received.len();
        for buffer in received.drain(..) {
            let meta = self.meta(buffer.as_ref());
            each(Frame { buffer: buffer.into(), meta });
        }
        self.received = received;
        if let Err(error) = result {
            self.failed("receive", error)?;
        } else if count == 0 && self.control.index(&self.name).is_err() {
            return Err(PortError::Gone { name: self.name().to_owned() });
        }
        Ok(count)
    }

    /// Drops the frame, which returns its chunk to the ring.
    fn recycle(&mut self, buffer: PortBuffer) {
        drop(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let Some(mut frame) = self.socket.allocate() else { return Ok(Transmitted::NoRoom) };
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let tag_len = if meta.vlan.is_some() { 4 } else { 0 };
        if frame.set_range(0, bytes + tag_len).is_err() {
            self.stats.count(LiveEvent::TransmitTooLong, 1);
            return Ok(Transmitted::Taken);
        }
        if bytes < ADDRESSES_LEN {
            self.stats.refuse(VnetError::Short);
            return Ok(Transmitted::Taken);
        }
        let target = frame.as_mut();
        let mut at = 0;
        for slice in slices {
            target[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        if let Some(tag) = meta.vlan {
            target[at..at + 2].copy_from_slice(&tag.protocol.to_be_bytes());
            target[at + 2..at + 4].copy_from_slice(&tag.tci.to_be_bytes());
            target[ADDRESSES_LEN..].rotate_right(tag_len);
        }
        self.waiting.push(frame);
        if self.waiting.len() >= BATCH {
            // Frames are kept while there is no room for them. There cannot be more such frames than chunks.
            let _ = self.flush()?;
        }
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let result = match self.waiting.is_empty() {
            true => self.socket.flush(),
            false => self.socket.transmit(&mut self.waiting),
        };
        if let Err(error) = result {
            self.failed("send", error)?;
            // No frame is sent while the interface is down.
            self.stats.count(LiveEvent::TransmitDown, self.waiting.len() as u64);
            self.waiting.clear();
        }
        Ok(if self.waiting.is_empty() { Transmitted::Taken } else { Transmitted::NoRoom })
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.stats.counters().for_each(|(counter, value)| each(counter, value));
        // A socket that cannot be queried will fail at its next receive call.
        let kernel = self.kernel_stats().unwrap_or_default();
        kernel_counters(&kernel).into_iter().for_each(|(counter, value)| each(counter, value));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Attaches the program to an interface.
fn attach(name: &str) -> io::Result<(Redirect, InterfaceName)> {
    let name = InterfaceName::new(name)?;
    let index = Control::new()?.index(&name)?;
    let program = match Redirect::attach(index, AttachMode::Native) {
        Err(error) if ErrorClass::of(&error) == ErrorClass::Unsupported => {
            Redirect::attach(index, AttachMode::Generic)
        }
        result => result,
    }?;
    Ok((program, name))
}

/// Returns the kernel's counters of an AF_XDP socket with their descriptions.
#[must_use]
pub fn kernel_counters(kernel: &XdpStatistics) -> [(PortCounter, u64); 6] {
    let counter = |name, is_loss, sentence| PortCounter { name, is_loss, sentence };
    let too_long =
        "The kernel dropped a frame because it was longer than a chunk, or for another reason.";
    let ring_full = "The kernel dropped a frame because the receive ring was full.";
    let no_chunk = "The kernel dropped a frame because no free chunk was available.";
    let implausible = "The kernel returned a chunk that it did not own.";
    [
        (counter("xdp_rx_dropped", true, too_long), kernel.receive_dropped),
        (counter("xdp_rx_ring_full", true, ring_full), kernel.receive_ring_full),
        (counter("xdp_rx_no_chunk", true, no_chunk), kernel.fill_ring_empty),
        (
            counter(
                "xdp_rx_invalid",
                false,
                "The kernel rejected an invalid entry of the fill ring.",
            ),
            kernel.receive_invalid,
        ),
        (
            counter(
                "xdp_tx_invalid",
                true,
                "The kernel rejected a frame because its entry in the transmit ring is invalid.",
            ),
            kernel.transmit_invalid,
        ),
        (counter("xdp_implausible", false, implausible), kernel.implausible),
    ]
}

/// Number of frames handed to the kernel in one call.
const BATCH: usize = 64;
/// Length in bytes of an Ethernet frame's addresses, which precede the tag or the EtherType.
const ADDRESSES_LEN: usize = 12;
