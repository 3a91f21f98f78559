//! The experiment's table of at most 80 columns.

use core::fmt::Write;

use super::{
    AckFindings, AckParameters, AckRow, Growth, Handling, NicOf, SenderKind, TransferRow, Worth,
    growth::{AVOIDANCE_ROUND_TRIPS, SEGMENTS_WANTED},
};
use crate::{
    model::Counting,
    page::{Bar, Chart, Column},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, ratio, thousands},
    trial::Measured,
};

impl Findings for AckFindings {
    type Parameters = AckParameters;

    const LEGEND: &'static str = LEGEND;
    const KNOBS: &'static [Knob] = KNOBS;

    fn heading(&self, environment: &Environment<AckParameters>) -> String {
        format!(
            "one TCP connection ({}), packets of 1500 bytes\n\
             device: {}; CPUs: {}\n\
             {}",
            environment.parameters.congestion,
            environment.through(),
            environment.processors,
            environment.spread_lines(),
        )
    }

    fn write(&self, text: &mut String) {
        for (side, title) in SIDES {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "\n{title}\n{}", HEADING.join("\n"));
            self.rows.iter().filter(|row| row.side == side).for_each(|row| row.write(text));
        }
        self.write_transfers(text);
        self.write_overtaken(text);
        self.write_growth(text);
    }

    fn headline(&self) -> String {
        // Both rows have the same window: the lab's default if it was measured.
        let row = |handling, is_beside: &dyn Fn(&AckRow) -> bool| {
            let rows = self.rows.iter().filter(|row| row.side == NicOf::Sender);
            let rows = rows.filter(|row| row.handling == handling && is_beside(row));
            rows.min_by_key(|row| row.window_bytes)
        };
        let pair = row(Handling::Merged, &|_| true).and_then(|merged| {
            let window = merged.window_bytes;
            Some([merged, row(Handling::Off, &|off| off.window_bytes == window)?])
        });
        pair.map_or_else(
            || "No settings were compared".into(),
            |rows| {
                let [merged, off] = rows.map(|row| digits(row.gigabits_a_second.median));
                format!(
                    "A sender reaches {merged} Gb/s with merged acknowledgments, and {off} Gb/s without merging"
                )
            },
        )
    }

    fn charts(&self) -> String {
        let columns = [
            Column::new("Gb/s", self.rows.iter().map(|row| row.gigabits_a_second.max)),
            Column::new(
                "acknowledgments/s at the sender",
                self.rows.iter().map(|row| row.acknowledgments_reached.max),
            ),
        ];
        let sides = SIDES.iter().map(|(side, title)| self.chart(*side, title, columns).draw());
        sides.chain(self.transfer_charts()).collect()
    }

    fn is_seen(&self, observation: &str) -> bool {
        let is_slow = |side| {
            let mut rows = self.transfers.iter().filter(|row| row.side == side);
            rows.any(|row| self.times_off(row).is_some_and(|times| times >= SLOW))
        };
        match observation {
            SLOW_SENDER => is_slow(NicOf::Sender),
            SLOW_RECEIVER => is_slow(NicOf::Receiver),
            COUNTS => self.transfers.iter().any(|row| {
                row.worth == Worth::One && self.times_off(row).is_some_and(|times| times >= SLOW)
            }),
            _ => true,
        }
    }
}

impl AckFindings {
    /// Returns a chart of throughput and acknowledgments for the rows of one side.
    fn chart(&self, side: NicOf, title: &str, columns: [Column; 2]) -> Chart {
        let rows = self.rows.iter().filter(|row| row.side == side);
        let rows = rows.map(|row| (row.name(), row.bars())).collect();
        Chart { title: title.into(), columns, rows }
    }

    /// Returns a chart of the transfers over each wire: the time, and its ratio to the time without coalescing.
    fn transfer_charts(&self) -> Vec<String> {
        let times = |row: &TransferRow| self.times_off(row).unwrap_or(0.0);
        let columns = [
            Column::new("ms", self.transfers.iter().map(|row| row.milliseconds.max)),
            Column::new("ratio to off", self.transfers.iter().map(times)),
        ];
        let is_first = |(index, row): &(usize, &TransferRow)| {
            !self.transfers[..*index].iter().any(|other| other.is_beside(row))
        };
        let wires = self.transfers.iter().enumerate().filter(is_first).map(|(_, first)| {
            let rows = Worth::ALL.iter().flat_map(|worth| {
                let rows = self.transfers.iter().filter(|row| row.is_beside(first));
                rows.filter(move |row| row.worth == *worth)
            });
            let rows = rows.map(|row| (row.name(), row.bars(self.times_off(row)))).collect();
            Chart { title: format!("Transfers: {}", first.wire()), columns, rows }.draw()
        });
        wires.collect()
    }

