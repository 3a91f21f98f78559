//! Tests the check that a packet came through a given tunnel, in the format that the tunnel's endpoint expects.

use std::net::IpAddr;

use grosso::{
    Meta,
    checksum::Checksum,
    tunnel::{
        Carrier, Endpoint, Expected, Header, IpVersion, NotAdmitted, RemoteChecksumUse,
        decapsulate::{Decapsulation, OuterChecksum, Refusal, RemoteChecksumMode},
        encapsulate::{self, Encapsulator},
    },
};
use grosso_testkit::Packet;
use grosso_wire::{Kind, LinkType, dissect};

use super::{
    formats::{Carried, V4, V6, VXLAN, all, gre, udp, with_remote_checksum, without_checksum},
    putting::{Known, packets, partial, put},
};

/// Returns the receiver's decapsulation plan for the first packet from the sender.
fn plan(sender: &Endpoint, receiver: &Endpoint) -> Decapsulation {
    planned(packets(sender).swap_remove(0).1, sender, receiver)
}

/// Returns the receiver's decapsulation plan for this packet from the sender.
fn planned(packet: Packet, sender: &Endpoint, receiver: &Endpoint) -> Decapsulation {
    let mut encapsulator = Encapsulator::new(sender.clone(), 1).unwrap();
    let link = super::putting::link_of(sender);
    let sent = put(&mut encapsulator, &Known::new(packet.build()), link).unwrap();
    let mut rules = receiver.rules();
    // The receiver must recognize the tunnel itself, not only its port.
    rules.ports = sender.ports();
    rules.ipv6_without_checksum = true;
    let stack = dissect(&sent.bytes, LinkType::Raw, &rules.ports);
    Decapsulation::plan(&sent.bytes, &stack, &sent.meta, LinkType::Ethernet, &rules).unwrap()
}

fn other_end(endpoint: &Endpoint) -> Endpoint {
    let mut other = endpoint.clone();
    (other.local, other.remote) = (endpoint.remote, endpoint.local);
    other
}

fn admit(sender: &Endpoint, receiver: &Endpoint) -> Result<(), NotAdmitted> {
    receiver.admit(&plan(sender, receiver), &mut Expected::default())
}

#[test]
fn the_other_end_takes_what_is_sent_and_no_other_does() {
    for endpoint in all() {
        assert_eq!(admit(&endpoint, &other_end(&endpoint)), Ok(()), "{endpoint:?}");
        assert_eq!(admit(&endpoint, &endpoint), Err(NotAdmitted::Address), "{endpoint:?}");
        let mut stranger = other_end(&endpoint);
        stranger.remote = match stranger.remote {
            IpAddr::V4(_) => [192, 0, 2, 77].into(),
            IpAddr::V6(_) => [0xfd; 16].into(),
        };
        assert_eq!(admit(&endpoint, &stranger), Err(NotAdmitted::Address));
    }
}

/// Tests every format against every other format: each kind of mismatch is reported with its own reason.
#[test]
fn tunnels_of_other_kinds_are_foreign() {
    let (mut foreign, mut same) = (0, 0);
    for [local, remote] in [V4, V6] {
        let ends: Vec<_> = all().into_iter().filter(|e| e.local == local).collect();
        assert_eq!(ends[0].remote, remote);
        for sender in &ends {
            for receiver in &ends {
                match admit(sender, &other_end(receiver)) {
                    Ok(()) => {
                        // The two formats differ in a property that receivers ignore.
                        let is_alike = sender.header == receiver.header
                            || matches!(
                                (&sender.header, &receiver.header),
                                (Header::Gre { .. }, Header::Gre { sequence: false, .. })
                            );
                        assert!(is_alike, "{sender:?} {receiver:?}");
                        same += 1;
                    }
                    Err(_) => foreign += 1,
                }
            }
        }
    }
    assert!(foreign > 600 && same < 100, "{foreign} {same}");
}

fn v4(header: Header, carrier: Carrier) -> Endpoint {
    let [local, remote] = V4;
    Endpoint::new(local, remote, header, carrier)
}

fn vxlan(identifier: u32, policy: Option<u16>) -> Endpoint {
    let header = Header::Vxlan { identifier, policy, generic_protocol: false };
    v4(header, Carrier::Udp(udp(4789)))
}

