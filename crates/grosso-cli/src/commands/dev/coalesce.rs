//! Interrupt coalescing: `dev -c` and `dev -C`.

use grosso_sys::ethtool;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{NamedDevice, Object, device};
use crate::{
    error::{Exit, Failure},
    form::ReportForm,
    report::{self, Place, Report},
    session::Session,
    style::Style,
    wrong::similar,
};

/// Shows the parameters: `dev -c`.
pub(super) fn show(device: &NamedDevice, session: &mut Session) -> Result<Exit, Failure> {
    let parameters = parameters(device, "dev -c")?;
    let report = ParameterListing { name: device.name.to_string(), parameters };
    report::print_bare(&report, &session.talk, Place::Standard)?;
    Ok(Exit::Yes)
}

/// Sets parameters: `dev -C`.
pub(super) fn set(device: &NamedDevice, pairs: &[(&str, &str)]) -> Result<Exit, Failure> {
    let has = parameters(device, "dev -C")?;
    let what = format!("setting {}", device.name);
    let refused = |error| device::refused("dev -C", &what, "net_admin", &error);
    let mut wanted = ethtool::coalesce(&device.control, &device.name).map_err(refused)?;
    for (name, value) in pairs {
        let name = spelled(name);
        if !has.iter().any(|(known, _)| *known == name) {
            return Err(unknown(device, name, &has));
        }
        let value = number(name, value)?;
        if !wanted.set(name, value) {
            let message = format!("dev -C: {name} is read-only in Grosso");
            return Err(Failure::environment("environment.unsupported", message));
        }
    }
    ethtool::set_coalesce(&device.control, &device.name, &wanted).map_err(refused)?;
    Ok(Exit::Yes)
}

fn parameters(device: &NamedDevice, command: &str) -> Result<Parameters, Failure> {
    ethtool::coalesce_parameters(&device.name).map_err(|error| {
        let what = format!("reading interrupt coalescing of {}", device.name);
        device::refused(command, &what, "net_admin", &error)
    })
}

fn number(name: &str, value: &str) -> Result<u32, Failure> {
    match value {
        "on" if is_switch(name) => return Ok(1),
        "off" if is_switch(name) => return Ok(0),
        _ => {}
    }
    value.parse().map_err(|_| {
        let message = format!("dev -C: {name} must be a number, not \"{value}\"");
        Failure::usage("usage.number", message)
    })
}

fn is_switch(name: &str) -> bool {
    name.starts_with("adaptive-")
}

/// Returns the kernel's name for a parameter. ethtool writes `rx-frame-low`, but the kernel and ethtool's manual write
/// `rx-frames-low`.
fn spelled(name: &str) -> &str {
    match name {
        "rx-frame-low" => "rx-frames-low",
        "tx-frame-low" => "tx-frames-low",
        "rx-frame-high" => "rx-frames-high",
        "tx-frame-high" => "tx-frames-high",
        other => other,
    }
}

fn unknown(device: &NamedDevice, name: &str, has: &Parameters) -> Failure {
    let is_known = NAMES.contains(&name);
    let names = has.iter().map(|(name, _)| *name);
    let hint = format!("{} supports {}", device.name, names.collect::<Vec<_>>().join(", "));
    if is_known {
        let message = format!("dev -C: {} does not support {name}", device.name);
        return Failure::environment("environment.unsupported", message).hint(hint);
    }
    let mut message = format!("dev -C: no parameter \"{name}\"");
    if let Some(similar) = similar(name, NAMES.into_iter()) {
        message += &format!("; did you mean {similar}?");
    }
    Failure::usage("usage.parameter", message).hint(hint)
}

type Parameters = Vec<(&'static str, u32)>;

struct ParameterListing {
    name: String,
    parameters: Parameters,
}

impl ParameterListing {
    fn value(&self, name: &str) -> Option<u32> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> String {
        self.value(spelled(name)).map_or_else(|| "n/a".into(), |value| value.to_string())
    }

    fn switch(&self, name: &str) -> &'static str {
        match self.value(name) {
            None => "n/a",
            Some(0) => "off",
            Some(_) => "on",
        }
    }
}

impl Report for ParameterListing {
    fn form(&self) -> ReportForm {
        FORM
    }

    fn text(&self, _: Style) -> String {
        let mut text = format!("Coalesce parameters for {}:\n", self.name);
        let adaptive = [self.switch("adaptive-rx"), self.switch("adaptive-tx")];
        text += &format!("Adaptive RX: {}  TX: {}\n", adaptive[0], adaptive[1]);
        for block in BLOCKS {
            text.extend(block.iter().map(|name| format!("{name}: {}\n", self.number(name))));
            text.push('\n');
        }
        let cqe = [self.switch("cqe-mode-rx"), self.switch("cqe-mode-tx")];
        text += &format!("CQE mode RX: {}  TX: {}\n\n", cqe[0], cqe[1]);
        text
    }
}

impl Serialize for ParameterListing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |name: &str, value: u32| match is_switch(name) || name.starts_with("cqe-mode-")
        {
            true => Value::from(value != 0),
            false => Value::from(value),
        };
        let entries = self.parameters.iter().map(|(name, has)| (*name, value(name, *has)));
        let (schema, entries) = (FORM.name, entries.collect());
        Object { schema, device: &self.name, entries }.serialize_alone(serializer)
    }
}

/// Schema of this report: on/off parameters and numeric parameters.
pub(super) const FORM: ReportForm =
    ReportForm::of::<Vec<Object<'static, Value>>>("grosso.dev.coalesce/1");

/// Numeric parameters in the blocks in which ethtool prints them, after `Adaptive` and before `CQE`.
const BLOCKS: [&[&str]; 5] = [
    &["stats-block-usecs", "sample-interval", "pkt-rate-low", "pkt-rate-high"],
    &["rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq"],
    &["tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq"],
    &["rx-usecs-low", "rx-frame-low", "tx-usecs-low", "tx-frame-low"],
    &["rx-usecs-high", "rx-frame-high", "tx-usecs-high", "tx-frame-high"],
];

/// All parameters that a driver may support.
const NAMES: [&str; 24] = [
    "adaptive-rx",
    "adaptive-tx",
    "stats-block-usecs",
    "sample-interval",
    "pkt-rate-low",
    "pkt-rate-high",
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "rx-usecs-low",
    "rx-frames-low",
    "tx-usecs-low",
    "tx-frames-low",
    "rx-usecs-high",
    "rx-frames-high",
    "tx-usecs-high",
    "tx-frames-high",
    "cqe-mode-rx",
    "cqe-mode-tx",
];
