use grosso_checksum::update;
use grosso_testkit::{
    Packet, Traffic,
    oracle::{self, Link},
};
use grosso_wire::{LinkType, Ports, dissect};
use proptest::prelude::*;

use super::*;
use crate::checksums::{complete, fix};

fn stack_of(packet: &[u8]) -> Stack {
    let ports = Ports::ASSIGNED.with_fou(oracle::FOU_PORT, 4);
    dissect(packet, LinkType::Ethernet, &ports)
}

fn levels(packet: &[u8]) -> Levels {
    let mut levels = Levels::default();
    judge(packet, false, &stack_of(packet), Claim::None, &mut levels);
    levels
}

fn verdicts(packet: &[u8]) -> Vec<Verdict> {
    levels(packet).iter().map(|level| level.verdict).collect()
}

fn tunnelled() -> Packet {
    Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip)
        .udp(|udp| udp)
        .vxlan(|v| v)
        .ethernet(|e| e)
        .ipv4(|ip| ip)
        .tcp(|t| t)
        .payload_len(1001)
}

#[test]
fn partial_inside_a_tunnel_is_partial_and_the_outer_one_is_right() {
    let (mut packet, start, offset) = tunnelled().build_partial();
    let expected = tunnelled().build();
    assert_eq!(
        verdicts(&packet),
        [Verdict::Valid, Verdict::Valid, Verdict::Valid, Verdict::Partial]
    );
    let stack = stack_of(&packet);
    let fixed = complete(&mut packet, false, &stack, Claim::None, &mut Levels::default());
    assert_eq!(fixed, 1);
    assert_eq!(packet, expected, "at {start} + {offset}");
}

#[test]
fn outer_checksum_over_the_seed_follows_when_the_seed_is_completed() {
    let (mut packet, ..) = tunnelled().build_partial();
    let outer = 14 + 20 + 6;
    put(&mut packet, outer, 0);
    let pseudo = oracle_seed(&packet[14..34], packet.len() - 34);
    let over_seed = (Sum::of(&packet[34..]) + pseudo).checksum();
    put(&mut packet, outer, over_seed);
    let stack = stack_of(&packet);
    complete(&mut packet, false, &stack, Claim::None, &mut Levels::default());
    assert_eq!(packet, tunnelled().build());
}

#[test]
fn superframe_is_partial_on_every_level() {
    let (packet, ..) = tunnelled().payload_len(9000).build_superframe();
    assert_eq!(
        verdicts(&packet),
        [Verdict::Valid, Verdict::Partial, Verdict::Valid, Verdict::Partial]
    );
}

#[test]
fn udp_without_checksum_is_bad_over_ipv6_alone() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero());
    assert_eq!(verdicts(&packet.payload_len(9).build()), [Verdict::Valid, Verdict::ZeroUdp]);
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u.checksum_zero());
    assert_eq!(verdicts(&packet.payload_len(9).build()), [Verdict::Bad]);
}

#[test]
fn udp_that_is_shorter_than_its_header_is_bad_whatever_its_checksum() {
    for len in 0..12 {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload_len(9);
        let mut bytes = packet.build();
        let checksum = u16::from_be_bytes([bytes[60], bytes[61]]);
        put(&mut bytes, 58, len);
        // The checksum is updated to match the new length in the header.
        put(&mut bytes, 60, update(checksum, 17, len));
        let bad = [Verdict::Bad];
        assert_eq!(verdicts(&bytes) == bad, len != 0, "{len}");
        put(&mut bytes, 60, 0);
        // A length of zero may mean a jumbogram, and then it is unknown where the datagram ends.
        assert_eq!(verdicts(&bytes), [if len == 0 { Verdict::ZeroUdp } else { Verdict::Bad }]);
    }
}

#[test]
fn udp_over_ipv4_without_a_length_is_bad_although_its_checksum_is_right() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(9);
    let mut bytes = packet.build();
    let checksum = u16::from_be_bytes([bytes[40], bytes[41]]);
    put(&mut bytes, 38, 0);
    put(&mut bytes, 40, update(checksum, 17, 0));
    assert_eq!(verdicts(&bytes), [Verdict::Valid, Verdict::Bad]);
}

#[test]
fn cut_packet_is_unverifiable_but_its_header_is_not() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    let bytes = packet.truncate(96).build();
    let stack = stack_of(&bytes);
    let mut levels = Levels::default();
    judge(&bytes, true, &stack, Claim::None, &mut levels);
    let found: Vec<_> = levels.iter().map(|level| level.verdict).collect();
    assert_eq!(found, [Verdict::Valid, Verdict::Unverifiable]);
    assert_eq!(levels.worst(), Some(Verdict::Unverifiable));
}

