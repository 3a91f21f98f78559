//! Tests the profiles of other receive offloads: which packets they merge, which they leave unmerged, and what
//! information their trains lose.

mod any;
mod freebsd;
mod inet_lro;
mod invertible;
mod ndis;
mod originals;
mod pitfalls;
mod review;
mod userspace;

use grosso::{
    Profile, Verdict,
    checksum::{self, Checksum},
    coalesce::{Batch, Rules, Vary, reason::Pass},
};
use grosso_rig::engine::{Engine, Out};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    oracle::{Lengths, Link, Parsed, is_right, parse},
};

/// Number of payload bytes in a full packet.
const MSS: usize = 1448;

/// Returns a packet of one connection whose payload starts at this offset of the stream.
fn packet(at: usize, len: usize, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
    marked(at, len, |ip| ip, edit)
}

fn marked(
    at: usize,
    len: usize,
    ip: impl FnOnce(Ipv4) -> Ipv4,
    tcp: impl FnOnce(Tcp) -> Tcp,
) -> Vec<u8> {
    let sequence = 1 + at as u32;
    let packet = Packet::new().ethernet(|e| e).ipv4(|own| ip(own.id((at / MSS) as u16)));
    packet.tcp(|own| tcp(own.sequence(sequence)).flag(Tcp::ACK)).payload_len(len).build()
}

/// Returns full packets in order.
fn data(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| packet(i * MSS, MSS, |tcp| tcp)).collect()
}

/// Returns the deliveries and verdicts of a profile for one poll, after these checks: each buffer is returned, no
/// packet is lost, and delivered headers are correct after a device has completed their checksums.
fn poll(mut profile: Profile, frames: &[Vec<u8>]) -> (Vec<Out>, Vec<Verdict>) {
    // Without batching, the verdict on a packet is known at once.
    profile.batch = Batch::AsItCame;
    let mut engine = Engine::new(profile);
    let verdicts = frames.iter().map(|frame| engine.push(frame)).collect();
    engine.finish();
    assert_eq!(engine.buffers.len(), frames.len(), "every buffer is returned");
    let mut delivered = engine.delivered;
    assert_eq!(packets(&delivered).iter().sum::<u32>() as usize, frames.len(), "conserved");
    for out in &mut delivered {
        if let Checksum::Partial { start, offset } = out.meta.checksum {
            checksum::complete(&mut out.bytes, start, offset).unwrap();
        }
        assert!(is_right(&out.bytes, Link::Ethernet), "{out:?}");
    }
    (delivered, verdicts)
}

fn packets(delivered: &[Out]) -> Vec<u32> {
    delivered.iter().map(|out| out.packets).collect()
}

fn tcp_of(out: &Out) -> Parsed {
    parse(&out.bytes, Link::Ethernet, Lengths::Declared)
}

fn number(out: &Out, field: &str) -> u64 {
    tcp_of(out).last().unwrap().number(field)
}

fn lossy() -> impl Iterator<Item = Profile> {
    Profile::all().into_iter().filter(|profile| !profile.rules.is_invertible())
}

/// Returns the profiles of hosts and NICs whose trains keep the last acknowledgment.
fn receivers() -> impl Iterator<Item = Profile> {
    lossy().filter(|profile| profile.rules.acknowledgment == Vary::Latest)
}

/// Returns options of twelve bytes after two bytes of padding: timestamps, or a SACK block.
fn twelve(kind: u8, value: u32) -> impl Fn(Tcp) -> Tcp {
    let [a, b, c, d] = value.to_be_bytes();
    move |tcp| tcp.options(&[1, 1, kind, 10, a, b, c, d, 0, 0, 0, 9])
}

/// Tests for a bug that random frames found, with the tiers off and on. If timestamps were allowed to vary, a SACK
/// block of the same length was mistaken for timestamps, or vice versa, depending on the first packet with options of
/// that length.
#[test]
fn a_sack_block_as_long_as_timestamps_is_none() {
    const TIMESTAMPS: u8 = 8;
    const SACK: u8 = 5;
    for profile in Profile::all() {
        for (first, then) in [(SACK, TIMESTAMPS), (TIMESTAMPS, SACK)] {
            let of = |kind, value: u32| {
                let at = value as usize * MSS;
                packet(at, MSS, twelve(kind, 100 + value))
            };
            let train = [of(then, 1), of(then, 2), of(then, 3)];
            let (_, alone) = poll(profile.clone(), &train);
            // An earlier packet of the other kind, far ahead in the stream, has already added its headers to the cache.
            let before = packet(40 * MSS, MSS, twelve(first, 1));
            let all = [&[before][..], &train].concat();
            let (_, after) = poll(profile.clone(), &all);
            assert_eq!(after[2..], alone[1..], "{} {first} {then}", profile.name);
        }
    }
}

