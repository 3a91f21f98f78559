//! The table of an experiment, for people: at most 80 columns.

use core::fmt::Write;

use super::{GroupResult, Published, Report, RowResult, Spread};

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let environment = &self.environment;
        let mut text = format!(
            "lab {}: {} ({}) between two kernels, Grosso is the {}'s NIC\n\
             Linux {}, CPUs: {}\n\
             median (least-most) of {} runs of {} s; trains held at most {} us\n",
            self.experiment,
            environment.traffic,
            environment.congestion,
            if self.experiment == "gso" { "sender" } else { "receiver" },
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
        let _ = writeln!(text, "\n{FOOTNOTE}\nRetransmits in all runs: {retransmits}.");
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
        let _ = writeln!(text, "{}\n{}", self.title(), HEADING.join("\n"));
        for row in &self.rows {
            row.write(text);
        }
        let _ = write!(text, "on / off        {:>5.2} times", self.ratio);
        if let Some(Published { ratio, source }) = self.published {
            let _ = write!(text, " ({source}: {ratio:.2} times)");
        }
        text.push('\n');
    }
}

impl RowResult {
    fn write(&self, text: &mut String) {
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

const FOOTNOTE: &str = "\
The path's seconds are those of its thread, in which the kernel runs most of the
receiver's TCP, and of the kernel's own threads for packets.";

#[cfg(test)]
mod tests {
    use super::super::tests::report;

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
}
