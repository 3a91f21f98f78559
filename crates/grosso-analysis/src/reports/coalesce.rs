//! The report of `coalesce`.

use grosso::{
    Profile,
    coalesce::Vary,
    stats::{CoalesceStats, SEGMENT_BUCKETS},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    form::ReportForm,
    report::{Counts, Envelope, InputFacts, OutputFacts, Report, count_lines, list_lines},
    slowdown::FlowTable,
    style::Style,
    units,
};

/// Report of `coalesce`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct CoalesceReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    pub profile: String,
    pub superframes: u64,
    /// Number of packets in the superframes.
    pub superframe_packets: u64,
    /// Number of frames written, by the number of wire packets in each.
    pub trains: Vec<Bucket>,
    /// Packets that cannot be part of any train, by reason.
    pub passed: Counts,
    /// Packets that did not merge into their flow's train, by reason.
    pub not_merged: Counts,
    /// Trains delivered, by reason.
    pub closed: Counts,
    /// Packets that were held back for resequencing and then released, by reason.
    pub waited: Counts,
    /// Acknowledgments that were dropped because a later one carries all of their information.
    pub filtered: u64,
    /// Acknowledgments that waited in the filter and were then kept, by reason.
    pub kept: Counts,
    /// Counters of the implementation that the profile models, under that implementation's names; `None` if it has no
    /// counters.
    pub original: Option<Counts>,
    /// Table of the highest-ranked flow directions, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowTable>,
    pub elapsed_s: f64,
}

/// Number of frames with at most `le` wire packets, but more than the previous bucket allows.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Bucket {
    /// Upper bound of the bucket; `None` for the last bucket, which is unbounded.
    pub le: Option<u32>,
    pub frames: u64,
}

/// Converts the engine's histogram to buckets.
pub fn buckets(frames: &[u64]) -> Vec<Bucket> {
    let bounds = SEGMENT_BUCKETS.iter().copied().map(Some).chain([None]);
    bounds.zip(frames).map(|(le, &frames)| Bucket { le, frames }).collect()
}

/// Returns the counters of the implementation that a profile models, under that implementation's names.
pub fn original(profile: &Profile, stats: &CoalesceStats) -> Option<Counts> {
    match &*profile.name {
        // Windows requires different counters from drivers: bytes, and the reasons why units ended.
        "ndis-rsc" => None,
        // If batches are sorted, a refused packet is counted as one queued and one flushed packet.
        "freebsd" => {
            Some([("lro_queued", stats.packets_in), ("lro_flushed", stats.frames_out)].into())
        }
        // Refused packets were not counted in 2011.
        "freebsd-2011" => {
            let lro = stats.lro();
            Some([("lro_queued", lro.aggregated), ("lro_flushed", lro.flushed)].into())
        }
        // These counters are those of Linux's driver, which does not count unmerged packets.
        "rsc-82599" => {
            let aggregated = ("hw_rsc_aggregated", stats.superframe_packets);
            Some([aggregated, ("hw_rsc_flushed", stats.superframes)].into())
        }
        // These counters are those of inet_lro as reported by the Myri-10G driver. They also apply to derived profiles
        // (rule L4).
        _ if profile.rules.acknowledgment == Vary::Latest => {
            let lro = stats.lro();
            let taken = [("aggregated", lro.aggregated), ("flushed", lro.flushed)];
            Some(taken.into_iter().chain([("no_desc", lro.no_descriptor)]).collect())
        }
        _ => None,
    }
}

impl Report for CoalesceReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let Self { input, output, .. } = self;
        let mut text = format!(
            "{}: {} -> {} packets; {} of {} packets\n",
            style.strong(output.name()),
            input.packets,
            output.packets,
            units::count(self.superframes, "superframe"),
            self.superframe_packets,
        );
        text.push_str(&self.histogram(style));
        text.push_str(&count_lines("not merged", &self.not_merged));
        text.push_str(&count_lines("passed through", &self.passed));
        text.push_str(&count_lines("trains ended by", &self.closed));
        text.push_str(&count_lines("waits ended by", &self.waited));
        if self.filtered > 0 {
            let filtered = units::count(self.filtered, "acknowledgment");
            text.push_str(&format!("  dropped {filtered} superseded by later ones\n"));
        }
        text.push_str(&count_lines("acknowledgments kept", &self.kept));
        // Zeros are printed too, because it is useful to know that no descriptor was missing.
        let original = self.original.iter().flatten();
        let words = original.map(|(name, count)| format!("{name} {count}"));
        text.push_str(&list_lines("original counts", words));
        text.push_str(&self.flows.as_ref().map_or(String::new(), |flows| flows.text(style)));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}

impl CoalesceReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.coalesce/1");

    fn histogram(&self, style: Style) -> String {
        let most = self.trains.iter().map(|bucket| bucket.frames).max().unwrap_or(0).max(1);
        let mut text = String::from("  packets per frame\n");
        let mut above = 0;
        for Bucket { le, frames } in &self.trains {
            let range = match le {
                Some(le) if above + 1 == *le => le.to_string(),
                Some(le) => format!("{}-{le}", above + 1),
                None => format!("> {above}"),
            };
            above = le.unwrap_or(above);
            if *frames > 0 {
                // If the count is not zero, the bar has at least one mark.
                let marks = (frames * BAR_COLUMNS).div_ceil(most) as usize;
                let bar = style.good(&"#".repeat(marks));
                text.push_str(&format!("  {range:>15}  {frames:>12}  {bar}\n"));
            }
        }
        text
    }
}

const BAR_COLUMNS: u64 = 40;
