//! `grosso lab acks`: table R3.

use std::time::{Duration, Instant};

use grosso_lab::{
    acks::{Experiment, Plan},
    permit,
    trial::TrialError,
};

use super::measure::{LabReport, device, failed, refused};
use crate::{
    arguments::LabAcks,
    error::{Exit, Failure},
    input::Session,
    progress::Progress,
    report::{self, Place, Tool},
};

/// Measures. The process must have one thread: it may have to make itself a user namespace.
pub(super) fn run(options: &LabAcks, session: &mut Session) -> Result<Exit, Failure> {
    permit::enter().map_err(|refusal| refused(&refusal))?;
    let plan = Plan {
        runs: options.runs.into(),
        measured: Duration::from_nanos(options.time),
        congestion: options.congestion.clone(),
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
    let mut report = LabReport {
        schema: "grosso.lab-acks/1",
        tool: Tool::THIS,
        table: results.table(),
        results,
        elapsed_s: started.elapsed().as_secs_f64(),
        html: None,
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}
