//! UDP sockets as a port: whose frames are what the kernel would see on the wire, from the IP header on.

mod receiving;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    features::{Device, Features},
    tunnel::{Endpoint, Header, decapsulate::OuterChecksum},
};
use grosso_sys::{
    datagram::{DatagramSocket, DatagramSocketBuilder, Protocol},
    fault::Fault,
};
use grosso_wire::{LinkType, Ports};

use self::receiving::Receiving;
use super::{
    broken,
    buffer::LiveBuffer,
    socket::{Made, Outer, Paths, Sending, SocketEvent, SocketStats},
};
use crate::port::{Port, PortCounter, PortError, Transmitted};

/// How a port on UDP sockets works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// Where datagrams are received. What is sent has this address too.
    pub local: SocketAddr,
    /// Whose datagrams are expected: the paths to them are asked for their MTU, of which the least counts.
    pub remotes: Vec<IpAddr>,
    /// The ports that datagrams are sent from, as far as [`Self::senders_max`] sockets go round: each
    /// has the next port that is free of its share of the range. Where the range is the one port at
    /// which datagrams are received, they are sent from there.
    pub source_ports: RangeInclusive<u16>,
    /// Most sockets that datagrams are sent from, 1 to [`SOURCE_PORTS_MAX`]. The order of what different ones send is
    /// not kept.
    pub senders_max: usize,
    /// Whether datagrams are sent with a checksum, which the kernel makes.
    pub sends_checksum: bool,
    /// Whether datagrams without one are received over IPv6. Over IPv4 they are.
    pub takes_no_checksum: bool,
    /// Whether datagrams without one are dropped, so that the kernel has verified all that is received.
    pub wants_checksum: bool,
    /// The TTL or hop limit that most frames have.
    pub hop_limit: u8,
    /// Whether other ports are to receive at the same address, each its share of the flows.
    pub shared: bool,
    /// Room for so many bytes in each socket each way, as far as it is permitted.
    pub buffer_bytes: usize,
    /// Whether the kernel is to cut superframes (`UDP_SEGMENT`), as far as it can.
    pub segmentation: bool,
    /// Whether the kernel is to join datagrams of a flow (`UDP_GRO`).
    pub coalescing: bool,
    /// The UDP ports that mean a tunnel.
    pub ports: Ports,
}

impl UdpOptions {
    /// For frames of any kind at this address.
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
            shared: false,
            buffer_bytes: 4 << 20,
            segmentation: true,
            coalescing: true,
            ports: Ports::ASSIGNED,
        }
    }

    /// For the outer frames of a tunnel; `None` when UDP does not carry it.
    ///
    /// Where the tunnel has checksums and takes remote checksum offload, datagrams without are
    /// dropped, for nothing would protect them (rule C54).
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Option<Self> {
        let udp = endpoint.udp()?;
        // The other end drops what is late (rule W51), of whichever flow it is.
        let is_numbered = matches!(endpoint.header, Header::Gre { sequence: true, .. });
        Some(Self {
            remotes: vec![endpoint.remote],
            source_ports: udp.source.clone(),
            senders_max: if is_numbered { 1 } else { SOURCE_PORTS_MAX },
            sends_checksum: udp.checksum,
            takes_no_checksum: udp.ipv6_without_checksum,
            wants_checksum: udp.remote_checksum.receive,
            ports: endpoint.ports(),
            ..Self::new(SocketAddr::new(endpoint.local, udp.destination))
        })
    }
}

