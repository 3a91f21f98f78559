//! `grosso lab vm`: compares the network backends of VMs.

use std::env;

use grosso_lab::{
    report::Report,
    vms::{VmFindings, VmParameters, Vms},
};

use super::run::{LabReport, enter, plan, run_experiment};
use crate::{
    arguments::{LabDevice, LabVm},
    error::{Exit, Failure},
    form::ReportForm,
    session::Session,
};

/// Schema of this report.
pub(super) const FORM: ReportForm = LabReport::<Report<VmFindings>>::named("grosso.lab-vm/2");

/// Runs the experiment. The guests run this program too.
pub(super) fn run(options: &LabVm, session: &mut Session) -> Result<Exit, Failure> {
    enter()?;
    let plan = plan(options.runs, options.time, LabDevice::Tap, VmParameters::default())?;
    // The directory contains the image and the sockets, which are removed along with it.
    let folder = tempfile::tempdir();
    let machines = folder.as_ref().map_err(|error| std::io::Error::other(error.to_string()));
    let machines = machines.and_then(|folder| {
        let program = env::current_exe()?;
        Vms::new(plan, folder.path(), (&options.kernel, &program))
    });
    run_experiment(machines, FORM, ("vm", &options.page), session)
}
