//! `grosso reassemble`: joins IP fragments into datagrams, without losing packets.
//!
//! The capture is read twice (ADR 0045). The first pass finds out which fragments form complete datagrams. The second
//! pass writes each datagram in place of its last fragment, and leaves everything else unchanged.

use std::sync::atomic::Ordering;

use grosso::reassemble::reason::Pass;
use grosso_capture::{Entry, PacketMeta};
use grosso_wire::Ports;

use crate::{
    capture::{
        CaptureCommand, Files, Frame, Input, Next, Outcome, Output, Session, Transform,
        random_seed, transform,
    },
    error::Failure,
    fragments::{self, Arrival, Joined, Lanes, Survey, Waiting},
    meta,
    report::{InputFacts, OutputFacts},
    reports::reassemble::ReassembleReport,
    units,
};

/// Options for `grosso reassemble`, which joins IP fragments into datagrams.
#[derive(Clone, Debug)]
pub struct Reassemble {
    /// UDP ports that identify tunnels in packets for which the capture does not record any.
    pub ports: Ports,
    /// Limits on incomplete datagrams, and the policy for overlapping fragments.
    pub waiting: Waiting,
    /// Whether the text report lists all incomplete datagrams.
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
        // The second pass must make the same decisions as the first.
        let seed = random_seed();
        let mut survey = Survey::default();
        let mut lanes = Lanes::new(fragments::rules(&self.waiting), seed);
        let given = self.ports;
        let packets = learn(&mut input, given, &mut survey, &mut lanes)?;
        if session.interrupted.load(Ordering::Relaxed) {
            // No output will be written, so drop these findings.
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

/// Reads the capture for the first time, up to its end or the first damage. Returns the number of packets.
fn learn(
    input: &mut Input,
    given: Ports,
    survey: &mut Survey,
    lanes: &mut Lanes,
) -> Result<u64, Failure> {
    let links = input.links;
    // Damage is reported in the second pass.
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
        // In anonymized captures, header checksums are often wrong throughout. A receiver would drop such packets.
        session.hint(
            "fragments with a wrong header checksum stay unchanged; if the capture was anonymized, \
             correct the checksums with `grosso csum fix --only bad`",
        );
    }
    ReassembleReport {
        input,
        output,
        found: survey.found,
        lists_all: false,
        elapsed_s: session.elapsed_s(),
    }
}

/// Notes how many fragment sets are not listed.
pub(super) fn note_unlisted(unlisted: u64, session: &Session) {
    if unlisted > 0 {
        let sets = units::count(unlisted, "set");
        session.note(format!("{sets} of unchanged fragments not listed"));
    }
}

/// State of the second pass.
struct ReassembleWork {
    output: Output,
    survey: Survey,
    lanes: Lanes,
    /// UDP ports that identify tunnels in packets for which the capture does not record any.
    given: Ports,
    datagram: Vec<u8>,
    /// Number of packets in the first pass. Packets appended later are not included.
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

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
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
