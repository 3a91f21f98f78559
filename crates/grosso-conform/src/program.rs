//! A running program whose time and output are limited. One thread writes to it and another reads from it, so no pipe
//! can block the test, no matter what the program reads or writes.

use std::{
    ffi::OsString,
    io::{self, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel},
    thread,
    time::{Duration, Instant},
};

use super::{
    framing::{Framed, Misfit, poll, read_poll},
    vectors::Vector,
};

/// Way in which a program broke down: it ended too early, or did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Breakdown {
    /// The program did not answer in time.
    Hung(Duration),
    /// The program exited before its input ended.
    Ended(String),
    /// The program wrote data that violates the format.
    Misfit(Misfit),
    /// The program wrote more data after the last poll.
    Behind,
    /// The program exited with a failure status.
    Status(String),
    /// Ctrl-C was pressed.
    Interrupted,
}

impl core::fmt::Display for Breakdown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hung(time) => {
                write!(
                    f,
                    "the program did not end the poll within {} s and was killed",
                    time.as_secs_f64()
                )
            }
            Self::Ended(status) => {
                write!(f, "the program's output ended before the end of the poll: {status}")
            }
            Self::Misfit(misfit) => misfit.fmt(f),
            Self::Behind => f.write_str("the program wrote output after the end of the last poll"),
            Self::Status(status) => write!(f, "the program failed: {status}"),
            Self::Interrupted => f.write_str("Ctrl-C"),
        }
    }
}

/// Output from one poll; `None` if the program has closed its output.
type Answer = Result<Option<Vec<Framed>>, Misfit>;

/// Running program.
pub(crate) struct Judged {
    child: Child,
    /// Channel for the polls to be written; `None` once the program's input has ended.
    to: Option<Sender<Vec<u8>>>,
    from: Receiver<Answer>,
    time: Duration,
    /// Whether the process has ended. If so, its ID may already belong to another process.
    has_ended: bool,
}

impl Judged {
    /// Starts a program, which then has to answer each poll within `time`.
    pub(crate) fn start(words: &[OsString], time: Duration) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        in_its_own_group(&mut command);
        let mut child = command.spawn()?;
        let (to, polls) = channel();
        // The channel holds a single answer, so a program that writes endlessly fills the pipe and is blocked.
        let (answers, from) = sync_channel(1);
        if let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) {
            thread::spawn(move || write(input, &polls));
            thread::spawn(move || read(output, |answer| answers.send(answer).is_ok()));
        }
        Ok(Self { child, to: Some(to), from, time, has_ended: false })
    }

    /// Passes the frames of a vector to the program in one poll, and returns its output.
    pub(crate) fn poll(
        &mut self,
        vector: &Vector,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Vec<Framed>, Breakdown> {
        // A program that no longer reads is detected because its answer is missing.
        let _ = self.to.as_ref().map(|to| to.send(poll(vector.header, &vector.frames)));
        match self.answer(is_interrupted)? {
            Ok(Some(records)) => Ok(records),
            Ok(None) => Err(Breakdown::Ended(self.status())),
            Err(Misfit::Cut | Misfit::NoEnd) if self.failed() => {
                Err(Breakdown::Ended(self.status()))
            }
            Err(misfit) => Err(Breakdown::Misfit(misfit)),
        }
    }

    /// Ends the program's input. The program must then exit successfully without further output.
    pub(crate) fn finish(mut self, is_interrupted: impl Fn() -> bool) -> Result<(), Breakdown> {
        self.to = None;
        match self.answer(is_interrupted)? {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(Breakdown::Behind),
        }
        match self.ended(self.time) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(Breakdown::Status(status.to_string())),
            None => Err(Breakdown::Hung(self.time)),
        }
    }

    fn answer(&self, is_interrupted: impl Fn() -> bool) -> Result<Answer, Breakdown> {
        let start = Instant::now();
        loop {
            match self.from.recv_timeout(GLANCE.min(self.time)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Ok(Ok(None)),
                Err(RecvTimeoutError::Timeout) if is_interrupted() => {
                    return Err(Breakdown::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() >= self.time => {
                    return Err(Breakdown::Hung(self.time));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns whether the program exits with a failure status in time. Its output has already ended.
    fn failed(&mut self) -> bool {
        self.ended(self.time).is_some_and(|status| !status.success())
    }

    /// Returns the exit status as text. The program's output has already ended.
    fn status(&mut self) -> String {
        match self.ended(self.time) {
            Some(status) => status.to_string(),
            None => "the program is still running".to_owned(),
        }
    }

    /// Returns the exit status if the program exits within `time`.
    fn ended(&mut self, time: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.has_ended = true;
                    return Some(status);
                }
                Ok(None) if start.elapsed() < time => thread::sleep(PAUSE),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Kills a program that is still running, along with its child processes. The threads that use its pipes then end.
impl Drop for Judged {
    fn drop(&mut self) {
        if !self.has_ended {
            kill_group(&self.child);
            // The program may have exited in the meantime.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn write(mut input: ChildStdin, polls: &Receiver<Vec<u8>>) {
    for poll in polls {
        if input.write_all(&poll).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

fn read(output: ChildStdout, mut tell: impl FnMut(Answer) -> bool) {
    let mut output = BufReader::new(output);
    loop {
        let answer = read_poll(&mut output);
        let goes_on = matches!(answer, Ok(Some(_)));
        if !tell(answer) || !goes_on {
            return;
        }
    }
}

#[cfg(unix)]
fn in_its_own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(unix)]
fn kill_group(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The process group may be empty.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn in_its_own_group(_: &mut Command) {}

#[cfg(not(unix))]
fn kill_group(_: &Child) {}

/// Interval between checks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(100);
/// Interval between checks of whether the program has exited.
const PAUSE: Duration = Duration::from_millis(1);
