//! `grosso lab EXPERIMENT`: runs a measurement, and prints the report.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use grosso_lab::{
    experiment::Plan,
    offload::{Offload, OffloadFindings, OffloadParameters},
    report::Report,
    traffic::Traffic,
    trial::Tool,
};

use super::run::{LabReport, enter, plan, processors, run_experiment};
use crate::{
    arguments::{LabChecksums, LabMore, LabOptions, LabTool},
    error::{Exit, Failure},
    form::ReportForm,
    session::Session,
};

/// Schema of this report.
pub(super) const FORM: ReportForm = LabReport::<Report<OffloadFindings>>::named("grosso.lab/3");

/// Runs a measurement. If no name is given, runs the headline experiment.
pub(super) fn run(
    name: &'static str,
    options: &LabOptions,
    more: LabMore,
    session: &mut Session,
) -> Result<Exit, Failure> {
    refuse_tool(name, options)?;
    let processors = processors("--cpus", options.processors.cpus)?;
    enter()?;
    let mut parameters = OffloadParameters {
        congestion: options.congestion.clone(),
        hold: Duration::from_nanos(options.hold),
        sendfile: options.sendfile,
        full_checksums: options.checksums == LabChecksums::Receiver,
        timestamps: !more.no_timestamps,
        buffer_bytes: more.buffers.map(|bytes| bytes as usize),
        tool: match options.tool {
            LabTool::BuiltIn => Tool::BuiltIn,
            LabTool::Iperf3 => Tool::Iperf3,
        },
        ..OffloadParameters::default()
    };
    parameters.wire_bits = more.wire_bits.unwrap_or(parameters.wire_bits);
    let runs = options.runs.unwrap_or(if name == "lro" { 5 } else { 3 });
    let plan = plan(runs, options.time, options.device, parameters)?;
    let plan = Plan { processors, ..plan };
    let experiment = match name {
        "" => Offload::headline(plan),
        "lro" => Offload::lro(plan),
        "gso" => Offload::gso(plan),
        "flows" => Offload::flows(plan),
        "load" => Offload::load(plan),
        "reorder" => Offload::reorder(plan),
        "rtt" => Offload::rtt(plan),
        "tcp-stream" if options.sendfile => Offload::traffic(name, Traffic::TcpSendfile, plan),
        "tcp-stream" => Offload::traffic(name, Traffic::TcpStream, plan),
        "tcp-maerts" => Offload::traffic(name, Traffic::TcpMaerts, plan),
        "tcp-rr" => Offload::traffic(name, Traffic::TcpRequests, plan),
        "udp-stream" => Offload::traffic(name, Traffic::UdpStream, plan),
        _ => Offload::traffic(name, Traffic::UdpRequests, plan),
    };
    run_experiment(experiment, FORM, (name, &options.page), session)
}

/// Rejects a measurement with iperf3 if iperf3 does not support it or is not installed.
fn refuse_tool(name: &str, options: &LabOptions) -> Result<(), Failure> {
    if options.tool == LabTool::BuiltIn {
        return Ok(());
    }
    if ["gso", "tcp-rr", "udp-rr"].contains(&name) {
        let message = format!("lab {name}: not supported by iperf3");
        return Err(Failure::usage("usage.tool", message).hint("omit --tool"));
    }
    match Command::new("iperf3").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("lab: iperf3: {error}");
            let hint = "sudo apt install iperf3, or your system's equivalent; or omit --tool";
            Err(Failure::environment("environment.tool", message).hint(hint))
        }
    }
}
