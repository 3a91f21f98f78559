//! Explains differences between the kernel and the engine. Each difference is attributed to suspect frames, or reported
//! with the smallest vector that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use grosso_rig::kernel::dump;
use grosso_testkit::flows::hex;
use grosso_testkit::oracle::{Description, Lengths, Link, is_right, parse, segment};

use super::both::{Answer, Both, Difference, Item, difference};
use super::known::{Joins, Known, Reach, Suspect, suspects};

/// A comparison of vectors, one by one, with counts of the results.
pub(crate) struct Comparison {
    pub(crate) both: Both,
    pub(crate) reach: Reach,
    pub(crate) counts: Counts,
}

/// Counters for a comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) vectors: usize,
    pub(crate) frames: usize,
    pub(crate) superframes: usize,
    pub(crate) equal: usize,
    /// Number of vectors in which each known difference shows.
    pub(crate) known: BTreeMap<Known, usize>,
    /// Superframes in which Linux leaves a GRE checksum other than zero.
    pub(crate) gre_words: usize,
    /// Unmerged packets that only the kernel, or only the engine, marks as verified.
    pub(crate) verified: [usize; 2],
}

impl Comparison {
    /// Compares one vector.
    ///
    /// # Panics
    ///
    /// Panics if the kernel and the engine differ and no known difference explains it. The message contains the seed
    /// and the smallest failing vector.
    pub(crate) fn compare(&mut self, frames: &[Vec<u8>], seed: u64) {
        let (kernel, engine) = (self.both.kernel(frames), self.both.engine(frames));
        self.counts.vectors += 1;
        self.counts.frames += frames.len();
        self.counts.superframes +=
            engine.items.iter().filter(|item| item.offload.is_some()).count();
        self.counts.gre_words += kernel.gre_words;
        self.compare_verdicts(&kernel, &engine);
        match self.explain(frames) {
            Ok(names) if names.is_empty() => self.counts.equal += 1,
            Ok(names) => {
                names.into_iter().for_each(|name| *self.counts.known.entry(name).or_default() += 1);
            }
            Err(_) => {
                let (smallest, why) = self.minimised(frames);
                panic!("GROSSO_SEED={seed}: {why}\n{}", dump(&smallest));
            }
        }
    }

    /// Returns the known differences that explain the result for a vector, or the reason why they do not.
    pub(crate) fn explain(&mut self, frames: &[Vec<u8>]) -> Result<BTreeSet<Known>, String> {
        let found = self.ask(frames);
        if found.is_none() {
            return Ok(BTreeSet::new());
        }
        self.check_superframes(&found, frames)?;
        let touched: Vec<&[u8]> =
            found.kernel.iter().chain(&found.engine).map(|item| &*item.bytes).collect();
        let in_touched = |suspect: &Suspect| {
            touched.iter().any(|frame| suspect.touches(frame))
                || found.reordered.iter().any(|flow| {
                    frames.iter().any(|frame| {
                        super::known::flow(frame).as_ref() == Some(flow) && suspect.touches(frame)
                    })
                })
        };
        let mut relevant = suspects(frames, &self.reach);
        relevant.retain(in_touched);
        if relevant.is_empty() {
            return Err(describe("nothing known explains this", &found));
        }
        // Without the suspect frames, no difference may remain unless it has another explanation.
        let without = |name: Option<Known>| -> Vec<Vec<u8>> {
            let is_out = |index| {
                relevant.iter().any(|suspect| suspect.index == index && Some(suspect.known) != name)
            };
            let kept = frames.iter().enumerate().filter(|(index, _)| !is_out(*index));
            kept.map(|(_, frame)| frame.clone()).collect()
        };
        let mut names = self.explain(&without(None))?;
        let candidates: BTreeSet<Known> = relevant.iter().map(|suspect| suspect.known).collect();
        let mut shown = BTreeSet::new();
        for &name in &candidates {
            let isolated = without(Some(name));
            if candidates.len() == 1 || !self.ask(&isolated).is_none() {
                shown.insert(name);
            }
        }
        names.extend(if shown.is_empty() { candidates } else { shown });
        Ok(names)
    }

    fn ask(&mut self, frames: &[Vec<u8>]) -> Difference {
        difference(&self.both.kernel(frames), &self.both.engine(frames))
    }

