//! Compares the engine with the running kernel: both get the same frames, and their deliveries must be equal.
//!
//! The frames, the bytes and metadata of superframes, and the order within each flow must be equal, or differ for a
//! named reason ([`known::Known`]). A reason is accepted only if the difference disappears when the packets that it
//! names are removed from the vector. A superframe that only the kernel or only the engine builds is accepted only in
//! two cases: the other one builds the same superframe from these packets alone, or the reason states which of the two
//! is stricter.
//!
//! `docs/kernel-differences.md` has the table. `GROSSO_SEED=7` tests other traffic.

#![cfg(target_os = "linux")]

mod both;
mod directed;
mod explain;
mod known;

use std::thread;

use grosso::Profile;
use grosso_rig::kernel::{Batching, FRAMES_MAX, GroOptions, GroOracle, seed, skip};
use grosso_testkit::Traffic;
use grosso_testkit::oracle::VXLAN_PORT;
use grosso_testkit::random::Random;
use grosso_testkit::stack::{Front, Network, Route, Stack, Transport, Tunnel};

use self::both::Both;
use self::explain::{Comparison, Counts};
use self::known::Reach;

/// Number of vectors per test. A vector takes a millisecond, or a little longer if there is a difference.
const VECTORS: u64 = 600;
/// A TAP refuses frames shorter than an Ethernet header (rule V1), and the kernel drops a truncated VLAN tag.
const FRAME_BYTES_MIN: usize = 18;

const NETWORKS: &[Network] =
    &[Network::Ipv4, Network::Ipv6, Network::Ipv6Options, Network::Ipv6Routing];
/// Network layers for which the addresses in the pseudo-header differ from those in the IP header.
const UNDER_WAY: &[Network] =
    &[Network::Ipv6Routed(Route { kind: 4, left: 2 }), Network::Ipv6Mobile];
/// The tunnels that the kernel parses without a tunnel device, and VXLAN.
const TUNNELS: &[Tunnel] = &[
    Tunnel::Ip,
    Tunnel::Gre,
    Tunnel::GreKey,
    Tunnel::GreChecksum,
    Tunnel::GreEthernet,
    Tunnel::Vxlan,
    Tunnel::VxlanPolicy,
];
const TRANSPORTS: &[Transport] = &[Transport::Tcp, Transport::TcpTimestamps, Transport::Udp];

#[test]
fn regular_traffic() {
    compare(1, true, |seed| within_reach(seed, 0));
}

#[test]
fn deviating_traffic() {
    compare(2, true, |seed| within_reach(seed, 25));
}

#[test]
fn deviating_traffic_without_udp() {
    compare(3, false, |seed| within_reach(seed, 12));
}

#[test]
fn any_headers() {
    compare(4, true, |seed| vector(Traffic::new(seed), seed));
}

/// Compares the kernel with the engine on vectors of `traffic`, and prints the results.
fn compare(fixed_seed: u64, udp: bool, traffic: impl Fn(u64) -> Vec<Vec<u8>>) -> Counts {
    let Some(mut comparison) = start(udp, None) else { return Counts::default() };
    let first = seed(fixed_seed << 32);
    for seed in first..first + VECTORS {
        let _told = Told(seed);
        comparison.compare(&traffic(seed), seed);
    }
    println!("{}", comparison.counts.table());
    comparison.counts
}

/// A guard that prints the seed of a vector if the engine or a check panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("GROSSO_SEED={} fails", self.0);
        }
    }
}

/// Starts the kernel and the engine with the same settings. Returns `None`, after printing the reason, if the kernel's
/// oracle cannot run.
fn start(udp: bool, batching: Option<Batching>) -> Option<Comparison> {
    let features = if udp { vec!["rx-udp-gro-forwarding"] } else { Vec::new() };
    let vxlan_port = Some(VXLAN_PORT);
    let options = GroOptions { batching, features, vxlan_port, ..GroOptions::default() };
    let mut profile = Profile::linux_8x8();
    profile.udp = udp;
    let started = GroOracle::with(&options).and_then(|kernel| {
        Ok(Comparison {
            both: Both { kernel, profile },
            reach: Reach::ask()?,
            counts: Counts::default(),
        })
    });
    started.map_err(|why| skip(&why)).ok()
}

/// Returns up to one poll of frames from one to six flows whose headers the kernel parses. About half of the flows
/// are in a tunnel.
fn within_reach(seed: u64, deviations_percent: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let stacks: Vec<Stack> = (0..random.within(1, 6))
        .map(|_| {
            let network = network(&mut random);
            let mut stack = Stack::plain(Front::Ethernet, network, *random.choose(TRANSPORTS));
            if random.percent(50) {
                stack.tunnels.push((self::network(&mut random), *random.choose(TUNNELS)));
            }
            stack
        })
        .collect();
    vector(Traffic::of(&stacks, seed).deviations_percent(deviations_percent), seed)
}

fn network(random: &mut Random) -> Network {
    if random.percent(3) { *random.choose(UNDER_WAY) } else { *random.choose(NETWORKS) }
}

/// Returns up to one poll of frames.
fn vector(traffic: Traffic, seed: u64) -> Vec<Vec<u8>> {
    let count = Random::new(!seed).within(1, FRAMES_MAX);
    traffic.filter(|frame| frame.len() >= FRAME_BYTES_MIN).take(count).collect()
}
