//! `grosso decap`: decapsulates packets, and reassembles fragments outside, between and inside tunnels.
//!
//! Whether a fragment is joined depends on later fragments, so a recursive run reads the capture twice (ADR 0045, ADR
//! 0050).

mod joiner;
mod unwrap;

use std::{hash::RandomState, sync::atomic::Ordering};

use grosso_capture::{Entry, Packet, PacketMeta};
use grosso_wire::LinkType;

use self::{
    joiner::{Joiner, Learning, Separate},
    unwrap::{DecapFate, DepthLimit, Unwrapper},
};
use super::cutter::{Cutter, How, Uncut};
use crate::{
    capture::{
        CaptureCommand, Files, Frame, Input, Next, Outcome, Output, Session, Transform,
        Transformed, transform,
    },
    error::Failure,
    evidence::{Evidence, Given, Judge, Nature, Sight, Tally},
    fragments::Waiting,
    line::Timing,
    reports::decap::DecapReport,
    units,
};

/// Options for `grosso decap`, which decapsulates packets.
#[derive(Clone, Debug)]
pub struct Decap {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Limits on incomplete datagrams, and the policy for overlapping fragments. Used only if all tunnels are removed.
    pub waiting: Waiting,
    /// Whether to remove all tunnels and join the fragments between them.
    pub recursive: bool,
    /// Whether the text report lists all incomplete datagrams.
    pub lists_all: bool,
}

impl CaptureCommand for Decap {
    type Report = DecapReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<DecapReport>, Failure> {
        let run = if self.recursive { run_recursive } else { run_once };
        let mut outcome = run(&self, files, session)?;
        outcome.report.lists_all = self.lists_all;
        Ok(outcome)
    }
}

/// Removes one tunnel from each packet.
fn run_once(
    options: &Decap,
    files: Files,
    session: &Session,
) -> Result<Outcome<DecapReport>, Failure> {
    let (mut input, output) = files.open(session)?;
    let given = options.given;
    let unwrapper =
        Unwrapper::new(given.ports, DepthLimit::One, session.strict, RandomState::new());
    let mut work =
        DecapWork { output, datagrams: Datagrams::new(given), unwrapper, joiner: Separate };
    let done = transform(&mut input, &mut work)?;
    finish(work, input, done, session)
}

/// Removes all tunnels, and reassembles fragments between them.
fn run_recursive(
    options: &Decap,
    mut files: Files,
    session: &Session,
) -> Result<Outcome<DecapReport>, Failure> {
    files.captures.keep(session)?;
    let mut input = files.captures.first_pass(session)?;
    let output = files.output_for_longer(&input, session)?;
    let mut learning = Learning::new(&options.waiting);
    // The second pass must assign the same numbers to tunnels as the first pass.
    let hasher = RandomState::new();
    let given = options.given;
    let mut unwrapper =
        Unwrapper::new(given.ports, DepthLimit::All, session.strict, hasher.clone());
    learn(&mut input, &mut learning, &mut Datagrams::new(given), &mut unwrapper)?;
    if session.interrupted.load(Ordering::Relaxed) {
        // No output will be written, so drop these findings.
        learning = Learning::new(&options.waiting);
    }

    let mut input = files.input(session)?;
    let unwrapper = Unwrapper::new(given.ports, DepthLimit::All, session.strict, hasher);
    let datagrams = Datagrams::new(given);
    let mut work = DecapWork { output, datagrams, unwrapper, joiner: learning.learned() };
    let done = transform(&mut input, &mut work)?;
    finish(work, input, done, session)
}

/// Reads the capture for the first time, and records what happens to every fragment at every depth.
fn learn(
    input: &mut Input,
    learning: &mut Learning,
    datagrams: &mut Datagrams,
    unwrapper: &mut Unwrapper,
) -> Result<(), Failure> {
    let links = input.links;
    // Damage is reported in the second pass.
    let _ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) => {
                if let Some(link) = links.of(packet) {
                    // The second pass also reports superframes that cannot be split.
                    let _shown = datagrams.each(packet, link, |packet, said, _| {
                        unwrapper.unwrap(packet, said, link, learning);
                        Ok(())
                    })?;
                }
            }
            Entry::Block(block) if block.is_section_header() => learning.section(),
            Entry::Block(_) => {}
        }
        Ok(Next::Go)
    })?;
    learning.section();
    Ok(())
}

