//! Raw sockets of IP protocols as a port: for tunnels directly in IP.

mod receiving;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
    tunnel::{Carrier, Endpoint, Header},
};
use grosso_sys::{
    datagram::{DatagramSocket, DatagramSocketBuilder, Protocol},
    packet::{Fanout, FanoutRule, RingLayout},
};
use grosso_wire::{Kind, LinkType, Ports, ipv4};

use self::receiving::IpReceiver;
use super::{
    broken,
    socket::{BuiltHeaders, Outer, Paths, SocketEvent, SocketSender, SocketStats},
};
use crate::{
    buffer::PortBuffer,
    notice::Notice,
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of a port on raw IP sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpOptions {
    /// Address of this host for sending and receiving.
    pub local: IpAddr,
    /// Addresses of the remote endpoints, of the same family. The path MTU is the minimum of theirs. If there is
    /// exactly one, packets from other addresses are not received.
    pub remotes: Vec<IpAddr>,
    /// IP protocols of packets, at most [`grosso_sys::packet::PROTOCOLS_MAX`].
    pub protocols: Vec<u8>,
    /// TTL or hop limit of most frames.
    pub hop_limit: u8,
    /// Size of each socket's buffer in bytes, as far as permitted. The receiving socket uses it for packets longer than
    /// a slot.
    pub buffer_bytes: usize,
    /// Whether to probe the path MTU to the remote endpoints with echo requests.
    pub probes: bool,
    /// Notification that the route to a remote endpoint now uses another link.
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

    /// Creates options for the outer frames of a tunnel; `None` for a tunnel over UDP.
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

/// A port on raw IP sockets: one packet socket to receive, and one raw socket per protocol to send. Requires
/// `CAP_NET_RAW`.
///
/// Frames have [`LinkType::Raw`] and start with the outer IP header. Packets are received as they arrived, from any
/// interface. For transmitted IPv4 packets the kernel builds the header and copies destination, protocol, traffic
/// class, TTL and DF from the frame; IPv6 headers are sent unchanged.
///
/// Packets that the kernel merged on arrival (GRO) are received as superframes; a raw socket would receive them without
/// the segment size. A packet socket also receives packets that this host's firewall drops later, and fragments, which
/// [`Fragmentation`](crate::stage::Fragmentation) reassembles. The raw sockets receive nothing, but while they are open
/// the kernel does not report the protocol as unreachable.
///
/// The port accepts superframes with any inner headers, and partial checksums. The kernel does not segment superframes
/// for raw sockets, so the packets are sent as a batch: headers and checksums are computed here, and the payload stays
/// in place until the kernel copies it.
///
/// The MTU of the link decides which packets are too long; ICMP messages do not. Too long IPv4 packets are sent in
/// fragments. For IPv6 the kernel does not fragment raw packets; use
/// [`FragmentationOptions::follows_path`](crate::stage::FragmentationOptions::follows_path).
#[derive(Debug)]
pub struct IpPort {
    name: String,
    local: IpAddr,
    receiving: IpReceiver,
    lanes: Vec<Lane>,
    /// Sockets that send nothing. Through them, the kernel learns of IPv6 paths and can be queried.
    _witnesses: Vec<DatagramSocket>,
    paths: Paths,
    stats: SocketStats,
}

/// Egress of one protocol.
#[derive(Debug)]
struct Lane {
    protocol: u8,
    socket: DatagramSocket,
    sending: SocketSender,
}

impl IpPort {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// Errors of [`DatagramSocketBuilder::open`] and of
    /// [`bind_receive_ring_of_ip`](grosso_sys::packet::PacketSocketBuilder::bind_receive_ring_of_ip).
    pub fn open(options: &IpOptions) -> io::Result<Self> {
        Self::with_fanout(options, None)
    }

    /// Opens `queues` ports at the same address, which share the flows.
    ///
    /// # Errors
    /// See [`IpPort::open`].
    pub fn open_queues(options: &IpOptions, queues: usize) -> io::Result<Vec<Self>> {
        if queues <= 1 {
            return Ok(vec![Self::open(options)?]);
        }
        // Fragments of one packet must reach one port; the kernel reassembles those of IPv4 before
        // the fanout, but not those of IPv6.
        let fanout = Fanout::new(FanoutRule::FlowHash).defragment(options.local.is_ipv4());
        let first = Self::with_fanout(options, Some(fanout))?;
        let fanout = first.receiving.fanout_group()?.map(|group| fanout.join(group));
        let mut ports = vec![first];
        for _ in 1..queues {
            ports.push(Self::with_fanout(options, fanout)?);
        }
        Ok(ports)
    }

    fn with_fanout(options: &IpOptions, fanout: Option<Fanout>) -> io::Result<Self> {
        let is_ipv4 = options.local.is_ipv4();
        // The raw sockets are opened first, so that the kernel does not report the protocol as
        // unreachable.
        let lanes = options.protocols.iter().map(|protocol| Lane::open(*protocol, options));
        let lanes = lanes.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            name: format!("ip {}", options.local),
            local: options.local,
            receiving: IpReceiver::open(options, fanout)?,
            lanes,
            _witnesses: if is_ipv4 { Vec::new() } else { witnesses(options)? },
            paths: Paths::new(
                options.local,
                &options.remotes,
                options.probes,
                options.route_notice.clone(),
            )?,
            stats: SocketStats::default(),
        })
    }

    /// Returns the port's name for messages: `ip 192.0.2.1`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address for sending and receiving.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Returns the counters of this port.
    #[must_use]
    pub fn stats(&mut self) -> &SocketStats {
        self.receiving.count_drops(&mut self.stats);
        &self.stats
    }

    /// Queries the path MTU again if a packet has been too long since `before`.
    fn look_if_too_long(&mut self, before: u64) {
        if self.stats.too_long() > before {
            self.paths.look_now();
        }
    }
}

