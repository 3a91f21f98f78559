//! The first reading: which fragments become datagrams, and why the others do not.

use std::collections::HashMap;

use grosso::reassemble::{
    Datagram, Discarded, Identity, Verdict,
    reason::{Discard, Pass},
};
use grosso_io::capture::{Entry, Packet};
use grosso_wire::LinkType;

use super::lanes::{Fate, Lanes, Visitor};
use crate::{
    error::Failure,
    input::{Input, Next},
    report::{
        Counts,
        reassemble::{Alone, SetFacts},
    },
};

/// What the first reading found.
#[derive(Default)]
pub(super) struct Survey {
    /// The packets that became parts of datagrams.
    pub(super) joined: Numbers,
    pub(super) datagrams: u64,
    /// Fragments that these were made of.
    pub(super) fragments: u64,
    /// Fragments of these that came again.
    pub(super) duplicates: u64,
    /// Sets of fragments that stayed as they came, by reason.
    pub(super) left: Counts,
    /// The first of them.
    pub(super) sets: Vec<SetFacts>,
    /// Those that are not among these.
    pub(super) unlisted: u64,
    /// Fragments that died alone, by reason.
    pub(super) alone: Alone,
    /// Fragments that nobody could join, by reason.
    pub(super) passed: Counts,
    /// The fragments of incomplete datagrams by number.
    waiting: HashMap<(usize, Identity), Vec<u64>>,
    /// What the packet at hand brought about.
    ended: Ended,
}

/// How datagrams ended at one packet.
#[derive(Default)]
struct Ended {
    /// The fragments of the one that became whole.
    whole: Option<Vec<u64>>,
    /// Those that will not be.
    discarded: Vec<(usize, Identity, Discard, SetFacts)>,
}

impl Survey {
    /// Reads the capture up to its end or damage, and says how many packets that were.
    pub(super) fn read(&mut self, input: &mut Input, lanes: &mut Lanes) -> Result<u64, Failure> {
        let links = input.links;
        // Damage is for the second reading to report.
        let _ending = input.each(|entry| {
            match entry {
                Entry::Packet(packet) => {
                    if let Some(link) = links.of(packet) {
                        self.packet(packet, link, lanes);
                    }
                }
                Entry::Block(block) if block.is_section_header() => self.finish(lanes),
                Entry::Block(_) => {}
            }
            Ok(Next::Go)
        })?;
        self.finish(lanes);
        Ok(input.reader.packets())
    }

    fn packet(&mut self, packet: &Packet<'_>, link: LinkType, lanes: &mut Lanes) {
        let number = packet.number;
        match lanes.push(packet, &packet.meta(), link, self) {
            Fate::Aside => *self.passed.entry("capture-interfaces").or_default() += 1,
            Fate::Engine { lane, identity, verdict } => {
                self.settle(number, lane, identity, verdict)
            }
        }
        self.list();
    }

    /// Takes note of what became of a packet.
    fn settle(&mut self, number: u64, lane: usize, identity: Option<Identity>, verdict: Verdict) {
        match (verdict, identity) {
            (Verdict::Passed(Pass::Whole), _) => {}
            (Verdict::Passed(reason), _) => *self.passed.entry(reason.name()).or_default() += 1,
            (Verdict::Completed, _) => {
                let parts = self.ended.whole.take().unwrap_or_default();
                parts.into_iter().chain([number]).for_each(|part| self.joined.insert(part));
            }
            (Verdict::Held | Verdict::Duplicate, Some(identity)) => {
                let parts = self.waiting.entry((lane, identity)).or_default();
                if parts.len() < PARTS_MAX {
                    parts.push(number);
                }
            }
            (Verdict::Discarded(reason), identity) => {
                // Usually it took its datagram with it.
                let is_its = |(of, set, why, _): &&mut (usize, Identity, Discard, SetFacts)| {
                    (*of, Some(*set), *why) == (lane, identity, reason)
                };
                match self.ended.discarded.iter_mut().find(is_its) {
                    Some((_, _, _, facts)) => facts.packets.push(number),
                    None => self.alone.add(reason.name(), number),
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, lanes: &mut Lanes) {
        lanes.finish(self);
        self.list();
    }

    /// Lists the sets that ended.
    fn list(&mut self) {
        for (_, _, _, facts) in self.ended.discarded.drain(..) {
            *self.left.entry(facts.reason).or_default() += 1;
            if self.sets.len() < SETS_MAX {
                self.sets.push(facts);
            } else {
                self.unlisted += 1;
            }
        }
    }
}

impl Visitor for Survey {
    fn datagram(&mut self, lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        let parts = self.waiting.remove(&(lane, datagram.identity)).unwrap_or_default();
        let fragments = u64::from(datagram.fragments);
        self.datagrams += 1;
        self.fragments += fragments;
        self.duplicates += (parts.len() as u64 + 1).saturating_sub(fragments);
        self.ended.whole = Some(parts);
    }

    fn discarded(&mut self, lane: usize, discarded: &Discarded<'_>) {
        let identity = discarded.identity;
        let packets = self.waiting.remove(&(lane, identity)).unwrap_or_default();
        let facts = SetFacts::new(discarded, packets);
        self.ended.discarded.push((lane, identity, discarded.reason, facts));
    }
}

/// A set of packet numbers, a bit for each packet up to the last in it.
#[derive(Default)]
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    fn insert(&mut self, number: u64) {
        let (word, bit) = place(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

/// Most packets remembered of one datagram, beyond which duplicates stay as they came.
const PARTS_MAX: usize = 65536;
/// Most sets listed by what is missing of them; others are counted.
const SETS_MAX: usize = 10_000;
