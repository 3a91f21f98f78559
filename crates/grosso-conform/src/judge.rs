//! Checks whether a program's output obeys the laws. The output is segmented again, and the result must equal the
//! input, with the packets of each flow in order. Packets that the rules exclude from merging must not have been
//! merged, even if segmentation would restore them.

use grosso::{CoalesceOptions, Delivery, Frame, Profile, Sink, Verdict, coalesce::reason::Pass};
use grosso_io::{PortBuffer, PortCoalescer};

use super::{
    difference::{Difference, difference},
    exact,
    fault::{Fault, Law},
    framing::Framed,
    superframe::{LINK, PORTS, SuperframeReadings, Unsound, read},
    vectors::Vector,
};

/// Rules that every vector tests: segmentation restores the packets, no packet is overtaken, headers describe their
/// frames, and a wrong checksum is not marked as valid.
pub const RULES_OF_ALL: [&str; 6] = ["G50", "G51", "G52", "G54", "G75", "C1"];

/// Judges the output of one poll. Returns the faults, and the number of packets that were correctly merged with an
/// earlier packet.
#[must_use]
pub fn judge(vector: &Vector, records: &[Framed]) -> (Vec<Fault>, usize) {
    if !vector.expected.is_empty() {
        return (exact::judge(vector, records), 0);
    }
    let mut court = Court::new(vector);
    let frames: Vec<Left> = records.iter().filter_map(|record| court.examine(record)).collect();
    let mut joins = 0;
    for (number, left) in frames.iter().enumerate() {
        joins += court.sentence(number + 1, left);
    }
    court.order(&frames);
    let unread = court.faults.iter().any(|fault| fault.law == Law::Header);
    // The missing packets may be in records that could not be parsed.
    for index in court.missing().filter(|_| !unread) {
        court.fault(Law::Lost, &["G54"], format!("packet {} was lost", index + 1));
    }
    (court.faults, joins.min(vector.joins))
}

/// Output record that was parsed successfully.
struct Left {
    packets: Vec<Vec<u8>>,
    /// Index of the identical input packet for each packet; `None` if there is none.
    members: Vec<Option<usize>>,
    vouches: bool,
}

struct Court<'a> {
    vector: &'a Vector,
    /// Whether each input packet has been found in the output.
    found: Vec<bool>,
    faults: Vec<Fault>,
}

impl<'a> Court<'a> {
    fn new(vector: &'a Vector) -> Self {
        Self { vector, found: vec![false; vector.frames.len()], faults: Vec::new() }
    }

    /// Reads a record. If its header has several possible interpretations, chooses the one that recovers the most input
    /// packets and whose packets are most similar to input packets.
    fn examine(&mut self, record: &Framed) -> Option<Left> {
        let SuperframeReadings { readings, vouches } = match read(record) {
            Ok(said) => said,
            Err(Unsound { rule, text }) => {
                self.fault(Law::Header, &[rule], text);
                return None;
            }
        };
        let heard = readings.into_iter().map(|packets| (self.members(&packets), packets));
        let likeness = |members: &[Option<usize>], packets: &[Vec<u8>]| {
            let known = members.iter().flatten().count();
            (known, packets.iter().map(|packet| self.likeness(packet)).sum::<usize>())
        };
        let (_, members, packets) = heard
            .map(|(members, packets)| (likeness(&members, &packets), members, packets))
            // If several interpretations are equally good, the first one wins.
            .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        members.iter().flatten().for_each(|index| self.found[*index] = true);
        Some(Left { packets, members, vouches })
    }

    /// Returns how many header bytes the packet has in common with the most similar input packet.
    fn likeness(&self, packet: &[u8]) -> usize {
        let alike = |frame: &Vec<u8>| {
            let pairs = frame.iter().zip(packet).take(HEADER_BYTES);
            pairs.filter(|(one, other)| one == other).count()
        };
        self.vector.frames.iter().map(alike).max().unwrap_or(0)
    }

    /// Looks up `packets` in the input, and returns the index of each. Each input packet is used only once.
    fn members(&self, packets: &[Vec<u8>]) -> Vec<Option<usize>> {
        let mut found = self.found.clone();
        let mut claim = |packet: &Vec<u8>| {
            let mut frames = self.vector.frames.iter().zip(&mut found).enumerate();
            let (index, (_, found)) =
                frames.find(|(_, (frame, found))| !**found && *frame == packet)?;
            *found = true;
            Some(index)
        };
        packets.iter().map(&mut claim).collect()
    }

