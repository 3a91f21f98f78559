//! Driver counters: `dev -S`.

use std::fmt::Write;

use grosso_sys::ethtool;
use serde::{Serialize, Serializer};

use super::{NamedDevice, Object, device};
use crate::{
    error::{Exit, Failure},
    form::ReportForm,
    report::{self, Place, Report},
    session::Session,
    style::Style,
};

/// Shows the counters: `dev -S`.
pub(super) fn show(device: &NamedDevice, session: &mut Session) -> Result<Exit, Failure> {
    let counters = ethtool::statistics(&device.control, &device.name).map_err(|error| {
        let what = format!("reading the counters of {}", device.name);
        device::refused("dev -S", &what, "net_admin", &error)
    })?;
    if counters.is_empty() {
        let message = format!("dev -S: the driver of {} has no counters", device.name);
        let hint = format!("for the kernel's counters: ip -s link show {}", device.name);
        return Err(Failure::environment("environment.unsupported", message).hint(hint));
    }
    let report = Counters { name: device.name.to_string(), counters };
    report::print_bare(&report, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

struct Counters {
    name: String,
    counters: Vec<(String, u64)>,
}

impl Report for Counters {
    fn form(&self) -> ReportForm {
        FORM
    }

    fn text(&self, _: Style) -> String {
        let mut text = String::from("NIC statistics:\n");
        for (name, value) in &self.counters {
            let _ = writeln!(text, "     {name}: {value}");
        }
        text
    }
}

/// Schema of this report.
pub(super) const FORM: ReportForm =
    ReportForm::of::<Vec<Object<'static, u64>>>("grosso.dev.statistics/1");

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schema = FORM.name;
        // Some drivers indent their counter names.
        let entries = self.counters.iter().map(|(name, value)| (name.trim(), value)).collect();
        Object { schema, device: &self.name, entries }.serialize_alone(serializer)
    }
}
