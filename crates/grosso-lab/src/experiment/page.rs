//! The results as one page that needs nothing else: no network, no script, light and dark.

use core::fmt::Write;

use super::{GroupResult, Latency, Report, RowResult, Spread, Verdict, table::digits};

impl Report {
    /// The results as an HTML page. `command` is what repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let charts: String = match self.is_sweep() {
            true => self.curves(),
            false => self.groups.iter().map(GroupResult::charts).collect(),
        };
        let verdicts: String = self.verdicts.iter().map(Verdict::item).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>grosso lab {name}</title>\n<style>{STYLE}</style>\n\
             <h1>{verdict}</h1>\n<p>{LEGEND}</p>\n<ul>{verdicts}</ul>\n{charts}\
             <h2>The figures</h2>\n<pre>{table}</pre>\n\
             <p>Measured on {processor}, by <code>{command}</code></p>\n</html>\n",
            name = self.experiment,
            verdict = escape(&self.verdict()),
            table = escape(&self.table()),
            processor = escape(&self.environment.processor),
            command = escape(command),
        )
    }

    /// Whether the number of connections is what differs.
    fn is_sweep(&self) -> bool {
        self.rows().any(|row| row.connections > 1)
    }

    /// What the first group says, in a sentence.
    fn verdict(&self) -> String {
        let Some(group) = self.groups.first() else { return "Nothing was measured".into() };
        let ratio = group.ratio;
        match &group.rows[..] {
            [few, .., many] if self.is_sweep() => format!(
                "{} make trains of {}, {} of {} packets",
                few.name,
                few.segments_per_train.map_or_else(|| "-".into(), |s| digits(s.median)),
                many.name,
                many.segments_per_train.map_or_else(|| "-".into(), |s| digits(s.median)),
            )
            .replace("1 flow make", "1 flow makes"),
            [on, ..] if on.latency.is_some() => {
                format!("With {} a CPU answers {ratio:.2} times the requests", feature(&on.name))
            }
            [on, ..] => format!(
                "With {} a CPU moves {ratio:.2} times the data: {:.1} Gb/s instead of {:.1}",
                feature(&on.name),
                on.gigabits_a_cpu_second.median,
                on.gigabits_a_cpu_second.median / ratio,
            ),
            [] => "Nothing was measured".into(),
        }
    }
}

impl GroupResult {
    /// Throughput and cost of each row, side by side.
    fn charts(&self) -> String {
        let height = HEAD + ROW * self.rows.len();
        let widest = |value: &dyn Fn(&RowResult) -> f64| {
            self.rows.iter().map(value).fold(f64::MIN_POSITIVE, f64::max)
        };
        let fastest = widest(&|row| row.speed().max);
        let dearest = widest(&|row| row.costs().iter().sum());
        let [speed, cost] = match self.rows.iter().any(|row| row.latency.is_some()) {
            true => ["requests a second", "microseconds: 50, 90, 99 % of requests"],
            false => ["Gb/s per CPU", "CPU seconds a GB"],
        };
        let rows = self.rows.iter().enumerate();
        let bars: String =
            rows.map(|(i, row)| row.bars(HEAD + i * ROW, [fastest, dearest])).collect();
        format!(
            "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n\
             <text class=\"head\" x=\"{SPEED_AT}\" y=\"16\">{speed}</text>\n\
             <text class=\"head\" x=\"{COST_AT}\" y=\"16\">{cost}</text>\n{bars}</svg>\n",
            title = escape(&self.title),
        )
    }
}

