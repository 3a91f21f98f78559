//! `grosso lab profiles`: replays one trace with every profile.

use std::{path::Path, time::Instant};

use grosso_lab::profiles::Results;

use super::run::LabReport;
use crate::{
    arguments::LabProfiles,
    error::{Exit, Failure},
    form::ReportForm,
    profile,
    session::Session,
};

/// Schema of this report.
pub(super) const FORM: ReportForm = LabReport::<Results>::named("grosso.lab-profiles/1");

/// Runs the experiment, which needs neither devices nor privileges.
pub(super) fn run(options: &LabProfiles, session: &mut Session) -> Result<Exit, Failure> {
    let find = |word: &String| profile::find(word, Path::new(""));
    let more = options.profile.iter().map(find).collect::<Result<_, _>>()?;
    let started = Instant::now();
    let results = Results::measure(more);
    LabReport::new(FORM, results.table(), results).print(started, session)
}
