//! Formats the report as a self-contained HTML page in light and dark colors, without scripts or network access.

use core::fmt::Write;

use grosso_report::page::{
    document, escape,
    lines::{LineChart, PlotLine, open},
};

use super::{Setting, WhatifReport};
use crate::{
    report::{Counts, Report},
    style::Style,
};

impl WhatifReport {
    /// Formats the report as an HTML page. `command` is the command line that reproduces it.
    pub fn page(&self, command: &str) -> String {
        let unknown: String =
            self.not_known.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
        let body = format!(
            "<h1>{headline}</h1>\n<p>{offered}. Trains are held across polls for at most the hold time, \
             measured with the capture's timestamps. <code>--batch {batch}</code> sets the end of each \
             poll.</p>\n{charts}<h2>Not visible in a \
             trace</h2>\n<ul>\n{unknown}</ul>\n<h2>The \
             figures</h2>\n<pre>{text}</pre>\n<p>Command: <code>{command}</code></p>\n",
            headline = escape(&self.headline()),
            offered = escape(self.head(Style { color: false }).trim_end()),
            batch = escape(&self.batch),
            charts = self.charts(),
            text = escape(&self.text(Style { color: false })),
            command = escape(command),
        );
        let path = escape(self.input.path.as_str());
        document(&format!("grosso whatif {path}"), STYLE, &body)
    }

    fn headline(&self) -> String {
        match &self.best {
            None => self.nothing_merges(),
            Some(best) => best.shortest.text(self.input.packets),
        }
    }

    fn charts(&self) -> String {
        let mut text = String::new();
        let by_hold = |value: Value| {
            let lines = Setting::groups(&self.settings).filter_map(|group| {
                let points = (0..).zip(group).filter_map(|(i, s)| Some((f64::from(i), value(s)?)));
                Some(PlotLine { name: group.first()?.name(), points: points.collect() })
            });
            lines.collect()
        };
        let first = Setting::groups(&self.settings).next();
        let holds: Vec<String> =
            first.unwrap_or_default().iter().map(|setting| setting.hold.clone()).collect();
        for (title, value) in CHARTS {
            let labels = (0..).map(f64::from).zip(holds.iter().cloned()).collect();
            text.push_str(
                &LineChart { title: (*title).into(), labels, lines: by_hold(*value) }.svg(),
            );
        }
        if let Some(best) = &self.best {
            let (profile, reorder) = (&best.fewest.profile, &best.fewest.reorder);
            let is_best = |group: &&[Setting]| {
                group.first().is_some_and(|s| s.profile == *profile && s.reorder == *reorder)
            };
            Setting::groups(&self.settings)
                .find(is_best)
                .into_iter()
                .for_each(|group| text.push_str(&spread(group)));
        }
        for group in Setting::groups(&self.settings) {
            text.push_str(&reasons(group));
        }
        text
    }
}

/// Draws the share of trains that have at most a given number of segments, for each hold time of a profile.
fn spread(settings: &[Setting]) -> String {
    let name = settings.first().map(Setting::name).unwrap_or_default();
    let lines = settings.iter().map(|setting| {
        let total = setting.segments.total().max(1) as f64;
        let points = setting.segments.cumulative();
        let points = points.map(|(n, trains)| (place(n), trains as f64 * 100.0 / total)).collect();
        PlotLine { name: format!("hold {}", setting.hold), points }
    });
    let most = settings.iter().filter_map(|s| s.segments_per_train).map(|s| s.quantiles.max).max();
    let ticks = (0..=16).map(|power| 1 << power).take_while(|n| Some(*n) <= most);
    LineChart {
        title: format!("{name}: % of trains with at most this number of segments"),
        labels: ticks.map(|n| (place(n), n.to_string())).collect(),
        lines: lines.collect(),
    }
    .svg()
}

/// Returns where a number of segments lies on the logarithmic axis.
fn place(segments: u64) -> f64 {
    (segments.max(1) as f64).log2()
}

