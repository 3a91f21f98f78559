//! `grosso lab`: measures the benefit of offloads on this host.

mod custom;
mod custom_file;
#[cfg(test)]
mod knob_tests;
mod measure;
mod network;
mod nic;
mod profiles;
mod run;
mod tables;
mod vm;

use crate::{
    arguments::{Lab, LabExperiment, LabMore},
    error::{Exit, Failure},
    form::FormPage,
    session::Session,
};

/// Schema pages of this command.
pub(super) const PAGES: &[FormPage] = &[
    FormPage {
        commands: &[
            "lab",
            "lab lro",
            "lab gso",
            "lab flows",
            "lab load",
            "lab reorder",
            "lab rtt",
            "lab tcp-stream",
            "lab tcp-maerts",
            "lab tcp-rr",
            "lab udp-stream",
            "lab udp-rr",
        ],
        forms: &[measure::FORM],
    },
    FormPage { commands: &["lab acks"], forms: &[tables::ACKS] },
    FormPage { commands: &["lab cost"], forms: &[tables::COST] },
    FormPage { commands: &["lab fragments"], forms: &[tables::FRAGMENTS] },
    FormPage { commands: &["lab tunnels"], forms: &[tables::TUNNELS] },
    FormPage { commands: &["lab vm"], forms: &[vm::FORM] },
    FormPage { commands: &["lab nic"], forms: &[nic::FORM] },
    FormPage { commands: &["lab profiles"], forms: &[profiles::FORM] },
    FormPage { commands: &["lab run"], forms: &[network::RunReport::FORM, custom::FORM] },
];

/// Runs the command. The process must be single-threaded, because it may have to create a user namespace.
pub(crate) fn run(lab: &Lab, session: &mut Session) -> Result<Exit, Failure> {
    match &lab.experiment {
        None => measure::run("", &lab.measuring, LabMore::default(), session),
        Some(LabExperiment::Acks(options)) => tables::acks(options, session),
        Some(LabExperiment::Cost(options)) => tables::cost(options, session),
        Some(LabExperiment::Fragments(options)) => tables::fragments(options, session),
        Some(LabExperiment::Vm(options)) => vm::run(options, session),
        Some(LabExperiment::Nic(options)) => nic::run(options, session),
        Some(LabExperiment::Sink(options)) => nic::sink(options, session),
        Some(LabExperiment::Profiles(options)) => profiles::run(options, session),
        Some(LabExperiment::Tunnels(options)) => tables::tunnels(options, session),
        Some(LabExperiment::Run(options)) => match &options.config {
            Some(config) => custom::run(config, options, session),
            None => network::run(options, session),
        },
        Some(LabExperiment::Measure(measurement)) => {
            let (name, options, more) = measurement.parts();
            measure::run(name, options, more, session)
        }
    }
}
