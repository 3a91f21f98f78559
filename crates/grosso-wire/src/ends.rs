//! Pseudo-header addresses, which may differ from those in the IP header.
//!
//! While a packet is in transit, its addresses may differ from those that its transport checksum covers. A source route
//! with remaining hops contains the final destination of an IPv4 packet (RFC 791 section 3.1, RFC 9293 section
//! 3.9.2.1), and a routing header with segments left contains that of an IPv6 packet (RFC 8200 section 8.1). A home
//! address option contains the source (RFC 6275 sections 6.3 and 11.3.2). All code that sums a pseudo-header uses this
//! module, so that the results agree.

use grosso_checksum::{Sum, pseudo_v4, pseudo_v6};

use crate::ipv6_extension::{HEADER_LEN, HOME_ADDRESS_LEN, OPTION_HOME_ADDRESS, OPTION_PAD1};
use crate::kind::Kind;
use crate::stack::Layer;
use crate::{ipv4, ipv6, ipv6_fragment};

/// Offsets of the pseudo-header addresses for one IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    is_ipv6: bool,
    /// Offset in bytes from the start of the packet.
    source: u16,
    destination: u16,
}

impl Ends {
    /// Finds the pseudo-header addresses for the IPv4 or IPv6 header `ip` in `packet`, following its options or
    /// extension headers up to the end of the packet.
    ///
    /// A source route lists the final destination last. If there are several source routes, which RFC 791 forbids, the
    /// first one is used.
    ///
    /// If several routing headers have segments left, the innermost one is used, because the outer ones only lead to it
    /// (RFC 6275 section 6.4). The final destination is known for types 0 and 2, which list it last (unless the list
    /// ends within an address), and for the segment routing header, which lists it first (RFC 8754 section 2).
    #[inline]
    #[must_use]
    pub fn of(packet: &[u8], ip: &Layer) -> Self {
        let place = |field: usize| ip.offset.saturating_add(field as u16);
        if ip.kind != Kind::Ipv6 {
            let source = place(ipv4::field::SOURCE.start);
            let destination = place(ipv4::field::DESTINATION.start);
            let mut ends = Self { is_ipv6: false, source, destination };
            if usize::from(ip.len) > ipv4::HEADER_LEN {
                ends.follow_route(packet, ip);
            }
            return ends;
        }
        let source = place(ipv6::field::SOURCE.start);
        let destination = place(ipv6::field::DESTINATION.start);
        let mut ends = Self { is_ipv6: true, source, destination };
        let chain = Chain::behind(packet, ip);
        if chain.is_extension() {
            ends.follow(chain);
        }
        ends
    }

    /// Calls `decide` with the offset of each byte that affects the [`Ends`] of `packet` and comes after the fixed IP
    /// header `ip`. Bytes that give the types and lengths of extension headers are excluded.
    pub fn deciding(packet: &[u8], ip: &Layer, mut decide: impl FnMut(usize)) {
        if ip.kind == Kind::Ipv4 {
            for option in ipv4_options(packet, ip) {
                let len = if option.is_route() { ROUTE_FIXED } else { OPTION_FIXED };
                (option.start..).take(len.min(option.len)).for_each(&mut decide);
            }
            return;
        }
        if ip.kind != Kind::Ipv6 {
            return;
        }
        for extension in Chain::behind(packet, ip) {
            match extension.protocol {
                // A later fragment contains no headers after the fragment header.
                ipv6::NEXT_FRAGMENT => {
                    ipv6_fragment::field::FRAGMENT.for_each(|byte| decide(extension.start + byte));
                }
                _ if !extension.has_room() => {}
                ipv6::NEXT_ROUTING => {
                    (ROUTING_TYPE..=SEGMENTS_LEFT).for_each(|byte| decide(extension.start + byte))
                }
                ipv6::NEXT_DESTINATION_OPTIONS => extension.options().for_each(|option| {
                    decide(option.start);
                    if option.kind != OPTION_PAD1 {
                        decide(option.start + 1);
                    }
                }),
                _ => {}
            }
        }
    }

