//! First pass over a capture (ADR 0045). Finds out which fragments form complete datagrams, and why the others do not.

use std::{collections::HashMap, net::IpAddr};

use super::{
    Joined,
    lanes::{Arrival, LaneFate, Lanes, Visitor},
};
use crate::reports::reassemble::{Joining, SetFacts};
use grosso::reassemble::{
    Datagram, Discarded, Identity, ReassemblyVerdict,
    reason::{Discard, Pass},
};

/// Result of the first pass over a capture: which fragments can be joined.
#[derive(Default)]
pub struct Survey {
    /// Packets that became part of a datagram.
    pub joined: Numbers,
    /// Results for the report.
    pub found: Joining,
    /// Number of fragment sets that were left unchanged and are not listed.
    pub unlisted: u64,
    /// Packet numbers of the fragments of incomplete datagrams.
    waiting: HashMap<(usize, Identity), Vec<u64>>,
    /// Number of the packet that started the latest datagram, by lane, source and destination.
    begun: HashMap<(usize, IpAddr, IpAddr), u64>,
    /// Datagrams that ended while the current packet was processed.
    ended: EndedDatagrams,
}

/// Datagrams that ended while a packet was processed.
#[derive(Default)]
struct EndedDatagrams {
    /// Packet numbers of the fragments that made up the completed datagram, if any.
    whole: Option<Vec<u64>>,
    /// Fragments of datagrams that will not be complete.
    discarded: Vec<(usize, Identity, Discard, SetFacts)>,
}

impl Survey {
    /// Processes packet `number`. If the caller passes `joined`, stores the datagram that the packet completes there.
    pub fn packet(
        &mut self,
        number: u64,
        arrival: &Arrival<'_>,
        lanes: &mut Lanes,
        joined: Option<&mut Joined>,
    ) {
        match lanes.push(arrival, &mut Surveying { survey: self, joined }) {
            LaneFate::Aside => *self.found.passed.entry("capture_interfaces").or_default() += 1,
            LaneFate::Engine { lane, identity, verdict } => {
                self.settle(number, lane, identity, verdict)
            }
        }
        self.list();
    }

    /// Records the datagrams that have expired by the time of a packet.
    pub fn expire(&mut self, timestamp_ns: Option<u64>, lanes: &mut Lanes) {
        lanes.expire(timestamp_ns, &mut Surveying { survey: self, joined: None });
        self.list();
    }

    /// Ends all datagrams at the end of the capture or of a section.
    pub fn finish(&mut self, lanes: &mut Lanes) {
        lanes.finish(&mut Surveying { survey: self, joined: None });
        self.list();
    }

    /// Records what happened to a packet.
    fn settle(
        &mut self,
        number: u64,
        lane: usize,
        identity: Option<Identity>,
        verdict: ReassemblyVerdict,
    ) {
        match (verdict, identity) {
            (ReassemblyVerdict::Passed(Pass::Whole), _) => {}
            (ReassemblyVerdict::Passed(reason), _) => {
                *self.found.passed.entry(reason.name()).or_default() += 1
            }
            (ReassemblyVerdict::Completed, _) => {
                let parts = self.ended.whole.take().unwrap_or_default();
                parts.into_iter().chain([number]).for_each(|part| self.joined.insert(part));
            }
            (ReassemblyVerdict::Held | ReassemblyVerdict::Duplicate, Some(identity)) => {
                let parts = self.waiting.entry((lane, identity)).or_default();
                let pair = (lane, identity.source, identity.destination);
                if parts.is_empty()
                    && (self.begun.len() < PAIRS_MAX || self.begun.contains_key(&pair))
                {
                    self.begun.insert(pair, number);
                }
                if parts.len() < PARTS_MAX {
                    parts.push(number);
                }
            }
            (ReassemblyVerdict::Discarded(reason), identity) => {
                // Usually, a packet ends the datagram to which it belongs.
                let is_its = |(of, set, why, _): &&mut (usize, Identity, Discard, SetFacts)| {
                    (*of, Some(*set), *why) == (lane, identity, reason)
                };
                match self.ended.discarded.iter_mut().find(is_its) {
                    Some((_, _, _, facts)) => facts.packets.push(number),
                    None => self.found.alone.add(reason.name(), number),
                }
            }
            _ => {}
        }
    }

    /// Lists the fragment sets that have ended.
    fn list(&mut self) {
        for (_, _, _, facts) in self.ended.discarded.drain(..) {
            *self.found.left.entry(facts.reason).or_default() += 1;
            if self.found.sets.len() < SETS_MAX {
                self.found.sets.push(facts);
            } else {
                self.unlisted += 1;
            }
        }
    }
}

/// Visitor that records what happens to datagrams, and keeps the completed one if the caller asks for it.
struct Surveying<'a> {
    survey: &'a mut Survey,
    joined: Option<&'a mut Joined>,
}

impl Visitor for Surveying<'_> {
    fn datagram(&mut self, lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        self.survey.datagram(lane, datagram);
        if let Some(joined) = &mut self.joined {
            joined.datagram(lane, datagram);
        }
    }

    fn discarded(&mut self, lane: usize, discarded: &Discarded<'_>) {
        self.survey.discarded(lane, discarded);
    }
}

impl Survey {
    fn datagram(&mut self, lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        let parts = self.waiting.remove(&(lane, datagram.identity)).unwrap_or_default();
        let fragments = u64::from(datagram.fragments);
        self.found.datagrams += 1;
        self.found.fragments += fragments;
        self.found.duplicates += (parts.len() as u64 + 1).saturating_sub(fragments);
        self.ended.whole = Some(parts);
    }

    fn discarded(&mut self, lane: usize, discarded: &Discarded<'_>) {
        let identity = discarded.identity;
        let packets = self.waiting.remove(&(lane, identity)).unwrap_or_default();
        let begun = self.begun.get(&(lane, identity.source, identity.destination));
        let is_overtaken = begun > packets.last();
        let facts = SetFacts::new(discarded, packets, is_overtaken);
        self.ended.discarded.push((lane, identity, discarded.reason, facts));
    }
}

/// Set of packet numbers, stored as one bit for each packet up to the last one in the set.
#[derive(Default)]
pub struct Numbers(Vec<u64>);

impl Numbers {
    fn insert(&mut self, number: u64) {
        let (word, bit) = place(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    /// Returns whether the set contains packet `number`.
    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

/// Maximum number of packets recorded for one datagram. Further duplicates are left unchanged.
const PARTS_MAX: usize = 65536;
/// Maximum number of address pairs for which the latest datagram is recorded. An incomplete datagram of any other pair
/// is considered cut off by the end of the capture.
const PAIRS_MAX: usize = 65536;
/// Maximum number of sets listed with their gaps. The others are only counted.
const SETS_MAX: usize = 10_000;
