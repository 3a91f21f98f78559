//! Experiments. To answer a question, an experiment runs the trials of all its settings in turn.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use grosso_sys::scheduling::allowed_processors;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    beside::BesideRow,
    netns::Device,
    report::{Environment, FailedRow, Findings, Report},
    statistics::{Spread, digits},
    trial::TrialError,
    verdict::Verdict,
};

/// Parameters of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<P> {
    /// Number of measurements per setting.
    pub runs: usize,
    /// Duration of each measurement.
    pub measured: Duration,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The CPUs of sender, data path and receiver, if the user chose them. If each host has a data path, the second CPU
    /// is for the receiver's path, and the sender's path runs on the sender's CPU.
    pub processors: Option<[usize; 3]>,
    /// Parameters of the experiment.
    pub parameters: P,
}

impl<P: Default> Default for Plan<P> {
    /// Returns a plan for three runs of one second, with the device that works everywhere.
    fn default() -> Self {
        Self {
            runs: 3,
            measured: Duration::from_secs(1),
            device: Device::Veth,
            processors: None,
            parameters: P::default(),
        }
    }
}

/// Parameters of an experiment with TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TcpParameters {
    /// TCP congestion control.
    pub congestion: String,
}

impl Default for TcpParameters {
    fn default() -> Self {
        Self { congestion: "cubic".into() }
    }
}

/// A setting and its runs.
#[derive(Clone, Debug)]
pub struct Series<S, R> {
    /// The setting.
    pub setting: S,
    /// Number of bytes that a separate run compared one by one with the bytes sent; `None` if there was no such run.
    pub verified_bytes: Option<u64>,
    /// The runs.
    pub runs: Vec<R>,
    /// The last error, if every attempt to run a trial of this setting failed. The setting then has no figures and is
    /// not measured again.
    pub failure: Option<String>,
}

impl<S, R> Series<S, R> {
    /// Creates a series from a setting and its runs, without a comparison of bytes.
    pub const fn new(setting: S, runs: Vec<R>) -> Self {
        Self { setting, verified_bytes: None, runs, failure: None }
    }

    /// Returns the result of a trial. If the trial failed, records the error, returns `None`, and only this setting is
    /// not measured any further.
    ///
    /// # Errors
    /// Fails if the trial was interrupted.
    pub fn keep<T>(&mut self, result: Result<T, TrialError>) -> Result<Option<T>, TrialError> {
        match result {
            Ok(result) => Ok(Some(result)),
            Err(TrialError::Interrupted) => Err(TrialError::Interrupted),
            Err(error) => {
                self.failure = Some(error.to_string());
                self.runs.clear();
                Ok(None)
            }
        }
    }
}

/// A setting and its runs in an experiment.
pub type RunsOf<E> = Series<<E as Experiment>::Setting, <E as Experiment>::Run>;

/// An experiment: the settings to measure, and functions that interpret the runs.
pub trait Experiment {
    /// Parameters specific to this experiment.
    type Parameters: Clone;
    /// One setting to measure.
    type Setting: Clone;
    /// The measurement of a setting in one run.
    type Run;
    /// The figures that the runs yield.
    type Findings: Findings<Parameters = Self::Parameters>;

    /// Returns the name of the experiment's command, `grosso lab NAME`; empty for the experiment that `grosso lab` runs
    /// by default.
    fn name(&self) -> &'static str;

    /// Returns the parameters of the measurement.
    fn plan(&self) -> &Plan<Self::Parameters>;

    /// Returns the device through which the data paths exchange packets with a host; `None` if there is none.
    fn device(&self) -> Option<Device> {
        Some(self.plan().device)
    }

    /// Returns the settings, in groups that are compared with each other.
    fn settings(&self) -> Vec<&[Self::Setting]>;

    /// Returns the number of trials.
    fn trials(&self) -> usize {
        self.settings().into_iter().flatten().count() * self.plan().runs
    }

