//! `grosso run`: runs the data paths defined in a file until a signal arrives.

use std::time::Instant;

use grosso_io::runner::Broken;

use crate::{
    arguments::Run,
    commands::summary::{RUN, broken, listen, observe, summarize},
    confinement,
    daemon::{
        config::Config,
        events::Event,
        manager,
        path::PathSpec,
        paths::Paths,
        recorder,
        restarts::{RESTARTS_MAX, Restarts},
    },
    error::{Exit, Failure},
    needs::Needs,
    observe::{self, PathReading, Service},
    session::Session,
};

/// Runs all paths defined in a file.
pub(crate) fn run(options: &Run, session: &mut Session) -> Result<Exit, Failure> {
    let config = Config::read(&options.config)?;
    let user = options.user.as_ref().or(config.user.as_ref());
    recorder::start().map_err(|error| {
        let message = format!(
            "run: cannot start the helper process for sequence files: \
                               {error}"
        );
        Failure::environment("environment.helper", message)
    })?;
    confinement::begin("run", user.map(String::as_str), &mut session.talk)?;
    confinement::start_closer("run")?;
    let events = listen("run")?;
    let mut daemon = Daemon {
        paths: Paths::new("run", events.sender.clone()),
        service: None,
        ended: Vec::new(),
        restarts: Restarts::default(),
        stuck: None,
        config: Config { paths: Vec::new(), ..config.clone() },
        options,
    };
    let started = daemon.start(config, session);
    started.inspect_err(|_| drop(daemon.paths.stop_all()))?;
    daemon.paths.lines().for_each(|line| session.talk.remark(&line));
    daemon.paths.notes().into_iter().for_each(|note| session.talk.note(note));
    confinement::settle("run")?;
    manager::ready(&daemon.status());
    let exit = loop {
        match events.next() {
            Event::Interrupt => break Ok(Exit::Interrupted),
            Event::Terminate => break Ok(Exit::Yes),
            Event::HangUp => daemon.reload(session),
            Event::Report => {
                let readings = daemon.paths.asked().readings();
                session.talk.block(&observe::print(&readings, session.talk.verbose));
            }
            Event::Scarce(number, scarcity) => {
                let note = daemon.paths.scarcity_note(number, scarcity);
                note.into_iter().for_each(|note| session.talk.note(note));
            }
            Event::Looped(path) => {
                daemon.paths.looped(path).into_iter().for_each(|note| session.talk.note(note))
            }
            Event::RouteChanged(path) => {
                daemon
                    .paths
                    .route_changed(path)
                    .into_iter()
                    .for_each(|note| session.talk.note(note));
            }
            Event::Note(note) => session.talk.note(note),
            Event::PathEnded(number) => {
                if let Some(failure) = daemon.ended(number, session) {
                    if daemon.paths.specs().next().is_none() {
                        break Err(failure);
                    }
                    session.talk.fail(&failure);
                    manager::status(&daemon.status());
                }
            }
        }
    };
    manager::stopping();
    daemon.service = None;
    for (reading, result) in daemon.paths.stop_all() {
        daemon.look_for_stuck(&reading.name, result.err());
        daemon.ended.push(reading);
    }
    summarize(RUN, &daemon.ended, session)?;
    // A stuck path takes precedence over other errors, because its thread occupies the devices until it resumes.
    daemon.stuck.take().map_or(exit, Err)
}

/// Returns the capabilities needed for the devices in the file.
pub(super) fn needs(options: &Run) -> Needs {
    Config::read(&options.config).map_or(Needs::NONE, |config| config.needs())
}

/// Running paths defined in a file, and the counts of those that have ended.
struct Daemon<'a> {
    options: &'a Run,
    /// Last valid version of the file.
    config: Config,
    paths: Paths,
    service: Option<Service>,
    /// Final counts of paths that have ended: one reading per path name.
    ended: Vec<PathReading>,
    restarts: Restarts,
    /// Failure of the first path that left a thread behind.
    stuck: Option<Failure>,
}