impl RowResult {
    /// The row's bars at `y`, as long as the greatest values of the group allow.
    fn bars(&self, y: usize, [fastest, dearest]: [f64; 2]) -> String {
        let speed = self.speed();
        let length = BAR * speed.median / fastest;
        let middle = y + THICK / 2 + 5;
        let mut text = format!(
            "<text x=\"0\" y=\"{middle}\">{name}</text>\n\
             <rect class=\"speed\" x=\"{SPEED_AT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\"/>\n\
             <text x=\"{label:.1}\" y=\"{middle}\">{median}</text>\n",
            name = escape(&self.name),
            label = SPEED_AT as f64 + BAR * speed.max / fastest + GAP,
            median = digits(speed.median),
        );
        // Writing to a string cannot fail, here and below.
        for run in &self.runs {
            let value = match self.latency {
                Some(_) => run.units as f64 / run.seconds,
                None => run.gigabits_a_cpu_second(),
            };
            let x = SPEED_AT as f64 + BAR * value / fastest;
            let center = y + THICK / 2;
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{center}\" r=\"3\"/>");
        }
        let mut x = COST_AT as f64;
        for (cost, role) in self.costs().into_iter().zip(ROLES) {
            let length = BAR * cost / dearest;
            let _ = writeln!(
                text,
                "<rect class=\"{role}\" x=\"{x:.1}\" y=\"{y}\" width=\"{length:.1}\" \
                 height=\"{THICK}\"><title>{role} {cost:.3}</title></rect>"
            );
            x += length;
        }
        let (label, total) = (x + GAP, self.costs().iter().sum::<f64>());
        let _ = writeln!(text, "<text x=\"{label:.1}\" y=\"{middle}\">{}</text>", digits(total));
        text
    }

    /// What the first column shows.
    fn speed(&self) -> Spread {
        self.requests_a_second.unwrap_or(self.gigabits_a_cpu_second)
    }

    /// Processor seconds a gigabyte in the order of [`ROLES`]; of requests, how much longer each
    /// share of them took than the one before.
    fn costs(&self) -> [f64; 3] {
        if let Some(Latency { p50_us, p90_us, p99_us, .. }) = self.latency {
            return [p50_us, p90_us - p50_us, p99_us - p90_us];
        }
        let costs = [self.sender_cpu_s_per_gb, self.path_cpu_s_per_gb, self.receiver_cpu_s_per_gb];
        costs.map(|cost| cost.median)
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What is on in a row.
fn feature(name: &str) -> &str {
    if name.starts_with("parts") { "coalescing" } else { name.trim_end_matches(" on") }
}

impl Verdict {
    /// As an item of a list.
    pub(crate) fn item(&self) -> String {
        let answer = if self.holds { "yes" } else { "no" };
        let (claim, measured) = (escape(self.claim), escape(&self.measured));
        format!("<li><b class=\"{answer}\">{answer}</b> {claim}: {measured}</li>\n")
    }
}

/// Who uses the processor; also the classes of [`STYLE`].
const ROLES: [&str; 3] = ["sender", "path", "receiver"];
/// Units of the drawing: its width, where its two columns begin, the longest bar, and rows.
const WIDTH: usize = 800;
const SPEED_AT: usize = 130;
const COST_AT: usize = 480;
const BAR: f64 = 260.0;
const GAP: f64 = 8.0;
const HEAD: usize = 30;
const ROW: usize = 34;
const THICK: usize = 22;

const LEGEND: &str = "\
Real TCP between two network namespaces of this machine. A bar is the median, a dot a run. \
Cost by role: <b class=\"sender\">sender</b>, <b class=\"path\">data path</b> with the receiver's \
kernel in it, <b class=\"receiver\">receiver</b>.";

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --speed: #2f6fb0;
  --sender: #8a8f98; --path: #2f6fb0; --receiver: #d08a2e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181c;
  --speed: #6aa5e0; --sender: #9aa0aa; --path: #6aa5e0; --receiver: #e0a458; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 14px; }
svg .head { font-weight: 600; } circle { fill: var(--paper); stroke: var(--ink); }
rect.speed { fill: var(--speed); } rect.sender { fill: var(--sender); }
rect.path { fill: var(--path); } rect.far { fill: var(--path); opacity: .6; }
rect.receiver { fill: var(--receiver); }
b.sender { color: var(--sender); } b.path { color: var(--path); }
b.receiver { color: var(--receiver); }
b.yes { color: var(--path); } b.no { color: var(--receiver); } ul { padding-left: 1.2rem; }
svg path { fill: none; stroke-width: 2; } svg .axis { stroke: var(--sender); stroke-width: 1; }
.h0 { stroke: #2f6fb0; fill: #2f6fb0; } .h1 { stroke: #d08a2e; fill: #d08a2e; }
.h2 { stroke: #3a9a6a; fill: #3a9a6a; } .h3 { stroke: #a05ab0; fill: #a05ab0; }
svg text.h0, svg text.h1, svg text.h2, svg text.h3 { stroke: none; }
pre { overflow-x: auto; font-size: 13px; }
@media print { body { margin: 0; max-width: none; } svg, pre { break-inside: avoid; }
  :root { color-scheme: light; --ink: #000; --paper: #fff; } pre { white-space: pre-wrap; } }
";

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let mut report = report();
        report.environment.congestion = "<script>".into();
        let page = report.page("grosso lab --html \"a&b.html\"");
        assert!(page.contains("a CPU moves 3.64 times the data: 10.0 Gb/s instead of 2.8</h1>"));
        let runs: usize =
            report.groups.iter().flat_map(|group| &group.rows).map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert!(["http", "url(", "src=", "<script"].iter().all(|word| !page.contains(word)));
        assert!(page.contains("a&amp;b.html") && page.contains("is &lt;script&gt;"));
        // The longest bar is as long as a bar may be.
        assert!(page.contains("width=\"260.0\""));
        assert_eq!(page.matches('<').count(), page.matches('>').count());
    }
}
