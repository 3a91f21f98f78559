//! Finds the first field in which two packets differ, and the rule that applies to it.

use core::ops::Range;

use grosso_wire::{Class, Role, dissect};

use super::superframe::{LINK, PORTS};

/// Difference between an input packet and an output packet.
pub(crate) struct Difference {
    /// Description of the difference.
    pub(crate) text: String,
    /// Rule that applies to the field; `None` if the difference is not in a field.
    pub(crate) rule: Option<&'static str>,
}

/// Compares an output packet with the input packet.
pub(crate) fn difference(before: &[u8], after: &[u8]) -> Difference {
    let mut fields = fields(before);
    // Checksums depend on the other fields, so a difference elsewhere is more informative.
    fields.sort_by_key(|field| field.role == Role::Checksum);
    for FieldBytes { name, bytes, role, class } in fields {
        let [is, was] = [after, before].map(|packet| packet.get(bytes.clone()).unwrap_or_default());
        let follows = matches!(role, Role::Length | Role::Checksum);
        // If the packets differ in length, changes to length fields and checksums add no information.
        if is != was && !(follows && before.len() != after.len()) {
            let text = format!("{name} changed from {} to {}", hex(was), hex(is));
            return Difference { text, rule: rule(role, class, was, is) };
        }
    }
    let text = match (before.len(), after.len()) {
        (was, is) if was != is => format!("its length changed from {was} to {is} bytes"),
        _ => "its payload changed".to_owned(),
    };
    Difference { text, rule: None }
}

/// Bytes of a field in a packet, or the bytes of a header that follow its last field.
struct FieldBytes {
    name: String,
    bytes: Range<usize>,
    role: Role,
    class: Class,
}

/// Returns the fields of all headers in a packet, outermost first.
fn fields(packet: &[u8]) -> Vec<FieldBytes> {
    let stack = dissect(packet, LINK, &PORTS);
    let mut places = Vec::new();
    for layer in stack.layers() {
        let (spec, start) = (layer.kind.spec(), usize::from(layer.offset));
        let layout = spec.layout(packet.get(start..).unwrap_or_default());
        let mut add = |name: &str, bytes: Range<usize>, role| {
            let name = format!("{} {name}", spec.name);
            places.push(FieldBytes { name, bytes, role, class: spec.class });
        };
        for field in layout.fields {
            add(field.name, start + field.bytes.start..start + field.bytes.end, field.role);
        }
        add(
            spec.tail.name,
            start + layout.end()..layer.end().max(start + layout.end()),
            spec.tail.role,
        );
    }
    places
}

/// Returns the rule that applies to a change in a field with this role and class.
fn rule(role: Role, class: Class, was: &[u8], is: &[u8]) -> Option<&'static str> {
    Some(match role {
        Role::Link => "G4",
        Role::Tag => "G6",
        Role::TypeOfService | Role::TimeToLive if class == Class::Network => "G13",
        Role::Fragmentation => "G13",
        Role::ClassAndLabel if word(was) ^ word(is) <= FLOW_LABEL => "G20",
        Role::ClassAndLabel => "G22",
        Role::Identification => "G14",
        Role::Address => "G12",
        Role::Port => "G31",
        Role::Extension => "G20",
        Role::Flags => return Some(rule_of_flags(was, is)),
        Role::Sequence | Role::Acknowledgment | Role::Window | Role::Options => "G32",
        Role::UrgentPointer => "G33",
        Role::Length => "G50",
        Role::Checksum if class == Class::Network => "G10",
        Role::Checksum => "G30",
        _ => return None,
    })
}

/// Returns the rule that applies to a change in the TCP flags.
fn rule_of_flags(was: &[u8], is: &[u8]) -> &'static str {
    match word(was) ^ word(is) {
        bits if bits & !FIN_AND_PSH == 0 => "G36",
        bits if bits & !ECN == 0 => "G34",
        _ => "G32",
    }
}

/// Returns the first bytes (at most four) as one number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn hex(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown }
}

/// FIN and PSH flags.
const FIN_AND_PSH: u32 = 0x009;
/// AE, CWR and ECE flags.
const ECN: u32 = 0x1c0;
/// Flow label in the first word of an IPv6 header.
const FLOW_LABEL: u32 = 0x000f_ffff;
/// Maximum number of bytes shown of a field in a message.
const SHOWN_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use grosso_testkit::{Packet, headers::Tcp};

    use super::*;

    /// Returns the text of a change to IPv4 and TCP fields, and the rule that it violates.
    fn of(ttl: u8, id: u16, tcp: fn(Tcp) -> Tcp) -> (String, Option<&'static str>) {
        let packet = |ttl, id, tcp: fn(Tcp) -> Tcp| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.ttl(ttl).id(id));
            packet.tcp(tcp).payload_len(10).build()
        };
        let Difference { text, rule } = difference(&packet(8, 1, |t| t), &packet(ttl, id, tcp));
        (text, rule)
    }

    #[test]
    fn a_field_is_reported_before_the_checksums_it_changes() {
        assert_eq!(of(8, 2, |t| t), ("ip4 id changed from 0001 to 0002".into(), Some("G14")));
        assert_eq!(of(7, 1, |t| t).1, Some("G13"));
        assert_eq!(of(8, 1, Tcp::psh).1, Some("G36"));
        assert_eq!(of(8, 1, Tcp::cwr).1, Some("G34"));
        assert_eq!(of(8, 1, Tcp::syn).1, Some("G32"));
        assert_eq!(of(8, 1, |t| t.window(9)).1, Some("G32"));
        assert_eq!(of(8, 1, |t| t.checksum_xor(1)).1, Some("G30"));
        assert_eq!(of(8, 1, |t| t), ("its payload changed".into(), None));
    }

    #[test]
    fn the_flow_label_is_distinguished_from_the_traffic_class() {
        let of = |class, label| {
            let packet = |class, label| {
                let ip = Packet::new().ethernet(|e| e);
                ip.ipv6(|ip| ip.traffic_class(class).flow_label(label)).tcp(|t| t).build()
            };
            difference(&packet(0, 0), &packet(class, label)).rule
        };
        assert_eq!((of(0, 9), of(2, 0)), (Some("G20"), Some("G22")));
    }
}
