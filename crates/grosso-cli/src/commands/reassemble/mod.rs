//! `grosso reassemble`: join IP fragments to datagrams, and lose nothing.
//!
//! The capture is read twice (ADR 0045): first to learn which fragments become datagrams, then to write those datagrams
//! in the place of their last fragment and everything else where it stands.

mod lanes;
mod survey;

use std::time::Instant;

use grosso::reassemble::{Datagram, Mode, Rules};
use grosso_io::capture::{Entry, Packet, PacketMeta};
use grosso_wire::LinkType;

use self::{
    lanes::{Lanes, Visitor},
    survey::Survey,
};
use super::reject_filter;
use crate::{
    arguments::Reassemble,
    error::{Exit, Failure},
    input::{Next, Session, Unparsed},
    meta,
    output::Output,
    report::{self, InputFacts, OutputFacts, Tool, reassemble::ReassembleReport, units},
    twice::Twice,
};

/// Runs the command.
pub(crate) fn run(options: &Reassemble, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    reject_filter(&options.files.filter.words, "reassemble")?;
    let capture = Twice::open(&options.files.read, session)?;
    let mut input = capture.input(false, session)?;
    let format = options.files.format(input.reader.format());
    let output = Output::create_for_longer(&options.files.write, format, &input, session)?;
    // The second reading has to decide as the first did.
    let seed = super::random_seed();
    let mut survey = Survey::default();
    let mut lanes = Lanes::new(rules(options), seed);
    let packets = survey.read(&mut input, &mut lanes)?;

    let mut input = capture.input(options.files.keeps_hash(session), session)?;
    let mut work = Work {
        output,
        survey,
        lanes: Lanes::new(rules(options), seed),
        datagram: Vec::new(),
        unparsed: Unparsed::default(),
        bytes: 0,
    };
    let links = input.links;
    let ending = input.each(|entry| match entry {
        // Of a file that still grows, no more is known.
        Entry::Packet(packet) if packet.number > packets => Ok(Next::Stop),
        _ => work.entry(entry, links.of_entry(entry)).map(|()| Next::Go),
    })?;
    let Work { output, survey, unparsed, bytes, .. } = work;
    let (facts, place) = output.finish(&input)?;
    let elapsed = start.elapsed();
    let mut report = report(survey, InputFacts::of(&input, bytes), facts, session);
    report.elapsed_s = elapsed.as_secs_f64();
    let is_refused = session.strict && report.is_incomplete();
    report::print(&mut report, &mut session.talk, place)?;
    report::remark_rate(session, report.input.packets, bytes, elapsed);
    let exit = ending.conclude(&input, session, "processed and written")?;
    unparsed.conclude(&input, "Packets pass through unchanged; ")?;
    Ok(match exit {
        Exit::Yes if capture.is_interrupted => Exit::Interrupted,
        Exit::Yes if is_refused => Exit::No,
        exit => exit,
    })
}

fn rules(options: &Reassemble) -> Rules {
    let mut rules = Rules::new(Mode::Coalesce);
    rules.overlap = options.overlap.into();
    rules.limits.datagrams = DATAGRAMS_MAX;
    rules.limits.memory_bytes = options.memory;
    // In a file nobody keeps others from being joined: when memory is short, the datagram goes that waited longest.
    rules.limits.source_bytes = usize::MAX;
    rules.limits.ipv4_ns = options.timeout;
    rules.limits.ipv6_ns = options.timeout;
    rules
}

fn report(
    survey: Survey,
    input: InputFacts,
    output: OutputFacts,
    session: &mut Session,
) -> ReassembleReport {
    if survey.unlisted > 0 {
        let sets = units::count(survey.unlisted, "set");
        session.talk.note(format!("{sets} of fragments that stayed as they came are not listed"));
    }
    ReassembleReport {
        schema: "grosso.reassemble/1",
        tool: Tool::THIS,
        input,
        output,
        datagrams: survey.datagrams,
        fragments: survey.fragments,
        duplicates: survey.duplicates,
        left: survey.left,
        sets: survey.sets,
        alone: survey.alone,
        passed: survey.passed,
        lists_all: session.talk.verbose,
        elapsed_s: 0.0,
        warnings: Vec::new(),
    }
}

/// The second reading.
struct Work {
    output: Output,
    survey: Survey,
    lanes: Lanes,
    datagram: Vec<u8>,
    unparsed: Unparsed,
    bytes: u64,
}

impl Work {
    fn entry(&mut self, entry: &Entry<'_>, link: Option<LinkType>) -> Result<(), Failure> {
        match entry {
            Entry::Packet(packet) => {
                self.bytes += packet.data.len() as u64;
                match link {
                    Some(link) => self.packet(entry, packet, link),
                    None => {
                        self.unparsed.count(packet);
                        self.output.copy(entry)
                    }
                }
            }
            Entry::Block(block) => {
                if block.is_section_header() {
                    self.lanes.finish(&mut Joined::default());
                }
                if block.is_copyable() { self.output.copy(entry) } else { Ok(()) }
            }
        }
    }

    fn packet(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        link: LinkType,
    ) -> Result<(), Failure> {
        let mut joined = Joined { is_whole: false, bytes: core::mem::take(&mut self.datagram) };
        let said = packet.meta();
        self.lanes.push(packet, &said, link, &mut joined);
        let written = if joined.is_whole {
            let meta = PacketMeta { original_len: 0, ..meta::of_segment(&said, false) };
            self.output.write_changed(&meta, &joined.bytes, packet)
        } else if self.survey.joined.contains(packet.number) {
            Ok(())
        } else {
            self.output.copy(entry)
        };
        self.datagram = joined.bytes;
        written
    }
}

/// The datagram that a packet completed, if it did.
#[derive(Default)]
struct Joined {
    is_whole: bool,
    bytes: Vec<u8>,
}

impl Visitor for Joined {
    fn datagram(&mut self, _lane: usize, datagram: &Datagram<'_, Vec<u8>>) {
        self.is_whole = true;
        self.bytes.clear();
        datagram.copy_to(&mut self.bytes);
    }
}

/// Most incomplete datagrams of an interface and direction at once: more than the default memory has room for.
const DATAGRAMS_MAX: usize = 16384;
