//! VXLAN (RFC 7348) with group policy, generic protocol extension and remote checksum offload.
//!
//! ```text
//!  0        1        2                 4
//! +--------+--------+-----------------+
//! |G|ver|IPO|R|D  A |group policy, or |
//! |        |        |next protocol    |
//! +--------+--------+--------+--------+ 4
//! |           VNI            |reserved|  C and start, if R
//! +--------------------------+--------+ 8
//! ```
//!
//! | bit of the first word | meaning |
//! |---|---|
//! | `0x8000_0000` G | the low 16 bits are a group policy |
//! | `0x3000_0000` | version of the generic protocol extension |
//! | `0x0800_0000` I | the VNI is valid |
//! | `0x0400_0000` P | the low 8 bits are a next protocol |
//! | `0x0100_0000` O | OAM packet of the generic protocol extension |
//! | `0x0040_0000` D | with G: do not learn the inner source address |
//! | `0x0020_0000` R | remote checksum offload |
//! | `0x0008_0000` A | with G: the policy was already applied |

use core::fmt;

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Announced, AnnouncedByPort, Class, Field, HeaderSpec, Layout, Layouts, Notation, Received,
    Refused, Remote, Role, Segmentation, Structure, Tail,
};
use crate::error::{Malformed, Reason};
use crate::kind::Kind;
use crate::layout;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk, u16_at};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 8;

/// UDP port assigned by IANA.
pub const PORT: u16 = 4789;
/// UDP port of the generic protocol extension.
pub const PORT_GPE: u16 = 4790;

/// The network identifier is valid.
pub const FLAG_VNI: u32 = 0x0800_0000;
/// Group policy: the low 16 bits are its identifier.
pub const FLAG_POLICY: u32 = 0x8000_0000;
/// Group policy: do not learn the inner source address.
pub const FLAG_POLICY_DONT_LEARN: u32 = 0x0040_0000;
/// Group policy: it has already been applied.
pub const FLAG_POLICY_APPLIED: u32 = 0x0008_0000;
/// Generic protocol extension: mask of the version, which is 0.
pub const GPE_VERSION_MASK: u32 = 0x3000_0000;
/// Generic protocol extension: the low 8 bits are a next protocol.
pub const FLAG_NEXT_PROTOCOL: u32 = 0x0400_0000;
/// Generic protocol extension: OAM packet.
pub const FLAG_OPERATIONS: u32 = 0x0100_0000;
/// Remote checksum offload.
pub const FLAG_REMOTE_CHECKSUM: u32 = 0x0020_0000;

/// Next protocol: IPv4.
pub const NEXT_IPV4: u8 = 1;
/// Next protocol: IPv6.
pub const NEXT_IPV6: u8 = 2;
/// Next protocol: Ethernet.
pub const NEXT_ETHERNET: u8 = 3;
/// Next protocol: network service header.
pub const NEXT_NSH: u8 = 4;
/// Next protocol: MPLS.
pub const NEXT_MPLS: u8 = 5;

/// Byte ranges inside the header.
pub mod field {
    use core::ops::Range;

    /// Flags.
    pub const FLAGS: Range<usize> = 0..4;
    /// Network identifier.
    pub const VNI: Range<usize> = 4..7;
    /// Reserved, or used by remote checksum offload.
    pub const RESERVED: Range<usize> = 7..8;
}

layout::assert_layout! {
    VxlanHeader, HEADER_LEN;
    FLAGS = flags,
    VNI = vni,
    RESERVED = reserved,
}

/// VXLAN header.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq,
)]
pub struct VxlanHeader {
    /// Flags; some of them define the low half of the word.
    pub flags: U32,
    /// Network identifier.
    pub vni: [u8; 3],
    /// Reserved, or used by remote checksum offload.
    pub reserved: u8,
}

/// Group policy (rule W31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupPolicy {
    /// Identifier of the policy.
    pub id: u16,
    /// Whether receivers must not learn the inner source address.
    pub dont_learn: bool,
    /// Whether the policy has already been applied.
    pub applied: bool,
}

/// Remote checksum offload (rule C50).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanRemoteChecksum {
    /// Start of the sum, in bytes from the end of the VXLAN header. It must be even and between 0 and 254.
    pub start: u16,
    /// Offset of the checksum field in bytes from `start`: 16 for TCP, 6 for UDP.
    pub offset: u16,
}

