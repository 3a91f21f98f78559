//! `grosso wire`: converts a host capture to the packets as they were on the wire.

use grosso::meta::Gso;
use grosso_capture::{Entry, Packet, PacketMeta};
use grosso_wire::Stop;

use super::cutter::{Cutter, How, Uncut};
use crate::{
    capture::{
        CaptureCommand, Files, Frame, Outcome, Output, Session, Transform, survey, transform,
    },
    checksums::{Levels, complete},
    error::Failure,
    evidence::{CAPTURED_SHORT, Finish, Given, Judge, Nature, Sight, Tally, UDP_SIZE_UNKNOWN},
    line::Spacing,
    meta,
    report::Counts,
    reports::wire::{SizeCounts, SplitSuperframes, WireReport},
    suspicion::Suspicions,
    units,
};

/// Options for `grosso wire`, which converts a host capture to the packets as they were on the wire.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Choice of timestamps for a superframe's segments.
    pub spacing: Spacing,
}

impl CaptureCommand for Wire {
    type Report = WireReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<WireReport>, Failure> {
        let (mut input, mut output) = files.open(session)?;
        output.space(self.spacing);
        let judge = survey(&files.captures, self.given, session)?;
        let mut work = WireWork::new(output, judge, session.strict);
        let done = transform(&mut input, &mut work)?;
        note(&work, session);
        let WireWork { output, sizes, cutter, completed, left, tally, .. } = work;
        let (facts, place) = output.finish(&input)?;
        let report = WireReport {
            input: input.facts(done.bytes),
            output: facts,
            superframes: SplitSuperframes {
                split: cutter.cut,
                segments: cutter.segments,
                sizes: sizes.list(),
            },
            checksums_completed: completed,
            guessed: tally.guessed,
            contradictions: tally.contradictions(),
            left,
            elapsed_s: session.elapsed_s(),
        };
        let is_certain =
            report.left.is_empty() && report.guessed == 0 && report.contradictions == 0;
        let is_refused = session.strict && !is_certain;
        Ok(done.outcome((report, place), input, is_refused))
    }
}

/// Prints a note for each kind of packet that looked different on the wire. These notes are listed in the manual.
fn note(work: &WireWork, session: &Session) {
    for (note, hint) in work.suspicions.notes() {
        session.note(note);
        session.hint(&hint);
    }
    if work.udp_left > 0 {
        let frames = units::count(work.udp_left, "UDP superframe");
        let payload = work.udp_left_bytes;
        session.note(format!(
            "{frames} ({payload} B payload) not split: the capture does not record the segment \
             size."
        ));
        // A tunneled packet must not be segmented after the tunnel's UDP header.
        if work.suspicions.is_empty() {
            session.hint(
                "if you know the sender's segment size, add --uso-size BYTES; \
                 `grosso capture` records it.",
            );
        }
    }
    if let Some((captured, original)) = work.first_cut {
        let packets = units::count(work.cut_short, "packet");
        let are = if work.cut_short == 1 { "is" } else { "are" };
        session.note(format!(
            "{packets} {are} truncated ({captured} of {original} bytes): left unchanged"
        ));
    }
    if work.tally.guessed > 0 && !work.judge.is_surveyed {
        session.note(
            "a pipe is read only once, so segment sizes are derived only from earlier packets",
        );
    }
    work.tally.notes().for_each(|note| session.note(note));
    let flows = &work.judge.flows;
    if flows.overflowed > 0 {
        let (packets, known) = (flows.overflowed, flows.len());
        session.note(format!(
            "the flow table is full with {known} flows: {packets} packets were classified \
             without flow state"
        ));
    }
}

/// State of the command while it reads the capture.
struct WireWork {
    output: Output,
    judge: Judge,
    is_strict: bool,
    cutter: Cutter,
    sizes: SizeCounts,
    tally: Tally,
    suspicions: Suspicions,
    completed: u64,
    left: Counts,
    udp_left: u64,
    udp_left_bytes: u64,
    cut_short: u64,
    /// Captured and original lengths of the first truncated packet.
    first_cut: Option<(usize, u32)>,
    packet: Vec<u8>,
    levels: Levels,
}

