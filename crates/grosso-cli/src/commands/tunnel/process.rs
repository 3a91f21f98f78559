//! Manages a tunnel's process, which is `grosso run` in the background with the tunnel's definition as its
//! configuration file.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::{net::UnixDatagram, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use grosso_sys::{
    path::{self, kernel, socket},
    sandbox::User,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    arguments::{Detail, Run},
    commands::run,
    confinement::no_user,
    device::refused,
    error::{Exit, Failure},
    session::Session,
    tunnel::TunnelFiles,
};

/// State of a tunnel's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// No process exists.
    None,
    /// The process with this ID is running.
    Running(i32),
    /// The process ended without being asked to.
    Ended,
}

impl Process {
    /// Returns the state of the process for the tunnel whose files are at `place`.
    pub(super) fn of(place: &TunnelFiles) -> Self {
        let Some(remembered) = remembered(place) else { return Self::None };
        match remembered {
            // The process ID may have been reused in the meantime.
            Some((number, started)) if start_time(number) == Some(started) => Self::Running(number),
            _ => Self::Ended,
        }
    }
}

/// Returns the ID and start time of a tunnel's process, `Some(None)` if they cannot be read, or `None` if there is no
/// process.
fn remembered(place: &TunnelFiles) -> Option<Option<(i32, u64)>> {
    let text = path::read_text(&place.process(), PROCESS_BYTES_MAX).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(number)), Some(Ok(started))) = (numbers.next(), numbers.next()) else {
        return Some(None);
    };
    Some(i32::try_from(number).ok().map(|number| (number, started)))
}

/// Returns the start time of a running process, in kernel ticks.
fn start_time(number: i32) -> Option<u64> {
    let (state, started) = stat(Path::new(&format!("/proc/{number}")))?;
    // A zombie is no longer running.
    (state != "Z").then_some(started)
}

/// Returns whether a killed process is still releasing its resources. Until it is gone, its device is still in use.
fn is_ending(number: i32, started: u64) -> bool {
    let process = PathBuf::from(format!("/proc/{number}"));
    let is_it = stat(&process).is_some_and(|(_, start)| start == started);
    let tasks = process.join("task");
    let threads = kernel::names(&tasks).into_iter().flatten();
    let is_over = |state: &str| matches!(state, "Z" | "X");
    let mut states = threads.filter_map(|thread| Some(stat(&tasks.join(thread))?.0));
    is_it && states.any(|state| !is_over(&state))
}

/// Returns the state of a process or thread, and its start time in kernel ticks.
fn stat(folder: &Path) -> Option<(String, u64)> {
    let stat = kernel::read(folder.join("stat")).ok()?;
    // The second field is the program's name in parentheses, which may itself contain any characters.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(START_TIME - STATE - 1)?.parse().ok()?))
}

fn remember(place: &TunnelFiles, number: i32) -> io::Result<()> {
    let started = start_time(number).unwrap_or(0);
    path::replace(&place.process(), format!("{number} {started}\n").as_bytes(), 0o644)
}

/// Starts the process, and waits until its path is running.
pub(super) fn start(command: &str, place: &TunnelFiles, user: Option<&str>) -> Result<(), Failure> {
    let failed = |path: &Path, error: &io::Error| {
        let message = format!("{command}: {}: {error}", path.display());
        Failure::environment("environment.write", message)
    };
    let meeting = Meeting::prepare(command, place, user)?;
    let notice = &meeting.notice;
    let heard = listen_at(notice).map_err(|error| failed(notice, &error))?;
    meeting.hand_over(command)?;
    if let Some(Some((number, started))) = remembered(place) {
        let end = Instant::now() + STOP_MAX;
        while is_ending(number, started) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
    }
    let log = place.log();
    let file = path::create(&log, 0o644).map_err(|error| failed(&log, &error))?;
    let started = spawn(place, &meeting, file).and_then(|child| {
        remember(place, i32::try_from(child.id()).unwrap_or(0))?;
        heard.set_read_timeout(Some(LOOK))?;
        Ok(child)
    });
    let mut child = started.map_err(|error| {
        let message = format!("{command}: cannot start a process: {error}");
        Failure::environment("environment.process", message)
    })?;
    let result = wait(command, place, &heard, &mut child);
    // The socket is no longer needed.
    let _ = path::remove(notice);
    if result.is_err() {
        let _ = child.kill();
        let _ = child.wait();
        let _ = place.remove_private_folder();
        let _ = path::remove(&place.process());
    }
    result
}

