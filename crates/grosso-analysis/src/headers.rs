//! Reads offsets and fields of packets, for use by several commands.

use core::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
};

use grosso_wire::{Class, Extent, Kind, Layer, Role, Stack, Stop, ipv4, ipv6, tcp, udp};

/// Returns the big-endian 16-bit word at `at`; bytes beyond the end count as zero.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
}

/// Returns the big-endian 32-bit word at `at`; bytes beyond the end count as zero.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

/// Stores a big-endian 16-bit word if it fits.
#[inline]
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(word) = bytes.get_mut(at..at + 2) {
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// Innermost transport header of a packet, with the properties derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    /// TCP or UDP header.
    pub layer: Layer,
    /// IP header that immediately precedes the transport header, apart from extension headers.
    pub ip: Layer,
    /// Start of the outermost IP header.
    pub network: usize,
    /// Number of payload bytes according to the headers. Includes bytes that were not captured.
    pub payload: usize,
    /// Length of the jumbogram header in bytes. Superframes longer than 64 KB have this header, but their packets do
    /// not (rule S5).
    jumbo: usize,
}

impl Transport {
    /// Returns the innermost transport header of a packet that is `len` bytes long; `None` if the dissector did not
    /// reach one.
    #[inline]
    pub fn of(stack: &Stack, len: usize) -> Option<Self> {
        let layer = stack.last().filter(|layer| layer.kind.is_transport())?;
        if stack.stop != Stop::Payload {
            return None;
        }
        let mut levels = stack.layers().iter().filter(|layer| is_ip(layer));
        let outermost = levels.next()?;
        let ip = levels.next_back().unwrap_or(outermost);
        let end = if stack.end == 0 { len } else { stack.end as usize };
        let payload = end.saturating_sub(layer.end());
        let next = stack.layers().iter().find(|layer| layer.offset > ip.offset);
        let is_jumbo = stack.extent == Extent::Jumbo && ip.kind == Kind::Ipv6;
        let jumbo = match next {
            Some(next) if is_jumbo && next.kind == Kind::Ipv6Extension => next.len as usize,
            _ => 0,
        };
        Some(Self { layer, ip: *ip, network: outermost.offset as usize, payload, jumbo })
    }

    /// Returns whether the header is TCP.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.layer.kind == Kind::Tcp
    }

    /// Returns the number of header bytes in a wire packet, counted from the outermost IP header.
    #[inline]
    pub fn overhead(&self) -> usize {
        self.layer.end().saturating_sub(self.network + self.jumbo)
    }

    /// Returns the number of header bytes in a wire packet, counted from the innermost IP header.
    #[inline]
    pub fn inner_overhead(&self) -> usize {
        self.layer.end().saturating_sub(self.ip.offset as usize + self.jumbo)
    }

    /// Returns the length of the TCP options in bytes.
    #[inline]
    pub fn options(&self) -> usize {
        (self.layer.len as usize).saturating_sub(tcp::HEADER_LEN)
    }

    /// Returns the TCP flags.
    #[inline]
    pub fn flags(&self, packet: &[u8]) -> u16 {
        u16_at(packet, self.layer.offset as usize + tcp::field::OFFSET_FLAGS.start)
    }

    /// Returns the IPv4 ID; `None` for IPv6.
    #[inline]
    pub fn identification(&self, packet: &[u8]) -> Option<u16> {
        (self.ip.kind == Kind::Ipv4)
            .then(|| u16_at(packet, self.ip.offset as usize + ipv4::field::IDENTIFICATION.start))
    }

    /// Returns the packet's flow, in the direction of the packet.
    #[inline]
    pub fn endpoints(&self, packet: &[u8], stack: &Stack) -> Endpoints {
        let mut endpoints = Endpoints { is_tcp: self.is_tcp(), ..Endpoints::default() };
        let ip = self.ip.offset as usize;
        if self.ip.kind == Kind::Ipv4 {
            let (source, destination) = (ipv4::field::SOURCE, ipv4::field::DESTINATION);
            copy(packet, ip + source.start, &mut endpoints.source.address[..4]);
            copy(packet, ip + destination.start, &mut endpoints.destination.address[..4]);
        } else {
            endpoints.is_ipv6 = true;
            let (source, destination) = (ipv6::field::SOURCE, ipv6::field::DESTINATION);
            copy(packet, ip + source.start, &mut endpoints.source.address);
            copy(packet, ip + destination.start, &mut endpoints.destination.address);
        }
        let start = self.layer.offset as usize;
        endpoints.source.port = u16_at(packet, start + udp::field::SOURCE_PORT.start);
        endpoints.destination.port = u16_at(packet, start + udp::field::DESTINATION_PORT.start);
        for layer in stack.layers() {
            if !matches!(layer.kind.class(), Class::Link | Class::Tunnel) {
                continue;
            }
            let Some(header) = packet.get(layer.offset.into()..layer.end()) else { continue };
            if let Some((Role::Tag | Role::Network, number)) = layer.kind.spec().identifier(header)
            {
                endpoints.network = endpoints.network.rotate_left(12) ^ number;
            }
        }
        endpoints
    }
}

