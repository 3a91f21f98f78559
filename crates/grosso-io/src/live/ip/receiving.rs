//! Receives packets from a packet socket. The packets start with the IP header, and their metadata comes from the
//! kernel.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    vnet::{VnetError, understand},
};
use grosso_sys::packet::{Fanout, IpFilter, PacketSocket, ReceiveRing, RingFrame};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into,
    virtio::{FLAG_NEEDS_CHECKSUM, Form, GSO_NONE, Order, VirtioHeader},
};

use super::IpOptions;
use crate::{
    buffer::{Buffers, PortBuffer},
    live::socket::{SocketEvent, SocketStats},
};

/// The receive ring, the buffers for packets longer than a slot, and the counters for both.
#[derive(Debug)]
pub(super) struct IpReceiver {
    ring: ReceiveRing,
    long: Buffers,
    stack: Stack,
    malformed: u64,
}

impl IpReceiver {
    pub(super) fn open(options: &IpOptions, fanout: Option<Fanout>) -> io::Result<Self> {
        let mut filter = IpFilter::new(&options.protocols, options.local);
        if let [remote] = options.remotes[..] {
            filter = filter.from(remote);
        }
        let mut builder = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        builder = builder.keep_long(true).receive_buffer_bytes(options.buffer_bytes);
        if let Some(fanout) = fanout {
            builder = builder.fanout(fanout);
        }
        let ring = builder.bind_receive_ring_of_ip(&filter, options.layout)?;
        Ok(Self { ring, long: Buffers::new(LONG_BYTES), stack: Stack::new(0), malformed: 0 })
    }

    pub(super) fn fanout_group(&self) -> io::Result<Option<u16>> {
        self.ring.fanout_group()
    }

    /// Passes at most `max` frames to `each`, and returns the number of slots read.
    pub(super) fn receive(
        &mut self,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> io::Result<usize> {
        let mut received = 0;
        while received < max
            && let Some(frame) = self.ring.receive()
        {
            received += 1;
            stats.count(SocketEvent::ReceiveMessage, 1);
            let Some(frame) = self.take(frame, stats) else { continue };
            let packets = frame.meta.gso.map_or(1, |gso| gso.segments);
            stats.count(SocketEvent::ReceiveDatagram, packets.into());
            each(frame);
        }
        if received == 0
            && let Some(error) = self.ring.take_error()?
        {
            return Err(error);
        }
        Ok(received)
    }

    /// Returns a slot to the kernel, or keeps a buffer for reuse.
    pub(super) fn recycle(&mut self, buffer: PortBuffer) {
        self.long.recycle(buffer);
    }

    /// Counts packets that the kernel dropped because the buffer was full, and slots with invalid values.
    pub(super) fn count_drops(&mut self, stats: &mut SocketStats) {
        // A socket that cannot be queried will fail at its next receive call.
        let drops = self.ring.take_statistics().map_or(0, |statistics| statistics.drops);
        stats.count(SocketEvent::ReceiveDropped, drops.into());
        let malformed = self.ring.malformed();
        stats.count(SocketEvent::ReceiveContradictory, malformed - self.malformed);
        self.malformed = malformed;
    }

    /// Returns the packet in a slot, or `None` if it was dropped.
    fn take(&mut self, mut frame: RingFrame, stats: &mut SocketStats) -> Option<Frame<PortBuffer>> {
        let start = frame.network_offset();
        if !frame.truncated() {
            let packet = frame.as_ref().get(start..).unwrap_or_default();
            let meta = understand_at(start, frame.virtio_header(), packet, &mut self.stack);
            frame.skip(start);
            let buffer = frame.into();
            return count(meta, stats).map(|meta| Frame { buffer, meta });
        }
        if frame.status().kept() {
            return self.take_long(start, stats);
        }
        // The kernel had no room for the packet in the socket's queue.
        stats.count(SocketEvent::ReceiveTruncated, 1);
        None
    }

    /// Reads the next packet from the socket's queue, which holds packets longer than a slot. Its
    /// IP header follows `start` bytes of link header.
    fn take_long(&mut self, start: usize, stats: &mut SocketStats) -> Option<Frame<PortBuffer>> {
        let mut bytes = self.long.take();
        let whole = self.ring.receive_long(&mut bytes);
        let whole = whole.ok().flatten();
        if whole.is_some_and(|whole| whole.truncated) {
            stats.count(SocketEvent::ReceiveTruncated, 1);
            self.long.put_back(bytes);
            return None;
        }
        let end = whole.map_or(0, |whole| whole.length);
        let (header, _) = bytes.split_at(VIRTIO_LEN);
        let packet = bytes.get(VIRTIO_LEN + start..end).ok_or(VnetError::Short);
        let stack = &mut self.stack;
        let meta = packet.and_then(|packet| understand_at(start, header, packet, stack));
        let Some(meta) = count(meta, stats) else {
            self.long.put_back(bytes);
            return None;
        };
        let buffer = PortBuffer::filled(bytes, VIRTIO_LEN + start..end);
        Some(Frame { buffer, meta })
    }
}

/// Returns the metadata of a packet. If the metadata is contradictory, counts the packet and returns `None`.
fn count(meta: Result<Meta, VnetError>, stats: &mut SocketStats) -> Option<Meta> {
    stats.count(SocketEvent::ReceiveContradictory, meta.is_err().into());
    meta.ok()
}

/// Decodes the metadata of a packet. The offsets in the virtio header are relative to a point `start` bytes before the
/// IP header. A VLAN tag before the packet has no effect.
fn understand_at(
    start: usize,
    header: &[u8],
    packet: &[u8],
    stack: &mut Stack,
) -> Result<Meta, VnetError> {
    let (mut header, _) =
        VirtioHeader::parse(header, Form::Short, Order::NATIVE).map_err(|_| VnetError::Short)?;
    if header.has(FLAG_NEEDS_CHECKSUM) {
        let moved = usize::from(header.checksum_start).checked_sub(start);
        header.checksum_start = moved.ok_or(VnetError::ChecksumOutside)? as u16;
    }
    if header.gso_type != GSO_NONE {
        dissect_into(packet, LinkType::Raw, &Ports::NONE, stack);
    }
    understand(&header, packet, LinkType::Raw, stack, Form::Short)
}

impl AsFd for IpReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Length of the virtio header before a packet read from the socket's queue, in bytes.
const VIRTIO_LEN: usize = Form::Short.len();
/// Size in bytes of a buffer for a virtio header, the link header, and the longest IP packet that is not a jumbogram.
const LONG_BYTES: usize = VIRTIO_LEN + 256 + (64 << 10) + 40;