    /// Judges one frame, and returns the number of packets that it merges correctly.
    fn sentence(&mut self, number: usize, left: &Left) -> usize {
        let faults = self.faults.len();
        let meant: Vec<Option<usize>> =
            (0..left.members.len()).map(|place| self.meant(left, place)).collect();
        let joined: Vec<usize> = meant.iter().flatten().copied().collect();
        match self.apart(&joined) {
            Some(reason) => self.wrongly_joined(number, left, &joined, &reason),
            None => self.changes(number, left, &meant),
        }
        if let ([Some(index)], true) = (&left.members[..], left.vouches)
            && is_wrong(&self.vector.frames[*index])
        {
            let text =
                format!("packet {} has a wrong checksum, but is marked as verified", index + 1);
            self.fault(Law::Vouched, &["C1"], text);
        }
        if self.faults.len() == faults { left.members.len() - 1 } else { 0 }
    }

    /// Reports a frame that contains packets that must not be merged. If its segments also differ from the input, the
    /// wrong merge is considered the cause.
    fn wrongly_joined(&mut self, number: usize, left: &Left, joined: &[usize], reason: &str) {
        let names: Vec<String> = joined.iter().map(|index| (index + 1).to_string()).collect();
        let text = format!("frame {number} merges packets {}: {reason}", names.join(", "));
        match left.members.iter().position(Option::is_none) {
            None => self.fault_of_vector(Law::Apart, text),
            Some(place) => {
                let index = joined[place.min(joined.len() - 1)];
                let packet = &left.packets[place];
                let text = format!("{text}; {}", self.difference(index, packet).text);
                self.fault_of_vector(Law::Changed, text);
            }
        }
    }

    /// Reports the changed packets in a frame. The field that was changed determines the rule that was violated.
    fn changes(&mut self, number: usize, left: &Left, meant: &[Option<usize>]) {
        for ((packet, member), meant) in left.packets.iter().zip(&left.members).zip(meant) {
            match (member, meant) {
                (Some(_), _) => {}
                (None, Some(index)) => {
                    let Difference { text, rule } = self.difference(*index, packet);
                    match rule {
                        Some(rule) => self.fault(Law::Changed, &[rule], text),
                        None => self.fault_of_vector(Law::Changed, text),
                    }
                }
                (None, None) => {
                    let text =
                        format!("frame {number} contains a packet that the program never received");
                    self.fault(Law::Added, &["G54"], text);
                }
            }
        }
    }

    /// Returns the difference between an input packet and the output packet that took its place.
    fn difference(&self, index: usize, packet: &[u8]) -> Difference {
        let Difference { text, rule } = difference(&self.vector.frames[index], packet);
        Difference { text: format!("packet {} was changed: {text}", index + 1), rule }
    }

    /// Returns the input packet that corresponds to a packet in a frame: the identical packet if there is one,
    /// otherwise a missing packet, preferably one that fits between the neighbors in the frame.
    fn meant(&mut self, left: &Left, place: usize) -> Option<usize> {
        if let Some(member) = left.members[place] {
            return Some(member);
        }
        let known = left.members.iter().enumerate().find_map(|(at, member)| Some((at, (*member)?)));
        let pointed = known.and_then(|(at, member)| {
            let flow = self.vector.flows.iter().find(|flow| flow.contains(&member))?;
            let rank = flow.iter().position(|index| *index == member)?;
            flow.get((rank + place).checked_sub(at)?).copied()
        });
        let missing =
            pointed.filter(|index| !self.found[*index]).or_else(|| self.missing().next())?;
        self.found[missing] = true;
        Some(missing)
    }

    fn missing(&self) -> impl Iterator<Item = usize> + use<> {
        let found = self.found.clone();
        (0..found.len()).filter(move |index| !found[*index])
    }

    /// Returns why the packets in `joined` must not be merged into one frame; `None` if they may be merged.
    fn apart(&self, joined: &[usize]) -> Option<String> {
        if joined.len() < 2 {
            return None;
        }
        let flow = self.vector.flows.iter().find(|flow| flow.contains(&joined[0]))?;
        if joined.iter().any(|index| !flow.contains(index)) {
            return Some("the packets belong to different flows".to_owned());
        }
        refusal(joined.iter().map(|index| &self.vector.frames[*index]))
    }

    /// Checks that the packets of each flow are in order.
    fn order(&mut self, frames: &[Left]) {
        for flow in &self.vector.flows {
            let leave = frames.iter().flat_map(|left| left.members.iter().flatten());
            let leave: Vec<usize> = leave.filter(|index| flow.contains(index)).copied().collect();
            if let Some(pair) = leave.windows(2).find(|pair| pair[0] > pair[1]) {
                let text =
                    format!("packet {} precedes packet {} in the output", pair[0] + 1, pair[1] + 1);
                self.fault(Law::Order, &["G75"], text);
            }
        }
    }

