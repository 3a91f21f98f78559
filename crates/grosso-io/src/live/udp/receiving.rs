//! Receiving datagrams: read in batches, split where the kernel merged several, with their headers
//! rebuilt.

use std::io::{self, IoSliceMut};

use grosso::Frame;
use grosso_sys::datagram::{DatagramSocket, ReceivedMessage};

use crate::{
    buffer::{Buffers, PortBuffer},
    live::socket::{Arrived, Outer, SocketEvent, SocketStats},
};

/// Datagrams read but not handed out yet.
#[derive(Debug)]
pub(super) struct UdpReceiver {
    /// Slots for the messages of one call.
    slots: Vec<u8>,
    received: Vec<ReceivedMessage>,
    /// Index of the next message, and the number of its bytes already handed out.
    message: usize,
    offset: usize,
    buffers: Buffers,
}

impl UdpReceiver {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![0; MESSAGES_MAX * SLOT_BYTES],
            received: Vec::new(),
            message: 0,
            offset: 0,
            buffers: Buffers::new(FRAME_BYTES),
        }
    }

    /// Hands out at most `max` frames, and returns their number.
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
                Some(buffer) => {
                    given += 1;
                    each(Frame::new(buffer));
                }
                None if self.read(socket, stats)? => {}
                None => break,
            }
        }
        stats.count(SocketEvent::ReceiveDatagram, given as u64);
        Ok(given)
    }

    /// Whether datagrams read have yet to be handed out.
    pub(super) fn has_more(&self) -> bool {
        self.message < self.received.len()
    }

    pub(super) fn recycle(&mut self, buffer: PortBuffer) {
        self.buffers.recycle(buffer);
    }

    /// Reads messages into the slots; returns whether there were any.
    fn read(&mut self, socket: &mut DatagramSocket, stats: &mut SocketStats) -> io::Result<bool> {
        let mut slots = self.slots.chunks_exact_mut(SLOT_BYTES);
        let mut parts: [[IoSliceMut<'_>; 1]; MESSAGES_MAX] =
            core::array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
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

    /// The next datagram, after its rebuilt headers.
    fn next(&mut self, socket: &DatagramSocket) -> Option<PortBuffer> {
        loop {
            let message = self.received.get(self.message)?;
            if self.offset >= message.length {
                (self.message, self.offset) = (self.message + 1, 0);
                continue;
            }
            let left = message.length - self.offset;
            let len = message.segment_bytes.map_or(left, |bytes| left.min(bytes.into()));
            let start = self.message * SLOT_BYTES + self.offset;
            self.offset += len;
            let datagram = self.slots.get(start..start + len).unwrap_or_default();
            let arrived = Arrived {
                source: message.source,
                destination: socket.local(),
                traffic_class: message.traffic_class,
                hop_limit: message.hop_limit,
            };
            let headers = Outer::len_over(arrived.destination.is_ipv4());
            let mut bytes = self.buffers.take();
            if bytes.len() < headers + len {
                bytes.resize(headers + len, 0);
            }
            let (header, rest) = bytes.split_at_mut(headers);
            arrived.write(header, len);
            rest[..len].copy_from_slice(datagram);
            return Some(PortBuffer::filled(bytes, 0..headers + len));
        }
    }
}

/// Messages read in one call, each of up to a superframe of datagrams.
const MESSAGES_MAX: usize = 16;
/// Size of a slot in bytes: more than any message, which is less than 64 KiB.
const SLOT_BYTES: usize = 64 << 10;
/// Initial size of a buffer in bytes, for datagrams of Ethernet's usual MTU; buffers grow.
const FRAME_BYTES: usize = 2048;
