//! Tunnels in receive coalescing, rule by rule: `linux-offloads` sections 2.3 and 2.4.

use grosso::{
    Profile, Verdict,
    checksum::Checksum,
    coalesce::reason::{NoMerge, Pass},
    features::{Features, needed},
    meta::IpLevels,
};
use grosso_rig::{
    engine::{Engine, Out, PORTS, coalesce, coalesce_with, segment},
    frames::payload_lengths,
};
use grosso_testkit::{
    Packet,
    headers::{Ethernet, Geneve, Gre, Gue, Ipv4, L2tp, Udp, Vxlan},
    oracle::{Link, is_right, pseudo_header, sum},
};
use grosso_wire::{LinkType, Ports, dissect};

/// A function that changes the packet at an index.
type Change<T> = fn(usize, T) -> T;

/// A packet of a connection inside VXLAN.
#[derive(Clone, Copy)]
struct Tunnelled {
    outer: Change<Ipv4>,
    udp: Change<Udp>,
    vxlan: Change<Vxlan>,
    ethernet: Change<Ethernet>,
    inner: Change<Ipv4>,
    checksum_bits: u16,
}

/// A connection whose packets do not differ, with an outer checksum.
const SAME: Tunnelled = Tunnelled {
    outer: |_, ip| ip,
    udp: |_, udp| udp,
    vxlan: |_, vxlan| vxlan,
    ethernet: |_, ethernet| ethernet,
    inner: |_, ip| ip,
    checksum_bits: 0,
};

impl Tunnelled {
    /// Returns the packets of a connection, 100 bytes each.
    fn frames(self, count: usize) -> Vec<Vec<u8>> {
        let frame = |index: usize| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| (self.outer)(index, ip));
            let packet = packet.udp(|udp| (self.udp)(index, udp));
            let packet = packet.vxlan(|vxlan| (self.vxlan)(index, vxlan));
            let packet = packet.ethernet(|ethernet| (self.ethernet)(index, ethernet));
            inner_tcp(packet.ipv4(|ip| (self.inner)(index, ip)), index, self.checksum_bits)
        };
        (0..count).map(frame).collect()
    }

    /// Returns the verdict on the second of two packets.
    fn second(self) -> Verdict {
        second(&self.frames(2))
    }

    /// Returns the payload lengths of the deliveries for `count` packets.
    fn leaves(self, count: usize) -> Vec<usize> {
        payload_lengths(&coalesce(&self.frames(count)))
    }
}

/// Returns a TCP segment of 100 bytes after these headers. In the second segment, `checksum_bits` of the checksum are
/// flipped.
fn inner_tcp(packet: Packet, index: usize, checksum_bits: u16) -> Vec<u8> {
    let bits = if index == 1 { checksum_bits } else { 0 };
    let sequence = 100 + 100 * index as u32;
    packet.tcp(|tcp| tcp.sequence(sequence).checksum_xor(bits)).payload_len(100).build()
}

/// Returns TCP segments of 100 bytes after the headers that `headers` adds to each.
fn through(count: usize, headers: impl Fn(usize, Packet) -> Packet) -> Vec<Vec<u8>> {
    let frame = |index| inner_tcp(headers(index, Packet::new().ethernet(|e| e)), index, 0);
    (0..count).map(frame).collect()
}

fn second(frames: &[Vec<u8>]) -> Verdict {
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    let verdict = engine.push(&frames[1]);
    engine.poll_end(0);
    let leave: Vec<_> = engine.delivered.iter().flat_map(segment).collect();
    assert_eq!(leave, frames[..2], "order and bytes are kept");
    verdict
}

/// Asserts that these segments become one superframe.
#[track_caller]
fn assert_merges(frames: &[Vec<u8>]) -> Out {
    let mut delivered = coalesce(frames);
    assert_eq!(payload_lengths(&delivered), [100 * frames.len()]);
    delivered.remove(0)
}

#[test]
fn t01_two_tunnels_are_one_too_many() {
    let nested = through(2, |_, packet| {
        let packet = packet.ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e);
        packet.ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip)
    });
    assert_eq!(second(&nested), Verdict::Passed(Pass::TunnelLevels));
    let mut profile = Profile::linux();
    profile.tunnels_max = 2;
    assert_eq!(payload_lengths(&coalesce_with(profile, &nested)), [200]);
}

