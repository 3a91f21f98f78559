//! `grosso monitor`: shows running data paths on the full screen, or prints them as text for logs.

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use schemars::JsonSchema;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::stats::{Pace, running};
use crate::{
    arguments::Monitor as Options,
    error::{Exit, Failure},
    form::{FormPage, ReportForm},
    observe::{
        control::Answer,
        monitor::{
            rates::{Rates, table},
            screen::{clock, draw},
            state::{AfterKey, MonitorState, rates},
        },
    },
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Runs the command.
pub(crate) fn run(options: &Options, session: &mut Session) -> Result<Exit, Failure> {
    if options.once || options.batch {
        return print(options, session);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() || session.talk.json {
        let message = "monitor: full-screen mode needs a terminal";
        let hint = "to print text, use grosso monitor --once, or -b for repeated output";
        return Err(Failure::usage("usage.terminal", message).hint(hint));
    }
    // Report errors before switching the screen.
    let first = running("monitor", false, &options.devices, session)?;
    watch(options, first, session)
}

/// Schema pages of this command.
pub(super) const PAGES: &[FormPage] =
    &[FormPage { commands: &["monitor"], forms: &[MonitorReport::FORM] }];

/// Prints the counters for each interval.
fn print(options: &Options, session: &mut Session) -> Result<Exit, Failure> {
    let mut pace = Pace::new(options.interval);
    let mut before = running("monitor", false, &options.devices, session)?;
    let mut left = if options.once { 1 } else { options.count.unwrap_or(u64::MAX) };
    while left > 0 {
        if pace.wait(&session.reading.interrupted) {
            return Ok(Exit::Interrupted);
        }
        let Ok(answers) = running("monitor", false, &options.devices, session) else {
            session.talk.note("the data paths have ended");
            return Ok(Exit::Yes);
        };
        let report = MonitorReport {
            ts_ns: answers.iter().map(|answer| answer.ts_ns).max().unwrap_or(0),
            interval_s: options.interval.as_secs_f64(),
            devices: rates(&before, &answers),
        };
        report::print(&report, &session.talk, Place::Standard)?;
        before = answers;
        left -= 1;
    }
    Ok(Exit::Yes)
}

/// Counters for one interval.
#[derive(Serialize, JsonSchema)]
struct MonitorReport {
    ts_ns: u64,
    interval_s: f64,
    devices: Vec<Rates>,
}

impl MonitorReport {
    /// Schema of this report.
    const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.monitor/1");
}

impl Report for MonitorReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, _style: Style) -> String {
        format!("{}\n{}", clock(self.ts_ns), table(&self.devices))
    }
}

/// Shows the screen until the user quits or a signal arrives.
fn watch(options: &Options, first: Vec<Answer>, session: &mut Session) -> Result<Exit, Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        // Without a handler, the signal would end the program without restoring the terminal.
        let _ = signal_hook::flag::register(signal, Arc::clone(&ended));
    }
    let color = session.talk.when.decide(true);
    // Notes would appear in the middle of the screen.
    session.talk.quiet = true;
    let failed = |error: io::Error| {
        Failure::environment(
            "environment.terminal",
            format!("monitor: cannot use the terminal: {error}"),
        )
    };
    let mut screen = Screen::open().map_err(failed)?;
    let mut monitor = MonitorState::default();
    monitor.take(first);
    let mut next = Instant::now() + options.interval;
    loop {
        if ended.load(Ordering::Relaxed) || session.reading.interrupted.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        if Instant::now() >= next {
            next = (next + options.interval).max(Instant::now());
            match running("monitor", false, &options.devices, session) {
                Ok(answers) => monitor.take(answers),
                Err(failure) => monitor.lose(failure.message),
            }
        }
        screen.0.draw(|frame| draw(frame, &monitor, color)).map_err(failed)?;
        let left = next.saturating_duration_since(Instant::now()).min(LOOK);
        match wait_for_key(left).map_err(failed)? {
            Keyboard::Silent => {}
            Keyboard::Gone => return Ok(Exit::Interrupted),
            Keyboard::Ready => {
                while event::poll(Duration::ZERO).map_err(failed)? {
                    if let Event::Key(key) = event::read().map_err(failed)?
                        && key.kind != KeyEventKind::Release
                        && monitor.key(key) == AfterKey::Quit
                    {
                        return Ok(Exit::Yes);
                    }
                }
            }
        }
    }
}

/// Result of waiting for a key.
enum Keyboard {
    Silent,
    Ready,
    /// The terminal was disconnected, so a read from it returns immediately without data.
    Gone,
}

/// Waits for a key, and detects a disconnected terminal. Call [`event`] only if the terminal is connected; otherwise it
/// would read over and over, because each read returns immediately without data.
fn wait_for_key(longest: Duration) -> io::Result<Keyboard> {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let longest = Timespec::try_from(longest).unwrap_or_default();
    match poll(&mut asked, Some(&longest)) {
        Ok(0) | Err(Errno::INTR) => Ok(Keyboard::Silent),
        Ok(_) if asked[0].revents() == PollFlags::IN => Ok(Keyboard::Ready),
        Ok(_) => Ok(Keyboard::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Terminal in drawing mode. The previous mode is restored when this value is dropped or the program panics.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Interval between checks for a signal. A signal may go unnoticed for this long.
const LOOK: Duration = Duration::from_millis(100);
