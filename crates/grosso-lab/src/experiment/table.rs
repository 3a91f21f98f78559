//! An experiment's table for people, of at most 80 columns.

use core::fmt::Write;

use super::{Compared, Consumer, GroupResult, Published, Report, RowResult, Spread, Verdict};
use crate::trial::Tool;

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for group in &self.groups {
            text.push('\n');
            group.write(&mut text);
        }
        if let Some(consumer) = &self.consumer {
            consumer.write(&mut text);
        }
        text.push('\n');
        self.verdicts.iter().for_each(|verdict| verdict.write(&mut text));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{}", self.footnotes().join("\n"));
        text
    }

    fn heading(&self) -> String {
        let environment = &self.environment;
        let checksums =
            if environment.full_checksums { "verified by the receiver" } else { "as from a NIC" };
        // If the holding time is what differs, the titles already show it.
        let mut holds = self.rows().filter_map(|row| row.hold_us);
        let held = match holds.all(|hold| hold == environment.hold_us) {
            true => format!("; trains held at most {} us", environment.hold_us),
            false => String::new(),
        };
        let tool = if environment.tool == Tool::Iperf3 { " by iperf3" } else { "" };
        format!(
            "lab {}: two kernels, Grosso is the {}'s NIC; TCP is {}{tool}\n\
             through {}; checksums {checksums}; CPUs: {}\n\
             {}{held}\n",
            self.experiment,
            self.nic_of,
            environment.congestion,
            environment.conditions.device,
            environment.conditions.processors,
            environment.conditions.spread_lines(),
        )
    }

    fn footnotes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.notes.iter().map(|&note| note.into()).collect();
        if self.rows().any(|row| row.latency.is_none()) {
            notes.push(PATH_NOTE.into());
        }
        let lost: u64 = self.rows().map(|row| row.lost).sum();
        if self.rows().any(|row| !row.runs.is_empty()) && self.groups.iter().any(has_datagrams) {
            notes.push(format!("Datagrams lost in all runs: {lost}."));
        }
        if let Some(bytes) = self.rows().filter_map(|row| row.verified_bytes).min() {
            notes.push(format!(
                "Every setting also carried {} MB or more whose every byte was compared: right.",
                bytes / 1_000_000
            ));
        }
        notes.push(format!("Retransmits in all runs: {}.", self.retransmits()));
        notes
    }
}

fn has_datagrams(group: &GroupResult) -> bool {
    !group.traffic.is_tcp()
}

impl GroupResult {
    fn write(&self, text: &mut String) {
        let waits = self.rows.iter().any(|row| row.latency.is_some());
        let heading = if waits { LATENCY_HEADING } else { HEADING };
        let _ = writeln!(text, "{}\n{}", self.title, heading.join("\n"));
        for row in &self.rows {
            row.write(text);
        }
        for Compared { name, ratio, published } in &self.comparisons {
            let _ = write!(text, "{name:<15} {ratio:>5.2} times");
            if let Some(Published { ratio, source }) = published {
                let _ = write!(text, " ({source}: {ratio:.2} times)");
            }
            text.push('\n');
        }
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
            "{:<15} {:>5} {:<11} {:>5} {:>6.3} {:>6.3} {:>6.3} {:>5} {:>5} {:>5}",
            self.name,
            digits(median),
            spread,
            digits(self.gigabits_a_second.median),
            self.sender_cpu_s_per_gb.median,
            self.path_cpu_s_per_gb.median,
            self.receiver_cpu_s_per_gb.median,
            segments,
            thousands(self.acknowledgements_a_second.median),
            thousands(self.retransmits as f64),
        );
    }
}

impl Consumer {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nTo a consumer in memory that reads headers alone, {} bytes a packet\n\
             {:16}Gb/s per CPU",
            self.payload_bytes, "",
        );
        for (name, Spread { median, min, max }) in [("parts", self.parts), ("copied", self.copied)]
        {
            let _ = writeln!(text, "{name:<15} {median:>5.0} ({min:.0}-{max:.0})");
        }
        let ratio = self.parts.median / self.copied.median;
        let _ = writeln!(text, "{:<15} {ratio:>5.2} times", "parts / copied");
    }
}

impl Verdict {
    pub(crate) fn write(&self, text: &mut String) {
        let answer = if self.holds { "yes" } else { "no" };
        let _ = writeln!(text, "{answer:<4}{:<52} {}", self.claim, self.measured);
    }
}

/// A number of three digits.
pub(crate) fn digits(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// A number of at most five characters.
pub(crate) fn thousands(value: f64) -> String {
    match value {
        0.0..9_999.5 => format!("{value:.0}"),
        9_999.5..99_950.0 => format!("{:.1}k", value / 1e3),
        99_950.0..999_500.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

/// Heading of the columns of [`RowResult::write`].
const HEADING: [&str; 2] = [
    "                Gb/s per CPU             CPU seconds a GB     segm.  ACKs  sent",
    "                                   Gb/s sender   path  recvr /train    /s again",
];

/// The heading for requests.
const LATENCY_HEADING: [&str; 2] = [
    "                requests                       microseconds for a request",
    "                a second                       50 %     90 %     95 %     99 %",
];

const PATH_NOTE: &str = "\
The path's seconds are those of its thread, in which the kernel runs most of the
receiver's TCP, and of the kernel's own threads for packets.";

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
            ["10.0", "(10.0-10.0)", "10.0", "0.200", "0.400", "0.200", "44.9", "123k", "0"]
        );
        assert!(line("coalescing off").contains(" 2.75 (2.50-3.00)"), "{table}");
        assert!(line("on / off").contains("3.64 times (in 2007"), "{table}");
    }

    #[test]
    fn figures_are_short() {
        let written = [0.4, 9_999.0, 10_000.0, 99_949.0, 123_456.0, 2e6].map(super::thousands);
        assert_eq!(written, ["0", "9999", "10.0k", "99.9k", "123k", "2.0M"]);
    }

    #[test]
    fn requests_are_told_by_how_long_they_took() {
        let mut report = report();
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