#[test]
fn w30_w31_identifiers_and_policies_have_to_be_the_tunnels() {
    let check = |sender: Endpoint, receiver: Endpoint| admit(&sender, &other_end(&receiver));
    assert_eq!(check(vxlan(1, None), vxlan(2, None)), Err(NotAdmitted::Identifier));
    assert_eq!(check(vxlan(1, Some(3)), vxlan(1, None)), Err(NotAdmitted::Policy));
    assert_eq!(check(vxlan(1, None), vxlan(1, Some(3))), Ok(()));
    assert_eq!(check(vxlan(1, Some(4)), vxlan(1, Some(3))), Ok(()));
    let gre = |key, checksum| v4(gre(key, checksum, false, false), Carrier::Ip);
    assert_eq!(check(gre(Some(1), false), gre(Some(2), false)), Err(NotAdmitted::Identifier));
    assert_eq!(check(gre(None, false), gre(Some(0), false)), Err(NotAdmitted::Identifier));
    assert_eq!(check(gre(Some(0), false), gre(None, false)), Err(NotAdmitted::Identifier));
    let geneve = |inherit_protocol| {
        let header = Header::Geneve { identifier: 1, options: Vec::new(), inherit_protocol };
        v4(header, Carrier::Udp(udp(6081)))
    };
    assert_eq!(check(geneve(true), geneve(false)), Err(NotAdmitted::Payload));
    assert_eq!(check(geneve(false), geneve(true)), Err(NotAdmitted::Payload));
}

/// Tests the `mode` of `ip link`: packets of the other IP version are neither sent nor accepted.
#[test]
fn packets_have_to_be_of_the_version_that_the_tunnel_carries() {
    for carrier in [Carrier::Ip, Carrier::Gue(udp(6080))] {
        let both = v4(Header::Ip, carrier);
        let only = |version| {
            let mut endpoint = both.clone();
            endpoint.version = Some(version);
            endpoint
        };
        for (carried, packet) in packets(&both) {
            let (right, wrong) = match carried {
                Carried::Ipv4 => (IpVersion::V4, IpVersion::V6),
                _ => (IpVersion::V6, IpVersion::V4),
            };
            let plan = planned(packet.clone(), &both, &other_end(&both));
            let admit = |version| other_end(&only(version)).admit(&plan, &mut Expected::default());
            assert_eq!((admit(right), admit(wrong)), (Ok(()), Err(NotAdmitted::Payload)));
            let put = |version| {
                let mut encapsulator = Encapsulator::new(only(version), 1).unwrap();
                put(&mut encapsulator, &Known::new(packet.clone().build()), LinkType::Raw).err()
            };
            assert_eq!((put(right), put(wrong)), (None, Some(encapsulate::Refusal::NotIp)));
        }
    }
}

#[test]
fn w51_the_checksum_of_gre_has_to_be_there_or_not() {
    for checksum in [false, true] {
        let sender = v4(gre(None, checksum, false, false), Carrier::Ip);
        let receiver = other_end(&v4(gre(None, !checksum, false, false), Carrier::Ip));
        assert_eq!(admit(&sender, &receiver), Err(NotAdmitted::GreChecksum));
    }
}

/// Tests rule W51: a packet with an older sequence number than expected is late, and numbers wrap.
#[test]
fn w51_numbers_count_on() {
    let numbered = v4(gre(None, false, true, false), Carrier::Ip);
    let receiver = other_end(&numbered);
    let mut expected = Expected::default();
    let mut take = |sequence: u32| {
        let [remote, local] = [receiver.remote, receiver.local];
        let (IpAddr::V4(remote), IpAddr::V4(local)) = (remote, local) else { unreachable!() };
        let outer = Packet::new()
            .ipv4(|ip| ip.source(remote.octets()).destination(local.octets()))
            .gre(|gre| gre.sequence(sequence));
        let frame = outer.ipv4(|ip| ip).udp(|u| u).build();
        let rules = receiver.rules();
        let stack = dissect(&frame, LinkType::Raw, &rules.ports);
        let meta = Meta::default();
        let plan = Decapsulation::plan(&frame, &stack, &meta, LinkType::Raw, &rules).unwrap();
        receiver.admit(&plan, &mut expected)
    };
    assert_eq!(take(u32::MAX - 1), Ok(()), "the first packet may have any number");
    assert_eq!(take(u32::MAX - 1), Err(NotAdmitted::Late), "a number is accepted once");
    assert_eq!(take(5), Ok(()), "packets may be missing");
    assert_eq!(take(u32::MAX), Err(NotAdmitted::Late));
    assert_eq!(take(6), Ok(()));
    assert_eq!(take(7 + (1 << 31)), Err(NotAdmitted::Late));
    assert_eq!(take(6 + (1 << 31)), Ok(()));
    let unnumbered = v4(gre(None, false, false, false), Carrier::Ip);
    assert_eq!(admit(&unnumbered, &receiver), Err(NotAdmitted::Unnumbered));
    // A receiver without sequence numbers does not check them.
    assert_eq!(admit(&numbered, &other_end(&unnumbered)), Ok(()));
}

