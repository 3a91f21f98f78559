//! Tests congestion marks on packets in a tunnel (RFC 6040, rule W2).

use grosso::{
    Meta,
    tunnel::{Congestion, decapsulate::Refusal},
};
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
};
use grosso_wire::LinkType;

use super::taking::{rules, take, take_with};

/// RFC 6040 figure 4, literally: a row for each inner field, a column for each outer one.
const FIGURE_4: [[Option<u8>; 4]; 4] = [
    // Not-ECT  ECT(0)        ECT(1)        CE
    [Some(NOT), Some(NOT), Some(NOT), None],
    [Some(ECT0), Some(ECT0), Some(ECT1), Some(CE)],
    [Some(ECT1), Some(ECT1), Some(ECT1), Some(CE)],
    [Some(CE), Some(CE), Some(CE), Some(CE)],
];
/// Order of the rows and columns of `FIGURE_4`.
const FIELDS: [u8; 4] = [NOT, ECT0, ECT1, CE];
const NOT: u8 = 0b00;
const ECT0: u8 = 0b10;
const ECT1: u8 = 0b01;
const CE: u8 = 0b11;

fn network(packet: Packet, is_ipv6: bool, class: u8) -> Packet {
    if is_ipv6 {
        packet.ipv6(|ip| ip.traffic_class(class))
    } else {
        packet.ipv4(|ip| ip.tos(class))
    }
}

/// Returns an IP in IP packet, or a VXLAN packet with a VLAN tag inside.
fn tunnelled(versions: (bool, bool), classes: (u8, u8), is_vxlan: bool) -> Packet {
    let packet = network(Packet::new().ethernet(|e| e), versions.0, classes.0);
    let packet = if is_vxlan {
        packet.udp(|u| u).vxlan(|v| v).ethernet(|e| e).vlan(|v| v.id(3))
    } else {
        packet
    };
    network(packet, versions.1, classes.1).udp(|u| u).payload(b"some bytes")
}

#[test]
fn w02_p35_all_sixteen_combinations_in_every_pair_of_versions() {
    for versions in [(false, false), (false, true), (true, false), (true, true)] {
        for (inner, row) in FIELDS.iter().zip(FIGURE_4) {
            for (outer, told) in FIELDS.iter().zip(row) {
                for is_vxlan in [false, true] {
                    let dscp = (0xb8, 0x28);
                    let classes = (dscp.0 | outer, dscp.1 | inner);
                    let taken = take(&tunnelled(versions, classes, is_vxlan).build());
                    let Some(told) = told else {
                        assert_eq!(taken.unwrap_err(), Refusal::CongestionUntold);
                        continue;
                    };
                    let expected = tunnelled(versions, (classes.0, dscp.1 | told), is_vxlan);
                    let expected = expected.out_of_tunnel().unwrap().build();
                    assert_eq!(taken.unwrap().packet, expected, "{inner:02b} in {outer:02b}");
                }
            }
        }
    }
}

#[test]
fn w02_what_no_right_tunnel_does_is_noted() {
    let of = |outer, inner| {
        let frame = tunnelled((false, false), (outer, inner), false).build();
        take(&frame).unwrap().plan.congestion
    };
    assert_eq!(of(ECT0, NOT), Congestion::Contradicted);
    assert_eq!(of(ECT1, NOT), Congestion::Contradicted);
    assert_eq!(of(ECT1, CE), Congestion::Contradicted);
    assert_eq!(of(ECT1, ECT0), Congestion::Capable1);
    assert_eq!(of(CE, ECT0), Congestion::Experienced);
    assert_eq!(of(CE, CE), Congestion::Unchanged);
}

/// Tests for an old bug: the difference was computed in the wrong byte order.
#[test]
fn b27_ipv4_checksum_stays_right_and_a_wrong_one_wrong() {
    for (outer, inner) in [(ECT1, ECT0), (CE, ECT0), (CE, ECT1)] {
        for id in [0, 1, 0xff00, 0x00ff, 0xfffe] {
            let around = |wrong: u16| {
                let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.tos(outer));
                packet.ipv4(|ip| ip.tos(inner).id(id).checksum_xor(wrong)).udp(|u| u).build()
            };
            let right = take(&around(0)).unwrap().packet;
            assert!(is_right(&right, Link::Ethernet), "{id:#x}");
            let wrong = take(&around(0x0100)).unwrap().packet;
            assert!(!is_right(&wrong, Link::Ethernet), "{id:#x}");
        }
    }
}

/// Tests that the IP header is found after VLAN tags, as in Linux, and that a mark is not passed on through MPLS.
#[test]
fn w02_congestion_is_not_signaled_to_other_protocols_than_ip() {
    let outer = || Packet::new().ethernet(|e| e).ipv4(|ip| ip.tos(CE));
    let arp = outer()
        .gre(|g| g.protocol_raw(0x6558))
        .payload(&[[0; 12].as_slice(), &[8, 6], &[0; 28]].concat());
    let frame = arp.build();
    let taken = take(&frame).unwrap();
    assert_eq!(taken.plan.congestion, Congestion::Unchanged);
    assert_eq!(taken.packet, frame[14 + 20 + 4..]);
    let labelled = outer().gre(|g| g).mpls(|m| m).ipv4(|ip| ip).udp(|u| u);
    let taken = take(&labelled.build()).unwrap();
    assert_eq!(taken.packet, labelled.out_of_tunnel().unwrap().build());
}

#[test]
fn w02_congestion_is_signaled_to_raw_packets() {
    let packet = tunnelled((false, true), (CE, ECT0), true).without_link();
    let taken = take_with(&packet.build(), &Meta::default(), LinkType::Raw, &rules()).unwrap();
    let told = Packet::new().ipv6(|ip| ip.traffic_class(CE));
    assert_eq!(taken.packet[..2], told.build()[..2]);
}
