//! Tables of the results, at most 80 columns wide.

use core::fmt::Write;

use super::{
    AckFindings, AckParameters, AckRow, Growth, Handling, NicOf, SenderKind, TransferRow, Worth,
    growth::{AVOIDANCE_ROUND_TRIPS, SEGMENTS_WANTED},
};
use crate::{
    model::Counting,
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, ratio, thousands, whole},
    table::{self, Column},
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
            *text += &format!("\n{title}\n");
            table::write(&COLUMNS, self.rows.iter().filter(|row| row.side == side), text);
        }
        self.write_transfers(text);
        self.write_overtaken(text);
        self.write_growth(text);
    }

    fn headline(&self) -> String {
        // The streams of the unmodified kernel, which counts bytes, do not show the effect.
        let merged = self.transfers.iter().find(|row| {
            let is_merged = (row.side, row.handling) == (NicOf::Sender, Handling::Merged);
            is_merged && row.worth == Worth::One
        });
        let pair = merged.and_then(|merged| {
            let mut others = self.transfers.iter().filter(|row| row.is_beside(merged));
            let is_off =
                |row: &&TransferRow| row.handling == Handling::Off && row.worth == merged.worth;
            Some([merged, others.find(is_off)?])
        });
        pair.map_or_else(
            || "No settings were compared".into(),
            |rows| {
                let [merged, off] = rows.map(|row| whole(row.milliseconds.median));
                format!(
                    "A sender that counts acknowledgments needs {merged} ms for a transfer if they are merged, \
                     and {off} ms if not"
                )
            },
        )
    }

    fn charts(&self) -> String {
        let sides = SIDES.map(|(side, title)| {
            (title.into(), self.rows.iter().filter(move |row| row.side == side))
        });
        charts(&BARS, AckRow::name, sides) + &self.transfer_charts()
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
    /// Returns a chart of the transfers over each wire, with their times and the ratios to the times without
    /// coalescing.
    fn transfer_charts(&self) -> String {
        let is_first = |(index, row): &(usize, &TransferRow)| {
            !self.transfers[..*index].iter().any(|other| other.is_beside(row))
        };
        let timed: Vec<(&TransferRow, Option<f64>)> =
            self.transfers.iter().map(|row| (row, self.times_off(row))).collect();
        let wires = self.transfers.iter().enumerate().filter(is_first).map(|(_, first)| {
            let rows = Worth::ALL.iter().flat_map(|worth| {
                let rows = timed.iter().filter(|(row, _)| row.is_beside(first));
                rows.filter(move |(row, _)| row.worth == *worth)
            });
            (format!("Transfers: {}", first.wire()), rows)
        });
        charts(&transfer_bars(), |(row, _)| row.name(), wires)
    }

    /// Returns the ratio of a transfer's time to the time without coalescing.
    fn times_off(&self, row: &TransferRow) -> Option<f64> {
        let mut others = self.transfers.iter().filter(|other| other.is_beside(row));
        let off = others.find(|other| other.handling == Handling::Off && other.worth == row.worth);
        ratio(row.milliseconds.median, off?.milliseconds.median)
    }

    /// Writes a table for each wire and side, with a row per treatment and a column per sender.
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
            "\nOvertaken packets, out of {} data packets and acknowledgments of a connection:\n\
             {:>6} if acknowledgments bypass the coalescer without flushing held packets\n\
             {:>6} if the held packets of the flow are flushed first",
            overtaken.packets, overtaken.past_it, overtaken.through_it,
        );
    }

    fn write_growth(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nSender model: number of round trips in which slow start grows from 10 to {SEGMENTS_WANTED}\n\
             segments, and number of segments gained in the next {AVOIDANCE_ROUND_TRIPS} round trips",
        );
        table::write(&GROWTH, &self.growth, text);
    }
}

impl AckRow {
    fn window(&self) -> String {
        self.window_bytes.map_or_else(|| "usual".into(), |bytes| format!("{}K", bytes >> 10))
    }

    fn name(&self) -> String {
        format!("{}, {}, {} us", self.window(), self.handling, self.hold_us)
    }

    fn speed(&self) -> String {
        let speed = self.gigabits_a_second;
        format!("{:>7} {}", digits(speed.median), speed.range(digits))
    }

    fn speed_bar(&self) -> Bar {
        let runs = self.runs.iter().map(Measured::gigabits_a_second);
        Bar::middle("speed", self.gigabits_a_second, runs, digits(self.gigabits_a_second.median))
    }

