//! Options for opening a packet socket, with or without a ring.

use core::ffi::c_int;
use std::io;

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::net::{bind, socket_with, sockopt};

use super::{
    BlockLayout, BlockRing, Fanout, IpFilter, PacketSocket, ReceiveRing, RingLayout, TransmitRing,
    filter, set_option,
};
use crate::abi;
use crate::interface::{Control, InterfaceName};

/// Options for opening a packet socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketSocketBuilder {
    virtio_bytes: u8,
    ignore_outgoing: bool,
    qdisc_bypass: bool,
    transmit_only: bool,
    promiscuous: bool,
    keep_long: bool,
    receive_buffer_bytes: Option<usize>,
    send_buffer_bytes: Option<usize>,
    fanout: Option<Fanout>,
}

impl PacketSocketBuilder {
    /// Puts a 10-byte virtio header before each packet, in both directions (`PACKET_VNET_HDR`, rule V21).
    pub fn virtio_header(self, on: bool) -> Self {
        self.virtio_header_bytes(if on { 10 } else { 0 })
    }

    /// Puts a virtio header of this length in bytes before each packet, in both directions: 0 for none, 10, or 12
    /// (`PACKET_VNET_HDR_SZ`, Linux 6.6). `bind` rejects other lengths: there is no tunnel format (rule V21).
    pub fn virtio_header_bytes(mut self, bytes: u8) -> Self {
        self.virtio_bytes = bytes;
        self
    }

    /// Ignores packets that the host sends (`PACKET_IGNORE_OUTGOING`, Linux 4.20).
    pub fn ignore_outgoing(mut self, on: bool) -> Self {
        self.ignore_outgoing = on;
        self
    }

    /// Sends directly to the driver, bypassing the queueing discipline (`PACKET_QDISC_BYPASS`). The driver then rejects
    /// packets for which it has no room.
    pub fn qdisc_bypass(mut self, on: bool) -> Self {
        self.qdisc_bypass = on;
        self
    }

    /// Makes the socket receive no packets, so that it does not slow down the receive path of the interface.
    pub fn transmit_only(mut self, on: bool) -> Self {
        self.transmit_only = on;
        self
    }

    /// Makes the interface receive packets for other hosts too, while the socket is open
    /// (`PACKET_MR_PROMISC`).
    pub fn promiscuous(mut self, on: bool) -> Self {
        self.promiscuous = on;
        self
    }

    /// Keeps packets longer than a slot of a [`ReceiveRing`] whole in the socket's queue, for
    /// [`ReceiveRing::receive_long`] (`PACKET_COPY_THRESH`).
    pub fn keep_long(mut self, on: bool) -> Self {
        self.keep_long = on;
        self
    }