    /// Checks superframes that only the kernel or only the engine built. Either the other one builds the same
    /// superframe from these packets alone, or a known difference must explain why it does not.
    fn check_superframes(&mut self, found: &Difference, frames: &[Vec<u8>]) -> Result<(), String> {
        for item in found.engine.iter().filter(|item| item.offload.is_some()) {
            let packets = packets_of(item, frames)
                .ok_or_else(|| describe("a superframe of packets that were not sent", found))?;
            let same = self.both.kernel(&packets).items == [item.clone()];
            if !same && !self.may_join(&packets, Joins::Engine) {
                return Err(describe("the engine joins what the kernel keeps apart", found));
            }
        }
        for item in found.kernel.iter().filter(|item| item.offload.is_some()) {
            // If the packets differ from those sent, the kernel lost information in the superframe, or treated tunnels
            // as plain datagrams.
            let packets = packets_of(item, frames);
            let same = |packets: &Vec<_>| self.both.engine(packets).items == [item.clone()];
            let is_same = packets.as_ref().is_some_and(same);
            let packets = packets.unwrap_or_else(|| frames.to_vec());
            if !is_same && !self.may_join(&packets, Joins::Kernel) {
                return Err(describe("the kernel joins what the engine keeps apart", found));
            }
        }
        Ok(())
    }

    fn may_join(&self, packets: &[Vec<u8>], who: Joins) -> bool {
        let allowed = |suspect: &Suspect| {
            matches!(suspect.known.joins(), Joins::Either) || suspect.known.joins() == who
        };
        suspects(packets, &self.reach).iter().any(allowed)
    }

    /// Asserts that every packet that the engine marks as verified is correct, and counts the packets that the kernel
    /// marks differently.
    fn compare_verdicts(&mut self, kernel: &Answer, engine: &Answer) {
        for (frame, &verified) in &engine.verified {
            assert!(!verified || is_right(frame, Link::Ethernet), "not right: {}", hex(frame));
            match (kernel.verified.get(frame), verified) {
                (Some(true), false) => self.counts.verified[0] += 1,
                (Some(false), true) => self.counts.verified[1] += 1,
                _ => {}
            }
        }
    }

    /// Returns the smallest part of a vector whose result still cannot be explained, and the message about that part.
    fn minimised(&mut self, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, String) {
        let mut smallest = frames.to_vec();
        let mut why = self.explain(frames).err().unwrap_or_else(|| "it does not show again".into());
        let mut index = 0;
        while index < smallest.len() {
            let mut smaller = smallest.clone();
            smaller.remove(index);
            match self.explain(&smaller) {
                Err(reason) => (smallest, why) = (smaller, reason),
                Ok(_) => index += 1,
            }
        }
        (smallest, why)
    }
}

impl Counts {
    /// Formats the table of `docs/kernel-differences.md`.
    pub(crate) fn table(&self) -> String {
        let Self { vectors, frames, superframes, equal, .. } = self;
        let mut text = format!(
            "{vectors} vectors, {frames} frames, {superframes} superframes, {equal} vectors equal\n"
        );
        for &name in Known::ALL {
            let count = self.known.get(&name).copied().unwrap_or(0);
            let _ = writeln!(text, "{count:6}  {name:?} ({}): {}", name.rule(), name.sentence());
        }
        let _ =
            writeln!(text, "{:6}  GRE checksum words left in superframes (T21)", self.gre_words);
        let [kernel, engine] = self.verified;
        let _ =
            writeln!(text, "{kernel:6}  lone packets that only the kernel calls verified (G53)");
        let _ =
            writeln!(text, "{engine:6}  lone packets that only the engine calls verified (G53)");
        text
    }
}

/// Returns the packets of a vector that a superframe contains. The metadata does not say how identifications vary (rule
/// G14), so all possibilities are tried. None of them matches if the kernel treated a tunnel as a plain datagram.
fn packets_of(item: &Item, frames: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let gso_size = usize::from(item.offload?.gso_size);
    let parsed = parse(&item.bytes, Link::Ethernet, Lengths::Whole);
    parsed.last().filter(|last| matches!(last.name, "tcp" | "udp"))?;
    (0..4).find_map(|fixed_ids| {
        let description = Description { gso_size, fixed_ids, cwr_on_all: true };
        let packets = segment(&item.bytes, Link::Ethernet, description).ok()?;
        packets.iter().all(|packet| frames.contains(packet)).then_some(packets)
    })
}

fn describe(what: &str, found: &Difference) -> String {
    let mut text = format!("{what}\n");
    for (who, items) in [("kernel", &found.kernel), ("engine", &found.engine)] {
        for Item { bytes, offload } in items {
            let _ = writeln!(text, "only the {who}: {offload:?} {}", hex(bytes));
        }
    }
    for flow in &found.reordered {
        let _ = writeln!(text, "another order in [{flow}]");
    }
    text
}
