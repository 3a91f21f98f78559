//! The report of `fragment`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{Counts, InputFacts, OutputFacts, Report, Tool, count_lines},
    style::Style,
    units,
};

/// The report of `fragment`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FragmentReport {
    pub(crate) schema: &'static str,
    pub(crate) tool: Tool,
    pub(crate) input: InputFacts,
    pub(crate) output: OutputFacts,
    pub(crate) mtu: u16,
    /// Packets that became fragments.
    pub(crate) cut: u64,
    /// The fragments that they were cut into.
    pub(crate) fragments: u64,
    /// Packets longer than the MTU whose nature is a guess.
    pub(crate) guessed: u64,
    /// Packets longer than the MTU about which evidence disagreed.
    pub(crate) contradictions: u64,
    /// Packets that stayed longer than the MTU, by reason.
    pub(crate) left: Counts,
    pub(crate) elapsed_s: f64,
    pub(crate) warnings: Vec<String>,
}

impl FragmentReport {
    /// The form of its JSON.
    pub(crate) const FORM: ReportForm = ReportForm::of::<Self>("grosso.fragment/1");
}

impl Report for FragmentReport {
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

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