    /// Returns the ratio of a transfer's time to the time without coalescing.
    fn times_off(&self, row: &TransferRow) -> Option<f64> {
        let mut others = self.transfers.iter().filter(|other| other.is_beside(row));
        let off = others.find(|other| other.handling == Handling::Off && other.worth == row.worth);
        ratio(row.milliseconds.median, off?.milliseconds.median)
    }

    /// Writes a table for each wire and side, with a line per treatment and a column per sender.
    fn write_transfers(&self, text: &mut String) {
        if !self.transfers.is_empty() {
            let _ = writeln!(
                text,
                "\nTransfers, sent by {}",
                match self.senders {
                    SenderKind::Kernel =>
                        "the kernel's TCP with the lab's three congestion controls",
                    SenderKind::Userspace =>
                        "userspace TCP, which counts acknowledgments in three ways",
                }
            );
        }
        for (i, first) in self.transfers.iter().enumerate() {
            if self.transfers[..i].iter().any(|row| row.is_beside(first)) {
                continue;
            }
            let rows = || self.transfers.iter().filter(|row| row.is_beside(first));
            first.write_heading(text);
            let mut written: Vec<(Handling, f64)> = Vec::new();
            for row in rows() {
                let line = (row.handling, row.hold_us);
                if !written.contains(&line) {
                    written.push(line);
                    row.write(text, &rows().collect::<Vec<_>>());
                }
            }
        }
    }

    fn write_overtaken(&self, text: &mut String) {
        let overtaken = &self.overtaken;
        let _ = writeln!(
            text,
            "\nPackets overtaken, out of {} data packets and acknowledgments on a connection:\n\
             {:>6} if acknowledgments bypass the coalescer without flushing held packets\n\
             {:>6} if the held packets of the flow are flushed first",
            overtaken.packets, overtaken.past_it, overtaken.through_it,
        );
    }

    fn write_growth(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nSender model: round trips of slow start to grow from 10 to {SEGMENTS_WANTED} segments,\n\
             and segments gained in the next {AVOIDANCE_ROUND_TRIPS} round trips\n\
             {:<26}{:>8}{:>14}{:>14}",
            "the sender counts", "merged", "slow start", "avoidance",
        );
        self.growth.iter().for_each(|growth| growth.write(text));
    }
}

impl AckRow {
    fn window(&self) -> String {
        self.window_bytes.map_or_else(|| "usual".into(), |bytes| format!("{}K", bytes >> 10))
    }

    fn name(&self) -> String {
        format!("{}, {}, {} us", self.window(), self.handling, self.hold_us)
    }

    fn bars(&self) -> [Bar; 2] {
        let (speed, reached) = (self.gigabits_a_second, self.acknowledgments_reached);
        let passed = |run: &Measured| run.acknowledgements_passed.unwrap_or(0) as f64;
        let speeds = self.runs.iter().map(Measured::gigabits_a_second);
        let counts = self.runs.iter().map(|run| passed(run) / run.seconds);
        [
            Bar::middle("speed", speed, speeds, digits(speed.median)),
            Bar::middle("acks", reached, counts, thousands(reached.median)),
        ]
    }

