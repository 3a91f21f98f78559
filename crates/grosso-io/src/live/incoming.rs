//! Receives frames from a device: reads the frames of one poll, and decodes their metadata from the virtio headers.

use grosso::{
    Frame, Meta,
    meta::GsoSize,
    vnet::{VnetError, understand, understand_packet},
};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into, ethernet,
    virtio::{Form, GSO_NONE, Order, VirtioHeader, field},
};

use super::stats::{LiveEvent, LiveStats};
use crate::{
    buffer::{Buffers, PortBuffer},
    port::PortError,
};

/// Receiver of frames from a device that puts a virtio header before each frame. Header and frame are read into one
/// buffer.
#[derive(Debug)]
pub(super) struct FrameReceiver {
    pub(super) incoming: Incoming,
    pub(super) buffers: Buffers,
    bytes_max: usize,
    packets_max: usize,
}

/// Result of an attempt to read one frame for a [`FrameReceiver`].
#[derive(Debug)]
pub(super) enum Arrival {
    /// A buffer with a frame, and the length of the frame in bytes, which exceeds the buffer if the frame was
    /// truncated.
    Frame(Vec<u8>, usize),
    /// A frame that was lost.
    Lost,
    /// No frame is available now.
    Nothing,
}

impl FrameReceiver {
    /// Creates a receiver of frames of at most `frame_bytes_max` bytes. A call to [`Self::receive`] ends with the frame
    /// that brings the number of packets to `packets_max`.
    pub(super) fn new(incoming: Incoming, frame_bytes_max: usize, packets_max: usize) -> Self {
        let bytes_max = incoming.header_len() + frame_bytes_max;
        // One extra byte is read to detect frames that are too long.
        Self { incoming, buffers: Buffers::new(bytes_max + 1), bytes_max, packets_max }
    }

    /// Passes at most `max` frames to `each`, and returns the number of frames that arrived, including dropped ones.
    /// `next` reads one frame.
    pub(super) fn receive(
        &mut self,
        max: usize,
        stats: &mut LiveStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
        mut next: impl FnMut(&mut Buffers, &mut LiveStats) -> Result<Arrival, PortError>,
    ) -> Result<usize, PortError> {
        let (mut received, mut packets) = (0, 0);
        while received < max && packets < self.packets_max {
            match next(&mut self.buffers, stats)? {
                Arrival::Frame(bytes, len) => {
                    if let Some(frame) = self.frame(bytes, len, stats) {
                        packets += packets_of(&frame);
                        each(frame);
                    }
                }
                Arrival::Lost => {}
                Arrival::Nothing => break,
            }
            received += 1;
        }
        Ok(received)
    }

    /// Returns the frame in a buffer that was just filled, or `None` if it is too long or its metadata is invalid.
    fn frame(
        &mut self,
        bytes: Vec<u8>,
        len: usize,
        stats: &mut LiveStats,
    ) -> Option<Frame<PortBuffer>> {
        let header_len = self.incoming.header_len();
        let packet = bytes.get(..len).filter(|_| len <= self.bytes_max);
        match packet.map(|packet| self.incoming.understand(packet)) {
            Some(Ok(meta)) => {
                return Some(Frame { buffer: PortBuffer::filled(bytes, header_len..len), meta });
            }
            Some(Err(error)) => stats.refuse(error),
            None => stats.count(LiveEvent::ReceiveTruncated, 1),
        }
        self.buffers.put_back(bytes);
        None
    }
}

/// Returns the approximate number of packets in a frame. Headers are counted as payload.
fn packets_of(frame: &Frame<PortBuffer>) -> usize {
    match frame.meta.gso.map(|gso| gso.size) {
        Some(GsoSize::Every(size) | GsoSize::Fragments(size)) => {
            frame.buffer.as_ref().len().div_ceil(size.get().into())
        }
        _ => 1,
    }
}

/// Parser for the virtio headers of received frames, which are untrusted input.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) link: LinkType,
    pub(super) form: Option<Form>,
    ports: Ports,
    stack: Stack,
}

impl Incoming {
    pub(super) fn new(link: LinkType, ports: Ports, form: Option<Form>) -> Self {
        Self { link, form, ports, stack: Stack::new(0) }
    }

    /// Returns the number of bytes before a frame.
    pub(super) fn header_len(&self) -> usize {
        self.form.map_or(0, Form::len)
    }

    /// Returns the metadata of a frame from its virtio header, if the device has virtio headers.
    pub(super) fn understand(&mut self, packet: &[u8]) -> Result<Meta, VnetError> {
        let Some(form) = self.form else { return self.without_header(packet) };
        let behind = packet.get(form.len()..).unwrap_or_default();
        self.understand_apart(packet, behind, form)
    }

    /// Returns the metadata of a frame whose virtio header is stored separately.
    #[inline]
    pub(super) fn understand_apart(
        &mut self,
        header: &[u8],
        frame: &[u8],
        form: Form,
    ) -> Result<Meta, VnetError> {
        if header.get(field::GSO_TYPE.start).is_some_and(|&kind| kind != GSO_NONE) {
            self.dissect_superframe(frame);
        }
        let header = VirtioHeader::parse(header, form, Order::NATIVE);
        let (header, _) = header.map_err(|_| VnetError::Short)?;
        understand(&header, frame, self.link, &self.stack, form)
    }

    /// Works like [`Self::understand_apart`], but only for single packets. Returns `None` for a superframe, or if the
    /// device has no virtio headers.
    #[inline(always)]
    pub(super) fn understand_packet_apart(
        &self,
        header: &[u8],
        packet: &[u8],
    ) -> Option<Result<Meta, VnetError>> {
        let (header, _) = VirtioHeader::parse(header, self.form?, Order::NATIVE).ok()?;
        let is_packet = header.gso_type == GSO_NONE;
        is_packet.then(|| understand_packet(&header, packet.len(), self.link))
    }

    #[inline(never)]
    fn dissect_superframe(&mut self, frame: &[u8]) {
        self.dissect(frame);
    }

    /// Returns the headers of a frame, up to the first header that cannot be dissected.
    pub(super) fn dissect(&mut self, frame: &[u8]) -> &Stack {
        dissect_into(frame, self.link, &self.ports, &mut self.stack);
        &self.stack
    }

    fn without_header(&self, frame: &[u8]) -> Result<Meta, VnetError> {
        let is_short = self.link == LinkType::Ethernet && frame.len() < ethernet::HEADER_LEN;
        if is_short { Err(VnetError::Short) } else { Ok(Meta::default()) }
    }
}
