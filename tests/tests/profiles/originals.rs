//! Compares each profile with a literal model of the original implementation: trains and delivered packets must be
//! equal, except for documented departures.
//!
//! `GROSSO_CASES_FACTOR` multiplies the packets; a factor of 10 makes 100,000 per profile.

use std::{collections::BTreeMap, fs};

use grosso::coalesce::{
    Acknowledgments, AtLimit, FullTable, Options, Padding, Push, Refused, Sizes, TrainChecksum,
    ZeroEcho,
};
use grosso_testkit::{
    originals::{Delivered, Departure, InetLro, Mxge, Original, TcpLro, polls},
    random::Random,
};

use super::*;

/// Deliveries grouped by source and port, in order. The order between connections has no meaning.
type ByConnection = BTreeMap<Vec<u8>, Vec<Delivered>>;

fn by_connection<'a>(all: impl IntoIterator<Item = &'a Delivered>) -> ByConnection {
    let mut connections = ByConnection::new();
    for delivered in all {
        let tcp = 14 + usize::from(delivered.bytes[14] & 15) * 4;
        let key = [&delivered.bytes[26..30], &delivered.bytes[tcp..tcp + 2]].concat();
        connections.entry(key).or_default().push(delivered.clone());
    }
    connections
}

/// Returns the deliveries of a profile, with complete checksums and without padding.
fn profile_delivers(profile: &Profile, frames: &[Vec<Vec<u8>>]) -> Vec<Delivered> {
    let mut engine = Engine::new(profile.clone());
    for poll in frames {
        for frame in poll {
            engine.push(frame);
        }
        engine.poll_end(0);
    }
    let is_complete = profile.rules.checksum == TrainChecksum::Complete;
    let outs = engine.delivered.into_iter().map(|mut out| {
        if let Checksum::Partial { start, offset } = out.meta.checksum {
            assert!(!is_complete, "{out:?}");
            checksum::complete(&mut out.bytes, start, offset).unwrap();
        }
        let end = 14 + usize::from(u16::from_be_bytes([out.bytes[16], out.bytes[17]]));
        out.bytes.truncate(end);
        Delivered { bytes: out.bytes, packets: out.packets }
    });
    outs.collect()
}

fn original_delivers<O: Original>(
    departures: &[Departure],
    frames: &[Vec<Vec<u8>>],
) -> Vec<Delivered> {
    let mut original = O::with(departures);
    for poll in frames {
        poll.iter().for_each(|frame| original.receive(frame));
        original.poll_end();
    }
    original.delivered().to_vec()
}

/// Compares a profile with the model of its original on random packets. Returns the longest train in packets, or the
/// first difference.
fn compare<O: Original>(profile: &Profile, connections: u16) -> Result<u32, String> {
    let factor = std::env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    let mut left = PACKETS * factor.unwrap_or(1_usize);
    let (mut seed, mut longest) = (0, 0);
    while left > 0 {
        seed += 1;
        let frames = polls(&mut Random::new(seed), connections, 4);
        left = left.saturating_sub(frames.iter().map(Vec::len).sum());
        let expected = by_connection(&original_delivers::<O>(Departure::ALL, &frames));
        let actual = by_connection(&profile_delivers(profile, &frames));
        for (key, expected) in &expected {
            let actual = actual.get(key).map_or(&[][..], Vec::as_slice);
            if expected != actual {
                let differs = expected.iter().zip(actual).position(|(one, other)| one != other);
                return Err(format!(
                    "{}: seed {seed}, delivery {differs:?}; the original's, the profile's and the packets:\n{}",
                    profile.name,
                    [listed(expected), listed(actual), pushed(key, &frames)].join("\n"),
                ));
            }
            longest = longest.max(expected.iter().map(|out| out.packets).max().unwrap_or(0));
        }
        if expected.len() != actual.len() {
            return Err(format!("{}: seed {seed}: other connections", profile.name));
        }
    }
    Ok(longest)
}