/// Socket on which a process reports that it is running. It is in a directory that the process's user can access.
struct Meeting<'a> {
    notice: PathBuf,
    /// User to which the process switches: name, ID, and the directory for the user's sockets.
    user: Option<(&'a str, User, PathBuf)>,
}

impl<'a> Meeting<'a> {
    fn prepare(command: &str, place: &TunnelFiles, name: Option<&'a str>) -> Result<Self, Failure> {
        let Some(name) = name else {
            return Ok(Self { notice: place.notice(), user: None });
        };
        let failed = |error: io::Error| no_user(command, name, &error);
        let user = User::named(name).map_err(failed)?;
        let folder = place.make_private_folder().map_err(failed)?;
        Ok(Self { notice: folder.join("notify"), user: Some((name, user, folder)) })
    }

    /// Makes the user the owner of the socket and its directory. The directory comes last, so that nobody else can
    /// change its contents until then.
    fn hand_over(&self, command: &str) -> Result<(), Failure> {
        let Some((name, user, folder)) = &self.user else { return Ok(()) };
        let own = |path: &Path| path::change_owner(path, Some(user.number()), None);
        let result = own(&self.notice).and_then(|()| own(folder));
        result.map_err(|error| no_user(command, name, &error))
    }
}

/// Binds the socket on which a process reports that it is running. A socket left behind by a killed process is
/// replaced.
fn listen_at(notice: &Path) -> io::Result<UnixDatagram> {
    let bound = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    socket::bind(&bound, SocketType::DGRAM, notice, 0o600)?;
    Ok(bound.into())
}

