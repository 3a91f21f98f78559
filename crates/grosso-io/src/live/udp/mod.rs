//! A port that uses UDP sockets. The frames are the packets on the wire, starting with the IP header.

mod receiving;

use std::{
    hash::{BuildHasher, RandomState},
    io, iter,
    net::{IpAddr, SocketAddr},
    ops::{Range, RangeInclusive},
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame,
    tunnel::{Endpoint, Header, decapsulate::OuterChecksum},
};
use grosso_sys::{
    datagram::{DatagramSocket, DatagramSocketBuilder, Protocol},
    errno::ErrorClass,
};
use grosso_wire::Ports;

use self::receiving::UdpReceiver;
use super::socket::{
    BuiltHeaders, DatagramPort, Outer, Paths, SocketEvent, SocketSender, SocketStats, Sockets,
};
use crate::{buffer::PortBuffer, delegate_port, notice::Notice, port::Port};

/// Options of a port on UDP sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// Address and port for receiving. The address is also the source address of sent datagrams.
    pub local: SocketAddr,
    /// Addresses of the remote endpoints. The smallest of their path MTUs applies.
    pub remotes: Vec<IpAddr>,
    /// Source ports of sent datagrams. The range is split among up to [`Self::senders_max`] sockets, and each socket
    /// binds a free port in its part of the range, preferably the first one. If the receiving port is the only port in
    /// the range, the receiving socket also sends.
    pub source_ports: RangeInclusive<u16>,
    /// Maximum number of sending sockets, 1 to [`SOURCE_PORTS_MAX`]. Datagrams of different sockets may be reordered.
    pub senders_max: usize,
    /// Whether sent datagrams have a checksum, which the kernel computes.
    pub sends_checksum: bool,
    /// Whether to receive datagrams without a checksum over IPv6. Over IPv4, such datagrams are always received.
    pub takes_no_checksum: bool,
    /// Whether to drop datagrams without a checksum, so that the kernel has verified every received datagram.
    pub wants_checksum: bool,
    /// TTL or hop limit of most frames.
    pub hop_limit: u8,
    /// Flow label of all frames over IPv6; `None` lets the kernel derive it from the flow.
    pub flow_label: Option<u32>,
    /// Whether several ports receive at the same address and share the flows.
    pub shared: bool,
    /// Size of each socket's send and receive buffer in bytes. The system limits the size.
    pub buffer_bytes: usize,
    /// Whether to probe the path MTU to the remote endpoints with echo requests.
    pub probes: bool,
    /// Callback that is called when the route to a remote endpoint changes to another link.
    pub route_notice: Option<Notice>,
    /// Whether to let the kernel segment superframes if it can (`UDP_SEGMENT`).
    pub segmentation: bool,
    /// Whether to let the kernel merge datagrams of a flow (`UDP_GRO`).
    pub coalescing: bool,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl UdpOptions {
    /// Creates options for a port at this address that sends and receives frames of any kind.
    #[must_use]
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            remotes: Vec::new(),
            source_ports: local.port()..=local.port(),
            senders_max: SOURCE_PORTS_MAX,
            sends_checksum: true,
            takes_no_checksum: false,
            wants_checksum: false,
            hop_limit: 64,
            flow_label: None,
            shared: false,
            buffer_bytes: 4 << 20,
            probes: true,
            route_notice: None,
            segmentation: true,
            coalescing: true,
            ports: Ports::ASSIGNED,
        }
    }

    /// Creates options for the outer frames of a tunnel. Returns `None` for a tunnel that does not use UDP.
    ///
    /// If the tunnel has checksums and accepts remote checksum offload, datagrams without a checksum are dropped,
    /// because nothing would protect them (rule C54).
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Option<Self> {
        let udp = endpoint.udp()?;
        // The remote endpoint drops late packets (rule W51), regardless of their flow.
        let is_numbered = matches!(endpoint.header, Header::Gre { sequence: true, .. });
        Some(Self {
            remotes: vec![endpoint.remote],
            source_ports: udp.source.clone(),
            senders_max: if is_numbered { 1 } else { SOURCE_PORTS_MAX },
            sends_checksum: udp.checksum,
            takes_no_checksum: udp.ipv6_without_checksum,
            wants_checksum: udp.remote_checksum.receive,
            flow_label: endpoint.flow_label,
            ports: endpoint.ports(),
            ..Self::new(SocketAddr::new(endpoint.local, udp.destination))
        })
    }
}

