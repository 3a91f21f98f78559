//! The report of `fragment`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{Counts, Envelope, InputFacts, OutputFacts, Report, count_lines},
    style::Style,
    units,
};

/// Report of `fragment`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct FragmentReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    pub mtu: u16,
    /// Packets that were fragmented.
    pub cut: u64,
    /// Fragments produced.
    pub fragments: u64,
    /// Packets longer than the MTU that were classified by a guess.
    pub guessed: u64,
    /// Packets longer than the MTU with contradicting evidence.
    pub contradictions: u64,
    /// Packets that are still longer than the MTU, by reason.
    pub left: Counts,
    pub elapsed_s: f64,
}

impl FragmentReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.fragment/1");
}

impl Report for FragmentReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "{}: {} -> {} packets; {} split into {}\n",
            style.strong(self.output.name()),
            self.input.packets,
            self.output.packets,
            self.cut,
            units::count(self.fragments, "fragment"),
        );
        text.push_str(&count_lines("longer than MTU", &self.left));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