impl WireWork {
    fn new(output: Output, judge: Judge, is_strict: bool) -> Self {
        Self {
            output,
            judge,
            is_strict,
            cutter: Cutter::default(),
            sizes: SizeCounts::default(),
            tally: Tally::default(),
            suspicions: Suspicions::default(),
            completed: 0,
            left: Counts::new(),
            udp_left: 0,
            udp_left_bytes: 0,
            cut_short: 0,
            first_cut: None,
            packet: Vec::new(),
            levels: Levels::default(),
        }
    }
}

impl Transform for WireWork {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        let (said, ports, stack) = self.judge.parse(packet, link);
        let sight = Sight::new(packet, &said, &stack, link, ports);
        let judgment = self.judge.judge(&sight);
        self.suspicions.observe(packet.data, &stack);
        let is_superframe = matches!(judgment.nature, Nature::Superframe { .. });
        if self.is_strict && judgment.is_guess {
            let reason = if is_superframe { "segment_size_unknown" } else { "perhaps_superframe" };
            return self.leave(reason, entry);
        }
        self.tally.count(&judgment);
        if self.is_strict && judgment.against.is_some() && is_superframe {
            return self.leave("evidence_contradicts", entry);
        }
        match judgment.nature {
            // A checksum beyond the last parsed header may be partial.
            Nature::Packet if stack.stop == Stop::TooDeep => self.leave("too_deep", entry),
            Nature::Packet => self.complete(entry, &sight),
            Nature::Left(reason) => {
                if let (UDP_SIZE_UNKNOWN, Some(transport)) = (reason, sight.transport) {
                    self.udp_left += 1;
                    self.udp_left_bytes += transport.payload as u64;
                }
                self.leave(reason, entry)
            }
            Nature::Superframe { gso, size, ports } => {
                // The segments are wire packets, so none of their checksums may stay partial.
                let gso = Gso { partial_members: false, ..gso };
                let how = How { gso, link, ports };
                match self.cutter.cut(packet, &said, how, &mut self.output)? {
                    Ok(()) => {
                        self.sizes.count(size);
                        Ok(())
                    }
                    Err(Uncut::Whole) => self.complete(entry, &sight),
                    Err(uncut) => {
                        if uncut == Uncut::Snaplen {
                            self.count_cut(packet);
                        }
                        self.leave(uncut.name(), entry)
                    }
                }
            }
        }
    }
}

impl WireWork {
    /// Writes a packet unchanged even though it looked different on the wire.
    fn leave(&mut self, reason: &'static str, entry: &Entry<'_>) -> Result<(), Failure> {
        *self.left.entry(reason).or_default() += 1;
        self.output.copy(entry)
    }

    /// Completes the packet's partial checksums, if any, and writes it.
    fn complete(&mut self, entry: &Entry<'_>, sight: &Sight<'_>) -> Result<(), Failure> {
        let Sight { packet, said, stack, .. } = sight;
        let Finish { completes, left } = self.judge.finish(sight);
        if let Some(reason) = left {
            *self.left.entry(reason).or_default() += 1;
        }
        if left == Some(CAPTURED_SHORT) {
            self.count_cut(packet);
        }
        // Even if the checksum is already correct, the partial mark must be removed.
        if left == Some(CAPTURED_SHORT) || !completes && !said.is_partial() {
            return self.output.copy(entry);
        }
        self.packet.clear();
        self.packet.extend_from_slice(packet.data);
        let claim = meta::claim(said, stack);
        let fixed = complete(&mut self.packet, packet.is_cut(), stack, claim, &mut self.levels);
        self.completed += u64::from(fixed > 0);
        let written =
            PacketMeta { original_len: packet.original_len, ..meta::of_segment(said, false) };
        self.output.write_changed(&written, &self.packet, packet)
    }

    fn count_cut(&mut self, packet: &Packet<'_>) {
        self.cut_short += 1;
        self.first_cut.get_or_insert((packet.data.len(), packet.original_len));
    }
}
