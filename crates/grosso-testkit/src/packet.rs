//! Packets that are described header by header, outermost first, and encoded from the inside out.

use core::mem::swap;

use crate::headers::{
    Addresses, Around, Esp, Ethernet, Extension, Fragment, Geneve, Gre, Gue, Header, Icmp, Ipv4,
    Ipv6, L2tp, Mpls, Nsh, Pppoe, Sctp, Tcp, Udp, Vlan, Vxlan,
};
use crate::oracle::{FOU_PORT, GUE_PORT};
use crate::random::mix;

/// A packet under construction: its headers, its payload, and changes at its end such as padding.
///
/// ```
/// use grosso_testkit::{oracle, Packet};
///
/// let frame = Packet::new()
///     .ethernet(|e| e)
///     .ipv4(|ip| ip.ttl(64))
///     .udp(|udp| udp.source_port(49152))
///     .vxlan(|v| v.vni(42))
///     .ethernet(|e| e)
///     .ipv4(|ip| ip.id(8).df(true))
///     .tcp(|t| t.sequence(100).psh().timestamps(1, 2))
///     .payload_len(1000)
///     .build();
/// assert_eq!(frame.len(), 14 + 20 + 8 + 8 + 14 + 20 + 32 + 1000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Packet {
    pub(crate) headers: Vec<Header>,
    payload: Payload,
    pad_to: usize,
    trailer: Vec<u8>,
    truncate: Option<usize>,
}

/// Payload of a packet: fixed bytes, or a part of a pseudo-random stream.
#[derive(Clone, Debug)]
enum Payload {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This many bytes of the stream, from the sequence number on.
    Stream(usize),
}

