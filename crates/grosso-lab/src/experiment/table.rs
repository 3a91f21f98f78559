//! The table of an experiment, for people: at most 80 columns.

use core::fmt::Write;

use super::{GroupResult, Published, Report, RowResult, Spread};
use crate::traffic::Traffic;

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let environment = &self.environment;
        let mut text = format!(
            "lab {}: {} ({}) between two kernels, Grosso is the {}'s NIC\n\
             through {}; Linux {}, CPUs: {}\n\
             median (least-most) of {} runs of {} s; trains held at most {} us\n",
            self.experiment,
            environment.traffic,
            environment.congestion,
            if self.experiment == "gso" { "sender" } else { "receiver" },
            environment.device,
            environment.kernel,
            environment.processors,
            environment.runs,
            environment.seconds,
            environment.hold_us,
        );
        for group in &self.groups {
            text.push('\n');
            group.write(&mut text);
        }
        let retransmits: u64 =
            self.groups.iter().flat_map(|group| &group.rows).map(|row| row.retransmits).sum();
        // Writing to a string cannot fail, here and below.
        let footnote = if environment.traffic == Traffic::TcpRequests { "" } else { FOOTNOTE };
        let _ = writeln!(text, "\n{footnote}Retransmits in all runs: {retransmits}.");
        text
    }
}

impl GroupResult {
    /// What the settings of the group have in common.
    pub(super) fn title(&self) -> String {
        let mtu = if self.mtu.sender == self.mtu.receiver {
            format!("MTU {}", self.mtu.sender)
        } else {
            format!("MTU {} to {}", self.mtu.sender, self.mtu.receiver)
        };
        let processors = match self.processors {
            1 => "one CPU for everything",
            _ => "two CPUs: one for the sender, one for path and receiver",
        };
        format!("{mtu}, {processors}")
    }

    fn write(&self, text: &mut String) {
        let waits = self.rows.iter().any(|row| row.latency.is_some());
        let heading = if waits { LATENCY_HEADING } else { HEADING };
        let _ = writeln!(text, "{}\n{}", self.title(), heading.join("\n"));
        for row in &self.rows {
            row.write(text);
        }
        let unit = if waits { " the requests for a CPU" } else { "" };
        let _ = write!(text, "on / off        {:>5.2} times{unit}", self.ratio);
        if let Some(Published { ratio, source }) = self.published {
            let _ = write!(text, " ({source}: {ratio:.2} times)");
        }
        text.push('\n');
    }
}

impl RowResult {
    fn write(&self, text: &mut String) {
        if let (Some(latency), Some(requests)) = (self.latency, self.requests_a_second) {
            let Spread { median, min, max } = requests;
            let spread = format!("({min:.0}-{max:.0})");
            let _ = writeln!(
                text,
                "{:<15} {median:>8.0} {spread:<17} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
                self.name, latency.p50_us, latency.p90_us, latency.p95_us, latency.p99_us,
            );
            return;
        }
        let Spread { median, min, max } = self.gigabits_a_cpu_second;
        let spread = format!("({}-{})", digits(min), digits(max));
        let segments =
            self.segments_per_train.map_or_else(|| "-".into(), |segments| digits(segments.median));
        let _ = writeln!(
            text,
            "{:<15} {:>5} {:<11} {:>5} {:>6.3} {:>6.3} {:>8.3} {:>8} {:>7.0}",
            self.name,
            digits(median),
            spread,
            digits(self.gigabits_a_second.median),
            self.sender_cpu_s_per_gb.median,
            self.path_cpu_s_per_gb.median,
            self.receiver_cpu_s_per_gb.median,
            segments,
            self.acknowledgements_a_second.median,
        );
    }
}

/// Three digits.
fn digits(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// What stands over the columns of [`RowResult::write`].
const HEADING: [&str; 2] = [
    "                Gb/s per CPU             CPU seconds a GB       segments",
    "                                   Gb/s sender   path receiver  a train  ACKs/s",
];

/// The same for requests.
const LATENCY_HEADING: [&str; 2] = [
    "                requests                       microseconds for a request",
    "                a second                       50 %     90 %     95 %     99 %",
];

const FOOTNOTE: &str = "\
The path's seconds are those of its thread, in which the kernel runs most of the
receiver's TCP, and of the kernel's own threads for packets.
";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Latency, Spread, tests::report};

    #[test]
    fn table_fits_a_terminal_and_leads_with_gigabits_a_cpu() {
        let table = report().table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let line = |start| table.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        let on = line("coalescing on");
        let on: Vec<String> = on.split_whitespace().map(Into::into).collect();
        assert_eq!(
            on[2..],
            ["10.0", "(10.0-10.0)", "10.0", "0.200", "0.400", "0.200", "44.9", "123456"]
        );
        assert!(line("coalescing off").contains(" 2.75 (2.50-3.00)"), "{table}");
        assert!(line("on / off").contains("3.64 times (in 2007"), "{table}");
    }

    #[test]
    fn requests_are_told_by_how_long_they_took() {
        let mut report = report();
        report.groups[0].published = None;
        for row in &mut report.groups[0].rows {
            row.latency = Latency::of((1..=100).map(|i| Duration::from_micros(i * 100)));
            row.requests_a_second = Some(Spread::of([177_700.0, 73_400.4]));
        }
        let table = report.table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let line = table.lines().find(|line| line.starts_with("coalescing on")).unwrap();
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let expected = ["125550", "(73400-177700)", "5000.0", "9000.0", "9500.0", "9900.0"];
        assert_eq!(words, expected);
    }
}
