//! `grosso segment`: splits superframes whose segment size is recorded. Never guesses.

use super::cutter::{Cutter, How, Uncut};
use crate::{
    capture::{CaptureCommand, Files, Frame, Outcome, Output, Session, Transform, transform},
    error::Failure,
    evidence::{Evidence, Given, Judge, Nature, Sight, Tally, UDP_SIZE_UNKNOWN},
    report::Counts,
    reports::segment::SegmentReport,
    units,
};

/// Options for `grosso segment`, which splits superframes whose segment size is recorded.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
}

impl CaptureCommand for Segment {
    type Report = SegmentReport;

    fn run(self, files: Files, session: &Session) -> Result<Outcome<SegmentReport>, Failure> {
        let (mut input, output) = files.open(session)?;
        let judge = Judge::new(self.given);
        let cutter = Cutter::default();
        let (tally, left) = (Tally::default(), Counts::new());
        let mut cut = SegmentTransform { output, judge, cutter, tally, undescribed: 0, left };
        let done = transform(&mut input, &mut cut)?;
        let (facts, place) = cut.output.finish(&input)?;
        cut.tally.notes().for_each(|note| session.note(note));
        if cut.undescribed > 0 {
            let frames = units::count(cut.undescribed, "superframe");
            session
                .note(format!("{frames} not split: the capture does not record the segment size"));
            session.hint("`grosso wire` derives the segment size from the flow where possible");
        }
        let report = SegmentReport {
            input: input.facts(done.bytes),
            output: facts,
            cut: cut.cutter.cut,
            segments: cut.cutter.segments,
            undescribed: cut.undescribed,
            left: cut.left,
            elapsed_s: session.elapsed_s(),
        };
        let left = report.undescribed + report.left.values().sum::<u64>();
        let is_refused = session.strict && left + cut.tally.contradictions() > 0;
        Ok(done.outcome((report, place), input, is_refused))
    }
}

struct SegmentTransform {
    output: Output,
    judge: Judge,
    tally: Tally,
    cutter: Cutter,
    undescribed: u64,
    left: Counts,
}

impl Transform for SegmentTransform {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let Frame { entry, packet, link } = frame;
        let (said, ports, stack) = self.judge.parse(packet, link);
        let judgment = self.judge.judge(&Sight::new(packet, &said, &stack, link, ports));
        let is_recorded = judgment.by.is_some_and(is_recorded);
        let (gso, ports) = match judgment.nature {
            Nature::Superframe { gso, ports, .. } if is_recorded => {
                self.tally.count(&judgment);
                (gso, ports)
            }
            Nature::Superframe { .. } | Nature::Left(UDP_SIZE_UNKNOWN) => {
                self.undescribed += 1;
                return self.output.copy(entry);
            }
            Nature::Left(reason) => {
                *self.left.entry(reason).or_default() += 1;
                return self.output.copy(entry);
            }
            Nature::Packet => return self.output.copy(entry),
        };
        let how = How { gso, link, ports };
        match self.cutter.cut(packet, &said, how, &mut self.output)? {
            Ok(()) => Ok(()),
            Err(uncut) => {
                if uncut != Uncut::Whole {
                    *self.left.entry(uncut.name()).or_default() += 1;
                }
                self.output.copy(entry)
            }
        }
    }
}

/// Returns whether the segment size comes from the frame itself or from the user.
const fn is_recorded(by: Evidence) -> bool {
    matches!(by, Evidence::Given | Evidence::Recorded | Evidence::Stride)
}
