//! Encoding of Grosso's custom option, which stores offload metadata in pcapng.
//!
//! `docs/pcapng-option.md` is the specification. All numbers are big-endian, whatever the byte order of the section,
//! because tools that convert a section to the other byte order cannot convert an unknown value. Only the enterprise
//! number before the value is in the section's byte order.

use core::num::NonZeroU16;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, IpLevels, VlanTag},
};

use super::error::Misfit;
use super::metadata::{Offload, SegmentTransport};
use super::order::ByteOrder;
use super::tunnel_port::{TUNNEL_PORTS_MAX, TunnelPort};

/// Enterprise number of the option: the number for documentation from RFC 5612.
///
/// Grosso has no enterprise number of its own. Other programs may use this number too, so the option also contains a
/// magic number.
pub const ENTERPRISE_NUMBER: u32 = 32_473;

/// Magic number after the enterprise number. The last byte is the version.
pub const MAGIC: [u8; 8] = *b"GROSSO\0\x01";

/// Returns whether a custom binary option with this value is Grosso's option, in any version.
pub(crate) fn is_ours(order: ByteOrder, value: &[u8]) -> bool {
    let Some((number, rest)) = value.split_first_chunk::<4>() else { return false };
    order.u32_from(*number) == ENTERPRISE_NUMBER && rest.starts_with(&MAGIC[..7])
}

/// Reads the value of a custom binary option. Returns `None` if it is not Grosso's option, or has another version.
pub(crate) fn decode(order: ByteOrder, value: &[u8]) -> Option<Offload> {
    let (number, rest) = value.split_first_chunk::<4>()?;
    if order.u32_from(*number) != ENTERPRISE_NUMBER {
        return None;
    }
    let (fixed, lists) = rest.split_first_chunk::<FIXED_BYTES>()?;
    if fixed[..8] != MAGIC {
        return None;
    }
    let number = |at| ByteOrder::Big.u16_at(fixed, at);
    let present = fixed[8];
    let mut offload = Offload {
        meta: Meta {
            checksum: decode_checksum(fixed[9], fixed[10], number(12), number(14)),
            vlan: (present & present::VLAN != 0)
                .then(|| VlanTag { protocol: number(22), tci: number(24) }),
            hash: (present & present::HASH != 0).then(|| ByteOrder::Big.u32_at(fixed, 28)),
            ..Meta::default()
        },
        has_partial_transport: fixed[9] == checksum::PARTIAL_SOMEWHERE,
        ..Offload::default()
    };
    let mut parts = Vec::new();
    for (kind, entries) in Lists(lists) {
        match kind {
            list::ARRIVALS => offload.arrivals_ns = numbers(entries),
            list::PARTS => parts = numbers(entries),
            list::TUNNEL_PORTS => offload.tunnel_ports = tunnel_ports(entries),
            // Lists that a later minor version may add are ignored.
            _ => {}
        }
    }
    if present & present::GSO != 0 {
        let size = NonZeroU16::new(number(16));
        let cut = match (fixed[11], size) {
            (cut::EVERY, Some(size)) => GsoSize::Every(size),
            (cut::PARTS, _) => GsoSize::Parts,
            (cut::FRAGMENTS, Some(size)) => GsoSize::Fragments(size),
            _ => GsoSize::Unknown,
        };
        if cut == GsoSize::Parts {
            offload.parts = parts;
        }
        offload.meta.gso = Some(Gso {
            size: cut,
            segments: number(18),
            fixed_ids: IpLevels::from_bits(fixed[20]),
            cwr: if fixed[21] & gso::CWR_ON_ALL != 0 { Cwr::Every } else { Cwr::First },
            partial_members: fixed[21] & gso::PARTIAL_MEMBERS != 0,
            untrusted: fixed[21] & gso::UNTRUSTED != 0,
        });
        offload.transport = match fixed[26] {
            transport::TCP => SegmentTransport::Tcp,
            transport::UDP => SegmentTransport::Udp,
            _ => SegmentTransport::Unknown,
        };
    }
    Some(offload)
}