fn spawn(place: &TunnelFiles, meeting: &Meeting<'_>, log: File) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--quiet", "--config"]).arg(place.definition());
    command.env("NOTIFY_SOCKET", &meeting.notice);
    if let Some((name, _, folder)) = &meeting.user {
        command.args(["--user", name]).env("RUNTIME_DIRECTORY", folder);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // Ctrl-C is meant only for the process that started this one.
    command.process_group(0).spawn()
}

fn wait(
    command: &str,
    place: &TunnelFiles,
    heard: &UnixDatagram,
    child: &mut Child,
) -> Result<(), Failure> {
    let end = Instant::now() + START_MAX;
    let mut buffer = [0; NOTICE_BYTES_MAX];
    loop {
        if let Ok(len) = heard.recv(&mut buffer)
            && buffer.get(..len).is_some_and(|said| said.starts_with(b"READY=1"))
        {
            return Ok(());
        }
        let ended = child.try_wait().ok().flatten();
        if ended.is_none() && Instant::now() < end {
            continue;
        }
        let log = place.log();
        let said = last_error(&log);
        let why =
            said.map_or_else(|| "the tunnel's process did not start".to_owned(), |said| said.what);
        let failure = Failure::environment("environment.tunnel", format!("{command}: {why}"));
        let hint = last_error(&log).and_then(|said| said.hint);
        return Err(failure.hint(hint.unwrap_or_else(|| format!("see {}", log.display()))));
    }
}

/// Runs as a tunnel's process until a signal arrives.
pub(super) fn stay(
    command: &str,
    place: &TunnelFiles,
    session: &mut Session,
) -> Result<Exit, Failure> {
    remember(place, rustix::process::getpid().as_raw_nonzero().get()).map_err(|error| {
        let message = format!("{command}: {}: {error}", place.process().display());
        Failure::environment("environment.write", message)
    })?;
    let ended = run::run(
        &Run { config: place.definition(), metrics: None, user: None, detail: Detail::default() },
        session,
    );
    let _ = path::remove(&place.process());
    ended
}

/// Stops the process after it has delivered its held packets. Returns whether there was a process.
pub(super) fn stop(command: &str, place: &TunnelFiles) -> Result<bool, Failure> {
    let Process::Running(number) = Process::of(place) else {
        // A killed process leaves its process ID file behind. Without that file, the tunnel counts as down.
        let _ = path::remove(&place.process());
        return Ok(false);
    };
    let what = format!("ending process {number} of {}", place.name);
    let failed = |error: io::Error| refused(command, &what, "kill", &error);
    let pid = Pid::from_raw(number).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let file = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    kill_process(pid, Signal::TERM).map_err(|error| failed(error.into()))?;
    let timeout = Timespec::try_from(STOP_MAX).ok();
    let mut wanted = [PollFd::new(&file, PollFlags::IN)];
    match poll(&mut wanted, timeout.as_ref()) {
        Ok(0) => {
            let message = format!("{command}: process {number} of {} did not exit", place.name);
            let hint = format!("sudo kill -9 {number}");
            return Err(Failure::environment("environment.process", message).hint(hint));
        }
        Ok(_) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let _ = path::remove(&place.process());
    let _ = place.remove_private_folder();
    Ok(true)
}

/// Error reported by a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReportedError {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

/// Returns the last error in a log. The log contains nothing but errors.
pub(super) fn last_error(log: &Path) -> Option<ReportedError> {
    let mut file = path::open(log).ok()?;
    let bytes = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_BYTES_MAX))).ok()?;
    let mut tail = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let mut lines = text.lines().rev();
    let mut hint = None;
    let what = lines.find_map(|line| {
        if let Some(text) = line.strip_prefix("hint: ") {
            hint = Some(text.to_owned());
        }
        let what = line.strip_prefix("grosso: ")?;
        Some(what.strip_prefix("run: ").unwrap_or(what).to_owned())
    })?;
    Some(ReportedError { what, hint })
}

/// Field numbers of `/proc/PID/stat` (`proc_pid_stat(5)`).
const STATE: usize = 3;
const START_TIME: usize = 22;
/// Interval between checks of whether a silent process has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time for a started process to open its two devices.
const START_MAX: Duration = Duration::from_secs(30);
/// Maximum time for a stopped process to deliver its held packets and exit.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Maximum length of a notification to a service manager, in bytes.
const NOTICE_BYTES_MAX: usize = 4096;
/// Number of bytes read from the end of a log.
const LOG_BYTES_MAX: u64 = 64 << 10;
/// Maximum size of a process ID file, in bytes.
const PROCESS_BYTES_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_is_identified_by_pid_and_start_time() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(start_time(own).is_some_and(|started| started > 0));
        assert_eq!(start_time(i32::MAX), None);
        let started = start_time(own).unwrap();
        assert!(is_ending(own, started) && !is_ending(own, started + 1));
    }

    #[test]
    fn the_last_error_comes_with_its_hint() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_error(&log), None);
        fs::write(&log, "").unwrap();
        assert_eq!(last_error(&log), None);
        let text = "grosso: run: a\nhint: b\ngrosso: run: path gue0: gue0: the device was \
                    removed\n";
        fs::write(&log, text).unwrap();
        let what = "path gue0: gue0: the device was removed".to_owned();
        assert_eq!(last_error(&log), Some(ReportedError { what, hint: None }));
        fs::write(&log, "grosso: run: a\nhint: b\n").unwrap();
        assert_eq!(last_error(&log).unwrap().hint.as_deref(), Some("b"));
    }
}