    /// Returns the pseudo-header sum for a transport header of `protocol` that is `len` bytes long, including payload.
    /// Addresses beyond the end of the packet count as zero.
    #[inline]
    #[must_use]
    pub fn pseudo(&self, packet: &[u8], protocol: u8, len: usize) -> Sum {
        let (source, destination) = (usize::from(self.source), usize::from(self.destination));
        let len = len as u32;
        if self.is_ipv6 {
            let ends = address(packet, source).zip(address(packet, destination));
            return ends.map_or(Sum::ZERO, |(from, to)| pseudo_v6(from, to, protocol, len));
        }
        let ends = address(packet, source).zip(address(packet, destination));
        ends.map_or(Sum::ZERO, |(from, to)| pseudo_v4(*from, *to, protocol, len))
    }

    #[cold]
    fn follow_route(&mut self, packet: &[u8], ip: &Layer) {
        let route = ipv4_options(packet, ip).find(Place::is_route);
        let destination = route.and_then(|route| route.final_destination(packet));
        self.destination = destination.unwrap_or(self.destination);
    }

    #[cold]
    fn follow(&mut self, chain: Chain<'_>) {
        for extension in chain.filter(Extension::has_room) {
            match extension.protocol {
                ipv6::NEXT_ROUTING => {
                    self.destination = extension.final_destination().unwrap_or(self.destination);
                }
                ipv6::NEXT_DESTINATION_OPTIONS => {
                    self.source = extension.home_address().unwrap_or(self.source);
                }
                _ => {}
            }
        }
    }
}

/// Extension headers after an IPv6 header.
struct Chain<'a> {
    packet: &'a [u8],
    /// Protocol number of the next header.
    protocol: u8,
    /// Offset of the next header in the packet.
    at: usize,
}

impl<'a> Chain<'a> {
    #[inline]
    fn behind(packet: &'a [u8], ip: &Layer) -> Self {
        let start = usize::from(ip.offset);
        let protocol = packet.get(start + ipv6::field::NEXT_HEADER.start);
        Self {
            packet,
            protocol: protocol.copied().unwrap_or(ipv6::NEXT_NONE),
            at: start + ipv6::HEADER_LEN,
        }
    }

    #[inline]
    const fn is_extension(&self) -> bool {
        matches!(
            self.protocol,
            ipv6::NEXT_HOP_BY_HOP
                | ipv6::NEXT_ROUTING
                | ipv6::NEXT_DESTINATION_OPTIONS
                | ipv6::NEXT_FRAGMENT
        )
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        if !self.is_extension() {
            return None;
        }
        let rest = self.packet.get(self.at..)?;
        let &[next, length] = rest.first_chunk()?;
        let len = if self.protocol == ipv6::NEXT_FRAGMENT {
            ipv6_fragment::HEADER_LEN
        } else {
            (usize::from(length) + 1) * 8
        };
        let bytes = rest.get(..len)?;
        let extension = Extension { protocol: self.protocol, start: self.at, bytes };
        // In a later fragment, the fragment header is followed by data, not by another header.
        let is_later = self.protocol == ipv6::NEXT_FRAGMENT
            && u16::from_be_bytes([bytes[2], bytes[3]]) & ipv6_fragment::OFFSET_MASK != 0;
        self.protocol = if is_later { ipv6::NEXT_NONE } else { next };
        self.at += len;
        Some(extension)
    }
}