impl VxlanHeader {
    /// Parses the header and returns it with its payload. Flags are not checked, because each endpoint's configuration
    /// determines which ones it accepts (rule W30).
    pub fn parse(bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        layout::split(NAME, bytes)
    }

    /// Writes the header and returns the rest of the buffer.
    pub fn emit<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], Malformed> {
        layout::emit(NAME, self, &[], buffer)
    }

    /// Sets the 24-bit network identifier.
    pub fn set_vni(&mut self, vni: u32) -> Result<(), Malformed> {
        let [0, a, b, c] = vni.to_be_bytes() else {
            return Err(Malformed::new(NAME, Reason::Value));
        };
        self.vni = [a, b, c];
        Ok(())
    }

    /// Sets or removes the group policy. A header with a group policy cannot have a next protocol.
    pub fn set_group_policy(&mut self, policy: Option<GroupPolicy>) {
        let all = FLAG_POLICY | FLAG_POLICY_DONT_LEARN | FLAG_POLICY_APPLIED | 0xffff;
        let bits = policy.map_or(0, |policy| {
            let dont_learn = if policy.dont_learn { FLAG_POLICY_DONT_LEARN } else { 0 };
            let applied = if policy.applied { FLAG_POLICY_APPLIED } else { 0 };
            FLAG_POLICY | dont_learn | applied | u32::from(policy.id)
        });
        self.flags.set(self.flags.get() & !all | bits);
    }

    /// Sets or removes the next protocol. A header with a next protocol cannot have a group policy.
    pub fn set_next_protocol(&mut self, protocol: Option<u8>) {
        let bits = protocol.map_or(0, |protocol| FLAG_NEXT_PROTOCOL | u32::from(protocol));
        self.flags.set(self.flags.get() & !(FLAG_NEXT_PROTOCOL | 0xff) | bits);
    }

    /// Sets or removes remote checksum offload.
    ///
    /// # Errors
    /// Returns [`Malformed`] for values that the header cannot express: a start that is odd or above 254, or an offset
    /// other than 6 or 16.
    pub fn set_remote_checksum(
        &mut self,
        remote: Option<VxlanRemoteChecksum>,
    ) -> Result<(), Malformed> {
        let (flag, reserved) = match remote {
            None => (0, 0),
            Some(VxlanRemoteChecksum { start, offset: offset @ (6 | 16) })
                if start <= REMOTE_START_MAX && start.is_multiple_of(2) =>
            {
                let udp = if offset == 6 { REMOTE_UDP } else { 0 };
                (FLAG_REMOTE_CHECKSUM, udp | (start / 2) as u8)
            }
            Some(_) => return Err(Malformed::new(NAME, Reason::Value)),
        };
        self.flags.set(self.flags.get() & !FLAG_REMOTE_CHECKSUM | flag);
        self.reserved = reserved;
        Ok(())
    }

    /// Returns the 24-bit network identifier.
    pub fn vni(&self) -> u32 {
        let [a, b, c] = self.vni;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Returns whether all of these flags are set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags.get() & flags == flags
    }

    /// Returns the group policy, if present.
    pub fn group_policy(&self) -> Option<GroupPolicy> {
        self.has(FLAG_POLICY).then(|| GroupPolicy {
            id: self.flags.get() as u16,
            dont_learn: self.has(FLAG_POLICY_DONT_LEARN),
            applied: self.has(FLAG_POLICY_APPLIED),
        })
    }

    /// Returns the next protocol of the generic protocol extension, if present: version 0, P set, O clear (rule T5).
    pub fn next_protocol(&self) -> Option<u8> {
        let decided = GPE_VERSION_MASK | FLAG_NEXT_PROTOCOL | FLAG_OPERATIONS;
        (self.flags.get() & decided == FLAG_NEXT_PROTOCOL).then(|| self.flags.get() as u8)
    }

    /// Returns the remote checksum offload, if present.
    pub fn remote_checksum(&self) -> Option<VxlanRemoteChecksum> {
        self.has(FLAG_REMOTE_CHECKSUM).then_some(VxlanRemoteChecksum {
            start: u16::from(self.reserved & !REMOTE_UDP) * 2,
            offset: if self.reserved & REMOTE_UDP != 0 { 6 } else { 16 },
        })
    }
}