    fn write(&self, text: &mut String) {
        let window = self.window();
        let Spread { median, min, max, .. } = self.gigabits_a_second;
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

impl TransferRow {
    fn name(&self) -> String {
        format!("{}, {} us; sender: {}", self.handling, self.hold_us, self.worth)
    }

    fn bars(&self, times_off: Option<f64>) -> [Bar; 2] {
        let times = times_off.unwrap_or(f64::NAN);
        let runs = self.runs.iter().map(|run| run.seconds * 1e3);
        [
            Bar::middle("speed", self.milliseconds, runs, thousands(self.milliseconds.median)),
            Bar::middle("acks", Spread::of([times]), [].into_iter(), digits(times)),
        ]
    }

    /// Returns the properties of the wire, and the side of the data path.
    fn wire(&self) -> String {
        let side = if self.side == NicOf::Sender { "sender" } else { "receiver" };
        let wire = match self.window_bytes {
            Some(bytes) => format!("LAN, {} ms, window {} KB", self.round_trip_ms, bytes >> 10),
            None => format!("{} ms round trip, {} % loss", self.round_trip_ms, self.loss * 100.0),
        };
        format!("{wire}, Grosso at the {side}")
    }

    fn write_heading(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{}: time in ms; ratio to off\n\
             handling    hold{}",
            self.wire(),
            Worth::ALL.map(|worth| format!("{:>20}", format!("sender: {worth}"))).concat(),
        );
    }

    /// Writes the table line of a treatment. `self` is one of the rows of that treatment.
    fn write(&self, text: &mut String, rows: &[&Self]) {
        let find = |handling, worth, hold_us: f64| {
            let mut rows = rows.iter().filter(|row| (row.handling, row.worth) == (handling, worth));
            rows.find(|row| row.hold_us.to_bits() == hold_us.to_bits()).map(|row| row.milliseconds)
        };
        let cells = Worth::ALL.map(|worth| {
            let spread = find(self.handling, worth, self.hold_us);
            let off = find(Handling::Off, worth, rows[0].hold_us);
            let times = spread.zip(off).and_then(|(on, off)| ratio(on.median, off.median));
            let time = spread.map_or_else(|| "-".into(), |spread| thousands(spread.median));
            format!("{time:>14}{:>6}", times.map_or_else(|| "-".into(), digits))
        });
        let _ = writeln!(text, "{:<11}{:>5.0}{}", self.handling, self.hold_us, cells.concat());
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

const SIDES: [(NicOf, &str); 2] = [
    (NicOf::Sender, "Grosso as the sender's NIC, merging acknowledgments"),
    (NicOf::Receiver, "Grosso as the receiver's NIC, merging data"),
];

const LEGEND: &str = "\
Real TCP between two network namespaces on this machine. A bar is the median, and each dot is one run. \
For streams, the bars show throughput and the <b class=\"acks\">acknowledgments</b> that reach the data sender. \
For transfers, they show the time and its <b class=\"acks\">ratio</b> to the time without coalescing.";

const SLOW_SENDER: &str = "the sender's window grows slowly if its device merges acknowledgments";
const SLOW_RECEIVER: &str = "the sender's window grows slowly if the receiver merges data";
const COUNTS: &str = "a userspace sender counts acknowledgments instead of acknowledged bytes";
/// Minimum ratio of times at which a transfer counts as slow.
const SLOW: f64 = 1.2;

const KNOBS: &[Knob] = &[
    Knob {
        seen: SLOW_SENDER,
        turn: &["ethtool -K DEV lro off rx-gro-hw off", "grosso bridge ... --profile linux"],
    },
    Knob {
        seen: SLOW_RECEIVER,
        turn: &["grosso bridge ... --terminates --expand-acks", "grosso bridge ... --hold 0"],
    },
    Knob { seen: COUNTS, turn: &["count acknowledged bytes, not acknowledgments (RFC 3465)"] },
];

/// Heading of the columns of [`AckRow::write`].
const HEADING: [&str; 2] = [
    "window handling  hold   Gb/s               ACKs/s  ACKs/s  reads  reads segm.",
    "                   us                        sent reached     /s    /GB /unit",
];

#[cfg(test)]
mod tests {
    use super::{super::tests::report, SenderKind};
    use crate::page::assert_shown;

    #[test]
    fn table_fits_a_terminal_and_has_a_row_for_each_setting() {
        let table = report().table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        let row = table.lines().find(|line| line.starts_with("64K    freebsd     16")).unwrap();
        let words: Vec<_> = row.split_whitespace().skip(3).collect();
        assert_eq!(words, ["4.00", "(4.00-4.00)", "340k", "42.5k", "60.0k", "120k", "1.0"]);
        assert!(table.contains("of 1600 data packets"), "{table}");
        let rows: Vec<_> =
            table.lines().filter(|line| line.starts_with("freebsd        0")).collect();
        let words: Vec<_> = rows[0].split_whitespace().skip(2).collect();
        assert_eq!(words, ["266", "1.00", "798", "3.00", "1590", "3.00"]);
        assert_eq!(rows.len(), 4, "20 ms, with loss, 1 ms and 100 ms: {table}");
        assert!(table.contains("\nLAN, 0.1 ms, window 100 KB, Grosso at the sender"), "{table}");
        assert!(table.contains("\nTransfers, sent by userspace TCP"), "{table}");
        let mut report = report();
        report.findings.senders = SenderKind::Kernel;
        assert!(report.table().contains("\nTransfers, sent by the kernel's TCP"), "{table}");
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab acks --html \"a&b.html\"", "unknown");
        assert!(
            page.contains("4.00 Gb/s with merged acknowledgments, and 8.00 Gb/s without merging"),
            "{page}"
        );
        let transfers = report.findings.transfers.iter().map(|row| row.runs.len());
        assert_eq!(page.matches("<circle ").count(), 76 * 2 * 3 + transfers.sum::<usize>());
        assert_eq!(page.matches("<h2>Transfers: ").count(), 6, "{page}");
        assert_shown(&page);
    }
}