/// A port on UDP sockets: one to receive, and some to send from ports that tell flows apart.
///
/// Its frames are of [`LinkType::Raw`] and start with the outer IP header, which the kernel makes:
/// of what is sent its destination, ports, traffic class, hop limit and DF count, and of what is
/// received the checksum of UDP is left out, whether or not the datagram had one. The identification
/// and the flow label are the kernel's.
///
/// It takes superframes with any headers inside, and partial checksums. Their packets get headers and
/// inner checksums here, while the payload stays where it is; the kernel copies it once, cuts it into
/// datagrams and makes the outer checksums (`UDP_SEGMENT`). Without outer checksums there is no such
/// cutting, and the datagrams go as a batch. So they do for good once the kernel refused, which is
/// counted.
#[derive(Debug)]
pub struct UdpPort {
    name: String,
    local: SocketAddr,
    receiver: DatagramSocket,
    /// None where all is sent from where it is received.
    senders: Vec<DatagramSocket>,
    source_ports: RangeInclusive<u16>,
    /// The kernel has verified the checksum of all that is received.
    is_verified: bool,
    receiving: Receiving,
    /// One for each of those that send.
    sending: Vec<Sending>,
    paths: Paths,
    /// What the kernel had dropped when it was asked last.
    drops: u32,
    stats: SocketStats,
}

impl UdpPort {
    /// Opens the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of [`DatagramSocketBuilder::open`].
    pub fn open(options: &UdpOptions) -> io::Result<Self> {
        let receiver = receiver(options).open()?;
        Self::new(receiver, options)
    }

    /// Receives with a UDP socket that another program bound, such as a service manager.
    ///
    /// # Errors
    /// Those of [`DatagramSocketBuilder::adopt`].
    pub fn adopt(file: std::os::fd::OwnedFd, options: &UdpOptions) -> io::Result<Self> {
        Self::new(receiver(options).adopt(file)?, options)
    }

    fn new(receiver: DatagramSocket, options: &UdpOptions) -> io::Result<Self> {
        let local = receiver.local();
        let senders = open_senders(options, local)?;
        // A datagram without a checksum is not cut by the kernel (rule S21).
        let segments = options.segmentation && options.sends_checksum;
        let sending = || Sending::new(options.ports, segments);
        Ok(Self {
            name: format!("udp {local}"),
            local,
            sending: (0..senders.len().max(1)).map(|_| sending()).collect(),
            receiver,
            senders,
            source_ports: options.source_ports.clone(),
            // Without a checksum nothing comes over IPv6 unless it is asked for (RFC 8200 section 8.1).
            is_verified: options.wants_checksum || !local.is_ipv4() && !options.takes_no_checksum,
            receiving: Receiving::new(),
            paths: Paths::new(&options.remotes, local.is_ipv4())?,
            drops: 0,
            stats: SocketStats::default(),
        })
    }

    /// What it is, for people: `udp 192.0.2.1:4789`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it receives.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Where the checksum of a received datagram is found: nowhere, but the kernel has verified it of all, where none
    /// is delivered without one.
    #[must_use]
    pub fn outer_checksum(&self) -> OuterChecksum {
        if self.is_verified { OuterChecksum::VerifiedBelow } else { OuterChecksum::InFrame }
    }

    /// The ports that it sends from.
    pub fn source_ports(&self) -> impl Iterator<Item = u16> {
        let senders = self.senders.iter();
        let only = self.senders.is_empty().then_some(&self.receiver);
        senders.chain(only).map(|socket| socket.local().port())
    }

    /// What it counted.
    #[must_use]
    pub fn stats(&mut self) -> &SocketStats {
        // A socket that cannot be asked is found broken when it is received from.
        let drops = self.receiver.drops().unwrap_or(self.drops);
        let new = drops.wrapping_sub(self.drops);
        self.drops = drops;
        self.stats.count(SocketEvent::ReceiveDropped, new.into());
        &self.stats
    }

    /// Which of the sockets that send has the frame's flow: that of its share of the range.
    fn lane(&self, source_port: u16) -> usize {
        let (first, last) = (*self.source_ports.start(), *self.source_ports.end());
        let width = usize::from(last.saturating_sub(first)) + 1;
        let place = usize::from(source_port.saturating_sub(first)).min(width - 1);
        place * self.sending.len() / width
    }

    fn flush_lane(&mut self, lane: usize) -> io::Result<Transmitted> {
        let Self { receiver, senders, sending, stats, .. } = self;
        let socket = senders.get_mut(lane).unwrap_or(receiver);
        sending.get_mut(lane).map_or(Ok(Transmitted::Taken), |lane| lane.flush(socket, stats))
    }

