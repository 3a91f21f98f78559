//! Defines the parts and destinations of command reports, and prints a report as text or as JSON from the same value.

use core::{ops::Deref, time::Duration};
use std::io::{self, IsTerminal, Write};

use grosso_capture::CaptureError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    console::Talk,
    error::Failure,
    name::{Name, harmless as harmless_word, harmless_lines, quoted},
    schema::ReportForm,
    style::{Style, harmless_painted},
    units,
};

/// Report of a command, without the fields common to all reports, which [`Envelope`] adds.
pub trait Report: Serialize {
    /// Returns the name and schema of the report's JSON.
    fn form(&self) -> ReportForm;

    /// Returns the report as text, in lines of at most [`COLUMNS`] columns.
    fn text(&self, style: Style) -> String;

    /// Returns the capture that was read, if any.
    fn input(&self) -> Option<&InputFacts> {
        None
    }

    /// Returns the capture that was written, if any.
    fn output(&self) -> Option<&OutputFacts> {
        None
    }

    /// Returns how much was read before Ctrl-C; `None` if reading was not interrupted. The report covers only that
    /// part.
    fn interrupted(&self) -> Option<Interrupted> {
        self.input()?.interrupted
    }
}

// A doc comment here would become the description in every schema, where a description of the body is needed.
#[expect(missing_docs, reason = "a comment is the description of the schema")]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Envelope<R> {
    schema: &'static str,
    tool: Tool,
    #[serde(flatten)]
    pub body: R,
    pub warnings: Vec<String>,
}

impl<R: Report> Envelope<R> {
    /// Creates a report with this body. `warnings` are the notes that a user would see on a terminal.
    pub fn new(body: R, warnings: Vec<String>) -> Self {
        Self::of(body.form(), body, warnings)
    }
}

impl<R> Envelope<R> {
    fn of(form: ReportForm, body: R, warnings: Vec<String>) -> Self {
        Self { schema: form.name, tool: Tool::THIS, body, warnings }
    }
}

impl<R> Deref for Envelope<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.body
    }
}

/// Destination of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Standard output, because the report is the command's result.
    Standard,
    /// Standard error, because a capture goes to standard output.
    Error,
}

impl Place {
    /// Returns where the report goes if the command also writes a capture. `is_standard_output` means that the capture
    /// goes to standard output.
    pub fn beside(is_standard_output: bool) -> Self {
        if is_standard_output { Self::Error } else { Self::Standard }
    }
}

/// Prints a report in its envelope.
pub fn print<R: Report>(report: &R, talk: &Talk, place: Place) -> Result<(), Failure> {
    for note in notes(report) {
        talk.note(note);
    }
    let envelope = Envelope::of(report.form(), report, talk.take_warnings());
    show(report, &envelope, talk, place)
}

/// Prints a report whose JSON has no envelope and therefore no field for warnings.
pub fn print_bare(report: &impl Report, talk: &Talk, place: Place) -> Result<(), Failure> {
    show(report, report, talk, place)
}

/// Prints a report as text, or `json` if JSON was requested.
fn show(
    report: &impl Report,
    json: &impl Serialize,
    talk: &Talk,
    place: Place,
) -> Result<(), Failure> {
    let is_terminal = match place {
        Place::Standard => io::stdout().is_terminal(),
        Place::Error => io::stderr().is_terminal(),
    };
    let text = if talk.json {
        let json = serde_json::to_string(json);
        json.map_err(|error| Failure::internal(error.to_string()))? + "\n"
    } else if talk.quiet {
        return Ok(());
    } else {
        let style = Style { color: talk.when.decide(is_terminal) };
        let hashes = report.input().map(InputFacts::hash_lines).unwrap_or_default();
        harmless(&(report.text(style) + &hashes), style)
    };
    put(&text, place)
}

