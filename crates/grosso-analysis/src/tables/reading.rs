//! Reads captures as rows: one row per captured frame, or one per train.

use grosso_capture::{Entry, Offload};
use grosso_wire::{Stack, dissect_into};

use super::{
    FileNames, Headers, StackNames,
    packets::{FrameFinding, Packet, row},
    trains::{TrainRow, TrainWatcher},
};
use crate::{
    capture::{Captures, Ending, Input, Next, Session, survey},
    error::{Exit, Failure},
    evidence::Given,
    meta,
    replay::{Purpose, Replay, Rules, Seen},
};

/// Receiver of rows, which decides whether to continue reading. `open` is called once, before the first row.
pub trait Visit<Row> {
    /// Handles the opening of the captures; returns `false` to stop reading.
    fn open(&mut self) -> bool;

    /// Processes a row; returns `false` to stop reading.
    fn row(&mut self, row: Row) -> bool;
}

/// Passes one row per captured packet to `visit`.
///
/// # Errors
///
/// Fails if a capture cannot be opened or is damaged, or if the user cancels.
pub fn visit_packets(
    captures: &Captures,
    given: Given,
    session: &Session,
    visit: &mut dyn for<'a> Visit<Packet<'a>>,
) -> Result<(), Failure> {
    let mut input = captures.input(false, session)?;
    if !visit.open() {
        return Ok(());
    }
    let (links, mut names, mut stack) = (input.links, StackNames::default(), Stack::new(0));
    let files = FileNames::of(&input);
    let ending = input.each(|entry| {
        let Entry::Packet(packet) = entry else { return Ok(Next::Go) };
        let said = packet.meta();
        let headers = match links.of(packet) {
            Some(link) => {
                let ports = meta::ports(&said, given.ports);
                dissect_into(packet.data, link, &ports, &mut stack);
                names.headers(packet.data, packet.original_len as usize, &stack)
            }
            None => Headers::default(),
        };
        let gso = said.offload.as_ref().and_then(|offload| offload.meta.gso);
        let row = Packet {
            segment_size: gso.and_then(|gso| gso.size()),
            packets: said.offload.as_ref().and_then(|offload| count(offload, headers.payload)),
            ..row(packet, headers, FrameFinding::default(), &files)
        };
        Ok(if visit.row(row) { Next::Go } else { Next::Stop })
    })?;
    conclude(ending, &input, session)
}

/// Returns the number of packets in a superframe, as recorded or as derived from the segment size.
fn count(offload: &Offload, payload: Option<u32>) -> Option<u32> {
    let size = offload.meta.gso?.size().map(u32::from);
    match (offload.arrivals_ns.len(), offload.parts.len()) {
        (0, 0) => Some(payload?.div_ceil(size?)),
        (0, parts) => Some(parts as u32),
        (arrivals, _) => Some(arrivals as u32 + 1),
    }
}

/// Passes to `visit` the trains that a receiving host would form, one row per train. Every packet is in exactly one
/// row.
///
/// # Errors
///
/// Fails if a capture or the profile cannot be opened, if a capture is damaged, or if the user cancels.
pub fn visit_trains(
    captures: &Captures,
    given: Given,
    rules: &Rules,
    session: &Session,
    visit: &mut dyn for<'a> Visit<TrainRow<'a>>,
) -> Result<(), Failure> {
    let mut replay = Replay::new(rules, Purpose::Looks)?;
    let mut judge = survey(captures, given, session)?;
    let mut input = captures.input(false, session)?;
    if !visit.open() {
        return Ok(());
    }
    let links = input.links;
    let mut take = |row: TrainRow<'_>| visit.row(row);
    let mut watcher = TrainWatcher::new(FileNames::of(&input), &mut take);
    let ending = input.each(|entry| {
        match entry {
            Entry::Packet(packet) => {
                let seen = Seen::of(packet, links, Purpose::Looks, &mut judge);
                watcher.push(&mut replay, &seen);
            }
            Entry::Block(block) if block.is_section_header() => watcher.finish(&mut replay),
            Entry::Block(_) => {}
        }
        Ok(if watcher.goes_on { Next::Go } else { Next::Stop })
    })?;
    watcher.finish(&mut replay);
    conclude(ending, &input, session)
}

/// Converts the reason why reading ended to the result of the table functions.
fn conclude(ending: Ending, input: &Input, session: &Session) -> Result<(), Failure> {
    match ending.conclude(input, session, "in the table")? {
        Exit::Interrupted => Err(Failure::interrupted("interrupted before the end")),
        _ => Ok(()),
    }
}
