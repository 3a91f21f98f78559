//! The report of `segment`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{Counts, Envelope, InputFacts, OutputFacts, Report, count_lines},
    style::Style,
    units,
};

/// The report of `segment`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct SegmentReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    /// Superframes that were segmented.
    pub cut: u64,
    /// Packets produced by segmentation.
    pub segments: u64,
    /// Superframes that were not split because the capture does not record the segment size.
    pub undescribed: u64,
    /// Superframes that were not split for other reasons.
    pub left: Counts,
    pub elapsed_s: f64,
}

impl SegmentReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.segment/1");
}

impl Report for SegmentReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "{}: {} -> {} packets; {} split into {}\n",
            style.strong(self.output.name()),
            self.input.packets,
            self.output.packets,
            units::count(self.cut, "superframe"),
            units::count(self.segments, "packet"),
        );
        if self.undescribed > 0 {
            let frames = units::count(self.undescribed, "superframe");
            text.push_str(&format!("{frames} not split: segment size not recorded\n"));
        }
        text.push_str(&count_lines("not split", &self.left));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
