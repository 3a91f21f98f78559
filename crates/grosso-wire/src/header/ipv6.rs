//! IPv6 (RFC 8200 section 3).
//!
//! ```text
//!  0        1        2        3        4
//! +---+--------+----------------------+
//! |ver| class  |      flow label      |
//! +---+--------+----+--------+--------+ 4
//! | payload length  |  next  |hop lim.|
//! +-----------------+--------+--------+ 8
//! |              source               |
//! +-----------------------------------+ 24
//! |            destination            |
//! +-----------------------------------+ 40
//! ```

use core::fmt;
use core::net::Ipv6Addr;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail, ethernet, ipv4, vxlan,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;
/// Minimum MTU of a link in bytes: longer packets may be dropped (RFC 8200 section 5).
pub const MTU_MIN: u16 = 1280;

/// Next header: hop-by-hop options.
pub const NEXT_HOP_BY_HOP: u8 = 0;
/// Next header: routing.
pub const NEXT_ROUTING: u8 = 43;
/// Next header: fragment.
pub const NEXT_FRAGMENT: u8 = 44;
/// Next header: ICMPv6.
pub const NEXT_ICMP: u8 = 58;
/// Next header: nothing follows.
pub const NEXT_NONE: u8 = 59;
/// Next header: destination options.
pub const NEXT_DESTINATION_OPTIONS: u8 = 60;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Version, traffic class and flow label.
    pub const WORD: Range<usize> = 0..4;
    /// Payload length.
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    /// Next header.
    pub const NEXT_HEADER: Range<usize> = 6..7;
    /// Hop limit.
    pub const HOP_LIMIT: Range<usize> = 7..8;
    /// Source address.
    pub const SOURCE: Range<usize> = 8..24;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 24..40;
}

layout::assert_layout! {
    Ipv6Header, HEADER_LEN;
    WORD = word,
    PAYLOAD_LENGTH = payload_length,
    NEXT_HEADER = next_header,
    HOP_LIMIT = hop_limit,
    SOURCE = source,
    DESTINATION = destination,
}

/// IPv6 header.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct Ipv6Header {
    /// Version, traffic class and flow label.
    pub word: U32,
    /// Length of the payload in bytes, including extension headers, or 0 in a jumbogram (RFC 2675) or in a packet
    /// longer than the field can express (rule G62).
    pub payload_length: U16,
    /// Protocol number of the next header, which may be an extension header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Parses the header and returns it with its payload, which ends at the payload length or at the end of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        let (header, payload): (&Self, _) = layout::split(NAME, bytes)?;
        if header.version() != 6 {
            return Err(Malformed::new(NAME, Reason::Version));
        }
        match usize::from(header.payload_length) {
            0 => Ok((header, payload)),
            len => Ok((header, layout::clip(payload, len))),
        }
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the traffic class: DSCP in the high six bits, ECN in the low two.
    pub fn set_traffic_class(&mut self, class: u8) {
        self.word.set(self.word.get() & !0x0ff0_0000 | u32::from(class) << 20);
    }

    /// Sets the two ECN bits to the low two bits of `ecn`.
    pub fn set_ecn(&mut self, ecn: u8) {
        self.set_traffic_class(self.traffic_class() & !3 | ecn & 3);
    }

    /// Sets the 20-bit flow label.
    pub fn set_flow_label(&mut self, label: u32) -> Result<(), Malformed> {
        if label > FLOW_LABEL_MASK {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        self.word.set(self.word.get() & !FLOW_LABEL_MASK | label);
        Ok(())
    }

    /// Returns the version, which is 6.
    pub fn version(&self) -> u8 {
        (self.word.get() >> 28) as u8
    }

    /// Returns the traffic class: DSCP in the high six bits, ECN in the low two.
    pub fn traffic_class(&self) -> u8 {
        (self.word.get() >> 20) as u8
    }

    /// Returns the differentiated services code point (RFC 2474).
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Returns the two ECN bits (RFC 3168): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Returns the 20-bit flow label.
    pub fn flow_label(&self) -> u32 {
        self.word.get() & FLOW_LABEL_MASK
    }
}

/// Returns a header without payload, with hop limit 64 and no next header.
impl Default for Ipv6Header {
    fn default() -> Self {
        Self {
            word: U32::new(0x6000_0000),
            payload_length: U16::ZERO,
            next_header: NEXT_NONE,
            hop_limit: 64,
            source: [0; 16],
            destination: [0; 16],
        }
    }
}

