//! `grosso lab run --config FILE`: runs the experiment described in a file.

use std::{io, path::Path, time::Instant};

use grosso_lab::{
    custom::{Custom, CustomFindings, CustomPath, LaidNetwork, RunningPaths, StartPaths},
    report::Report,
};

use grosso_analysis::capture::refuse_same_file;

use super::{
    custom_file::CustomFile,
    run::{LabReport, enter, processors, run_experiment},
};
use crate::{
    arguments::{LabPage, LabRun},
    daemon::{
        notices::Notices,
        path::{PathSpec, RunningPath},
        paths::STOP_WAIT,
        port::Device,
    },
    error::{Exit, Failure},
    form::ReportForm,
    name::shown,
    session::Session,
};

/// Schema of the report on a custom experiment.
pub(super) const FORM: ReportForm = LabReport::<Report<CustomFindings>>::named("grosso.lab-own/2");

/// Runs the experiment described in a file.
pub(super) fn run(config: &Path, options: &LabRun, session: &mut Session) -> Result<Exit, Failure> {
    if let Some(page) = &options.html {
        refuse_same_file(config, page, &shown(page))?;
    }
    let mut file = CustomFile::read(config)?;
    if let Some(runs) = options.runs {
        file.runs = runs.into();
    }
    if let Some(time) = options.time {
        file.time = std::time::Duration::from_nanos(time);
    }
    file.traffic.processors = processors("cpus of [measure]", file.traffic.processors)?;
    enter()?;
    let paths = file.settings.iter().flat_map(|setting| &setting.paths);
    if paths.clone().any(|path| is_tun(&path.left.device) || is_tun(&path.right.device)) {
        super::run::device(crate::arguments::LabDevice::Tap)?;
    }
    let (names, starts): (Vec<_>, Vec<_>) =
        file.settings.into_iter().map(|setting| (setting.name, setting.paths)).unzip();
    let experiment = Custom::new(
        (shown(config).to_string(), file.runs, file.time),
        (file.network, file.traffic),
        (names, file.claims),
        Starts(starts),
    );
    let page = LabPage { html: options.html.clone(), no_html: options.no_html };
    run_experiment(experiment, FORM, ("run", &page), session)
}

fn is_tun(device: &Device) -> bool {
    device.port().created().is_some()
}

/// Data paths to start for each setting.
struct Starts(Vec<Vec<PathSpec>>);

impl StartPaths for Starts {
    fn start(&self, setting: usize, laid: &LaidNetwork) -> io::Result<Box<dyn RunningPaths>> {
        let mut running = Box::new(Started(Vec::new()));
        for (i, spec) in self.0[setting].iter().enumerate() {
            let start = || RunningPath::start(spec.clone(), "lab", &[], &Notices::none(), || ());
            let started = laid.of_path(i).run(start)?;
            let path = started.map_err(|failure| {
                let name = &spec.name;
                io::Error::other(format!("path {name}: {}", failure.message))
            })?;
            running.0.push(path);
        }
        Ok(running)
    }
}

/// Running paths, which are stopped when this value is dropped.
struct Started(Vec<RunningPath>);

impl RunningPaths for Started {
    fn paths(&self) -> Vec<CustomPath> {
        let path = |path: &RunningPath| CustomPath {
            name: path.spec.name.clone(),
            handles: path.handles().to_vec(),
        };
        self.0.iter().map(path).collect()
    }

    fn stop(self: Box<Self>) -> io::Result<()> {
        let mut result = Ok(());
        for path in self.0 {
            let name = path.spec.name.clone();
            let (ended, _) = path.stop(Instant::now() + STOP_WAIT);
            let ended = ended.map_err(|broken| io::Error::other(format!("path {name}: {broken}")));
            result = result.and(ended);
        }
        result
    }
}
