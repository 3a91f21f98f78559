//! `grosso segment`: cut superframes that say where, and never guess.

use std::time::Instant;

use grosso_io::capture::{Entry, Packet, flag};
use grosso_wire::{LinkType, Ports, dissect};

use super::cutter::{Cutter, Uncut};
use crate::{
    arguments::Segment,
    error::{Exit, Failure},
    headers::Transport,
    input::Session,
    mss::MTU_DEFAULT,
    output::Output,
    report::{self, Counts, InputFacts, Tool, segment::SegmentReport, units},
    transform::{self, Transform},
};

/// Runs the command.
pub(crate) fn run(options: &Segment, session: &mut Session) -> Result<Exit, Failure> {
    let start = Instant::now();
    let (mut input, output) = transform::open(&options.files, "segment", session)?;
    let mut cut = Cut { output, cutter: Cutter::default(), undescribed: 0, left: Counts::new() };
    let done = transform::transform(&mut input, &mut cut)?;
    let (facts, place) = cut.output.finish(&input)?;
    if cut.undescribed > 0 {
        let frames = units::count(cut.undescribed, "superframe");
        session.talk.note(format!("{frames} left whole: this file does not say where they split"));
        session.talk.hint("`grosso wire` works it out from the flow where it can");
    }
    let elapsed = start.elapsed();
    let mut report = SegmentReport {
        schema: "grosso.segment/1",
        tool: Tool::THIS,
        input: InputFacts::of(&input, done.bytes),
        output: facts,
        cut: cut.cutter.cut,
        segments: cut.cutter.segments,
        undescribed: cut.undescribed,
        left: cut.left,
        elapsed_s: elapsed.as_secs_f64(),
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, place)?;
    report::remark_rate(session, report.input.packets, done.bytes, elapsed);
    let left = report.undescribed + report.left.values().sum::<u64>();
    let is_refused = session.strict && left > 0;
    done.conclude(&input, session, is_refused)
}

struct Cut {
    output: Output,
    cutter: Cutter,
    undescribed: u64,
    left: Counts,
}

impl Transform for Cut {
    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn packet(
        &mut self,
        entry: &Entry<'_>,
        packet: &Packet<'_>,
        link: LinkType,
    ) -> Result<(), Failure> {
        if packet.options().as_bytes().is_empty() {
            // Nothing is said about it.
            self.undescribed += u64::from(looks_whole(packet, link));
            return self.output.copy(entry);
        }
        let said = packet.meta();
        let segmentation = said.offload.as_ref().and_then(|offload| offload.gso.as_ref());
        let Some(segmentation) = segmentation else {
            self.undescribed += u64::from(looks_whole(packet, link));
            return self.output.copy(entry);
        };
        let Some(gso) = segmentation.to_engine() else {
            self.undescribed += 1;
            return self.output.copy(entry);
        };
        match self.cutter.cut(packet, &said, gso, link, None, &mut self.output)? {
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

/// Whether a packet about which no size is said can have been on no wire.
///
/// Linux marks TCP superframes by a flag alone when the device tells no size.
fn looks_whole(packet: &Packet<'_>, link: LinkType) -> bool {
    if packet.data.len() <= MTU_DEFAULT {
        return false;
    }
    if packet.meta().flags.unwrap_or(0) & flag::TCP_SEGMENTATION != 0 {
        return true;
    }
    let stack = dissect(packet.data, link, &Ports::ASSIGNED);
    let transport = Transport::of(&stack, packet.data.len());
    transport.is_some_and(|transport| transport.payload + transport.overhead() > JUMBO_MTU)
}

/// The largest MTU in common use.
pub(super) const JUMBO_MTU: usize = 9216;
