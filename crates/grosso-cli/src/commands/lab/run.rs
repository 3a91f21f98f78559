//! Steps common to all experiments: checking permissions, running the experiment, printing the report, and writing the
//! HTML page.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use grosso_lab::{
    experiment::{Experiment, Plan, Step},
    netns::Device,
    trial::TrialError,
};
use grosso_sys::{
    path,
    scheduling::allowed_processors,
    userns::{self, Refusal},
};
use schemars::JsonSchema;
use serde::Serialize;

use grosso_analysis::capture::{OUTPUT_MODE, note_others};

use crate::{
    arguments::{LabDevice, LabPage},
    error::{Exit, Failure},
    form::ReportForm,
    progress::Progress,
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
    units,
};

/// Runs an experiment, and prints its report. `name` is the suffix of the page's default file name.
pub(super) fn run_experiment<E: Experiment>(
    experiment: io::Result<E>,
    form: ReportForm,
    (name, page): (&str, &LabPage),
    session: &mut Session,
) -> Result<Exit, Failure> {
    let experiment = experiment.map_err(|error| failed(&error.into()))?;
    let trials = experiment.trials();
    let measured = experiment.plan().measured;
    session.talk.remark(&format!(
        "lab: {} of at most {measured:?} each, not counting startup and shutdown",
        units::count(trials as u64, "trial")
    ));
    let started = Instant::now();
    let progress = Progress::trials(trials as u64, !session.talk.quiet && !session.talk.json);
    let talk = &session.talk;
    let ended = experiment.run(&session.reading.interrupted, |step| match step {
        Step::Trials(done) => progress.at(done as u64),
        Step::Row(row) => progress.above(|| talk.remark(&format!("lab: {row}"))),
    });
    progress.finish();
    let results = match ended {
        Ok(results) => results,
        Err(TrialError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error) => return Err(failed(&error)),
    };
    for remark in results.remarks() {
        session.talk.note(remark);
    }
    for row in &results.failed {
        session.talk.note(format!("lab: {row}"));
    }
    // The measurement took minutes, so the results are printed even if the page cannot be written.
    let written = write_page(name, page, |command| results.page(command, COMMIT), session);
    let (html, unwritten) = match written {
        Ok(html) => (html, None),
        Err(failure) => (None, Some(failure)),
    };
    let report = LabReport::new(form, results.table(), results).with_page(html);
    let exit = report.print(started, session)?;
    unwritten.map_or(Ok(exit), Err)
}

/// Returns the plan for an experiment whose trials last `time` nanoseconds.
pub(super) fn plan<P>(
    runs: u16,
    time: u64,
    wanted: LabDevice,
    parameters: P,
) -> Result<Plan<P>, Failure> {
    let measured = Duration::from_nanos(time);
    Ok(Plan { runs: runs.into(), measured, device: device(wanted)?, processors: None, parameters })
}

/// Returns the CPUs selected with the option `word`. Fails unless this process may run on all of them.
pub(super) fn processors<const COUNT: usize>(
    word: &str,
    chosen: Option<[usize; COUNT]>,
) -> Result<Option<[usize; COUNT]>, Failure> {
    let failed = |error: io::Error| {
        Failure::environment(
            "environment.lab",
            format!("lab: cannot read the list of allowed CPUs: {error}"),
        )
    };
    let allowed = allowed_processors().map_err(failed)?;
    let mut of_all = chosen.into_iter().flatten();
    let Some(missing) = of_all.find(|one| !allowed.contains(one)) else { return Ok(chosen) };
    // "CPU" keeps a number from being mistaken for a count.
    let allowed: Vec<String> = allowed.iter().map(|cpu| format!("CPU {cpu}")).collect();
    let message = format!("lab: {word}: the lab cannot run on CPU {missing}");
    let hint =
        format!("this process may use {}; a CPU can be listed more than once", allowed.join(", "));
    Err(Failure::usage("usage.cpus", message).hint(hint))
}