/// Returns notes about facts in the report: an interruption, damage, and missing timestamps.
pub fn notes(report: &impl Report) -> Vec<String> {
    let mut notes: Vec<_> = report.interrupted().map(|cut| cut.to_string()).into_iter().collect();
    let Some(output) = report.output() else { return notes };
    if output.damaged_options > 0 {
        let blocks = units::count(output.damaged_options, "block");
        notes.push(format!(
            "damaged options of {blocks} were removed; the options before the damage were kept"
        ));
    }
    if output.without_time > 0 {
        let are = if output.without_time == 1 { "is" } else { "are" };
        let packets = units::count(output.without_time, "packet");
        notes.push(format!("{packets} without a timestamp {are} written with timestamp 0 (1970)"));
    }
    notes
}

/// Removes control characters from the text, except for those added by the style.
fn harmless(text: &str, style: Style) -> String {
    let harmless = if style.color { harmless_painted(text) } else { harmless_lines(text) };
    harmless.into_owned()
}

/// Prints text to the stream selected by `place`.
pub fn put(text: &str, place: Place) -> Result<(), Failure> {
    let written = match place {
        Place::Standard => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        }
        Place::Error => io::stderr().lock().write_all(text.as_bytes()),
    };
    written.map_err(unwritten)
}

/// Converts a printing error, such as a closed pipe or a full disk, to a failure.
pub fn unwritten(error: io::Error) -> Failure {
    let name = "standard output";
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            Failure::capture(name, &CaptureError::BrokenPipe { path: name.into() })
        }
        _ => Failure::environment("environment.write", format!("{name}: {error}")),
    }
}

/// Program that created the report.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Tool {
    name: &'static str,
    version: &'static str,
}

impl Tool {
    /// Grosso, with the version of this crate. All crates have the same version.
    pub const THIS: Self = Self { name: "grosso", version: env!("CARGO_PKG_VERSION") };
}

/// Input of a command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct InputFacts {
    pub path: Name,
    /// Input as the user would type it.
    #[serde(skip)]
    pub typed: Vec<String>,
    /// Hash of the stored file; `None` without `--hash`, if the file was not read completely, or if there are several
    /// files.
    pub sha256: Option<String>,
    pub format: String,
    pub packets: u64,
    /// Total number of captured bytes.
    pub bytes: u64,
    /// The individual captures, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileFacts>,
    /// Part of the input that was read, if Ctrl-C interrupted the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interrupted>,
}

impl InputFacts {
    /// Returns the requested hashes, one per line.
    fn hash_lines(&self) -> String {
        let alone = self.sha256.iter().map(|hash| format!("  sha256  {hash}\n"));
        let several = self.files.iter().filter_map(|file| {
            Some(format!("  sha256  {}  {}\n", file.sha256.as_ref()?, file.path))
        });
        alone.chain(several).collect()
    }

    /// Returns the command-line arguments that read the same input, quoted for the shell.
    pub fn words(&self) -> String {
        self.typed.iter().map(|word| quoted(&harmless_word(word))).collect::<Vec<_>>().join(" ")
    }
}

/// One of several captures that were read as one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct FileFacts {
    pub path: Name,
    /// Hash of the stored file; `None` without `--hash`, or if the file was not read completely.
    pub sha256: Option<String>,
    /// Packets read from this capture.
    pub packets: u64,
}

/// Part of the input that was read before Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Interrupted {
    packets: u64,
    /// Percentage of the stored file that was read; `null` for a pipe, whose length is unknown.
    percent: Option<f64>,
    /// Whether Ctrl-C arrived during the first of two passes. The report does not cover that pass.
    #[serde(skip)]
    in_first_pass: bool,
}

impl Interrupted {
    /// Describes input that was interrupted by Ctrl-C after `packets` packets. `share` is the number of bytes read and
    /// the total number of bytes.
    pub fn after(packets: u64, share: Option<(u64, u64)>, in_first_pass: bool) -> Self {
        let percent = share.map(|(read, all)| units::percentage(read, all));
        Self { packets, percent, in_first_pass }
    }
}

impl core::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.in_first_pass {
            return f.write_str("interrupted in pass 1 of 2; there are no results yet");
        }
        write!(f, "interrupted after {}", units::count(self.packets, "packet"))?;
        self.percent.map_or(Ok(()), |percent| write!(f, ", {percent:.1} % of the file"))
    }
}