/// Draws bar charts of why packets did not merge and why trains were delivered, for a profile's longest hold time.
fn reasons(settings: &[Setting]) -> String {
    let Some(longest) = settings.iter().max_by_key(|setting| setting.hold_ns) else {
        return String::new();
    };
    let lists: [(&str, &Counts); 4] = [
        ("not merged", &longest.not_merged),
        ("passed through", &longest.passed),
        ("trains ended by", &longest.closed),
        ("waits ended by", &longest.waited),
    ];
    let bars: Vec<(&str, &str, u64)> = lists
        .iter()
        .flat_map(|(list, counts)| {
            let mut sorted: Vec<_> =
                counts.iter().map(|(name, count)| (*list, *name, *count)).collect();
            sorted.sort_by_key(|(.., count)| core::cmp::Reverse(*count));
            sorted
        })
        .collect();
    let most = bars.iter().map(|(.., count)| *count).max().unwrap_or(1).max(1);
    let height = ROW * bars.len().max(1);
    let title = format!("{}: reasons at a hold time of {}", longest.name(), longest.hold);
    let mut text = open(&title, height);
    for (i, (list, name, count)) in bars.iter().enumerate() {
        let (y, middle) = (i * ROW, i * ROW + THICK - 4);
        let length = BAR * *count as f64 / most as f64;
        let behind = BAR_AT + length + 8.0;
        // Writing to a string never fails, here and below.
        let _ = writeln!(
            text,
            "<text x=\"0\" y=\"{middle}\">{list}: {name}</text>\n\
             <rect x=\"{BAR_AT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\"/>\n\
             <text x=\"{behind:.1}\" y=\"{middle}\">{count}</text>"
        );
    }
    text + "</svg></div>\n"
}

type Value = fn(&Setting) -> Option<f64>;

/// Values plotted against the hold time, one line per profile.
const CHARTS: &[(&str, Value)] = &[
    ("Packets delivered, by hold time", |setting| Some(setting.packets_up as f64)),
    ("Mean segments per train, by hold time", |setting| Some(setting.segments_per_train?.mean)),
    ("Packets held: 99th percentile of the delay in microseconds, by hold time", |setting| {
        Some(setting.held_ns?.p99 as f64 / 1e3)
    }),
];

/// Dimensions of the drawings, in SVG units.
const BAR_AT: f64 = 260.0;
const BAR: f64 = 440.0;
const ROW: usize = 26;
const THICK: usize = 20;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --bar: #2f6fb0; --axis: #8a8f98; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181c;
  --bar: #6aa5e0; --axis: #9aa0aa; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } svg { width: 100%; min-width: 720px; height: auto; }
svg text { fill: var(--ink); font-size: 14px; }
svg rect { fill: var(--bar); } svg path { fill: none; stroke-width: 2; }
svg .axis { stroke: var(--axis); stroke-width: 1; }
circle { fill: var(--paper); stroke: var(--ink); } pre { overflow-x: auto; font-size: 13px; }
path.h0 { stroke: #2f6fb0; } path.h1 { stroke: #d08a2e; } path.h2 { stroke: #3a9a6a; }
path.h3 { stroke: #a05ab0; } path.h4 { stroke: #c0504a; } path.h5 { stroke: #6a7a8a; }
path.h6 { stroke: #7a9a2a; } path.h7 { stroke: #2a9aa0; }
svg text.h0 { fill: #2f6fb0; } svg text.h1 { fill: #d08a2e; } svg text.h2 { fill: #3a9a6a; }
svg text.h3 { fill: #a05ab0; } svg text.h4 { fill: #c0504a; } svg text.h5 { fill: #6a7a8a; }
svg text.h6 { fill: #7a9a2a; } svg text.h7 { fill: #2a9aa0; }
@media print { body { margin: 0; max-width: none; } svg, pre { break-inside: avoid; }
  svg { min-width: 0; } .wide { overflow: visible; }
  :root { color-scheme: light; --ink: #000; --paper: #fff; } pre { white-space: pre-wrap; } }
";
