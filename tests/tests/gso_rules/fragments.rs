//! Tests rules S60 to S62: fragmenting packets that are not superframes.

use core::num::NonZeroU16;

use grosso::Meta;
use grosso::checksum::Checksum;
use grosso::meta::Fragmented;
use grosso::segment::{FragmentOptions, Fragments, NoFragments};
use grosso_testkit::Packet;
use grosso_testkit::headers::Ipv4;
use grosso_testkit::oracle;
use grosso_wire::LinkType;
use proptest::prelude::*;

const ID: u32 = 0x0a0b_0c0d;

/// Returns metadata for a packet that arrived in fragments of at most `largest` bytes.
fn came_in(largest: u16) -> Meta {
    let largest = NonZeroU16::new(largest);
    let fragmented = largest.map(|largest| Fragmented { largest, identification: ID });
    Meta { fragmented, ..Meta::default() }
}

fn fragment(
    packet: &[u8],
    meta: &Meta,
    options: &FragmentOptions,
) -> Result<Vec<Vec<u8>>, NoFragments> {
    // The headers are in the first slice; the rest may be anywhere.
    let (head, rest) = packet.split_at(packet.len().min(200));
    let (one, other) = rest.split_at(rest.len() / 3);
    let slices = [head, one, other];
    let mut plan = Fragments::of_packet(&slices, meta, LinkType::Ethernet, options)?;
    let mut buffer = vec![0xa5; plan.packet_len_max()];
    let mut fragments = Vec::new();
    while let Some(fragment) = plan.write_next(&mut buffer).unwrap() {
        assert_eq!(fragment.meta, Meta::default());
        fragments.push(buffer[..fragment.len()].to_vec());
    }
    Ok(fragments)
}

fn of_mtu(packet: &[u8], mtu: u16) -> Result<Vec<Vec<u8>>, NoFragments> {
    fragment(packet, &Meta::default(), &FragmentOptions::new(mtu, ID))
}

fn udp4(len: usize, edit: impl FnOnce(Ipv4) -> Ipv4) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| edit(ip.df(false).id(7)));
    packet.udp(|udp| udp).payload_len(len).build()
}

/// Returns the fragment words of Ethernet frames with IPv4.
fn words(fragments: &[Vec<u8>]) -> Vec<u16> {
    fragments.iter().map(|frame| u16::from_be_bytes([frame[20], frame[21]])).collect()
}

#[test]
fn s60_data_come_in_units_of_8_and_the_last_fragment_takes_what_fits() {
    let packet = udp4(1000 - 8, |ip| ip);
    // The MTU leaves 507 bytes after the IP header. The first fragment has 504, a multiple of 8, and the last has 496.
    let fragments = of_mtu(&packet, 527).unwrap();
    assert_eq!(words(&fragments), [0x2000, 63]);
    // The MTU leaves 503 bytes after the IP header: 496 in all fragments except the last, which may have 503.
    let fragments = of_mtu(&packet, 523).unwrap();
    assert_eq!(fragments.iter().map(|f| f.len() - 34).collect::<Vec<_>>(), [496, 496, 8]);
    let fragments = of_mtu(&udp4(999 - 8, |ip| ip), 523).unwrap();
    assert_eq!(fragments.iter().map(|f| f.len() - 34).collect::<Vec<_>>(), [496, 503]);
    let data: Vec<u8> = fragments.iter().flat_map(|f| f[34..].to_vec()).collect();
    assert_eq!(data, udp4(999 - 8, |ip| ip)[34..]);
    assert!(fragments.iter().all(|f| oracle::sum(&f[14..34]) == 0xffff && f[18..20] == [0, 7]));
}

#[test]
fn s60_a_fragment_of_a_fragment_keeps_its_place_and_more() {
    let piece = |more| {
        let ip = |ip: Ipv4| ip.df(false).fragment_offset(100).more_fragments(more).protocol(17);
        Packet::new().ethernet(|e| e).ipv4(ip).payload_len(160).build()
    };
    assert_eq!(words(&of_mtu(&piece(true), 100).unwrap()), [0x2064, 0x206e]);
    assert_eq!(words(&of_mtu(&piece(false), 100).unwrap()), [0x2064, 0x6e]);
}

#[test]
fn s60_options_without_the_copied_bit_are_in_the_first_fragment_only() {
    let options = [0x1e, 4, 1, 2, 0x94, 4, 0, 0, 1, 7, 3, 4];
    let fragments = of_mtu(&udp4(100, |ip| ip.options(&options)), 88).unwrap();
    assert_eq!(fragments[0][34..46], options);
    assert_eq!(fragments[1][34..46], [1, 1, 1, 1, 0x94, 4, 0, 0, 1, 1, 1, 1]);
    assert!(fragments.iter().all(|f| oracle::sum(&f[14..46]) == 0xffff));
}