    /// Runs a setting once before the measurements, and compares every received byte with the byte sent. Returns the
    /// number of bytes, or `None` if the traffic has no content to compare.
    ///
    /// # Errors
    /// Fails if the trial fails.
    fn verify(
        &self,
        _setting: &Self::Setting,
        _interrupted: &AtomicBool,
    ) -> Result<Option<u64>, TrialError> {
        Ok(None)
    }

    /// Returns whether a setting is skipped if its verification fails with this error.
    fn is_optional(&self, _setting: &Self::Setting, _error: &io::Error) -> bool {
        false
    }

    /// Adds a run to every setting in a group that has not failed.
    ///
    /// # Errors
    /// Fails if the measurement is interrupted.
    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError>;

    /// Returns a short name for a setting.
    fn label(&self, setting: &Self::Setting) -> String;

    /// Returns the most important figure of a setting's runs, with its unit.
    fn brief(&self, runs: &[Self::Run]) -> String;

    /// Returns the figures that all runs yield, by group.
    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> Self::Findings;

    /// Returns the verdicts on the figures.
    fn judge(&self, findings: &Self::Findings) -> Vec<Verdict>;

    /// Returns notes that help to interpret the figures. `failed` contains the settings that are missing from the
    /// findings, although this system supports them.
    fn notes(&self, findings: &Self::Findings, failed: &[FailedRow]) -> Vec<String>;

    /// Measures every setting `runs` times, taking turns, so that changes on the machine affect all settings alike.
    /// Calls `observe` at each step. Repeats failed trials; if every attempt fails, the setting becomes a row without
    /// figures.
    ///
    /// # Errors
    /// Fails if every setting fails or `interrupted` is set.
    fn run(
        &self,
        interrupted: &AtomicBool,
        mut observe: impl FnMut(Step<'_>),
    ) -> Result<Report<Self::Findings>, TrialError>
    where
        Self: Sized,
    {
        let mut bench = Bench { experiment: self, interrupted, trials: 0, observe: &mut observe };
        let mut groups = Vec::new();
        for settings in self.settings() {
            let mut group = Vec::new();
            for setting in settings {
                let mut series = Series::new(setting.clone(), Vec::new());
                let verified = retry(interrupted, || match self.verify(setting, interrupted) {
                    Err(error) if error.io().is_some_and(|io| self.is_optional(setting, io)) => {
                        Ok(None)
                    }
                    verified => verified.map(Some),
                });
                match series.keep(verified)? {
                    Some(None) => continue,
                    Some(Some(bytes)) => series.verified_bytes = bytes,
                    None => bench.finish(&series),
                }
                group.push(series);
            }
            groups.push(group);
        }
        for _ in 0..self.plan().runs {
            for group in &mut groups {
                self.measure(group, &mut bench)?;
            }
        }
        let mut series = groups.iter().flatten();
        match series.clone().find(|series| series.failure.is_some()) {
            Some(first) if series.all(|series| series.failure.is_some()) => {
                Err(TrialError::NoFigures(self.failed_row(first).to_string()))
            }
            _ => Ok(self.report(groups)?),
        }
    }

    /// Returns the row for a setting without figures.
    fn failed_row(&self, series: &RunsOf<Self>) -> FailedRow {
        FailedRow {
            setting: self.label(&series.setting),
            error: series.failure.clone().unwrap_or_default(),
        }
    }

    /// Returns the report on all runs, which are given by group. The findings contain only the settings that did not
    /// fail.
    ///
    /// # Errors
    /// Fails if the system information cannot be read.
    fn report(&self, mut groups: Vec<Vec<RunsOf<Self>>>) -> io::Result<Report<Self::Findings>> {
        let Plan { runs, measured, processors, parameters, .. } = self.plan();
        let failed = groups.iter().flatten().filter(|series| series.failure.is_some());
        let failed: Vec<FailedRow> = failed.map(|series| self.failed_row(series)).collect();
        groups.iter_mut().for_each(|group| group.retain(|series| series.failure.is_none()));
        let findings = self.findings(groups);
        let mut verdicts = self.judge(&findings);
        if !failed.is_empty() {
            verdicts = verdicts.into_iter().map(Verdict::without_a_row).collect();
        }
        let mut ratios = findings.beside();
        if ratios.is_empty() {
            ratios = verdicts.iter().filter_map(BesideRow::of).collect();
        }
        Ok(Report {
            experiment: self.name(),
            environment: Environment::of(
                (*runs, *measured),
                (self.device(), *processors),
                parameters.clone(),
            )?,
            ratios,
            verdicts,
            notes: self.notes(&findings, &failed),
            findings,
            failed,
        })
    }
}

/// A step of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Number of trials that have succeeded so far.
    Trials(usize),
    /// A finished row: the name of the setting, and its most important figure or the error of its trial.
    Row(&'a str),
}

/// Runner for an experiment's trials.
pub struct Bench<'a, E: ?Sized> {
    experiment: &'a E,
    interrupted: &'a AtomicBool,
    trials: usize,
    observe: &'a mut dyn FnMut(Step<'_>),
}

