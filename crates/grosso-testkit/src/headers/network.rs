//! Network headers: IPv4, IPv6 and the IPv6 extension headers.

use super::{Around, Checksum, checksum_setters, protocol, setters};
use crate::oracle;

/// IPv4 (RFC 791). By default, the packet goes from 192.168.1.200 to 192.168.1.100 (from 10.d.0.2 to 10.d.0.1 at tunnel
/// depth d), with DF set, TTL 8 and identification 0.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) tos: u8,
    pub(crate) id: u16,
    pub(crate) reserved_bit: bool,
    pub(crate) df: bool,
    pub(crate) more_fragments: bool,
    pub(crate) fragment_offset: u16,
    pub(crate) ttl: u8,
    pub(crate) options: Vec<u8>,
    /// Final destination of a source route with hops left.
    pub(crate) end_of_route: Option<[u8; 4]>,
    pub(crate) protocol: Option<u8>,
    pub(crate) total_len: Option<u16>,
    pub(crate) version_ihl: Option<u8>,
    pub(crate) checksum: Checksum,
}

impl Ipv4 {
    pub(crate) fn new(depth: u8) -> Self {
        let (source, destination) = match depth {
            0 => ([192, 168, 1, 200], [192, 168, 1, 100]),
            _ => ([10, depth, 0, 2], [10, depth, 0, 1]),
        };
        Self {
            source,
            destination,
            tos: 0,
            id: 0,
            reserved_bit: false,
            df: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 8,
            options: Vec::new(),
            end_of_route: None,
            protocol: None,
            total_len: None,
            version_ihl: None,
            checksum: Checksum::Right,
        }
    }

    setters! {
        /// Sets the source address.
        source: [u8; 4];
        /// Sets the destination address.
        destination: [u8; 4];
        /// Sets the type of service: DSCP and ECN.
        tos: u8;
        /// Sets the identification.
        id: u16;
        /// Sets the reserved top bit of the fragment word.
        reserved_bit: bool;
        /// Sets DF ("don't fragment").
        df: bool;
        /// Sets MF ("more fragments").
        more_fragments: bool;
        /// Sets the fragment offset in units of 8 bytes.
        fragment_offset: u16;
        /// Sets the time to live.
        ttl: u8;
    }

    checksum_setters!();

    /// Sets the options, padded with end-of-options to a multiple of 4 bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a loose (131) or strict (137) source route over these addresses; the first `passed` hops were already
    /// visited. While any hop is left, transport checksums cover the last address in the route.
    ///
    /// # Panics
    /// Panics if `addresses` is empty.
    pub fn source_route(self, kind: u8, passed: usize, addresses: &[[u8; 4]]) -> Self {
        let last = addresses[addresses.len() - 1];
        let fixed = [kind, 3 + 4 * addresses.len() as u8, 4 + 4 * passed as u8];
        let mut header = self.options(&[&fixed[..], &addresses.concat()].concat());
        header.end_of_route = (passed < addresses.len()).then_some(last);
        header
    }

    /// Sets the protocol number, regardless of the next header.
    pub fn protocol(mut self, value: u8) -> Self {
        self.protocol = Some(value);
        self
    }

    /// Sets the total length, regardless of the contents.
    pub fn total_len_raw(mut self, value: u16) -> Self {
        self.total_len = Some(value);
        self
    }

