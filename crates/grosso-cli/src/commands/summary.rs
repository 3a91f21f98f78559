//! The common parts of `bridge` and `run`: signals, the metrics service, and the summary at the end.

use std::net::SocketAddr;

use grosso_io::PortError;
use serde::Serialize;

use crate::{
    daemon::{events::Events, paths::Asked},
    error::Failure,
    input::Session,
    observe::{self, PathReading, Service, reading::DeviceReading},
    report::{self, Place, Report, Tool},
    style::Style,
};

/// Starts to listen for signals.
pub(super) fn listen(command: &str) -> Result<Events, Failure> {
    Events::listen().map_err(|error| {
        let message = format!("{command}: no signals can be listened for: {error}");
        Failure::environment("environment.signals", message)
    })
}

/// Serves the counters of the process to those who ask.
pub(super) fn observe(
    command: &str,
    metrics: Option<SocketAddr>,
    asked: Asked,
    session: &Session,
) -> Result<Service, Failure> {
    let service = Service::start(metrics, move || asked.readings()).map_err(|error| {
        let (what, hint) = match metrics {
            Some(address) => (
                format!("answering on {address} or on the socket for grosso stats: {error}"),
                "is another program listening there? --metrics chooses another address",
            ),
            None => (
                format!("no socket for grosso stats: {error}"),
                "RUNTIME_DIRECTORY=DIR in the environment chooses where it is",
            ),
        };
        Failure::environment("environment.observe", format!("{command}: {what}")).hint(hint)
    })?;
    if session.talk.verbose {
        session.talk.remark(&format!("counters: {}", service.socket().display()));
    }
    if let Some(address) = service.metrics() {
        session.talk.remark(&format!("metrics: http://{address}/metrics"));
    }
    Ok(service)
}

/// The failure of a device under a running path.
pub(super) fn broken(command: &str, error: &PortError) -> Failure {
    let code = match error {
        PortError::Gone { .. } => "environment.device_gone",
        _ => "environment.device",
    };
    Failure::environment(code, format!("{command}: {error}"))
}

/// Prints the counts of paths.
pub(super) fn summarize(
    schema: &'static str,
    readings: &[PathReading],
    session: &mut Session,
) -> Result<(), Failure> {
    let mut summary = Summary {
        schema,
        tool: Tool::THIS,
        devices: observe::reading::devices(readings, false),
        text: observe::print(readings),
        warnings: Vec::new(),
    };
    report::print(&mut summary, &mut session.talk, Place::Standard)
}

/// The counts of the paths from their start to their end.
#[derive(Debug, Serialize)]
struct Summary {
    schema: &'static str,
    tool: Tool,
    devices: Vec<DeviceReading>,
    #[serde(skip)]
    text: String,
    warnings: Vec<String>,
}

impl Report for Summary {
    fn text(&self, _style: Style) -> String {
        self.text.clone()
    }

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }
}