impl<E: Experiment + ?Sized> Bench<'_, E> {
    /// Runs one trial, and repeats it if it fails.
    ///
    /// # Errors
    /// Returns the error of the last attempt.
    pub fn trial<S, R>(
        &mut self,
        measure: impl Fn(&S, &AtomicBool) -> Result<R, TrialError>,
        setting: &S,
    ) -> Result<R, TrialError> {
        let measured = retry(self.interrupted, || measure(setting, self.interrupted))?;
        self.trials += 1;
        (self.observe)(Step::Trials(self.trials));
        Ok(measured)
    }

    /// Runs one trial for each setting that has not failed.
    ///
    /// # Errors
    /// Fails if a trial is interrupted.
    pub fn each(
        &mut self,
        measure: impl Fn(&E::Setting, &AtomicBool) -> Result<E::Run, TrialError>,
        group: &mut [RunsOf<E>],
    ) -> Result<(), TrialError> {
        for series in group.iter_mut().filter(|series| series.failure.is_none()) {
            let measured = self.trial(&measure, &series.setting);
            let run = series.keep(measured)?;
            self.add(series, run);
        }
        Ok(())
    }

    /// Adds a run to a setting; `None` means that the setting has failed.
    pub fn add(&mut self, series: &mut RunsOf<E>, run: Option<E::Run>) {
        series.runs.extend(run);
        if series.failure.is_some() || series.runs.len() == self.experiment.plan().runs {
            self.finish(series);
        }
    }

    /// Reports the row for a setting that will not be measured again.
    fn finish(&mut self, series: &RunsOf<E>) {
        let row = match series.failure {
            Some(_) => self.experiment.failed_row(series).to_string(),
            None => {
                let label = self.experiment.label(&series.setting);
                format!("{label}: {}", self.experiment.brief(&series.runs))
            }
        };
        (self.observe)(Step::Row(&row));
    }
}

/// Runs a trial until it succeeds or is interrupted, at most [`TRIES_MAX`] times.
fn retry<T>(
    interrupted: &AtomicBool,
    mut once: impl FnMut() -> Result<T, TrialError>,
) -> Result<T, TrialError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match once() {
            // A signal may also have ended the trial's programs, so later errors are meaningless.
            Err(_) if interrupted.load(Ordering::Relaxed) => return Err(TrialError::Interrupted),
            Err(error) if tries < TRIES_MAX && !matches!(error, TrialError::Interrupted) => {}
            result => return result,
        }
    }
}

/// Formats a median with its minimum, maximum and unit.
pub(crate) fn brief<R>(runs: &[R], value: impl Fn(&R) -> f64, unit: &str) -> String {
    let Spread { median, min, max, .. } = Spread::of(runs.iter().map(value));
    let [median, min, max] = [median, min, max].map(digits);
    format!("{median} {unit} ({min}-{max})")
}

