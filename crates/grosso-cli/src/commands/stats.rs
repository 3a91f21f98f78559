//! `grosso stats`: prints the counters of running data paths.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::event::{Timespec, poll};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    arguments::Stats,
    confinement::Confinement,
    error::{Exit, Failure},
    form::ReportForm,
    name::{harmless, shown},
    observe::{
        control::{Answer, Answers, Ask, ask_all, earlier, folders},
        json::DeviceLine,
        prometheus,
        reading::{DeviceReading, Values},
        text,
    },
    report::{self, Envelope, Place, Report},
    session::Session,
    style::Style,
};

/// Schemas of the reports: a single object, and the lines of `--jsonl`.
pub(super) const FORMS: [ReportForm; 2] = [StatsReport::FORM, DeviceLine::FORM];

/// Runs the command.
pub(crate) fn run(options: &Stats, session: &mut Session) -> Result<Exit, Failure> {
    if session.talk.json && options.interval.is_some() && options.count != Some(1) {
        let message = "stats: --json and --interval cannot be combined, because --json prints a \
                       single object";
        return Err(Failure::usage("usage.json", message).hint("use --jsonl instead of --json"));
    }
    let result = series(options, session);
    // A program that reads JSON lines expects failures as JSON, too.
    session.talk.json |= options.jsonl;
    result
}

fn series(options: &Stats, session: &mut Session) -> Result<Exit, Failure> {
    let mut pace = options.interval.map(Pace::new);
    let mut before: Option<Vec<Answer>> = None;
    let mut left = options.interval.map_or(1, |_| options.count.unwrap_or(u64::MAX));
    loop {
        let answers = match running("stats", options.per_queue, &options.devices, session) {
            Ok(answers) => answers,
            // The data paths were still running at the previous reading.
            Err(_) if before.is_some() => {
                session.talk.note("the data paths have ended");
                return Ok(Exit::Yes);
            }
            Err(failure) => return Err(failure),
        };
        print(options, &answers, before.as_deref(), session)?;
        before = Some(answers);
        left -= 1;
        match &mut pace {
            Some(pace) if left > 0 => {
                if pace.wait(&session.reading.interrupted) {
                    return Ok(Exit::Interrupted);
                }
            }
            _ => return Ok(Exit::Yes),
        }
    }
}

/// Queries the running Grosso processes, and returns their answers for the requested devices, or for all devices if
/// none is named.
///
/// # Errors
/// Fails if there is no running process that this user may query, or if no running path uses one of the requested
/// devices.
pub(crate) fn running(
    command: &str,
    per_queue: bool,
    devices: &[String],
    session: &mut Session,
) -> Result<Vec<Answer>, Failure> {
    let Answers { mut answers, forbidden, silent } =
        ask_all(&folders(), &Ask::Counters { per_queue });
    for (path, why) in &silent {
        session.talk.note(format!("{}: {why}", shown(path)));
    }
    if answers.is_empty() {
        return Err(nothing(command, &forbidden));
    }
    let mut there: Vec<&str> = answers.iter().flat_map(devices_of).collect();
    there.sort_unstable();
    there.dedup();
    if let Some(missing) = devices.iter().find(|device| !there.contains(&device.as_str())) {
        let message = format!("{command}: no running data path uses the device {missing}");
        let hint = match there.is_empty() {
            true => "the running data paths have no devices".to_owned(),
            false => format!("the data paths use these devices: {}", harmless(&there.join(", "))),
        };
        return Err(Failure::environment("environment.no_device", message).hint(hint));
    }
    if !devices.is_empty() {
        for answer in &mut answers {
            answer.devices.retain(|reading| devices.contains(&reading.device));
        }
    }
    Ok(answers)
}

fn devices_of(answer: &Answer) -> impl Iterator<Item = &str> {
    answer.devices.iter().map(|reading| reading.device.as_str())
}

