//! `grosso lab cost`: the cost of a packet, by part.

use std::time::Duration;

use grosso_lab::cost::{Experiment, Plan};

use super::conduct::{LabReport, conduct, device, enter, failed, write_page};
use crate::{
    arguments::LabTrials,
    error::{Exit, Failure},
    input::Session,
};

/// Runs the experiment.
pub(super) fn run(options: &LabTrials, session: &mut Session) -> Result<Exit, Failure> {
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
        |results, session| {
            let page = |command: &str| results.page(command);
            let html = write_page("cost", &options.page, page, session)?;
            let report = LabReport::new("grosso.lab-cost/1", results.table(), results);
            Ok(report.with_page(html))
        },
    )
}