#[test]
fn remote_checksum_is_not_completed() {
    let packet = Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip)
        .udp(|udp| udp)
        .vxlan(|v| v.remote_checksum())
        .ethernet(|e| e)
        .ipv4(|ip| ip)
        .tcp(|t| t)
        .payload_len(100);
    let mut bytes = packet.build();
    let before = bytes.clone();
    assert!(verdicts(&bytes).iter().all(|verdict| *verdict == Verdict::Valid));
    let stack = stack_of(&bytes);
    assert_eq!(complete(&mut bytes, false, &stack, Claim::None, &mut Levels::default()), 0);
    assert_eq!(bytes, before);
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn oracle_seed(ip: &[u8], len: usize) -> Sum {
    let header = oracle::pseudo_header(&ip[12..16], &ip[16..20], 17, len);
    Sum::of(&header)
}

proptest! {
    /// Compares the verdicts with the test kit's slow oracle, which has a packet parser of its own.
    #[test]
    fn verdicts_are_those_of_the_oracle(seed: u64, flips in any::<[u16; 4]>()) {
        for (index, mut packet) in Traffic::new(seed).take(12).enumerate() {
            let bits = flips[index % 4];
            if bits % 3 == 0 && !packet.is_empty() {
                let at = bits as usize % packet.len();
                packet[at] ^= (bits >> 8) as u8 | 1;
            }
            let stack = stack_of(&packet);
            let is_whole = stack.extent != grosso_wire::Extent::Short;
            let known = oracle::verify(&packet, Link::Ethernet);
            let levels = levels(&packet);
            if levels.prefix.is_some() {
                continue;
            }
            // The oracle does not check whether a checksum is allowed to be missing.
            let is_wrong = |level: &Level| {
                let is_open = matches!(level.verdict, Verdict::Partial | Verdict::Bad);
                is_open && level.why != Why::Missing
            };
            let found: Vec<_> = levels
                .iter()
                .filter(|level| level.verdict != Verdict::Unverifiable)
                .map(|level| (level.found, is_wrong(level)))
                .collect();
            let expected: Vec<_> = known
                .iter()
                .map(|verdict| (verdict.found.into(), verdict.state == oracle::State::Wrong))
                .collect();
            // The oracle accepts remote checksum offload without checking the offsets.
            let lengths = oracle::Lengths::Declared;
            let remote = oracle::parse(&packet, Link::Ethernet, lengths).has_remote_checksum();
            let compared = expected.len() - usize::from(remote && !expected.is_empty());
            let ends_in = |kind| stack.last().is_some_and(|last| last.kind == kind);
            let reaches = stack.stop == Stop::Payload && (ends_in(Kind::Tcp) || ends_in(Kind::Udp));
            if is_whole && (reaches || !remote) && found.len() == expected.len() {
                prop_assert_eq!(&found[..compared], &expected[..compared], "{}", stack);
            }
        }
    }

    #[test]
    fn everything_wrong_can_be_set_right(seed: u64, bits in 1_u16..) {
        for mut packet in Traffic::benign(seed).take(8) {
            let before = packet.clone();
            let stack = stack_of(&packet);
            let mut judged = levels(&packet);
            let is_right = judged.iter().all(|level| level.verdict == Verdict::Valid);
            prop_assume!(is_right && !judged.is_empty());
            let place = judged.at(bits as usize % judged.len()).unwrap();
            put(&mut packet, place.at, place.found as u16 ^ bits);
            judged = levels(&packet);
            prop_assume!(judged.prefix.is_none());
            let wrong = |level: &Level| matches!(level.verdict, Verdict::Bad | Verdict::Partial);
            fix(&mut packet, false, &stack, &mut judged, wrong);
            let now = levels(&packet);
            prop_assert!(now.iter().all(|level| level.verdict != Verdict::Bad), "{}", stack);
            prop_assert_eq!(&packet, &before, "{}", stack);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for link in [LinkType::Ethernet, LinkType::Raw, LinkType::LinuxSll2] {
            let stack = dissect(&bytes, link, &Ports::ASSIGNED);
            let mut levels = Levels::default();
            judge(&bytes, true, &stack, Claim::Partial { at: 40 }, &mut levels);
            let mut packet = bytes.clone();
            fix(&mut packet, true, &stack, &mut levels, |_| true);
        }
    }
}