/// Appends the value of the custom binary option.
///
/// # Errors
/// Returns `OptionTooLong` if the lists make the value longer than the maximum option length (65,535 bytes).
pub(crate) fn encode(out: &mut Vec<u8>, order: ByteOrder, offload: &Offload) -> Result<(), Misfit> {
    let mut fixed = [0; FIXED_BYTES];
    let (checksum, levels, start, offset) = match offload.meta.checksum {
        _ if offload.has_partial_transport => (checksum::PARTIAL_SOMEWHERE, 0, 0, 0),
        known => encode_checksum(known),
    };
    put(&mut fixed, 12, start);
    put(&mut fixed, 14, offset);
    let mut present = 0;
    if let Some(gso) = &offload.meta.gso {
        present |= present::GSO;
        encode_gso(&mut fixed, gso, offload.transport);
    }
    if let Some(vlan) = offload.meta.vlan {
        present |= present::VLAN;
        put(&mut fixed, 22, vlan.protocol);
        put(&mut fixed, 24, vlan.tci);
    }
    if let Some(hash) = offload.meta.hash {
        present |= present::HASH;
        fixed[28..32].copy_from_slice(&hash.to_be_bytes());
    }
    fixed[..8].copy_from_slice(&MAGIC);
    fixed[8..11].copy_from_slice(&[present, checksum, levels]);

    let tunnels = offload.tunnel_ports.iter().take(TUNNEL_PORTS_MAX);
    let tunnels: Vec<u32> = tunnels.map(|tunnel| tunnel.to_entry()).collect();
    let lists = [
        (list::ARRIVALS, &offload.arrivals_ns[..]),
        (list::PARTS, &offload.parts[..]),
        (list::TUNNEL_PORTS, &tunnels),
    ];
    let bytes = lists.iter().map(|(_, entries)| list_bytes(entries)).sum::<usize>();
    let bytes = 4 + FIXED_BYTES + bytes;
    if bytes > usize::from(u16::MAX) {
        return Err(Misfit::OptionTooLong { bytes });
    }
    out.extend_from_slice(&order.u32_bytes(ENTERPRISE_NUMBER));
    out.extend_from_slice(&fixed);
    lists.iter().for_each(|(kind, entries)| push_list(out, *kind, entries));
    Ok(())
}

fn decode_checksum(kind: u8, levels: u8, start: u16, offset: u16) -> Checksum {
    match kind {
        checksum::UNNECESSARY => Checksum::Unnecessary { levels },
        checksum::COMPLETE => Checksum::Complete { sum: offset },
        checksum::PARTIAL => Checksum::Partial { start, offset },
        _ => Checksum::None,
    }
}

fn encode_checksum(state: Checksum) -> (u8, u8, u16, u16) {
    match state {
        Checksum::None => (checksum::NONE, 0, 0, 0),
        Checksum::Unnecessary { levels } => (checksum::UNNECESSARY, levels, 0, 0),
        Checksum::Complete { sum } => (checksum::COMPLETE, 0, 0, sum),
        Checksum::Partial { start, offset } => (checksum::PARTIAL, 0, start, offset),
    }
}

fn encode_gso(fixed: &mut [u8; FIXED_BYTES], gso: &Gso, transport: SegmentTransport) {
    let (kind, size) = match gso.size {
        GsoSize::Unknown => (cut::UNKNOWN, 0),
        GsoSize::Every(size) => (cut::EVERY, size.get()),
        GsoSize::Parts => (cut::PARTS, 0),
        GsoSize::Fragments(size) => (cut::FRAGMENTS, size.get()),
    };
    fixed[11] = kind;
    put(fixed, 16, size);
    put(fixed, 18, gso.segments);
    fixed[20] = gso.fixed_ids.bits();
    fixed[21] = bit(gso.cwr == Cwr::Every, gso::CWR_ON_ALL)
        | bit(gso.partial_members, gso::PARTIAL_MEMBERS)
        | bit(gso.untrusted, gso::UNTRUSTED);
    fixed[26] = match transport {
        SegmentTransport::Unknown => 0,
        SegmentTransport::Tcp => transport::TCP,
        SegmentTransport::Udp => transport::UDP,
    };
}