/// One complete extension header.
struct Extension<'a> {
    protocol: u8,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Returns whether the header has room for an address.
    fn has_room(&self) -> bool {
        self.bytes.len() >= ROUTING_LIST + ADDRESS_LEN
    }

    /// Returns the offset of the final destination in a routing header, if segments are left.
    fn final_destination(&self) -> Option<u16> {
        if *self.bytes.get(SEGMENTS_LEFT)? == 0 {
            return None;
        }
        let is_whole = (self.bytes.len() - ROUTING_LIST).is_multiple_of(ADDRESS_LEN);
        let at = match *self.bytes.get(ROUTING_TYPE)? {
            ROUTING_SOURCE | ROUTING_MOBILE if is_whole => self.bytes.len() - ADDRESS_LEN,
            ROUTING_SEGMENT => ROUTING_LIST,
            _ => return None,
        };
        Some((self.start + at) as u16)
    }

    /// Returns the offset of the home address in destination options.
    fn home_address(&self) -> Option<u16> {
        let is_home = |option: &Place| {
            (option.kind, option.len) == (OPTION_HOME_ADDRESS, OPTION_FIXED + HOME_ADDRESS_LEN)
        };
        let end = self.start + self.bytes.len();
        let option =
            self.options().find(is_home).filter(|option| option.start + option.len <= end)?;
        Some((option.start + OPTION_FIXED) as u16)
    }

    /// Returns the options, including a truncated last one. The length of the truncated option shows that it is not a
    /// home address.
    fn options(&self) -> impl Iterator<Item = Place> + use<'a> {
        let (start, bytes) = (self.start, self.bytes);
        let mut at = HEADER_LEN;
        core::iter::from_fn(move || {
            let kind = *bytes.get(at)?;
            let len = match kind {
                OPTION_PAD1 => 1,
                _ => OPTION_FIXED + usize::from(*bytes.get(at + 1)?),
            };
            let place = Place { kind, start: start + at, len };
            at += len;
            Some(place)
        })
    }
}

/// Option and its position.
struct Place {
    kind: u8,
    start: usize,
    /// Length in bytes, including type and length.
    len: usize,
}

impl Place {
    /// Returns whether the option is an IPv4 loose or strict source route.
    const fn is_route(&self) -> bool {
        matches!(self.kind, OPTION_LOOSE_ROUTE | OPTION_STRICT_ROUTE)
    }

    /// Returns the offset of the final destination, if the option is a valid source route with remaining hops.
    fn final_destination(&self, packet: &[u8]) -> Option<u16> {
        let &[_, len, pointer] = packet.get(self.start..)?.first_chunk()?;
        let list = self.len.checked_sub(ROUTE_FIXED)?;
        let is_whole = usize::from(len) == self.len && list.is_multiple_of(ROUTE_ADDRESS_LEN);
        let is_under_way = (ROUTE_FIXED + 1..=self.len).contains(&usize::from(pointer));
        (is_whole && is_under_way).then(|| (self.start + self.len - ROUTE_ADDRESS_LEN) as u16)
    }
}

/// Returns the options of an IPv4 header, including the end of the list. An option with a wrong length extends to the
/// end of the header.
fn ipv4_options(packet: &[u8], ip: &Layer) -> impl Iterator<Item = Place> {
    let mut at = usize::from(ip.offset) + ipv4::HEADER_LEN;
    let header = packet.get(..ip.end()).unwrap_or(packet);
    core::iter::from_fn(move || {
        let (start, bytes) = (at, header.get(at..)?);
        let kind = *bytes.first()?;
        let len = match kind {
            OPTION_END => bytes.len(),
            OPTION_NO_OPERATION => 1,
            _ => bytes.get(1).map_or(0, |&len| usize::from(len)),
        };
        let is_right = len <= bytes.len() && (len >= OPTION_FIXED || kind == OPTION_NO_OPERATION);
        let len = if is_right { len } else { bytes.len() };
        at += len;
        Some(Place { kind, start, len })
    })
}

fn address<const N: usize>(packet: &[u8], at: usize) -> Option<&[u8; N]> {
    packet.get(at..at + N)?.first_chunk()
}

const ADDRESS_LEN: usize = 16;
/// Number of bytes occupied by the type and length of an option.
const OPTION_FIXED: usize = 2;

/// Offsets in a routing header (RFC 8200 section 4.4).
const ROUTING_TYPE: usize = 2;
const SEGMENTS_LEFT: usize = 3;
const ROUTING_LIST: usize = 8;

