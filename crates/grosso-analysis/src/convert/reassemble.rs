//! `grosso reassemble`: join IP fragments into datagrams, and lose nothing.
//!
//! The capture is read twice (ADR 0045): first to learn which fragments become datagrams, then to write those datagrams
//! in the place of their last fragment and everything else where it stands.

use std::sync::atomic::Ordering;

use grosso::reassemble::reason::Pass;
use grosso_capture::{Entry, Packet, PacketMeta};
use grosso_wire::{LinkType, Ports};

use crate::{
    capture::{
        CaptureCommand, Files, Input, Next, Outcome, Output, Session, Transform, random_seed,
        transform,
    },
    error::Failure,
    fragments::{self, Arrival, Joined, Lanes, Survey, Waiting},
    meta,
    report::{InputFacts, OutputFacts, Tool},
    reports::reassemble::ReassembleReport,
    units,
};

/// Joining of IP fragments into datagrams.
#[derive(Clone, Debug)]
pub struct Reassemble {
    /// Tunnel ports for packets whose ports the capture does not record.
    pub ports: Ports,
    /// Bounds of the wait for fragments, and the policy for overlaps.
    pub waiting: Waiting,
    /// Whether the text of the report lists all incomplete datagrams.
    pub lists_all: bool,
}

impl CaptureCommand for Reassemble {
    type Report = ReassembleReport;

    fn run(
        self,
        mut files: Files,
        session: &Session,
    ) -> Result<Outcome<ReassembleReport>, Failure> {
        files.captures.keep(session)?;
        let mut input = files.captures.first_pass(session)?;
        let output = files.output_for_longer(&input, session)?;
        // The second reading must decide as the first did.
        let seed = random_seed();
        let mut survey = Survey::default();
        let mut lanes = Lanes::new(fragments::rules(&self.waiting), seed);
        let given = self.ports;
        let packets = learn(&mut input, given, &mut survey, &mut lanes)?;
        if session.interrupted.load(Ordering::Relaxed) {
            // Nothing will be written, so the findings about it are dropped.
            survey = Survey::default();
        }

        let mut input = files.input(session)?;
        let mut work = ReassembleWork {
            output,
            survey,
            lanes: Lanes::new(fragments::rules(&self.waiting), seed),
            given,
            datagram: Vec::new(),
            packets,
        };
        let done = transform(&mut input, &mut work)?;
        let ReassembleWork { output, survey, .. } = work;
        let (facts, place) = output.finish(&input)?;
        let mut report = report(survey, input.facts(done.bytes), facts, session);
        report.lists_all = self.lists_all;
        let is_refused = session.strict && report.found.is_incomplete();
        Ok(done.outcome((report, place), input, is_refused))
    }
}

/// The first reading, up to the end of the capture or its damage. Returns the number of packets.
fn learn(
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
    session: &Session,
) -> ReassembleReport {
    note_unlisted(survey.unlisted, session);
    if survey.found.passed.contains_key(Pass::Ipv4Checksum.name()) {
        // Anonymised captures often have wrong checksums in all headers: a receiver would drop these packets.
        session.hint(
            "fragments with a wrong header checksum stay unchanged; if the capture was \
             anonymised, `grosso csum fix --only bad` corrects the checksums",
        );
    }
    ReassembleReport {
        schema: ReassembleReport::FORM.name,
        tool: Tool::THIS,
        input,
        output,
        found: survey.found,
        lists_all: false,
        elapsed_s: session.elapsed_s(),
        warnings: Vec::new(),
    }
}

/// Notes the number of sets of fragments that are in no list.
pub(super) fn note_unlisted(unlisted: u64, session: &Session) {
    if unlisted > 0 {
        let sets = units::count(unlisted, "set");
        session.note(format!("not listed: {sets} of unchanged fragments"));
    }
}

/// The second reading.
struct ReassembleWork {
    output: Output,
    survey: Survey,
    lanes: Lanes,
    /// Tunnel ports for packets whose ports the capture does not record.
    given: Ports,
    datagram: Vec<u8>,
    /// The number of packets that the first reading found: it knows nothing of those by which the file has grown since.
    packets: u64,
}

impl Transform for ReassembleWork {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn section(&mut self) {
        self.lanes.finish(&mut Joined::default());
    }

    fn last(&self) -> u64 {
        self.packets
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