fn nothing(command: &str, forbidden: &[PathBuf]) -> Failure {
    match forbidden.first() {
        Some(path) => {
            let message = format!("{command}: {}: permission denied", shown(path));
            let hint = format!("run as root: sudo grosso {command}");
            Failure::environment("environment.permission", message).hint(hint)
        }
        None => {
            let message = format!("{command}: no data path of this user is running");
            let hint = "start one with grosso bridge A B or grosso run -c FILE";
            Failure::environment("environment.nothing_running", message).hint(hint)
        }
    }
}

fn print(
    options: &Stats,
    answers: &[Answer],
    before: Option<&[Answer]>,
    session: &mut Session,
) -> Result<(), Failure> {
    if options.prom {
        let devices: Vec<_> = answers.iter().flat_map(|answer| &answer.devices).cloned().collect();
        return report::put(&prometheus::page(&devices), Place::Standard);
    }
    let before = before.filter(|_| options.delta);
    let lines: Vec<StatsLine<'_>> = answers
        .iter()
        .flat_map(|answer| answer.devices.iter().map(move |reading| (answer, reading)))
        .map(|(answer, reading)| {
            let earlier = before.and_then(|before| earlier(before, answer.pid, reading));
            let change = earlier.map(|(_, earlier)| reading.counters.since(&earlier.counters));
            StatsLine { answer, reading, change }
        })
        .collect();
    if options.jsonl {
        let lines = lines.iter().map(|line| serde_json::to_string(&line.json()));
        let text: Result<Vec<String>, _> = lines.collect();
        let text = text.map_err(|error| Failure::internal(error.to_string()))?;
        return report::put(&(text.join("\n") + "\n"), Place::Standard);
    }
    let mut report = StatsReport {
        devices: lines.iter().map(StatsLine::json).collect(),
        processes: answers.iter().map(ProcessLine::of).collect(),
        text: lines.iter().map(|line| line.text(session.talk.verbose)).collect(),
    };
    if session.talk.verbose {
        report.text.extend(report.processes.iter().map(ProcessLine::text));
    }
    report::print(&report, &session.talk, Place::Standard)
}

/// Device, with the options for printing it.
struct StatsLine<'a> {
    answer: &'a Answer,
    reading: &'a DeviceReading,
    change: Option<Values>,
}

impl StatsLine<'_> {
    fn json(&self) -> DeviceLine<'_> {
        let Answer { ts_ns, pid, .. } = self.answer;
        DeviceLine::new(*ts_ns, *pid, self.reading, self.change.as_ref())
    }

    fn text(&self, all: bool) -> String {
        text::device(self.reading, self.change.as_ref(), all)
    }
}

/// Report of `stats`.
#[derive(Serialize, JsonSchema)]
struct StatsReport<'a> {
    devices: Vec<DeviceLine<'a>>,
    processes: Vec<ProcessLine<'a>>,
    #[serde(skip)]
    text: String,
}

/// Process, and the confinement of its threads.
#[derive(Serialize, JsonSchema)]
struct ProcessLine<'a> {
    pid: u32,
    #[serde(flatten)]
    confinement: &'a Confinement,
}

impl<'a> ProcessLine<'a> {
    fn of(answer: &'a Answer) -> Self {
        Self { pid: answer.pid, confinement: &answer.confinement }
    }

    fn text(&self) -> String {
        let lines = self.confinement.lines().map(|line| format!("    {line}\n"));
        format!("process {}\n{}", self.pid, lines.collect::<String>())
    }
}

impl StatsReport<'_> {
    /// Schema of this report.
    const FORM: ReportForm =
        ReportForm::of::<Envelope<StatsReport<'static>>>("grosso.stats_list/1");
}

impl Report for StatsReport<'_> {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, _style: Style) -> String {
        self.text.clone()
    }
}

/// Timer that fires at regular intervals, without drift.
pub(crate) struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval }
    }

    /// Sleeps until the timer fires. Returns whether Ctrl-C came first.
    pub(crate) fn wait(&mut self, interrupted: &AtomicBool) -> bool {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return true;
            }
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // After a long stop, intervals that were missed are skipped.
                self.next = (self.next + self.interval).max(Instant::now());
                return false;
            }
            // A signal ends this sleep.
            let left = Timespec::try_from(left).ok();
            let _ = poll(&mut [], left.as_ref());
        }
    }
}
