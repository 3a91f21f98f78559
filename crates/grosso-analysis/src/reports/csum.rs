//! The reports of `csum`.

use schemars::JsonSchema;
use serde::Serialize;

use super::inspect::Verdicts;
use crate::{
    checksums::{Verdict, Why},
    form::ReportForm,
    report::{Envelope, InputFacts, OutputFacts, Report},
    style::Style,
    units,
};

/// Report of `csum verify`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct VerifyReport {
    pub input: InputFacts,
    /// Packets by the worst verdict on any of their checksums.
    pub checksums: Verdicts,
    /// Checksums by verdict, including those of tunnels and IP headers.
    pub levels: Verdicts,
    /// Checksums that are not valid, up to a limit.
    pub rows: Vec<Row>,
    pub rows_omitted: u64,
    /// Captured and original lengths of the first truncated packet.
    pub first_cut: Option<(u64, u64)>,
}

/// Checksum that is not valid.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Row {
    pub packet: u64,
    pub proto: String,
    /// `inner` or `outer`, or `header` for an IPv4 header checksum; empty if the packet has only one checksum.
    pub level: &'static str,
    /// Value in the packet: 16 bits, or 32 bits for the CRC32c of SCTP.
    pub found: u32,
    pub expected: Option<u32>,
    pub verdict: Verdict,
    pub why: Why,
}

impl VerifyReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.csum/1");
}

impl Report for VerifyReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        if !self.rows.is_empty() {
            text.push_str("  packet  proto            found   expected  verdict\n");
        }
        for row in &self.rows {
            text.push_str(&row.text(style));
        }
        if self.rows_omitted > 0 {
            text.push_str(&format!("  ... and {} more (-v lists more)\n", self.rows_omitted));
        }
        text.push_str(&self.checksums.text(style));
        if let Some((captured, original)) = self.first_cut {
            text.push_str(&format!(" (captured {captured} of {original} bytes)"));
        }
        text.push('\n');
        if self.checksums.partial > 0 {
            text.push_str(PARTIAL);
        }
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }
}

/// Remedies for partial checksums, both in a capture and at a receiver.
const PARTIAL: &str = "Partial: the sender's device completes these checksums. To complete them in the\n\
                       capture, run grosso wire. If such packets reach a receiver, run this\n\
                       on the sender: ethtool -K DEV tx off\n";

impl Row {
    fn text(&self, style: Style) -> String {
        let expected =
            self.expected.map_or_else(|| "?".into(), |expected| format!("{expected:#06x}"));
        let verdict = format!("{:<8}", self.verdict.name());
        let verdict =
            if self.verdict == Verdict::Bad { style.bad(&verdict) } else { style.notice(&verdict) };
        let why = match self.why {
            Why::Seed => "pseudo-header sum",
            Why::Zero => "zero: left for device",
            Why::Told => "recorded in capture",
            Why::Sum if self.level == "header" => "header differs",
            Why::Sum => "payload differs",
            Why::Remote => "not pseudo-header sum",
            Why::Length => "invalid coverage or length",
            Why::Missing => "missing (zero)",
            Why::Deep => "headers beyond limit",
            Why::Truncated | Why::Bytes | Why::Prefix => "",
        };
        let line = format!(
            "{:>8}  {:<15}  {:#06x}  {expected:<8}  {verdict} {:<6} {why}",
            self.packet, self.proto, self.found, self.level,
        );
        line.trim_end().to_string() + "\n"
    }
}

/// Report of `csum fix`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct FixReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    /// Packets by the worst verdict on any of their checksums, before the correction.
    pub checksums: Verdicts,
    /// Packets that were changed.
    pub packets_fixed: u64,
    /// Checksums that were changed.
    pub checksums_fixed: u64,
}

impl FixReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.csum_fix/1");
}

impl Report for FixReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        format!(
            "{}: {} fixed in {}\nfound: {}\n",
            style.strong(self.output.name()),
            units::count(self.checksums_fixed, "checksum"),
            units::count(self.packets_fixed, "packet"),
            self.checksums.text(style),
        )
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}