impl Lane {
    fn open(protocol: u8, options: &IpOptions) -> io::Result<Self> {
        let local = SocketAddr::new(options.local, 0);
        let builder = DatagramSocketBuilder::new(Protocol::Raw(protocol), local)
            .send_only(true)
            .hop_limit(options.hop_limit)
            .buffer_bytes(options.buffer_bytes);
        Ok(Self {
            protocol,
            socket: builder.open()?,
            sending: SocketSender::new(Ports::NONE, false),
        })
    }

    fn flush(&mut self, stats: &mut SocketStats) -> io::Result<Transmitted> {
        self.sending.flush(&mut self.socket, stats)
    }
}

impl Port for IpPort {
    fn link(&self) -> LinkType {
        LinkType::Raw
    }

    fn device(&self) -> Device {
        Device::new(Features::ALL.without(Features::GSO_PARTIAL))
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { receiving, lanes, paths, stats, name, .. } = self;
        let sends_long = lanes.iter_mut().map(|lane| lane.sending.take_sends_long()).max();
        let has_sent = |quoted: &[u8]| lanes.iter().any(|lane| lane.sending.has_sent(quoted));
        if paths.look(now_ns, &has_sent, sends_long == Some(true), stats) {
            lanes.iter_mut().for_each(|lane| lane.sending.remember(paths.is_questioned()));
        }
        receiving.receive(max, stats, each).map_err(|error| broken(name, "receive", error))
    }

    fn recycle(&mut self, buffer: PortBuffer) {
        self.receiving.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let head = slices.first().copied().unwrap_or_default();
        let outer = Outer::parse(head, BuiltHeaders::Ip);
        let is_ours = |outer: &Outer| outer.destination.is_ipv4() == self.local.is_ipv4();
        let too_long = self.stats.too_long();
        let Self { lanes, stats, .. } = self;
        let lane = outer.filter(is_ours).and_then(|outer| Some((outer, lane(lanes, &outer)?)));
        let Some((outer, Lane { socket, sending, .. })) = lane else {
            stats.count(SocketEvent::TransmitInexpressible, 1);
            return Ok(Transmitted::Taken);
        };
        let sent = sending.send(socket, slices, meta, outer, stats);
        self.look_if_too_long(too_long);
        sent.map_err(|error| broken(&self.name, "send", error))
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let too_long = self.stats.too_long();
        let mut flushed = Transmitted::Taken;
        for lane in &mut self.lanes {
            match lane.flush(&mut self.stats) {
                Ok(Transmitted::Taken) => {}
                Ok(Transmitted::NoRoom) => flushed = Transmitted::NoRoom,
                Err(error) => return Err(broken(&self.name, "send", error)),
            }
        }
        self.look_if_too_long(too_long);
        Ok(flushed)
    }

    /// Returns the time of the next path MTU check.
    fn deadline(&self) -> Option<u64> {
        self.paths.deadline()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiving.as_fd())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let blocked = self.lanes.iter().find(|lane| lane.sending.waiting() > 0);
        blocked.or_else(|| self.lanes.first()).map(|lane| lane.socket.as_fd())
    }

    fn path_mtu(&self) -> Option<usize> {
        self.paths.mtu()
    }

    fn path_hint(&self) -> Option<usize> {
        self.paths.hint()
    }

    fn path_proven(&self) -> Option<usize> {
        self.paths.proven()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
    }
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
        // Without a route there is no path to learn.
        let _ = socket.connect(remote);
        Ok(socket)
    };
    ends.map(open).collect()
}

/// Returns the egress for a packet's protocol. For IPv6 any egress is used if none has the protocol, for example that
/// of destination options.
fn lane<'a>(lanes: &'a mut [Lane], outer: &Outer) -> Option<&'a mut Lane> {
    let of_protocol = lanes.iter().position(|lane| lane.protocol == outer.protocol);
    let any = outer.destination.is_ipv6().then_some(0);
    lanes.get_mut(of_protocol.or(any)?)
}
