//! Receives datagrams in batches, splits messages that the kernel merged, and rebuilds the headers.

use std::io::{self, IoSliceMut};

use grosso::{Frame, Meta, meta::Gso};
use grosso_sys::datagram::{DatagramSocket, ReceivedMessage};
use grosso_wire::{Extent, Kind, LinkType, Ports, Stack, Stop, dissect_into};

use crate::{
    buffer::{Buffers, PortBuffer},
    live::socket::{Arrived, Outer, SocketEvent, SocketStats},
};

/// Datagrams that have been read but not passed on.
#[derive(Debug)]
pub(super) struct UdpReceiver {
    /// Slots for the messages of one call.
    slots: Vec<u8>,
    received: Vec<ReceivedMessage>,
    /// Index of the next message.
    message: usize,
    /// Number of bytes of this message that have been passed on.
    offset: usize,
    buffers: Buffers,
    /// UDP ports that identify tunnels.
    ports: Ports,
    stack: Stack,
}

impl UdpReceiver {
    pub(super) fn new(ports: Ports) -> Self {
        Self {
            slots: vec![0; MESSAGES_MAX * SLOT_BYTES],
            received: Vec::new(),
            message: 0,
            offset: 0,
            buffers: Buffers::new(FRAME_BYTES),
            ports,
            stack: Stack::new(0),
        }
    }

    /// Passes at most `max` frames to `each`, and returns the number of frames.
    pub(super) fn receive(
        &mut self,
        socket: &mut DatagramSocket,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> io::Result<usize> {
        let mut given = 0;
        while given < max {
            match self.next(socket) {
                Some(frame) => {
                    given += 1;
                    each(frame);
                }
                None if self.read(socket, stats)? => {}
                None => break,
            }
        }
        stats.count(SocketEvent::ReceiveDatagram, given as u64);
        Ok(given)
    }

    /// Returns whether datagrams have been read but not passed on.
    pub(super) fn has_more(&self) -> bool {
        self.message < self.received.len()
    }

    pub(super) fn recycle(&mut self, buffer: PortBuffer) {
        self.buffers.recycle(buffer);
    }

    /// Reads messages into the slots, and returns whether any arrived.
    fn read(&mut self, socket: &mut DatagramSocket, stats: &mut SocketStats) -> io::Result<bool> {
        let mut slots = self.slots.chunks_exact_mut(SLOT_BYTES);
        let mut parts: [[IoSliceMut<'_>; 1]; MESSAGES_MAX] = core::array::from_fn(|_| {
            let slot = slots.next().unwrap_or_default();
            [IoSliceMut::new(slot.get_mut(HEADERS_MAX..).unwrap_or_default())]
        });
        let mut messages = parts.each_mut().map(|parts| &mut parts[..]);
        let count = socket.receive_batch(&mut messages, &mut self.received)?;
        (self.message, self.offset) = (0, 0);
        stats.count(SocketEvent::ReceiveMessage, count as u64);
        let truncated = self.received.iter_mut().filter(|message| message.truncated);
        for message in truncated {
            message.length = 0;
            stats.count(SocketEvent::ReceiveTruncated, 1);
        }
        Ok(count > 0)
    }

    /// Returns the next datagram with its rebuilt headers.
    fn next(&mut self, socket: &DatagramSocket) -> Option<Frame<PortBuffer>> {
        loop {
            let message = self.received.get(self.message)?;
            let (length, segment_bytes) = (message.length, message.segment_bytes);
            if self.offset >= length {
                (self.message, self.offset) = (self.message + 1, 0);
                continue;
            }
            let arrived = Arrived {
                source: message.source,
                destination: socket.local(),
                traffic_class: message.traffic_class,
                hop_limit: message.hop_limit,
            };
            let left = length - self.offset;
            let many = segment_bytes.filter(|&bytes| usize::from(bytes) < left);
            let is_first = self.offset == 0;
            let gso =
                many.filter(|_| is_first).and_then(|bytes| self.inside(length, &arrived, bytes));
            let len = many.filter(|_| gso.is_none()).map_or(left, usize::from);
            let start = self.message * SLOT_BYTES + HEADERS_MAX + self.offset;
            self.offset += len;
            let datagram = self.slots.get(start..start + len).unwrap_or_default();
            let headers = Outer::len_over(arrived.destination.is_ipv4());
            let mut bytes = self.buffers.take();
            if bytes.len() < headers + len {
                bytes.resize(headers + len, 0);
            }
            let (header, rest) = bytes.split_at_mut(headers);
            arrived.write(header, len);
            rest[..len].copy_from_slice(datagram);
            let buffer = PortBuffer::filled(bytes, 0..headers + len);
            return Some(Frame { buffer, meta: Meta { gso, ..Meta::default() } });
        }
    }

    /// Returns the segmentation of a message of this length if it is one datagram that contains a UDP superframe, which
    /// a kernel on this host left for a device to segment. The kernel reports a segment size in this case too, as for
    /// merged datagrams, but merged datagrams each have their own inner length (B29).
    fn inside(&mut self, length: usize, arrived: &Arrived, bytes: u16) -> Option<Gso> {
        let headers = Outer::len_over(arrived.destination.is_ipv4());
        let start = self.message * SLOT_BYTES + HEADERS_MAX - headers;
        let frame = self.slots.get_mut(start..start + headers + length)?;
        arrived.write(&mut frame[..headers], length);
        let stack = &mut self.stack;
        dissect_into(frame, LinkType::Raw, &self.ports, stack);
        let is_tunnel = stack.layers().iter().filter(|layer| layer.kind.is_ip()).count() > 1;
        let is_udp = stack.last().is_some_and(|layer| layer.kind == Kind::Udp);
        let is_whole = stack.stop == Stop::Payload && stack.extent == Extent::Exact;
        Gso::every(bytes).filter(|_| is_tunnel && is_udp && is_whole)
    }
}

/// Number of messages read in one call. Each message may contain as many datagrams as a superframe has packets.
const MESSAGES_MAX: usize = 16;
/// Size of a slot in bytes. It suffices for the headers and the longest message, which is shorter than 64 KiB.
const SLOT_BYTES: usize = HEADERS_MAX + (64 << 10);
/// Length of the longest rebuilt headers in bytes.
const HEADERS_MAX: usize = Outer::len_over(false);
/// Initial size of a buffer in bytes, enough for datagrams at the usual Ethernet MTU. Buffers grow when necessary.
const FRAME_BYTES: usize = 2048;
