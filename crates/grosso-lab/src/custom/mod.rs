//! Custom experiments: a file describes hosts, wires, data paths, several settings, and claims about the results.
//!
//! The lab does not parse the configuration of the paths. The program that reads the file starts them ([`StartPaths`])
//! in the network's namespaces.

mod claim;
mod findings;
mod network;
mod table;
mod trial;

use core::fmt;
use std::{io, sync::atomic::AtomicBool, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

pub use self::{
    claim::{CustomClaim, Figure, Than},
    findings::{CustomFindings, CustomRow},
    network::{
        Contradiction, CustomHost, CustomNetwork, CustomWire, HostDevice, LaidNetwork, PathPlace,
    },
    trial::{CustomFrames, CustomPath, CustomRun, CustomTraffic},
};
use crate::{
    experiment::{Bench, Experiment, Plan, RunsOf, brief},
    netns::Device,
    report::FailedRow,
    trial::TrialError,
    verdict::Verdict,
};

/// A custom experiment.
pub struct Custom<S> {
    plan: Plan<CustomParameters>,
    network: CustomNetwork,
    traffic: CustomTraffic,
    settings: Vec<CustomSetting>,
    claims: Vec<CustomClaim>,
    start: S,
}

/// A setting: its name, and the number with which it is passed to [`StartPaths`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomSetting {
    /// Index of the setting in the list of all settings.
    pub number: usize,
    /// The name.
    pub name: String,
}

/// The parameters of a custom experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CustomParameters {
    /// Path of the file that describes the experiment.
    pub config: String,
    /// Names of the sending host and the receiving host.
    pub hosts: [String; 2],
    /// Number of concurrent TCP connections.
    pub connections: usize,
    /// Congestion control of the connections.
    pub congestion: String,
    /// The CPUs of the sender and the receiver, if the user chose them.
    #[serde(rename = "host_cpus", skip_serializing_if = "Option::is_none")]
    pub processors: Option<[usize; 2]>,
}

/// The running paths in a setting.
pub trait RunningPaths {
    /// Returns the names and control handles of the paths.
    fn paths(&self) -> Vec<CustomPath>;

    /// Stops the paths.
    ///
    /// # Errors
    /// Returns the error of the first path that ended early.
    fn stop(self: Box<Self>) -> io::Result<()>;
}

/// Starts the paths in a setting, each in its namespace in the network.
pub trait StartPaths {
    /// Starts the paths of `setting`.
    ///
    /// # Errors
    /// Fails if a path's device cannot be opened.
    fn start(&self, setting: usize, laid: &LaidNetwork) -> io::Result<Box<dyn RunningPaths>>;
}

impl<S> fmt::Debug for Custom<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Custom").field("network", &self.network).finish_non_exhaustive()
    }
}

impl<S: StartPaths> Custom<S> {
    /// Creates an experiment with one setting per name.
    ///
    /// # Errors
    /// Fails if no CPU is available, or if the network contradicts itself.
    pub fn new(
        (config, runs, measured): (String, usize, Duration),
        (network, traffic): (CustomNetwork, CustomTraffic),
        (settings, claims): (Vec<String>, Vec<CustomClaim>),
        start: S,
    ) -> io::Result<Self> {
        network.check().map_err(|wrong| io::Error::new(io::ErrorKind::InvalidInput, wrong))?;
        let settings = settings.into_iter().enumerate();
        let parameters = CustomParameters {
            config,
            hosts: traffic.hosts.map(|host| network.hosts[host].name.clone()),
            connections: traffic.connections,
            congestion: traffic.congestion.clone(),
            processors: traffic.processors,
        };
        Ok(Self {
            plan: Plan { runs, measured, device: Device::Tap, processors: None, parameters },
            network,
            traffic,
            settings: settings.map(|(number, name)| CustomSetting { number, name }).collect(),
            claims,
            start,
        })
    }

