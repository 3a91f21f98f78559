//! Tunnel headers: GRE, VXLAN, NSH, Geneve, GUE, L2TPv3.

use super::{Around, Checksum, Header, checksum_setters, ethertype, protocol, setters};
use crate::oracle;

/// GRE (RFC 2784, RFC 2890), by default without optional fields.
#[derive(Clone, Debug)]
pub struct Gre {
    pub(crate) with_checksum: bool,
    pub(crate) checksum: Checksum,
    pub(crate) reserved: u16,
    pub(crate) key: Option<u32>,
    pub(crate) sequence: Option<u32>,
    pub(crate) extra_flags: u16,
    pub(crate) protocol: Option<u16>,
}

impl Gre {
    pub(crate) fn new() -> Self {
        Self {
            with_checksum: false,
            checksum: Checksum::Right,
            reserved: 0,
            key: None,
            sequence: None,
            extra_flags: 0,
            protocol: None,
        }
    }

    setters! {
        /// Sets whether the checksum and reserved words are present (flag C).
        with_checksum: bool;
        /// Sets the reserved word after the checksum.
        reserved: u16;
        /// Sets further bits of the flag word: R, s, recursion, version.
        extra_flags: u16;
    }

    checksum_setters!();

    /// Adds the checksum (flag C).
    pub fn checksum(self) -> Self {
        self.with_checksum(true)
    }

    /// Adds the key (flag K).
    pub fn key(mut self, key: u32) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds the sequence number (flag S).
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Sets the protocol type, regardless of the next header.
    pub fn protocol_raw(mut self, value: u16) -> Self {
        self.protocol = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let flags = u16::from(self.with_checksum) << 15
            | u16::from(self.key.is_some()) << 13
            | u16::from(self.sequence.is_some()) << 12
            | self.extra_flags;
        let mut bytes = flags.to_be_bytes().to_vec();
        bytes.extend(self.protocol.unwrap_or_else(|| ethertype(around.next())).to_be_bytes());
        if self.with_checksum {
            bytes.extend([0, 0]);
            bytes.extend(self.reserved.to_be_bytes());
        }
        bytes.extend(self.key.iter().flat_map(|key| key.to_be_bytes()));
        bytes.extend(self.sequence.iter().flat_map(|sequence| sequence.to_be_bytes()));
        // In a superframe, the segments' checksums have not been computed yet, so the field is zero.
        if self.with_checksum && !around.superframe {
            let right = oracle::checksum(&[&bytes[..], around.inner].concat());
            bytes[4..6].copy_from_slice(&self.checksum.field(right).to_be_bytes());
        }
        bytes
    }
}

/// VXLAN (RFC 7348) with its extensions: group policy, generic protocol extension and remote checksum offload.
#[derive(Clone, Debug)]
pub struct Vxlan {
    pub(crate) vni: u32,
    pub(crate) flags: u32,
    pub(crate) reserved: u8,
    pub(crate) gpe: bool,
    pub(crate) remote_checksum: bool,
}

impl Vxlan {
    pub(crate) fn new() -> Self {
        Self { vni: 1, flags: 0x0800_0000, reserved: 0, gpe: false, remote_checksum: false }
    }

    setters! {
        /// Sets the 24-bit network identifier.
        vni: u32;
        /// Sets the whole first word; by default, only the I flag is set.
        flags: u32;
        /// Sets the last byte.
        reserved: u8;
    }

    /// Adds a group policy identifier (rule W31).
    pub fn gbp(mut self, policy: u16) -> Self {
        self.flags |= 0x8000_0000 | u32::from(policy);
        self
    }

    /// Makes the header VXLAN-GPE: sets the P flag and the next protocol (rule W31).
    pub fn gpe(mut self) -> Self {
        self.gpe = true;
        self
    }

    /// Announces remote checksum offload for the innermost transport header (rule C50), in which the checksum field
    /// contains only the pseudo-header sum.
    pub fn remote_checksum(mut self) -> Self {
        self.remote_checksum = true;
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let mut flags = self.flags;
        let mut reserved = self.reserved;
        if self.gpe {
            flags |= 0x0400_0000
                | match around.next() {
                    Some(Header::Ipv4(_)) => 1,
                    Some(Header::Ipv6(_)) => 2,
                    Some(Header::Ethernet(_)) => 3,
                    Some(Header::Nsh(_)) => 4,
                    Some(Header::Mpls(_)) => 5,
                    _ => 0,
                };
        }
        if self.remote_checksum {
            flags |= 0x0020_0000;
            if let Some((start, offset)) = remote_checksum(around) {
                reserved |= (start / 2) as u8 & 0x7f | if offset == 6 { 0x80 } else { 0 };
            }
        }
        let mut bytes = flags.to_be_bytes().to_vec();
        bytes.extend(((self.vni & 0xff_ffff) << 8 | u32::from(reserved)).to_be_bytes());
        bytes
    }
}

