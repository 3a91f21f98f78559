//! `grosso explain`: explains why a packet was merged, or why not.
//!
//! The capture is replayed until the packet is delivered. The coalescer's state when the packet arrived is inferred
//! from the deliveries.

mod cause;

use grosso::{
    Delivery, Profile, Sink, Verdict,
    coalesce::reason::{Close, Pass},
};
use grosso_capture::Entry;
use grosso_io::PortBuffer;
use grosso_wire::{LinkType, Ports, Stack, dissect, tcp};

use self::cause::MergeCause;
use crate::{
    capture::{
        CaptureCommand, End, EndWording, Ending, Files, Input, Next, Outcome, Session, Unparsed,
        survey,
    },
    checksums::{Levels, Verdict as ChecksumVerdict, judge as judge_checksums},
    error::Failure,
    evidence::{Given, Judge, Sight},
    headers::{Transport, addresses, protocol, u32_at},
    meta,
    replay::{Aside, Fate, Purpose, Receiver, Records, Replay, Rules, Seen},
    report::Place,
    reports::explain::{Decision, Ended, ExplainReport, Held, JudgmentFacts, PacketFacts, Train},
    units,
};

/// Options for `grosso explain`, which explains why one packet was merged, or why not.
#[derive(Clone, Debug, Default)]
pub struct Explain {
    /// Packet number, starting at 1.
    pub number: u64,
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Merge rules.
    pub rules: Rules,
}

impl CaptureCommand for Explain {
    type Report = ExplainReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<ExplainReport>, Failure> {
        let number = self.number;
        let mut judge = survey(&files.captures, self.given, session)?;
        let mut input = files.captures.input(false, session)?;
        let links = input.links;
        let mut replay = Replay::new(&self.rules, Purpose::Looks)?;
        let profile = replay.profile().clone();
        let mut watcher = Watcher { target: number, ..Watcher::default() };
        let mut found = None;
        let mut first_ns = None;
        let ending = input.each(|entry| {
            let packet = match entry {
                Entry::Packet(packet) => packet,
                Entry::Block(block) => {
                    if block.is_section_header() {
                        replay.finish(&mut watcher);
                    }
                    return Ok(Next::Go);
                }
            };
            first_ns = first_ns.or(packet.timestamp_ns);
            watcher.is_now = packet.number == number;
            watcher.pushed = packet.number;
            if watcher.is_now {
                watcher.link = links.of(packet);
            }
            let seen = Seen::of(packet, links, Purpose::Looks, &mut judge);
            watcher.ports = seen.ports;
            let fate = replay.push(&seen, &mut watcher);
            if watcher.is_now {
                found = Some(FoundPacket::new(&seen, &mut judge, fate, first_ns));
                watcher.is_now = false;
                if matches!(fate, Fate::Aside(_)) {
                    return Ok(Next::Stop);
                }
            }
            Ok(if watcher.left.is_some() { Next::Stop } else { Next::Go })
        })?;
        replay.finish(&mut watcher);
        let Some(found) = found else { return Err(missing(number, ending, &input, session)) };
        let report = found.report(&input, &profile, watcher);
        let end = End::new(ending, Unparsed::default(), input, EndWording::PROCESSED);
        Ok(Outcome { report, place: Place::Standard, end })
    }
}

/// Returns the failure for a packet number that was not found. The file may be damaged before that packet.
fn missing(number: u64, ending: Ending, input: &Input, session: &Session) -> Failure {
    if let Err(failure) = ending.conclude(input, session, "processed") {
        return failure;
    }
    if let Some(interrupted) = input.interruption() {
        return Failure::interrupted(format!("{interrupted}, before packet {number}"));
    }
    let packets = units::count(input.reader.packets(), "packet");
    let message = format!("{}: no packet {number}; the capture has {packets}", input.name);
    Failure::usage("usage.packet", message)
}

/// Receiver that watches the deliveries for one packet, the target.
#[derive(Default)]
struct Watcher {
    target: u64,
    /// Whether the target is being pushed.
    is_now: bool,
    /// Link type used to parse the target.
    link: Option<LinkType>,
    /// UDP ports that identify tunnels in the target.
    ports: Ports,
    /// Trains without the target that were delivered when the target was pushed.
    flushed: Vec<Train>,
    /// Details of the last flushed train.
    before: Option<Before>,
    /// Train that contained the target when it was delivered.
    left: Option<Train>,
    /// Number of the packet that was being pushed when the target's train was delivered.
    left_by: Option<u64>,
    /// Number of the packet that is being pushed.
    pushed: u64,
    /// The packets that preceded the target in its train.
    joined: Option<Held>,
    /// Capture packet number of each packet held by a coalescer.
    numbers: Records<u64>,
}

/// Train that was being held for the target's flow when the target arrived.
struct Before {
    held: Held,
    /// Last packet of the train.
    last: Vec<u8>,
}

