//! `grosso lab nic`: measures the benefit of a device's own offloads. `grosso lab sink`: the counterpart, which runs on
//! the host at the other end of the link.

use std::{
    env,
    io::{self, Write},
    net::TcpListener,
    process::Command,
    sync::atomic::Ordering,
    time::Duration,
};

use grosso_lab::{
    experiment::Plan,
    netns::Device,
    nic_offloads::{Keeper, NicOffloadFindings, NicOffloadParameters, NicOffloads, watch},
    report::Report,
    sink::{Call, Direction, serve},
};
use grosso_sys::interface::{Control, InterfaceName};

use super::run::{LabReport, run_experiment};
use crate::{
    arguments::{LabCall, LabNic, LabSink},
    device,
    error::{Exit, Failure},
    form::ReportForm,
    session::Session,
};

/// Schema of this report.
pub(super) const FORM: ReportForm =
    LabReport::<Report<NicOffloadFindings>>::named("grosso.lab-nic/2");

/// Runs the experiment along with a watchdog process.
pub(super) fn run(options: &LabNic, session: &mut Session) -> Result<Exit, Failure> {
    let control = Control::new().map_err(|error| failed(&error))?;
    let nic = device::find("lab nic", &control, &options.device)?;
    let Some(peer) = options.peer.filter(|_| !options.watch) else { return watched(&nic) };
    let plan = Plan {
        runs: options.runs.into(),
        measured: Duration::from_nanos(options.time),
        device: Device::Veth,
        processors: None,
        parameters: NicOffloadParameters { nic, peer, features: options.feature.clone() },
    };
    let experiment = NicOffloads::new(plan).map_err(|error| refused(&nic, &error))?;
    let keeper = keeper(nic)?;
    let ended = run_experiment(Ok(experiment), FORM, ("nic", &options.page), session);
    keeper.restore().map_err(|error| {
        let hint = format!("grosso dev -k {nic} lists the features, grosso dev -K {nic} sets them");
        failed(&error).hint(hint)
    })?;
    ended
}

/// Starts the watchdog, which is a second process running this program.
fn keeper(nic: InterfaceName) -> Result<Keeper, Failure> {
    let start = || {
        let mut program = Command::new(env::current_exe()?);
        program.args(["lab", "nic", nic.as_str(), "--watch"]);
        Keeper::start(nic, &mut program)
    };
    start().map_err(|error: io::Error| failed(&error))
}

/// Runs as the watchdog. The process that started it reads its first line, and reports failures.
fn watched(nic: &InterfaceName) -> Result<Exit, Failure> {
    match watch(nic, io::stdin(), io::stdout()) {
        Ok(()) => Ok(Exit::Yes),
        Err(_) => Ok(Exit::Environment),
    }
}

/// Receives and sends streams until Ctrl-C.
pub(super) fn sink(options: &LabSink, session: &mut Session) -> Result<Exit, Failure> {
    if let Some(direction) = options.call {
        return call(options, direction, session);
    }
    let listener = TcpListener::bind(options.listen);
    let listener = listener.map_err(|error| {
        Failure::environment("environment.listen", format!("lab sink: {}: {error}", options.listen))
            .hint("use another address or port: grosso lab sink 0.0.0.0:5298")
    })?;
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    session.talk.remark(&format!("lab sink: listening at {address}; press Ctrl-C to stop"));
    // No data can be lost. Because the flag is already set, the first Ctrl-C ends the command immediately.
    session.reading.interrupted.store(true, Ordering::Relaxed);
    let served = serve(&listener, |served| {
        if let Err(error) = served {
            session.talk.remark(&format!("lab sink: cannot accept a connection: {error}"));
        }
    });
    served.map(|()| Exit::Yes).map_err(|error| failed(&error))
}

/// Connects to a sink from a `lab vm` guest. The process that started the guest reads the printed figures.
fn call(options: &LabSink, direction: LabCall, session: &mut Session) -> Result<Exit, Failure> {
    let direction = match direction {
        LabCall::Transmit => Direction::Transmit,
        LabCall::Receive => Direction::Receive,
    };
    let measured = options.time.map(Duration::from_nanos);
    let call = Call { peer: options.listen, direction, measured };
    let called =
        call.run(&session.reading.interrupted).map_err(|error| super::run::failed(&error))?;
    let line = serde_json::to_string(&called).map_err(|error| failed(&error.into()))?;
    writeln!(io::stdout(), "{line}").map(|()| Exit::Yes).map_err(|error| failed(&error))
}

fn refused(nic: &InterfaceName, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput => Failure::usage("usage.feature", format!("lab nic: {error}")),
        _ => device::refused("lab nic", &format!("changing {nic}"), "net_admin", error),
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::environment("environment.lab", format!("lab nic: {error}"))
}
