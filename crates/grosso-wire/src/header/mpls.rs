//! MPLS label stack entries (RFC 3032 section 2.1).
//!
//! ```text
//!  0                        20      23  24        32
//! +------------------------+-------+---+----------+
//! |         label          |class  | S |   TTL    |   bits
//! +------------------------+-------+---+----------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, AnnouncedByPort, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role,
    Segmentation, Structure, Tail, ethernet, ipv4, pseudowire, vxlan,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::walk::{Next, Step, Walk};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 4;

/// UDP port of MPLS-in-UDP (RFC 7510).
pub const PORT: u16 = 6635;

/// Bit that marks the last entry of the stack.
pub const BOTTOM_OF_STACK: u32 = 0x0000_0100;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Label, traffic class, bottom of stack, time to live.
    pub const ENTRY: Range<usize> = 0..4;
}

layout::assert_layout! {
    MplsHeader, HEADER_LEN;
    ENTRY = entry,
}

/// MPLS label stack entry.
#[repr(C)]
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
pub struct MplsHeader {
    /// Label, traffic class, bottom of stack, time to live.
    pub entry: U32,
}

impl MplsHeader {
    /// Parses one entry and returns it with the bytes after it: another entry, or the payload after the last one.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the entry and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the 20-bit label.
    pub fn set_label(&mut self, label: u32) -> Result<(), Malformed> {
        if label > 0xf_ffff {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        self.entry.set(self.entry.get() & 0xfff | label << 12);
        Ok(())
    }

    /// Sets the traffic class (0 to 7).
    pub fn set_traffic_class(&mut self, class: u8) -> Result<(), Malformed> {
        if class > 7 {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        self.entry.set(self.entry.get() & !0xe00 | u32::from(class) << 9);
        Ok(())
    }

    /// Sets whether this is the last entry of the stack.
    pub fn set_bottom_of_stack(&mut self, bottom: bool) {
        let bit = if bottom { BOTTOM_OF_STACK } else { 0 };
        self.entry.set(self.entry.get() & !BOTTOM_OF_STACK | bit);
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.entry.set(self.entry.get() & !0xff | u32::from(ttl));
    }

    /// Returns the 20-bit label.
    pub fn label(&self) -> u32 {
        self.entry.get() >> 12
    }

    /// Returns the traffic class (0 to 7).
    pub fn traffic_class(&self) -> u8 {
        (self.entry.get() >> 9) as u8 & 7
    }

    /// Returns whether this is the last entry of the stack.
    pub fn bottom_of_stack(&self) -> bool {
        self.entry.get() & BOTTOM_OF_STACK != 0
    }

    /// Returns the time to live.
    pub fn ttl(&self) -> u8 {
        self.entry.get() as u8
    }
}

/// Formats the entry like `mpls label 100 class 3 ttl 64`, with ` bottom` for the last entry.
impl fmt::Display for MplsHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (label, class, ttl) = (self.label(), self.traffic_class(), self.ttl());
        let bottom = if self.bottom_of_stack() { " bottom" } else { "" };
        write!(f, "{NAME} label {label} class {class} ttl {ttl}{bottom}")
    }
}

const NAME: &str = SPEC.name;

/// Registry entry for MPLS (RFC 3032). All 20 bits of the label are part of the flow.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "mpls",
    class: Class::Link,
    announced: Announced {
        ethertypes: &[ethernet::ETHERTYPE_MPLS, ethernet::ETHERTYPE_MPLS_MULTICAST],
        tunnel_ethertypes: &[ethernet::ETHERTYPE_MPLS, ethernet::ETHERTYPE_MPLS_MULTICAST],
        protocols: &[ipv4::PROTOCOL_MPLS],
        next_protocols: &[vxlan::NEXT_MPLS],
        port: Some(AnnouncedByPort { assigned: PORT, title: "MPLS-in-UDP", code: 8, read }),
    },
    read,
    layouts: Layouts::One(Layout::new(&[Field::new(
        "label",
        field::ENTRY,
        Role::Link,
        Law::Key { bits: u64::MAX << 44 },
    )
    .shown(Notation::Hexadecimal)])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Ahead(structure),
    segmentation: Segmentation::Never,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let entry = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Mpls, HEADER_LEN)?;
    let bottom = u32::from_be_bytes(*entry) & BOTTOM_OF_STACK != 0;
    if !bottom {
        return Ok(Next::Header(Kind::Mpls));
    }
    match walk.rest.first().map(|byte| byte >> 4) {
        Some(4 | 6) | None => Ok(Next::Ip),
        Some(_) => pseudowire::read_content(walk),
    }
}

/// Returns the bits that determine the following headers: the bottom-of-stack bit, and the first bits after the stack.
fn structure(bytes: &[u8]) -> u128 {
    let bottom = 0x01 << (8 * (15 - 2));
    let is_bottom = bytes.get(2).is_some_and(|byte| byte & 1 != 0);
    let content = bytes.get(HEADER_LEN..).filter(|_| is_bottom).unwrap_or_default();
    bottom | u128::from(pseudowire::deciding(content)) << (8 * (14 - HEADER_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 4] = [0x12, 0x34, 0x5b, 0x40];

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, payload) = MplsHeader::parse(&bytes).unwrap();
        assert_eq!((header.label(), header.traffic_class()), (0x12345, 5));
        assert_eq!((header.bottom_of_stack(), header.ttl()), (true, 64));
        assert_eq!(payload, b"payload");
        assert_refuses_prefixes(&BYTES, |bytes| MplsHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        for start in [0, u32::MAX] {
            let mut header = MplsHeader { entry: start.into() };
            // Each setter must leave the other fields unchanged.
            header.set_bottom_of_stack(true);
            header.set_ttl(64);
            header.set_label(0x12345).unwrap();
            header.set_traffic_class(5).unwrap();
            header.set_ttl(64);
            header.set_bottom_of_stack(true);
            header.set_label(0x12345).unwrap();
            assert_emits(&BYTES, |buffer| header.emit(buffer));
        }
        let mut header = MplsHeader { entry: u32::MAX.into() };
        header.set_bottom_of_stack(false);
        assert_eq!(header.entry.get(), 0xffff_feff);
    }

    #[test]
    fn values_wider_than_their_fields_are_refused() {
        let mut header = MplsHeader::default();
        assert!(header.set_label(0x10_0000).is_err());
        assert!(header.set_traffic_class(8).is_err());
        assert_eq!(header, MplsHeader::default());
    }

    #[test]
    fn display() {
        let (header, _) = MplsHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "mpls label 74565 class 5 ttl 64 bottom");
    }
}
