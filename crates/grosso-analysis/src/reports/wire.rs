//! The report of `wire`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    evidence::{Evidence, Size},
    form::ReportForm,
    report::{Counts, Envelope, InputFacts, OutputFacts, Report, count_lines, wrap},
    style::Style,
    units,
};

/// The report of `wire`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct WireReport {
    pub input: InputFacts,
    pub output: OutputFacts,
    pub superframes: SplitSuperframes,
    /// Packets whose checksums were completed.
    pub checksums_completed: u64,
    /// Frames classified by a guess, whether split or not.
    pub guessed: u64,
    /// Frames with contradicting evidence.
    pub contradictions: u64,
    /// Packets that were left unchanged although they looked different on the wire, by reason.
    pub left: Counts,
    pub elapsed_s: f64,
}

/// Superframes that were split.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct SplitSuperframes {
    pub split: u64,
    /// Packets produced by splitting.
    pub segments: u64,
    pub sizes: Vec<SizeCount>,
}

/// Number of superframes that were split with one segment size.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct SizeCount {
    pub bytes: u16,
    pub source: Evidence,
    /// Whether the evidence also allows a different size.
    pub guess: bool,
    pub superframes: u64,
}

/// Number of superframes by size. If there are more than [`SIZES_MAX`] sizes, superframes of all others are counted
/// under size 0.
#[derive(Debug, Default)]
pub struct SizeCounts(BTreeMap<Size, u64>);

impl SizeCounts {
    /// Counts one superframe.
    pub fn count(&mut self, size: Size) {
        let is_known = self.0.contains_key(&size) || self.0.len() < SIZES_MAX;
        *self.0.entry(if is_known { size } else { Size { bytes: 0, ..size } }).or_default() += 1;
    }

    /// Returns the sizes, most frequent first.
    pub fn list(&self) -> Vec<SizeCount> {
        let count = |(size, &superframes): (&Size, &u64)| SizeCount {
            bytes: size.bytes,
            source: size.by,
            guess: size.is_guess,
            superframes,
        };
        let mut list: Vec<_> = self.0.iter().map(count).collect();
        list.sort_by_key(|size| core::cmp::Reverse(size.superframes));
        list
    }
}

impl WireReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.wire/2");
}

impl Report for WireReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let SplitSuperframes { split, sizes, .. } = &self.superframes;
        let mss = match sizes.as_slice() {
            [] => String::new(),
            [one] => format!(" (mss {}, {})", one.bytes, one.source.name()),
            [first, rest @ ..] => {
                let others = rest.len();
                format!(" (mss {}, {}; {others} more)", first.bytes, first.source.name())
            }
        };
        let left: u64 = self.left.values().sum();
        let mut text = format!(
            "{}: {} -> {} packets\n",
            style.strong(self.output.name()),
            self.input.packets,
            self.output.packets,
        );
        text.push_str(&wrap(&format!(
            "{} split{mss}, {} completed",
            units::count(*split, "superframe"),
            units::count(self.checksums_completed, "checksum"),
        )));
        text.push_str(&format!("{} left unchanged\n", units::count(left, "packet")));
        if self.guessed > 0 {
            let frames = units::count(self.guessed, "packet");
            text.push_str(&format!(
                "{frames} split with a guessed segment size (--strict leaves them unchanged)\n"
            ));
        }
        text.push_str(&count_lines("unchanged", &self.left));
        text
    }

    fn input(&self) -> Option<&InputFacts> {
        Some(&self.input)
    }

    fn output(&self) -> Option<&OutputFacts> {
        Some(&self.output)
    }
}

/// Maximum number of sizes that are counted individually.
pub const SIZES_MAX: usize = 64;