    fn send(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        outer: Outer,
        lane: usize,
    ) -> io::Result<Transmitted> {
        let Self { receiver, senders, sending, stats, .. } = self;
        let socket = senders.get_mut(lane).unwrap_or(receiver);
        let Some(lane) = sending.get_mut(lane) else { return Ok(Transmitted::NoRoom) };
        lane.send(socket, slices, meta, outer, stats)
    }
}

impl Port for UdpPort {
    type Buffer = LiveBuffer;

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
        each: &mut dyn FnMut(Frame<LiveBuffer>),
    ) -> Result<usize, PortError> {
        self.paths.look(now_ns);
        let Self { receiver, receiving, stats, name, .. } = self;
        match receiving.receive(receiver, max, stats, each) {
            Err(error) if Fault::of(&error) == Fault::Unreachable => Ok(0),
            result => result.map_err(|error| broken(name, "receive", error)),
        }
    }

    fn recycle(&mut self, buffer: LiveBuffer) {
        self.receiving.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let head = slices.first().copied().unwrap_or_default();
        let outer = Outer::parse(head, Made::Udp);
        let is_ours = |outer: &Outer| outer.destination.is_ipv4() == self.local.is_ipv4();
        let Some(outer) = outer.filter(is_ours) else {
            self.stats.count(SocketEvent::TransmitInexpressible, 1);
            return Ok(Transmitted::Taken);
        };
        let too_long = self.stats.events(SocketEvent::TransmitTooLong);
        let lane = self.lane(outer.source_port);
        let sent = self.send(slices, meta, outer, lane);
        if self.stats.events(SocketEvent::TransmitTooLong) > too_long {
            self.paths.look_now();
        }
        sent.map_err(|error| broken(&self.name, "send", error))
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let too_long = self.stats.events(SocketEvent::TransmitTooLong);
        let mut flushed = Transmitted::Taken;
        for lane in 0..self.sending.len() {
            match self.flush_lane(lane) {
                Ok(Transmitted::Taken) => {}
                Ok(Transmitted::NoRoom) => flushed = Transmitted::NoRoom,
                Err(error) => return Err(broken(&self.name, "send", error)),
            }
        }
        if self.stats.events(SocketEvent::TransmitTooLong) > too_long {
            self.paths.look_now();
        }
        Ok(flushed)
    }

    /// At once where there is more of what was read: who waits for the descriptor would not be told again.
    fn deadline(&self) -> Option<u64> {
        self.receiving.has_more().then_some(0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let blocked = self.sending.iter().position(|lane| lane.waiting() > 0);
        let socket = self.senders.get(blocked.unwrap_or(0)).unwrap_or(&self.receiver);
        Some(socket.as_fd())
    }

    fn path_mtu(&self) -> Option<usize> {
        self.paths.mtu()
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.stats().counters().for_each(|(counter, value)| each(counter, value));
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
        .buffer_bytes(options.buffer_bytes)
}

/// Opens the sockets that send, each at the first port that is free of its share of the range.
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
        let opened = share.take(TRIES_MAX).find_map(|place| {
            let port = first + place as u16;
            let builder =
                DatagramSocketBuilder::new(Protocol::Udp, SocketAddr::new(local.ip(), port))
                    .send_only(true)
                    .sends_checksum(options.sends_checksum)
                    .hop_limit(options.hop_limit)
                    .buffer_bytes(options.buffer_bytes);
            builder.open().map_err(|error| refusal = Some(error)).ok()
        });
        match (opened, refusal) {
            (Some(socket), _) => senders.push(socket),
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
    }
    Ok(senders)
}

/// Most sockets that datagrams are sent from: so many flows a network between can tell apart at least.
pub const SOURCE_PORTS_MAX: usize = 16;
/// Ports that are tried for a socket before it is given up.
const TRIES_MAX: usize = 64;

#[cfg(test)]
mod tests;
