//! `grosso decap`: take packets out of tunnels, and join fragments around, between and inside them.
//!
//! What becomes of a fragment is known only behind it, so a recursive run reads the capture twice (ADR 0045, ADR 0050).

mod joiner;
mod unwrap;

use std::{hash::RandomState, sync::atomic::Ordering, time::Instant};

use grosso_io::capture::{Entry, Packet};
use grosso_wire::LinkType;

use self::{
    joiner::{Apart, Joiner, Learning},
    unwrap::{Depth, Fate, Unwrapper},
};
use crate::{
    arguments::Decap,
    error::{Exit, Failure},
    input::{Input, Next, Session},
    output::Output,
    report::{self, InputFacts, Tool, decap::DecapReport, units},
    transform::{self, Transform},
    twice::Twice,
};

/// Runs the command.
pub(crate) fn run(options: &Decap, session: &mut Session) -> Result<Exit, Failure> {
    if options.recursive { run_recursive(options, session) } else { run_once(options, session) }
}

/// One tunnel of each packet.
fn run_once(options: &Decap, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    let (mut input, output) = transform::open(&options.files, "decap", session)?;
    let unwrapper = Unwrapper::new(options.tunnels.ports(), Depth::One, RandomState::new());
    let mut work = Work { output, unwrapper, joiner: Apart };
    let done = transform::transform(&mut input, &mut work)?;
    let report = finish(work, &input, &done, session, start)?;
    let is_refused = session.strict && report.is_incomplete();
    done.conclude(&input, session, is_refused)
}

/// All tunnels, and fragments in between.
fn run_recursive(options: &Decap, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    super::reject_filter(&options.files.filter.words, "decap")?;
    let capture = Twice::open(&options.files.read, session)?;
    let mut input = capture.input(false, session)?;
    let format = options.files.format(input.reader.format());
    let output = Output::create_for_longer(&options.files.write, format, &input, session)?;
    let mut learning = Learning::new(&options.waiting);
    // The second reading has to tell tunnels apart by the same numbers.
    let hasher = RandomState::new();
    let mut unwrapper = Unwrapper::new(options.tunnels.ports(), Depth::All, hasher.clone());
    learn(&mut input, &mut learning, &mut unwrapper)?;
    if session.interrupted.load(Ordering::Relaxed) {
        // Nothing will be written, so there is nothing to say of what it would have been.
        learning = Learning::new(&options.waiting);
    }

    let mut input = capture.input(options.files.keeps_hash(session), session)?;
    let unwrapper = Unwrapper::new(options.tunnels.ports(), Depth::All, hasher);
    let mut work = Work { output, unwrapper, joiner: learning.learned() };
    let done = transform::transform(&mut input, &mut work)?;
    let report = finish(work, &input, &done, session, start)?;
    let is_refused = session.strict && report.is_incomplete();
    done.conclude(&input, session, is_refused)
}

/// The first reading: what becomes of every fragment, at every depth.
fn learn(
    input: &mut Input,
    learning: &mut Learning,
    unwrapper: &mut Unwrapper,
) -> Result<(), Failure> {
    let links = input.links;
    // Damage is for the second reading to report.
    let _ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) => {
                if let Some(link) = links.of(packet) {
                    unwrapper.unwrap(packet, link, learning);
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

/// Completes the output and prints what was done.
fn finish(
    work: Work<impl Joiner>,
    input: &Input,
    done: &transform::Transformed,
    session: &mut Session,
    start: Instant,
) -> Result<DecapReport, Failure> {
    let Work { output, unwrapper, joiner } = work;
    let (facts, place) = output.finish(input)?;
    let (recursive, joined, unlisted) = joiner.found();
    unwrapper.suspicions.note(session);
    let tally = unwrapper.tally;
    super::reassemble::note_unlisted(unlisted, session);
    let fragments = tally.refused.count(FRAGMENT);
    if fragments > 0 && !recursive {
        let packets = units::count(fragments, "packet");
        session.talk.note(format!("{packets} left as they were: fragments, perhaps of tunnels"));
        session.talk.hint("--recursive joins them");
    }
    let elapsed = start.elapsed();
    let mut report = DecapReport {
        schema: "grosso.decap/1",
        tool: Tool::THIS,
        input: InputFacts::of(input, done.bytes),
        output: facts,
        recursive,
        tally,
        joined,
        lists_all: session.talk.verbose,
        elapsed_s: elapsed.as_secs_f64(),
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, place)?;
    report::remark_rate(session, report.input.packets, done.bytes, elapsed);
    Ok(report)
}

/// The capture on its way.
struct Work<J> {
    output: Output,
    unwrapper: Unwrapper,
    joiner: J,
}

impl<J: Joiner> Transform for Work<J> {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        link: LinkType,
    ) -> Result<(), Failure> {
        match self.unwrapper.unwrap(packet, link, &mut self.joiner) {
            Fate::Unchanged => self.output.copy(entry),
            Fate::Waits => Ok(()),
            Fate::Changed(meta) => {
                self.output.write_changed(&meta, self.unwrapper.packet(), packet)
            }
        }
    }

    fn section(&mut self) {
        self.joiner.section();
    }
}

/// The engine's name for what has to be joined first.
const FRAGMENT: &str = grosso::tunnel::decapsulate::Refusal::Fragment.name();
