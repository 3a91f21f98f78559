//! Tests arbitrary user profiles: no packet is lost, no packet overtakes another of its connection, and no input causes
//! a panic.

use grosso::coalesce::{
    Acknowledgments, AtLimit, FixedIdentification, Options, Padding, Push, Refused, Sizes,
    TrainChecksum, ZeroEcho,
};
use proptest::prelude::*;

use super::*;

fn vary() -> impl Strategy<Value = Vary> {
    prop_oneof![Just(Vary::Equal), Just(Vary::First), Just(Vary::Latest)]
}

fn or_of<T>(yes: bool, one: T, other: T) -> T {
    if yes { one } else { other }
}

/// Generates a profile with arbitrary rules and small limits.
fn profile() -> impl Strategy<Value = Profile> {
    let fields = proptest::array::uniform9(vary());
    let words = (
        any::<[bool; 8]>(),
        any::<u8>(),
        prop_oneof![
            Just(Acknowledgments::Alone),
            Just(Acknowledgments::WindowUpdates),
            Just(Acknowledgments::Join),
            Just(Acknowledgments::Newer),
            Just(Acknowledgments::Vector),
        ],
    );
    let limits = (1..5_usize, 1..9_usize, 1..70_000_u32, 1..6_u16);
    (fields, words, limits).prop_map(|(fields, (yes, flags, acknowledgments), limits)| {
        let mut profile = Profile::linux();
        let rules = &mut profile.rules;
        [
            rules.differentiated_services,
            rules.flow_label,
            rules.time_to_live,
            rules.dont_fragment,
            rules.identification,
            rules.acknowledgment,
            rules.window,
            rules.timestamp_value,
            rules.timestamp_echo,
        ] = fields;
        rules.options = if yes[0] { Options::Any } else { Options::TimestampOnly };
        rules.sizes = if yes[1] { Sizes::Any } else { Sizes::EqualButLast };
        rules.push = if yes[2] { Push::Ends } else { Push::Joins };
        rules.refused = if yes[3] { Refused::Starts } else { Refused::Leaves };
        rules.congestion_alone = yes[4];
        rules.fixed_identification =
            or_of(yes[5], FixedIdentification::Any, FixedIdentification::DontFragment);
        rules.flags_alone = flags;
        rules.at_limit = or_of(yes[0] ^ yes[2], AtLimit::Next, AtLimit::Ends);
        rules.padding = or_of(yes[1] ^ yes[3], Padding::Alone, Padding::Trim);
        rules.zero_echo = or_of(yes[2] ^ yes[4], ZeroEcho::Starts, ZeroEcho::Alone);
        rules.checksum = or_of(yes[3] ^ yes[5], TrainChecksum::Partial, TrainChecksum::Complete);
        rules.acknowledgments = acknowledgments;
        profile.tcp = yes[6];
        profile.extension_headers = yes[7];
        (profile.limits.flows, profile.limits.parts) = (limits.0, limits.1);
        (profile.limits.size_bytes, profile.limits.tcp_segments) = (limits.2, limits.3);
        profile
    })
}

/// Generates the packets of one connection: data, acknowledgments, and packets that differ by a few bits.
fn connection() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = (prop_oneof![Just(0_usize), Just(1), 90..110_usize], any::<[u8; 4]>(), 0..4_u16);
    proptest::collection::vec(one, 1..40).prop_map(|packets| {
        let mut at = 0;
        let frames = packets.into_iter().map(|(len, bits, flag)| {
            at += len;
            let ip = |ip: Ipv4| ip.tos(bits[0] & 7).ttl(64 - (bits[0] >> 7)).df(bits[1] & 1 == 0);
            marked(at - len, len, ip, |tcp| {
                let tcp = tcp.ack(at as u32).window(u16::from(bits[2] & 1));
                let tcp = if bits[3] & 3 == 0 { tcp } else { tcp.timestamps(at as u32, 1) };
                tcp.flag([0, 0, Tcp::PSH, Tcp::ECE][usize::from(flag)])
            })
        });
        frames.collect()
    })
}

proptest! {
    #[test]
    fn any_rules_keep_every_packet_and_their_order(profile in profile(), frames in connection()) {
        let (delivered, _) = poll(profile, &frames);
        let sequences: Vec<_> = delivered.iter().map(|out| number(out, "sequence")).collect();
        prop_assert!(sequences.is_sorted(), "{sequences:?}");
        let bytes: usize = delivered.iter().map(payload_len).sum();
        prop_assert_eq!(bytes, frames.iter().map(|frame| payload(frame)).sum::<usize>());
    }
}

fn payload_len(out: &Out) -> usize {
    payload(&out.bytes)
}

fn payload(frame: &[u8]) -> usize {
    parse(frame, Link::Ethernet, Lengths::Declared).payload(frame).len()
}
