//! `grosso lab EXPERIMENT`: measures, and reports.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grosso_lab::{
    experiment::{Experiment, GroupResult, Plan},
    hosts::Device,
    permit::{self, Refusal},
    traffic::Traffic,
    trial::{self, TrialError},
};
use serde::Serialize;

use crate::{
    arguments::{LabChecksums, LabDevice, LabOptions, LabPage, LabTool},
    error::{Exit, Failure},
    input::Session,
    progress::Progress,
    report::{self, Place, Report, Tool},
    style::Style,
};

/// Measures; without a name it is the headline. The process must have one thread: it may have to make itself a user
/// namespace.
pub(super) fn run(
    name: &'static str,
    options: &LabOptions,
    session: &mut Session,
) -> Result<Exit, Failure> {
    refuse_tool(name, options)?;
    permit::enter().map_err(|refusal| refused(&refusal))?;
    let plan = plan(name, options)?;
    let experiment = match name {
        "" => Experiment::headline(plan),
        "lro" => Experiment::lro(plan),
        "gso" => Experiment::gso(plan),
        "flows" => Experiment::flows(plan),
        "reorder" => Experiment::reorder(plan),
        "rtt" => Experiment::rtt(plan),
        "tcp-stream" if options.sendfile => Experiment::traffic(name, Traffic::TcpSendfile, plan),
        "tcp-stream" => Experiment::traffic(name, Traffic::TcpStream, plan),
        "tcp-maerts" => Experiment::traffic(name, Traffic::TcpMaerts, plan),
        "tcp-rr" => Experiment::traffic(name, Traffic::TcpRequests, plan),
        "udp-stream" => Experiment::traffic(name, Traffic::UdpStream, plan),
        _ => Experiment::traffic(name, Traffic::UdpRequests, plan),
    };
    let experiment = experiment.map_err(|error| failed(&error.into()))?;
    let trials = experiment.trials();
    session
        .talk
        .remark(&format!("lab: {trials} trials of {:?}", Duration::from_nanos(options.time)));
    let started = Instant::now();
    let progress = Progress::trials(trials as u64, !session.talk.quiet && !session.talk.json);
    let ended = experiment.run(&session.interrupted, |done| progress.at(done as u64));
    progress.finish();
    let results = match ended {
        Ok(results) => results,
        Err(TrialError::Interrupted) => return Ok(Exit::Interrupted),
        Err(error) => return Err(failed(&error)),
    };
    if results.groups.iter().any(is_disturbed) {
        session.talk.note("other programs ran on the CPU meanwhile: Gb/s per CPU allows for it");
    }
    let runs = || results.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.runs);
    if runs().any(|run| run.receiver_coalesced == Some(false)) {
        session.talk.note(
            "the receiver's kernel coalesces nothing unless root runs the lab: each packet costs it more, \
             and superframes of the sender are worth less",
        );
    }
    if runs().any(|run| run.retransmits > 0 && run.acknowledgements_steered == Some(false)) {
        session.talk.note(
            "on two CPUs the sender's packets overtake each other unless root runs the lab: \
             it sends some again, though none was lost",
        );
    }
    if options.congestion == "bbr" {
        session.talk.note("bbr paces its packets, which hides what offload does: try cubic");
    }
    let page = |command: &str| results.page(command);
    let html = write_page(name, &options.page, page, session)?;
    let mut report = LabReport {
        schema: "grosso.lab/1",
        tool: Tool::THIS,
        table: results.table(),
        results,
        elapsed_s: started.elapsed().as_secs_f64(),
        html,
        warnings: Vec::new(),
    };
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Refuses what iperf3 cannot measure, or cannot because it is not there.
fn refuse_tool(name: &str, options: &LabOptions) -> Result<(), Failure> {
    if options.tool == LabTool::BuiltIn {
        return Ok(());
    }
    if ["gso", "tcp-rr", "udp-rr"].contains(&name) {
        let message = format!("lab {name}: iperf3 does not measure it");
        return Err(Failure::usage("usage.tool", message).hint("leave out --tool"));
    }
    match Command::new("iperf3").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("lab: iperf3: {error}");
            let hint = "sudo apt install iperf3, or your system's equivalent; or leave out --tool";
            Err(Failure::environment("environment.tool", message).hint(hint))
        }
    }
}

