//! The report of `reassemble`.

use core::ops::Range;
use std::{collections::BTreeMap, net::IpAddr};

use grosso::reassemble::{
    Discarded,
    reason::{Discard, Pass},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{
        COLUMNS, Counts, Envelope, InputFacts, OutputFacts, Report, count_lines, list_lines,
        wrap_at,
    },
    style::Style,
    units,
};

/// Report of `reassemble`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ReassembleReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    #[serde(flatten)]
    pub found: Joining,
    #[serde(skip)]
    pub lists_all: bool,
    pub elapsed_s: f64,
}

/// Fragment counts by outcome.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Joining {
    pub datagrams: u64,
    /// Fragments that became datagrams.
    pub fragments: u64,
    /// Duplicate fragments of reassembled datagrams. They are not in the output.
    pub duplicates: u64,
    /// Fragment sets left unchanged, by reason.
    pub left: Counts,
    /// The first fragment sets that were left unchanged, in the order in which they were abandoned.
    pub sets: Vec<SetFacts>,
    /// Fragments that were rejected individually and left unchanged, by reason.
    #[serde(rename = "refused")]
    pub alone: Alone,
    /// Fragments that cannot be reassembled, by reason.
    pub passed: Counts,
}

/// Fragments that did not form a complete datagram.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct SetFacts {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// Protocol number; only for IPv4.
    protocol: Option<u8>,
    pub reason: &'static str,
    /// Packet numbers.
    pub packets: Vec<u64>,
    /// Gaps in the data. If the last fragment is missing, the end of the data counts as a gap too.
    missing: Vec<Gap>,
    /// Length of the data, if the last fragment arrived.
    data_bytes: Option<u32>,
    /// End of the fragment that extends farthest.
    reach_bytes: u32,
    #[serde(skip)]
    is_incomplete: bool,
}

/// Gap in a datagram's data.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct Gap {
    /// Offset of the first missing byte.
    start: u32,
    /// Offset of the first byte after the gap, or null if the length of the data is unknown.
    end: Option<u32>,
}

/// Rejected packets, by reason.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Alone(BTreeMap<&'static str, Refused>);

/// Rejected packets.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Refused {
    count: u64,
    /// Numbers of the first packets that were rejected.
    packets: Vec<u64>,
}

impl Joining {
    /// Returns whether there were no fragments.
    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
            && self.left.is_empty()
            && self.alone.0.is_empty()
            && self.passed.is_empty()
    }

    /// Returns whether any fragment that should have been reassembled was not.
    pub fn is_incomplete(&self) -> bool {
        let whole = Pass::Atomic.name();
        !self.left.is_empty()
            || !self.alone.0.is_empty()
            || self.passed.keys().any(|&reason| reason != whole)
    }

    /// Returns all lines of the report, except for the one with the number of reassembled datagrams. Unless `lists_all`
    /// is set, only the first sets are listed, and the rest are counted.
    pub fn lines(&self, lists_all: bool) -> String {
        let mut text = String::new();
        if self.duplicates > 0 {
            let again = core::iter::once(self.duplicates.to_string());
            text.push_str(&list_lines("duplicates", again));
        }
        text.push_str(&count_lines("not reassembled", &self.passed));
        text.push_str(&self.alone.lines());
        let sets: u64 = self.left.values().sum();
        if sets > 0 {
            text.push_str(&format!("{} of fragments left unchanged:\n", units::count(sets, "set")));
        }
        let listed_max = if lists_all { usize::MAX } else { SETS_LISTED };
        text.extend(self.sets.iter().take(listed_max).map(SetFacts::lines));
        let listed = self.sets.len().min(listed_max) as u64;
        if listed < sets {
            text.push_str(&format!("  and {} more (-v lists them)\n", sets - listed));
        }
        text
    }
}

impl SetFacts {
    /// Creates the facts about an incomplete datagram from the `packets` that arrived. `is_overtaken` means that, after
    /// the last of them, the sender started another datagram to the same destination.
    pub fn new(discarded: &Discarded<'_>, packets: Vec<u64>, is_overtaken: bool) -> Self {
        let Discarded { identity, reason, end, .. } = *discarded;
        let gaps = discarded.missing().map(|gap| Gap { start: gap.start, end: Some(gap.end) });
        let mut missing: Vec<_> = gaps.collect();
        let was_lost = !missing.is_empty() || is_overtaken;
        if end.is_none() {
            missing.push(Gap { start: discarded.reach(), end: None });
        }
        Self {
            source: identity.source,
            destination: identity.destination,
            identification: identity.identification,
            protocol: identity.protocol,
            reason: name(reason, was_lost),
            packets,
            missing,
            data_bytes: end,
            reach_bytes: discarded.reach(),
            is_incomplete: is_incomplete(reason),
        }
    }