/// A port that receives through one UDP socket and sends through several. Each sending socket has a different source
/// port, so that the network can distinguish flows.
///
/// Frames have [`LinkType::Raw`](grosso_wire::LinkType::Raw) and start with the outer IP header, which the kernel
/// builds. The kernel copies the destination, ports, traffic class, hop limit and DF bit of a transmitted frame. It
/// chooses the identification and, without [`UdpOptions::flow_label`], also the flow label. The outer headers of a
/// received frame have no UDP checksum, even if the datagram had one.
///
/// A datagram that a kernel on the same host has sent may contain a superframe. A UDP superframe is reported as such; a
/// TCP superframe is received as a long packet, because sockets do not report its segment size.
///
/// The port accepts superframes with any inner headers, and partial checksums. Inner headers and checksums are computed
/// here while the payload stays in place; the kernel copies it once, segments it into datagrams and computes the outer
/// checksums (`UDP_SEGMENT`). The kernel cannot segment datagrams without outer checksums, so these are sent as a
/// batch. If the kernel rejects a superframe, the port counts this and permanently switches to batches.
///
/// Datagrams that exceed the MTU of the link are sent in fragments. This limit becomes lower in two cases: if an ICMPv6
/// message quotes a datagram of this port, or if long echo requests are lost while short ones are answered (RFC 8899).
/// Without `CAP_NET_RAW` the port can perform neither check, and follows the kernel's path MTU.
#[derive(Debug)]
pub struct UdpPort {
    port: DatagramPort<UdpSockets>,
}

/// The receiving socket and the sending sockets.
#[derive(Debug)]
struct UdpSockets {
    receiver: DatagramSocket,
    /// Sending sockets. There are none if datagrams are sent from the receiving socket.
    senders: Vec<DatagramSocket>,
    source_ports: RangeInclusive<u16>,
    /// Whether every received datagram has a checksum that the kernel has verified.
    is_verified: bool,
    receiving: UdpReceiver,
    /// The kernel's drop count at the last query.
    drops: u32,
}

impl UdpPort {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns any error from [`DatagramSocketBuilder::open`].
    pub fn open(options: &UdpOptions) -> io::Result<Self> {
        let receiver = receiver(options).open()?;
        Self::new(receiver, options)
    }

    /// Opens a port that receives through a UDP socket that another program, for example a service manager, has bound.
    ///
    /// # Errors
    /// Returns any error from [`DatagramSocketBuilder::adopt`].
    pub fn adopt(file: std::os::fd::OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        Self::new(receiver(options).adopt(file)?, options)
    }

    fn new(receiver: DatagramSocket, options: &UdpOptions) -> io::Result<Self> {
        let local = receiver.local();
        let senders = open_senders(options, local)?;
        // The kernel does not segment datagrams without a checksum (rule S21).
        let segments = options.segmentation && options.sends_checksum;
        let sending = || SocketSender::new(options.ports, segments);
        let sending = (0..senders.len().max(1)).map(|_| sending()).collect();
        let sockets = UdpSockets {
            receiver,
            senders,
            source_ports: options.source_ports.clone(),
            // Over IPv6, datagrams without a checksum are received only if requested (RFC 8200 section 8.1).
            is_verified: options.wants_checksum || !local.is_ipv4() && !options.takes_no_checksum,
            receiving: UdpReceiver::new(options.ports),
            drops: 0,
        };
        let notice = options.route_notice.clone();
        let paths = Paths::new(local.ip(), &options.remotes, options.probes, notice)?;
        let port = DatagramPort::new(format!("udp {local}"), local.ip(), sockets, sending, paths)?;
        Ok(Self { port })
    }

    /// Returns the port's name for messages, for example `udp 192.0.2.1:4789`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.port.name()
    }

    /// Returns the address and port for receiving.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.port.sockets.receiver.local()
    }

    /// Returns what is known about the UDP checksum of received datagrams. The result is
    /// [`OuterChecksum::VerifiedBelow`] if the kernel drops datagrams without a checksum, because it has then verified
    /// every received datagram.
    #[must_use]
    pub fn outer_checksum(&self) -> OuterChecksum {
        let is_verified = self.port.sockets.is_verified;
        if is_verified { OuterChecksum::VerifiedBelow } else { OuterChecksum::InFrame }
    }

    /// Returns the source ports of sent datagrams.
    pub fn source_ports(&self) -> impl Iterator<Item = u16> {
        let UdpSockets { senders, receiver, .. } = &self.port.sockets;
        let only = senders.is_empty().then_some(receiver);
        senders.iter().chain(only).map(|socket| socket.local().port())
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn stats(&mut self) -> &SocketStats {
        self.port.stats()
    }
}

impl Port for UdpPort {
    delegate_port!(port: link, device, receive, recycle, transmit, flush);
    delegate_port!(port: deadline, descriptors, path_mtu, counters);
}