fn put(fixed: &mut [u8; FIXED_BYTES], at: usize, value: u16) {
    fixed[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

const fn bit(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// Iterator over the lists after the fixed part. Stops at a truncated list.
struct Lists<'a>(&'a [u8]);

impl<'a> Iterator for Lists<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.0.split_first_chunk::<LIST_HEADER_BYTES>()?;
        let bytes = usize::from(ByteOrder::Big.u16_at(header, 2)) * 4;
        let (entries, rest) = rest.split_at_checked(bytes)?;
        self.0 = rest;
        Some((header[0], entries))
    }
}

fn numbers(entries: &[u8]) -> Vec<u32> {
    let (chunks, _) = entries.as_chunks::<4>();
    chunks.iter().map(|chunk| u32::from_be_bytes(*chunk)).collect()
}

/// Returns the entries with known tunnel types, at most [`TUNNEL_PORTS_MAX`].
fn tunnel_ports(entries: &[u8]) -> Vec<TunnelPort> {
    let known = numbers(entries).into_iter().filter_map(TunnelPort::from_entry);
    known.take(TUNNEL_PORTS_MAX).collect()
}

fn push_list(out: &mut Vec<u8>, kind: u8, entries: &[u32]) {
    // This cannot fail, because `encode` has checked the length of the option.
    let Ok(count) = u16::try_from(entries.len()) else { return };
    if count == 0 {
        return;
    }
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&count.to_be_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.to_be_bytes());
    }
}

const fn list_bytes(entries: &[u32]) -> usize {
    if entries.is_empty() { 0 } else { LIST_HEADER_BYTES + entries.len() * 4 }
}

const FIXED_BYTES: usize = 32;
const LIST_HEADER_BYTES: usize = 4;

/// Bits that say which optional fields are present.
mod present {
    pub(super) const GSO: u8 = 1;
    pub(super) const VLAN: u8 = 2;
    pub(super) const HASH: u8 = 4;
}

mod checksum {
    pub(super) const NONE: u8 = 0;
    pub(super) const UNNECESSARY: u8 = 1;
    pub(super) const COMPLETE: u8 = 2;
    pub(super) const PARTIAL: u8 = 3;
    pub(super) const PARTIAL_SOMEWHERE: u8 = 4;
}

mod cut {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const EVERY: u8 = 1;
    pub(super) const PARTS: u8 = 2;
    pub(super) const FRAGMENTS: u8 = 3;
}

mod transport {
    pub(super) const TCP: u8 = 1;
    pub(super) const UDP: u8 = 2;
}

mod gso {
    pub(super) const CWR_ON_ALL: u8 = 1;
    pub(super) const PARTIAL_MEMBERS: u8 = 2;
    pub(super) const UNTRUSTED: u8 = 4;
}

mod list {
    pub(super) const ARRIVALS: u8 = 1;
    pub(super) const PARTS: u8 = 2;
    pub(super) const TUNNEL_PORTS: u8 = 3;
}

#[cfg(test)]
mod tests {
    use grosso_wire::Kind;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// Returns the example from `docs/pcapng-option.md`, byte for byte.
    #[test]
    fn example_of_the_manual() {
        let offload = Offload {
            meta: Meta {
                checksum: Checksum::Partial { start: 34, offset: 6 },
                gso: Gso::every(1200).map(|gso| Gso { segments: 3, ..gso }),
                ..Meta::default()
            },
            transport: SegmentTransport::Udp,
            arrivals_ns: vec![1000, 2000],
            ..Offload::default()
        };
        let expected = [
            0x00, 0x00, 0x7e, 0xd9, // enterprise number, in a big-endian section
            b'G', b'R', b'O', b'S', b'S', b'O', 0, 1, //
            0x01, 0x03, 0x00, 0x01, // present: gso; partial; levels; equal sizes
            0x00, 0x22, 0x00, 0x06, // start 34, offset 6
            0x04, 0xb0, 0x00, 0x03, // size 1200, 3 segments
            0x00, 0x00, // fixed identifications, gso flags
            0x00, 0x00, 0x00, 0x00, // VLAN
            0x02, 0x00, // UDP, reserved
            0x00, 0x00, 0x00, 0x00, // hash
            0x01, 0x00, 0x00, 0x02, // two arrivals
            0x00, 0x00, 0x03, 0xe8, 0x00, 0x00, 0x07, 0xd0,
        ];
        let mut bytes = Vec::new();
        encode(&mut bytes, ByteOrder::Big, &offload).unwrap();
        assert_eq!(bytes, expected);
        assert_eq!(decode(ByteOrder::Big, &bytes), Some(offload));
    }

