//! A port that uses raw IP sockets, for tunnels that do not use UDP.

mod receiving;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame,
    tunnel::{Carrier, Endpoint, Header},
};
use grosso_sys::{
    datagram::{DatagramSocket, DatagramSocketBuilder, Protocol},
    packet::{Fanout, FanoutRule, RingLayout},
};
use grosso_wire::{Kind, Ports, ipv4};

use self::receiving::IpReceiver;
use super::socket::{BuiltHeaders, DatagramPort, Outer, Paths, SocketSender, SocketStats, Sockets};
use crate::{buffer::PortBuffer, delegate_port, notice::Notice, port::Port};

/// Options of a port on raw IP sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpOptions {
    /// Address of this host for sending and receiving.
    pub local: IpAddr,
    /// Addresses of the remote endpoints, all of the same family. The smallest of their path MTUs applies. If there is
    /// exactly one remote endpoint, packets from other addresses are not received.
    pub remotes: Vec<IpAddr>,
    /// IP protocols of the packets. There may be at most [`grosso_sys::packet::PROTOCOLS_MAX`].
    pub protocols: Vec<u8>,
    /// TTL or hop limit of most frames.
    pub hop_limit: u8,
    /// Size of each socket's buffer in bytes. The system limits the size. The receiving socket uses the buffer for
    /// packets longer than a slot.
    pub buffer_bytes: usize,
    /// Whether to probe the path MTU to the remote endpoints with echo requests.
    pub probes: bool,
    /// Callback that is called when the route to a remote endpoint changes to another link.
    pub route_notice: Option<Notice>,
    /// Layout of the receive ring.
    pub layout: RingLayout,
}

impl IpOptions {
    /// Creates options for packets of these IP protocols at this address.
    #[must_use]
    pub fn new(local: IpAddr, protocols: Vec<u8>) -> Self {
        Self {
            local,
            remotes: Vec::new(),
            protocols,
            hop_limit: 64,
            buffer_bytes: 4 << 20,
            probes: true,
            route_notice: None,
            layout: RingLayout::PACKETS,
        }
    }

    /// Creates options for the outer frames of a tunnel. Returns `None` for a tunnel over UDP.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Option<Self> {
        let protocols = match (&endpoint.carrier, &endpoint.header) {
            (Carrier::Ip, Header::Gre { .. }) => vec![ipv4::PROTOCOL_GRE],
            (Carrier::Ip, Header::Ip) => {
                let carried =
                    [(Kind::Ipv4, ipv4::PROTOCOL_IPV4), (Kind::Ipv6, ipv4::PROTOCOL_IPV6)];
                let carried = carried.iter().filter(|(kind, _)| endpoint.carries(*kind));
                carried.map(|(_, protocol)| *protocol).collect()
            }
            _ => return None,
        };
        Some(Self { remotes: vec![endpoint.remote], ..Self::new(endpoint.local, protocols) })
    }
}

/// A port that receives through a packet socket and sends through one raw IP socket per protocol. Requires
/// `CAP_NET_RAW`.
///
/// Frames have [`LinkType::Raw`](grosso_wire::LinkType::Raw) and start with the outer IP header. Packets are received
/// as they arrived, from any interface. The kernel builds the header of a transmitted IPv4 packet, with the frame's
/// destination, protocol, traffic class, TTL and DF bit. IPv6 headers are sent unchanged.
///
/// Packets that the kernel merged on arrival (GRO) are received as superframes; a raw socket would receive them without
/// the segment size. A packet socket also receives packets that this host's firewall drops later, and fragments, which
/// [`Fragmentation`](crate::stage::Fragmentation) reassembles. The raw sockets receive nothing, but as long as they are
/// open, the kernel does not report the protocol as unreachable.
///
/// The port accepts superframes with any inner headers, and partial checksums. The kernel does not segment superframes
/// for raw sockets, so the packets are sent as a batch: headers and checksums are computed here, and the payload stays
/// in place until the kernel copies it.
///
/// Only the link MTU decides which packets are too long; ICMP messages do not. IPv4 packets that are too long are sent
/// in fragments. For IPv6 the kernel does not fragment raw packets; use
/// [`FragmentationOptions::follows_path`](crate::stage::FragmentationOptions::follows_path).
#[derive(Debug)]
pub struct IpPort {
    port: DatagramPort<IpSockets>,
}

/// The packet socket for receiving, and the raw sockets for sending.
#[derive(Debug)]
struct IpSockets {
    receiving: IpReceiver,
    /// The sending sockets, each with its protocol.
    senders: Vec<(u8, DatagramSocket)>,
    /// Sockets that send nothing. They are connected so that the kernel learns the MTU of IPv6 paths.
    _witnesses: Vec<DatagramSocket>,
}

