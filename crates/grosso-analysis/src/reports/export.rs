//! The report of `export`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    name::Name,
    report::{Counts, Envelope, InputFacts, Report, count_lines},
    shard::Shard,
    style::Style,
    units,
};

/// Report of `export`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ExportReport {
    pub input: InputFacts,
    pub shard: Shard,
    pub profile: String,
    pub packets: Option<ExportedTable<PacketCounts>>,
    pub trains: Option<ExportedTable<TrainCounts>>,
    pub flows: Option<ExportedTable<FlowCounts>>,
    pub elapsed_s: f64,
}

/// Table that was written.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ExportedTable<C> {
    /// File that holds the table; in merged reports, the files of all shards.
    #[schemars(with = "Vec<FileWritten>")]
    pub files: [FileWritten; 1],
    pub counts: C,
}

/// File that holds a table.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct FileWritten {
    pub path: Name,
    pub bytes: u64,
}

/// Counts for the packet table.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct PacketCounts {
    pub rows: u64,
    /// Total length of the packets on the link, in bytes.
    pub bytes: u64,
    pub span: Span,
    /// Rows for packets segmented from superframes.
    pub segments: u64,
    /// Rows for frames classified by a guess.
    pub guessed: u64,
    /// Rows by the verdict on their frame's checksums.
    pub checksums: Counts,
    /// Rows by the evidence that decided the classification.
    pub evidence: Counts,
    /// Rows for frames that could not be split into wire packets, by reason.
    pub left: Counts,
    /// Rows of TCP frames whose data is not the next of their direction, by what the sequence numbers show.
    pub events: Counts,
}

/// Counts for the train table.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct TrainCounts {
    pub rows: u64,
    /// Total length of the delivered frames, in bytes.
    pub bytes: u64,
    pub span: Span,
    /// Wire packets.
    pub packets: u64,
    /// Rows for trains with several packets.
    pub joined: u64,
    /// Number of rows by the number of packets in the train.
    pub sizes: BTreeMap<u32, u64>,
    /// Rows by the reason why the train was delivered.
    pub closed: Counts,
    /// Rows by the reason why a packet did not merge or passed through.
    pub why: Counts,
}

/// Counts for the flow table.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct FlowCounts {
    pub rows: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Wire packets with a payload.
    pub packets: u64,
    /// Rows by the most important cause that slows down the direction.
    pub causes: Counts,
}

/// Earliest and latest timestamps in the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Span {
    first_ns: Option<u64>,
    last_ns: Option<u64>,
}

impl Span {
    /// Extends the span to include a timestamp.
    pub fn take(&mut self, time_ns: u64) {
        self.first_ns = Some(self.first_ns.map_or(time_ns, |first| first.min(time_ns)));
        self.last_ns = Some(self.last_ns.map_or(time_ns, |last| last.max(time_ns)));
    }
}

impl ExportReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.export/1");
}

impl Report for ExportReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        if let Some(ExportedTable { files: [file], counts }) = &self.packets {
            let segments = match counts.segments {
                0 => String::new(),
                segments => format!(", {segments} split from superframes"),
            };
            text.push_str(&format!(
                "{}: {}{segments}; {}\n",
                style.strong(&file.path),
                units::count(counts.rows, "packet"),
                units::bytes(file.bytes),
            ));
            text.push_str(&count_lines("checksums", &counts.checksums));
            text.push_str(&count_lines("evidence", &counts.evidence));
            text.push_str(&count_lines("not split", &counts.left));
        }
        if let Some(ExportedTable { files: [file], counts }) = &self.trains {
            text.push_str(&format!(
                "{}: {} of {}; {}\n",
                style.strong(&file.path),
                units::count(counts.rows, "train"),
                units::count(counts.packets, "packet"),
                units::bytes(file.bytes),
            ));
            text.push_str(&count_lines("ended by", &counts.closed));
            text.push_str(&count_lines("because of", &counts.why));
        }
        if let Some(ExportedTable { files: [file], counts }) = &self.flows {
            text.push_str(&format!(
                "{}: {} of {}; {}\n",
                style.strong(&file.path),
                units::count(counts.rows, "direction"),
                units::count(counts.packets, "packet"),
                units::bytes(file.bytes),
            ));
            text.push_str(&count_lines("slowed by", &counts.causes));
        }
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }
}