// Rules: B45
#[test]
fn s60_an_mtu_without_room_for_a_unit_is_refused() {
    let packet = udp4(100, |ip| ip);
    assert_eq!(of_mtu(&packet, 27), Err(NoFragments::MtuTooSmall));
    assert_eq!(of_mtu(&packet, 28).unwrap().len(), 14);
    assert_eq!(of_mtu(&packet, 128), Err(NoFragments::Whole));
}

#[test]
fn s60_tcp_is_not_cut_where_receivers_would_not_see_its_flags() {
    let options = |len| move |ip: Ipv4| ip.df(false).options(&vec![1; len]);
    let tcp =
        |len| Packet::new().ethernet(|e| e).ipv4(options(len)).tcp(|t| t).payload_len(100).build();
    assert_eq!(of_mtu(&tcp(40), 75), Err(NoFragments::MtuTooSmall));
    assert_eq!(of_mtu(&tcp(40), 76).unwrap().len(), 8);
    assert_eq!(of_mtu(&udp4(100, options(40)), 68).unwrap().len(), 14);
}

#[test]
fn s60_a_wrong_header_checksum_is_not_made_right() {
    for checksum in [1, 0x8000] {
        let packet = udp4(100, |ip| ip.checksum_xor(checksum));
        assert_eq!(of_mtu(&packet, 68), Err(NoFragments::Ipv4Checksum));
    }
    // A checksum of zero is left to a device, which computes it for each fragment.
    assert_eq!(of_mtu(&udp4(100, |ip| ip.checksum_zero()), 68), of_mtu(&udp4(100, |ip| ip), 68));
    // The payload is copied even if its checksum is wrong.
    let wrong = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|u| u.checksum_xor(1));
    let wrong = wrong.payload_len(100).build();
    let data: Vec<u8> = of_mtu(&wrong, 68).unwrap().iter().flat_map(|f| f[34..].to_vec()).collect();
    assert_eq!(data, wrong[34..]);
}

#[test]
fn s60_partial_checksums_are_completed_first() {
    for packet in [
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(false)).udp(|udp| udp),
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|tcp| tcp),
    ] {
        let packet = packet.payload_len(3001);
        let (partial, start, offset) = packet.build_partial();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let meta = Meta { checksum, ..Meta::default() };
        let options = FragmentOptions::new(1280, ID);
        let right = fragment(&packet.build(), &Meta::default(), &options).unwrap();
        assert_eq!(fragment(&partial, &meta, &options).unwrap(), right);
        for (start, offset) in [(20, 0), (start as u16, 4000), (u16::MAX, u16::MAX)] {
            let meta = Meta { checksum: Checksum::Partial { start, offset }, ..meta };
            let refused = fragment(&partial, &meta, &options);
            assert_eq!(refused, Err(NoFragments::ChecksumOutside));
        }
    }
}

#[test]
fn s60_padding_is_left_out_and_missing_bytes_are_noticed() {
    let mut packet = udp4(100, |ip| ip);
    let right = of_mtu(&packet, 68).unwrap();
    packet.extend([0xee; 9]);
    assert_eq!(of_mtu(&packet, 68).unwrap(), right);
    packet.truncate(141);
    assert_eq!(of_mtu(&packet, 68), Err(NoFragments::BytesMissing));
}

/// Tests that bytes beyond the PPPoE length are not part of the packet: a receiver truncates the packet to that length,
/// and drops it if the IP header declares more (rule G5a).
#[test]
fn s60_bytes_that_pppoe_does_not_count_are_missing() {
    let packet = Packet::new().ethernet(|e| e).pppoe(|p| p).ipv4(|ip| ip.df(false)).udp(|udp| udp);
    let mut packet = packet.payload_len(100).build();
    assert_eq!(of_mtu(&packet, 68).map(|fragments| fragments.len()), Ok(3));
    packet[14 + 5] -= 1;
    assert_eq!(of_mtu(&packet, 68), Err(NoFragments::BytesMissing));
}

#[test]
fn s61_df_refuses_unless_it_may_be_ignored_or_the_packet_came_in_fragments() {
    let packet = udp4(2000, |ip| ip.df(true));
    assert_eq!(of_mtu(&packet, 1500), Err(NoFragments::DontFragment { mtu: 1500 }));
    let mut options = FragmentOptions::new(1500, ID);
    let joined = fragment(&packet, &came_in(1000), &options).unwrap();
    assert_eq!(joined.iter().map(|f| f.len() - 14).max(), Some(996));
    let refused = fragment(&packet, &came_in(1501), &options);
    assert_eq!(refused, Err(NoFragments::DontFragment { mtu: 1500 }));
    // DF stays set, because it also applies to the fragments.
    options.ignore_dont_fragment = true;
    let cut = fragment(&packet, &Meta::default(), &options).unwrap();
    assert_eq!(words(&cut), [0x6000, 0x4000 | 185]);
}