impl IpPort {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns any error from [`DatagramSocketBuilder::open`] or from
    /// [`bind_receive_ring_of_ip`](grosso_sys::packet::PacketSocketBuilder::bind_receive_ring_of_ip), and
    /// [`io::ErrorKind::InvalidInput`] if no protocol is configured.
    pub fn open(options: &IpOptions) -> io::Result<Self> {
        Self::with_fanout(options, None)
    }

    /// Opens `queues` ports at the same address. The kernel distributes the flows among them.
    ///
    /// # Errors
    /// Returns the same errors as [`IpPort::open`].
    pub fn open_queues(options: &IpOptions, queues: usize) -> io::Result<Vec<Self>> {
        if queues <= 1 {
            return Ok(vec![Self::open(options)?]);
        }
        // All fragments of a packet must reach the same port. The kernel reassembles IPv4 fragments before the fanout,
        // but not IPv6 fragments.
        let fanout = Fanout::new(FanoutRule::FlowHash).defragment(options.local.is_ipv4());
        let first = Self::with_fanout(options, Some(fanout))?;
        let group = first.port.sockets.receiving.fanout_group()?;
        let fanout = group.map(|group| fanout.join(group));
        let mut ports = vec![first];
        for _ in 1..queues {
            ports.push(Self::with_fanout(options, fanout)?);
        }
        Ok(ports)
    }

    fn with_fanout(options: &IpOptions, fanout: Option<Fanout>) -> io::Result<Self> {
        let local = options.local;
        if options.protocols.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the list of IP protocols to receive is empty",
            ));
        }
        // The raw sockets are opened first, so that the kernel does not report the protocol as
        // unreachable.
        let senders = options.protocols.iter().map(|protocol| sender(*protocol, options));
        let senders = senders.collect::<io::Result<Vec<_>>>()?;
        let sending = senders.iter().map(|_| SocketSender::new(Ports::NONE, false)).collect();
        let sockets = IpSockets {
            receiving: IpReceiver::open(options, fanout)?,
            senders,
            _witnesses: if local.is_ipv4() { Vec::new() } else { witnesses(options)? },
        };
        let notice = options.route_notice.clone();
        let paths = Paths::new(local, &options.remotes, options.probes, notice)?;
        let port = DatagramPort::new(format!("ip {local}"), local, sockets, sending, paths)?;
        Ok(Self { port })
    }

    /// Returns the port's name for messages, for example `ip 192.0.2.1`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.port.name()
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn stats(&mut self) -> &SocketStats {
        self.port.stats()
    }
}

impl Port for IpPort {
    delegate_port!(port: link, device, receive, recycle, transmit, flush);
    delegate_port!(port: deadline, descriptors, path_mtu, counters);
}

impl Sockets for IpSockets {
    const BUILT: BuiltHeaders = BuiltHeaders::Ip;

    fn receive(
        &mut self,
        max: usize,
        stats: &mut SocketStats,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> io::Result<usize> {
        self.receiving.receive(max, stats, each)
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.receiving.recycle(buffer);
    }

    fn count_drops(&mut self, stats: &mut SocketStats) {
        self.receiving.count_drops(stats);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.receiving.as_fd()
    }

    /// Returns the index of the socket for the packet's protocol. Over IPv6, the first socket also sends packets of
    /// other protocols, for example destination options.
    fn index(&self, outer: &Outer) -> Option<usize> {
        let found = self.senders.iter().position(|(protocol, _)| *protocol == outer.protocol);
        found.or_else(|| outer.destination.is_ipv6().then_some(0))
    }

    fn sender(&self, index: usize) -> &DatagramSocket {
        &self.senders[index].1
    }

    fn sender_mut(&mut self, index: usize) -> &mut DatagramSocket {
        &mut self.senders[index].1
    }
}

/// Opens the sending socket of a protocol.
fn sender(protocol: u8, options: &IpOptions) -> io::Result<(u8, DatagramSocket)> {
    let local = SocketAddr::new(options.local, 0);
    let builder = DatagramSocketBuilder::new(Protocol::Raw(protocol), local)
        .send_only(true)
        .hop_limit(options.hop_limit)
        .buffer_bytes(options.buffer_bytes);
    Ok((protocol, builder.open()?))
}

/// Opens a socket connected to each remote endpoint. An error that is reported to a socket makes its next send fail, so
/// the sending sockets must not receive any errors.
fn witnesses(options: &IpOptions) -> io::Result<Vec<DatagramSocket>> {
    let ends = options.protocols.iter().flat_map(|protocol| {
        options.remotes.iter().map(|remote| (Protocol::Raw(*protocol), SocketAddr::new(*remote, 0)))
    });
    let open = |(protocol, remote)| {
        let local = SocketAddr::new(options.local, 0);
        let socket = DatagramSocketBuilder::new(protocol, local).send_only(true).open()?;
        // Connecting fails if there is no route. In that case, there is no path MTU to learn.
        let _ = socket.connect(remote);
        Ok(socket)
    };
    ends.map(open).collect()
}
