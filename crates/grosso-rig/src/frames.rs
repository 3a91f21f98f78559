//! Packets for the conformance tests: one connection in which a test changes one field at a time.

use grosso_testkit::{
    Packet,
    headers::{Ethernet, Ipv4, Ipv6, Pppoe, Tcp, Udp},
    oracle::{Lengths, Link, parse},
    stream,
};

use crate::engine::{Out, coalesce};

/// Headers before TCP in the kernel's own GRO test (cases K1 to K35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Ethernet and IPv4.
    Ipv4,
    /// Ethernet and IPv6.
    Ipv6,
    /// IPv4 in IPv4.
    Ipip,
    /// IPv6 in IPv6.
    Ip6ip6,
    /// IPv4 in a PPPoE session.
    PppoeIpv4,
    /// IPv6 in a PPPoE session.
    PppoeIpv6,
}

impl Path {
    /// Every path.
    pub const ALL: [Self; 6] =
        [Self::Ipv4, Self::Ipv6, Self::Ipip, Self::Ip6ip6, Self::PppoeIpv4, Self::PppoeIpv6];
    /// The paths that every case uses. Only the cases about data also use PPPoE.
    pub const IP: [Self; 4] = [Self::Ipv4, Self::Ipv6, Self::Ipip, Self::Ip6ip6];
    /// The paths whose innermost IP header is IPv4.
    pub const OVER_IPV4: [Self; 2] = [Self::Ipv4, Self::Ipip];
    /// The paths whose innermost IP header is IPv6.
    pub const OVER_IPV6: [Self; 2] = [Self::Ipv6, Self::Ip6ip6];
    /// The path without tunnels for each IP version.
    pub const PLAIN: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Returns the total length of the IP headers and a TCP header without options.
    #[must_use]
    pub fn ip_and_tcp_len(self) -> usize {
        20 + match self {
            Self::Ipv4 | Self::PppoeIpv4 => 20,
            Self::Ipv6 | Self::PppoeIpv6 | Self::Ipip => 40,
            Self::Ip6ip6 => 80,
        }
    }

    /// Returns consecutive TCP segments of these lengths, each changed by `edit`, which receives the segment's index.
    pub fn train(
        self,
        lengths: &[usize],
        edit: impl Fn(usize, Segment) -> Segment,
    ) -> Vec<Vec<u8>> {
        self.sequence(Transport::Tcp, lengths, edit)
    }

    /// Returns UDP datagrams of these lengths, each changed by `edit`, which receives the datagram's index.
    pub fn datagrams(
        self,
        lengths: &[usize],
        edit: impl Fn(usize, Segment) -> Segment,
    ) -> Vec<Vec<u8>> {
        self.sequence(Transport::Udp, lengths, edit)
    }

