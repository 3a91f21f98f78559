//! The table of trains that a receiving host would form from a capture. Every packet is in one row.

use std::sync::{Arc, atomic::AtomicBool};

use grosso_capture::Entry;

use super::{Error, Visit, begin, conclude, no_table, unless_interrupted};
use crate::{
    arguments::Command,
    commands::{
        replay::{Purpose, Replay, Seen},
        tables::{
            FileNames,
            trains::{TrainRow, TrainWatcher},
        },
    },
    error::Failure,
    input::Next,
    survey::survey,
};

/// Visits the trains of captures; the arguments are those of `grosso coalesce`.
///
/// # Errors
///
/// Fails if the arguments are wrong, or if a capture is missing or damaged.
pub fn trains(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<TrainRow<'a>>,
) -> Result<(), Error> {
    table(words, interrupted, visit).map_err(|failure| unless_interrupted(failure, interrupted))
}

fn table(
    words: &[String],
    interrupted: &Arc<AtomicBool>,
    visit: &mut dyn for<'a> Visit<TrainRow<'a>>,
) -> Result<(), Failure> {
    let (arguments, mut session) = begin(words, interrupted)?;
    let Command::Coalesce(options) = &arguments.command else {
        return Err(no_table(&arguments.command, "trains"));
    };
    let sources = options.files.captures.sources("coalesce", &mut session.talk)?;
    let mut replay = Replay::new(&options.rules, Purpose::Looks)?;
    let mut judge = survey(&sources, options.known.given()?, &session)?;
    let mut input = sources.input(false, &session)?;
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
    conclude(ending, &input, &mut session)
}