/// Completes the output capture, and returns the result.
fn finish(
    work: DecapWork<impl Joiner>,
    input: Input,
    done: Transformed,
    session: &Session,
) -> Result<Outcome<DecapReport>, Failure> {
    let DecapWork { output, datagrams, unwrapper, joiner } = work;
    datagrams.tally.notes().for_each(|note| session.note(note));
    let (facts, place) = output.finish(&input)?;
    let (recursive, joined, unlisted) = joiner.found();
    for (note, hint) in unwrapper.suspicions.notes() {
        session.note(note);
        session.hint(&hint);
    }
    for ((class, kind), count) in &unwrapper.critical_options {
        let packets = units::count(*count, "packet");
        session.note(format!(
            "{packets} have the critical Geneve option {class:#06x} {kind:#04x}: an endpoint that does not support it \
             drops them"
        ));
    }
    if unwrapper.reserved_bits > 0 {
        let packets = units::count(unwrapper.reserved_bits, "packet");
        session.note(format!("{packets}: reserved bits of the tunnel header ignored (RFC 7348)"));
    }
    let tally = unwrapper.tally;
    tally.note().into_iter().for_each(|note| session.note(note));
    super::reassemble::note_unlisted(unlisted, session);
    let fragments = tally.refused.count(FRAGMENT);
    if fragments > 0 && !recursive {
        let packets = units::count(fragments, "packet");
        session.note(format!(
            "{packets} left unchanged: IP fragments that may belong to tunnel packets"
        ));
        session.hint("to reassemble the fragments, pass --recursive");
    }
    let report = DecapReport {
        input: input.facts(done.bytes),
        output: facts,
        recursive,
        guessed: datagrams.tally.guessed,
        contradictions: datagrams.tally.contradictions(),
        tally,
        joined,
        lists_all: false,
        elapsed_s: session.elapsed_s(),
    };
    let is_refused = session.strict && !report.is_certain();
    Ok(done.outcome((report, place), input, is_refused))
}

/// Splitter for superframes made of tunnel packets. If a tunnel passes many datagrams to the device at once, they
/// appear as one superframe with the tunnel headers of the first datagram. Buffers are reused.
struct Datagrams {
    judge: Judge,
    cutter: Cutter,
    tally: Tally,
}

impl Datagrams {
    fn new(given: Given) -> Self {
        Self { judge: Judge::new(given), cutter: Cutter::default(), tally: Tally::default() }
    }

    /// Calls `show` for the frame, or for each packet if the frame is a superframe made of tunnel packets. Returns the
    /// reason if such a superframe cannot be split.
    fn each(
        &mut self,
        packet: &Packet<'_>,
        link: LinkType,
        mut show: impl FnMut(&Packet<'_>, &PacketMeta, Option<Timing>) -> Result<(), Failure>,
    ) -> Result<Result<(), &'static str>, Failure> {
        let (said, ports, stack) = self.judge.parse(packet, link);
        let judgment = self.judge.judge(&Sight::new(packet, &said, &stack, link, ports));
        let how = match judgment.nature {
            // A superframe inside a tunnel remains a superframe after decapsulation, unless the user specified a
            // segment size.
            Nature::Superframe { gso, ports: around, .. }
                if around != ports || judgment.by == Some(Evidence::Given) =>
            {
                self.tally.count(&judgment);
                How { gso, link, ports: around }
            }
            _ => return show(packet, &said, None).map(Ok),
        };
        let cut = self.cutter.each(packet, &said, how, |meta, bytes, timing| {
            let mut datagram = *packet;
            datagram.data = bytes;
            datagram.original_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            datagram.timestamp_ns = meta.timestamp_ns;
            show(&datagram, meta, Some(timing))
        })?;
        match cut {
            Err(Uncut::Whole) => show(packet, &said, None).map(Ok),
            cut => Ok(cut.map_err(Uncut::name)),
        }
    }
}

/// State of the command while it reads the capture.
struct DecapWork<J> {
    output: Output,
    datagrams: Datagrams,
    unwrapper: Unwrapper,
    joiner: J,
}

impl<J: Joiner> Transform for DecapWork<J> {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        let Self { output, datagrams, unwrapper, joiner } = self;
        let shown = datagrams.each(packet, link, |datagram, said, timing| {
            match (unwrapper.unwrap(datagram, said, link, joiner), timing) {
                (DecapFate::Unchanged, None) => output.copy(entry),
                (DecapFate::Unchanged, Some(timing)) => {
                    output.write_part(said, datagram.data, timing, None)
                }
                (DecapFate::Waits, _) => Ok(()),
                (DecapFate::Changed(meta), _) => {
                    output.write_changed(&meta, unwrapper.packet(), packet)
                }
            }
        })?;
        shown.or_else(|reason| {
            unwrapper.tally.refused.add(reason, packet.number);
            output.copy(entry)
        })
    }

    fn section(&mut self) {
        self.joiner.section();
    }
}

/// Reason name for packets that the engine rejects because they must first be reassembled.
const FRAGMENT: &str = grosso::tunnel::decapsulate::Refusal::Fragment.name();