/// NSH (RFC 8300), by default with four zero words of context.
#[derive(Clone, Debug)]
pub struct Nsh {
    pub(crate) path: u32,
    pub(crate) index: u8,
    pub(crate) ttl: u8,
    pub(crate) version: u8,
    pub(crate) operations: bool,
    pub(crate) metadata_type: u8,
    pub(crate) context: Vec<u8>,
    pub(crate) length: Option<u8>,
    pub(crate) next: Option<u8>,
}

impl Nsh {
    pub(crate) fn new() -> Self {
        Self {
            path: 1,
            index: 255,
            ttl: 63,
            version: 0,
            operations: false,
            metadata_type: 1,
            context: vec![0; 16],
            length: None,
            next: None,
        }
    }

    setters! {
        /// Sets the 24-bit service path identifier.
        path: u32;
        /// Sets the service index.
        index: u8;
        /// Sets the 6-bit number of remaining hops.
        ttl: u8;
        /// Sets the 2-bit version.
        version: u8;
        /// Sets the O bit: operations and management.
        operations: bool;
    }

    /// Sets a context of variable length (type 2), padded with zeros to a multiple of 4 bytes.
    pub fn context(mut self, context: &[u8]) -> Self {
        self.metadata_type = 2;
        self.context = context.to_vec();
        self.context.resize(context.len().next_multiple_of(4), 0);
        self
    }

    /// Sets the length (6 bits, in words), regardless of the context.
    pub fn length_raw(mut self, words: u8) -> Self {
        self.length = Some(words);
        self
    }

    /// Sets the next protocol, regardless of the next header.
    pub fn next_raw(mut self, value: u8) -> Self {
        self.next = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let words = self.length.unwrap_or((2 + self.context.len() / 4) as u8);
        let first = u16::from(self.version & 3) << 14
            | u16::from(self.operations) << 13
            | u16::from(self.ttl & 0x3f) << 6
            | u16::from(words & 0x3f);
        let next = self.next.unwrap_or_else(|| match around.next() {
            Some(Header::Ipv4(_)) => 1,
            Some(Header::Ipv6(_)) => 2,
            Some(Header::Ethernet(_)) => 3,
            Some(Header::Nsh(_)) => 4,
            Some(Header::Mpls(_)) => 5,
            _ => 0xfe,
        });
        let mut bytes = first.to_be_bytes().to_vec();
        bytes.extend([self.metadata_type & 0x0f, next]);
        bytes.extend(((self.path & 0xff_ffff) << 8 | u32::from(self.index)).to_be_bytes());
        bytes.extend(&self.context);
        bytes
    }
}

/// Geneve (RFC 8926).
#[derive(Clone, Debug)]
pub struct Geneve {
    pub(crate) vni: u32,
    pub(crate) version: u8,
    pub(crate) control: bool,
    pub(crate) critical: bool,
    pub(crate) reserved_bits: u8,
    pub(crate) reserved: u8,
    pub(crate) options: Vec<u8>,
    pub(crate) options_len: Option<u8>,
    pub(crate) protocol: Option<u16>,
}

impl Geneve {
    pub(crate) fn new() -> Self {
        Self {
            vni: 1,
            version: 0,
            control: false,
            critical: false,
            reserved_bits: 0,
            reserved: 0,
            options: Vec::new(),
            options_len: None,
            protocol: None,
        }
    }

    setters! {
        /// Sets the 24-bit network identifier.
        vni: u32;
        /// Sets the 2-bit version.
        version: u8;
        /// Sets the O bit: a control packet.
        control: bool;
        /// Sets the C bit: critical options are present.
        critical: bool;
        /// Sets the six reserved bits of the second byte.
        reserved_bits: u8;
        /// Sets the last byte.
        reserved: u8;
    }

    /// Appends one option with this class, type and contents, padded with zeros to a multiple of 4 bytes.
    pub fn option(mut self, class: u16, kind: u8, contents: &[u8]) -> Self {
        let len = contents.len().next_multiple_of(4);
        self.options.extend(class.to_be_bytes());
        self.options.extend([kind, (len / 4) as u8 & 0x1f]);
        self.options.extend(contents);
        self.options.extend(vec![0; len - contents.len()]);
        self
    }

    /// Sets the option length (6 bits, in words), regardless of the options.
    pub fn options_len_raw(mut self, words: u8) -> Self {
        self.options_len = Some(words);
        self
    }