#[test]
fn t01_fou_or_gue_with_gre_is_one_tunnel() {
    assert_merges(&through(3, |_, p| {
        p.ipv4(|ip| ip).udp(|u| u).gue(|g| g).gre(|g| g).ipv4(|ip| ip)
    }));
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).udp(|u| u).gue(|g| g).ipv4(|ip| ip)));
}

#[test]
fn t02_outer_checksum_is_there_on_all_packets_or_on_none() {
    let none = Tunnelled { udp: |_, udp| udp.checksum_zero(), ..SAME };
    assert_eq!(none.leaves(3), [300]);
    assert_eq!(SAME.leaves(3), [300]);
    let mixed =
        Tunnelled { udp: |index, udp| if index == 1 { udp.checksum_zero() } else { udp }, ..SAME };
    assert_eq!(mixed.second(), Verdict::Refused(NoMerge::ChecksumPresence));
    assert_eq!(mixed.leaves(3), [100, 100, 100]);
    // There are two differences. This one is in an outer header, so it determines the reason.
    let inner = Tunnelled { inner: |index, ip| ip.ttl(9 + index as u8), ..mixed };
    assert_eq!(inner.second(), Verdict::Refused(NoMerge::ChecksumPresence));
}

#[test]
fn t03_outer_source_port_makes_the_flow() {
    let alternating = Tunnelled { udp: |index, udp| udp.source_port(index as u16 % 2), ..SAME };
    assert_eq!(alternating.leaves(4), [100; 4]);
    assert_eq!(alternating.second(), Verdict::Held);
}

// Rules: P47
#[test]
fn t04_network_headers_of_both_levels_are_compared() {
    let refused = Verdict::Refused;
    let ttl: Change<Ipv4> = |index, ip| ip.ttl(8 + index as u8);
    let tos: Change<Ipv4> = |index, ip| ip.tos(index as u8);
    let df: Change<Ipv4> = |index, ip| ip.df(index == 0);
    let id: Change<Ipv4> = |index, ip| ip.id(2 * index as u16);
    for (change, reason) in [
        (ttl, NoMerge::TimeToLive),
        (tos, NoMerge::TypeOfService),
        (df, NoMerge::DontFragment),
        (id, NoMerge::Identification),
    ] {
        assert_eq!(Tunnelled { outer: change, ..SAME }.second(), refused(reason));
        assert_eq!(Tunnelled { inner: change, ..SAME }.second(), refused(reason));
    }
}

#[test]
fn t04_inner_ethernet_addresses_are_compared() {
    let other = Tunnelled { ethernet: |index, e| e.source([index as u8; 6]), ..SAME };
    assert_eq!(other.second(), Verdict::Refused(NoMerge::LinkHeader));
}

#[test]
fn t04_identifications_have_a_mode_for_each_level() {
    let fixed: Change<Ipv4> = |_, ip| ip.id(7);
    let stepping: Change<Ipv4> = |index, ip| ip.id(65534_u16.wrapping_add(index as u16));
    for (outer, inner, bits) in
        [(fixed, fixed, 3), (fixed, stepping, 1), (stepping, fixed, 2), (stepping, stepping, 0)]
    {
        let out = assert_merges(&Tunnelled { outer, inner, ..SAME }.frames(4));
        assert_eq!(out.meta.gso.unwrap().fixed_ids, IpLevels::from_bits(bits));
    }
}

// Rules: P47
#[test]
fn t04_outer_ids_at_random_stay_apart() {
    let random = Tunnelled { outer: |index, ip| ip.id([9, 700, 33][index]), ..SAME };
    assert_eq!(random.leaves(3), [100; 3]);
}

// Rules: P44
#[test]
fn t05_vxlan_words_are_compared() {
    let changes: [Change<Vxlan>; 3] = [
        |index, v| v.gbp(index as u16),
        |index, v| v.flags(0x0800_0000 | index as u32),
        |index, v| v.reserved(index as u8),
    ];
    for vxlan in changes {
        assert!(matches!(Tunnelled { vxlan, ..SAME }.second(), Verdict::Refused(_)));
    }
}

#[test]
fn t05_network_identifier_makes_the_flow() {
    let alternating = Tunnelled { vxlan: |index, v| v.vni(index as u32 % 2), ..SAME };
    assert_eq!(alternating.second(), Verdict::Held);
}

