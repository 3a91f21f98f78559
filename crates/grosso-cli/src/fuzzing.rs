//! Calls the parsers of untrusted input on behalf of fuzz targets. Each function accepts any bytes, and panics if a
//! property does not hold. This module is not part of the package's stable interface.

use std::{net::IpAddr, path::Path};

use grosso::Profile;
use grosso_capture::{CaptureReader, Entry};
use grosso_conform::{framing, superframe};
use grosso_wire::dissect;

use crate::{
    daemon::{
        config::{self, Config},
        keys::Keys,
        xfrm,
    },
    evidence::{Evidence, Given, Judge, Judgment, Nature, Sight},
    links::Links,
    observe::{control, prometheus, server, text},
    profile,
    tunnel::{Definition, describe},
    wrong::Wrong,
};

/// Classifies the frames of a capture twice, before and after its flows are known.
///
/// # Panics
/// Panics if a verdict contradicts itself, or depends on anything but the frames.
pub fn judge(capture: &[u8], mss: Option<u16>, mtu: Option<u16>) {
    let given = Given { mss, mtu, ..Given::default() };
    let (mut surveyed, mut learning) = (Judge::new(given), Judge::new(given));
    each_frame(capture, given, |sight| surveyed.learn(sight));
    surveyed.is_surveyed = true;
    each_frame(capture, given, |sight| {
        let first = surveyed.judge(sight);
        assert_eq!(
            surveyed.judge(sight),
            first,
            "the second verdict on a frame differs from the first"
        );
        assert_eq!(
            surveyed.testify(sight, first).nature,
            first.nature,
            "testify() and judge() return different verdicts"
        );
        for judgment in [first, learning.judge(sight)] {
            check_judgment(sight, &judgment);
        }
    });
}

fn check_judgment(sight: &Sight<'_>, judgment: &Judgment) {
    let Nature::Superframe { gso, size, .. } = judgment.nature else { return };
    assert_eq!(gso.size().unwrap_or(0), size.bytes, "{judgment:?}");
    let payload = sight.transport.as_ref().map_or(0, |transport| transport.payload);
    // A superframe may contain a single packet if its size was recorded or its headers repeat.
    if !matches!(size.by, Evidence::Recorded | Evidence::Stride) {
        assert!(judgment.packets(payload) > 1, "{judgment:?} of {payload} bytes");
    }
}

