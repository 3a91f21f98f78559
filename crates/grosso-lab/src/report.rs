//! Results of an experiment: as JSON, as a table of at most 80 columns, and as an HTML page.

use core::fmt;
use std::{io, time::Duration};

use grosso_sys::{path::kernel, scheduling::allowed_processors};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    beside::{self, BesideRow},
    lessons,
    netns::Device,
    page::{Bar, Chart, Column, STYLE, bars, document, escape, setup},
    publications::{linked, page_list, pages, provenance},
    setups,
    statistics::Spread,
    verdict::{Answer, Verdict},
};

/// The figures of an experiment and how they are presented.
pub trait Findings: Serialize + JsonSchema {
    /// Parameters specific to the experiment.
    type Parameters: Serialize + JsonSchema;

    /// Explanation of the charts in HTML.
    const LEGEND: &'static str;
    /// Settings to try for each observation; empty if the figures already name them.
    const KNOBS: &'static [Knob];

    /// Returns the description of the measurement, which is printed above the table.
    fn heading(&self, environment: &Environment<Self::Parameters>) -> String;

    /// Appends the tables to `text`.
    fn write(&self, text: &mut String);

    /// Returns a sentence with the most important result.
    fn headline(&self) -> String;

    /// Returns the charts as SVG.
    fn charts(&self) -> String;

    /// Returns the published ratios next to the ratios from this machine. If the result is empty, the report uses the
    /// ratios in the verdicts.
    fn beside(&self) -> Vec<BesideRow> {
        Vec::new()
    }

    /// Returns whether the figures show this observation, which is one of [`Self::KNOBS`].
    fn is_seen(&self, _observation: &str) -> bool {
        true
    }

    /// Returns remarks on the conditions that distort the figures of this measurement.
    fn remarks(&self, _environment: &Environment<Self::Parameters>) -> Vec<&'static str> {
        Vec::new()
    }
}

/// Settings of devices and paths to try if a machine shows the same effect as the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The observation that suggests these settings.
    pub seen: &'static str,
    /// Commands, or arguments of a path, that may help. Each one can be applied without the others.
    pub turn: &'static [&'static str],
}

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
#[non_exhaustive]
pub struct Report<F: Findings> {
    /// The experiment's name; empty for the experiment that `grosso lab` runs by default.
    pub experiment: &'static str,
    /// Conditions of the measurement, needed to compare the figures with others.
    pub environment: Environment<F::Parameters>,
    /// The figures.
    #[serde(flatten)]
    pub findings: F,
    /// Settings without figures, because every attempt at a trial failed.
    pub failed: Vec<FailedRow>,
    /// The published ratios next to the ratios from this machine.
    pub ratios: Vec<BesideRow>,
    /// Claims, and whether they hold.
    pub verdicts: Vec<Verdict>,
    /// Notes that help to interpret the figures.
    pub notes: Vec<String>,
}

/// A row for a setting without figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedRow {
    /// Name of the setting.
    pub setting: String,
    /// The error of the trial, with the call, the host and the reason.
    pub error: String,
}

impl fmt::Display for FailedRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: - ({})", self.setting, self.error)
    }
}

/// Conditions of a measurement, needed to compare its figures with others.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Environment<P> {
    /// Release of the kernel.
    pub kernel: String,
    /// Model name that the CPU reports.
    pub processor: String,
    /// Number of CPUs that the lab may use.
    pub processors: usize,
    /// Number of measurements per setting.
    pub runs: usize,
    /// Duration of each measurement.
    pub seconds: f64,
    /// Device through which the data paths exchanged packets with a host; `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The CPUs of sender, data path and receiver, if the user chose them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<[usize; 3]>,
    /// Parameters specific to this experiment.
    #[serde(flatten)]
    pub parameters: P,
}

