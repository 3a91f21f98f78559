//! Tests rules S40 to S45: superframes in tunnels.

use grosso::{meta::IpLevels, segment::NoSegments};
use grosso_rig::superframe::Superframe;
use grosso_testkit::{
    Packet,
    headers::{Gre, Udp},
    oracle::{Layer, Lengths, Link, is_right, parse},
};

/// Returns a superframe of 250 bytes in segments of 100 bytes after these headers.
fn superframe(headers: Packet) -> Superframe {
    Superframe::new(&headers.tcp(|tcp| tcp).payload_len(250), 100)
}

/// Returns an Ethernet header and an outer IPv4 header.
fn outer() -> Packet {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(700))
}

/// Returns VXLAN headers with an inner IPv4 header.
fn vxlan(udp: impl Fn(Udp) -> Udp) -> Packet {
    outer().udp(udp).vxlan(|v| v.vni(42)).ethernet(|e| e).ipv4(|ip| ip.id(9))
}

/// Returns the values of a field in every header with this name, packet by packet.
fn fields(packets: &[Vec<u8>], layer: &str, field: &str) -> Vec<Vec<u64>> {
    let values = |packet: &Vec<u8>| {
        let parsed = parse(packet, Link::Ethernet, Lengths::Declared);
        let number = |found: &Layer| found.number(field);
        parsed.layers.iter().filter(|found| found.name == layer).map(number).collect()
    };
    packets.iter().map(values).collect()
}

#[track_caller]
fn assert_right(packets: &[Vec<u8>]) {
    assert!(packets.iter().all(|packet| is_right(packet, Link::Ethernet)));
}

#[test]
fn s40_both_levels_advance() {
    let packets = superframe(vxlan(|udp| udp)).packets();
    assert_eq!(fields(&packets, "ipv4", "id"), [[700, 9], [701, 10], [702, 11]]);
    assert_eq!(fields(&packets, "ipv4", "total_len"), [[190, 140], [190, 140], [140, 90]]);
    assert_eq!(fields(&packets, "udp", "len"), [[170], [170], [120]]);
    assert_right(&packets);
}

#[test]
fn s40_outer_checksum_stays_absent_or_is_made_for_each_packet() {
    let packets = superframe(vxlan(Udp::checksum_zero)).packets();
    assert_eq!(fields(&packets, "udp", "checksum"), [[0]; 3]);
    assert_right(&packets);
    let packets = superframe(vxlan(|udp| udp)).packets();
    assert!(fields(&packets, "udp", "checksum").iter().all(|field| field[0] != 0));
}

#[test]
fn s40_every_udp_tunnel_is_cut() {
    let ip = |packet: Packet| packet.ipv4(|ip| ip);
    for headers in [
        vxlan(|udp| udp),
        ip(outer().udp(|u| u).vxlan(|v| v.gpe())),
        ip(outer().udp(|u| u).geneve(|g| g.option(1, 2, &[3; 8])).ethernet(|e| e)),
        ip(outer().udp(|u| u).gue(|g| g)),
        ip(outer().gue_direct(|u| u)),
        ip(outer().fou(|u| u)),
        vxlan(|udp| udp).udp(|u| u).vxlan(|v| v).ethernet(|e| e).ipv6(|ip| ip),
    ] {
        let packets = superframe(headers).packets();
        assert_eq!(packets.len(), 3);
        assert_right(&packets);
    }
}

/// Tests that an outer checksum that is computed as zero is written as 0xffff, because zero means no checksum.
#[test]
fn s40_outer_checksum_of_zero_is_sent_as_ffff() {
    // Only the outer checksum covers the last two bytes of the inner source MAC.
    let frame = |word: [u8; 2]| {
        let packet = outer().udp(|udp| udp).vxlan(|v| v);
        let packet = packet.ethernet(|e| e.source([2, 0, 0, 0, word[0], word[1]])).ipv4(|ip| ip);
        Superframe::new(&packet.tcp(|tcp| tcp).payload_len(200), 100)
    };
    let checksum = fields(&frame([0, 0]).packets(), "udp", "checksum")[0][0];
    let packets = frame((checksum as u16).to_be_bytes()).packets();
    assert_eq!(fields(&packets, "udp", "checksum")[0], [0xffff]);
    assert_right(&packets);
}

