//! The report of the doctor.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    finding::{Finding, FindingState},
    host::Host,
};
use crate::{
    arguments::Use,
    form::ReportForm,
    report::{Report, Tool},
    style::Style,
};

/// The findings of the doctor.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Diagnosis {
    schema: &'static str,
    tool: Tool,
    host: Host,
    /// Uses that were requested.
    uses: Vec<Use>,
    checks: Vec<Finding>,
    ok: usize,
    warn: usize,
    pub(super) fail: usize,
    warnings: Vec<String>,
}

impl Diagnosis {
    /// The schema of this report.
    pub(super) const FORM: ReportForm = ReportForm::of::<Self>("grosso.doctor/2");

    pub(super) fn new(tool: Tool, host: Host, uses: Vec<Use>, checks: Vec<Finding>) -> Self {
        let count = |state| checks.iter().filter(|check| check.state == state).count();
        let [ok, warn, fail] =
            [FindingState::Ok, FindingState::Warn, FindingState::Fail].map(count);
        let (schema, warnings) = (Self::FORM.name, Vec::new());
        Self { schema, tool, host, uses, checks, ok, warn, fail, warnings }
    }
}

impl Report for Diagnosis {
    fn text(&self, style: Style) -> String {
        let mut text = format!("{}\n", self.host.line());
        text.extend(self.checks.iter().map(|check| check.text(style)));
        let _ = writeln!(text, "{} fail, {} warn", self.fail, self.warn);
        text
    }

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }
}