#[test]
fn t05_vxlan_flags_need_not_be_valid() {
    assert_eq!(Tunnelled { vxlan: |_, v| v.flags(0), ..SAME }.leaves(3), [300]);
}

#[test]
fn t05_vxlan_with_a_group_policy_merges() {
    assert_eq!(Tunnelled { vxlan: |_, v| v.gbp(77), ..SAME }.leaves(3), [300]);
}

// Rules: B11
#[test]
fn t05_vxlan_gpe_decodes_the_next_protocol() {
    let outer = |p: Packet| p.ipv4(|ip| ip).udp(|udp| udp).vxlan(Vxlan::gpe);
    assert_merges(&through(3, |_, p| outer(p).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| outer(p).ipv6(|ip| ip)));
    assert_merges(&through(3, |_, p| outer(p).ethernet(|e| e).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| outer(p).mpls(|m| m).ipv4(|ip| ip)));
}

#[test]
fn t05_vxlan_gpe_of_another_version_or_for_control_passes() {
    // The flags have a version bit, then O set, and then P clear.
    for flags in [0x1c00_0001, 0x0d00_0001, 0x0800_0001] {
        let frames = through(2, |_, p| {
            let packet = p.ipv4(|ip| ip).udp(|udp| udp.destination_port(4790));
            packet.vxlan(|v| v.flags(flags)).ipv4(|ip| ip)
        });
        assert_eq!(second(&frames), Verdict::Passed(Pass::Protocol), "{flags:#x}");
    }
}

/// Returns packets inside Geneve, each modified by `change`.
fn geneve(change: impl Fn(usize, Geneve) -> Geneve) -> Vec<Vec<u8>> {
    through(2, |index, packet| {
        let packet = packet.ipv4(|ip| ip).udp(|udp| udp).geneve(|g| change(index, g));
        packet.ethernet(|e| e).ipv4(|ip| ip)
    })
}

#[test]
fn t06_geneve_with_equal_options_merges_critical_or_not() {
    assert_merges(&geneve(|_, g| g));
    assert_merges(&geneve(|_, g| g.option(0x0102, 3, &[1, 2, 3, 4]).critical(true)));
    assert_merges(&geneve(|_, g| g.option(0x0102, 0x83, &[0; 124])));
    assert_merges(&geneve(|_, g| g.reserved_bits(5).reserved(7)));
}

#[test]
fn t06_geneve_headers_are_compared_in_every_byte() {
    let refused = Verdict::Refused(NoMerge::TunnelHeader);
    assert_eq!(second(&geneve(|i, g| g.option(0x0102, 3, &[0, 0, 0, i as u8]))), refused);
    assert_eq!(second(&geneve(|i, g| g.option(i as u16, 3, &[0; 4]))), refused);
    assert_eq!(second(&geneve(|i, g| g.reserved(i as u8))), refused);
    // If the differing bits determine which headers follow, the headers as a whole count as different.
    for frames in [
        geneve(|i, g| g.reserved_bits(i as u8)),
        geneve(|i, g| g.critical(i == 1)),
        geneve(|i, g| if i == 1 { g.option(1, 2, &[0; 4]) } else { g }),
    ] {
        assert!(matches!(second(&frames), Verdict::Refused(_)));
    }
}

#[test]
fn t06_geneve_of_another_version_or_for_control_passes() {
    let passed = Verdict::Passed;
    assert_eq!(second(&geneve(|_, g| g.version(1))), passed(Pass::Malformed));
    assert_eq!(second(&geneve(|_, g| g.control(true))), passed(Pass::GeneveControl));
}

#[test]
fn t06_geneve_with_ip_inside_merges() {
    let outer = |p: Packet| p.ipv4(|ip| ip).udp(|udp| udp).geneve(|g| g);
    assert_merges(&through(3, |_, p| outer(p).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| outer(p).ipv6(|ip| ip)));
}

/// Returns packets inside GUE, each modified by `change`.
fn gue(change: impl Fn(usize, Gue) -> Gue) -> Vec<Vec<u8>> {
    through(2, |index, packet| {
        packet.ipv4(|ip| ip).udp(|udp| udp).gue(|g| change(index, g)).ipv4(|ip| ip)
    })
}

