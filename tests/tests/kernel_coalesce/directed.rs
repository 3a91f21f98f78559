//! Tests one vector for each known difference, and vectors for the limits, which are the same in the kernel and the
//! engine.

use std::collections::BTreeSet;

use grosso::Profile;
use grosso_rig::kernel::{Batching, GroOptions, GroOracle, release, skip};
use grosso_testkit::Packet;
use grosso_testkit::headers::Tcp;
use grosso_testkit::oracle::{Link, State, verify};

use super::both::Both;
use super::known::Known;
use super::start;

#[test]
fn every_known_difference_shows() {
    let Some(mut comparison) = start(true, None) else { return };
    for &known in Known::ALL {
        let Some(frames) = example(known) else { continue };
        let names = comparison.explain(&frames).unwrap_or_else(|why| panic!("{known:?}: {why}"));
        assert!(names.contains(&known), "{known:?}: {names:?}");
        if known != Known::Eviction {
            assert_eq!(names, BTreeSet::from([known]));
        }
    }
}

#[test]
fn t21_gre_keys_that_differ_in_their_upper_half_stay_apart() {
    let Some(mut comparison) = start(true, None) else { return };
    let keyed = |index: u16, key: u32| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index));
        behind(outer.gre(|gre| gre.key(key)), index, 100)
    };
    let frames = [keyed(0, 7), keyed(1, 7), keyed(2, 7), keyed(3, 0x8000_0007)];
    assert_eq!(comparison.explain(&frames), Ok(BTreeSet::new()));
}

#[test]
fn limits_of_number_and_table_are_the_same() {
    let Some(mut comparison) = start(true, Some(Batching::Timer)) else { return };
    let datagrams = |count: u16| -> Vec<Vec<u8>> {
        let packet = |id| Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id)).udp(|udp| udp);
        (0..count).map(|id| packet(id).payload(&[7; 100]).build()).collect()
    };
    let interleaved = |flows: u16| -> Vec<Vec<u8>> {
        (0..2 * flows)
            .map(|index| segment(index / flows, |tcp| tcp.source_port(1500 + index % flows)))
            .collect()
    };
    let lengthy: Vec<_> = (0..100).map(|index| segment(index, |tcp| tcp)).collect();
    let vectors =
        [datagrams(64), datagrams(65), datagrams(130), interleaved(8), interleaved(9), lengthy];
    for frames in vectors {
        let names = comparison.explain(&frames).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(names, BTreeSet::new(), "{} frames", frames.len());
    }
}

#[test]
fn limits_of_size_are_the_same_to_the_byte() {
    let Some(mut comparison) = start(true, None) else { return };
    let link = || Packet::new().ethernet(|ethernet| ethernet);
    let ipv4 = |packet: Packet, index| packet.ipv4(|ip| ip.id(index));
    let ipv6 = |packet: Packet| packet.ipv6(|ip| ip);
    let vxlan = |packet: Packet| packet.udp(|udp| udp).vxlan(|vxlan| vxlan).ethernet(|inner| inner);
    let paths: [&dyn Fn(u16) -> Packet; 7] = [
        &|index| ipv4(link(), index),
        &|_| ipv6(link()),
        &|_| ipv6(link()).destination_options(|options| options),
        &|index| ipv4(ipv4(link(), index), index),
        &|index| ipv4(ipv6(link()).gre(|gre| gre), index),
        &|index| ipv6(vxlan(ipv4(link(), index))),
        &|index| ipv4(vxlan(ipv6(link())), index),
    ];
    for (path, is_tcp) in paths.iter().flat_map(|path| [(path, true), (path, false)]) {
        let packet = |index: u16| match is_tcp {
            true => path(index).tcp(|tcp| tcp.sequence(100 + u32::from(index) * 13_000)),
            false => path(index).udp(|udp| udp),
        };
        let headers = packet(0).header_len() - 14;
        for total in 65_533..=65_538 {
            let last = total - headers - 5 * 13_000;
            let frames: Vec<_> = [13_000, 13_000, 13_000, 13_000, 13_000, last]
                .into_iter()
                .zip(0..)
                .map(|(len, index)| packet(index).payload_len(len).build())
                .collect();
            let names = comparison.explain(&frames).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(names, BTreeSet::new(), "{headers} bytes of headers, {total} in total");
        }
    }
}

#[test]
fn g63_raised_limits_make_the_same_packets_but_for_the_jumbo_header() {
    let options = GroOptions { max_size: Some((150_000, 150_000)), ..GroOptions::default() };
    let kernel = match GroOracle::with(&options) {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let mut profile = Profile::linux_8x8();
    profile.limits.size_bytes = 150_000;
    let mut both = Both { kernel, profile };
    for is_ipv6 in [false, true] {
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|index| {
                let link = Packet::new().ethernet(|ethernet| ethernet);
                let packet = match is_ipv6 {
                    true => link.ipv6(|ip| ip),
                    false => link.ipv4(|ip| ip.id(index)),
                };
                let sequence = 100 + u32::from(index) * 1448;
                packet.tcp(|tcp| tcp.sequence(sequence)).payload_len(1448).build()
            })
            .collect();
        let (mut delivered, expected) = (both.kernel(&frames).items, both.engine(&frames).items);
        assert_eq!(expected.len(), 1);
        if is_ipv6 && release() < (7, 2) {
            delivered.iter_mut().for_each(|item| {
                remove_jumbo_header(&mut item.bytes);
                item.offload.iter_mut().for_each(|offload| offload.checksum_start = 54);
            });
        }
        assert_eq!(delivered, expected);
    }
}