#[test]
fn s61_fragments_are_never_larger_than_the_largest_that_came() {
    let packet = udp4(1200, |ip| ip);
    let options = FragmentOptions::new(9000, ID);
    let fragments = fragment(&packet, &came_in(600), &options).unwrap();
    assert_eq!(fragments.iter().map(|f| f.len() - 14).collect::<Vec<_>>(), [596, 596, 76]);
}

#[test]
fn s62_ipv6_fragments_never_need_to_be_shorter_than_1280_bytes() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp).payload_len(2000);
    let options = FragmentOptions::new(9000, !ID);
    let fragments = fragment(&packet.build(), &came_in(200), &options).unwrap();
    assert_eq!(fragments.iter().map(|f| f.len() - 14).collect::<Vec<_>>(), [1280, 824]);
    // The fragments keep their original identification.
    assert!(fragments.iter().all(|f| f[58..62] == ID.to_be_bytes()));
}

#[test]
fn s62_only_headers_for_routers_precede_the_fragment_header() {
    let fixed = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let hop = || fixed().hop_by_hop(|h| h);
    // Offset of the fragment header: 14 bytes of Ethernet and 40 of IPv6.
    let cases = [
        (fixed(), 0),
        (hop(), 8),
        (fixed().destination_options(|d| d), 0),
        (hop().destination_options(|d| d), 8),
        (hop().destination_options(|d| d).routing(|r| r), 24),
        (fixed().routing(|r| r).destination_options(|d| d), 8),
    ];
    for (packet, at) in cases {
        let whole = packet.udp(|udp| udp).payload_len(1500).build();
        let fragments = of_mtu(&whole, 1280).unwrap();
        let mut data: Vec<u8> = Vec::new();
        for fragment in &fragments {
            let (front, behind) = fragment.split_at(54 + at);
            let announces = if at == 0 { 20 } else { 54 + at - 8 };
            assert_eq!((front[announces], behind[0]), (44, whole[announces]));
            let len = u16::from_be_bytes([fragment[18], fragment[19]]);
            assert_eq!(usize::from(len), fragment.len() - 54);
            data.extend(&behind[8..]);
        }
        assert_eq!(data, whole[54 + at..]);
    }
}

#[test]
fn s62_headers_that_do_not_fit_the_first_fragment_are_refused() {
    let packet =
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).destination_options(|d| d.data(&[0; 100]));
    let whole = packet.tcp(|tcp| tcp).payload_len(500).build();
    // RFC 7112: the first fragment needs 48 bytes, plus 104 bytes of options and 20 bytes of TCP.
    assert_eq!(of_mtu(&whole, 48 + 120), Err(NoFragments::MtuTooSmall));
    assert!(of_mtu(&whole, 48 + 128).is_ok());
}

// Rules: B24
#[test]
fn s62_fragments_and_superframes_and_other_frames_are_refused_by_name() {
    let piece = Packet::new().ethernet(|e| e).ipv6(|ip| ip).fragment(|f| f).udp(|udp| udp);
    let piece = piece.payload_len(3000).build();
    assert_eq!(of_mtu(&piece, 1280), Err(NoFragments::AlreadyFragment));
    assert_eq!(of_mtu(&[0; 60], 1280), Err(NoFragments::NotIp));
    assert_eq!(of_mtu(&udp4(100, |ip| ip)[..30], 68), Err(NoFragments::HeadersSplit));
    let headers = Packet::new().ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h.data(&[0; 200]));
    let packet = headers.tcp(|tcp| tcp).payload_len(3000).build();
    assert_eq!(of_mtu(&packet, 1280), Err(NoFragments::HeadersSplit));
    assert_eq!(of_mtu(&udp4(100, |ip| ip.total_len_raw(0)), 68), Err(NoFragments::TooLong));
    let gso = grosso::meta::Gso::every(100);
    let meta = Meta { gso, ..Meta::default() };
    let refused = fragment(&udp4(3000, |ip| ip), &meta, &FragmentOptions::new(1280, ID));
    assert_eq!(refused, Err(NoFragments::Superframe));
}

proptest! {
    /// Asserts for any bytes that nothing panics, and that the output consists of fragments within the MTU.
    #[test]
    fn s60_hostile_frames_never_panic(
        seed in proptest::collection::vec(any::<u8>(), 0..200),
        (at, value) in (12_usize..80, any::<u8>()),
        mtu in any::<u16>(),
    ) {
        let mut packet = udp4(1500, |ip| ip);
        packet[at] = value;
        for packet in [&packet, &seed] {
            if let Ok(fragments) = of_mtu(packet, mtu) {
                prop_assert!(fragments.iter().all(|f| f.len() <= 14 + 4 + usize::from(mtu)));
            }
        }
    }
}