    /// Sets the size of the receive buffer in bytes, including the kernel's bookkeeping, beyond which packets are
    /// dropped. A [`ReceiveRing`] uses it for packets longer than a slot.
    ///
    /// With the necessary privilege, the size may exceed the system's limit; otherwise it is silently reduced to the
    /// limit.
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the size of the send buffer in bytes, including the kernel's bookkeeping, beyond which sending would block.
    /// The limits are the same as for [`PacketSocketBuilder::receive_buffer_bytes`].
    pub fn send_buffer_bytes(mut self, bytes: usize) -> Self {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// Shares the interface's packets among the sockets of a group (`PACKET_FANOUT`).
    pub fn fanout(mut self, fanout: Fanout) -> Self {
        self.fanout = Some(fanout);
        self
    }

    /// Opens the socket in the calling thread's network namespace. The socket receives packets of all protocols.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_NET_RAW` in the namespace, `ENODEV` if there is no such device, `ENETDOWN` if the
    /// interface is down, or `EINVAL` for an unsupported virtio header length or a fanout group with other settings.
    pub fn bind(self, interface: &InterfaceName) -> io::Result<PacketSocket> {
        let socket = self.open()?;
        self.attach(&socket, interface)?;
        Ok(socket)
    }

    /// Opens a socket that receives into a mapped ring.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind`], `ENOMEM` if the kernel cannot allocate the ring, and
    /// [`io::ErrorKind::InvalidInput`] for an invalid layout.
    pub fn bind_receive_ring(
        self,
        interface: &InterfaceName,
        layout: RingLayout,
    ) -> io::Result<ReceiveRing> {
        // The ring is created first: packets received before it would stay in the socket's queue, which is not read.
        let ring = ReceiveRing::new(self.open()?, layout)?;
        self.attach(ring.socket(), interface)?;
        Ok(ring)
    }

    /// Opens a socket that receives into blocks, each of which holds several packets.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind_receive_ring`].
    pub fn bind_block_ring(
        self,
        interface: &InterfaceName,
        layout: BlockLayout,
    ) -> io::Result<BlockRing> {
        let ring = BlockRing::new(self.open()?, layout)?;
        self.attach(ring.socket(), interface)?;
        Ok(ring)
    }

    /// Opens a receive ring for the packets from all interfaces in the calling thread's network namespace, including
    /// interfaces created later; [`RingFrame::interface`](super::RingFrame::interface) distinguishes them. No interface
    /// becomes promiscuous.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind_receive_ring`], except the errors of a particular
    /// interface.
    pub fn bind_receive_ring_of_all(self, layout: RingLayout) -> io::Result<ReceiveRing> {
        let ring = ReceiveRing::new(self.open()?, layout)?;
        self.promiscuous(false).attach_to(ring.socket(), ANY_INTERFACE, abi::ETH_P_ALL)?;
        Ok(ring)
    }

    /// Opens a receive ring for packets that pass a filter program. The kernel runs the program.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind_receive_ring`], and an error if the kernel rejects the
    /// program.
    #[cfg(feature = "pcap")]
    pub fn bind_receive_ring_through(
        self,
        interface: &InterfaceName,
        layout: RingLayout,
        program: &crate::pcap::Program,
    ) -> io::Result<ReceiveRing> {
        let ring = ReceiveRing::new(self.open()?, layout)?;
        crate::filter::attach(&ring.socket().file, &program.instructions())?;
        self.attach(ring.socket(), interface)?;
        Ok(ring)
    }

    /// Opens a receive ring for IP packets to this host that pass the filter, from any interface. Packets are received
    /// as they arrive, before the firewall and before reassembly.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind_receive_ring`], except the errors of a particular
    /// interface.
    pub fn bind_receive_ring_of_ip(
        self,
        filter: &IpFilter,
        layout: RingLayout,
    ) -> io::Result<ReceiveRing> {
        let ring = ReceiveRing::new(self.open()?, layout)?;
        filter.attach(&ring.socket().file)?;
        self.attach_to(ring.socket(), ANY_INTERFACE, filter.ethertype())?;
        Ok(ring)
    }

    /// Opens a socket that sends from a mapped ring and receives no packets.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PacketSocketBuilder::bind_receive_ring`].
    pub fn bind_transmit_ring(
        self,
        interface: &InterfaceName,
        layout: RingLayout,
    ) -> io::Result<TransmitRing> {
        let ring = TransmitRing::new(self.open()?, layout)?;
        self.transmit_only(true).attach(ring.socket(), interface)?;
        Ok(ring)
    }

    /// Creates a socket with its options. The socket has protocol 0, so that it receives no packets from other
    /// interfaces before it is bound.
    fn open(self) -> io::Result<PacketSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let on: c_int = 1;
        set_option(&file, abi::PACKET_AUXDATA, &on)?;
        match self.virtio_bytes {
            0 => {}
            10 => set_option(&file, abi::PACKET_VNET_HDR, &on)?,
            bytes => set_option(&file, abi::PACKET_VNET_HDR_SZ, &c_int::from(bytes))?,
        }
        if self.ignore_outgoing {
            set_option(&file, abi::PACKET_IGNORE_OUTGOING, &on)?;
            if self.fanout.is_some() {
                // Older kernels do not support this flag for a group, so a filter refuses the packets.
                filter::refuse_outgoing(&file)?;
            }
        }
        if self.qdisc_bypass {
            set_option(&file, abi::PACKET_QDISC_BYPASS, &on)?;
        }
        if self.keep_long {
            set_option(&file, abi::PACKET_COPY_THRESH, &on)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            match sockopt::set_socket_recv_buffer_size_force(&file, bytes) {
                Err(Errno::PERM) => sockopt::set_socket_recv_buffer_size(&file, bytes)?,
                result => result?,
            }
        }
        if let Some(bytes) = self.send_buffer_bytes {
            match sockopt::set_socket_send_buffer_size_force(&file, bytes) {
                Err(Errno::PERM) => sockopt::set_socket_send_buffer_size(&file, bytes)?,
                result => result?,
            }
        }
        Ok(PacketSocket { file, virtio_bytes: self.virtio_bytes })
    }

    fn attach(self, socket: &PacketSocket, interface: &InterfaceName) -> io::Result<()> {
        let index = Control::new()?.index(interface)?;
        let protocol = if self.transmit_only { 0 } else { abi::ETH_P_ALL };
        self.attach_to(socket, index, protocol)
    }

    fn attach_to(self, socket: &PacketSocket, index: u32, protocol: u16) -> io::Result<()> {
        bind(&socket.file, &LinkAddress::new(index, protocol))?;
        if self.promiscuous {
            let membership = abi::PacketMembership {
                interface: index as c_int,
                kind: abi::PACKET_MR_PROMISC,
                address_bytes: 0,
                address: [0; 8],
            };
            set_option(&socket.file, abi::PACKET_ADD_MEMBERSHIP, &membership)?;
        }
        // The kernel adds only receiving sockets to a group.
        match self.fanout {
            Some(fanout) => {
                set_option(&socket.file, abi::PACKET_FANOUT, &fanout.argument(self.ignore_outgoing))
            }
            None => Ok(()),
        }
    }
}

/// `struct sockaddr_ll` for binding to one interface or to all, with every protocol or none.
struct LinkAddress(libc::sockaddr_ll);

impl LinkAddress {
    fn new(index: u32, protocol: u16) -> Self {
        Self(libc::sockaddr_ll {
            sll_family: AddressFamily::PACKET.as_raw(),
            sll_protocol: protocol.to_be(),
            sll_ifindex: index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        })
    }
}

// SAFETY: the closure receives a pointer to a complete `struct sockaddr_ll`, which lives until the
// closure returns.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        call: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        call((&raw const self.0).cast(), length)
    }
}

/// Interface index of sockets for all interfaces.
const ANY_INTERFACE: u32 = 0;
