//! Pages of experiments: their style, and the charts that all of them use.

use grosso_report::page::bars::Middle;
pub(crate) use grosso_report::page::{
    bars::{self, Bar, BarChart as Chart, Column},
    document, escape, setup,
};

use crate::statistics::Spread;

impl From<Spread> for Middle {
    fn from(Spread { median, max, .. }: Spread) -> Self {
        Self { median, max }
    }
}

/// A column of a chart, with a bar for each row of type `R`.
pub(crate) struct BarColumn<R> {
    heading: &'static str,
    /// Returns a row's value for the scale of the column: the greatest value in all charts gets the longest bar.
    value: fn(&R) -> f64,
    /// Returns the bar for a row.
    of: fn(&R) -> Bar,
}

impl<R> BarColumn<R> {
    pub(crate) const fn new(
        heading: &'static str,
        value: fn(&R) -> f64,
        of: fn(&R) -> Bar,
    ) -> Self {
        Self { heading, value, of }
    }
}

/// Draws one chart for each title and its rows. All charts have the same scale. `name` returns the name of a row.
pub(crate) fn charts<'a, R: 'a>(
    columns: &[BarColumn<R>; 2],
    name: impl Fn(&R) -> String,
    groups: impl IntoIterator<Item = (String, impl IntoIterator<Item = &'a R>)>,
) -> String {
    let groups: Vec<(String, Vec<&R>)> =
        groups.into_iter().map(|(title, rows)| (title, rows.into_iter().collect())).collect();
    let rows = || groups.iter().flat_map(|(_, rows)| rows);
    let [left, right] = columns;
    let scales = [left, right]
        .map(|column| Column::new(column.heading, rows().map(|row| (column.value)(row))));
    let chart = |(title, rows): &(String, Vec<&R>)| {
        let rows = rows.iter().map(|row| (name(row), [(left.of)(row), (right.of)(row)]));
        Chart { title: title.clone(), columns: scales, rows: rows.collect() }.draw()
    };
    groups.iter().map(chart).collect()
}

/// Checks that a page refers to no other files except through links, that every tag is closed, and that the browser, if
/// one is installed, displays everything.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_shown(page: &str) {
    let links = page.matches("<a href=\"https://").count();
    let is_self_contained = page.matches("http").count() == links
        && ["url(", "src=", "<script"].iter().all(|word| !page.contains(word))
        && page.matches('<').count() == page.matches('>').count();
    assert!(is_self_contained, "{page}");
    if let Some(defects) = grosso_testkit::browser::defects(page) {
        assert!(defects.is_empty(), "{defects:#?}");
    }
}

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --speed: #2f6fb0;
  --sender: #8a8f98; --path: #2f6fb0; --receiver: #d08a2e; --open: #7d6c16; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181c;
  --speed: #6aa5e0; --sender: #9aa0aa; --path: #6aa5e0; --receiver: #e0a458;
  --open: #c8b24e; } }
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
b.yes { color: var(--path); } b.no { color: var(--receiver); } b.open { color: var(--open); }
svg path { fill: none; stroke-width: 2; } svg .axis { stroke: var(--sender); stroke-width: 1; }
.h0 { stroke: #2f6fb0; fill: #2f6fb0; } .h1 { stroke: #d08a2e; fill: #d08a2e; }
.h2 { stroke: #3a9a6a; fill: #3a9a6a; } .h3 { stroke: #a05ab0; fill: #a05ab0; }
svg text.h0, svg text.h1, svg text.h2, svg text.h3 { stroke: none; }
pre { overflow-x: auto; font-size: 13px; } a { color: var(--speed); }
table { border-collapse: collapse; font-size: .9rem; } ol { padding-left: 1.6rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; }
.compared { margin-top: .8rem; overflow-wrap: normal; }
.compared td[data-of=here] { white-space: nowrap; }
@media (max-width: 599px) { .compared tr { display: block; margin: .6rem 0; }
  .compared th { display: none; } .compared td { display: block; padding: 0; }
  .compared td:nth-child(-n+2) { display: inline; }
  .compared td:first-child::after { content: \". \"; }
  .compared td[data-of]::before { content: attr(data-of) \": \"; } }
@media print { body { margin: 0; max-width: none; } svg, pre { break-inside: avoid; }
  svg { min-width: 0; } .wide { overflow: visible; }
  :root { color-scheme: light; --ink: #000; --paper: #fff; } pre { white-space: pre-wrap; } }
";