/// Output of a command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct OutputFacts {
    /// Name of the output; `None` if the command only prints the report.
    pub path: Option<Name>,
    pub format: String,
    pub packets: u64,
    pub bytes: u64,
    /// Packets and other blocks with damaged options. The first damaged option and all options after it are dropped.
    pub damaged_options: u64,
    /// Packets whose timestamp is 0 because the input contains none.
    #[serde(skip)]
    pub without_time: u64,
}

impl OutputFacts {
    /// Returns the name of the output, or a note that there is none.
    pub fn name(&self) -> &dyn core::fmt::Display {
        match &self.path {
            Some(path) => path,
            None => &"not written",
        }
    }
}

/// Prints the elapsed time and the rate for an interactive user, if the work took long.
pub fn remark_rate(talk: &Talk, packets: u64, bytes: u64, elapsed: Duration) {
    if elapsed < LONG || !io::stderr().is_terminal() {
        return;
    }
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    talk.remark(&format!(
        "{packets} packets in {}: {} packets/s, {}/s",
        units::duration(nanoseconds),
        units::rate(packets as f64 / seconds),
        units::bytes((bytes as f64 / seconds) as u64),
    ));
}

/// Minimum duration of the work for the rate to be printed.
const LONG: Duration = Duration::from_secs(1);

/// Counts by name, without zero counts.
pub type Counts = std::collections::BTreeMap<&'static str, u64>;

/// Creates the counts by name from parallel lists of names and values.
pub fn counts(names: impl Iterator<Item = &'static str>, values: &[u64]) -> Counts {
    names.zip(values.iter().copied()).filter(|(_, value)| *value > 0).collect()
}

/// Formats lines such as `  label   name 12, name 3` of at most [`COLUMNS`] columns, with the largest count first.
pub fn count_lines(label: &str, counts: &Counts) -> String {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, value)| core::cmp::Reverse(**value));
    let words = sorted.iter().map(|(name, value)| format!("{name} {value}"));
    list_lines(label, words)
}

/// Formats a list as lines such as `  label   word, word` of at most [`COLUMNS`] columns. Returns an empty string if
/// the list is empty.
pub fn list_lines(label: &str, words: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    let mut line = format!("  {label:<LABEL_COLUMNS$}");
    let indent = line.len();
    for (index, word) in words.enumerate() {
        let is_first = line.len() == indent;
        if index > 0 {
            line.push_str(if is_first { "" } else { ", " });
            if line.len() + word.len() >= COLUMNS {
                text.push_str(line.trim_end());
                text.push('\n');
                line = " ".repeat(indent);
            }
        }
        line.push_str(&word);
    }
    if line.len() > indent {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Breaks text into lines of at most [`COLUMNS`] columns.
pub fn wrap(text: &str) -> String {
    wrap_at(text, COLUMNS)
}

/// Breaks text into lines of at most `columns` columns.
pub fn wrap_at(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() > columns {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += word.len();
    }
    lines + "\n"
}

/// Width of text reports in columns.
pub const COLUMNS: usize = 80;
/// Width of the labels at the start of lines, in columns.
const LABEL_COLUMNS: usize = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_names_the_pass_of_a_file_that_is_read_twice() {
        let text = |in_first_pass| Interrupted::after(0, Some((0, 9)), in_first_pass).to_string();
        assert_eq!(text(true), "interrupted in pass 1 of 2; there are no results yet");
        assert_eq!(text(false), "interrupted after 0 packets, 0.0 % of the file");
    }

    #[test]
    fn long_lists_are_broken_below_eighty_columns() {
        let words = (0..60).map(|i| format!("reason-{i} {}", i * 1000));
        let text = list_lines("not merged", words);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(text.matches("reason-").count(), 60);
        assert!(text.lines().skip(1).all(|line| line.starts_with("                   reason")));
        assert_eq!(list_lines("none", std::iter::empty()), "");
    }
}
