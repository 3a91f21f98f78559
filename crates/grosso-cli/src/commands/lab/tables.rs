//! `grosso lab acks`, `cost`, `fragments` and `tunnels`: each of them runs one experiment with its own settings.

use std::time::Duration;

use grosso_lab::{
    acks::{AckFindings, AckParameters, Acks, Senders},
    cost::{Cost, CostFindings},
    experiment::{Plan, TcpParameters},
    fragments::{FragmentFindings, FragmentParameters, Fragments},
    netns::Family,
    report::Report,
    tunnels::{TunnelFindings, TunnelParameters, Tunnels},
};

use super::run::{LabReport, enter, plan, processors, run_experiment};
use crate::{
    arguments::{LabAcks, LabFragments, LabSenders, LabTrials, LabTunnels},
    error::{Exit, Failure},
    form::ReportForm,
    session::Session,
};

/// Schema of table R3.
pub(super) const ACKS: ReportForm = LabReport::<Report<AckFindings>>::named("grosso.lab-acks/4");
/// Schema of the report on the cost per packet.
pub(super) const COST: ReportForm = LabReport::<Report<CostFindings>>::named("grosso.lab-cost/3");
/// Schema of table R2.
pub(super) const FRAGMENTS: ReportForm =
    LabReport::<Report<FragmentFindings>>::named("grosso.lab-fragments/4");
/// Schema of table R4.
pub(super) const TUNNELS: ReportForm =
    LabReport::<Report<TunnelFindings>>::named("grosso.lab-tunnels/4");

/// Measures table R3.
pub(super) fn acks(options: &LabAcks, session: &mut Session) -> Result<Exit, Failure> {
    let processors = processors("--cpus", options.setup.processors.cpus)?;
    enter()?;
    let parameters = AckParameters {
        congestion: options.congestion.clone(),
        round_trips: options.round_trip.iter().copied().map(Duration::from_nanos).collect(),
        transfer_bytes: options.transfer,
    };
    let plan = plan(options.runs, options.time, options.setup.device, parameters)?;
    let plan = Plan { processors, ..plan };
    let senders = match options.senders {
        LabSenders::Auto => {
            Senders::register().map_err(|missing| session.talk.note(missing.to_string())).ok()
        }
        LabSenders::Userspace => None,
    };
    run_experiment(Acks::new(plan, senders), ACKS, ("acks", &options.setup.page), session)
}

/// Measures the cost per packet and its components.
pub(super) fn cost(options: &LabTrials, session: &mut Session) -> Result<Exit, Failure> {
    let processors = processors("--cpus", options.processors.cpus)?;
    enter()?;
    let parameters = TcpParameters { congestion: options.congestion.clone() };
    let plan = plan(options.repeated.runs, options.repeated.time, options.device, parameters)?;
    let plan = Plan { processors, ..plan };
    run_experiment(Cost::new(plan), COST, ("cost", &options.page), session)
}

/// Runs the measurements for table R2.
pub(super) fn fragments(options: &LabFragments, session: &mut Session) -> Result<Exit, Failure> {
    let processors = processors("--cpus", options.setup.processors.cpus)?;
    enter()?;
    let parameters = FragmentParameters {
        rate_bits: options.rate,
        loss: options.loss,
        timeout: Duration::from_nanos(options.timeout),
        datagram_bytes: options.size.into(),
        family: if options.ipv4 { Family::V4 } else { Family::V6 },
    };
    let plan = plan(options.runs, options.time, options.setup.device, parameters)?;
    let plan = Plan { processors, ..plan };
    let page = ("fragments", &options.setup.page);
    run_experiment(Fragments::new(plan), FRAGMENTS, page, session)
}

/// Measures table R4.
pub(super) fn tunnels(options: &LabTunnels, session: &mut Session) -> Result<Exit, Failure> {
    let LabTunnels { measuring, ipv6, sendfile, streams } = options;
    let processors = processors("--cpus", measuring.processors.cpus)?;
    enter()?;
    let parameters = TunnelParameters {
        streams: (*streams).into(),
        congestion: measuring.congestion.clone(),
        outer: if *ipv6 { Family::V6 } else { Family::V4 },
        sendfile: *sendfile,
    };
    let plan =
        plan(measuring.repeated.runs, measuring.repeated.time, measuring.device, parameters)?;
    let plan = Plan { processors, ..plan };
    let page = ("tunnels", &measuring.page);
    run_experiment(Tunnels::new(plan), TUNNELS, page, session)
}
