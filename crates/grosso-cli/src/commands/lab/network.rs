//! `grosso lab run`: runs the user's own commands on two hosts, with a link between them that can be impaired.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use grosso_lab::{
    network::{Host, Network, NetworkOptions, Passed, Summary},
    trial::{Measured, TrialError},
};
use grosso_sys::process::{die_with_parent, is_first, isolate_children, show_in_proc};
use schemars::JsonSchema;
use serde::Serialize;

use super::run::{device, enter, failed, processors};
use crate::{
    arguments::{LabHost, LabRun},
    error::{Exit, Failure},
    form::ReportForm,
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Runs the command.
pub(super) fn run(options: &LabRun, session: &mut Session) -> Result<Exit, Failure> {
    let servers = servers(options)?;
    let processors = processors("--cpus", options.processors.cpus)?;
    enter()?;
    let has_commands = !options.command.is_empty() || !servers.is_empty();
    if has_commands {
        if !is_first() {
            return contain(session);
        }
        // This fails in a container that hides parts of /proc. The only consequence is that `ps` shows other processes
        // as well.
        let _ = show_in_proc();
    }
    let network = NetworkOptions {
        mtu: options.mtu,
        impairment: options.impair.clone(),
        coalesce: (!options.no_coalesce).then(|| Duration::from_nanos(options.hold)),
        device: device(options.device)?,
        processors,
    };
    let network = Network::start(network).map_err(|error| failed(&error.into()))?;
    let mut started = Vec::new();
    for (host, line) in servers {
        let mut command = Command::new("sh");
        // Standard output is reserved for the command on host a.
        command.args(["-c", &line]).stdin(Stdio::null()).stdout(std::io::stderr());
        let mut server = spawn(&network, host, &mut command, &line)?;
        network.await_listener(host, &mut server).map_err(|error| failed(&error.into()))?;
        started.push(server);
    }
    let began = Instant::now();
    let (status, stream) = match &options.command[..] {
        [] => (None, Some(stream(&network, options, session)?)),
        [program, words @ ..] => {
            let line = program.to_string_lossy().into_owned();
            let mut command = spawn(&network, Host::A, Command::new(program).args(words), &line)?;
            let ended = wait_at_most(&mut command, session, GRACE);
            (Some(ended.map_err(|error| failed(&error.into()))?), None)
        }
    };
    let elapsed_s = began.elapsed().as_secs_f64();
    for mut server in started {
        // The server may already have ended.
        let _ = server.kill();
        let _ = server.wait();
    }
    let summary = network.stop().map_err(|error| failed(&error.into()))?;
    let exit_code = status.map(code);
    let report = RunReport { elapsed_s, exit_code, stream, wire: summary };
    // Standard output is reserved for the command.
    let place = if status.is_some() { Place::Error } else { Place::Standard };
    report::print(&report, &session.talk, place)?;
    match exit_code {
        // Fixed exit codes apply only to Grosso's own commands. Here, the exit code is that of the command that was
        // run.
        Some(code) => std::process::exit(code),
        None if session.reading.interrupted.load(Ordering::Relaxed) => Ok(Exit::Interrupted),
        None => Ok(Exit::Yes),
    }
}

/// Returns the commands that `--on` starts, each with the host on which to run it.
fn servers(options: &LabRun) -> Result<Vec<(Host, String)>, Failure> {
    let mut servers = Vec::new();
    for pair in options.on.chunks(2) {
        let [host, line] = pair else { continue };
        let host = match host.parse()? {
            LabHost::A => Host::A,
            LabHost::B => Host::B,
        };
        servers.push((host, line.clone()));
    }
    Ok(servers)
}

/// Runs this process's command line again, as the first process in a new PID namespace. All processes started there end
/// along with the first process, no matter how that process or this one ends.
fn contain(session: &Session) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| {
        Failure::environment(
            "environment.lab",
            format!("lab: cannot start a private process: {error}"),
        )
    };
    let program = env::current_exe().map_err(failed)?;
    isolate_children().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1));
    let mut inside = die_with_parent(&mut command).spawn().map_err(failed)?;
    let status = wait_at_most(&mut inside, session, GRACE * 2).map_err(failed)?;
    if session.reading.interrupted.load(Ordering::Relaxed) && status.signal().is_some() {
        return Ok(Exit::Interrupted);
    }
    std::process::exit(code(status))
}

fn spawn(
    network: &Network,
    host: Host,
    command: &mut Command,
    name: &str,
) -> Result<Child, Failure> {
    network.spawn(host, command).map_err(|error| {
        let message = format!("lab: {name}: {error}");
        Failure::environment("environment.command", message)
    })
}

/// Waits for a process, which also receives Ctrl-C. If the process does not end within the grace time, it is killed.
fn wait_at_most(
    process: &mut Child,
    session: &Session,
    grace: Duration,
) -> std::io::Result<ExitStatus> {
    let mut told = None;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if session.reading.interrupted.load(Ordering::Relaxed)
            && told.get_or_insert_with(Instant::now).elapsed() > grace
        {
            process.kill()?;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Runs the built-in stream from a to b.
fn stream(network: &Network, options: &LabRun, session: &mut Session) -> Result<Measured, Failure> {
    let time = options.time.map_or(STREAM, Duration::from_nanos);
    session.talk.remark(&format!("lab run: measuring a stream from a to b for {time:?}"));
    match network.stream(time, &options.congestion, &session.reading.interrupted) {
        Ok(measured) => Ok(measured),
        Err(TrialError::Interrupted) => Ok(Measured::default()),
        Err(error) => Err(failed(&error)),
    }
}

/// Returns the exit code of a finished command, as a shell would report it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Report on the traffic between the hosts.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunReport {
    elapsed_s: f64,
    /// Exit code of the command.
    exit_code: Option<i32>,
    /// Built-in stream, if there was no command.
    stream: Option<Measured>,
    wire: Summary,
}

impl RunReport {
    /// Schema of this report.
    pub(super) const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.lab-run/1");
}

impl Report for RunReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, _style: Style) -> String {
        let mut text = String::new();
        if let Some(stream) = self.stream.as_ref().filter(|stream| stream.bytes > 0) {
            text += &format!(
                "{:.2} Gb/s for {:.1} s, {:.2} CPU s/GB; {} segments retransmitted; all bytes \
                 correct\n",
                stream.gigabits_a_second(),
                stream.seconds,
                stream.cpu_seconds.total() / (stream.bytes as f64 * 1e-9),
                stream.retransmits,
            );
        }
        text += "            frames    forwarded       lost reordered duplicated corrupted\n";
        for (name, passed) in [("a to b", self.wire.a_to_b), ("b to a", self.wire.b_to_a)] {
            let Passed { rx_frames, tx_frames, lost, reordered, duplicated, corrupted, .. } =
                passed;
            let lost = lost + passed.overflowed;
            text += &format!(
                "{name} {rx_frames:>11} {tx_frames:>12} {lost:>10} {reordered:>9} {duplicated:>10} \
                 {corrupted:>9}\n"
            );
        }
        text
    }
}

/// Duration of the built-in stream.
const STREAM: Duration = Duration::from_secs(5);
/// Interval between checks of whether the command has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Maximum time that a command may take to exit after Ctrl-C.
const GRACE: Duration = Duration::from_secs(2);