    fn reached_bar(&self) -> Bar {
        let reached = self.acknowledgments_reached;
        let passed = |run: &Measured| run.acknowledgements_passed.unwrap_or(0) as f64;
        let runs = self.runs.iter().map(|run| passed(run) / run.seconds);
        Bar::middle("acks", reached, runs, thousands(reached.median))
    }
}

impl TransferRow {
    fn name(&self) -> String {
        format!("{}, {} us; sender: {}", self.handling, self.hold_us, self.worth)
    }

    fn bar(&self) -> Bar {
        let runs = self.runs.iter().map(|run| run.seconds * 1e3);
        Bar::middle("speed", self.milliseconds, runs, thousands(self.milliseconds.median))
    }

    /// Describes the wire, and the side at which the data path is.
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

    /// Writes a treatment's row of the table. `self` is one of the results with that treatment.
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
    fn counting(&self) -> String {
        match self.counting {
            Counting::Packets => "packets".to_owned(),
            Counting::Bytes { limit } => format!("bytes, at most {limit} segments"),
        }
    }

    fn avoidance(&self) -> String {
        let counted = if self.is_counted { ", counted" } else { "" };
        format!("{:>14}{counted}", self.avoidance_segments)
    }
}

/// Returns two bar columns: the time of a transfer, and its ratio to the time without coalescing.
fn transfer_bars<'a>() -> [BarColumn<(&'a TransferRow, Option<f64>)>; 2] {
    [
        BarColumn::new("ms", |(row, _)| row.milliseconds.max, |(row, _)| row.bar()),
        BarColumn::new(
            "ratio to off",
            |(_, times)| times.unwrap_or(0.0),
            |(_, times)| {
                let times = times.unwrap_or(f64::NAN);
                Bar::middle("acks", Spread::of([times]), [].into_iter(), digits(times))
            },
        ),
    ]
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
/// Minimum ratio of times for a transfer to count as slow.
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

const COLUMNS: [Column<AckRow>; 9] = [
    Column::left(&["window"], 7, AckRow::window),
    Column::left(&["handling"], 9, |row| row.handling.to_string()),
    Column::right(&["hold", "us"], 5, |row| whole(row.hold_us)),
    Column::left(&["   Gb/s"], 21, AckRow::speed),
    Column::right(&["ACKs/s", "sent"], 7, |row| thousands(row.acknowledgments_sent.median)),
    Column::right(&["ACKs/s", "reached"], 8, |row| thousands(row.acknowledgments_reached.median)),
    Column::right(&["reads", "/s"], 7, |row| thousands(row.reads_a_second.median)),
    Column::right(&["reads", "/GB"], 7, |row| thousands(row.reads_a_gigabyte.median)),
    Column::right(&["segm.", "/unit"], 6, |row| format!("{:.1}", row.segments_a_unit.median)),
];

const BARS: [BarColumn<AckRow>; 2] = [
    BarColumn::new("Gb/s", |row| row.gigabits_a_second.max, AckRow::speed_bar),
    BarColumn::new(
        "acknowledgments/s at the sender",
        |row| row.acknowledgments_reached.max,
        AckRow::reached_bar,
    ),
];

const GROWTH: [Column<Growth>; 4] = [
    Column::left(&["the sender counts"], 26, Growth::counting),
    Column::right(&["merged"], 8, |growth| growth.merged.to_string()),
    Column::right(&["slow start"], 14, |growth| growth.slow_start_round_trips.to_string()),
    Column::left(&["     avoidance"], 14, Growth::avoidance),
];

#[cfg(test)]
mod tests {
    use super::{super::tests::report, SenderKind};
    use crate::{page::assert_shown, table::assert_kept};

    #[test]
    fn table_fits_a_terminal_and_has_a_row_for_each_setting() {
        let report = report();
        let table = assert_kept("acks", &report);
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
        let mut report = report;
        report.findings.senders = SenderKind::Kernel;
        assert!(report.table().contains("\nTransfers, sent by the kernel's TCP"), "{table}");
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab acks --html \"a&b.html\"", "unknown");
        assert!(
            page.contains("needs 1590 ms for a transfer if they are merged, and 530 ms if not"),
            "{page}"
        );
        let transfers = report.findings.transfers.iter().map(|row| row.runs.len());
        assert_eq!(page.matches("<circle ").count(), 76 * 2 * 3 + transfers.sum::<usize>());
        assert_eq!(page.matches("<h2>Transfers: ").count(), 6, "{page}");
        assert_shown(&page);
    }
}