#[test]
fn t07_gue_merges() {
    assert_merges(&gue(|_, g| g));
    assert_merges(&gue(|_, g| g.options(&[1, 2, 3, 4])));
}

#[test]
fn t07_gue_options_are_compared() {
    assert!(matches!(second(&gue(|i, g| g.options(&[0, 0, 0, i as u8]))), Verdict::Refused(_)));
}

#[test]
fn t07_gue_for_control_or_with_unknown_flags_passes() {
    for frames in [
        gue(|_, g| g.control(true)),
        gue(|_, g| g.flags(0x8000)),
        gue(|_, g| g.flags(1).options(&[0x40, 0, 0, 0])),
    ] {
        assert_eq!(second(&frames), Verdict::Passed(Pass::Protocol));
    }
}

#[test]
fn t07_gue_without_a_header_merges_by_ip_version() {
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).gue_direct(|u| u).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).gue_direct(|u| u).ipv6(|ip| ip)));
}

#[test]
fn t08_the_port_selects_the_payload_of_fou() {
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).fou(|u| u).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| p.ipv6(|ip| ip).fou(|u| u.checksum_zero()).ipv4(|ip| ip)));
}

#[test]
fn t09_encrypted_packets_are_in_no_train() {
    let esp = |udp: bool| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let packet = if udp { packet.udp(|u| u) } else { packet };
        packet.esp(|esp| esp).payload(&[7; 64]).build()
    };
    for frame in [esp(false), esp(true)] {
        assert_eq!(second(&[frame.clone(), frame]), Verdict::Passed(Pass::Encrypted));
    }
}

#[test]
fn t09_keepalives_and_key_exchanges_are_in_no_train() {
    for payload in [&[0xff][..], &[0; 40], &[1; 8], &[1; 4]] {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let frame = packet.udp(|u| u.destination_port(4500)).payload(payload).build();
        assert!(matches!(second(&[frame.clone(), frame]), Verdict::Passed(_)));
    }
}

#[test]
fn t10_wrong_inner_checksum_passes() {
    let wrong = Tunnelled { checksum_bits: 1, udp: |_, udp| udp.checksum_zero(), ..SAME };
    assert_eq!(wrong.second(), Verdict::Passed(Pass::Checksum));
    let covered = Tunnelled { checksum_bits: 1, ..SAME };
    assert_eq!(covered.second(), Verdict::Passed(Pass::Checksum));
}

#[test]
fn t10_wrong_outer_checksum_passes() {
    let wrong = Tunnelled {
        udp: |index, udp| udp.checksum_xor(if index == 1 { 0x4000 } else { 0 }),
        ..SAME
    };
    assert_eq!(wrong.second(), Verdict::Passed(Pass::Checksum));
}

#[test]
fn t11_superframe_of_a_tunnel() {
    let out = assert_merges(&SAME.frames(3));
    let bytes = &out.bytes;
    // The headers have 20 + 8 + 8 + 14 + 20 + 20 bytes; the payload follows.
    assert_eq!(bytes[16..18], 390_u16.to_be_bytes());
    assert_eq!(bytes[38..40], 370_u16.to_be_bytes());
    let seed = |addresses: &[u8], protocol, len| {
        let (source, destination) = addresses.split_at(4);
        sum(&pseudo_header(source, destination, protocol, len)).to_be_bytes()
    };
    assert_eq!(bytes[40..42], seed(&bytes[26..34], 17, 370));
    assert_eq!(bytes[100..102], seed(&bytes[76..84], 6, 320));
    assert_eq!(out.meta.checksum, Checksum::Partial { start: 84, offset: 16 });
}

#[test]
fn t11_the_kind_of_a_tunnel_selects_device_features() {
    let feature = |frames: &[Vec<u8>]| {
        let out = assert_merges(frames);
        let stack = dissect(&out.bytes, LinkType::Ethernet, &PORTS);
        needed(&out.bytes, &stack, &out.meta.gso.unwrap())
    };
    let without = Tunnelled { udp: |_, udp| udp.checksum_zero(), ..SAME };
    assert!(feature(&SAME.frames(2)).contains(Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION));
    assert!(feature(&without.frames(2)).contains(Features::UDP_TUNNEL_SEGMENTATION));
    let gre = |change: fn(Gre) -> Gre| through(2, |_, p| p.ipv4(|ip| ip).gre(change).ipv4(|ip| ip));
    assert!(feature(&gre(|g| g)).contains(Features::GRE_SEGMENTATION));
    assert!(feature(&gre(Gre::checksum)).contains(Features::GRE_CHECKSUM_SEGMENTATION));
}