    /// Formats the datagram and, on indented lines, what happened to it, with at most [`COLUMNS`] columns per line.
    fn lines(&self) -> String {
        let protocol = self.protocol.map(|protocol| format!(", {}", protocol_name(protocol)));
        let digits = if self.source.is_ipv4() { 4 } else { 8 };
        let which = format!(
            "{} > {}, identification {:#0width$x}{}",
            self.source,
            self.destination,
            self.identification,
            protocol.unwrap_or_default(),
            width = digits + 2,
        );
        let packets = ranges("packet", self.packets.iter().map(|&number| number..number + 1));
        let mut fate = format!("{}; {packets}", self.reason);
        if self.is_incomplete {
            fate.push_str("; missing ");
            fate.push_str(&self.missing_text());
        }
        indent(&which, 2) + &indent(&fate, 4)
    }

    fn missing_text(&self) -> String {
        let known = |gap: &Gap| Some(u64::from(gap.start)..u64::from(gap.end?));
        let bounded: Vec<_> = self.missing.iter().filter_map(known).collect();
        let open = self.missing.iter().find(|gap| gap.end.is_none());
        let end = open.map(|gap| format!("everything from byte {} on", gap.start));
        match (bounded.is_empty(), end) {
            (false, Some(end)) => format!("{} and {end}", ranges("byte", bounded.into_iter())),
            (false, None) => ranges("byte", bounded.into_iter()),
            (true, Some(end)) => end,
            // A lone last fragment without data leaves no gap.
            (true, None) => "nothing".into(),
        }
    }
}

impl Alone {
    /// Returns whether nothing was rejected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of packets rejected for this reason.
    pub fn count(&self, reason: &str) -> u64 {
        self.0.get(reason).map_or(0, |refused| refused.count)
    }

    /// Counts a packet.
    pub fn add(&mut self, reason: &'static str, number: u64) {
        let refused = self.0.entry(reason).or_default();
        refused.count += 1;
        if refused.packets.len() < REFUSED_LISTED_MAX {
            refused.packets.push(number);
        }
    }

    /// Returns one line per reason, with the packets that were refused for it.
    pub fn lines(&self) -> String {
        let words = self.0.iter().map(|(reason, refused)| {
            let numbers = refused.packets.iter().map(|&number| number..number + 1);
            format!("{reason} {} ({})", refused.count, ranges("packet", numbers))
        });
        list_lines("refused", words)
    }
}

impl ReassembleReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.reassemble/1");
}

impl Report for ReassembleReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "{}: {} -> {} packets; {} of {}\n",
            style.strong(self.output.name()),
            self.input.packets,
            self.output.packets,
            units::count(self.found.datagrams, "datagram"),
            units::count(self.found.fragments, "fragment"),
        );
        text.push_str(&self.found.lines(self.lists_all));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}

/// Wraps text to lines of at most [`COLUMNS`] columns, each indented by `blanks` spaces.
fn indent(text: &str, blanks: usize) -> String {
    let lines = wrap_at(text, COLUMNS - blanks);
    lines.lines().map(|line| format!("{:blanks$}{line}\n", "")).collect()
}

/// Returns the reason name for an incomplete datagram. A fragment was lost if later data arrived, or if the sender
/// started another datagram. Otherwise, the missing fragments may have arrived after the capture ended.
fn name(reason: Discard, was_lost: bool) -> &'static str {
    match (reason, was_lost) {
        (Discard::Finished, true) => "missing",
        (Discard::Finished, false) => "end_of_capture",
        (reason, _) => reason.name(),
    }
}

/// Returns whether a datagram counts as incomplete because data is missing.
fn is_incomplete(reason: Discard) -> bool {
    matches!(
        reason,
        Discard::Timeout
            | Discard::Distance
            | Discard::MemoryFull
            | Discard::SourceFull
            | Discard::TableFull
            | Discard::Finished
    )
}

/// Formats numbers as ranges, for example `packets 3-5, 9`.
fn ranges(noun: &str, numbers: impl Iterator<Item = Range<u64>>) -> String {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in numbers {
        match joined.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => joined.push(range),
        }
    }
    let several = joined.len() != 1 || joined.iter().any(|range| range.end - range.start > 1);
    let words = joined.iter().take(RANGES_SHOWN).map(|range| match range.end - range.start {
        1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    });
    let words = words.collect::<Vec<_>>().join(", ");
    let more = if joined.len() > RANGES_SHOWN { ", ..." } else { "" };
    format!("{noun}{} {words}{more}", if several { "s" } else { "" })
}

/// Returns the name of a common protocol.
fn protocol_name(protocol: u8) -> String {
    match protocol {
        1 => "ICMP".into(),
        6 => "TCP".into(),
        17 => "UDP".into(),
        other => format!("protocol {other}"),
    }
}

/// Number of sets listed in the text by default.
const SETS_LISTED: usize = 10;
/// Number of ranges shown per set in the text.
const RANGES_SHOWN: usize = 12;
/// Maximum number of packets per reason that are listed by number.
const REFUSED_LISTED_MAX: usize = 1000;