    fn fault(&mut self, law: Law, rules: &[&str], text: String) {
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        self.faults.push(Fault { law, rules, text });
    }

    fn fault_of_vector(&mut self, law: Law, text: String) {
        self.faults.push(Fault { law, rules: self.vector.rules.clone(), text });
    }
}

/// Returns why Grosso does not merge `packets` into one frame; `None` if it does.
fn refusal<'a>(packets: impl Iterator<Item = &'a Vec<u8>>) -> Option<String> {
    let mut coalescer = coalescer();
    let mut frames = 0;
    let mut why = None;
    let sink: &mut dyn Sink<PortBuffer> = &mut |_: Delivery<'_, _>| frames += 1;
    for packet in packets {
        let verdict = coalescer.push(Frame::new(PortBuffer::from(packet.clone())), 0, sink);
        let reason = match verdict {
            Verdict::Refused(reason) => Some(reason.sentence()),
            Verdict::Passed(reason) => Some(reason.sentence()),
            Verdict::Held | Verdict::Joined | Verdict::Waits => None,
        };
        why = why.or(reason);
    }
    coalescer.finish(sink);
    let closed = "the last of these packets must start a new frame";
    (frames > 1).then(|| why.unwrap_or(closed).trim_end_matches('.').to_owned())
}

/// Returns whether any checksum in the packet is wrong.
fn is_wrong(packet: &[u8]) -> bool {
    let sink: &mut dyn Sink<PortBuffer> = &mut |_: Delivery<'_, _>| ();
    let verdict = coalescer().push(Frame::new(PortBuffer::from(packet.to_vec())), 0, sink);
    matches!(verdict, Verdict::Passed(Pass::Checksum | Pass::Ipv4Checksum))
}

fn coalescer() -> PortCoalescer {
    PortCoalescer::new(CoalesceOptions::new(LINK, SEED).profile(Profile::linux()).ports(PORTS))
}

/// Maximum number of header bytes that are compared.
const HEADER_BYTES: usize = 100;
/// Seed of the flow table. A fixed seed is safe, because no attacker chooses the input.
const SEED: u64 = 0;

#[cfg(test)]
mod tests {
    use grosso_testkit::random::Random;

    use super::*;
    use crate::vectors::vectors;

    /// Returns nearly valid records: frames from a vector, merged or not, with arbitrary headers and a few corrupted
    /// bytes.
    fn records(vector: &Vector, random: &mut Random) -> Vec<Framed> {
        let mut records = Vec::new();
        while records.len() < 4 {
            let mut frame = random.choose(&vector.frames).clone();
            if random.one_in(2) {
                let more = random.choose(&vector.frames);
                frame.extend(more.iter().skip(54));
            }
            for _ in 0..random.below(4) {
                let at = random.below(frame.len().min(100));
                frame[at] = random.bits() as u8;
            }
            if random.one_in(4) {
                frame.truncate(random.below(frame.len() + 1));
            }
            let size = random.below(300) as u16;
            let mut header = [0; 10];
            let any = random.bits() as u8;
            let kinds = [0, 1, 4, 5, 0x81, any];
            (header[0], header[1]) = (random.below(4) as u8, *random.choose(&kinds));
            header[4..6].copy_from_slice(&size.to_le_bytes());
            (header[6], header[8]) = (*random.choose(&[34, 54, any]), *random.choose(&[16, 6]));
            records.push(Framed { header, frame });
        }
        records
    }

    #[test]
    fn no_record_brings_the_judge_down_and_fewer_packets_are_never_right() {
        let vectors = vectors().unwrap();
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let vector = random.choose(&vectors);
            let records = records(vector, &mut random);
            let (faults, joins) = judge(vector, &records);
            let is_whole = records.len() >= vector.frames.len();
            assert!(is_whole || joins > 0 || !faults.is_empty(), "{seed}: {}", vector.name);
        }
    }

    #[test]
    fn a_superframe_of_countless_packets_is_not_cut() {
        let vectors = vectors().unwrap();
        let vector = vectors.iter().find(|vector| vector.name == "g14_ids_step_with_df").unwrap();
        let mut frame = vector.frames[0].clone();
        frame.resize(60_000, 7);
        let record = Framed { header: [1, 1, 0, 0, 1, 0, 34, 0, 16, 0], frame };
        let (faults, joins) = judge(vector, &[record]);
        assert_eq!((faults[0].law, joins), (Law::Header, 0));
        assert!(faults[0].text.contains("many more than the program received"), "{faults:?}");
    }
}