impl Sink<PortBuffer> for Watcher {
    fn deliver(&mut self, mut delivery: Delivery<'_, PortBuffer>) {
        let numbers = || delivery.parts().map(|part| *self.numbers.of(&part.buffer));
        let train = Train {
            first: numbers().next().unwrap_or(0),
            last: numbers().last().unwrap_or(0),
            packets: u64::from(delivery.packets),
            bytes: delivery.len as u64,
            closed: delivery.closed.name(),
        };
        if let Some(index) = numbers().position(|number| number == self.target) {
            self.left = Some(train);
            self.left_by = Some(self.pushed).filter(|&pushed| pushed > self.target);
            self.joined = (index > 0).then(|| self.held(&delivery, index));
        } else if self.is_now {
            self.flushed.push(train);
            let count = delivery.parts().count();
            let last = delivery.parts().last().map(|part| part.buffer.as_ref().to_vec());
            let held = self.held(&delivery, count);
            self.before = last.map(|last| Before { held, last });
        }
        while let Some(part) = delivery.next_part() {
            self.numbers.give_back(part.buffer);
        }
    }

    fn discard(&mut self, buffer: PortBuffer) {
        self.numbers.give_back(buffer);
    }
}

impl Watcher {
    /// Describes the first `count` packets of a delivered train.
    fn held(&self, delivery: &Delivery<'_, PortBuffer>, count: usize) -> Held {
        let payload: usize = if delivery.is_joined() {
            delivery.parts().take(count).map(|part| part.range().len()).sum()
        } else {
            // An unmerged packet consists of one part.
            let mut parts = delivery.parts();
            parts.next().map_or(0, |part| payload_len(part.bytes(), self.link, &self.ports))
        };
        let payload_bytes = payload as u64;
        Held {
            since: delivery.parts().next().map_or(0, |part| *self.numbers.of(&part.buffer)),
            packets: count as u64,
            payload_bytes,
            gso_size: match delivery.meta.gso {
                Some(gso) => gso.size().map(u64::from),
                None => Some(payload_bytes).filter(|_| count == 1),
            },
        }
    }
}

fn payload_len(packet: &[u8], link: Option<LinkType>, ports: &Ports) -> usize {
    let Some(link) = link else { return 0 };
    let stack = dissect(packet, link, ports);
    Transport::of(&stack, packet.len()).map_or(0, |transport| transport.payload)
}

impl Receiver for Watcher {
    fn keep(&mut self, seen: &Seen<'_>) -> PortBuffer {
        let (buffer, number) = self.numbers.add(&seen.data);
        *number = seen.packet.number;
        buffer
    }
}

/// State of the target when it was pushed.
struct FoundPacket {
    facts: PacketFacts,
    data: Vec<u8>,
    link: Option<LinkType>,
    ports: Ports,
    fate: Fate,
}

impl FoundPacket {
    fn new(seen: &Seen<'_>, judge: &mut Judge, fate: Fate, first_ns: Option<u64>) -> Self {
        let Seen { packet, link, ports, .. } = *seen;
        let mut facts = PacketFacts {
            number: packet.number,
            time_ns: packet
                .timestamp_ns
                .zip(first_ns)
                .map(|(time, first)| i128::from(time) - i128::from(first)),
            bytes: u64::from(packet.original_len).max(packet.data.len() as u64),
            endpoints: None,
            protocol: format!("link type {}", packet.description.link_type),
            sequence: None,
            headers: "not parsed".into(),
            checksum: None,
            judgment: None,
        };
        if let Some(link) = link {
            let said = packet.meta();
            let stack = dissect(packet.data, link, &ports);
            let sight = Sight::new(packet, &said, &stack, link, ports);
            let judgment = seen.judgment.map(|judgment| judge.testify(&sight, judgment));
            facts.judgment = judgment.map(|judgment| JudgmentFacts::of(&judgment));
            let mut levels = Levels::default();
            judge_checksums(
                packet.data,
                packet.is_cut(),
                &stack,
                meta::claim(&said, &stack),
                &mut levels,
            );
            facts.checksum = levels.worst().map(ChecksumVerdict::name);
            facts.protocol = protocol(&stack);
            facts.headers = headers(packet.data, &stack);
            facts.endpoints = addresses(packet.data, &stack)
                .map(|(source, destination)| format!("{source} > {destination}"));
            if let Some(transport) = sight.transport {
                facts.endpoints = Some(sight.endpoints.to_string());
                facts.sequence = transport.is_tcp().then(|| {
                    let at = transport.layer.offset as usize + tcp::field::SEQUENCE.start;
                    let from = u32_at(packet.data, at);
                    (from, from.wrapping_add(transport.payload as u32))
                });
            }
        }
        Self { facts, data: seen.data.to_vec(), link, ports, fate }
    }

