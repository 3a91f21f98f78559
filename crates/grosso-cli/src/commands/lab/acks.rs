//! `grosso lab acks`: table R3.

use std::time::Duration;

use grosso_lab::acks::{Experiment, Plan};

use super::conduct::{LabReport, conduct, device, enter, failed};
use crate::{
    arguments::LabAcks,
    error::{Exit, Failure},
    input::Session,
};

/// Runs the experiment.
pub(super) fn run(options: &LabAcks, session: &mut Session) -> Result<Exit, Failure> {
    enter()?;
    let plan = Plan {
        runs: options.runs.into(),
        measured: Duration::from_nanos(options.time),
        congestion: options.congestion.clone(),
        device: device(options.device)?,
    };
    let experiment = Experiment::new(plan).map_err(|error| failed(&error.into()))?;
    conduct(
        (experiment.trials(), options.time),
        session,
        |interrupted, done| experiment.run(interrupted, done),
        |results, _| Ok(LabReport::new("grosso.lab-acks/1", results.table(), results)),
    )
}
