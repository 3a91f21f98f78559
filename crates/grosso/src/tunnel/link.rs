//! Updates to the type and length fields of the link layer when one packet replaces another.

use grosso_wire::{Kind, Layer, ethernet, pppoe, sll, sll2, vlan};

use crate::bytes::{put_u16, u16_at};

/// Writes the payload type, given as an EtherType, into the innermost header of a link layer.
///
/// Returns `None` for the loopback header, whose numbers differ between systems, for MPLS, which has no type field, and
/// for non-IP payloads in PPPoE.
pub(super) fn name_payload(prefix: &mut [u8], last: &Layer, ethertype: u16) -> Option<()> {
    let (field, name) = payload_name(last.kind, ethertype)?;
    put_u16(prefix, usize::from(last.offset) + field, name);
    Some(())
}

/// Returns whether a header of this kind can announce this EtherType.
pub(super) fn can_name(kind: Kind, ethertype: u16) -> bool {
    payload_name(kind, ethertype).is_some()
}

/// Adds `grown` bytes, possibly negative, to the length fields of a link layer. Returns `None` if the result does not
/// fit into a field.
pub(super) fn lengthen(prefix: &mut [u8], links: &[Layer], grown: isize) -> Option<()> {
    for pppoe in links.iter().filter(|layer| layer.kind == Kind::Pppoe) {
        let at = usize::from(pppoe.offset) + pppoe::field::LENGTH.start;
        let length = usize::from(u16_at(prefix, at)).checked_add_signed(grown)?;
        put_u16(prefix, at, u16::try_from(length).ok()?);
    }
    Some(())
}

/// Returns the offset of the field in which a header gives its payload type, and the value to write there.
fn payload_name(kind: Kind, ethertype: u16) -> Option<(usize, u16)> {
    let (field, name) = match kind {
        Kind::Ethernet => (ethernet::field::ETHERTYPE, ethertype),
        Kind::Vlan => (vlan::field::ETHERTYPE, ethertype),
        Kind::Sll => (sll::field::ETHERTYPE, ethertype),
        Kind::Sll2 => (sll2::field::ETHERTYPE, ethertype),
        Kind::Pppoe => {
            let protocol = match ethertype {
                ethernet::ETHERTYPE_IPV4 => pppoe::PROTOCOL_IPV4,
                ethernet::ETHERTYPE_IPV6 => pppoe::PROTOCOL_IPV6,
                _ => return None,
            };
            (pppoe::field::PROTOCOL, protocol)
        }
        _ => return None,
    };
    Some((field.start, name))
}
