//! The report of `encap`.

use schemars::JsonSchema;
use serde::Serialize;

use super::reassemble::Alone;
use crate::{
    form::ReportForm,
    report::{Envelope, InputFacts, OutputFacts, Report, list_lines},
    style::Style,
};

/// Report of `encap`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct EncapReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    /// Short description of the tunnel.
    #[serde(skip)]
    pub tunnel: String,
    /// Complete description of the tunnel, in the form of arguments to `ip link`.
    #[serde(rename = "tunnel")]
    pub words: String,
    /// Maximum number of bytes that the tunnel adds to a packet, as the name and length of each part, outermost first.
    pub overhead: Vec<(&'static str, usize)>,
    /// Number of output packets that are in the tunnel.
    pub encapsulated: u64,
    /// Superframes among the encapsulated packets.
    pub superframes: u64,
    /// Encapsulated packets with a checksum that is left for the receiver to complete.
    pub remote_checksums: u64,
    /// Superframes whose configured segment size contradicts other evidence.
    pub contradictions: u64,
    /// Packets that were left unchanged, by reason.
    pub refused: Alone,
    pub elapsed_s: f64,
}

impl EncapReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.encap/1");
}

impl Report for EncapReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

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

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