#[test]
fn which_profiles_are_invertible() {
    let lossy = [
        "inet-lro",
        "inet-lro-2007",
        "myri10ge",
        "freebsd-2011",
        "freebsd",
        "rsc-82599",
        "ndis-rsc",
        "dpdk",
        "wireguard",
    ];
    let invertible = ["linux", "linux-8x8", "linux-6.12", "ndis-uro"];
    for name in invertible.into_iter().chain(lossy) {
        let profile = Profile::named(name).unwrap();
        assert_eq!(profile.rules.is_invertible(), invertible.contains(&name), "{name}");
    }
    assert!(Rules::INVERTIBLE.is_invertible());
}

#[test]
fn packets_of_any_length_join_and_their_bytes_are_the_stream_s() {
    let lengths = [1, MSS, 7, 999, MSS, 3];
    for profile in receivers() {
        let mut at = 0;
        let frames: Vec<_> = lengths
            .iter()
            .map(|&len| {
                at += len;
                packet(at - len, len, |tcp| tcp.window(at as u16))
            })
            .collect();
        let (delivered, _) = poll(profile.clone(), &frames);
        assert_eq!(packets(&delivered), [6], "{}", profile.name);
        let whole = parse(&delivered[0].bytes, Link::Ethernet, Lengths::Declared);
        let parts: Vec<u8> = frames
            .iter()
            .flat_map(|frame| {
                parse(frame, Link::Ethernet, Lengths::Declared).payload(frame).to_vec()
            })
            .collect();
        assert_eq!(whole.payload(&delivered[0].bytes), parts, "{}", profile.name);
        assert_eq!(number(&delivered[0], "window"), at as u64);
        assert_eq!(number(&delivered[0], "sequence"), 1);
    }
}

#[test]
fn fields_that_may_vary_are_those_of_the_first_or_the_last_packet_by_the_rules() {
    let frames: Vec<_> = (0..3)
        .map(|i| {
            let (tos, ttl) = (i as u8 * 4, 64 - i as u8);
            marked(i * MSS, MSS, |ip| ip.tos(tos).ttl(ttl).id(77 * i as u16).df(i == 0), |t| t)
        })
        .collect();
    for mut profile in receivers() {
        for (vary, kept) in [(Vary::First, &frames[0]), (Vary::Latest, &frames[2])] {
            profile.rules.differentiated_services = vary;
            profile.rules.time_to_live = vary;
            profile.rules.dont_fragment = vary;
            profile.rules.identification = vary;
            let (delivered, _) = poll(profile.clone(), &frames);
            assert_eq!(packets(&delivered), [3], "{}", profile.name);
            let fields = |frame: &[u8]| (frame[15], frame[22], frame[18..22].to_vec());
            let merged = fields(&delivered[0].bytes);
            assert_eq!(merged, fields(kept), "{} {vary:?}", profile.name);
        }
    }
}

#[test]
fn lossy_profiles_do_not_split_superframes() {
    let (mut joined, _) = poll(Profile::linux(), &data(4));
    let superframe = joined.remove(0);
    for mut profile in lossy() {
        profile.batch = Batch::AsItCame;
        let mut engine = Engine::new(profile);
        let frame = grosso::Frame { buffer: superframe.bytes.clone(), meta: superframe.meta };
        let verdict = engine.push_frame(frame, 0);
        assert!(
            matches!(verdict, Verdict::Passed(Pass::Superframe | Pass::ChecksumForm)),
            "{verdict:?}"
        );
    }
}

#[test]
fn udp_and_tunnels_are_none_of_their_business() {
    let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(100).build();
    let inner = |i: u32| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ipv4(|ip| ip);
        outer.tcp(|tcp| tcp.sequence(i * 100)).payload_len(100).build()
    };
    for profile in receivers() {
        let (_, verdicts) = poll(profile.clone(), &[datagram.clone(), inner(0), inner(1)]);
        let tunnel = Verdict::Passed(Pass::TunnelLevels);
        assert_eq!(verdicts, [Verdict::Passed(Pass::UdpOff), tunnel, tunnel], "{}", profile.name);
    }
}