/// Tests for a bug in Linux: once the limit of a tunneled train is raised, the train grows until its UDP length wraps
/// (B1, B57).
// Rules: B1, B57
#[test]
fn t13_a_tunnel_never_grows_beyond_its_length_fields() {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v);
        let packet = packet.ethernet(|e| e).ipv4(|ip| ip);
        packet.tcp(|tcp| tcp.sequence(1348 * index)).payload_len(1348).build()
    };
    let frames: Vec<_> = (0..60).map(frame).collect();
    let mut profile = Profile::linux();
    profile.limits.size_bytes = 150_000;
    for profile in [Profile::linux(), profile] {
        let delivered = coalesce_with(profile, &frames);
        assert_eq!(payload_lengths(&delivered), [48 * 1348, 12 * 1348]);
        for out in delivered {
            let length =
                |at: usize| usize::from(u16::from_be_bytes([out.bytes[at], out.bytes[at + 1]]));
            assert_eq!(length(16), out.bytes.len() - 14, "outer IPv4");
            assert_eq!(length(38), out.bytes.len() - 34, "outer UDP");
            assert_eq!(length(66), out.bytes.len() - 64, "inner IPv4");
        }
    }
}

#[test]
fn t20_every_ip_in_ip_merges() {
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).ipv4(|ip| ip)));
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).ipv6(|ip| ip)));
    assert_merges(&through(3, |_, p| p.ipv6(|ip| ip).ipv6(|ip| ip)));
    assert_merges(&through(3, |_, p| p.ipv6(|ip| ip).ipv4(|ip| ip)));
}

#[test]
fn t20_ip_in_ip_in_ip_passes() {
    let frames = through(2, |_, p| p.ipv4(|ip| ip).ipv4(|ip| ip).ipv4(|ip| ip));
    assert_eq!(second(&frames), Verdict::Passed(Pass::TunnelLevels));
}

/// Returns packets inside GRE, each modified by `change`.
fn gre(change: impl Fn(usize, Gre) -> Gre) -> Vec<Vec<u8>> {
    through(2, |index, p| p.ipv4(|ip| ip).gre(|g| change(index, g)).ipv4(|ip| ip))
}

#[test]
fn t21_gre_with_checksum_or_key_merges() {
    assert_merges(&gre(|_, g| g));
    assert_merges(&gre(|_, g| g.key(7)));
    assert_merges(&gre(|_, g| g.checksum()));
    assert_merges(&gre(|_, g| g.checksum().key(7)));
}

#[test]
fn t21_gre_with_other_flags_passes() {
    assert_eq!(second(&gre(|i, g| g.sequence(i as u32))), Verdict::Passed(Pass::GreFlags));
    for flags in [0x0800, 0x0100, 0x0008] {
        let verdict = second(&gre(|_, g| g.extra_flags(flags)));
        assert_eq!(verdict, Verdict::Passed(Pass::GreFlags), "{flags:#x}");
    }
    // Routing and other versions change the bytes that follow.
    for flags in [0x4000, 0x0001] {
        assert_eq!(second(&gre(|_, g| g.extra_flags(flags))), Verdict::Passed(Pass::Protocol));
    }
}

#[test]
fn t21_wrong_gre_checksum_passes() {
    let verdict = second(&gre(|i, g| g.checksum().checksum_xor(i as u16)));
    assert_eq!(verdict, Verdict::Passed(Pass::Checksum));
}

#[test]
fn t21_gre_flags_differ() {
    let key = gre(|index, g| if index == 1 { g.key(0) } else { g });
    let checksum = gre(|index, g| if index == 1 { g.checksum() } else { g });
    for frames in [key, checksum] {
        assert_eq!(payload_lengths(&coalesce(&frames)), [100, 100]);
    }
}

#[test]
fn t21_reserved_word_behind_the_gre_checksum_is_compared() {
    // Linux does not compare this field, although segmentation cannot restore it.
    let verdict = second(&gre(|i, g| g.checksum().reserved(i as u16)));
    assert_eq!(verdict, Verdict::Refused(NoMerge::TunnelHeader));
}

