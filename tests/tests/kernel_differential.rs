//! Compares the test kit's slow oracle with the running kernel on the same random traffic.
//!
//! The oracle that checks the engine must itself be tested: on these vectors, the results of the kernel and of the
//! oracle must be equal, byte for byte.

#![cfg(target_os = "linux")]

use grosso_rig::kernel::{FRAMES_MAX, GroOptions, GroOracle, release, skip};
use grosso_testkit::Traffic;
use grosso_testkit::oracle::{Link, Rules, VXLAN_PORT, join, trains};
use grosso_testkit::random::Random;
use grosso_testkit::stack::{Front, Network, Stack, Transport, Tunnel};

/// Number of vectors per test. A vector takes well under a millisecond.
const VECTORS: u64 = 1000;
/// The first release with the identification rule that the slow oracle follows (rule G14).
const RELEASE_MIN: (u32, u32) = (6, 18);

const NETWORKS: &[Network] =
    &[Network::Ipv4, Network::Ipv6, Network::Ipv6Options, Network::Ipv6Routing];
/// The tunnels that the kernel parses without a tunnel device, and VXLAN. GRE with checksum *and* key is omitted. Linux
/// compares the word after the base header, which then is the checksum and not the key, so IPv4 packets of different
/// lengths do not merge. Linux also leaves the checksum of the first packet in a train, whereas the slow oracle writes
/// zero.
const TUNNELS: &[Tunnel] = &[
    Tunnel::Ip,
    Tunnel::Gre,
    Tunnel::GreKey,
    Tunnel::GreEthernet,
    Tunnel::Vxlan,
    Tunnel::VxlanPolicy,
];

/// Reasons for which the slow oracle does not merge packets that the kernel may merge. The oracle deliberately ends a
/// train at a different urgent pointer, or at a zero checksum in its other form. A packet that can never merge ends the
/// train of its flow in the oracle, but overtakes the train in the kernel (rule G75, B55). The kernel does not compare
/// the outer UDP length of a tunnel with the packet. A different MAC address, flow label or extension header identifies
/// another flow in the kernel (rules G4, G20).
const STRICTER: &[&str] = &[
    "urgent_pointer",
    "a checksum",
    "a length field that does not match the frame",
    "no flow",
    "source",
    "destination",
    "word",
    "other headers",
];

#[test]
fn the_kernel_couples_regular_traffic_as_the_slow_oracle_does() {
    let Some(mut oracle) = start() else { return };
    let transports = [Transport::Tcp, Transport::TcpTimestamps, Transport::Udp];
    for seed in 0..VECTORS {
        let frames = vector(seed, &transports, 0);
        let Difference { expected, delivered } = differ(&mut oracle, &frames, seed);
        assert!(expected.is_empty() && delivered.is_empty(), "seed {seed}: {expected:?}");
    }
}

#[test]
fn the_kernel_couples_deviating_tcp_as_the_slow_oracle_does_or_for_a_named_reason_more() {
    let Some(mut oracle) = start() else { return };
    let transports = [Transport::Tcp, Transport::TcpTimestamps];
    let mut agreed = 0;
    for seed in 0..VECTORS {
        let frames = vector(seed, &transports, 25);
        let Difference { expected, delivered } = differ(&mut oracle, &frames, seed);
        if expected.is_empty() && delivered.is_empty() {
            agreed += 1;
            continue;
        }
        let named = expected.iter().any(|(_, reason)| STRICTER.contains(reason));
        assert!(named && delivered.len() < expected.len(), "seed {seed}: {expected:?}");
    }
    assert!(agreed > VECTORS * 9 / 10, "only {agreed} of {VECTORS} vectors agree");
}

/// Packets that only the kernel or only the oracle delivers.
struct Difference {
    /// Packets that the slow oracle delivered but the kernel did not, each with the reason why its train ended.
    expected: Vec<(Vec<u8>, &'static str)>,
    /// The kernel's packets that the slow oracle did not expect.
    delivered: Vec<Vec<u8>>,
}

/// Starts the kernel's oracle with all features; `None`, after printing the reason, if it cannot run.
fn start() -> Option<GroOracle> {
    if release() < RELEASE_MIN {
        println!("skipped: Linux {:?} has other rules for identifications", release());
        return None;
    }
    let features = vec!["rx-udp-gro-forwarding"];
    let vxlan_port = Some(VXLAN_PORT);
    let options = GroOptions { features, vxlan_port, ..GroOptions::default() };
    GroOracle::with(&options).map_err(|why| skip(&why)).ok()
}

/// Compares the kernel with the oracle on a vector.
fn differ(oracle: &mut GroOracle, frames: &[Vec<u8>], seed: u64) -> Difference {
    let answer = oracle.coalesce(frames).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut delivered: Vec<Vec<u8>> = answer.into_iter().map(|packet| packet.bytes).collect();
    let rules = Rules { udp: true, ..Rules::linux() };
    let mut expected: Vec<(Vec<u8>, &'static str)> = trains(frames, Link::Ethernet, rules)
        .into_iter()
        .map(|train| {
            let packets: Vec<&[u8]> = train.packets.iter().map(|&at| &*frames[at]).collect();
            let joined = || join(&packets, Link::Ethernet).0;
            (if packets.len() == 1 { packets[0].to_vec() } else { joined() }, train.closed_by)
        })
        .collect();
    expected.retain(|(packet, _)| {
        let place = delivered.iter().position(|other| other == packet);
        place.map(|place| delivered.swap_remove(place)).is_none()
    });
    Difference { expected, delivered }
}

/// Returns up to one poll of frames from one to six flows, half of them in a tunnel.
fn vector(seed: u64, transports: &[Transport], deviations_percent: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let stacks: Vec<Stack> = (0..random.within(1, 6))
        .map(|_| {
            let network = *random.choose(NETWORKS);
            let mut stack = Stack::plain(Front::Ethernet, network, *random.choose(transports));
            if random.percent(50) {
                stack.tunnels.push((*random.choose(NETWORKS), *random.choose(TUNNELS)));
            }
            stack
        })
        .collect();
    Traffic::of(&stacks, seed)
        .deviations_percent(deviations_percent)
        // A TAP refuses frames shorter than an Ethernet header (rule V1).
        .filter(|frame| frame.len() >= 14)
        .take(random.within(1, FRAMES_MAX))
        .collect()
}
