//! The experiment's table for people, of at most 80 columns.

use core::fmt::Write;

use super::{
    Growth, Report, RowResult, Side,
    growth::{AVOIDANCE_ROUND_TRIPS, SEGMENTS_WANTED},
    model::Counting,
};
use crate::experiment::{Spread, digits, thousands};

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for (side, title) in SIDES {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "\n{title}\n{}", HEADING.join("\n"));
            self.rows.iter().filter(|row| row.side == side).for_each(|row| row.write(&mut text));
        }
        self.write_overtaken(&mut text);
        self.write_growth(&mut text);
        text.push('\n');
        self.verdicts.iter().for_each(|verdict| verdict.write(&mut text));
        text + &self.notes.join("\n") + "\n"
    }

    fn heading(&self) -> String {
        let environment = &self.environment;
        format!(
            "lab acks: one TCP connection ({}), packets of 1500 bytes\n\
             through {}; CPUs: {}\n\
             {}\n",
            environment.congestion,
            environment.conditions.device,
            environment.conditions.processors,
            environment.conditions.spread_lines(),
        )
    }

    fn write_overtaken(&self, text: &mut String) {
        let overtaken = &self.overtaken;
        let _ = writeln!(
            text,
            "\nOvertaken on one connection, of {} packets of data and acknowledgments:\n\
             {:>6} where acknowledgments go past the coalescer, and nothing leaves first\n\
             {:>6} where what is held of their flow leaves first",
            overtaken.packets, overtaken.past_it, overtaken.through_it,
        );
    }

    fn write_growth(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nA model of the sender: round trips from 10 to {SEGMENTS_WANTED} segments in slow start,\n\
             segments gained in {AVOIDANCE_ROUND_TRIPS} of them afterwards\n\
             {:<26}{:>8}{:>14}{:>14}",
            "the sender counts", "merged", "slow start", "avoidance",
        );
        self.growth.iter().for_each(|growth| growth.write(text));
    }
}

impl RowResult {
    fn write(&self, text: &mut String) {
        let window =
            self.window_bytes.map_or_else(|| "usual".into(), |bytes| format!("{}K", bytes >> 10));
        let Spread { median, min, max } = self.gigabits_a_second;
        let spread = format!("({}-{})", digits(min), digits(max));
        let _ = writeln!(
            text,
            "{window:<6} {:<9} {:>4.0} {:>6} {spread:<13} {:>6} {:>7} {:>6} {:>6} {:>5.1}",
            self.handling,
            self.hold_us,
            digits(median),
            thousands(self.acknowledgments_sent.median),
            thousands(self.acknowledgments_reached.median),
            thousands(self.reads_a_second.median),
            thousands(self.reads_a_gigabyte.median),
            self.segments_a_unit.median,
        );
    }
}

impl Growth {
    fn write(&self, text: &mut String) {
        let counting = match self.counting {
            Counting::Packets => "packets".to_owned(),
            Counting::Bytes { limit } => format!("bytes, at most {limit} segments"),
        };
        let counted = if self.is_counted { ", counted" } else { "" };
        let _ = writeln!(
            text,
            "{counting:<26}{:>8}{:>14}{:>14}{counted}",
            self.merged, self.slow_start_round_trips, self.avoidance_segments,
        );
    }
}

const SIDES: [(Side, &str); 2] = [
    (Side::Sender, "Grosso is the NIC of who sends the bytes: acknowledgments come in"),
    (Side::Receiver, "Grosso is the NIC of who receives them: data comes in"),
];

/// Heading of the columns of [`RowResult::write`].
const HEADING: [&str; 2] = [
    "window handling  hold   Gb/s               ACKs/s  ACKs/s  reads  reads segm.",
    "                   us                        sent reached     /s    /GB /unit",
];

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn table_fits_a_terminal_and_has_a_row_for_each_setting() {
        let table = report().table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let row = table.lines().find(|line| line.starts_with("64K    freebsd     16")).unwrap();
        let words: Vec<_> = row.split_whitespace().skip(3).collect();
        assert_eq!(words, ["4.00", "(4.00-4.00)", "340k", "42.5k", "60.0k", "120k", "1.0"]);
        assert!(table.contains("of 1600 packets"), "{table}");
    }
}
