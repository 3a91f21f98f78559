//! `grosso lab tunnels`: table R4.

use std::time::Duration;

use grosso_lab::tunnels::{Experiment, Plan};

use super::conduct::{LabReport, conduct, device, enter, failed, write_page};
use crate::{
    arguments::LabTunnels,
    error::{Exit, Failure},
    input::Session,
};

/// Runs the experiment.
pub(super) fn run(options: &LabTunnels, session: &mut Session) -> Result<Exit, Failure> {
    enter()?;
    let measuring = &options.measuring;
    let plan = Plan {
        runs: measuring.runs.into(),
        measured: Duration::from_nanos(measuring.time),
        streams: options.streams.into(),
        congestion: measuring.congestion.clone(),
        device: device(measuring.device)?,
    };
    let experiment = Experiment::new(plan).map_err(|error| failed(&error.into()))?;
    conduct(
        (experiment.trials(), measuring.time),
        session,
        |interrupted, done| experiment.run(interrupted, done),
        |results, session| {
            let page = |command: &str| results.page(command);
            let html = write_page("tunnels", &measuring.page, page, session)?;
            let report = LabReport::new("grosso.lab-tunnels/2", results.table(), results);
            Ok(report.with_page(html))
        },
    )
}
