//! The report of `encap`.

use schemars::JsonSchema;
use serde::Serialize;

use super::reassemble::Alone;
use crate::{
    form::ReportForm,
    report::{InputFacts, OutputFacts, Report, Tool, list_lines},
    style::Style,
};

/// The report of `encap`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EncapReport {
    pub(crate) schema: &'static str,
    pub(crate) tool: Tool,
    pub(crate) input: InputFacts,
    pub(crate) output: OutputFacts,
    /// The tunnel, in a few words.
    #[serde(skip)]
    pub(crate) tunnel: String,
    /// The tunnel in all the words of `ip link`.
    #[serde(rename = "tunnel")]
    pub(crate) words: String,
    /// The bytes that the tunnel adds to a packet at most, outermost first: the name of each part, and its length.
    pub(crate) overhead: Vec<(&'static str, usize)>,
    /// Packets of the output that are in the tunnel.
    pub(crate) encapsulated: u64,
    /// The superframes among these.
    pub(crate) superframes: u64,
    /// Those of these that leave a checksum to the receiver.
    pub(crate) remote_checksums: u64,
    /// Superframes whose given segment size contradicts other evidence.
    pub(crate) contradictions: u64,
    /// Packets that stayed as they were, by reason.
    pub(crate) refused: Alone,
    pub(crate) elapsed_s: f64,
    pub(crate) warnings: Vec<String>,
}

impl EncapReport {
    /// The form of its JSON.
    pub(crate) const FORM: ReportForm = ReportForm::of::<Self>("grosso.encap/1");
}

impl Report for EncapReport {
    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "{}: {} packets; {} encapsulated in {}\n",
            style.strong(self.output.name()),
            self.output.packets,
            self.encapsulated,
            self.tunnel,
        );
        let parts = self.overhead.iter().map(|(name, bytes)| format!("{name} {bytes}"));
        text.push_str(&list_lines("overhead", parts));
        for (label, count) in
            [("superframes", self.superframes), ("remcsum", self.remote_checksums)]
        {
            let shown = (count > 0).then(|| count.to_string());
            text.push_str(&list_lines(label, shown.into_iter()));
        }
        text + &self.refused.lines()
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
