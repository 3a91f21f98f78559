//! The results as one page that needs nothing else: no network, no script, light and dark.

use core::fmt::Write;

use super::{GroupResult, Report, RowResult};

impl Report {
    /// The results as an HTML page. `command` is what repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let charts: String = self.groups.iter().map(GroupResult::charts).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>grosso lab {name}</title>\n<style>{STYLE}</style>\n\
             <h1>{verdict}</h1>\n<p>{LEGEND}</p>\n{charts}\
             <h2>The figures</h2>\n<pre>{table}</pre>\n\
             <p>Measured by <code>{command}</code></p>\n</html>\n",
            name = self.experiment,
            verdict = escape(&self.verdict()),
            table = escape(&self.table()),
            command = escape(command),
        )
    }

    /// What the first group says, in a sentence.
    fn verdict(&self) -> String {
        match self.groups.first().map(|group| (group, &group.rows[..])) {
            Some((group, [on, off, ..])) => format!(
                "With {} a CPU moves {:.2} times the data: {:.1} Gb/s instead of {:.1}",
                on.name.trim_end_matches(" on"),
                group.ratio,
                on.gigabits_a_cpu_second.median,
                off.gigabits_a_cpu_second.median,
            ),
            _ => "Nothing was measured".into(),
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
        let fastest = widest(&|row| row.gigabits_a_cpu_second.max);
        let dearest = widest(&|row| row.costs().iter().sum());
        let rows = self.rows.iter().enumerate();
        let bars: String =
            rows.map(|(i, row)| row.bars(HEAD + i * ROW, [fastest, dearest])).collect();
        format!(
            "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n\
             <text class=\"head\" x=\"{SPEED_AT}\" y=\"16\">Gb/s per CPU</text>\n\
             <text class=\"head\" x=\"{COST_AT}\" y=\"16\">CPU seconds a GB</text>\n{bars}</svg>\n",
            title = self.title(),
        )
    }
}

impl RowResult {
    /// The row's bars at `y`, as long as the greatest values of the group allow.
    fn bars(&self, y: usize, [fastest, dearest]: [f64; 2]) -> String {
        let speed = self.gigabits_a_cpu_second;
        let length = BAR * speed.median / fastest;
        let middle = y + THICK / 2 + 5;
        let mut text = format!(
            "<text x=\"0\" y=\"{middle}\">{name}</text>\n\
             <rect class=\"speed\" x=\"{SPEED_AT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\"/>\n\
             <text x=\"{label:.1}\" y=\"{middle}\">{median:.2}</text>\n",
            name = escape(self.name),
            label = SPEED_AT as f64 + BAR * speed.max / fastest + GAP,
            median = speed.median,
        );
        // Writing to a string cannot fail, here and below.
        for run in &self.runs {
            let x = SPEED_AT as f64 + BAR * run.gigabits_a_cpu_second() / fastest;
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
        let _ = writeln!(text, "<text x=\"{label:.1}\" y=\"{middle}\">{total:.2}</text>");
        text
    }

    /// Processor seconds a gigabyte in the order of [`ROLES`].
    fn costs(&self) -> [f64; 3] {
        let costs = [self.sender_cpu_s_per_gb, self.path_cpu_s_per_gb, self.receiver_cpu_s_per_gb];
        costs.map(|cost| cost.median)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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

const STYLE: &str = "
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
rect.path { fill: var(--path); } rect.receiver { fill: var(--receiver); }
b.sender { color: var(--sender); } b.path { color: var(--path); }
b.receiver { color: var(--receiver); }
pre { overflow-x: auto; font-size: 13px; }
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
        assert!(page.contains("a&amp;b.html") && page.contains("(&lt;script&gt;)"));
        // The longest bar is as long as a bar may be.
        assert!(page.contains("width=\"260.0\""));
        assert_eq!(page.matches('<').count(), page.matches('>').count());
    }
}
