//! `grosso reassemble`: join IP fragments into datagrams, and lose nothing.
//!
//! The capture is read twice (ADR 0045): first to learn which fragments become datagrams, then to write those datagrams
//! in the place of their last fragment and everything else where it stands.

use std::{sync::atomic::Ordering, time::Instant};

use grosso_io::capture::{Entry, Packet, PacketMeta};
use grosso_wire::{LinkType, Ports};

use crate::{
    arguments::{Reassemble, reject_filter},
    error::{Exit, Failure},
    fragments::{self, Arrival, Joined, Lanes, Survey},
    input::{Input, Next, Session, Unparsed},
    meta,
    output::Output,
    report::{self, InputFacts, OutputFacts, Tool},
    reports::reassemble::ReassembleReport,
    twice::Twice,
    units,
};

/// Runs the command.
pub(crate) fn run(options: &Reassemble, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    reject_filter(&options.files.filter.words, "reassemble")?;
    let capture = Twice::open(&options.files.read, session)?;
    let mut input = capture.input(false, session)?;
    let format = options.files.format(input.reader.format());
    let output = Output::create_for_longer(&options.files.write, format, &input, session)?;
    // The second reading must decide as the first did.
    let seed = super::random_seed();
    let mut survey = Survey::default();
    let mut lanes = Lanes::new(fragments::rules(&options.waiting), seed);
    let given = options.tunnels.ports();
    let packets = self::survey(&mut input, given, &mut survey, &mut lanes)?;
    if session.interrupted.load(Ordering::Relaxed) {
        // Nothing will be written, so the findings about it are dropped.
        survey = Survey::default();
    }

    let mut input = capture.input(options.files.keeps_hash(session), session)?;
    let mut work = ReassembleWork {
        output,
        survey,
        lanes: Lanes::new(fragments::rules(&options.waiting), seed),
        given,
        datagram: Vec::new(),
        unparsed: Unparsed::default(),
        bytes: 0,
    };
    let links = input.links;
    let ending = input.each(|entry| match entry {
        // If the file still grows, its new packets are unknown to the first reading.
        Entry::Packet(packet) if packet.number > packets => Ok(Next::Stop),
        _ => work.entry(entry, links.of_entry(entry)).map(|()| Next::Go),
    })?;
    let ReassembleWork { output, survey, unparsed, bytes, .. } = work;
    let (facts, place) = output.finish(&input)?;
    let elapsed = start.elapsed();
    let mut report = report(survey, input.facts(bytes), facts, session);
    report.elapsed_s = elapsed.as_secs_f64();
    let is_refused = session.strict && report.found.is_incomplete();
    report::print(&mut report, &mut session.talk, place)?;
    report::remark_rate(&session.talk, report.input.packets, bytes, elapsed);
    let exit = ending.conclude(&input, session, "processed and written")?;
    unparsed.conclude(&input, "Packets pass through unchanged; ")?;
    Ok(match exit {
        Exit::Yes if is_refused => Exit::No,
        exit => exit,
    })
}

/// The first reading, up to the end of the capture or its damage. Returns the number of packets.
fn survey(
    input: &mut Input,
    given: Ports,
    survey: &mut Survey,
    lanes: &mut Lanes,
) -> Result<u64, Failure> {
    let links = input.links;
    // Damage is reported by the second reading.
    let _ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) => {
                if let Some(link) = links.of(packet) {
                    let said = packet.meta();
                    let ports = meta::ports(&said, given);
                    let arrival = Arrival::of(packet, &said, link, ports);
                    survey.packet(packet.number, &arrival, lanes, None);
                }
            }
            Entry::Block(block) if block.is_section_header() => survey.finish(lanes),
            Entry::Block(_) => {}
        }
        Ok(Next::Go)
    })?;
    survey.finish(lanes);
    Ok(input.reader.packets())
}

fn report(
    survey: Survey,
    input: InputFacts,
    output: OutputFacts,
    session: &mut Session,
) -> ReassembleReport {
    note_unlisted(survey.unlisted, session);
    ReassembleReport {
        schema: "grosso.reassemble/1",
        tool: Tool::THIS,
        input,
        output,
        found: survey.found,
        lists_all: session.talk.verbose,
        elapsed_s: 0.0,
        warnings: Vec::new(),
    }
}

/// Notes the number of sets of fragments that are in no list.
pub(super) fn note_unlisted(unlisted: u64, session: &mut Session) {
    if unlisted > 0 {
        let sets = units::count(unlisted, "set");
        session.talk.note(format!("{sets} of fragments that stayed as they came are not listed"));
    }
}

/// The second reading.
struct ReassembleWork {
    output: Output,
    survey: Survey,
    lanes: Lanes,
    /// The ports of tunnels for packets about which the capture says nothing.
    given: Ports,
    datagram: Vec<u8>,
    unparsed: Unparsed,
    bytes: u64,
}

impl ReassembleWork {
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
        let ports = meta::ports(&said, self.given);
        self.lanes.push(&Arrival::of(packet, &said, link, ports), &mut joined);
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