fn plan(name: &str, options: &LabOptions) -> Result<Plan, Failure> {
    Ok(Plan {
        runs: options.runs.unwrap_or(if name == "lro" { 5 } else { 3 }).into(),
        measured: Duration::from_nanos(options.time),
        congestion: options.congestion.clone(),
        hold: Duration::from_nanos(options.hold),
        sendfile: options.sendfile,
        device: device(options.device)?,
        full_checksums: options.checksums == LabChecksums::Receiver,
        tool: match options.tool {
            LabTool::BuiltIn => trial::Tool::BuiltIn,
            LabTool::Iperf3 => trial::Tool::Iperf3,
        },
    })
}

/// What the data path hands packets to a host through.
pub(super) fn device(wanted: LabDevice) -> Result<Device, Failure> {
    match wanted {
        LabDevice::Auto => Ok(Device::probe()),
        LabDevice::Veth => Ok(Device::Veth),
        LabDevice::Tap => {
            permit::tap().map_err(|refusal| refused(&refusal))?;
            Ok(Device::Tap)
        }
    }
}

/// Writes the page. Where nobody chose a place for it, one that cannot be written to is no failure.
pub(super) fn write_page(
    name: &str,
    wanted: &LabPage,
    page: impl FnOnce(&str) -> String,
    session: &mut Session,
) -> Result<Option<PathBuf>, Failure> {
    if wanted.no_html {
        return Ok(None);
    }
    let usual = || match name {
        "" => PathBuf::from("grosso-lab.html"),
        name => format!("grosso-lab-{name}.html").into(),
    };
    let path = wanted.html.clone().unwrap_or_else(usual);
    match fs::write(&path, page(&session.command_line)) {
        Ok(()) => Ok(Some(path)),
        Err(error) if wanted.html.is_none() => {
            session.talk.note(format!("no page: {}: {error}", path.display()));
            Ok(None)
        }
        Err(error) => {
            let message = format!("lab: {}: {error}", path.display());
            Err(Failure::environment("environment.write", message))
        }
    }
}

/// Alone on one processor, what is done in a second is what is done in a second of the processor.
fn is_disturbed(group: &GroupResult) -> bool {
    group.processors == 1
        && group.rows.iter().any(|row| {
            row.gigabits_a_second.median < row.gigabits_a_cpu_second.median * UNDISTURBED
        })
}

pub(super) fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::UserNamespaces(_) => "environment.user_namespaces",
        Refusal::NoTun(_) | Refusal::TunClosed { .. } => "environment.tun",
        _ => "environment.lab",
    };
    Failure::environment(code, format!("lab: {refusal}")).hint(refusal.remedy())
}

pub(super) fn failed(error: &TrialError) -> Failure {
    Failure::environment("environment.lab", format!("lab: {error}"))
}

/// What the lab measured.
#[derive(Debug, Serialize)]
pub(super) struct LabReport<R> {
    pub(super) schema: &'static str,
    pub(super) tool: Tool,
    #[serde(flatten)]
    pub(super) results: R,
    /// The same for people.
    #[serde(skip)]
    pub(super) table: String,
    pub(super) elapsed_s: f64,
    /// The page, if one was written.
    pub(super) html: Option<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl<R: Serialize> Report for LabReport<R> {
    fn text(&self, _style: Style) -> String {
        let mut text = self.table.clone();
        if let Some(page) = &self.html {
            text += &format!("Plots: {}\n", page.display());
        }
        text
    }

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }
}

/// The share of the processor below which others had a part of it.
const UNDISTURBED: f64 = 0.85;
