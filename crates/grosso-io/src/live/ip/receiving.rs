//! Packets out of a packet socket: from their IP header on, and with what the kernel knows of them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{Frame, Meta};
use grosso_sys::packet::{Fanout, IpFilter, PacketSocket, ReceiveRing, RingFrame};
use grosso_wire::{
    LinkType, Ports, Stack, dissect_into,
    virtio::{FLAG_NEEDS_CHECKSUM, Form, GSO_NONE, Header, Order},
};

use super::IpOptions;
use crate::{
    live::socket::{SocketEvent, SocketStats},
    vnet::{VnetError, understand},
};

/// What a received packet lies in: a slot of the socket's ring.
#[derive(Debug)]
pub struct IpBuffer {
    frame: RingFrame,
    /// Bytes of the link's header, in front of it.
    start: usize,
}

impl AsRef<[u8]> for IpBuffer {
    fn as_ref(&self) -> &[u8] {
        self.frame.as_ref().get(self.start..).unwrap_or_default()
    }
}

/// The ring, and what was counted of it.
#[derive(Debug)]
pub(super) struct Receiving {
    ring: ReceiveRing,
    stack: Stack,
    malformed: u64,
}

impl Receiving {
    pub(super) fn open(options: &IpOptions, fanout: Option<Fanout>) -> io::Result<Self> {
        let mut filter = IpFilter::new(&options.protocols, options.local);
        if let [remote] = options.remotes[..] {
            filter = filter.from(remote);
        }
        let mut builder = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        if let Some(fanout) = fanout {
            builder = builder.fanout(fanout);
        }
        let ring = builder.bind_receive_ring_of_ip(&filter, options.layout)?;
        Ok(Self { ring, stack: Stack::new(0), malformed: 0 })
    }

    pub(super) fn fanout_group(&self) -> io::Result<Option<u16>> {
        self.ring.fanout_group()
    }

    /// Hands out at most `max` frames, and says how many slots it looked at.
    pub(super) fn receive(
        &mut self,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<IpBuffer>),
    ) -> io::Result<usize> {
        let mut received = 0;
        while received < max
            && let Some(frame) = self.ring.receive()
        {
            received += 1;
            stats.count(SocketEvent::ReceiveMessage, 1);
            if frame.truncated() {
                stats.count(SocketEvent::ReceiveTruncated, 1);
                continue;
            }
            match self.understand(&frame) {
                Ok(meta) => {
                    let packets = meta.gso.map_or(1, |gso| gso.segments);
                    stats.count(SocketEvent::ReceiveDatagram, packets.into());
                    let start = frame.network_offset();
                    each(Frame { buffer: IpBuffer { frame, start }, meta });
                }
                Err(_) => stats.count(SocketEvent::ReceiveContradictory, 1),
            }
        }
        if received == 0
            && let Some(error) = self.ring.take_error()?
        {
            return Err(error);
        }
        Ok(received)
    }

    /// Counts what the kernel had no room for, and slots that made no sense.
    pub(super) fn count_drops(&mut self, stats: &mut SocketStats) {
        // A socket that cannot be asked is found broken when it is received from.
        let drops = self.ring.take_statistics().map_or(0, |statistics| statistics.drops);
        stats.count(SocketEvent::ReceiveDropped, drops.into());
        let malformed = self.ring.malformed();
        stats.count(SocketEvent::ReceiveContradictory, malformed - self.malformed);
        self.malformed = malformed;
    }

    /// What is known about a packet, from its IP header on. A VLAN tag in front of that says nothing to it.
    fn understand(&mut self, frame: &RingFrame) -> Result<Meta, VnetError> {
        let start = frame.network_offset();
        let packet = frame.as_ref().get(start..).ok_or(VnetError::Short)?;
        let (mut header, _) = Header::parse(frame.virtio_header(), Form::Short, Order::NATIVE)
            .map_err(|_| VnetError::Short)?;
        if header.has(FLAG_NEEDS_CHECKSUM) {
            let moved = usize::from(header.checksum_start).checked_sub(start);
            header.checksum_start = moved.ok_or(VnetError::ChecksumOutside)? as u16;
        }
        if header.gso_type != GSO_NONE {
            dissect_into(packet, LinkType::Raw, &Ports::NONE, &mut self.stack);
        }
        understand(&header, packet, LinkType::Raw, &self.stack, Form::Short)
    }
}

impl AsFd for Receiving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