impl Default for Payload {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

/// Defines a method that appends a header. Takes the header's default and its `Header` variant.
macro_rules! appends {
    ($($(#[$meta:meta])* $name:ident: $kind:ident = $start:expr;)*) => {
        $($(#[$meta])*
        pub fn $name(self, edit: impl FnOnce($kind) -> $kind) -> Self {
            let start = $start(&self);
            self.with(Header::$kind(edit(start)))
        })*
    };
}

impl Packet {
    /// Creates a packet without headers and without payload.
    pub fn new() -> Self {
        Self::default()
    }

    appends! {
        /// Appends an Ethernet header.
        ethernet: Ethernet = |packet: &Self| Ethernet::new(packet.links());
        /// Appends an 802.1Q tag; [`Vlan::service`] turns it into an 802.1ad tag.
        vlan: Vlan = |_: &Self| Vlan::new();
        /// Appends a PPPoE session header.
        pppoe: Pppoe = |_: &Self| Pppoe::new();
        /// Appends an MPLS label.
        mpls: Mpls = |_: &Self| Mpls::new();
        /// Appends an IPv4 header.
        ipv4: Ipv4 = |packet: &Self| Ipv4::new(packet.networks());
        /// Appends an IPv6 header.
        ipv6: Ipv6 = |packet: &Self| Ipv6::new(packet.networks());
        /// Appends an IPv6 hop-by-hop options header.
        hop_by_hop: Extension = |_: &Self| Extension::new(0);
        /// Appends an IPv6 routing header, by default with no segments left; [`Extension::route`] sets a route.
        routing: Extension = |_: &Self| Extension::new(43);
        /// Appends an IPv6 destination options header, by default with only padding; [`Extension::home_address`] sets a
        /// home address.
        destination_options: Extension = |_: &Self| Extension::new(60);
        /// Appends an IPv6 fragment header, which is atomic unless its offset or its "more" flag is set.
        fragment: Fragment = |_: &Self| Fragment::new();
        /// Appends a TCP header.
        tcp: Tcp = |_: &Self| Tcp::new();
        /// Appends a UDP header.
        udp: Udp = |_: &Self| Udp::new();
        /// Appends an ICMP or ICMPv6 header.
        icmp: Icmp = |_: &Self| Icmp::new();
        /// Appends an SCTP common header.
        sctp: Sctp = |_: &Self| Sctp::new();
        /// Appends an ESP header. The packet's payload stands in for the encrypted part.
        esp: Esp = |_: &Self| Esp::new();
        /// Appends a GRE header.
        gre: Gre = |_: &Self| Gre::new();
        /// Appends a VXLAN header.
        vxlan: Vxlan = |_: &Self| Vxlan::new();
        /// Appends a network service header.
        nsh: Nsh = |_: &Self| Nsh::new();
        /// Appends the header of an L2TPv3 session.
        l2tp: L2tp = |_: &Self| L2tp::new();
        /// Appends a Geneve header.
        geneve: Geneve = |_: &Self| Geneve::new();
        /// Appends a GUE version 0 header.
        gue: Gue = |_: &Self| Gue::new();
        /// Appends a UDP header to [`FOU_PORT`], for FOU; IP follows directly.
        fou: Udp = |_: &Self| Udp::new().destination_port(FOU_PORT);
        /// Appends a UDP header to [`GUE_PORT`], for GUE version 1; IP follows directly.
        gue_direct: Udp = |_: &Self| Udp::new().destination_port(GUE_PORT);
    }

    /// Appends a header. A separate function because the calling methods are generic and compiled for every closure.
    fn with(mut self, header: Header) -> Self {
        self.headers.push(header);
        self
    }

    /// Changes the innermost TCP header, if there is one.
    pub fn edit_tcp(mut self, edit: impl FnOnce(Tcp) -> Tcp) -> Self {
        if let Some(tcp) = self.tcp_mut() {
            *tcp = edit(tcp.clone());
        }
        self
    }

    /// Reverses the direction of the packet: swaps the addresses in every Ethernet and IP header, and the ports in
    /// every TCP header.
    pub fn answer(mut self) -> Self {
        for header in &mut self.headers {
            match header {
                Header::Ethernet(link) => swap(&mut link.source, &mut link.destination),
                Header::Ipv4(ip) => swap(&mut ip.source, &mut ip.destination),
                Header::Ipv6(ip) => swap(&mut ip.source, &mut ip.destination),
                Header::Tcp(tcp) => swap(&mut tcp.source_port, &mut tcp.destination_port),
                _ => {}
            }
        }
        self
    }

    /// Sets the payload.
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = Payload::Bytes(bytes.to_vec());
        self
    }

    /// Sets a payload of `len` bytes. The bytes depend only on the sequence number of the innermost TCP header (0
    /// without TCP) and on their offset from it, so a stream has the same bytes however it is segmented.
    pub fn payload_len(mut self, len: usize) -> Self {
        self.payload = Payload::Stream(len);
        self
    }

    /// Appends zeros until the frame is `len` bytes long, as Ethernet does with frames shorter than 60 bytes; no length
    /// field includes them.
    pub fn pad_to(mut self, len: usize) -> Self {
        self.pad_to = len;
        self
    }

    /// Appends bytes after the padding; no length field includes them.
    pub fn trailer(mut self, bytes: &[u8]) -> Self {
        self.trailer = bytes.to_vec();
        self
    }

    /// Truncates the finished frame to `len` bytes, as a capture with a short snapshot length does.
    pub fn truncate(mut self, len: usize) -> Self {
        self.truncate = Some(len);
        self
    }

    /// Builds the frame with complete checksums.
    pub fn build(&self) -> Vec<u8> {
        self.finish(self.assemble(false))
    }

    /// Builds the frame with a partial checksum in the innermost transport header: the field holds the folded,
    /// uncomplemented pseudo-header sum. Outer checksums match the completed packet (rule C40). Also returns where in
    /// the frame the checksummed bytes start, and the offset of the checksum field from there.
    ///
    /// # Panics
    /// Panics if the packet has no TCP or UDP header.
    pub fn build_partial(&self) -> (Vec<u8>, usize, usize) {
        let (start, offset) = self.checksum_place();
        let mut frame = self.assemble(false);
        let mut seeded = self.clone();
        seeded.headers[self.transport()].seed();
        let seed = &seeded.assemble(false)[start + offset..start + offset + 2];
        frame[start + offset..start + offset + 2].copy_from_slice(seed);
        (self.finish(frame), start, offset)
    }

    /// Builds the frame as a superframe: unless overridden, TCP and UDP checksums are the folded, uncomplemented
    /// pseudo-header sum (rules G51, T11), and GRE checksums are zero. Also returns the offset of the innermost
    /// transport header, and the offset of the checksum field from there.
    ///
    /// # Panics
    /// Panics if the packet has no TCP or UDP header.
    pub fn build_superframe(&self) -> (Vec<u8>, usize, usize) {
        let (start, offset) = self.checksum_place();
        (self.finish(self.assemble(true)), start, offset)
    }

    /// Returns the total length of the headers in bytes.
    pub fn header_len(&self) -> usize {
        self.headers.iter().map(Header::len).sum()
    }

    /// Returns the packet inside the outermost tunnel, or `None` if there is no tunnel. An inner Ethernet frame is
    /// returned as it is; before any other inner packet, this packet's link headers are kept.
    pub fn out_of_tunnel(&self) -> Option<Self> {
        let is_ip = |header: &Header| header.addresses().is_some();
        let network = self.headers.iter().position(is_ip)?;
        let is_packet = |header: &Header| {
            is_ip(header)
                || matches!(header, Header::Ethernet(_) | Header::Mpls(_) | Header::Nsh(_))
        };
        let inner = network + 1 + self.headers[network + 1..].iter().position(is_packet)?;
        let links = match self.headers[inner] {
            Header::Ethernet(_) => 0,
            _ => network,
        };
        let headers = [&self.headers[..links], &self.headers[inner..]].concat();
        Some(Self { headers, pad_to: 0, trailer: Vec::new(), truncate: None, ..self.clone() })
    }

    /// Returns the packet without the headers before the first IP header.
    pub fn without_link(mut self) -> Self {
        let network = self.headers.iter().position(|header| header.addresses().is_some());
        self.headers.drain(..network.unwrap_or(0));
        self
    }

    /// Encodes the headers and the payload, from the inside out.
    fn assemble(&self, superframe: bool) -> Vec<u8> {
        let mut headers = self.headers.clone();
        // The checksum that the receiver completes lies inside the tunnel header that announces it.
        if let Some(tunnel) = headers.iter().position(Header::wants_seed)
            && let Some(last) = headers.iter().rposition(|h| h.checksum_offset().is_some())
            && last > tunnel
        {
            headers[last].seed();
        }
        let mut inner = self.payload_bytes();
        for (index, header) in headers.iter().enumerate().rev() {
            let addresses = Addresses::behind(&headers[..index]);
            inner = prepend(header, &headers[index + 1..], inner, addresses.as_ref(), superframe);
        }
        inner
    }

    /// Adds padding and the trailer, and truncates the frame.
    fn finish(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame.resize(frame.len().max(self.pad_to), 0);
        frame.extend(&self.trailer);
        frame.truncate(self.truncate.unwrap_or(usize::MAX));
        frame
    }

    fn payload_bytes(&self) -> Vec<u8> {
        match &self.payload {
            Payload::Bytes(bytes) => bytes.clone(),
            Payload::Stream(len) => {
                let first = self.headers.iter().rev().find_map(|header| match header {
                    Header::Tcp(tcp) => Some(tcp.sequence),
                    _ => None,
                });
                stream(first.unwrap_or(0), *len)
            }
        }
    }

    fn checksum_place(&self) -> (usize, usize) {
        let transport = self.transport();
        let start = self.headers[..transport].iter().map(Header::len).sum();
        (start, self.headers[transport].checksum_offset().unwrap_or(0))
    }

    fn transport(&self) -> usize {
        let place = self.headers.iter().rposition(|header| header.checksum_offset().is_some());
        place.expect("a partial checksum needs a TCP or UDP header")
    }

    /// Returns the innermost TCP header, if there is one.
    pub(crate) fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        self.headers.iter_mut().rev().find_map(|header| match header {
            Header::Tcp(tcp) => Some(tcp),
            _ => None,
        })
    }

    fn links(&self) -> u8 {
        self.headers.iter().filter(|header| matches!(header, Header::Ethernet(_))).count() as u8
    }

    fn networks(&self) -> u8 {
        self.headers.iter().filter(|header| header.addresses().is_some()).count() as u8
    }
}

/// Returns `len` bytes of an endless pseudo-random stream from position `first` on. Positions wrap like sequence
/// numbers.
pub fn stream(first: u32, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 16);
    let mut word = first & !7;
    while bytes.len() < len + 8 {
        bytes.extend(mix(u64::from(word)).to_le_bytes());
        word = word.wrapping_add(8);
    }
    bytes.drain(..(first & 7) as usize);
    bytes.truncate(len);
    bytes
}

fn prepend(
    header: &Header,
    inside: &[Header],
    inner: Vec<u8>,
    addresses: Option<&Addresses>,
    superframe: bool,
) -> Vec<u8> {
    let mut bytes = header.encode(&Around { inside, inner: &inner, addresses, superframe });
    bytes.extend(inner);
    bytes
}