/// Checks that a profile agrees with the model, and that some trains reach the limits.
#[track_caller]
fn assert_agree<O: Original>(profile: &Profile, connections: u16) {
    let longest =
        compare::<O>(profile, connections).unwrap_or_else(|difference| panic!("{difference}"));
    assert!(longest >= 45, "{longest}");
}

/// Returns one line per delivery, for the failure message.
fn listed(all: &[Delivered]) -> String {
    let line = |out: &Delivered| format!("{} {}", out.packets, described(&out.bytes));
    all.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// Returns a line for each packet of a connection, each fragment from its source, and each end of a poll.
fn pushed(key: &[u8], frames: &[Vec<Vec<u8>>]) -> String {
    let mut text = String::new();
    for poll in frames {
        for frame in poll.iter().filter(|frame| frame[26..30] == key[..4]) {
            let tcp = 14 + usize::from(frame[14] & 15) * 4;
            let is_own = frame[tcp..tcp + 2] == key[4..];
            if is_own || frame[20] & 0x20 != 0 {
                text += &format!("{}\n", described(frame));
            }
        }
        text += "end of the poll\n";
    }
    text
}

fn described(frame: &[u8]) -> String {
    let tcp = 14 + usize::from(frame[14] & 15) * 4;
    let hex = |from: usize, to: usize| -> String {
        frame[from..to].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let end = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
    format!(
        "mac {} ip {} seq {} ack {} flags {} window {} options {} frame {}",
        hex(10, 12),
        hex(14, 26),
        hex(tcp + 4, tcp + 8),
        hex(tcp + 8, tcp + 12),
        hex(tcp + 12, tcp + 14),
        hex(tcp + 14, tcp + 16),
        hex(tcp + 20, end),
        frame.len(),
    )
}

#[test]
fn myri10ge_decides_as_its_original() {
    assert_agree::<Mxge>(&Profile::myri10ge(), 12);
    assert_agree::<Mxge>(&Profile::myri10ge(), 2);
}

#[test]
fn freebsd_2011_decides_as_its_original() {
    assert_agree::<Mxge>(&Profile::freebsd_2011(), 12);
}

#[test]
fn inet_lro_decides_as_its_original() {
    assert_agree::<InetLro>(&Profile::inet_lro(), 12);
    assert_agree::<InetLro>(&Profile::inet_lro(), 2);
}

#[test]
fn freebsd_decides_as_its_original() {
    // The original sorts its batches, so the comparison uses no more connections than the profile has entries.
    assert_agree::<TcpLro>(&Profile::freebsd(), 8);
    assert_agree::<TcpLro>(&Profile::freebsd(), 2);
}

/// The name of a rule, and a change to it.
type Edit = (&'static str, fn(&mut Profile));

/// Tests that the comparison detects a profile that differs in a single rule.
#[test]
fn a_single_other_rule_is_found() {
    fn assert_found<O: Original>(profile: &Profile, edits: &[Edit]) {
        // FreeBSD's original sorts its batches, so the comparison uses no more connections than the profile has
        // entries.
        let connections = if profile.name == "freebsd" { 8 } else { 12 };
        assert_eq!(compare::<O>(profile, connections).map(drop), Ok(()));
        for (rule, edit) in edits {
            let mut edited = profile.clone();
            edit(&mut edited);
            assert_ne!(edited, *profile, "{rule}");
            assert!(compare::<O>(&edited, connections).is_err(), "{}: {rule}", profile.name);
        }
    }
    let every: &[Edit] = &[
        ("window", |profile| profile.rules.window = Vary::First),
        ("acknowledgment", |profile| profile.rules.acknowledgment = Vary::First),
        ("timestamp-echo", |profile| profile.rules.timestamp_echo = Vary::First),
        ("time-to-live", |profile| profile.rules.time_to_live = Vary::Equal),
        ("identification", |profile| profile.rules.identification = Vary::Equal),
        ("sizes", |profile| profile.rules.sizes = Sizes::EqualButLast),
        ("push", |profile| profile.rules.push = Push::Ends),
        ("flags-alone", |profile| profile.rules.flags_alone = 0),
        ("options", |profile| profile.rules.options = Options::Any),
    ];
    let at_once: &[Edit] = &[
        ("at-limit", |profile| profile.rules.at_limit = AtLimit::Next),
        ("size-bytes", |profile| profile.limits.size_bytes -= 3000),
        ("refused", |profile| profile.rules.refused = Refused::Starts),
        ("full", |profile| profile.rules.full = FullTable::Evicts),
        ("zero-echo", |profile| profile.rules.zero_echo = ZeroEcho::Joins),
        ("flows", |profile| profile.limits.flows = 7),
    ];
    let trims: &[Edit] = &[
        ("padding", |profile| profile.rules.padding = Padding::Alone),
        ("timestamp-value", |profile| profile.rules.timestamp_value = Vary::First),
        ("acknowledgments", |profile| profile.rules.acknowledgments = Acknowledgments::Alone),
    ];
    for profile in [Profile::myri10ge(), Profile::freebsd_2011()] {
        assert_found::<Mxge>(&profile, &[every, at_once, trims].concat());
        let joins = |profile: &mut Profile| profile.rules.acknowledgments = Acknowledgments::Join;
        let alone = |profile: &mut Profile| profile.rules.zero_echo = ZeroEcho::Alone;
        assert_found::<Mxge>(&profile, &[("acknowledgments", joins), ("zero-echo", alone)]);
    }
    assert_found::<InetLro>(&Profile::inet_lro(), &[every, at_once].concat());
    let inet_lro: &[Edit] = &[
        ("padding", |profile| profile.rules.padding = Padding::Trim),
        ("timestamp-value", |profile| profile.rules.timestamp_value = Vary::Latest),
        ("zero-echo", |profile| profile.rules.zero_echo = ZeroEcho::Starts),
        ("congestion-alone", |profile| profile.rules.congestion_alone = false),
        ("tcp-segments", |profile| profile.limits.tcp_segments = 30),
    ];
    assert_found::<InetLro>(&Profile::inet_lro(), inet_lro);
    assert_found::<TcpLro>(&Profile::freebsd(), &[every, trims].concat());
    let freebsd: &[Edit] = &[
        ("refused", |profile| profile.rules.refused = Refused::Leaves),
        ("payload-bytes", |profile| profile.limits.payload_bytes -= 700),
        ("zero-echo", |profile| profile.rules.zero_echo = ZeroEcho::Starts),
        ("acknowledgments", |profile| profile.rules.acknowledgments = Acknowledgments::Newer),
    ];
    assert_found::<TcpLro>(&Profile::freebsd(), freebsd);
}

/// Tests that each departure is necessary: without it, the model decides differently from the profile.
#[test]
fn every_departure_makes_a_difference_and_is_documented() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/profiles.md"));
    let document = document.unwrap();
    for departure in Departure::ALL {
        let others: Vec<_> =
            Departure::ALL.iter().copied().filter(|other| other != departure).collect();
        let differs = (1..400).any(|seed| {
            let frames = polls(&mut Random::new(seed), 3, 2);
            let differs = [
                original_delivers::<Mxge>(&others, &frames)
                    != original_delivers::<Mxge>(Departure::ALL, &frames),
                original_delivers::<InetLro>(&others, &frames)
                    != original_delivers::<InetLro>(Departure::ALL, &frames),
                original_delivers::<TcpLro>(&others, &frames)
                    != original_delivers::<TcpLro>(Departure::ALL, &frames),
            ];
            differs.contains(&true)
        });
        assert!(differs, "{departure:?}");
        assert!(
            document.contains(&format!("`{departure:?}`")),
            "{departure:?} in docs/profiles.md"
        );
    }
}

/// Number of packets per profile in one run. The nightly run uses 100,000.
const PACKETS: usize = 10_000;
