//! Link headers: Ethernet, VLAN tags, PPPoE sessions, MPLS labels.

use super::{Around, Header, ethertype, setters};

/// Ethernet II. By default, the frame goes from aa:00:00:00:00:02 to aa:00:00:00:00:01. Inside a tunnel, both addresses
/// start with 02 instead of aa.
#[derive(Clone, Debug)]
pub struct Ethernet {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    pub(crate) ethertype: Option<u16>,
}

impl Ethernet {
    pub(crate) fn new(depth: u8) -> Self {
        let first = if depth == 0 { 0xaa } else { 0x02 };
        Self {
            destination: [first, 0, 0, 0, depth, 1],
            source: [first, 0, 0, 0, depth, 2],
            ethertype: None,
        }
    }

    setters! {
        /// Sets the destination address.
        destination: [u8; 6];
        /// Sets the source address.
        source: [u8; 6];
    }

    /// Sets the EtherType, regardless of the next header.
    pub fn ethertype_raw(mut self, value: u16) -> Self {
        self.ethertype = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let kind = self.ethertype.unwrap_or_else(|| ethertype(around.next()));
        [&self.destination[..], &self.source, &kind.to_be_bytes()].concat()
    }
}

/// A VLAN tag: the 4 bytes after the EtherType that announces the tag. That EtherType is 0x8100 (802.1Q) unless
/// [`service`](Self::service) is called.
#[derive(Clone, Debug)]
pub struct Vlan {
    pub(crate) tpid: u16,
    pub(crate) id: u16,
    pub(crate) priority: u8,
    pub(crate) drop_eligible: bool,
    pub(crate) ethertype: Option<u16>,
}

impl Vlan {
    pub(crate) fn new() -> Self {
        Self { tpid: 0x8100, id: 1, priority: 0, drop_eligible: false, ethertype: None }
    }

    setters! {
        /// Sets the 12-bit VLAN identifier.
        id: u16;
        /// Sets the 3-bit priority code point.
        priority: u8;
        /// Sets the drop eligible indicator.
        drop_eligible: bool;
    }

    /// Makes the tag an 802.1ad service tag (0x88a8).
    pub fn service(mut self) -> Self {
        self.tpid = 0x88a8;
        self
    }

    /// Sets the EtherType, regardless of the next header.
    pub fn ethertype_raw(mut self, value: u16) -> Self {
        self.ethertype = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let tag = u16::from(self.priority & 7) << 13
            | u16::from(self.drop_eligible) << 12
            | self.id & 0x0fff;
        let kind = self.ethertype.unwrap_or_else(|| ethertype(around.next()));
        [tag.to_be_bytes(), kind.to_be_bytes()].concat()
    }
}

/// A PPPoE session header with its PPP protocol (RFC 2516).
#[derive(Clone, Debug)]
pub struct Pppoe {
    pub(crate) version_type: u8,
    pub(crate) code: u8,
    pub(crate) session: u16,
    pub(crate) len: Option<u16>,
    pub(crate) protocol: Option<u16>,
}

impl Pppoe {
    pub(crate) fn new() -> Self {
        Self { version_type: 0x11, code: 0, session: 0x1234, len: None, protocol: None }
    }

    setters! {
        /// Sets version and type, 4 bits each; 0x11 is the only defined value.
        version_type: u8;
        /// Sets the code; 0 is session data.
        code: u8;
        /// Sets the session identifier.
        session: u16;
    }

    /// Sets the length, regardless of the contents.
    pub fn len_raw(mut self, value: u16) -> Self {
        self.len = Some(value);
        self
    }

    /// Sets the PPP protocol, regardless of the next header.
    pub fn protocol_raw(mut self, value: u16) -> Self {
        self.protocol = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let protocol = self.protocol.unwrap_or_else(|| match around.next() {
            Some(Header::Ipv4(_)) => 0x0021,
            Some(Header::Ipv6(_)) => 0x0057,
            Some(Header::Mpls(_)) => 0x0281,
            // The default is LCP, which is never coalesced.
            _ => 0xc021,
        });
        let len = self.len.unwrap_or_else(|| {
            // Rule G5a limits the length of a merged packet.
            (around.inner.len() + 2).min(0xffff) as u16
        });
        let mut bytes = vec![self.version_type, self.code];
        bytes.extend(self.session.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(protocol.to_be_bytes());
        bytes
    }
}

/// One MPLS label stack entry (RFC 3032).
#[derive(Clone, Debug)]
pub struct Mpls {
    pub(crate) label: u32,
    pub(crate) traffic_class: u8,
    pub(crate) ttl: u8,
    pub(crate) bottom: Option<bool>,
}

impl Mpls {
    pub(crate) fn new() -> Self {
        Self { label: 16, traffic_class: 0, ttl: 64, bottom: None }
    }

    setters! {
        /// Sets the 20-bit label.
        label: u32;
        /// Sets the 3-bit traffic class.
        traffic_class: u8;
        /// Sets the time to live.
        ttl: u8;
    }

    /// Sets the bottom-of-stack bit, regardless of the next header.
    pub fn bottom_raw(mut self, value: bool) -> Self {
        self.bottom = Some(value);
        self
    }

    pub(crate) fn encode(&self, around: &Around<'_>) -> Vec<u8> {
        let bottom = self.bottom.unwrap_or_else(|| !matches!(around.next(), Some(Header::Mpls(_))));
        let entry = (self.label & 0xf_ffff) << 12
            | u32::from(self.traffic_class & 7) << 9
            | u32::from(bottom) << 8
            | u32::from(self.ttl);
        entry.to_be_bytes().to_vec()
    }
}
