//! The results as one page that needs nothing else: no network, no script, light and dark.

use core::fmt::Write;

use super::{Carrier, GroupResult, Report, Roles, RowResult, table::on_or_off};
use crate::experiment::{STYLE, Verdict, escape};

impl Report {
    /// The results as an HTML page. `command` is what repeats them.
    #[must_use]
    pub fn page(&self, command: &str) -> String {
        let verdicts: String = self.verdicts.iter().map(Verdict::item).collect();
        let greatest = |value: &dyn Fn(&RowResult) -> f64| {
            self.rows().map(value).fold(f64::MIN_POSITIVE, f64::max)
        };
        let scales = [
            greatest(&|row| row.megabits_a_second.max),
            greatest(&|row| row.roles_s_per_gb.total()),
        ];
        let charts: String = self.groups.iter().map(|group| group.chart(scales)).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>grosso lab tunnels</title>\n<style>{STYLE}</style>\n\
             <h1>{headline}</h1>\n<p>{LEGEND}</p>\n<ul>{verdicts}</ul>\n{charts}\
             <h2>The figures</h2>\n<pre>{table}</pre>\n\
             <p>Measured on {processor}, by <code>{command}</code></p>\n</html>\n",
            headline = escape(&self.headline()),
            table = escape(&self.table()),
            processor = escape(&self.environment.processor),
            command = escape(command),
        )
    }

    /// What the comparison with the kernel says, in a sentence.
    fn headline(&self) -> String {
        let kernel = self
            .comparisons
            .iter()
            .find(|compared| compared.with == Carrier::Kernel && !compared.remote_checksum);
        kernel.map_or_else(
            || "Tunnels that end in userspace".into(),
            |kernel| {
                format!(
                    "VXLAN in userspace: {:.2} times the kernel's throughput, {:.2} times its CPU a GB",
                    kernel.throughput, kernel.cpu_a_gigabyte
                )
            },
        )
    }
}

impl GroupResult {
    /// Throughput and cost of each row, side by side.
    fn chart(&self, scales: [f64; 2]) -> String {
        let height = HEAD + ROW * self.rows.len();
        let rows = self.rows.iter().enumerate();
        let bars: String = rows.map(|(i, row)| row.bars(HEAD + i * ROW, scales)).collect();
        format!(
            "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n\
             <text class=\"head\" x=\"{SPEED_AT}\" y=\"16\">TCP_STREAM, Mb/s</text>\n\
             <text class=\"head\" x=\"{COST_AT}\" y=\"16\">CPU seconds a GB</text>\n{bars}</svg>\n",
            title = escape(self.title),
        )
    }
}

impl RowResult {
    /// The row's bars at `y`, as long as the greatest values of all rows allow.
    fn bars(&self, y: usize, [fastest, dearest]: [f64; 2]) -> String {
        let middle = y + THICK / 2 + 5;
        let speed = self.megabits_a_second;
        let name = match self.remote_checksum {
            Some(_) => format!("{}, RCO {}", self.name(), on_or_off(self.remote_checksum)),
            None => self.name(),
        };
        let mut text = format!(
            "<text x=\"0\" y=\"{middle}\">{name}</text>\n\
             <rect class=\"speed\" x=\"{SPEED_AT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\"/>\n\
             <text x=\"{label:.1}\" y=\"{middle}\">{median:.0}</text>\n",
            name = escape(&name),
            length = BAR * speed.median / fastest,
            label = SPEED_AT as f64 + BAR * speed.max / fastest + GAP,
            median = speed.median,
        );
        for run in &self.runs {
            let x = SPEED_AT as f64 + BAR * run.stream.megabits_a_second() / fastest;
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{center}\" r=\"3\"/>",
                center = y + THICK / 2
            );
        }
        let Roles { sender, path_a, path_b, receiver, kernel } = self.roles_s_per_gb;
        let costs = [
            ("sender", "sender", sender),
            ("path", "path a", path_a),
            ("far", "path b", path_b),
            ("receiver", "receiver", receiver),
            ("sender", "kernel threads", kernel),
        ];
        let mut x = COST_AT as f64;
        for (class, role, cost) in costs {
            let length = BAR * cost / dearest;
            let _ = writeln!(
                text,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"{length:.1}\" \
                 height=\"{THICK}\"><title>{role} {cost:.3}</title></rect>"
            );
            x += length;
        }
        let (label, total) = (x + GAP, self.roles_s_per_gb.total());
        let _ = writeln!(text, "<text x=\"{label:.1}\" y=\"{middle}\">{total:.2}</text>");
        text
    }
}

/// Units of the drawing: its width, where its two columns begin, the longest bar, and rows.
const WIDTH: usize = 800;
const SPEED_AT: usize = 150;
const COST_AT: usize = 490;
const BAR: f64 = 250.0;
const GAP: f64 = 8.0;
const HEAD: usize = 30;
const ROW: usize = 34;
const THICK: usize = 22;

const LEGEND: &str = "\
Real TCP between two network namespaces of this machine, through a tunnel. A bar is the median, a \
dot a run. Cost by role: <b class=\"sender\">sender</b>, <b class=\"path\">path a</b> which puts \
packets in, path b which takes them out (paler), <b class=\"receiver\">receiver</b>.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab tunnels --html \"a&b.html\"");
        assert!(page.contains("VXLAN in userspace: 0.50 times the kernel's"), "{page}");
        let runs: usize = report.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert!(["http", "url(", "src=", "<script"].iter().all(|word| !page.contains(word)));
        assert!(page.contains("a&amp;b.html"));
        // The longest bar is as long as a bar may be: twice what Grosso carries is the kernel's.
        assert!(page.contains("width=\"245.1\""), "{page}");
        assert_eq!(page.matches('<').count(), page.matches('>').count());
    }
}