    fn sequence(
        self,
        transport: Transport,
        lengths: &[usize],
        edit: impl Fn(usize, Segment) -> Segment,
    ) -> Vec<Vec<u8>> {
        let mut before = 0;
        let mut frames = Vec::new();
        for (index, &len) in lengths.iter().enumerate() {
            let segment = Segment::new(self, transport, before, len);
            frames.push(edit(index, segment).build());
            before += len as u32;
        }
        frames
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// A function that changes one header.
type Edit<T> = Box<dyn FnOnce(T) -> T>;

/// One packet of a connection, with the changes that a test makes to it.
pub struct Segment {
    path: Path,
    transport: Transport,
    /// Number of payload bytes before the packet in the connection.
    before: u32,
    len: usize,
    ethernet: Edit<Ethernet>,
    link: Edit<Packet>,
    pppoe: Edit<Pppoe>,
    outer_ipv4: Edit<Ipv4>,
    ipv4: Edit<Ipv4>,
    ipv6: Edit<Ipv6>,
    extensions: Edit<Packet>,
    tcp: Edit<Tcp>,
    udp: Edit<Udp>,
    frame: Edit<Packet>,
}

/// Defines methods that change the header of the same name.
macro_rules! edits {
    ($($(#[$meta:meta])* $name:ident: $kind:ty;)*) => {
        $($(#[$meta])*
        #[must_use]
        pub fn $name(mut self, edit: impl FnOnce($kind) -> $kind + 'static) -> Self {
            self.$name = Box::new(edit);
            self
        })*
    };
}

impl Segment {
    fn new(path: Path, transport: Transport, before: u32, len: usize) -> Self {
        Self {
            path,
            transport,
            before,
            len,
            ethernet: Box::new(|header| header),
            link: Box::new(|packet| packet),
            pppoe: Box::new(|header| header),
            outer_ipv4: Box::new(|header| header),
            ipv4: Box::new(|header| header),
            ipv6: Box::new(|header| header),
            extensions: Box::new(|packet| packet),
            tcp: Box::new(|header| header),
            udp: Box::new(|header| header),
            frame: Box::new(|packet| packet),
        }
    }

    edits! {
        /// Changes the Ethernet header.
        ethernet: Ethernet;
        /// Adds headers between the Ethernet and the IP header.
        link: Packet;
        /// Changes the PPPoE header.
        pppoe: Pppoe;
        /// Changes the outer IPv4 header of an IP-in-IP packet.
        outer_ipv4: Ipv4;
        /// Changes the innermost IPv4 header.
        ipv4: Ipv4;
        /// Changes the innermost IPv6 header.
        ipv6: Ipv6;
        /// Adds headers between the innermost IP header and the transport header.
        extensions: Packet;
        /// Changes the TCP header.
        tcp: Tcp;
        /// Changes the UDP header.
        udp: Udp;
        /// Changes the finished packet, for example its padding or length.
        frame: Packet;
    }

    /// Sets the TTL or hop limit of the innermost IP header.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        self.ipv4(move |ip| ip.ttl(ttl)).ipv6(move |ip| ip.hop_limit(ttl))
    }

    /// Sets the type of service or traffic class of the innermost IP header.
    #[must_use]
    pub fn tos(self, tos: u8) -> Self {
        self.ipv4(move |ip| ip.tos(tos)).ipv6(move |ip| ip.traffic_class(tos))
    }

    /// Builds the frame.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let packet = (self.link)(Packet::new().ethernet(self.ethernet));
        let packet = match self.path {
            Path::Ipv4 | Path::Ipv6 => packet,
            Path::Ipip => packet.ipv4(self.outer_ipv4),
            Path::Ip6ip6 => packet.ipv6(|ip| ip),
            Path::PppoeIpv4 | Path::PppoeIpv6 => packet.pppoe(self.pppoe),
        };
        let packet = match self.path {
            Path::Ipv4 | Path::Ipip | Path::PppoeIpv4 => packet.ipv4(self.ipv4),
            Path::Ipv6 | Path::Ip6ip6 | Path::PppoeIpv6 => packet.ipv6(self.ipv6),
        };
        let packet = (self.extensions)(packet);
        let (before, edit) = (self.before, self.tcp);
        let packet = match self.transport {
            Transport::Tcp => {
                packet.tcp(|tcp| edit(tcp.sequence(100 + before))).payload_len(self.len)
            }
            Transport::Udp => packet.udp(self.udp).payload(&stream(before, self.len)),
        };
        (self.frame)(packet).build()
    }
}

/// Returns an `edit` function that changes only the packet at `target`.
pub fn at(
    target: usize,
    change: impl Fn(Segment) -> Segment,
) -> impl Fn(usize, Segment) -> Segment {
    move |index, segment| if index == target { change(segment) } else { segment }
}

/// Returns the segment unchanged; for use as `edit`.
#[must_use]
pub fn plain(_index: usize, segment: Segment) -> Segment {
    segment
}

/// Returns the payload length of each delivered frame: what the kernel's tests write as `{300, 200}` is `[300, 200]`.
#[must_use]
pub fn payload_lengths(delivered: &[Out]) -> Vec<usize> {
    delivered
        .iter()
        .map(|out| {
            let lengths = if out.joined { Lengths::Whole } else { Lengths::Declared };
            parse(&out.bytes, Link::Ethernet, lengths).payload(&out.bytes).len()
        })
        .collect()
}

/// Sends these frames in one poll, and asserts the payload lengths of the delivered frames.
///
/// # Panics
/// Panics if the lengths differ.
#[track_caller]
pub fn assert_payloads(frames: &[Vec<u8>], expected: &[usize]) {
    assert_eq!(payload_lengths(&coalesce(frames)), expected);
}

/// Sends these frames in one poll, and asserts that they are delivered unmerged, unchanged and in order.
///
/// # Panics
/// Panics if frames were merged, changed or reordered.
#[track_caller]
pub fn assert_apart(frames: &[Vec<u8>]) {
    let delivered = coalesce(frames);
    assert!(delivered.iter().all(|out| !out.joined), "{:?}", payload_lengths(&delivered));
    let bytes: Vec<_> = delivered.into_iter().map(|out| out.bytes).collect();
    assert_eq!(bytes, frames);
}
