//! `grosso lab EXPERIMENT`: measurements and their report.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use grosso_lab::{
    experiment::{Experiment, GroupResult, Plan, Report},
    traffic::Traffic,
    trial,
};

use super::conduct::{LabReport, conduct, device, enter, failed, write_page};
use crate::{
    arguments::{LabChecksums, LabOptions, LabTool},
    error::{Exit, Failure},
    input::Session,
};

/// Runs a measurement; without a name it is the headline.
pub(super) fn run(
    name: &'static str,
    options: &LabOptions,
    wire_bits: Option<u64>,
    session: &mut Session,
) -> Result<Exit, Failure> {
    refuse_tool(name, options)?;
    enter()?;
    let mut plan = plan(name, options)?;
    plan.wire_bits = wire_bits.unwrap_or(plan.wire_bits);
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
    conduct(
        (experiment.trials(), options.time),
        session,
        |interrupted, done| experiment.run(interrupted, done),
        |results, session| {
            note(options, &results, session);
            let html = write_page(name, &options.page, |command| results.page(command), session)?;
            Ok(LabReport::new("grosso.lab/1", results.table(), results).with_page(html))
        },
    )
}

/// Notes the conditions under which the figures measure the machine, or something else.
fn note(options: &LabOptions, results: &Report, session: &mut Session) {
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
}

/// Refuses a measurement that iperf3 does not support, or for which it is not installed.
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
        ..Plan::default()
    })
}

/// Whether other programs had a part of the processor: with one processor for the test alone, a second has a second of
/// processor time.
fn is_disturbed(group: &GroupResult) -> bool {
    group.processors == 1
        && group.rows.iter().any(|row| {
            row.gigabits_a_second.median < row.gigabits_a_cpu_second.median * UNDISTURBED
        })
}

/// The share of the processor below which others must have had a part of it.
const UNDISTURBED: f64 = 0.85;