impl Daemon<'_> {
    fn start(&mut self, config: Config, session: &mut Session) -> Result<(), Failure> {
        for spec in &config.paths {
            self.paths.start(spec.clone())?;
        }
        self.observe(&config, session);
        self.config = config;
        Ok(())
    }

    /// Serves metrics at the address given on the command line or in the file. Retries listeners that failed earlier.
    fn observe(&mut self, config: &Config, session: &mut Session) {
        let metrics = self.options.metrics.or(config.metrics);
        let is_whole = |service: &Service| service.missing().is_empty();
        if self.service.as_ref().is_some_and(is_whole)
            && (self.options.metrics.is_some() || metrics == self.config.metrics)
        {
            return;
        }
        // The old service is stopped first, because the new one may need its socket.
        self.service = None;
        self.service = observe(metrics, self.paths.asked(), session);
    }

    /// Reads the file again. If it contains an error, the error is reported and nothing changes.
    fn reload(&mut self, session: &mut Session) {
        manager::reloading();
        match Config::read(&self.options.config) {
            Ok(config) => self.change(config, session),
            Err(failure) => {
                session.talk.fail(&failure);
                session.talk.remark("run: the file is invalid; no path was changed");
            }
        }
        confinement::look();
        manager::ready(&self.status());
    }

    fn change(&mut self, config: Config, session: &mut Session) {
        let before: Vec<PathSpec> = self.paths.specs().cloned().collect();
        let (kept, leaving): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|spec| config.paths.contains(spec));
        // All removed paths are stopped first, because their devices may be used again under a different path name.
        for spec in &leaving {
            if let Some((reading, result)) = self.paths.stop(&spec.name) {
                match self.look_for_stuck(&spec.name, result.err()) {
                    Some(failure) => session.talk.fail(&failure),
                    None => session.talk.remark(&format!("run: {} stopped", spec.name)),
                }
                self.remember(reading);
            }
        }
        for spec in config.paths.iter().filter(|spec| !kept.contains(spec)) {
            match self.paths.start(spec.clone()) {
                Ok(()) => session.talk.remark(&format!("run: {} started", spec.name)),
                Err(failure) => {
                    session.talk.fail(&failure);
                    self.go_back(replaced(&leaving, spec, &config), session);
                }
            }
        }
        if self.options.user.is_none() && config.user != self.config.user {
            session.talk.note("user: the change takes effect at the next start of grosso run");
        }
        self.observe(&config, session);
        self.config = config;
    }

    /// Restarts the old version of a path if the new one fails to start.
    fn go_back(&mut self, old: Option<&PathSpec>, session: &Session) {
        let Some(old) = old else { return };
        match self.paths.start(old.clone()) {
            Ok(()) => session.talk.remark(&format!("run: {} unchanged", old.name)),
            Err(failure) => session.talk.fail(&failure),
        }
    }

    /// Returns the failure of a path that ended on its own; `None` if the path was stopped, or if it panicked and was
    /// restarted.
    fn ended(&mut self, number: u64, session: &Session) -> Option<Failure> {
        let (reading, result) = self.paths.ended(number)?;
        let name = reading.name.clone();
        self.remember(reading);
        let error = result.err()?;
        let failure = broken(&format!("run: path {name}"), &error);
        match error {
            Broken::Defect { .. } => self.start_again(&name, failure, session),
            _ => Some(failure),
        }
    }

    /// Restarts a path that panicked, or returns its failure if it must not be restarted.
    fn start_again(&mut self, name: &str, defect: Failure, session: &Session) -> Option<Failure> {
        if !self.restarts.allow(name, Instant::now()) {
            let hint = format!(
                "the path was restarted {RESTARTS_MAX} times within a minute; to start it again, \
                 send SIGHUP"
            );
            return Some(defect.hint(hint));
        }
        let spec = self.config.paths.iter().find(|spec| spec.name == name);
        let Some(spec) = spec.cloned() else { return Some(defect) };
        session.talk.fail(&defect);
        let failure = self.paths.start(spec).err();
        if failure.is_none() {
            confinement::look();
            session.talk.remark(&format!("run: {name} restarted"));
        }
        failure
    }

    /// Returns the failure of a path that left a thread behind, and records it for the exit code.
    fn look_for_stuck(&mut self, name: &str, error: Option<Broken>) -> Option<Failure> {
        let error = error.filter(|error| matches!(error, Broken::Stuck { .. }))?;
        let failure = broken(&format!("run: path {name}"), &error);
        self.stuck.get_or_insert_with(|| failure.clone());
        Some(failure)
    }

    /// Stores the final counts of a path, because a restarted path starts counting at zero.
    fn remember(&mut self, reading: PathReading) {
        self.ended.retain(|older| older.name != reading.name);
        if self.ended.len() >= ENDED_MAX {
            self.ended.remove(0);
        }
        self.ended.push(reading);
    }

    fn status(&self) -> String {
        let running = self.paths.specs().count();
        let wanted = self.config.paths.len();
        match running == wanted {
            true => format!("{running} paths running"),
            false => format!("{running} of {wanted} paths running"),
        }
    }
}

/// Returns the path that a new one replaces: the one with the same name, or a removed path that used one of its
/// devices.
fn replaced<'a>(leaving: &'a [PathSpec], new: &PathSpec, config: &Config) -> Option<&'a PathSpec> {
    let is_gone = |old: &PathSpec| config.paths.iter().all(|path| path.name != old.name);
    let has = |old: &PathSpec| {
        let devices = [&old.left.device, &old.right.device];
        [&new.left.device, &new.right.device].iter().any(|device| devices.contains(device))
    };
    let same = leaving.iter().find(|old| old.name == new.name);
    same.or_else(|| leaving.iter().find(|old| is_gone(old) && has(old)))
}

/// Maximum number of ended paths kept for the summary.
const ENDED_MAX: usize = 64;