    #[test]
    fn other_numbers_magics_and_versions_are_not_ours_to_read() {
        let mut bytes = Vec::new();
        encode(&mut bytes, ByteOrder::Little, &Offload::default()).unwrap();
        assert!(decode(ByteOrder::Little, &bytes).is_some());
        assert_eq!(
            decode(ByteOrder::Big, &bytes),
            None,
            "enterprise number in the other byte order"
        );
        for at in 0..12 {
            let mut other = bytes.clone();
            other[at] ^= 2;
            assert_eq!(decode(ByteOrder::Little, &other), None, "byte {at}");
            assert_eq!(is_ours(ByteOrder::Little, &other), at == 11, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(ByteOrder::Little, &bytes[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let mut offload = Offload { arrivals_ns: vec![1; 16_373], ..Offload::default() };
        let mut bytes = Vec::new();
        encode(&mut bytes, ByteOrder::Little, &offload).unwrap();
        assert_eq!(bytes.len(), 65_532);
        offload.arrivals_ns.push(1);
        let refused = encode(&mut bytes, ByteOrder::Little, &offload);
        assert_eq!(refused, Err(Misfit::OptionTooLong { bytes: 65_536 }));
    }

    /// Example of list 3 in `docs/pcapng-option.md`, byte for byte.
    const TUNNELS: [u8; 20] = [
        0x03, 0x00, 0x00, 0x04, // list 3 with four entries
        0x01, 0x00, 0x21, 0x18, // VXLAN on 8472
        0xff, 0x00, 0x12, 0x34, // unknown tunnel type
        0x03, 0x00, 0x00, 0x00, // Geneve on port 0
        0x05, 0x04, 0x15, 0xb3, // FOU of IPv4 on 5555
    ];

    #[test]
    fn unknown_entries_are_ignored_and_others_are_read() {
        let mut bytes = Vec::new();
        encode(&mut bytes, ByteOrder::Little, &Offload::default()).unwrap();
        let plain = bytes.len();
        bytes.extend_from_slice(&TUNNELS);
        let decoded = decode(ByteOrder::Little, &bytes).unwrap();
        assert_eq!(
            decoded.tunnel_ports,
            [TunnelPort::new(Kind::Vxlan, 8472), TunnelPort::fou(5555, 4)]
        );
        for length in plain..bytes.len() {
            let cut_short = decode(ByteOrder::Little, &bytes[..length]).unwrap();
            assert_eq!(cut_short, Offload::default(), "{length} bytes");
        }
        // A FOU entry with an invalid protocol is ignored; the next list is still read.
        bytes[plain + 17] = 0;
        bytes.extend_from_slice(&[0x01, 0, 0, 1, 0, 0, 0, 9]);
        let decoded = decode(ByteOrder::Little, &bytes).unwrap();
        assert_eq!(decoded.tunnel_ports, [TunnelPort::new(Kind::Vxlan, 8472)]);
        assert_eq!(decoded.arrivals_ns, [9]);
    }

    #[test]
    fn no_more_tunnels_are_read_or_written_than_one_packet_can_be_in() {
        let many: Vec<_> = (1..=40).map(|port| TunnelPort::new(Kind::Gue, port)).collect();
        let mut bytes = Vec::new();
        let offload = Offload { tunnel_ports: many.clone(), ..Offload::default() };
        encode(&mut bytes, ByteOrder::Little, &offload).unwrap();
        assert_eq!(bytes.len(), 4 + FIXED_BYTES + 4 + 4 * TUNNEL_PORTS_MAX);
        let mut longer = bytes[..4 + FIXED_BYTES].to_vec();
        let entries: Vec<_> = many.iter().map(|tunnel| tunnel.to_entry()).collect();
        push_list(&mut longer, list::TUNNEL_PORTS, &entries);
        for bytes in [bytes, longer] {
            let decoded = decode(ByteOrder::Little, &bytes).unwrap();
            assert_eq!(decoded.tunnel_ports, many[..TUNNEL_PORTS_MAX]);
        }
    }

    fn any_tunnel() -> impl Strategy<Value = TunnelPort> {
        let assigned: Vec<_> = TunnelPort::assigned().collect();
        let fou = (1..=u16::MAX, 1..=u8::MAX).prop_map(|(port, of)| TunnelPort::fou(port, of));
        let moved = (prop::sample::select(assigned), 1..=u16::MAX);
        prop_oneof![5 => moved.prop_map(|(tunnel, port)| tunnel.moved_to(port)), 1 => fou]
    }

    fn any_checksum() -> impl Strategy<Value = Checksum> {
        prop_oneof![
            Just(Checksum::None),
            any::<u8>().prop_map(|levels| Checksum::Unnecessary { levels }),
            any::<u16>().prop_map(|sum| Checksum::Complete { sum }),
            any::<(u16, u16)>().prop_map(|(start, offset)| Checksum::Partial { start, offset }),
        ]
    }

    fn any_gso() -> impl Strategy<Value = Gso> {
        let cut = prop_oneof![
            Just(GsoSize::Unknown),
            any::<NonZeroU16>().prop_map(GsoSize::Every),
            Just(GsoSize::Parts),
            any::<NonZeroU16>().prop_map(GsoSize::Fragments),
        ];
        (cut, any::<(u16, u8, bool, bool, bool)>()).prop_map(
            |(cut, (segments, fixed_ids, cwr_on_all, partial_members, untrusted))| Gso {
                size: cut,
                segments,
                fixed_ids: IpLevels::from_bits(fixed_ids),
                cwr: if cwr_on_all { Cwr::Every } else { Cwr::First },
                partial_members,
                untrusted,
            },
        )
    }

    fn any_transport() -> impl Strategy<Value = SegmentTransport> {
        prop_oneof![
            Just(SegmentTransport::Unknown),
            Just(SegmentTransport::Tcp),
            Just(SegmentTransport::Udp),
        ]
    }

    prop_compose! {
        fn any_offload()(
            checksum in any_checksum(),
            has_partial_transport: bool,
            gso in option::of(any_gso()),
            transport in any_transport(),
            vlan in option::of(any::<(u16, u16)>()),
            hash: Option<u32>,
            parts in vec(any::<u32>(), 0..9),
            arrivals_ns in vec(any::<u32>(), 0..40),
            tunnel_ports in vec(any_tunnel(), 0..=TUNNEL_PORTS_MAX),
        ) -> Offload {
            let vlan = vlan.map(|(protocol, tci)| VlanTag { protocol, tci });
            let has_parts = gso.is_some_and(|gso| gso.size == GsoSize::Parts);
            let checksum = if has_partial_transport { Checksum::None } else { checksum };
            Offload {
                meta: Meta { checksum, gso, vlan, hash, ..Meta::default() },
                has_partial_transport,
                transport: if gso.is_some() { transport } else { SegmentTransport::Unknown },
                parts: if has_parts { parts } else { Vec::new() },
                arrivals_ns,
                tunnel_ports,
            }
        }
    }

    proptest! {
        #[test]
        fn every_state_round_trips(offload in any_offload()) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let mut bytes = Vec::new();
                encode(&mut bytes, order, &offload).unwrap();
                prop_assert_eq!(decode(order, &bytes), Some(offload.clone()));
            }
        }

        #[test]
        fn hostile_values_never_panic(tail in vec(any::<u8>(), 0..100)) {
            let mut bytes = ByteOrder::Big.u32_bytes(ENTERPRISE_NUMBER).to_vec();
            bytes.extend_from_slice(&MAGIC);
            bytes.extend_from_slice(&tail);
            let _ = decode(ByteOrder::Big, &bytes);
        }
    }
}
