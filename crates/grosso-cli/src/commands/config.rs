//! `grosso config`: checks configuration files.

mod esp;

pub(super) use self::esp::CONVERTED;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::{ConfigCheck, ConfigCommand},
    daemon::{config, port::PortSpec},
    error::{Exit, Failure},
    form::ReportForm,
    name::Name,
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Runs the command.
pub(super) fn run(command: &ConfigCommand, session: &mut Session) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check(options) => check(options, session),
        ConfigCommand::Esp(options) => esp::esp(options, session),
    }
}

/// Reads a configuration file, and reports the paths described in it.
fn check(options: &ConfigCheck, session: &mut Session) -> Result<Exit, Failure> {
    let config = config::Config::read(&options.file)?;
    let ports = config.paths.iter().flat_map(|path| [&path.left, &path.right]);
    ports.filter_map(PortSpec::features_lost).for_each(|note| session.talk.note(note));
    let paths = config.paths.iter().map(|path| PathFacts {
        name: path.name.clone(),
        left: path.left.device.to_string(),
        right: path.right.device.to_string(),
        profile: path.profile.name.to_string(),
        queues: path.queues,
    });
    let checked = Checked { path: Name::of(&options.file), paths: paths.collect() };
    report::print(&checked, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Report on a configuration file.
#[derive(Debug, Serialize, JsonSchema)]
struct Checked {
    path: Name,
    paths: Vec<PathFacts>,
}

/// Path described in the file.
#[derive(Debug, Serialize, JsonSchema)]
struct PathFacts {
    name: String,
    left: String,
    right: String,
    profile: String,
    queues: usize,
}

/// Schema of this report.
pub(crate) const CHECKED: ReportForm = ReportForm::of::<Envelope<Checked>>("grosso.config/1");

impl Report for Checked {
    fn form(&self) -> ReportForm {
        CHECKED
    }

    fn text(&self, _style: Style) -> String {
        let mut text = format!("{}: {}\n", self.path, count(self.paths.len(), "path"));
        for path in &self.paths {
            let queues = count(path.queues, "queue");
            text += &format!("  {}: {} <-> {}, {queues}\n", path.name, path.left, path.right);
        }
        text
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