impl<F: Findings> Report<F> {
    /// Formats the results as text, including settings to try.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.figures();
        let knobs = self.knobs();
        if !knobs.is_empty() {
            text += "\nSettings to try, on DEV or on a Grosso path:\n";
        }
        for Knob { seen, turn } in knobs {
            text += &format!("  {seen}:\n");
            turn.iter().for_each(|turn| text += &format!("    {turn}\n"));
        }
        if self.experiment.is_empty() {
            text += &pages();
        }
        text
    }

    /// Returns the settings to try for the effects that the figures show.
    fn knobs(&self) -> Vec<&'static Knob> {
        F::KNOBS.iter().filter(|knob| self.findings.is_seen(knob.seen)).collect()
    }

    /// Returns the command's arguments after `grosso`.
    fn command(&self) -> String {
        ["lab", self.experiment].join(" ").trim_end().to_owned()
    }

    fn figures(&self) -> String {
        let heading = self.findings.heading(&self.environment);
        let mut text = format!("{}: {heading}\n", self.command());
        self.findings.write(&mut text);
        if !self.failed.is_empty() {
            text += "\nThese settings have no figures, because every attempt failed:\n";
        }
        for row in &self.failed {
            text += &wrapped(&row.to_string());
        }
        beside::write(&self.ratios, &mut text);
        text.push('\n');
        for verdict in &self.verdicts {
            text += &format!("{verdict}\n");
        }
        text += &self.notes.join("\n");
        // The replacement for a missing figure has the same width, so that the columns stay aligned.
        text.replace("NaN", "  -").replace("(---)", "     ")
            + "\nFor the publications R1 to R5, see docs/sources.md.\n"
    }

    /// Formats the results as an HTML page. `command` is the command line that repeats the experiment, and `commit` is
    /// the commit from which the program was built.
    #[must_use]
    pub fn page(&self, command: &str, commit: &str) -> String {
        let verdicts: String = (1..).zip(&self.verdicts).map(item).collect();
        let body = format!(
            "<h1>{headline}</h1>\n{background}{setup}{compared}<h2>Claims</h2>\n<ol>{verdicts}</ol>\n{ANSWERS}\
             {meaning}{ratios}<h2>The charts</h2>\n<p>{legend}</p>\n{charts}{knobs}{pages}\
             <h2>The figures</h2>\n<pre>{table}</pre>\n\
             <p>Measured on {processor} with Linux {kernel} by <code>{command}</code>; {provenance}</p>\n",
            background = lessons::background(self.experiment),
            setup = setups::section(self.experiment),
            meaning = lessons::meaning(self.experiment, &self.verdicts),
            ratios = self.other_ratios(),
            compared = compared(&self.verdicts),
            pages = if self.experiment.is_empty() { page_list() } else { String::new() },
            kernel = escape(&self.environment.kernel),
            provenance = escape(&provenance(commit)),
            headline = escape(&self.findings.headline()),
            legend = F::LEGEND,
            charts = self.findings.charts(),
            knobs = knobs(&self.knobs()),
            table = escape(&self.figures()),
            processor = escape(&self.environment.processor),
            command = escape(command),
        );
        let style = [STYLE, bars::STYLE, setup::STYLE].concat();
        document(&format!("grosso {}", self.command()), &style, &body)
    }

    /// Returns the page's section with the published ratios that belong to no verdict; empty if there are none.
    fn other_ratios(&self) -> String {
        let is_judged = |row: &BesideRow| {
            self.verdicts.iter().any(|verdict| BesideRow::of(verdict).is_some_and(|of| of == *row))
        };
        let others = self.ratios.iter().filter(|row| !is_judged(row));
        let rows: String = (1..).zip(others).map(BesideRow::html).collect();
        match rows.is_empty() {
            true => String::new(),
            false => format!(
                "<h2>All published ratios</h2>\n<div class=\"wide\"><table class=\"compared\">\
                 <tr><th></th><th>ratio of two settings</th><th>published</th><th>here</th>\
                 <th>here / published</th></tr>\n{rows}</table></div>\n"
            ),
        }
    }

    /// Returns remarks on the conditions that distort the figures of this measurement.
    #[must_use]
    pub fn remarks(&self) -> Vec<&'static str> {
        self.findings.remarks(&self.environment)
    }
}

impl<P> Environment<P> {
    /// Returns the conditions of a measurement on this machine.
    pub(crate) fn of(
        (runs, measured): (usize, Duration),
        (device, cpus): (Option<Device>, Option<[usize; 3]>),
        parameters: P,
    ) -> io::Result<Self> {
        Ok(Self {
            kernel: kernel::read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: processor_name(),
            processors: allowed_processors()?.len(),
            runs,
            seconds: measured.as_secs_f64(),
            device,
            cpus,
            parameters,
        })
    }

    /// Formats the device through which the data paths exchanged packets with a host.
    pub(crate) fn through(&self) -> String {
        self.device.map_or_else(String::new, |device| device.to_string())
    }

    /// Returns the last lines of a heading. `what` is the statistic that the table shows.
    pub(crate) fn lines(&self, what: &str) -> String {
        let Self { kernel, runs, seconds, .. } = self;
        let s = if *runs == 1 { "" } else { "s" };
        format!("Linux {kernel}\n{what} of {runs} run{s} of {seconds} s")
    }

    /// Returns the last lines of the heading above a table that shows medians with their minimum and maximum.
    pub(crate) fn spread_lines(&self) -> String {
        self.lines("median (min-max)")
    }
}