#[test]
fn t21_gre_key_makes_the_flow() {
    let frames = |key| through(2, move |_, p| p.ipv4(|ip| ip).gre(|g| g.key(key)).ipv4(|ip| ip));
    let (one, two) = (frames(1), frames(2));
    let interleaved = [&one[0], &two[0], &one[1], &two[1]].map(Clone::clone);
    assert_eq!(payload_lengths(&coalesce(&interleaved)), [200, 200]);
}

/// Tests packets that pass through Linux unmerged. Grosso verifies and recomputes this checksum like any other.
#[test]
fn t21_gre_with_checksum_inside_gue_or_fou_merges() {
    let frames =
        through(3, |_, p| p.ipv4(|ip| ip).udp(|u| u).gue(|g| g).gre(Gre::checksum).ipv4(|ip| ip));
    assert_merges(&frames);
}

#[test]
fn t21_gre_that_carries_ethernet_merges() {
    assert_merges(&through(3, |_, p| p.ipv4(|ip| ip).gre(|g| g).ethernet(|e| e).ipv4(|ip| ip)));
}

/// Returns packets inside an L2TPv3 session, each modified by `change`.
fn l2tp(change: impl Fn(usize, L2tp) -> L2tp) -> Vec<Vec<u8>> {
    let session = |index, p: Packet| p.ipv4(|ip| ip).l2tp(|l| change(index, l)).ethernet(|e| e);
    through(2, |index, p| session(index, p).ipv4(|ip| ip))
}

#[test]
fn t23_l2tp_merges_and_its_session_makes_the_flow() {
    let (one, two) = (l2tp(|_, l| l), l2tp(|_, l| l.session(3)));
    assert_merges(&one);
    let interleaved = [&one[0], &two[0], &one[1], &two[1]].map(Clone::clone);
    assert_eq!(payload_lengths(&coalesce(&interleaved)), [200, 200]);
}

#[test]
fn t23_l2tp_cookies_are_compared() {
    let verdict = second(&l2tp(|i, l| l.cookie(&[i as u8; 4])));
    assert_eq!(verdict, Verdict::Refused(NoMerge::TunnelHeader));
}

#[test]
fn t23_l2tp_with_sequence_numbers_and_control_messages_pass() {
    for frames in [l2tp(|i, l| l.sequence(i as u32)), l2tp(|_, l| l.session(0))] {
        assert_eq!(second(&frames), Verdict::Passed(Pass::Protocol));
        // The result is the same after a session whose headers are already known.
        let mixed = [&l2tp(|_, l| l.session(1))[0], &frames[1]].map(Clone::clone);
        assert_eq!(second(&mixed), Verdict::Passed(Pass::Protocol));
    }
}

/// Tests that a random session identifier does not create a separate header stack, because only a limited number of
/// stacks is remembered.
#[test]
fn t23_l2tp_sessions_share_their_headers() {
    let sessions = (1..=200_u32).map(|number| number.wrapping_mul(0x9e37_79b9));
    let trains: Vec<_> = sessions.map(|session| l2tp(|_, l| l.session(session))).collect();
    let firsts = trains.iter().map(|train| train[0].clone());
    let seconds = trains.iter().map(|train| train[1].clone());
    let frames: Vec<_> = firsts.chain(seconds).collect();
    assert_eq!(payload_lengths(&coalesce(&frames)), [200; 200]);
}

#[test]
fn t23_l2tp_is_read_only_with_a_configured_format() {
    let frames = l2tp(|_, l| l);
    let mut engine = Engine::with(Profile::linux(), LinkType::Ethernet, Ports::ASSIGNED, 1);
    for frame in &frames {
        assert_eq!(engine.push(frame), Verdict::Passed(Pass::Protocol));
    }
}

#[test]
fn t11_every_cut_packet_has_right_checksums() {
    let tunnels =
        [SAME.frames(4), gre(|_, g| g.checksum().key(3)), geneve(|_, g| g), l2tp(|_, l| l)];
    for frames in tunnels {
        let out = assert_merges(&frames);
        assert!(segment(&out).iter().all(|packet| is_right(packet, Link::Ethernet)));
    }
}