/// Formats the header like `ip6 2001:db8::1 > 2001:db8::2 next 6 hops 64 len 1440`, with ` flow 0x12345` unless it is
/// 0.
impl fmt::Display for Ipv6Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Ipv6Addr::from(self.source), Ipv6Addr::from(self.destination));
        write!(f, "{NAME} {source} > {destination} next {}", self.next_header)?;
        write!(f, " hops {} len {}", self.hop_limit, self.payload_length)?;
        match self.flow_label() {
            0 => Ok(()),
            label => write!(f, " flow {label:#07x}"),
        }
    }
}

const NAME: &str = SPEC.name;

const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// Registry entry for IPv6 (RFC 8200, rules G20 to G23). The flow label does not identify the flow: a sender may change
/// it during a connection (RFC 6438), and the packets must stay in order.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "ip6",
    class: Class::Network,
    announced: Announced {
        ethertypes: &[ethernet::ETHERTYPE_IPV6],
        tunnel_ethertypes: &[ethernet::ETHERTYPE_IPV6],
        protocols: &[ipv4::PROTOCOL_IPV6],
        next_protocols: &[vxlan::NEXT_IPV6],
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::equal("class and label", field::WORD, Role::ClassAndLabel)
            .pinning(VERSION_AND_ECN << 32)
            .shown(Notation::Hexadecimal),
        Field::new(
            "payload length",
            field::PAYLOAD_LENGTH,
            Role::Length,
            Law::Length { skip: HEADER_LEN },
        )
        .shown(Notation::Number),
        Field::equal("next header", field::NEXT_HEADER, Role::Protocol),
        Field::equal("ttl", field::HOP_LIMIT, Role::TimeToLive),
        Field::key("source", field::SOURCE, Role::Address),
        Field::key("destination", field::DESTINATION, Role::Address),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(0, 0xf0), (6, 0xff)]),
    segmentation: Segmentation::Ip,
    remote_checksum: None,
    receive: None,
};

/// Version and ECN bits of the first word (RFC 3168 section 5).
const VERSION_AND_ECN: u64 = 0xf030_0000;

#[inline(always)]
pub(super) fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    if header[0] >> 4 != 6 {
        return Err(Stop::Malformed);
    }
    let payload_len = u16_at(header, 4) as usize;
    // If no header follows, a length of zero is the actual length and does not indicate a jumbogram.
    walk.jumbo = payload_len == 0 && header[6] != NEXT_NONE;
    walk.push(Kind::Ipv6, HEADER_LEN)?;
    walk.declare_ip(payload_len);
    walk.after_ip(header[6], Next::AfterIpv6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 40] = [
        0x6b, 0xa1, 0x23, 0x45, 0, 3, 17, 63, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 1, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    ];

    fn header() -> Ipv6Header {
        let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let mut header = Ipv6Header {
            payload_length: 3.into(),
            next_header: ipv4::PROTOCOL_UDP,
            hop_limit: 63,
            source: address(1),
            destination: address(2),
            ..Ipv6Header::default()
        };
        header.set_traffic_class(0xb9);
        header.set_ecn(2);
        header.set_flow_label(0x12345).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"abcpadding"].concat();
        let (parsed, payload) = Ipv6Header::parse(&bytes).unwrap();
        assert_eq!((*parsed, payload), (header(), &b"abc"[..]));
        assert_eq!((parsed.version(), parsed.traffic_class()), (6, 0xba));
        assert_eq!((parsed.dscp(), parsed.ecn(), parsed.flow_label()), (46, 2, 0x12345));
        assert_refuses_prefixes(&BYTES, |bytes| Ipv6Header::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn another_version_is_refused() {
        let bytes = [&[0x45], &BYTES[1..]].concat();
        assert_eq!(Ipv6Header::parse(&bytes), Err(Malformed::new("ip6", Reason::Version)));
    }

    #[test]
    fn length_zero_reaches_to_the_end() {
        let bytes = [Ipv6Header::default().as_bytes(), b"all of it"].concat();
        assert_eq!(Ipv6Header::parse(&bytes).unwrap().1, b"all of it");
    }

    #[test]
    fn setters_leave_the_other_bits() {
        let mut header = Ipv6Header { word: u32::MAX.into(), ..Ipv6Header::default() };
        header.set_flow_label(0).unwrap();
        assert_eq!(header.word.get(), 0xfff0_0000);
        header.set_traffic_class(0);
        assert_eq!(header.word.get(), 0xf000_0000);
        assert!(header.set_flow_label(0x10_0000).is_err());
    }

    #[test]
    fn display() {
        let expected = "ip6 2001:db8::1 > 2001:db8::2 next 17 hops 63 len 3 flow 0x12345";
        assert_eq!(header().to_string(), expected);
    }
}
