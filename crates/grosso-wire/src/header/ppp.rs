//! PPP on a serial line (RFC 1661), with the address and control fields of HDLC (RFC 1662) or without them.
//!
//! ```text
//!  0         1         2                    4
//! +---------+---------+--------------------+
//! |  0xff   |  0x03   |     protocol       |
//! +---------+---------+--------------------+
//!   not if compressed   1 byte if compressed
//! ```
//!
//! Both endpoints may agree to omit the first two fields and the zero in front of a protocol below 256.

use super::{Announced, Class, HeaderSpec, Layout, Layouts, Role, Segmentation, Structure, Tail};
use super::{ethernet, pppoe};
use crate::kind::Kind;
use crate::stack::Stop;
use crate::walk::{Next, Step, Walk};

/// Maximum header length in bytes.
pub const LEN_MAX: usize = HDLC.len() + pppoe::PROTOCOL_LEN;

/// HDLC address and control fields: all stations, unnumbered information.
pub const HDLC: [u8; 2] = [0xff, 0x03];
/// PPP protocol of MPLS (RFC 3032).
pub const PROTOCOL_MPLS: u16 = 0x0281;
/// PPP protocol of MPLS with an upstream-assigned label.
pub const PROTOCOL_MPLS_MULTICAST: u16 = 0x0283;

/// Registry entry for PPP. All bits are equal in all packets of a train.
pub(super) const SPEC: HeaderSpec = HeaderSpec {
    name: "ppp",
    class: Class::Link,
    announced: Announced::NEVER,
    read,
    layouts: Layouts::One(Layout::NONE),
    tail: Tail { name: "content", role: Role::Link },
    structure: Structure::Whole,
    segmentation: Segmentation::Nothing,
    remote_checksum: None,
    receive: None,
};

fn read(walk: &mut Walk<'_, '_>) -> Step {
    let hdlc = if walk.rest.starts_with(&HDLC) { HDLC.len() } else { 0 };
    let (protocol, len) = match walk.rest.get(hdlc..) {
        // Only the last byte of a protocol number is odd.
        Some([short, ..]) if short & 1 != 0 => (u16::from(*short), 1),
        Some([first, second, ..]) => (u16::from_be_bytes([*first, *second]), 2),
        _ => return Err(Stop::Truncated),
    };
    walk.push(Kind::Ppp, hdlc + len)?;
    match protocol {
        pppoe::PROTOCOL_IPV4 => Ok(Next::Header(Kind::Ipv4)),
        pppoe::PROTOCOL_IPV6 => Ok(Next::Header(Kind::Ipv6)),
        PROTOCOL_MPLS | PROTOCOL_MPLS_MULTICAST => Ok(Next::EtherType(ethernet::ETHERTYPE_MPLS)),
        _ => Err(Stop::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use crate::{LinkType, Ports, Stop, dissect};

    extern crate std;
    use std::{string::ToString, vec::Vec};

    /// Dissects an empty IPv4 packet after this protocol field. Returns the headers found and the reason why dissection
    /// stops.
    fn found(front: &[u8]) -> (std::string::String, Stop) {
        let mut frame: Vec<u8> = front.to_vec();
        frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let stack = dissect(&frame, LinkType::Ppp, &Ports::ASSIGNED);
        (stack.to_string(), stack.stop)
    }

    #[test]
    fn both_fields_may_be_compressed() {
        for front in [&[0xff, 3, 0, 0x21][..], &[0, 0x21], &[0x21], &[0xff, 3, 0x21]] {
            assert_eq!(found(front), ("ppp ip4".to_string(), Stop::Unknown), "{front:?}");
        }
        let labels = [0xff, 3, 2, 0x81, 0, 1, 1, 64];
        assert_eq!(found(&labels).0, "ppp mpls ip4");
    }

    #[test]
    fn other_protocols_and_cut_headers_end_the_stack() {
        assert_eq!(found(&[0xff, 3, 0xc0, 0x21]), ("ppp".to_string(), Stop::Unknown));
        // Cisco HDLC is a different link type.
        assert_eq!(found(&[0x0f, 0, 8, 0]), ("ppp".to_string(), Stop::Unknown));
        for cut in [&[][..], &[0xff, 3], &[0xff, 3, 0], &[0]] {
            let stack = dissect(cut, LinkType::Ppp, &Ports::ASSIGNED);
            assert_eq!((stack.layers().len(), stack.stop), (0, Stop::Truncated), "{cut:?}");
        }
    }
}