impl Sockets for UdpSockets {
    const BUILT: BuiltHeaders = BuiltHeaders::Udp;

    fn receive(
        &mut self,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> io::Result<usize> {
        match self.receiving.receive(&mut self.receiver, max, stats, each) {
            Err(error) if ErrorClass::of(&error) == ErrorClass::Unreachable => Ok(0),
            result => result,
        }
    }

    fn has_more(&self) -> bool {
        self.receiving.has_more()
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.receiving.recycle(buffer);
    }

    fn count_drops(&mut self, stats: &mut SocketStats) {
        // A socket that cannot be queried will fail at its next receive call.
        let drops = self.receiver.drops().unwrap_or(self.drops);
        let new = drops.wrapping_sub(self.drops);
        self.drops = drops;
        stats.count(SocketEvent::ReceiveDropped, new.into());
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Returns the index of the socket whose share of the port range contains the source port.
    fn index(&self, outer: &Outer) -> Option<usize> {
        let (first, last) = (*self.source_ports.start(), *self.source_ports.end());
        let width = usize::from(last.saturating_sub(first)) + 1;
        let offset = usize::from(outer.source_port.saturating_sub(first)).min(width - 1);
        Some(offset * self.senders.len().max(1) / width)
    }

    fn sender(&self, index: usize) -> &DatagramSocket {
        self.senders.get(index).unwrap_or(&self.receiver)
    }

    fn sender_mut(&mut self, index: usize) -> &mut DatagramSocket {
        self.senders.get_mut(index).unwrap_or(&mut self.receiver)
    }

    fn heed_path(&mut self, is_narrow: bool) -> io::Result<()> {
        let mut sockets = self.senders.iter_mut().chain([&mut self.receiver]);
        sockets.try_for_each(|socket| socket.heed_path(is_narrow))
    }
}

fn receiver(options: &UdpOptions) -> DatagramSocketBuilder {
    DatagramSocketBuilder::new(Protocol::Udp, options.local)
        .shared(options.shared)
        .sends_checksum(options.sends_checksum)
        .takes_no_checksum(options.takes_no_checksum)
        .wants_checksum(options.wants_checksum)
        .coalescing(options.coalescing)
        .hop_limit(options.hop_limit)
        .flow_label(options.flow_label)
        .buffer_bytes(options.buffer_bytes)
}

/// Opens the sending sockets, and binds each to a free port in its part of the range.
fn open_senders(options: &UdpOptions, local: SocketAddr) -> io::Result<Vec<DatagramSocket>> {
    let (first, last) = (*options.source_ports.start(), *options.source_ports.end());
    if (first, last) == (local.port(), local.port()) {
        return Ok(Vec::new());
    }
    let width = usize::from(last.saturating_sub(first)) + 1;
    let count = width.min(options.senders_max.clamp(1, SOURCE_PORTS_MAX));
    let mut senders = Vec::new();
    for i in 0..count {
        let share = (i * width).div_ceil(count)..((i + 1) * width).div_ceil(count);
        let mut refusal = None;
        let opened = places(share).find_map(|place| {
            let port = first + place as u16;
            let builder =
                DatagramSocketBuilder::new(Protocol::Udp, SocketAddr::new(local.ip(), port))
                    .send_only(true)
                    .sends_checksum(options.sends_checksum)
                    .hop_limit(options.hop_limit)
                    .flow_label(options.flow_label)
                    .buffer_bytes(options.buffer_bytes);
            builder.open().map_err(|error| refusal = Some(error)).ok()
        });
        match (opened, refusal) {
            (Some(socket), _) => senders.push(socket),
            (None, Some(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                let message = format!("no free source port from {first} to {last}");
                return Err(io::Error::new(error.kind(), message));
            }
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
    }
    Ok(senders)
}

/// Returns the offsets of the ports to try: the first port, and then all ports, starting at a random one. Other queues
/// on this host have already bound some of the ports. A queue that tried the ports in order would run into each of
/// these before it found a free one.
fn places(share: Range<usize>) -> impl Iterator<Item = usize> {
    let drawn = RandomState::new().hash_one(share.start) as usize % share.len().max(1);
    let from = share.start + drawn;
    iter::once(share.start).chain(from..share.end).chain(share.start..from).take(TRIES_MAX)
}

/// Maximum number of sending sockets. This is also the maximum number of flows that the network is certain to
/// distinguish.
pub const SOURCE_PORTS_MAX: usize = 16;
/// Number of ports tried for a socket before giving up.
const TRIES_MAX: usize = 64;

#[cfg(test)]
mod tests;