/// Returns a header for network 0.
impl Default for VxlanHeader {
    fn default() -> Self {
        Self { flags: U32::new(FLAG_VNI), vni: [0; 3], reserved: 0 }
    }
}

/// Formats the header like `vxlan vni 42 flags 0x08000000`.
impl fmt::Display for VxlanHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} vni {} flags {:#010x}", self.vni(), self.flags)
    }
}

const NAME: &str = SPEC.name;

/// Bit in the reserved byte that selects the UDP checksum field.
const REMOTE_UDP: u8 = 0x80;

const REMOTE_START_MAX: u16 = 254;

/// Registry entry for VXLAN. The network identifier is part of the flow (rule T5).
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "vxlan",
    class: Class::Tunnel,
    announced: Announced {
        port: Some(AnnouncedByPort { assigned: PORT, title: "VXLAN", code: 1, read }),
        ..Announced::NEVER
    },
    read,
    layouts: Layouts::One(LAYOUT),
    tail: Tail { name: "content", role: Role::Tunnel },
    structure: STRUCTURE,
    segmentation: Segmentation::Nothing,
    remote_checksum: Some(|header| {
        let VxlanRemoteChecksum { start, offset } =
            VxlanHeader::parse(header).ok()?.0.remote_checksum()?;
        let start = usize::from(start);
        Some(Remote { start, at: start + usize::from(offset) })
    }),
    receive: Some(receive),
};

/// Registry entry for VXLAN-GPE.
pub(super) const SPEC_GPE: HeaderSpec = HeaderSpec {
    name: "gpe",
    class: Class::Tunnel,
    announced: Announced {
        port: Some(AnnouncedByPort {
            assigned: PORT_GPE,
            title: "VXLAN-GPE",
            code: 2,
            read: read_gpe,
        }),
        ..Announced::NEVER
    },
    read: read_gpe,
    layouts: Layouts::One(LAYOUT),
    tail: Tail { name: "content", role: Role::Tunnel },
    structure: STRUCTURE,
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: Some(receive_gpe),
};

const LAYOUT: Layout = Layout::new(&[
    Field::equal("flags", field::FLAGS, Role::Tunnel).shown(Notation::Hexadecimal),
    Field::key("network", field::VNI, Role::Network),
    Field::equal("reserved byte", field::RESERVED, Role::Tunnel),
]);

/// Bits that determine the headers after VXLAN. The last byte is included because it contains the start of remote
/// checksum offload.
const STRUCTURE: Structure =
    Structure::Bits(&[(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)]);

/// Checks that the VNI is valid, and looks for reserved bits (rules W30, W31). RFC 7348 section 5 tells receivers to
/// ignore these bits, but Linux does not.
fn receive(header: &[u8]) -> Result<Received, Refused> {
    let (header, _) = VxlanHeader::parse(header).map_err(|_| Refused::Flags)?;
    let flags = header.flags.get();
    let mut known = FLAG_VNI | FLAG_REMOTE_CHECKSUM;
    if flags & FLAG_POLICY != 0 {
        known |= FLAG_POLICY | FLAG_POLICY_DONT_LEARN | FLAG_POLICY_APPLIED | 0xffff;
    }
    let uses_reserved = flags & FLAG_REMOTE_CHECKSUM != 0;
    let has_reserved = flags & !known != 0 || !uses_reserved && header.reserved != 0;
    if flags & FLAG_VNI == 0 {
        return Err(Refused::Flags);
    }
    Ok(Received { has_reserved, ..Received::default() })
}

/// Checks the version and the flags, and looks for reserved bits (rule W31).
fn receive_gpe(header: &[u8]) -> Result<Received, Refused> {
    let (header, _) = VxlanHeader::parse(header).map_err(|_| Refused::Flags)?;
    let flags = header.flags.get();
    if flags & (GPE_VERSION_MASK | FLAG_OPERATIONS) != 0 {
        return Err(Refused::Version);
    }
    if !header.has(FLAG_VNI | FLAG_NEXT_PROTOCOL) {
        return Err(Refused::Flags);
    }
    let known = FLAG_VNI | FLAG_NEXT_PROTOCOL | 0xff;
    let has_reserved = flags & !known != 0 || header.reserved != 0;
    Ok(Received { has_reserved, ..Received::default() })
}

#[inline(always)]
fn read(walk: &mut Walk<'_, '_>) -> Step {
    walk.push(Kind::Vxlan, HEADER_LEN)?;
    Ok(Next::Header(Kind::Ethernet))
}

