//! Charts of a self-contained page: no network, no script, light and dark.

use core::fmt::Write;

use crate::statistics::Spread;

/// Rows of bars in two columns.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Width reserved for the names of the rows.
    pub(crate) names: usize,
    pub(crate) columns: [Column; 2],
    pub(crate) rows: Vec<(String, [Bar; 2])>,
}

/// Heading and scale of a column.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// Value of the longest bar.
    pub(crate) greatest: f64,
}

impl Column {
    /// A column in which the greatest of these values gets the longest bar.
    pub(crate) fn new(heading: &'static str, values: impl Iterator<Item = f64>) -> Self {
        Self { heading, greatest: values.fold(f64::MIN_POSITIVE, f64::max) }
    }
}

/// A bar of one part, or of several in a row.
pub(crate) struct Bar {
    /// The CSS class, the name and the value of each part.
    parts: Vec<(&'static str, Option<&'static str>, f64)>,
    /// Measurements whose median the bar shows, drawn as dots.
    dots: Vec<f64>,
    /// Value behind which the label is placed.
    end: f64,
    label: String,
}

impl Bar {
    /// A bar for the median of several measurements.
    pub(crate) fn middle(
        class: &'static str,
        spread: Spread,
        dots: impl Iterator<Item = f64>,
        label: String,
    ) -> Self {
        let parts = vec![(class, None, spread.median)];
        Self { parts, dots: dots.collect(), end: spread.max, label }
    }

    /// A bar of several parts, each with its class, name and value.
    pub(crate) fn parts<'a>(
        parts: impl IntoIterator<Item = &'a (&'static str, &'static str, f64)>,
        label: String,
    ) -> Self {
        let parts = parts.into_iter().map(|&(class, name, value)| (class, Some(name), value));
        let parts: Vec<_> = parts.collect();
        let end = parts.iter().map(|(.., value)| value).sum();
        Self { parts, dots: Vec::new(), end, label }
    }

    /// Draws the bar from `x` on, on a scale where the value `greatest` has the length `longest`.
    fn draw(&self, text: &mut String, (x, y): (f64, usize), longest: f64, greatest: f64) {
        let length = |value: f64| match value.is_finite() && greatest > 0.0 {
            true => longest * value / greatest,
            false => 0.0,
        };
        let middle = y + THICK / 2 + 5;
        let mut from = x;
        // Writing to a string cannot fail, here and below.
        for (class, name, value) in &self.parts {
            let _ = write!(
                text,
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{THICK}\"",
                length(*value),
            );
            let _ = match name {
                Some(name) => writeln!(text, "><title>{name} {value:.3}</title></rect>"),
                None => writeln!(text, "/>"),
            };
            from += length(*value);
        }
        let (behind, label) = (x + length(self.end) + GAP, escape(&self.label.replace("NaN", "-")));
        let _ = writeln!(text, "<text x=\"{behind:.1}\" y=\"{middle}\">{label}</text>");
        for dot in &self.dots {
            let (x, y) = (x + length(*dot), y + THICK / 2);
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"3\"/>");
        }
    }
}

impl Chart {
    /// The chart with its title.
    pub(crate) fn draw(&self) -> String {
        let height = HEAD + ROW * self.rows.len();
        let longest = ((WIDTH - MARGIN - LABEL - self.names) / 2) as f64;
        let at = [self.names as f64, self.names as f64 + longest + LABEL as f64];
        let title = escape(&self.title);
        let mut text = format!(
            "<h2>{title}</h2>\n<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n"
        );
        for (x, column) in at.into_iter().zip(self.columns) {
            let heading = escape(column.heading);
            let _ = writeln!(text, "<text class=\"head\" x=\"{x}\" y=\"16\">{heading}</text>");
        }
        for (i, (name, bars)) in self.rows.iter().enumerate() {
            let (y, name) = (HEAD + i * ROW, escape(name));
            let _ = writeln!(text, "<text x=\"0\" y=\"{}\">{name}</text>", y + THICK / 2 + 5);
            for ((x, column), bar) in at.into_iter().zip(self.columns).zip(bars) {
                bar.draw(&mut text, (x, y), longest, column.greatest);
            }
        }
        text + "</svg></div>\n"
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Checks that a page needs no other file, that every tag is closed, and that a browser, if there is one, shows all.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_shown(page: &str) {
    let is_self_contained =
        ["http", "url(", "src=", "<script"].iter().all(|word| !page.contains(word))
            && page.matches('<').count() == page.matches('>').count();
    assert!(is_self_contained, "{page}");
    if let Some(defects) = grosso_testkit::browser::defects(page) {
        assert!(defects.is_empty(), "{defects:#?}");
    }
}

/// Units of the drawing: its width, room for a bar's label, the right margin, and the sizes of rows.
const WIDTH: usize = 800;
const LABEL: usize = 90;
const MARGIN: usize = 60;
const GAP: f64 = 8.0;
const HEAD: usize = 30;
const ROW: usize = 34;
const THICK: usize = 22;

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --speed: #2f6fb0;
  --sender: #8a8f98; --path: #2f6fb0; --receiver: #d08a2e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181c;
  --speed: #6aa5e0; --sender: #9aa0aa; --path: #6aa5e0; --receiver: #e0a458; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } svg { width: 100%; min-width: 660px; height: auto; }
svg text { fill: var(--ink); font-size: 14px; }
svg .head { font-weight: 600; } circle { fill: var(--paper); stroke: var(--ink); }
rect.speed { fill: var(--speed); } rect.sender { fill: var(--sender); }
rect.path { fill: var(--path); } rect.far { fill: var(--path); opacity: .6; }
rect.receiver { fill: var(--receiver); }
rect.pale { fill: var(--receiver); opacity: .6; } rect.rest { fill: #a05ab0; }
rect.acks { fill: #3a9a6a; } b.acks { color: #3a9a6a; } b.rest { color: #a05ab0; }
b.sender { color: var(--sender); } b.path { color: var(--path); }
b.receiver { color: var(--receiver); }
b.yes { color: var(--path); } b.no { color: var(--receiver); } ul { padding-left: 1.2rem; }
svg path { fill: none; stroke-width: 2; } svg .axis { stroke: var(--sender); stroke-width: 1; }
.h0 { stroke: #2f6fb0; fill: #2f6fb0; } .h1 { stroke: #d08a2e; fill: #d08a2e; }
.h2 { stroke: #3a9a6a; fill: #3a9a6a; } .h3 { stroke: #a05ab0; fill: #a05ab0; }
svg text.h0, svg text.h1, svg text.h2, svg text.h3 { stroke: none; }
pre { overflow-x: auto; font-size: 13px; }
@media print { body { margin: 0; max-width: none; } svg, pre { break-inside: avoid; }
  svg { min-width: 0; } .wide { overflow: visible; }
  :root { color-scheme: light; --ink: #000; --paper: #fff; } pre { white-space: pre-wrap; } }
";
