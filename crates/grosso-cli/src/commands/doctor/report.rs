//! The report of `grosso doctor`.

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
    report::{Envelope, Report},
    style::Style,
};

/// Findings of `grosso doctor`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Diagnosis {
    host: Host,
    /// Requested uses.
    uses: Vec<Use>,
    checks: Vec<Finding>,
    ok: usize,
    warn: usize,
    pub(super) fail: usize,
}

impl Diagnosis {
    /// Schema of this report.
    pub(super) const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.doctor/2");

    pub(super) fn new(host: Host, uses: Vec<Use>, checks: Vec<Finding>) -> Self {
        let count = |state| checks.iter().filter(|check| check.state == state).count();
        let [ok, warn, fail] =
            [FindingState::Ok, FindingState::Warn, FindingState::Fail].map(count);
        Self { host, uses, checks, ok, warn, fail }
    }
}

impl Report for Diagnosis {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!("{}\n", self.host.line());
        text.extend(self.checks.iter().map(|check| check.text(style)));
        let _ = writeln!(text, "{} fail, {} warn", self.fail, self.warn);
        text
    }
}
