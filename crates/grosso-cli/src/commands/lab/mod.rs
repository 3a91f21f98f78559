//! `grosso lab`: measures what offload is worth here.

mod acks;
mod conduct;
mod cost;
mod fragments;
mod measure;
mod network;
mod profiles;
mod tunnels;

use crate::{
    arguments::{Lab, LabExperiment},
    error::{Exit, Failure},
    input::Session,
};

/// Runs the command. The process must have one thread: it may have to make itself a user namespace.
pub(crate) fn run(lab: &Lab, session: &mut Session) -> Result<Exit, Failure> {
    match &lab.experiment {
        None => measure::run("", &lab.measuring, None, session),
        Some(LabExperiment::Acks(options)) => acks::run(options, session),
        Some(LabExperiment::Cost(options)) => cost::run(options, session),
        Some(LabExperiment::Fragments(options)) => fragments::run(options, session),
        Some(LabExperiment::Profiles(options)) => profiles::run(options, session),
        Some(LabExperiment::Tunnels(options)) => tunnels::run(options, session),
        Some(LabExperiment::Run(options)) => network::run(options, session),
        Some(LabExperiment::Measure(measurement)) => {
            let (name, options, wire_bits) = measurement.parts();
            measure::run(name, options, wire_bits, session)
        }
    }
}
