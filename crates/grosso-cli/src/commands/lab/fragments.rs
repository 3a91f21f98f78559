//! `grosso lab fragments`: table R2.

use std::time::{Duration, Instant};

use grosso_lab::{
    fragments::{Experiment, Plan, Report},
    permit,
    trial::TrialError,
};

use super::measure::{LabReport, device, failed, refused, write_page};
use crate::{
    arguments::LabFragments,
    error::{Exit, Failure},
    input::Session,
    progress::Progress,
    report::{self, Place, Tool},
};

/// Measures. The process must have one thread: it may have to make itself a user namespace.
pub(super) fn run(options: &LabFragments, session: &mut Session) -> Result<Exit, Failure> {
    permit::enter().map_err(|refusal| refused(&refusal))?;
    let plan = Plan {
        runs: options.runs.into(),
        measured: Duration::from_nanos(options.time),
        rate_bits: options.rate,
        loss: options.loss,
        timeout: Duration::from_nanos(options.timeout),
        device: device(options.device)?,
    };
    let experiment = Experiment::new(plan).map_err(|error| failed(&error.into()))?;
    let (trials, time) = (experiment.trials(), Duration::from_nanos(options.time));
    session.talk.remark(&format!("lab: {trials} trials of {time:?}"));
    let started = Instant::now();
    let progress = Progress::trials(trials as u64, !session.talk.quiet && !session.talk.json);
    let ended = experiment.run(&session.interrupted, |done| progress.at(done as u64));
    progress.finish();
    let results = match ended {
        Ok(results) => results,
        Err(TrialError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error) => return Err(failed(&error)),
    };
    note(options, &results, session);
    let html = write_page("fragments", &options.page, |command| results.page(command), session)?;
    let mut report = LabReport {
        schema: "grosso.lab-fragments/1",
        tool: Tool::THIS,
        table: results.table(),
        results,
        elapsed_s: started.elapsed().as_secs_f64(),
        html,
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Says what makes the figures those of the machine instead of those of buffers.
fn note(options: &LabFragments, results: &Report, session: &mut Session) {
    if results.is_short_of_processor() {
        session.talk.note(
            "this machine cannot carry what was offered: the comparison is of its speed too; try a lower --rate",
        );
    }
    if options.timeout > options.time {
        session
            .talk
            .note("the timeout is longer than a measurement: silence is cut off at its end");
    }
}
