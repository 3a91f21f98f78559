//! Experiments: the trials that answer a question, run in turn.

use std::{io, sync::atomic::AtomicBool, time::Duration};

use grosso_sys::scheduling::allowed_processors;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    hosts::Device,
    report::{Environment, Findings, Report},
    trial::TrialError,
    verdict::Verdict,
};

/// Parameters of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<P> {
    /// Measurements of each setting.
    pub runs: usize,
    /// Duration of each.
    pub measured: Duration,
    /// Device through which the data paths exchange packets with a host.
    pub device: Device,
    /// The processors of sender, data path and receiver, if they were chosen. Where each host has a data path, this one
    /// is the receiver's, and the other has the sender's processor.
    pub processors: Option<[usize; 3]>,
    /// Parameters of the experiment.
    pub parameters: P,
}

impl<P: Default> Default for Plan<P> {
    /// Three runs of a second, and the device that works everywhere.
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

/// Parameters of an experiment on TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TcpParameters {
    /// The congestion control of TCP.
    pub congestion: String,
}

impl Default for TcpParameters {
    fn default() -> Self {
        Self { congestion: "cubic".into() }
    }
}

/// A setting, and its runs.
#[derive(Clone, Debug)]
pub struct Series<S, R> {
    /// The setting.
    pub setting: S,
    /// Bytes of a separate run that were compared one by one with those sent; `None` if that was not done.
    pub verified_bytes: Option<u64>,
    /// The runs.
    pub runs: Vec<R>,
}

impl<S, R> Series<S, R> {
    /// These runs of a setting, of which no bytes were compared.
    pub const fn new(setting: S, runs: Vec<R>) -> Self {
        Self { setting, verified_bytes: None, runs }
    }
}

/// A setting of an experiment, and its runs.
pub type RunsOf<E> = Series<<E as Experiment>::Setting, <E as Experiment>::Run>;

/// Settings to measure, and what their runs mean.
pub trait Experiment {
    /// Parameters beside those of every plan.
    type Parameters: Clone;
    /// One setting to measure.
    type Setting: Clone;
    /// The measurement of a setting in one run.
    type Run;
    /// The figures.
    type Findings: Findings<Parameters = Self::Parameters>;

    /// The name, as in the command of `grosso`; empty for what `grosso lab` runs without one.
    fn name(&self) -> &'static str;

    /// Parameters of the measurement.
    fn plan(&self) -> &Plan<Self::Parameters>;

    /// Device through which its data paths exchange packets with a host; `None` if it has none.
    fn device(&self) -> Option<Device> {
        Some(self.plan().device)
    }

    /// The settings, in groups that are compared with each other.
    fn settings(&self) -> Vec<&[Self::Setting]>;

    /// Number of trials.
    fn trials(&self) -> usize {
        self.settings().into_iter().flatten().count() * self.plan().runs
    }

    /// Compares every byte that a setting carries with the one sent, before it is measured. Returns their number, or
    /// `None` if the traffic has no content to compare.
    ///
    /// # Errors
    /// Those of a trial.
    fn verify(
        &self,
        _setting: &Self::Setting,
        _interrupted: &AtomicBool,
    ) -> Result<Option<u64>, TrialError> {
        Ok(None)
    }

    /// Whether the setting is left out if this system fails to verify it with this error.
    fn is_optional(&self, _setting: &Self::Setting, _error: &io::Error) -> bool {
        false
    }

    /// Adds a run to every setting of a group.
    ///
    /// # Errors
    /// Those of a trial.
    fn measure(&self, group: &mut [RunsOf<Self>], bench: &mut Bench<'_>) -> Result<(), TrialError>;

    /// The figures of all runs, by group.
    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> Self::Findings;

    /// Verdicts on the figures.
    fn judge(&self, findings: &Self::Findings) -> Vec<Verdict>;

    /// Notes on reading the figures.
    fn notes(&self, findings: &Self::Findings) -> Vec<String>;

    /// Measures every setting in turn and repeats that, so that changes on the machine affect all settings alike.
    /// `done` is called with the number of trials done.
    ///
    /// # Errors
    /// Fails if a trial fails or `interrupted` is set.
    fn run(
        &self,
        interrupted: &AtomicBool,
        mut done: impl FnMut(usize),
    ) -> Result<Report<Self::Findings>, TrialError> {
        let mut groups = Vec::new();
        for settings in self.settings() {
            let mut group = Vec::new();
            for setting in settings {
                match self.verify(setting, interrupted) {
                    Err(TrialError::Io(error)) if self.is_optional(setting, &error) => {}
                    verified => group.push(Series {
                        verified_bytes: verified?,
                        ..Series::new(setting.clone(), Vec::new())
                    }),
                }
            }
            groups.push(group);
        }
        let mut bench = Bench { interrupted, trials: 0, done: &mut done };
        for _ in 0..self.plan().runs {
            for group in &mut groups {
                self.measure(group, &mut bench)?;
            }
        }
        Ok(self.report(groups)?)
    }

    /// The report of all runs, by group.
    ///
    /// # Errors
    /// Fails if the system does not describe itself.
    fn report(&self, groups: Vec<Vec<RunsOf<Self>>>) -> io::Result<Report<Self::Findings>> {
        let Plan { runs, measured, processors, parameters, .. } = self.plan();
        let findings = self.findings(groups);
        Ok(Report {
            experiment: self.name(),
            environment: Environment::of(
                (*runs, *measured),
                (self.device(), *processors),
                parameters.clone(),
            )?,
            verdicts: self.judge(&findings),
            notes: self.notes(&findings),
            findings,
        })
    }
}

/// A place for trials, which counts them.
pub struct Bench<'a> {
    interrupted: &'a AtomicBool,
    trials: usize,
    done: &'a mut dyn FnMut(usize),
}

impl Bench<'_> {
    /// Does one trial.
    ///
    /// # Errors
    /// Those of the trial.
    pub fn trial<S, R>(
        &mut self,
        measure: impl FnOnce(&S, &AtomicBool) -> Result<R, TrialError>,
        setting: &S,
    ) -> Result<R, TrialError> {
        let measured = measure(setting, self.interrupted)?;
        self.trials += 1;
        (self.done)(self.trials);
        Ok(measured)
    }

    /// Does one trial of each setting.
    ///
    /// # Errors
    /// Those of the trials.
    pub fn each<S, R>(
        &mut self,
        measure: impl Fn(&S, &AtomicBool) -> Result<R, TrialError>,
        group: &mut [Series<S, R>],
    ) -> Result<(), TrialError> {
        for Series { setting, runs, .. } in group {
            runs.push(self.trial(&measure, setting)?);
        }
        Ok(())
    }
}

/// The processors for the sender and for everything else: the same one if there is only one.
pub(crate) fn two_processors() -> io::Result<[usize; 2]> {
    Ok(match allowed_processors()?[..] {
        [.., one, other] => [one, other],
        [one] => [one, one],
        [] => [0, 0],
    })
}

/// The chosen processors of sender, data path and receiver; by default one for the sender and one for the rest.
pub(crate) fn three_processors(chosen: Option<[usize; 3]>) -> io::Result<[usize; 3]> {
    let usual = || two_processors().map(|[sender, others]| [sender, others, others]);
    chosen.map_or_else(usual, Ok)
}

/// Bytes that are compared one by one before a setting is measured: some hundred trains.
pub(crate) const VERIFIED_BYTES: u64 = 8 << 20;