#[inline(always)]
fn read_gpe(walk: &mut Walk<'_, '_>) -> Step {
    let header = walk.peek::<HEADER_LEN>()?;
    walk.push(Kind::VxlanGpe, HEADER_LEN)?;
    // Version 0, P set, O clear (rule T5). The other bits do not affect what follows.
    let flags = u32::from(u16_at(header, 0)) << 16;
    let decided = GPE_VERSION_MASK | FLAG_NEXT_PROTOCOL | FLAG_OPERATIONS;
    if flags & decided != FLAG_NEXT_PROTOCOL {
        return Err(Stop::Unknown);
    }
    Ok(Next::Numbered(header[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_emits, assert_refuses_prefixes};

    extern crate std;
    use std::string::ToString;

    /// The header that Linux sends before Ethernet, IPv4 and TCP with remote checksum offload (rule C50).
    const BYTES: [u8; 8] = [0x08, 0x20, 0, 0, 0x12, 0x34, 0x56, 0x11];

    fn header() -> VxlanHeader {
        let mut header = VxlanHeader::default();
        header.set_vni(0x12_3456).unwrap();
        header.set_remote_checksum(Some(VxlanRemoteChecksum { start: 34, offset: 16 })).unwrap();
        header
    }

    #[test]
    fn parse() {
        let bytes = [&BYTES[..], b"payload"].concat();
        let (parsed, payload) = VxlanHeader::parse(&bytes).unwrap();
        assert_eq!((*parsed, payload), (header(), &b"payload"[..]));
        assert_eq!(parsed.vni(), 0x12_3456);
        let remote = VxlanRemoteChecksum { start: 34, offset: 16 };
        assert_eq!(parsed.remote_checksum(), Some(remote));
        assert_eq!((parsed.group_policy(), parsed.next_protocol()), (None, None));
        assert_refuses_prefixes(&BYTES, |bytes| VxlanHeader::parse(bytes).map(|_| ()));
    }

    #[test]
    fn emit() {
        assert_emits(&BYTES, |buffer| header().emit(buffer));
    }

    #[test]
    fn c50_remote_checksum_of_udp_and_its_limits() {
        let mut header = VxlanHeader::default();
        let remote = |start, offset| Some(VxlanRemoteChecksum { start, offset });
        header.set_remote_checksum(remote(254, 6)).unwrap();
        assert_emits(&[0x08, 0x20, 0, 0, 0, 0, 0, 0xff], |buffer| header.emit(buffer));
        assert_eq!(header.remote_checksum(), remote(254, 6));
        for refused in [remote(256, 6), remote(33, 6), remote(34, 8)] {
            assert!(header.set_remote_checksum(refused).is_err());
        }
        header.set_remote_checksum(None).unwrap();
        assert_eq!(header, VxlanHeader::default());
    }

    #[test]
    fn w31_group_policy() {
        let policy = GroupPolicy { id: 0x1234, dont_learn: true, applied: true };
        let mut header = VxlanHeader::default();
        header.set_group_policy(Some(policy));
        assert_emits(&[0x88, 0x48, 0x12, 0x34, 0, 0, 0, 0], |buffer| header.emit(buffer));
        assert_eq!(header.group_policy(), Some(policy));
        header.set_group_policy(None);
        assert_eq!(header, VxlanHeader::default());
    }

    #[test]
    fn w31_next_protocol() {
        let mut header = VxlanHeader::default();
        header.set_next_protocol(Some(NEXT_MPLS));
        assert_emits(&[0x0c, 0, 0, 5, 0, 0, 0, 0], |buffer| header.emit(buffer));
        assert_eq!(header.next_protocol(), Some(NEXT_MPLS));
        for flags in [0x1c00_0005, 0x0d00_0005, 0x0800_0005] {
            assert_eq!(VxlanHeader { flags: U32::new(flags), ..header }.next_protocol(), None);
        }
        header.set_next_protocol(None);
        assert_eq!(header, VxlanHeader::default());
    }

    #[test]
    fn vni_wider_than_its_field_is_refused() {
        let mut header = header();
        assert!(header.set_vni(0x100_0000).is_err());
        assert_eq!(header.vni(), 0x12_3456);
    }

    #[test]
    fn display() {
        assert_eq!(header().to_string(), "vxlan vni 1193046 flags 0x08200000");
    }
}