    fn report(self, input: &Input, profile: &Profile, watcher: Watcher) -> ExplainReport {
        let Watcher { flushed, before, left, joined, left_by, .. } = watcher;
        let fate = match self.fate {
            // The train that contained the packet on delivery shows what happened to it.
            Fate::Engine(Verdict::Waits) if joined.is_some() => Fate::Engine(Verdict::Joined),
            Fate::Engine(Verdict::Waits)
                if left.is_some_and(|train| train.closed != Close::Never.name()) =>
            {
                Fate::Engine(Verdict::Held)
            }
            fate => fate,
        };
        let (verdict, reason, sentence) = words(fate);
        let cause = match (fate, &before) {
            (Fate::Engine(Verdict::Refused(reason)), Some(before)) => self.link.and_then(|link| {
                let packets: [&[u8]; 2] = [&before.last, &self.data];
                cause::of_refusal(reason, before.held, packets, link, &self.ports, profile)
            }),
            (Fate::Engine(Verdict::Passed(reason)), _) => {
                Some(cause::of_pass(reason, &self.data, self.link, &self.ports, profile))
            }
            _ => None,
        };
        let MergeCause { detail, law, limit, remedy } = cause.unwrap_or_default();
        let met = match fate {
            Fate::Engine(Verdict::Joined) => joined,
            // Evicted trains belong to other flows.
            Fate::Engine(Verdict::Refused(_) | Verdict::Passed(_)) => before.map(|b| b.held),
            _ => None,
        };
        let ended = left.and_then(|train| {
            let close = Close::ALL.iter().find(|close| close.name() == train.closed)?;
            let by = left_by.filter(|_| matches!(close, Close::NoMerge | Close::Barrier));
            let limit = cause::limit_of_close(*close, train.packets, profile);
            (*close != Close::Never).then(|| Ended { sentence: close.sentence(), limit, by })
        });
        ExplainReport {
            path: input.path(),
            profile: profile.name.to_string(),
            packet: self.facts,
            lookup: met,
            decision: Decision {
                verdict,
                reason,
                detail,
                law,
                limit,
                remedy,
                sentence: sentence.map(str::to_owned),
            },
            flushed,
            left,
            ended,
            interrupted: input.interruption(),
        }
    }
}

/// Returns three strings for an outcome: the verdict, the reason name, and a sentence.
fn words(fate: Fate) -> (&'static str, Option<&'static str>, Option<&'static str>) {
    match fate {
        Fate::Engine(Verdict::Held) => ("held", None, None),
        Fate::Engine(Verdict::Joined) => ("joined", None, None),
        Fate::Engine(Verdict::Waits) => (
            "waited",
            None,
            Some(
                "The packet was queued, and examined at the end of the poll or when its sequence number \
                 was due. The result is counted, but not recorded per packet.",
            ),
        ),
        Fate::Engine(Verdict::Refused(reason)) => {
            ("refused", Some(reason.name()), Some(reason.sentence()))
        }
        Fate::Engine(Verdict::Passed(reason)) => {
            let is_end = matches!(reason, Pass::TcpPush | Pass::TcpFinish);
            let sentence = if is_end {
                "The packet would end a train, but its flow has no train (rule G37)."
            } else if reason == Pass::Superframe {
                "It is already a superframe, which passes unchanged (rule G8). grosso wire shows its packets."
            } else {
                reason.sentence()
            };
            ("passed", Some(reason.name()), Some(sentence))
        }
        Fate::Aside(aside) => ("aside", Some(Aside::name(aside)), Some(Aside::sentence(aside))),
    }
}

/// Returns TSval and TSecr from the TCP timestamp option.
fn timestamps(packet: &[u8], transport: &Transport) -> Option<(u32, u32)> {
    let option = options(packet, transport).find(|(kind, _)| *kind == 8)?;
    (option.1.len() == 10).then(|| (u32_at(option.1, 2), u32_at(option.1, 6)))
}

/// Returns the TCP options, each as its kind and its complete bytes.
fn options<'a>(
    packet: &'a [u8],
    transport: &Transport,
) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
    let start = transport.layer.offset as usize + tcp::HEADER_LEN;
    let mut rest = packet.get(start..transport.layer.end()).unwrap_or_default();
    core::iter::from_fn(move || {
        let len = match rest {
            [] | [0, ..] => return None,
            [1, ..] => 1,
            [_, len, ..] => (*len as usize).max(2),
            [_] => return None,
        };
        let (option, after) = rest.split_at_checked(len)?;
        rest = after;
        Some((option[0], option))
    })
}

/// Formats the headers, including the TCP options: `eth ip4 tcp(nop,nop,ts)`.
fn headers(packet: &[u8], stack: &Stack) -> String {
    let mut text = stack.to_string();
    if let Some(transport) = Transport::of(stack, packet.len()).filter(Transport::is_tcp) {
        let names = options(packet, &transport).map(|(kind, _)| match kind {
            1 => "nop".into(),
            2 => "mss".into(),
            3 => "ws".into(),
            4 => "sackok".into(),
            5 => "sack".into(),
            8 => "ts".into(),
            other => other.to_string(),
        });
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            text.push_str(&format!("({})", names.join(",")));
        }
    }
    text
}
