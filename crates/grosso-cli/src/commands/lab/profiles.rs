//! `grosso lab profiles`: one trace through every profile.

use std::{path::Path, time::Instant};

use grosso_lab::profiles::Results;

use super::measure::LabReport;
use crate::{
    arguments::LabProfiles,
    error::{Exit, Failure},
    input::Session,
    profile,
    report::{self, Place, Tool},
};

/// Measures. It needs neither devices nor privileges.
pub(super) fn run(options: &LabProfiles, session: &mut Session) -> Result<Exit, Failure> {
    let find = |word: &String| profile::find(word, Path::new(""));
    let more = options.profile.iter().map(find).collect::<Result<_, _>>()?;
    let started = Instant::now();
    let results = Results::measure(more);
    let mut report = LabReport {
        schema: "grosso.lab-profiles/1",
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