    /// Sets the protocol type, regardless of the next header.
    pub fn protocol_raw(mut self, value: u16) -> Self {
        self.protocol = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let words = self.options_len.unwrap_or((self.options.len() / 4) as u8);
        let mut bytes = vec![
            (self.version & 3) << 6 | words & 0x3f,
            u8::from(self.control) << 7 | u8::from(self.critical) << 6 | self.reserved_bits & 0x3f,
        ];
        bytes.extend(self.protocol.unwrap_or_else(|| ethertype(around.next())).to_be_bytes());
        bytes.extend(((self.vni & 0xff_ffff) << 8 | u32::from(self.reserved)).to_be_bytes());
        bytes.extend(&self.options);
        bytes
    }
}

/// GUE version 0 (rule W20). Version 1 has no header: for it, put IP directly after a UDP header with destination port
/// [`GUE_PORT`](oracle::GUE_PORT).
#[derive(Clone, Debug)]
pub struct Gue {
    pub(crate) version: u8,
    pub(crate) control: bool,
    pub(crate) flags: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) remote_checksum: bool,
    pub(crate) hlen: Option<u8>,
    pub(crate) protocol: Option<u8>,
}

impl Gue {
    pub(crate) fn new() -> Self {
        Self {
            version: 0,
            control: false,
            flags: 0,
            options: Vec::new(),
            remote_checksum: false,
            hlen: None,
            protocol: None,
        }
    }

    setters! {
        /// Sets the 2-bit version.
        version: u8;
        /// Sets the C bit: a control message.
        control: bool;
        /// Sets the flag word without adding the fields that its flags announce.
        flags: u16;
    }

    /// Sets the optional fields after the first word as raw bytes, padded with zeros to a multiple of 4 bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self.options.resize(options.len().next_multiple_of(4), 0);
        self
    }

    /// Announces remote checksum offload for the innermost transport header (rule C51), in which the checksum field
    /// contains only the pseudo-header sum.
    pub fn remote_checksum(mut self) -> Self {
        self.remote_checksum = true;
        self
    }

    /// Sets the header length (in words after the first), regardless of the fields.
    pub fn hlen_raw(mut self, words: u8) -> Self {
        self.hlen = Some(words);
        self
    }

    /// Sets the protocol number, regardless of the next header.
    pub fn protocol_raw(mut self, value: u8) -> Self {
        self.protocol = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let mut fields = self.options.clone();
        let mut flags = self.flags;
        if self.remote_checksum {
            flags |= 0x0001;
            let (start, offset) = remote_checksum(around).unwrap_or((0, 0));
            fields.extend(0x8000_0000_u32.to_be_bytes());
            fields.extend((start as u16).to_be_bytes());
            fields.extend(((start + offset) as u16).to_be_bytes());
        }
        let words = self.hlen.unwrap_or((fields.len() / 4) as u8);
        let kind = self.protocol.unwrap_or_else(|| protocol(around.next(), false));
        let mut bytes =
            vec![(self.version & 3) << 6 | u8::from(self.control) << 5 | words & 0x1f, kind];
        bytes.extend(flags.to_be_bytes());
        bytes.extend(fields);
        bytes
    }
}

/// Returns where the bytes that the innermost transport checksum covers start, relative to the end of this header, and
/// the offset of the checksum field from there.
fn remote_checksum(around: &Around<'_>) -> Option<(usize, usize)> {
    let last = around.inside.iter().rposition(|header| header.checksum_offset().is_some())?;
    let start = around.inside[..last].iter().map(Header::len).sum();
    Some((start, around.inside[last].checksum_offset()?))
}

/// A data message of L2TPv3 over IP (RFC 3931), in the oracle's default format: a cookie of [`oracle::L2TP_COOKIE_LEN`]
/// bytes, and the default sublayer without a sequence number.
#[derive(Clone, Debug)]
pub struct L2tp {
    pub(crate) session: u32,
    pub(crate) cookie: Vec<u8>,
    pub(crate) sublayer: Option<u32>,
}

impl L2tp {
    pub(crate) fn new() -> Self {
        Self { session: 1, cookie: vec![0xc0; oracle::L2TP_COOKIE_LEN], sublayer: Some(0) }
    }

    setters! {
        /// Sets the session identifier; zero means a control message.
        session: u32;
    }

    /// Sets the cookie, which may have any length.
    pub fn cookie(mut self, cookie: &[u8]) -> Self {
        self.cookie = cookie.to_vec();
        self
    }

    /// Omits the sublayer.
    pub fn without_sublayer(mut self) -> Self {
        self.sublayer = None;
        self
    }

    /// Sets the 24-bit sequence number (flag S).
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.sublayer = Some(0x4000_0000 | sequence & 0x00ff_ffff);
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.session.to_be_bytes().to_vec();
        bytes.extend(&self.cookie);
        bytes.extend(self.sublayer.into_iter().flat_map(u32::to_be_bytes));
        bytes
    }
}
