//! Tests that flows are never merged even if they share a bucket or a hash, or fill the whole table (P21), and that
//! held packets stay within their limits for any input (P50).

use grosso::{Meta, Profile, coalesce::BucketChoice};
use grosso_rig::session::Session;
use grosso_testkit::{
    Packet,
    oracle::{Link, flow_of},
    random::Random,
};
use grosso_wire::LinkType;

/// Tests a table with a single bucket, and more flows than the bucket has ways, so that every lookup finds other flows.
#[test]
fn p21_flows_in_one_bucket_never_merge() {
    for choice in [BucketChoice::Seeded, BucketChoice::Device] {
        for flows in [2, 8, 9, 40] {
            for seed in 0..20 {
                let mut profile = Profile::linux();
                profile.table.buckets = 1;
                profile.table.choice = choice;
                let frames = interleaved(flows, seed, plain);
                let session = run(profile, &frames, seed);
                assert_unmixed(&session);
                assert!(flows > 8 || session.left.iter().any(|left| left.joined));
            }
        }
    }
}

/// Tests a profile that allows more tunnels than a superframe may have.
#[test]
fn what_is_joined_can_be_cut_however_deep_it_is() {
    let mut profile = Profile::linux();
    profile.tunnels_max = u8::MAX;
    for levels in 1..=13 {
        let frames = interleaved(3, 1, |flow, number| {
            let packet = (0..levels).fold(link(), |packet, _| packet.ipv6(|ip| ip));
            let sequence = 100 + u32::from(number) * 50;
            let packet = packet.tcp(|t| t.source_port(2000 + flow).sequence(sequence));
            packet.payload_len(50).build()
        });
        assert_unmixed(&run(profile.clone(), &frames, 1));
    }
}

/// Tests flows that differ in GRE keys, which the hash may not cover.
#[test]
fn p21_flows_of_different_gre_keys_never_merge() {
    for seed in 0..50 {
        let frames = interleaved(3, seed, |flow, number| {
            let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(number));
            let inner = outer.gre(|g| g.key(flow.into())).ipv4(|ip| ip.id(number));
            inner.tcp(|t| t.sequence(100 + u32::from(number) * 50)).payload_len(50).build()
        });
        assert_unmixed(&run(Profile::linux(), &frames, seed));
    }
}

/// Tests flows that differ in one identifying field and are otherwise equal.
#[test]
fn p21_flows_that_differ_in_one_field_never_merge() {
    type Build = fn(u16, u16) -> Packet;
    let builds: &[(&str, Build)] = &[
        ("vlan", |f, n| link().vlan(|v| v.id(f)).ipv4(|ip| ip.id(n))),
        ("outer vlan", |f, n| link().vlan(|v| v.id(f).service()).vlan(|v| v).ipv4(|ip| ip.id(n))),
        ("pppoe", |f, n| link().pppoe(|p| p.session(f)).ipv4(|ip| ip.id(n))),
        ("mpls", |f, n| link().mpls(|m| m.label(f.into())).ipv4(|ip| ip.id(n))),
        ("source", |f, n| link().ipv4(|ip| ip.id(n).source([10, 0, 0, f as u8]))),
        ("destination", |f, n| link().ipv4(|ip| ip.id(n).destination([10, 0, 0, f as u8]))),
        ("outer source", |f, n| {
            link().ipv4(|ip| ip.id(n).source([10, 0, 0, f as u8])).ipv4(|ip| ip.id(n))
        }),
        ("vni", |f, n| {
            let outer = link().ipv4(|ip| ip.id(n)).udp(|u| u).vxlan(|v| v.vni(f.into()));
            outer.ethernet(|e| e).ipv4(|ip| ip.id(n))
        }),
        ("geneve vni", |f, n| {
            let outer = link().ipv4(|ip| ip.id(n)).udp(|u| u).geneve(|g| g.vni(f.into()));
            outer.ethernet(|e| e).ipv4(|ip| ip.id(n))
        }),
        ("outer port", |f, n| {
            let outer = link().ipv4(|ip| ip.id(n)).udp(|u| u.source_port(5000 + f)).vxlan(|v| v);
            outer.ethernet(|e| e).ipv4(|ip| ip.id(n))
        }),
        ("ethernet", |f, n| link_of(f as u8).ipv4(|ip| ip.id(n))),
    ];
    for (name, build) in builds {
        for buckets in [1, 1024] {
            let mut profile = Profile::linux();
            profile.table.buckets = buckets;
            let frames = interleaved(2, 7, |flow, number| {
                let sequence = 100 + u32::from(number) * 50;
                build(flow, number).tcp(|t| t.sequence(sequence)).payload_len(50).build()
            });
            println!("{name}");
            assert_unmixed(&run(profile, &frames, 7));
        }
    }
}

/// Tests that trains and buffers never exceed their limits, for any number of flows and any length of their trains.
#[test]
fn held_trains_and_buffers_stay_within_their_limits() {
    for (flows_max, parts_max) in [(1, 65536), (3, 2), (8, 0), (64, 10), (4096, 100)] {
        let mut profile = Profile::linux();
        profile.limits.flows = flows_max;
        profile.limits.parts = parts_max;
        let mut session = Session::new(profile, LinkType::Ethernet, 1);
        for frame in interleaved(100, 3, plain) {
            session.push(&frame, Meta::default());
            // The first packet of a train is stored in the train itself.
            assert!(session.held.len() <= flows_max + parts_max);
        }
        session.finish();
        session.assert_settled();
        session.assert_reversible();
    }
}

fn run(profile: Profile, frames: &[Vec<u8>], seed: u64) -> Session {
    let mut session = Session::new(profile, LinkType::Ethernet, seed);
    for frame in frames {
        session.push(frame, Meta::default());
    }
    session.finish();
    session.assert_settled();
    session.assert_reversible();
    session
}

/// Checks that every superframe consists of packets of one flow.
fn assert_unmixed(session: &Session) {
    for left in &session.left {
        let flow = |number: &usize| {
            let bytes = &session.pushed[*number].bytes;
            // Link-layer addresses do not belong to the flow, but packets with different addresses must not be merged
            // either.
            (flow_of(bytes, Link::Ethernet).expect("a flow"), bytes[..12].to_vec())
        };
        let first = flow(&left.numbers[0]);
        assert!(left.numbers.iter().all(|number| flow(number) == first), "{left:?}");
    }
}

/// Returns short bursts of each flow in random order.
fn interleaved(flows: u16, seed: u64, build: impl Fn(u16, u16) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let mut next = vec![0; usize::from(flows)];
    let mut frames = Vec::new();
    while frames.len() < 400 {
        let flow = random.below(next.len());
        for _ in 0..random.within(1, 3) {
            frames.push(build(flow as u16, next[flow]));
            next[flow] += 1;
        }
    }
    frames
}

/// Returns a packet of a plain flow. All flows have the same sequence numbers, so only the ports distinguish them.
fn plain(flow: u16, number: u16) -> Vec<u8> {
    let packet = link().ipv4(|ip| ip.id(number));
    let tcp = packet.tcp(|t| t.source_port(2000 + flow).sequence(100 + u32::from(number) * 50));
    tcp.payload_len(50).build()
}

fn link() -> Packet {
    link_of(1)
}

fn link_of(last: u8) -> Packet {
    Packet::new().ethernet(|e| e.source([2, 0, 0, 0, 0, last]))
}