/// Enables this process to create networks. The process must be single-threaded, because it may have to create a user
/// namespace.
pub(super) fn enter() -> Result<(), Failure> {
    userns::enter().map_err(|refusal| refused(&refusal))
}

/// Returns the device that passes packets from the data path to a host.
pub(super) fn device(wanted: LabDevice) -> Result<Device, Failure> {
    match wanted {
        LabDevice::Auto => Ok(Device::probe()),
        LabDevice::Veth => Ok(Device::Veth),
        LabDevice::Tap => {
            userns::tap().map_err(|refusal| refused(&refusal))?;
            Ok(Device::Tap)
        }
    }
}

/// Writes the page. A failure counts only if the user chose the file name.
fn write_page(
    name: &str,
    wanted: &LabPage,
    page: impl FnOnce(&str) -> String,
    session: &mut Session,
) -> Result<Option<PathBuf>, Failure> {
    if wanted.no_html {
        return Ok(None);
    }
    let usual = || match name {
        "" => PathBuf::from("grosso-lab.html"),
        name => format!("grosso-lab-{name}.html").into(),
    };
    let path = wanted.html.clone().unwrap_or_else(usual);
    note_others(&path, &session.reading);
    match path::write(&path, page(&session.reading.command_line).as_bytes(), OUTPUT_MODE) {
        Ok(()) => Ok(Some(path)),
        Err(error) if wanted.html.is_none() => {
            session.talk.note(format!("cannot write the page {}: {error}", path.display()));
            Ok(None)
        }
        Err(error) => {
            let message = format!("lab: {}: {error}", path.display());
            Err(Failure::environment("environment.write", message))
        }
    }
}

/// Commit from which the command was built.
const COMMIT: &str = env!("GROSSO_COMMIT");

fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::UserNamespaces(_) => "environment.user_namespaces",
        Refusal::NoTun(_) | Refusal::TunClosed { .. } => "environment.tun",
        _ => "environment.lab",
    };
    Failure::environment(code, format!("lab: {refusal}")).hint(refusal.remedy())
}

pub(super) fn failed(error: &TrialError) -> Failure {
    Failure::environment("environment.lab", format!("lab: {error}"))
}

/// Results of an experiment.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LabReport<R> {
    #[serde(skip)]
    form: ReportForm,
    #[serde(flatten)]
    results: R,
    /// Results as a text table.
    #[serde(skip)]
    table: String,
    elapsed_s: f64,
    /// HTML page, if one was written.
    html: Option<PathBuf>,
}

impl<R: JsonSchema> LabReport<R> {
    /// Returns the schema description with this name.
    pub(super) const fn named(name: &'static str) -> ReportForm {
        ReportForm::of::<Envelope<Self>>(name)
    }
}

impl<R: Serialize> LabReport<R> {
    /// Creates a report with `results`; `table` shows the same results as text.
    pub(super) fn new(form: ReportForm, table: String, results: R) -> Self {
        Self { form, results, table, elapsed_s: 0.0, html: None }
    }

    /// Returns the same report, with the path of its page.
    pub(super) fn with_page(self, html: Option<PathBuf>) -> Self {
        Self { html, ..self }
    }

    /// Prints the report, with the time since the experiment began.
    pub(super) fn print(
        mut self,
        started: Instant,
        session: &mut Session,
    ) -> Result<Exit, Failure> {
        self.elapsed_s = started.elapsed().as_secs_f64();
        report::print(&self, &session.talk, Place::Standard)?;
        Ok(Exit::Yes)
    }
}

impl<R: Serialize> Report for LabReport<R> {
    fn form(&self) -> ReportForm {
        self.form
    }

    fn text(&self, _style: Style) -> String {
        let mut text = self.table.clone();
        if let Some(page) = &self.html {
            text += &format!("Plots: {}\n", page.display());
        }
        text
    }
}