    fn measure_once(
        &self,
        setting: &CustomSetting,
        interrupted: &AtomicBool,
    ) -> Result<CustomRun, TrialError> {
        let laid = self.network.lay()?;
        let running = self.start.start(setting.number, &laid)?;
        let measured = laid.connect().map_err(TrialError::from).and_then(|()| {
            let times = (self.plan.measured / WARM_UP_SHARE, self.plan.measured);
            trial::measure(&laid, &self.traffic, &running.paths(), times, interrupted)
        });
        // If a path has ended early, its error explains all other failures.
        running.stop()?;
        measured
    }
}

impl<S: StartPaths> Experiment for Custom<S> {
    type Parameters = CustomParameters;
    type Setting = CustomSetting;
    type Run = CustomRun;
    type Findings = CustomFindings;

    fn name(&self) -> &'static str {
        "run"
    }

    fn plan(&self) -> &Plan<CustomParameters> {
        &self.plan
    }

    fn device(&self) -> Option<Device> {
        None
    }

    fn settings(&self) -> Vec<&[CustomSetting]> {
        vec![&self.settings]
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        bench.each(|setting, interrupted| self.measure_once(setting, interrupted), group)
    }

    fn label(&self, setting: &CustomSetting) -> String {
        setting.name.clone()
    }

    fn brief(&self, runs: &[CustomRun]) -> String {
        brief(runs, CustomRun::gbps, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> CustomFindings {
        CustomFindings::new(groups.into_iter().flatten().collect())
    }

    fn judge(&self, findings: &CustomFindings) -> Vec<Verdict> {
        self.claims.iter().filter_map(|claim| claim.judge(findings)).collect()
    }

    fn notes(&self, findings: &CustomFindings, _failed: &[FailedRow]) -> Vec<String> {
        findings.losses()
    }
}

/// Measurement time divided by warm-up time.
const WARM_UP_SHARE: u32 = 5;

#[cfg(test)]
mod tests {
    use super::{findings::CustomFindings, *};
    use crate::{
        experiment::Series,
        page::assert_shown,
        report::{Environment, Report},
        table::assert_kept,
    };

    /// Returns findings for two settings: `whole`, which forwards every packet, and `loses`, which drops packets that
    /// are too long.
    pub(super) fn findings() -> CustomFindings {
        let run = |bytes, too_long| CustomRun {
            seconds: 1.0,
            bytes,
            too_long,
            retransmits: too_long / 10,
            ..CustomRun::default()
        };
        let series = |number, name: &str, bytes: [u64; 5], too_long| {
            let setting = CustomSetting { number, name: name.into() };
            Series::new(setting, bytes.map(|bytes| run(bytes, too_long)).to_vec())
        };
        CustomFindings::new(vec![
            series(
                0,
                "whole",
                [1_000_000_000, 990_000_000, 1_010_000_000, 1_000_000_000, 1_000_000_000],
                0,
            ),
            series(1, "loses", [10_000_000, 9_000_000, 11_000_000, 10_000_000, 10_000_000], 40),
        ])
    }

    #[test]
    fn the_table_fits_a_terminal_and_the_page_needs_nothing() {
        let parameters = CustomParameters {
            config: "lro.toml".into(),
            hosts: ["a".into(), "b".into()],
            connections: 1,
            congestion: "cubic".into(),
            processors: None,
        };
        let lengths = (3, Duration::from_secs(1));
        let report = Report {
            experiment: "run",
            environment: Environment::of(lengths, (None, None), parameters).unwrap(),
            findings: findings(),
            failed: Vec::new(),
            ratios: Vec::new(),
            verdicts: Vec::new(),
            notes: Vec::new(),
        };
        let table = assert_kept("custom", &report);
        let words = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(words("whole "), ["8.00", "(7.92-8.08)", "100.0", "-", "0", "0", "1.00"]);
        assert_eq!(words("loses "), ["0.08", "(0.07-0.09)", "1.0", "-", "4", "40", "1.00"]);
        let page = report.page("grosso lab run --config \"a&b.toml\"", "unknown");
        assert_shown(&page);
        assert!(page.contains("a&amp;b.toml"), "{page}");
        assert!(page.contains("0.08 Gb/s with loses, 8.00 with whole"), "{page}");
    }
}
