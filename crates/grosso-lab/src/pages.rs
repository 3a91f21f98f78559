//! Receive pages that hold several packets, like those of the NIC in table R1.
//!
//! A page is a block in a packet socket's ring. Packets stay in their page while they are merged and sent. When its
//! last packet is released, the page returns to the kernel, just as the driver of 2007 freed its pages. Other ports use
//! a slot for each packet, because a single held packet keeps a whole page occupied.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{Frame, vnet::understand_packet};
use grosso_io::{
    Port, PortBuffer, PortError, delegate_port,
    live::{LiveEvent, LivePort, PacketOptions, PacketPort},
    port::PortCounter,
};
use grosso_sys::{
    interface::InterfaceName,
    packet::{BlockPacket, BlockRing, PacketSocket},
};
use grosso_wire::{
    LinkType,
    virtio::{Form, GSO_NONE, Order, VirtioHeader},
};

use crate::netns::Layout;

/// Wire port of a data path that acts as the receiver's NIC, with one of two kinds of receive buffers.
#[derive(Debug)]
pub(crate) enum NicWire {
    /// Buffers for one packet each.
    Slots(LivePort),
    /// Pages that each hold several packets.
    Pages(PagePort),
}

/// Counters of a receive ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCounts {
    /// Number of packets that did not fit into the ring; zero for a TAP device, which has no ring.
    pub(crate) drops: u64,
    /// Mean number of packets per page, if the port has pages.
    pub(crate) packets_per_page: Option<f64>,
}

impl NicWire {
    /// Opens an interface with the receive buffers that the layout specifies.
    pub(crate) fn open(name: &str, options: &PacketOptions, layout: &Layout) -> io::Result<Self> {
        match layout.page_bytes {
            Some(bytes) => PagePort::open(name, options, layout, bytes).map(Self::Pages),
            None => PacketPort::open(name, options).map(|port| Self::Slots(LivePort::Packet(port))),
        }
    }

    /// Returns the counters of the ring since it was opened.
    pub(crate) fn counts(&mut self) -> io::Result<RingCounts> {
        match self {
            Self::Slots(port) => port_counts(port),
            Self::Pages(port) => port.counts(),
        }
    }
}

/// Returns the counters of a port whose ring has no pages.
pub(crate) fn port_counts(port: &mut LivePort) -> io::Result<RingCounts> {
    let drops = port.stats()?.events(LiveEvent::ReceiveRingFull);
    Ok(RingCounts { drops, packets_per_page: None })
}

/// Calls a method of the port, whichever kind of buffer it has.
macro_rules! with {
    ($wire:expr, $port:ident => $call:expr) => {
        match $wire {
            NicWire::Slots($port) => $call,
            NicWire::Pages($port) => $call,
        }
    };
}

impl Port for NicWire {
    delegate_port!(with!: link, device, receive, recycle, transmit, flush, deadline, descriptors);
    delegate_port!(with!: path_mtu, counters, is_finished);
}

/// A port that receives into pages, and sends like a [`PacketPort`].
#[derive(Debug)]
pub(crate) struct PagePort {
    ring: BlockRing,
    sender: PacketPort,
    /// Number of packets that were dropped because their virtio header was invalid or described a superframe, or
    /// because they were longer than a page.
    refused: u64,
}

impl PagePort {
    fn open(
        name: &str,
        options: &PacketOptions,
        layout: &Layout,
        page_bytes: usize,
    ) -> io::Result<Self> {
        let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let ring = socket.bind_block_ring(&InterfaceName::new(name)?, layout.pages(page_bytes))?;
        let mut options = *options;
        options.transmit_only = true;
        Ok(Self { ring, sender: PacketPort::open(name, &options)?, refused: 0 })
    }

    fn counts(&self) -> io::Result<RingCounts> {
        let counts = self.ring.counts();
        let lost = u64::from(self.ring.take_statistics()?.drops) + self.refused + counts.malformed;
        let packets_per_page =
            (counts.blocks > 0).then(|| counts.packets as f64 / counts.blocks as f64);
        Ok(RingCounts { drops: lost, packets_per_page })
    }
}

impl Port for PagePort {
    delegate_port!(sender: link, device, transmit, flush, deadline, path_mtu, is_finished);

    fn receive(
        &mut self,
        _: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let mut received = 0;
        while received < max {
            let Some(packet) = self.ring.receive() else { break };
            match frame(packet) {
                Some(frame) => {
                    received += 1;
                    each(frame);
                }
                None => self.refused += 1,
            }
        }
        Ok(received)
    }

    /// Drops the buffer, which returns the page to the kernel if it holds no other packets.
    fn recycle(&mut self, _: PortBuffer) {}

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.sender.counters(each);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.sender.transmit_descriptor()
    }
}

/// Returns a packet, which stays in its page, with the metadata from its virtio header. The wire never delivers
/// superframes.
fn frame(packet: BlockPacket) -> Option<Frame<PortBuffer>> {
    let (header, _) =
        VirtioHeader::parse(packet.virtio_header(), Form::Short, Order::NATIVE).ok()?;
    if header.gso_type != GSO_NONE || packet.truncated() {
        return None;
    }
    let bytes = packet.as_ref().len();
    let meta = understand_packet(&header, bytes, LinkType::Ethernet).ok()?;
    let (page, range) = packet.into_block();
    Some(Frame { buffer: PortBuffer::shared(page, range), meta })
}
