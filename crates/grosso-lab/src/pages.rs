//! Receive pages that hold several packets, like those of the NIC in table R1.
//!
//! A page is a block of a packet socket's ring. Packets stay in their page while they are merged and sent; the page
//! returns to the kernel when its last packet is released, as the driver of 2007 freed a page. Other ports use slots of
//! one packet, because a single held packet occupies a whole page.

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

/// The wire port of a data path that acts as the receiver's NIC, with one of two kinds of receive buffers.
#[derive(Debug)]
pub(crate) enum NicWire {
    /// Buffers of one packet.
    Slots(LivePort),
    /// Pages of several packets.
    Pages(PagePort),
}

/// Counts of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCounts {
    /// Packets for which the ring had no room; zero for a TAP, which has no ring.
    pub(crate) drops: u64,
    /// Average number of packets in a page, if the port has pages.
    pub(crate) packets_per_page: Option<f64>,
}

impl NicWire {
    /// Opens an interface with the receive buffers of the layout.
    pub(crate) fn open(name: &str, options: &PacketOptions, layout: &Layout) -> io::Result<Self> {
        match layout.page_bytes {
            Some(bytes) => PagePort::open(name, options, layout, bytes).map(Self::Pages),
            None => PacketPort::open(name, options).map(|port| Self::Slots(LivePort::Packet(port))),
        }
    }

    /// Returns the counts of the ring since it was opened.
    pub(crate) fn counts(&mut self) -> io::Result<RingCounts> {
        match self {
            Self::Slots(port) => port_counts(port),
            Self::Pages(port) => port.counts(),
        }
    }
}

/// Returns the counts of the ring of a port without pages.
pub(crate) fn port_counts(port: &mut LivePort) -> io::Result<RingCounts> {
    let drops = port.stats()?.events(LiveEvent::ReceiveRingFull);
    Ok(RingCounts { drops, packets_per_page: None })
}

/// Calls a method of the port with either kind of buffer.
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

/// A port on an interface that receives into pages, and sends as a [`PacketPort`] does.
#[derive(Debug)]
pub(crate) struct PagePort {
    ring: BlockRing,
    sender: PacketPort,
    /// Packets that were dropped because their virtio header is invalid or announces a superframe, or because they are
    /// longer than a page.
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

    /// Drops the buffer, which returns the page if it holds no other packet.
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

/// Returns a packet, which stays in its page, with the metadata from its virtio header. The wire carries no
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