/// Wraps a paragraph to lines of at most [`LINE`] columns. All lines except the first are indented.
fn wrapped(paragraph: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        let space = match column {
            0 => "",
            _ if column + 1 + width <= LINE => " ",
            _ => {
                column = 0;
                "\n "
            }
        };
        text += space;
        text += word;
        column += width + 1;
    }
    text + "\n"
}

/// Legend for the answers to claims, as HTML.
const ANSWERS: &str = "\
<p><b class=\"yes\">Reproduced</b>: the effect has the published direction, and noise does not explain it. \
<b class=\"no\">Not reproduced</b>: the figures contradict the claim. <b class=\"open\">Undecided</b>: noise explains \
the difference. <b class=\"open\">Cannot be shown here</b>: this machine lacks what the claim needs. An effect <i>as \
published</i> is within 20 % of the published figure. Claims without a published figure state only a direction, or are \
the lab's own. The first figure of each claim was measured here.</p>\n";

/// Maximum width of a line of text.
const LINE: usize = 80;

/// Returns the page's section with settings to try.
fn knobs(knobs: &[&Knob]) -> String {
    if knobs.is_empty() {
        return String::new();
    }
    let entry = |Knob { seen, turn }: &&Knob| {
        let turn: Vec<String> =
            turn.iter().map(|turn| format!("<code>{}</code>", escape(turn))).collect();
        format!("<dt>{}</dt>\n<dd>{}</dd>\n", escape(seen), turn.join("<br>\n"))
    };
    let entries: String = knobs.iter().map(entry).collect();
    format!("<h2>Settings to try, on DEV or on a Grosso path</h2>\n<dl>\n{entries}</dl>\n")
}

/// Returns the page's section with the published figures, the figures from this machine and their ratios, as a chart
/// and a table.
fn compared(verdicts: &[Verdict]) -> String {
    let (mut lines, mut bars) = (String::new(), Vec::new());
    for (number, verdict) in (1..).zip(verdicts) {
        let (Some(beside), Some((figures, is_ratio))) = (verdict.published, verdict.comparison())
        else {
            continue;
        };
        let values = [beside.published.ratio, beside.here];
        lines += &format!(
            "<tr><td><a href=\"#claim-{number}\">{number}</a></td><td>{}</td>\
             <td data-of=\"published\">{} ({})</td><td data-of=\"here\">{}</td>\
             <td data-of=\"here / published\">{:.2}</td><td data-of=\"answer\">{}</td></tr>\n",
            escape(&verdict.claim),
            escape(&figures[0]),
            linked(beside.published.source),
            escape(&figures[1]),
            values[1] / values[0],
            answered(verdict.answer),
        );
        if is_ratio {
            let [published, here] = figures;
            let bar = |class, value: f64, label| {
                Bar::middle(class, Spread::of([value]), [].into_iter(), label)
            };
            let drawn = [bar("sender", values[0], published), bar("path", values[1], here)];
            bars.push((values, (format!("{number}. {}", shortened(&verdict.claim)), drawn)));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let greatest = bars.iter().flat_map(|(values, _)| *values).fold(f64::MIN_POSITIVE, f64::max);
    let column = |heading| Column::new(heading, [greatest].into_iter());
    let chart = Chart {
        title: "Published and measured figures".into(),
        columns: [column("published"), column("here")],
        rows: bars.into_iter().map(|(_, row)| row).collect(),
    };
    let chart = if chart.rows.is_empty() {
        "<h2>Published and measured figures</h2>\n".into()
    } else {
        chart.draw()
    };
    format!(
        "{chart}<div class=\"wide\"><table class=\"compared\"><tr><th></th><th>claim</th>\
         <th>published</th><th>here</th><th>here / published</th><th>answer</th></tr>\n{lines}</table></div>\n"
    )
}

/// Shortens a claim to the maximum length of a row's name in a chart.
fn shortened(claim: &str) -> String {
    match claim.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}...", claim[..end].trim_end()),
        None => claim.into(),
    }
}

/// Maximum number of characters in a row's name in a chart.
const NAME: usize = 44;

/// Formats an answer in its color.
fn answered(answer: Answer) -> String {
    let class = match answer {
        Answer::Reproduced => "yes",
        Answer::NotReproduced { .. } => "no",
        Answer::Undecided { .. } | Answer::CannotBeShownHere { .. } => "open",
    };
    format!("<b class=\"{class}\">{answer}</b>")
}

/// Formats a verdict as an item in a numbered list.
fn item((number, verdict): (usize, &Verdict)) -> String {
    let (claim, reasons) = (escape(&verdict.claim), escape(&verdict.reasons()));
    let answer = answered(verdict.answer);
    format!("<li id=\"claim-{number}\">{answer} {claim}: {reasons}</li>\n")
}

fn processor_name() -> String {
    let about = kernel::read("/proc/cpuinfo").unwrap_or_default();
    let named = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.into())
}