/// Returns a vector that shows only this difference on the running kernel; `None` if this kernel does not have the
/// difference.
fn example(known: Known) -> Option<Vec<Vec<u8>>> {
    let vxlan = |udp_len: Option<u16>, remote: bool, index: u16| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index));
        let outer = outer.udp(|udp| match udp_len {
            Some(len) => udp.len_raw(len),
            None => udp,
        });
        let tunnel = outer.vxlan(|vxlan| if remote { vxlan.remote_checksum() } else { vxlan });
        behind(tunnel.ethernet(|e| e), index, 100)
    };
    let gre = |index, len| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index));
        behind(outer.gre(|gre| gre.checksum().key(7)), index, len)
    };
    let labelled = |flow: u16, index: u16, label: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip.flow_label(label));
        let sequence = 100 + u32::from(index) * 100;
        let packet = packet.tcp(|tcp| tcp.sequence(sequence).source_port(1500 + flow));
        packet.payload_len(100).build()
    };
    Some(match known {
        Known::UrgentPointer => {
            vec![segment(0, |tcp| tcp), segment(1, |tcp| tcp.urgent_pointer(5))]
        }
        Known::ChecksumForm => vec![segment(0, |tcp| tcp), other_form()],
        Known::Overtaking => vec![
            segment(0, |tcp| tcp),
            segment(1, |tcp| tcp.checksum_xor(1)),
            segment(1, |tcp| tcp),
        ],
        Known::TunnelLength => vec![vxlan(Some(50), false, 0), vxlan(Some(50), false, 1)],
        Known::FlowIdentity => vec![labelled(0, 0, 1), labelled(0, 7, 2), labelled(0, 1, 1)],
        Known::WindowReduced if release() < (7, 2) => {
            vec![segment(0, |tcp| tcp.cwr()), segment(1, |tcp| tcp.cwr())]
        }
        Known::GreChecksumAndKey => vec![gre(0, 100), gre(1, 50)],
        Known::NotLookedInto => (0..2)
            .map(|index| behind(Packet::new().ethernet(|e| e).mpls(|mpls| mpls), index, 100))
            .collect(),
        Known::RemoteChecksum => vec![vxlan(None, true, 0), vxlan(None, true, 1)],
        Known::FinalAddress => (0..2)
            .map(|index: u32| {
                let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
                let packet = packet.routing(|routing| routing.route(4, 1, &[[7; 16], [9; 16]]));
                packet.tcp(|tcp| tcp.sequence(100 + index * 100)).payload_len(100).build()
            })
            .collect(),
        // To Linux, the packet with the other label is a ninth flow, so it evicts a train. To the engine, it belongs to
        // flow 0, the most recent one, and ends that flow's train.
        Known::Eviction => {
            let first = (1..8).chain([0]).map(|flow| labelled(flow, 0, 0));
            let second = (1..8).map(|flow| labelled(flow, 1, 0));
            first.chain([labelled(0, 7, 1)]).chain(second).collect()
        }
        Known::OlderIdentification if release() < (6, 18) => {
            vec![segment(0, |tcp| tcp), segment(0, |tcp| tcp.sequence(200))]
        }
        Known::WindowReduced | Known::OlderIdentification => return None,
    })
}

/// Returns TCP segment number `index`, of 100 bytes.
fn segment(index: u16, edit: impl Fn(Tcp) -> Tcp) -> Vec<u8> {
    let packet = Packet::new().ethernet(|ethernet| ethernet).ipv4(|ip| ip.id(index));
    let sequence = 100 + u32::from(index) * 100;
    packet.tcp(|tcp| edit(tcp.sequence(sequence))).payload_len(100).build()
}

/// Returns TCP segment number `index` after some headers.
fn behind(packet: Packet, index: u16, len: usize) -> Vec<u8> {
    let packet = packet.ipv4(|ip| ip.id(index));
    packet.tcp(|tcp| tcp.sequence(100 + u32::from(index) * 100)).payload_len(len).build()
}

/// Returns the second segment, with a payload for which its checksum is zero. The checksum is written as all ones.
fn other_form() -> Vec<u8> {
    let build = |word: u16, checksum: Option<u16>| {
        let mut payload = [0; 100];
        payload[..2].copy_from_slice(&word.to_be_bytes());
        let packet = Packet::new().ethernet(|ethernet| ethernet).ipv4(|ip| ip.id(1));
        let edit = |tcp: Tcp| match checksum {
            Some(value) => tcp.checksum_raw(value),
            None => tcp,
        };
        packet.tcp(|tcp| edit(tcp.sequence(200))).payload(&payload).build()
    };
    let checksum = |frame: &[u8]| verify(frame, Link::Ethernet)[1].expected;
    let word = checksum(&build(0, None));
    assert_eq!(checksum(&build(word, None)), 0);
    let frame = build(word, Some(0xffff));
    assert_eq!(verify(&frame, Link::Ethernet)[1].state, State::Right);
    frame
}

/// Removes the hop-by-hop header that Linux adds to a jumbogram before 7.2 (rule G63).
fn remove_jumbo_header(frame: &mut Vec<u8>) {
    const NETWORK: usize = 14;
    const OPTIONS: usize = NETWORK + 40;
    let payload = (frame.len() - OPTIONS) as u32;
    assert_eq!(frame[NETWORK + 4..NETWORK + 7], [0, 0, 0]);
    assert_eq!(frame[OPTIONS..OPTIONS + 4], [6, 0, 0xc2, 4]);
    assert_eq!(frame[OPTIONS + 4..OPTIONS + 8], payload.to_be_bytes());
    frame[NETWORK + 6] = 6;
    frame.drain(OPTIONS..OPTIONS + 8);
}
