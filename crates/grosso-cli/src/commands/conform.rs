//! `grosso conform`: tests an external program that merges, segments or reassembles packets.

use grosso_conform::{examine, report::ConformReport};

use crate::{
    arguments::Conform,
    error::{Exit, Failure},
    report::{self, Place},
    session::Session,
};

/// Runs the command.
pub(crate) fn run(options: &Conform, session: &mut Session) -> Result<Exit, Failure> {
    let interrupted = &session.reading.interrupted;
    let score = examine(options.task(), &options.command, options.time(), interrupted)?;
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    let report = ConformReport { command: words.collect(), score, is_long: session.talk.verbose };
    let is_no = report.score.is_wrong() || (session.reading.strict && !report.score.joins_all());
    report::print(&report, &session.talk, Place::Standard)?;
    Ok(if is_no { Exit::No } else { Exit::Yes })
}