/// Tests for a bug in Linux, which applies the outer level's mode to the inner one (B50).
// Rules: B50
#[test]
fn s41_each_level_has_its_own_identification_mode() {
    let outer_ids = [[700, 701, 702], [700, 700, 700]];
    let inner_ids = [[9, 10, 11], [9, 9, 9]];
    for headers in
        [vxlan(|udp| udp), outer().gre(|g| g).ipv4(|ip| ip.id(9)), outer().ipv4(|ip| ip.id(9))]
    {
        for bits in 0..4_u8 {
            let fixed_ids = IpLevels::from_bits(bits);
            let frame = superframe(headers.clone()).gso(|gso| gso.fixed_ids = fixed_ids);
            let found = fields(&frame.packets(), "ipv4", "id");
            let (outer, inner) = (usize::from(bits & 1), usize::from(bits >> 1));
            for (index, ids) in found.iter().enumerate() {
                assert_eq!(*ids, [outer_ids[outer][index], inner_ids[inner][index]]);
            }
        }
    }
}

/// Tests an oversized superframe whose 16-bit UDP length has wrapped. Segmentation uses the actual length.
#[test]
fn s42_oversize_tunnel_is_cut_by_its_real_length() {
    let packet = vxlan(|udp| udp.len_raw(15414)).tcp(|tcp| tcp).payload_len(80_000);
    let packets = Superframe::new(&packet, 1348).packets();
    assert_eq!(packets.len(), 60);
    assert_right(&packets);
}

/// Returns GRE headers with an inner IPv4 header.
fn gre(change: impl Fn(Gre) -> Gre) -> Packet {
    outer().gre(change).ipv4(|ip| ip)
}

#[test]
fn s43_gre_checksum_is_made_for_each_packet() {
    for change in
        [|g: Gre| g, |g: Gre| g.key(7), |g: Gre| g.checksum(), |g: Gre| g.checksum().key(7)]
    {
        let packets = superframe(gre(change)).packets();
        assert_eq!(packets.len(), 3);
        assert_right(&packets);
    }
}

#[test]
fn s43_gre_with_sequence_numbers_is_refused() {
    assert_eq!(superframe(gre(|g| g.sequence(1))).refusal(), NoSegments::GreSequence);
    assert_eq!(
        superframe(gre(|g| g.checksum().key(2).sequence(1))).refusal(),
        NoSegments::GreSequence
    );
}

#[test]
fn t23_l2tp_session_is_on_every_packet_and_with_a_sequence_number_on_none() {
    let session = || outer().l2tp(|l| l.session(7)).ethernet(|e| e).ipv4(|ip| ip.id(9));
    let packets = superframe(session()).packets();
    assert_eq!(fields(&packets, "l2tp", "session"), [[7]; 3]);
    assert_eq!(fields(&packets, "ipv4", "total_len"), [[186, 140], [186, 140], [136, 90]]);
    assert_right(&packets);
    let numbered = outer().l2tp(|l| l.sequence(1)).ethernet(|e| e).ipv4(|ip| ip);
    assert_eq!(superframe(numbered).refusal(), NoSegments::Headers);
}

#[test]
fn s44_ip_in_ip_rewrites_both_levels() {
    let packets = superframe(outer().ipv4(|ip| ip.id(9))).packets();
    assert_eq!(fields(&packets, "ipv4", "id"), [[700, 9], [701, 10], [702, 11]]);
    assert_eq!(fields(&packets, "ipv4", "total_len"), [[160, 140], [160, 140], [110, 90]]);
    let packets = superframe(outer().ipv6(|ip| ip)).packets();
    assert_eq!(fields(&packets, "ipv6", "payload_len"), [[120], [120], [70]]);
    let packets = superframe(Packet::new().ethernet(|e| e).ipv6(|ip| ip).ipv4(|ip| ip)).packets();
    assert_eq!(fields(&packets, "ipv6", "payload_len"), [[140], [140], [90]]);
    assert_right(&packets);
}

/// Tests remote checksum offload: the inner checksum of every packet is the pseudo-header sum for its own length, and
/// the outer checksum covers it.
#[test]
fn s45_remote_checksum_offload_leaves_seeds() {
    let vxlan = outer().udp(|udp| udp).vxlan(|v| v.remote_checksum()).ethernet(|e| e);
    let gue = outer().udp(|udp| udp).gue(|g| g.remote_checksum());
    for headers in [vxlan, gue] {
        let packets = superframe(headers.ipv4(|ip| ip)).packets();
        assert_eq!(packets.len(), 3);
        assert_right(&packets);
        let seeds = fields(&packets, "tcp", "checksum");
        assert_eq!(seeds[0], seeds[1]);
        assert_ne!(seeds[1], seeds[2]);
    }
}