fn each_frame(capture: &[u8], given: Given, mut visit: impl FnMut(&Sight<'_>)) {
    let Ok(mut reader) = CaptureReader::new(capture) else { return };
    let judge = Judge::new(given);
    while reader.offset() < CAPTURE_BYTES_MAX {
        let Ok(Some(entry)) = reader.next() else { return };
        let Entry::Packet(packet) = &entry else { continue };
        let Some(link) = Links::default().of(packet) else { continue };
        let said = packet.meta();
        let ports = judge.ports(&said);
        let stack = dissect(packet.data, link, &ports);
        visit(&Sight::new(packet, &said, &stack, link, ports));
    }
}

/// Parses the contents of a configuration file. The files named in it do not exist.
///
/// # Panics
/// Panics if a path that was parsed cannot be run, or if an error is reported at a position outside the text.
pub fn configuration(text: &str) {
    match Config::parse(text, Path::new(NOWHERE)) {
        Ok(config) => config.paths.iter().for_each(|path| {
            config::check(path).expect("a parsed path is consistent");
        }),
        Err(wrong) => check_place(&wrong, text),
    }
}

/// Parses the contents of a profile file.
///
/// # Panics
/// Panics if a profile changes when it is written and parsed again.
pub fn profile(text: &str) {
    match profile::parse(text, "fuzzed".to_owned()) {
        Ok(profile) => {
            let written = profile::write(&profile);
            let again = profile::parse(&written, "another".to_owned()).expect(&written);
            assert_eq!(again, profile, "{written}");
        }
        Err(wrong) => check_place(&wrong, text),
    }
}

/// Returns all built-in profiles in file format.
#[must_use]
pub fn profiles() -> Vec<String> {
    Profile::all().iter().map(profile::write).collect()
}

/// Parses the arguments of a tunnel.
///
/// # Panics
/// Panics if a tunnel changes when it is written and parsed again, either as arguments or as a file.
pub fn tunnel(line: &str) {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let Ok(description) = describe("fuzzed", &words(line)) else { return };
    let written = description.to_string();
    let again =
        describe("fuzzed", &words(&written)).unwrap_or_else(|why| panic!("{why:?}: {written}"));
    assert_eq!(again, description, "{written}");
    let definition = Definition { name: "t0".to_owned(), mtu: 1400, description };
    let file = definition.to_toml();
    let config =
        Config::parse(&file, Path::new(NOWHERE)).unwrap_or_else(|wrong| panic!("{wrong}: {file}"));
    assert_eq!(config.paths.len(), 1, "{file}");
}

/// Parses security associations in the output format of `ip xfrm state`, for the endpoint `here`.
///
/// # Panics
/// Panics if the resulting table is not valid in a configuration file.
pub fn associations(text: &str, here: IpAddr) {
    let Ok(pair) = xfrm::pair(text, here, None, true) else { return };
    let files = "key-file = \"k\"\nsequence-file = \"s\"\n";
    let file = format!(
        "[[path]]\nright = \"t0\"\n[path.left]\nport = \"e0\"\n[path.left.esp]\n{}{files}",
        pair.table
    );
    Config::parse(&file, Path::new(NOWHERE)).unwrap_or_else(|wrong| panic!("{wrong}: {file}"));
}

/// Parses a request to the counter server that arrives byte by byte, either over HTTP or as a line of JSON.
///
/// # Panics
/// Panics if later bytes change an answer, or if there is no answer although the buffer is full.
pub fn request(bytes: &[u8], is_http: bool) {
    let mut answer = server::answers(is_http);
    let first = (0..=bytes.len()).find_map(|len| answer(&bytes[..len], false));
    match first {
        Some(first) => assert_eq!(answer(bytes, false), Some(first), "the answer changed"),
        None => assert!(answer(bytes, true).is_some_and(|answer| !answer.is_empty())),
    }
}

/// Parses a program's answer to a request for its counters.
///
/// # Panics
/// Panics if an answer changes when it is written and parsed again, or if it cannot be printed.
pub fn answer(reply: &[u8]) {
    let Ok(answer) = control::understand(reply) else { return };
    let written = serde_json::to_vec(&answer).expect("a parsed answer can be written");
    assert_eq!(control::understand(&written).expect("a written answer can be parsed"), answer);
    let changes = answer.devices.iter().map(|device| device.counters.since(&device.counters));
    for (device, change) in answer.devices.iter().zip(changes) {
        text::device(device, Some(&change), true);
    }
    prometheus::page(&answer.devices);
}

/// Parses the output of a tested program, one poll at a time. Each record is a packet or a superframe.
///
/// # Panics
/// Panics if there are more polls than the bytes can contain.
pub fn records(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let before = bytes.len();
        let Ok(Some(records)) = framing::read_poll(&mut bytes) else { return };
        let said: usize = records.iter().map(|record| record.frame.len() + 4).sum();
        assert!(said + 4 <= before - bytes.len());
        for record in &records {
            // The error describes the contradiction. It does not need to be checked.
            let _ = superframe::read(record);
        }
    }
}

/// Parses a key file, and returns the fingerprint of its keys.
///
/// # Panics
/// Panics if a message quotes more than a few digits from the file, because they may be part of a key.
#[must_use]
pub fn keys(text: &[u8]) -> Option<u128> {
    match Keys::parse(text) {
        Ok(keys) => Some(keys.fingerprint()),
        Err(what) => {
            // Line numbers and byte counts have at most this many digits.
            let is_digit = |c: char| c.is_ascii_digit();
            assert!(what.split(|c| !is_digit(c)).all(|digits| digits.len() < 5), "{what}");
            None
        }
    }
}

fn check_place(wrong: &Wrong, text: &str) {
    let line = usize::try_from(wrong.place.line.get()).expect("a line");
    assert!(line <= text.matches('\n').count() + 1, "{wrong}");
    assert!(wrong.to_string().lines().count() == 1, "{wrong}");
}

/// Directory that does not exist.
const NOWHERE: &str = "/nonexistent";
/// Number of uncompressed bytes after which reading stops, because a few compressed bytes may expand to gigabytes.
const CAPTURE_BYTES_MAX: u64 = 4 << 20;