/// Returns the CPUs for the sender and for everything else: the same CPU for both if there is only one.
pub(crate) fn two_processors() -> io::Result<[usize; 2]> {
    Ok(match allowed_processors()?[..] {
        [.., one, other] => [one, other],
        [one] => [one, one],
        [] => [0, 0],
    })
}

/// Returns the chosen CPUs of sender, data path and receiver. The default is one CPU for the sender and one for both
/// data path and receiver.
pub(crate) fn three_processors(chosen: Option<[usize; 3]>) -> io::Result<[usize; 3]> {
    let usual = || two_processors().map(|[sender, others]| [sender, others, others]);
    chosen.map_or_else(usual, Ok)
}

/// Maximum number of attempts at a trial.
const TRIES_MAX: usize = 3;
/// Number of bytes that are compared one by one before a setting is measured; they fill several hundred trains.
pub(crate) const VERIFIED_BYTES: u64 = 8 << 20;

/// Asserts that every number in a headline appears in the table.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_headline_is_in_the_table<F: Findings>(report: &Report<F>) {
    let (headline, table) = (report.findings.headline(), report.table());
    let numbers = |text: &str| -> Vec<String> {
        let numbers = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let numbers = numbers.map(|number| number.trim_matches('.').to_owned());
        numbers.filter(|number| !number.is_empty()).collect()
    };
    let known = numbers(&table);
    let missing: Vec<String> =
        numbers(&headline).into_iter().filter(|number| !known.contains(number)).collect();
    assert!(missing.is_empty(), "{missing:?} of \"{headline}\" is not in the table: {table}");
}

/// Asserts that if any one setting fails, the report contains no verdicts and no figures for it.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_failures_are_rows<E: Experiment>(
    experiment: &E,
    groups: impl Fn() -> Vec<Vec<RunsOf<E>>>,
) where
    E::Findings: Clone,
{
    use crate::verdict::Answer;

    let whole = experiment.report(groups()).unwrap();
    assert_headline_is_in_the_table(&whole);
    let check = |failing: &dyn Fn(usize, usize) -> bool| {
        let mut groups = groups();
        let mut labels = Vec::new();
        for (g, group) in groups.iter_mut().enumerate() {
            for (_, series) in group.iter_mut().enumerate().filter(|(i, _)| failing(g, *i)) {
                let error = TrialError::call("receiver", "read")(io::ErrorKind::TimedOut.into());
                assert!(series.keep::<()>(Err(error)).unwrap().is_none());
                labels.push(experiment.label(&series.setting));
            }
        }
        let report = experiment.report(groups).unwrap();
        let failed: Vec<&String> = report.failed.iter().map(|row| &row.setting).collect();
        assert_eq!(failed, labels.iter().collect::<Vec<_>>());
        let (table, page) = (report.table(), report.page("grosso lab", "unknown"));
        assert!(!table.contains("NaN") && !page.contains("NaN"), "{table}{page}");
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        for label in &labels {
            let row = format!("{label}: - (receiver: read: timed out)");
            let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&row), "{row}: {table}");
        }
        // A claim may disappear together with its row, but a failure must not create a claim. A claim about every row
        // cannot be judged from the rows that remain.
        for verdict in &report.verdicts {
            let is_about_all = ["never", "whatever", " best", " all "]
                .iter()
                .any(|word| verdict.claim.contains(word));
            let is_judged = !matches!(verdict.answer, Answer::CannotBeShownHere { .. });
            assert!(!is_about_all || !is_judged, "{verdict:?}");
            assert!(whole.verdicts.iter().any(|other| other.claim == verdict.claim), "{table}");
        }
        serde_json::to_value(&report).unwrap();
    };
    for (g, group) in groups().iter().enumerate() {
        (0..group.len()).for_each(|i| check(&|failing_g, failing| (failing_g, failing) == (g, i)));
        check(&|failing, _| failing == g);
    }
    check(&|_, _| true);
}

#[cfg(test)]
mod tests;