#[test]
fn rules_are_those_of_the_endpoint() {
    let mode = |receive, complete| {
        let mut header = udp(4789);
        header.remote_checksum = RemoteChecksumUse { transmit: false, receive, complete };
        v4(VXLAN, Carrier::Udp(header)).rules().remote_checksum
    };
    assert_eq!(mode(false, false), RemoteChecksumMode::Refuse);
    assert_eq!(mode(false, true), RemoteChecksumMode::Refuse);
    assert_eq!(mode(true, false), RemoteChecksumMode::Partial);
    assert_eq!(mode(true, true), RemoteChecksumMode::Complete);
    let plain = v4(Header::Ip, Carrier::Ip).rules();
    assert_eq!(plain.remote_checksum, RemoteChecksumMode::Refuse);
    let [local, remote] = V6;
    for allowed in [false, true] {
        let mut header = without_checksum(4789);
        header.ipv6_without_checksum = allowed;
        let endpoint = Endpoint::new(local, remote, VXLAN, Carrier::Udp(header));
        assert_eq!(endpoint.rules().ipv6_without_checksum, allowed, "W32");
        assert_eq!(endpoint.rules().ports.port(Kind::Vxlan), 4789);
        let refused = plan_of(&endpoint, OuterChecksum::InFrame, Checksum::None);
        let expected = if allowed { None } else { Some(Refusal::UdpChecksumNone) };
        assert_eq!(refused.err(), expected, "P46");
    }
}

/// Returns the plan for a TCP frame in VXLAN that was read from a socket, with a UDP checksum field of zero.
fn plan_of(
    endpoint: &Endpoint,
    outer_checksum: OuterChecksum,
    state: Checksum,
) -> Result<Decapsulation, Refusal> {
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    let inner = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(50);
    let sent = put(&mut encapsulator, &Known::partial(&inner), LinkType::Ethernet).unwrap();
    let mut frame = sent.completed();
    let udp = if endpoint.local.is_ipv4() { 20 } else { 40 };
    frame[udp + 6..udp + 8].fill(0);
    let mut rules = other_end(endpoint).rules();
    rules.outer_checksum = outer_checksum;
    let stack = dissect(&frame, LinkType::Raw, &rules.ports);
    let meta = Meta { checksum: state, ..Meta::default() };
    Decapsulation::plan(&frame, &stack, &meta, LinkType::Ethernet, &rules)
}

/// Tests a socket that does not report checksums, but delivers only datagrams with a correct one.
#[test]
fn c54_a_checksum_that_was_verified_below_protects_what_is_inside() {
    for [local, remote] in [V4, V6] {
        let carrier = Carrier::Udp(with_remote_checksum(4789));
        let mut endpoint = Endpoint::new(local, remote, VXLAN, carrier);
        if let Carrier::Udp(udp) = &mut endpoint.carrier {
            udp.ipv6_without_checksum = false;
        }
        let plan = plan_of(&endpoint, OuterChecksum::VerifiedBelow, Checksum::None).unwrap();
        assert_eq!(plan.meta.checksum, partial(34, 16));
        let in_frame = plan_of(&endpoint, OuterChecksum::InFrame, Checksum::None);
        let expected = if local.is_ipv4() {
            Refusal::RemoteChecksumUnprotected
        } else {
            Refusal::UdpChecksumNone
        };
        assert_eq!(in_frame.err(), Some(expected));
    }
}

/// Tests that an unreported checksum proves nothing about inner ones.
#[test]
fn a_checksum_verified_outside_does_not_verify_inner_ones() {
    let endpoint = v4(VXLAN, Carrier::Udp(udp(4789)));
    let known =
        |state| plan_of(&endpoint, OuterChecksum::VerifiedBelow, state).unwrap().meta.checksum;
    assert_eq!(known(Checksum::None), Checksum::None);
    // The first of the verified checksums is the outer one.
    assert_eq!(known(Checksum::Unnecessary { levels: 0 }), Checksum::None);
    let inside = Checksum::Unnecessary { levels: 0 };
    assert_eq!(known(Checksum::Unnecessary { levels: 1 }), inside);
    assert_eq!(known(partial(20 + 8 + 8 + 34, 16)), partial(34, 16));
}
