//! 802.1Q and 802.1ad tags: the bytes from the tag control information to the next EtherType.
//!
//! ```text
//!  0        3   4            16                32
//! +--------+---+------------+-----------------+
//! |priority|DEI| identifier |    EtherType    |   bits
//! +--------+---+------------+-----------------+
//! ```

use core::fmt;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, Class, Field, HeaderSpec, Law, Layout, Layouts, Notation, Role, Segmentation,
    Structure, Tail, ethernet,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 4;
/// EtherTypes of a VLAN tag: 802.1Q, 802.1ad, and the predecessor of 802.1ad.
pub const ETHERTYPES: &[u16] =
    &[ethernet::ETHERTYPE_VLAN, ethernet::ETHERTYPE_VLAN_SERVICE, ethernet::ETHERTYPE_VLAN_OLD];

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Tag control information.
    pub const TCI: Range<usize> = 0..2;
    /// EtherType of the payload.
    pub const ETHERTYPE: Range<usize> = 2..4;
}

layout::assert_layout! {
    VlanHeader, HEADER_LEN;
    TCI = tci,
    ETHERTYPE = ethertype,
}

/// VLAN tag.
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
pub struct VlanHeader {
    /// Tag control information: priority, drop eligibility, identifier.
    pub tci: U16,
    /// EtherType of the payload.
    pub ethertype: U16,
}

impl VlanHeader {
    /// Parses the tag and returns it with its payload.
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the tag and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the VLAN identifier (0 to 4095).
    pub fn set_id(&mut self, id: u16) -> Result<(), Malformed> {
        if id > ID_MASK {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        self.tci.set(self.tci.get() & !ID_MASK | id);
        Ok(())
    }

    /// Sets the priority code point (0 to 7).
    pub fn set_priority(&mut self, priority: u8) -> Result<(), Malformed> {
        if priority > 7 {
            return Err(Malformed::new(NAME, Reason::Value));
        }
        self.tci.set(self.tci.get() & 0x1fff | u16::from(priority) << 13);
        Ok(())
    }

    /// Sets the drop eligible indicator.
    pub fn set_drop_eligible(&mut self, eligible: bool) {
        let bit = if eligible { DROP_ELIGIBLE } else { 0 };
        self.tci.set(self.tci.get() & !DROP_ELIGIBLE | bit);
    }

    /// Returns the VLAN ID, or 0 for a priority tag.
    pub fn id(&self) -> u16 {
        self.tci.get() & ID_MASK
    }

    /// Returns the priority code point (0 to 7).
    pub fn priority(&self) -> u8 {
        (self.tci.get() >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    pub fn drop_eligible(&self) -> bool {
        self.tci.get() & DROP_ELIGIBLE != 0
    }
}

/// Formats the tag like `vlan 7 priority 3 0x0800`.
impl fmt::Display for VlanHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, priority) = (self.id(), self.priority());
        write!(f, "{NAME} {id} priority {priority} {:#06x}", self.ethertype)
    }
}

const NAME: &str = SPEC.name;

const ID_MASK: u16 = 0x0fff;
const DROP_ELIGIBLE: u16 = 0x1000;

/// Registry entry for VLAN tags. The 12 bits of the VLAN ID are part of the flow; the priority is not.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "vlan",
    class: Class::Link,
    announced: Announced { ethertypes: ETHERTYPES, ..Announced::NEVER },
    read,
    layouts: Layouts::One(Layout::new(&[
        Field::new("tag", field::TCI, Role::Tag, Law::Key { bits: (ID_MASK as u64) << 48 })
            .shown(Notation::Hexadecimal),
        Field::equal("EtherType", field::ETHERTYPE, Role::Link).shown(Notation::Hexadecimal),
    ])),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Bits(&[(2, 0xff), (3, 0xff)]),
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::Vlan, HEADER_LEN)?;
    Ok(Next::EtherType(u16_at(header, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    const BYTES: [u8; 4] = [0xb1, 0x23, 0x08, 0x00];

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (header, payload) = VlanHeader::parse(&bytes).unwrap();
        assert_eq!((header.priority(), header.drop_eligible(), header.id()), (5, true, 0x123));
        assert_eq!(header.ethertype.get(), ethernet::ETHERTYPE_IPV4);
        assert_eq!(payload, b"payload");
        assert_refuses_prefixes(&BYTES, |bytes| VlanHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        for start in [0, 0xffff_u16] {
            let mut header = VlanHeader { tci: start.into(), ethertype: 0x0800.into() };
            // Each setter must leave the other fields unchanged.
            header.set_drop_eligible(true);
            header.set_id(0x123).unwrap();
            header.set_priority(5).unwrap();
            header.set_id(0x123).unwrap();
            assert_emits(&BYTES, |buffer| header.emit(buffer));
        }
        let mut header = VlanHeader { tci: 0xffff.into(), ethertype: 0.into() };
        header.set_drop_eligible(false);
        assert_eq!(header.tci.get(), 0xefff);
    }

    #[test]
    fn values_wider_than_their_fields_are_refused() {
        let mut header = VlanHeader::default();
        assert_eq!(header.set_id(0x1000).map_err(|error| error.reason), Err(Reason::Value));
        assert_eq!(header.set_priority(8).map_err(|error| error.reason), Err(Reason::Value));
        assert_eq!(header, VlanHeader::default());
    }

    #[test]
    fn display() {
        let (header, _) = VlanHeader::parse(&BYTES).unwrap();
        assert_eq!(header.to_string(), "vlan 291 priority 5 0x0800");
    }
}