/// Returns the source and destination addresses in the innermost IP header.
pub fn addresses(packet: &[u8], stack: &Stack) -> Option<(IpAddr, IpAddr)> {
    let ip = stack.layers().iter().rfind(|layer| is_ip(layer))?;
    let header = packet.get(ip.offset.into()..ip.end())?;
    let fields = ip.kind.spec().layout(header).fields.iter();
    let mut found = fields.filter(|field| field.role == Role::Address).filter_map(|field| {
        let bytes = header.get(field.bytes.clone())?;
        <[u8; 4]>::try_from(bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .ok()
    });
    Some((found.next()?, found.next()?))
}

/// Returns the source and destination ports in a TCP or UDP header.
pub fn ports(packet: &[u8], transport: &Transport) -> (u16, u16) {
    let start = transport.layer.offset as usize;
    let at = |field: core::ops::Range<usize>| u16_at(packet, start + field.start);
    (at(udp::field::SOURCE_PORT), at(udp::field::DESTINATION_PORT))
}

/// Returns whether a layer is an IP header.
#[inline]
pub fn is_ip(layer: &Layer) -> bool {
    layer.kind.is_ip()
}

/// Flow of a packet: source, destination and network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Sender's address and port.
    pub source: Endpoint,
    /// Receiver's address and port.
    pub destination: Endpoint,
    /// Whether the transport is TCP. Otherwise, it is UDP.
    pub is_tcp: bool,
    /// Whether the addresses are IPv6.
    pub is_ipv6: bool,
    /// Hash of the VLAN tags and virtual network identifiers.
    pub network: u32,
}

/// Address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Address. IPv4 uses the first four bytes.
    address: [u8; 16],
    port: u16,
}

impl Endpoints {
    /// Returns the flow in the opposite direction.
    #[inline]
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, ..self }
    }

    /// Returns the source and destination addresses.
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let address = |end: &Endpoint| {
            let [a, b, c, d, ..] = end.address;
            if self.is_ipv6 { IpAddr::from(end.address) } else { IpAddr::from([a, b, c, d]) }
        };
        (address(&self.source), address(&self.destination))
    }

    /// Returns the source and destination ports.
    pub const fn ports(&self) -> (u16, u16) {
        (self.source.port, self.destination.port)
    }
}

/// Hashes all fields in one call, because each packet is looked up in several tables and each SipHash call has a fixed
/// cost.
impl Hash for Endpoints {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = [0; 2 * ENDPOINT_BYTES + 5];
        for (place, end) in
            bytes.chunks_exact_mut(ENDPOINT_BYTES).zip([self.source, self.destination])
        {
            place[..16].copy_from_slice(&end.address);
            place[16..].copy_from_slice(&end.port.to_ne_bytes());
        }
        bytes[2 * ENDPOINT_BYTES] = u8::from(self.is_tcp) | u8::from(self.is_ipv6) << 1;
        bytes[2 * ENDPOINT_BYTES + 1..].copy_from_slice(&self.network.to_ne_bytes());
        state.write(&bytes);
    }
}

/// Size of an address and port in bytes.
const ENDPOINT_BYTES: usize = 18;

impl Endpoint {
    /// Returns the address. IPv4 uses the first four bytes.
    #[inline]
    pub const fn address(&self) -> [u8; 16] {
        self.address
    }
}

/// Formats the flow in the form `10.99.0.1:37272 > 10.99.0.2:5201`.
impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, end) in [self.source, self.destination].iter().enumerate() {
            if i > 0 {
                f.write_str(" > ")?;
            }
            if self.is_ipv6 {
                write!(f, "[{}]:{}", core::net::Ipv6Addr::from(end.address), end.port)?;
            } else {
                let [a, b, c, d, ..] = end.address;
                write!(f, "{a}.{b}.{c}.{d}:{}", end.port)?;
            }
        }
        Ok(())
    }
}

/// Returns the header stack as it appears in reports: `tcp4`, `udp4/vxlan/tcp4`, `ip4/udp6`.
pub fn protocol(stack: &Stack) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut version = None;
    for layer in stack.layers() {
        match layer.kind.class() {
            Class::Network => {
                // An IP header immediately inside another is a tunnel.
                if let Some(outer) = version.replace(if layer.kind == Kind::Ipv4 { 4 } else { 6 }) {
                    words.push(format!("ip{outer}"));
                }
            }
            Class::Transport | Class::Control | Class::Security => {
                words.push(match version.take() {
                    Some(version) => format!("{}{version}", layer.kind),
                    None => layer.kind.to_string(),
                });
            }
            Class::Tunnel => {
                if let Some(version) = version.take() {
                    words.push(format!("ip{version}"));
                }
                words.push(layer.kind.to_string());
            }
            _ => {}
        }
    }
    if let Some(version) = version {
        words.push(format!("ip{version}"));
    }
    if words.is_empty() { stack.to_string() } else { words.join("/") }
}

#[inline]
fn copy(packet: &[u8], at: usize, out: &mut [u8]) {
    if let Some(bytes) = packet.get(at..at + out.len()) {
        out.copy_from_slice(bytes);
    }
}
