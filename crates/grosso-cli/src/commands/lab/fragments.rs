//! `grosso lab fragments`: table R2.

use std::time::Duration;

use grosso_lab::fragments::{Experiment, Plan, Report};

use super::conduct::{LabReport, conduct, device, enter, failed, write_page};
use crate::{
    arguments::LabFragments,
    error::{Exit, Failure},
    input::Session,
};

/// Runs the experiment.
pub(super) fn run(options: &LabFragments, session: &mut Session) -> Result<Exit, Failure> {
    enter()?;
    let plan = Plan {
        runs: options.runs.into(),
        measured: Duration::from_nanos(options.time),
        rate_bits: options.rate,
        loss: options.loss,
        timeout: Duration::from_nanos(options.timeout),
        device: device(options.device)?,
    };
    let experiment = Experiment::new(plan).map_err(|error| failed(&error.into()))?;
    conduct(
        (experiment.trials(), options.time),
        session,
        |interrupted, done| experiment.run(interrupted, done),
        |results, session| {
            note(options, &results, session);
            let page = |command: &str| results.page(command);
            let html = write_page("fragments", &options.page, page, session)?;
            let report = LabReport::new("grosso.lab-fragments/1", results.table(), results);
            Ok(report.with_page(html))
        },
    )
}

/// Notes the conditions under which the figures measure the machine instead of the buffers.
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