/// IPv4 option types, and offsets in a source route (RFC 791 section 3.1).
const OPTION_END: u8 = 0;
const OPTION_NO_OPERATION: u8 = 1;
const OPTION_LOOSE_ROUTE: u8 = 131;
const OPTION_STRICT_ROUTE: u8 = 137;
/// Number of bytes in a source route before its list of addresses.
const ROUTE_FIXED: usize = 3;
const ROUTE_ADDRESS_LEN: usize = 4;

const ROUTING_SOURCE: u8 = 0;
const ROUTING_MOBILE: u8 = 2;
const ROUTING_SEGMENT: u8 = 4;

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const SOURCE: [u8; 16] = [1; 16];
    const DESTINATION: [u8; 16] = [2; 16];
    const FIRST: [u8; 16] = [3; 16];
    const LAST: [u8; 16] = [4; 16];

    /// Returns an IPv6 header followed by the extension headers `behind`, the first of which has type `next`. The IPv6
    /// header starts three bytes into the packet.
    fn packet(next: u8, behind: &[&[u8]]) -> (Vec<u8>, Layer) {
        let fixed = [0x60, 0, 0, 0, 0, 0, next, 64];
        let header = [&[0; 3][..], &fixed, &SOURCE, &DESTINATION].concat();
        (
            [header, behind.concat()].concat(),
            Layer { kind: Kind::Ipv6, offset: 3, len: ipv6::HEADER_LEN as u16 },
        )
    }

    fn routing(next: u8, kind: u8, left: u8) -> Vec<u8> {
        [&[next, 4, kind, left, 1, 0, 0, 0][..], &FIRST, &LAST].concat()
    }

    fn home(next: u8) -> Vec<u8> {
        [&[next, 2, 0, 1, 0, OPTION_HOME_ADDRESS, 16][..], &FIRST, &[0]].concat()
    }

    /// Asserts the addresses in the pseudo-header, first by their offsets and then by their sum.
    fn assert_ends(next: u8, behind: &[&[u8]], source: [u8; 16], destination: [u8; 16]) {
        let (packet, ip) = packet(next, behind);
        let ends = Ends::of(&packet, &ip);
        let place = |at: u16| packet.get(usize::from(at)..usize::from(at) + 16).unwrap();
        assert_eq!(place(ends.source), source);
        assert_eq!(place(ends.destination), destination);
        let expected = pseudo_v6(&source, &destination, 6, 70_000);
        assert_eq!(ends.pseudo(&packet, 6, 70_000).fold(), expected.fold());
    }

    #[test]
    fn without_extension_headers_the_ip_header_counts() {
        assert_ends(6, &[&[0; 20]], SOURCE, DESTINATION);
        let ip = Layer { kind: Kind::Ipv4, offset: 0, len: 20 };
        let header: Vec<u8> = (0..20).collect();
        let expected = pseudo_v4([12, 13, 14, 15], [16, 17, 18, 19], 17, 8);
        assert_eq!(Ends::of(&header, &ip).pseudo(&header, 17, 8).fold(), expected.fold());
    }

    /// Returns a packet that consists of an IPv4 header with options, which starts at offset 3.
    fn packet_with_options(options: &[u8]) -> (Vec<u8>, Layer) {
        let header: Vec<u8> = (0..20).collect();
        let len = (20 + options.len()) as u16;
        let packet = [&[0; 3][..], &header, options, &[6; 20]].concat();
        (packet, Layer { kind: Kind::Ipv4, offset: 3, len })
    }

    #[test]
    fn a_source_route_under_way_lists_the_final_destination_last() {
        let here = [16, 17, 18, 19];
        let route = |kind, len, pointer| [kind, len, pointer, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        let cases: &[(&[u8], [u8; 4])] = &[
            (&route(131, 11, 4), [5, 6, 7, 8]),
            (&route(137, 11, 8), [5, 6, 7, 8]),
            (&route(131, 7, 4), [1, 2, 3, 4]),
            (&[&[1, 1, 1, 1, 7, 3, 4, 1][..], &route(137, 11, 4)].concat(), [5, 6, 7, 8]),
            // No hops remain, the option records the route, or its data is not a list of addresses.
            (&route(131, 11, 12), here),
            (&route(7, 11, 4), here),
            (&route(131, 10, 4), here),
            (&route(131, 3, 4), here),
            (&route(131, 11, 3), here),
            // The source route lies after the end of the list or after an option with a wrong length, or its own length
            // is wrong.
            (&[&[0, 0, 0, 0][..], &route(131, 11, 4)].concat(), here),
            (&[&[7, 1, 0, 0][..], &route(131, 11, 4)].concat(), here),
            (&route(131, 15, 4), here),
            (&route(131, 0, 4), here),
            // The first of two source routes counts.
            (&[route(131, 11, 4), route(137, 7, 4)].concat(), [5, 6, 7, 8]),
        ];
        for (options, destination) in cases {
            let (packet, ip) = packet_with_options(options);
            let expected = pseudo_v4([12, 13, 14, 15], *destination, 6, 20).fold();
            assert_eq!(
                Ends::of(&packet, &ip).pseudo(&packet, 6, 20).fold(),
                expected,
                "{options:?}"
            );
        }
    }

    /// Uses the checksum of the first segment that Linux 6.18 sends to 10.9.0.77 via 10.9.0.2 and 10.9.0.7.
    #[test]
    fn the_sum_of_linux_is_that_for_the_last_stop() {
        let segment = [
            0x48, 0x00, 0x00, 0x48, 0x67, 0xbb, 0x40, 0x00, 0x40, 0x06, 0xce, 0xbf, 0x0a, 0x09,
            0x00, 0x01, 0x0a, 0x09, 0x00, 0x02, 0x83, 0x0b, 0x04, 0x0a, 0x09, 0x00, 0x07, 0x0a,
            0x09, 0x00, 0x4d, 0x01, 0xd1, 0xee, 0x00, 0x50, 0x39, 0x19, 0xee, 0x7a, 0x00, 0x00,
            0x00, 0x00, 0xa0, 0x02, 0xfa, 0xf0, 0xbf, 0x9f, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4,
            0x04, 0x02, 0x08, 0x0a, 0x73, 0x52, 0x0b, 0xe8, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03,
            0x03, 0x0a,
        ];
        let ip = Layer { kind: Kind::Ipv4, offset: 0, len: 32 };
        let tcp = &segment[32..];
        let sum = Ends::of(&segment, &ip).pseudo(&segment, 6, tcp.len()) + Sum::of(tcp);
        assert_eq!(sum.fold(), 0xffff);
    }

    #[test]
    fn the_final_destination_is_where_the_type_of_routing_lists_it() {
        for (kind, destination) in [(0, LAST), (2, LAST), (4, FIRST), (3, DESTINATION)] {
            assert_ends(43, &[&routing(6, kind, 1)], SOURCE, destination);
            // No hops remain, so the packet has reached its destination.
            assert_ends(43, &[&routing(6, kind, 0)], SOURCE, DESTINATION);
        }
        // The address list is empty, too short or incomplete.
        for (kind, len) in [(0, 1), (2, 0), (2, 1), (4, 0), (4, 1)] {
            let list = [&[6, len, kind, 1][..], &[0; 4 + 8]].concat();
            assert_ends(43, &[&list[..8 + 8 * usize::from(len)]], SOURCE, DESTINATION);
        }
        // The last complete address is followed by half an address; RFC 2460 section 4.4 requires nodes to discard such
        // a header.
        for kind in [0, 2] {
            let list = [&[6, 5, kind, 1, 0, 0, 0, 0][..], &FIRST, &LAST, &[0; 8]].concat();
            assert_ends(43, &[&list], SOURCE, DESTINATION);
        }
        assert_ends(43, &[&routing(6, 2, 1)[..39]], SOURCE, DESTINATION);
    }

    #[test]
    fn the_innermost_of_two_routing_headers_counts() {
        assert_ends(43, &[&routing(43, 0, 2), &routing(6, 4, 1)], SOURCE, FIRST);
        assert_ends(43, &[&routing(43, 0, 2), &routing(6, 4, 0)], SOURCE, LAST);
    }

    #[test]
    fn a_home_address_option_has_the_source() {
        assert_ends(60, &[&home(6)], FIRST, DESTINATION);
        assert_ends(0, &[&[43, 0, 1, 4, 0, 0, 0, 0], &routing(60, 2, 1), &home(6)], FIRST, LAST);
        // A home address is ignored in hop-by-hop options and in an option that is too short.
        assert_ends(0, &[&home(6)], SOURCE, DESTINATION);
        let mut short = home(6);
        short[6] = 15;
        assert_ends(60, &[&short], SOURCE, DESTINATION);
    }

    #[test]
    fn only_the_first_fragment_is_looked_into() {
        assert_ends(44, &[&[43, 0, 0, 1, 0, 0, 0, 9], &routing(6, 2, 1)], SOURCE, LAST);
        assert_ends(44, &[&[43, 0, 0, 9, 0, 0, 0, 9], &routing(6, 2, 1)], SOURCE, DESTINATION);
    }

    #[test]
    fn packets_that_agree_in_the_deciding_bytes_have_the_same_ends() {
        let behind = [routing(60, 4, 1), home(43), routing(6, 0, 1)];
        let behind: Vec<&[u8]> = behind.iter().map(Vec::as_slice).collect();
        let (packet, ip) = packet(43, &behind);
        let mut deciding = Vec::new();
        Ends::deciding(&packet, &ip, |at| deciding.push(at));
        // The first two bytes of each extension header determine its type and length.
        let structural = [43, 83, 107].map(|start| [start, start + 1]).concat();
        let ends = Ends::of(&packet, &ip);
        for at in 43..packet.len() {
            for value in 0..=255 {
                let mut changed = packet.clone();
                changed[at] = value;
                let is_free = !deciding.contains(&at) && !structural.contains(&at);
                assert!(!is_free || Ends::of(&changed, &ip) == ends, "byte {at} = {value}");
            }
        }
        assert_eq!(deciding, [45, 46, 85, 86, 87, 88, 89, 106, 109, 110].map(|at| at));
    }

    #[test]
    fn source_routes_that_agree_in_the_deciding_bytes_lead_to_one_place() {
        let options = [1, 7, 3, 4, 131, 11, 4, 1, 2, 3, 4, 5, 6, 7, 8, 0];
        let (packet, ip) = packet_with_options(&options);
        let mut deciding = Vec::new();
        Ends::deciding(&packet, &ip, |at| deciding.push(at));
        let ends = Ends::of(&packet, &ip);
        for at in (3..packet.len()).filter(|at| !deciding.contains(at)) {
            for value in 0..=255 {
                let mut changed = packet.clone();
                changed[at] = value;
                assert_eq!(Ends::of(&changed, &ip), ends, "byte {at} = {value}");
            }
        }
        assert_eq!(deciding, [23, 24, 25, 27, 28, 29, 38]);
    }

    #[test]
    fn anything_is_followed_to_an_end() {
        let (whole, ip) = packet(43, &[&routing(60, 4, 1), &home(44), &[6, 0, 0, 0, 0, 0, 0, 1]]);
        for len in 0..whole.len() {
            let cut = &whole[..len];
            let _ = Ends::of(cut, &ip).pseudo(cut, 6, 20);
            Ends::deciding(cut, &ip, |at| assert!(at < len));
        }
        let (whole_route, ip) = packet_with_options(&[131, 11, 4, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
        for len in 0..whole_route.len() {
            let cut = &whole_route[..len];
            let _ = Ends::of(cut, &ip).pseudo(cut, 6, 20);
            Ends::deciding(cut, &ip, |at| assert!(at < len));
        }
        let nowhere = Layer { kind: Kind::Ipv6, offset: u16::MAX, len: 40 };
        assert_eq!(Ends::of(&whole, &nowhere).pseudo(&whole, 6, 20).fold(), 0);
    }
}
