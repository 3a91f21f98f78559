//! The experiment's table for people, of at most 80 columns.

use core::fmt::Write;

use super::{GroupResult, Report, RowResult};
use crate::experiment::{Spread, digits, thousands};

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for group in &self.groups {
            text.push('\n');
            group.write(&mut text);
        }
        text.push('\n');
        self.verdicts.iter().for_each(|verdict| verdict.write(&mut text));
        text + &self.notes.join("\n") + "\n"
    }

    fn heading(&self) -> String {
        let environment = &self.environment;
        let offered = Spread::of(self.rows().map(|row| row.offered_gbps.median));
        format!(
            "lab fragments: datagrams of {} bytes over IPv6, in ESP, in fragments of 1500\n\
             through {}; CPUs: {}; offered {} Gb/s ({}-{})\n\
             {}\n",
            environment.datagram_bytes,
            environment.conditions.device,
            environment.conditions.processors,
            digits(offered.median),
            digits(offered.min),
            digits(offered.max),
            environment.conditions.spread_lines(),
        )
    }
}

impl GroupResult {
    /// Title of the group: the loss that its rows share.
    pub(super) fn title(&self) -> String {
        match self.loss > 0.0 {
            true => format!("{} % of fragments lost on the wire", self.loss * 100.0),
            false => "No fragment lost on the wire".into(),
        }
    }

    fn write(&self, text: &mut String) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{}\n{}", self.title(), HEADING.join("\n"));
        self.rows.iter().for_each(|row| row.write(text));
    }
}

impl RowResult {
    /// Number of buffers, in words.
    pub(super) fn buffers(&self) -> String {
        self.buffers.map_or_else(|| "no limit".into(), |buffers| buffers.to_string())
    }

    fn write(&self, text: &mut String) {
        let Spread { median, min, max } = self.goodput_gbps;
        let goodput = format!("{} ({}-{})", megabits(median), megabits(min), megabits(max));
        let _ = writeln!(
            text,
            "{:<9} {:<15} {goodput:<18} {:>6.1} {:>7} {:>6} {:>6} {:>6}",
            self.buffers(),
            self.receiver.to_string(),
            self.share_of_unbounded * 100.0,
            thousands(self.no_buffer_a_second.median),
            thousands(self.died_a_second.median),
            thousands(self.held_bytes_max as f64 / 1024.0),
            thousands(self.silence_ms.median),
        );
    }
}

/// Megabits a second: after a collapse only a few are left.
pub(super) fn megabits(gbps: f64) -> String {
    let megabits = gbps * 1e3;
    if megabits < 99.95 { format!("{megabits:.1}") } else { format!("{megabits:.0}") }
}

/// Heading of the columns of [`RowResult::write`].
const HEADING: [&str; 2] = [
    "receive   receiver        goodput              % of  no buf   died   held silent",
    "buffers                   Mb/s               no lim      /s     /s    KiB     ms",
];

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn table_fits_a_terminal_and_tells_the_collapse() {
        let table = report().table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let words = |start: &str| {
            let line = table.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().skip(1).map(String::from).collect::<Vec<_>>()
        };
        let coalesced = ["coalesces", "1490", "(1485-1495)", "99.3", "0", "20", "68", "2"];
        assert_eq!(words("32        coalesces"), coalesced);
        let queued = ["queues", "0.5", "(0.0-1.0)", "0.0", "130k", "2929", "128", "500"];
        assert_eq!(words("32        queues"), queued);
        assert!(table.contains("0.1 % of fragments lost on the wire"), "{table}");
        assert!(table.contains("yes coalescing: few buffers cost it 10 % at most"), "{table}");
    }
}