    /// Sets the first byte, regardless of the options.
    pub fn version_ihl_raw(mut self, value: u8) -> Self {
        self.version_ihl = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let version_ihl = self.version_ihl.unwrap_or(0x40 | (header_len / 4) as u8);
        // A length that the field cannot hold is written as zero (rule G50).
        let len = u16::try_from(header_len + around.inner.len()).unwrap_or(0);
        let fragment = u16::from(self.reserved_bit) << 15
            | u16::from(self.df) << 14
            | u16::from(self.more_fragments) << 13
            | self.fragment_offset & 0x1fff;
        let mut bytes = vec![version_ihl, self.tos];
        bytes.extend(self.total_len.unwrap_or(len).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(fragment.to_be_bytes());
        bytes.push(self.ttl);
        bytes.push(self.protocol.unwrap_or_else(|| protocol(around.next(), false)));
        bytes.extend([0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(&self.options);
        let checksum = self.checksum.field(oracle::checksum(&bytes));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// The fixed IPv6 header (RFC 8200). By default, the packet goes from fdaa::2 to fdaa::1 (from fdaa:d::2 to fdaa:d::1
/// at tunnel depth d), with hop limit 8.
#[derive(Clone, Debug)]
pub struct Ipv6 {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) next_header: Option<u8>,
    pub(crate) payload_len: Option<u16>,
    pub(crate) version: u8,
}

impl Ipv6 {
    pub(crate) fn new(depth: u8) -> Self {
        let mut source = [0; 16];
        source[..4].copy_from_slice(&[0xfd, 0xaa, 0, depth]);
        let mut destination = source;
        source[15] = 2;
        destination[15] = 1;
        Self {
            source,
            destination,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 8,
            next_header: None,
            payload_len: None,
            version: 6,
        }
    }

    setters! {
        /// Sets the source address.
        source: [u8; 16];
        /// Sets the destination address.
        destination: [u8; 16];
        /// Sets the traffic class: DSCP and ECN.
        traffic_class: u8;
        /// Sets the 20-bit flow label.
        flow_label: u32;
        /// Sets the hop limit.
        hop_limit: u8;
        /// Sets the version nibble; every value except 6 is invalid.
        version: u8;
    }

    /// Sets the next header number, regardless of the next header.
    pub fn next_header(mut self, value: u8) -> Self {
        self.next_header = Some(value);
        self
    }

    /// Sets the payload length, regardless of the contents.
    pub fn payload_len_raw(mut self, value: u16) -> Self {
        self.payload_len = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let word = u32::from(self.version & 15) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0xf_ffff;
        // A length that the field cannot hold is written as zero (rule G63, as in Linux 7.2).
        let len = u16::try_from(around.inner.len()).unwrap_or(0);
        let mut bytes = word.to_be_bytes().to_vec();
        bytes.extend(self.payload_len.unwrap_or(len).to_be_bytes());
        bytes.push(self.next_header.unwrap_or_else(|| protocol(around.next(), true)));
        bytes.push(self.hop_limit);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes
    }
}

/// A hop-by-hop, routing or destination options header (RFC 8200 section 4).
#[derive(Clone, Debug)]
pub struct Extension {
    pub(crate) kind: u8,
    pub(crate) data: Vec<u8>,
    pub(crate) next_header: Option<u8>,
    pub(crate) len: Option<u8>,
    /// The final destination, if segments are left.
    pub(crate) final_destination: Option<[u8; 16]>,
    /// The home address, if the source address is only a care-of address.
    pub(crate) home: Option<[u8; 16]>,
}

impl Extension {
    /// Creates a header with 6 bytes of contents that have no effect: PadN, or a routing header with no segments left.
    pub(crate) fn new(kind: u8) -> Self {
        let data = if kind == 43 { vec![0; 6] } else { vec![1, 4, 0, 0, 0, 0] };
        Self { kind, data, next_header: None, len: None, final_destination: None, home: None }
    }

    /// Makes the extension a routing header of this type. The addresses are in header order: types 0 (RFC 2460 section
    /// 4.4) and 2 (RFC 6275 section 6.4) end with the final destination, and type 4 (RFC 8754 section 2) begins with
    /// it.
    ///
    /// # Panics
    /// Panics if `addresses` is empty.
    pub fn route(self, routing_type: u8, segments_left: u8, addresses: &[[u8; 16]]) -> Self {
        let (first, last) = (addresses[0], addresses[addresses.len() - 1]);
        let is_last_first = routing_type == 4;
        // The fourth byte is the index of the last entry in type 4, and reserved in the other types.
        let last_entry = if is_last_first { addresses.len() as u8 - 1 } else { 0 };
        let fixed = [routing_type, segments_left, last_entry, 0, 0, 0];
        let stop = if is_last_first { first } else { last };
        let mut header = self.data(&[&fixed[..], &addresses.concat()].concat());
        let is_known = matches!(routing_type, 0 | 2 | 4);
        header.final_destination = (segments_left > 0 && is_known).then_some(stop);
        header
    }

    /// Makes the extension a destination options header with the sender's home address (RFC 6275 section 6.3).
    pub fn home_address(self, address: [u8; 16]) -> Self {
        // The option starts 6 bytes after a multiple of 8, so PadN fills 4 bytes.
        self.home_address_behind([1, 2, 0, 0], address)
    }

    /// Makes the extension a destination options header with 4 bytes of other options before the home address option.
    pub fn home_address_behind(self, options: [u8; 4], address: [u8; 16]) -> Self {
        let mut header = self.data(&[&options[..], &[0xc9, 16], &address].concat());
        header.home = Some(address);
        header
    }

    /// Sets the contents after the two fixed bytes. Zeros (Pad1) are added so that the header's length is a multiple of
    /// 8 bytes.
    pub fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self.data.resize((data.len() + 2).next_multiple_of(8) - 2, 0);
        self
    }

    /// Sets the next header number, regardless of the next header.
    pub fn next_header(mut self, value: u8) -> Self {
        self.next_header = Some(value);
        self
    }

    /// Sets the length (in 8-byte units after the first 8 bytes), regardless of the contents.
    pub fn len_raw(mut self, value: u8) -> Self {
        self.len = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let next = self.next_header.unwrap_or_else(|| protocol(around.next(), true));
        let len = self.len.unwrap_or(((self.data.len() + 2) / 8 - 1) as u8);
        [&[next, len][..], &self.data].concat()
    }
}

/// The IPv6 fragment header (RFC 8200 section 4.5). By default, the fragment is atomic (RFC 6946).
#[derive(Clone, Debug)]
pub struct Fragment {
    pub(crate) id: u32,
    pub(crate) offset: u16,
    pub(crate) more: bool,
    pub(crate) next_header: Option<u8>,
}

impl Fragment {
    pub(crate) fn new() -> Self {
        Self { id: 0, offset: 0, more: false, next_header: None }
    }

    setters! {
        /// Sets the identification.
        id: u32;
        /// Sets the fragment offset in units of 8 bytes.
        offset: u16;
        /// Sets whether more fragments follow.
        more: bool;
    }

    /// Sets the next header number, regardless of the next header.
    pub fn next_header(mut self, value: u8) -> Self {
        self.next_header = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let next = self.next_header.unwrap_or_else(|| protocol(around.next(), true));
        let mut bytes = vec![next, 0];
        bytes.extend((self.offset << 3 | u16::from(self.more)).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes
    }
}
