//! Tables and charts of the results.

use core::fmt::Write;

use super::{CostFindings, CostRow, Offloads, PartName, PathCost, Wire};
use crate::{
    experiment::TcpParameters,
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, thousands, thousandths},
    table::{self, Column},
};

impl Findings for CostFindings {
    type Parameters = TcpParameters;

    const LEGEND: &'static str = LEGEND;
    const KNOBS: &'static [Knob] = &[];

    fn heading(&self, environment: &Environment<TcpParameters>) -> String {
        format!(
            "cost per packet in the data paths of two hosts\n\
             one TCP connection ({}); device: {}; CPUs: {}\n\
             {}",
            environment.parameters.congestion,
            environment.through(),
            environment.processors,
            environment.lines("medians"),
        )
    }

    fn write(&self, text: &mut String) {
        // Here and below: writing to a string cannot fail.
        for (side, title) in PATHS.into_iter().enumerate() {
            let _ = writeln!(text, "\n{title}\n{}", HEADING.join("\n"));
            for row in &self.rows {
                row.paths[side].write_parts(&row.name(), text);
            }
        }
        let named = self.rows.iter().flat_map(|row| {
            let paths = row.paths.into_iter().zip(["a", "b"]);
            paths.map(|(path, letter)| {
                (format!("{:<11}{letter}", row.name()), path, row.gigabits_a_second)
            })
        });
        text.push('\n');
        table::write(&CALLS, &named.collect::<Vec<_>>(), text);
        text.push('\n');
        for row in self.rows.iter().filter(|row| row.offloads == Offloads::On) {
            for (path, letter) in row.paths.iter().zip(["a", "b"]) {
                path.write_advice(&format!("{}, path {letter}", row.wire), text);
            }
            if row.wire != Wire::Udp {
                row.paths[0].write_copy(row.wire, text);
            }
        }
    }

    fn headline(&self) -> String {
        let both = |offloads| {
            let wire = self.rows.iter().find(|row| row.offloads == Offloads::On)?.wire;
            let mut rows = self.rows.iter().filter(|row| row.wire == wire);
            let row = rows.find(|row| row.offloads == offloads)?;
            Some(row.paths.map(|path| short(path.total_ns.median)))
        };
        match (both(Offloads::On), both(Offloads::Off)) {
            (Some([on_a, on_b]), Some([off_a, off_b])) => format!(
                "A packet costs {on_a} ns to send and {on_b} ns to receive with offloads, \
                 {off_a} and {off_b} ns without"
            ),
            _ => "Nothing was measured".into(),
        }
    }

    fn charts(&self) -> String {
        let title = "Thread time per packet in nanoseconds".into();
        charts(&BARS, CostRow::name, [(title, &self.rows)])
    }
}

impl PathCost {
    fn bar(self) -> Bar {
        let parts = PartName::ALL.map(|part| {
            let (class, name) = drawn(part);
            (class, name, self.parts.get(part))
        });
        Bar::parts(&parts, format!("{:.0}", self.total_ns.median))
    }

    fn write_parts(&self, name: &str, text: &mut String) {
        let _ = write!(text, "{name:<11}");
        for part in PartName::ALL {
            let _ = write!(text, "{:>6}", short(self.parts.get(part)));
        }
        let _ = write!(text, "{:>8}\n{:>11}", short(self.total_ns.median), "%");
        for part in PartName::ALL {
            let _ = write!(text, "{:>6.0}", self.percent(part));
        }
        let _ = writeln!(text, "{:>8}", 100);
    }

    /// Writes the cost of segmenting in software into ring slots, which publication R3 gives as the reason for its
    /// small gain.
    fn write_copy(&self, wire: Wire, text: &mut String) {
        let part = PartName::Send;
        let (copy, total) = (short(self.parts.get(part)), short(self.total_ns.median));
        let percent = self.percent(part);
        let _ = writeln!(
            text,
            "{wire}, path a: segmentation into slots takes {copy} of {total} ns ({percent:.0} %)."
        );
    }

    fn write_advice(&self, name: &str, text: &mut String) {
        let (part, percent) = (said(self.dominant), self.percent(self.dominant));
        let _ = writeln!(text, "{name}: {part} ({percent:.0} %).\n  {}", self.advice);
    }
}

/// Formats a number with at most five characters.
fn short(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { thousands(value) }
}

/// Returns a part's label in the table.
const fn said(part: PartName) -> &'static str {
    match part {
        PartName::ReceiveCalls => "receive calls take the largest share of time",
        PartName::Receive => "the receiving port takes the largest share of time",
        PartName::Engine => "the engine takes the largest share of time",
        PartName::Checksums => "checksums take the largest share of time",
        PartName::SendCalls => "send calls take the largest share of time",
        PartName::Send => "the sending port takes the largest share of time",
        PartName::Acknowledgments => "acknowledgments take the largest share of time",
        PartName::Wait => "sleeping and waking up take the largest share of time",
        PartName::Loop => "the loop itself takes the largest share of time",
        PartName::Unexplained => "unexplained work takes the largest share of time",
    }
}

/// Returns a part's CSS class and label in the chart.
const fn drawn(part: PartName) -> (&'static str, &'static str) {
    match part {
        PartName::ReceiveCalls => ("sender", "receive calls"),
        PartName::Receive => ("sender", "receiving port"),
        PartName::Engine => ("path", "engine"),
        PartName::Checksums => ("far", "checksums"),
        PartName::SendCalls => ("receiver", "send calls"),
        PartName::Send => ("pale", "sending port"),
        PartName::Acknowledgments => ("acks", "acknowledgments"),
        PartName::Wait => ("rest", "wait"),
        PartName::Loop => ("rest", "loop"),
        PartName::Unexplained => ("rest", "unexplained"),
    }
}

const LEGEND: &str = "\
Real TCP between two network namespaces on this machine, through two data paths. Each segment of a bar is a \
median: <b class=\"sender\">receiving</b>, <b class=\"path\">the engine</b>, checksums (paler), \
<b class=\"receiver\">send calls</b>, the sending port (paler), \
<b class=\"acks\">acknowledgments</b>, <b class=\"rest\">everything else</b>.";

const BARS: [BarColumn<CostRow>; 2] = [
    BarColumn::new(
        "path a, host to wire",
        |row| row.paths[0].total_ns.max,
        |row| row.paths[0].bar(),
    ),
    BarColumn::new(
        "path b, wire to host",
        |row| row.paths[1].total_ns.max,
        |row| row.paths[1].bar(),
    ),
];

const PATHS: [&str; 2] = [
    "Path a, from its host to the wire: thread time per packet in nanoseconds",
    "Path b, from the wire to its host: thread time per packet in nanoseconds",
];

/// Heading of the columns of [`PathCost::write_parts`].
const HEADING: [&str; 2] = [
    "               receive engine  sums      send    ACKs  wait  loop other     all",
    "wire         call  port              call  port",
];

/// A path, its name, and the throughput in its row.
type NamedPath = (String, PathCost, Spread);

const CALLS: [Column<NamedPath>; 10] = [
    Column::left(&["System calls", "", "wire    path"], 12, |(name, ..)| name.clone()),
    Column::right(&["   receive calls", "per", "packet"], 8, |(_, path, _)| {
        thousandths(path.receive_calls_a_packet)
    }),
    Column::right(&["", "packets", "/call"], 8, |(_, path, _)| short(path.packets_a_receive_call)),
    Column::right(&["", "bytes", "/call"], 8, |(_, path, _)| thousands(path.bytes_a_receive_call)),
    Column::right(&["      send calls", "per", "packet"], 8, |(_, path, _)| {
        thousandths(path.send_calls_a_packet)
    }),
    Column::right(&["", "packets", "/call"], 8, |(_, path, _)| short(path.packets_a_send_call)),
    Column::right(&["", "bytes", "/call"], 8, |(_, path, _)| thousands(path.bytes_a_send_call)),
    Column::right(&["   per frame", "pkts"], 6, |(_, path, _)| short(path.packets_a_frame)),
    Column::right(&["", "ns"], 7, |(_, path, _)| thousands(path.frame_ns)),
    Column::right(&["", "Gb/s"], 6, |(.., gigabits)| digits(gigabits.median)),
];

#[cfg(test)]
mod tests {
    use super::super::{PartName, findings::advice, tests::report};
    use crate::{page::assert_shown, table::assert_kept};

    #[test]
    fn table_fits_a_terminal_and_has_every_part_with_its_share() {
        let report = report();
        let table = assert_kept("cost", &report);
        let lines: Vec<&str> = table.lines().collect();
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let at = lines.iter().position(|line| line.starts_with("ring on ")).unwrap();
        let parts = ["2.0", "4.0", "6.0", "8.0", "10.0", "12.0", "14.0", "16.0", "18.0", "20.0"];
        assert_eq!(words(lines[at])[2..], [&parts[..], &["110"]].concat());
        let shares = ["2", "4", "5", "7", "9", "11", "13", "15", "16", "18", "100"];
        assert_eq!(words(lines[at + 1])[1..], shares);
        let calls = lines.iter().find(|line| line.starts_with("UDP on     b")).unwrap();
        let expected = ["0.025", "20.0", "30.0k", "0.000", "0.0", "0", "80.0", "4400", "1.00"];
        assert_eq!(words(calls)[3..], expected);
        assert!(
            table.contains(
                "ring, path a: unexplained work takes the largest share of time (18 %).\n  "
            ),
            "{table}"
        );
        assert_eq!(table.matches(", path ").count(), 8, "of every wire, with offloads");
        let copied = "ring, path a: segmentation into slots takes 12.0 of 110 ns (11 %).";
        assert!(table.contains(copied), "{table}");
        assert_eq!(table.matches("segmentation into slots takes").count(), 2, "{table}");
    }

    #[test]
    fn every_advice_fits_a_terminal() {
        let mut report = report();
        for part in PartName::ALL {
            for side in [0, 1] {
                let path = &mut report.findings.rows[0].paths[side];
                (path.dominant, path.advice) = (part, advice(side, part));
            }
            let table = report.table();
            assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        }
    }

    #[test]
    fn page_is_self_contained_and_shows_every_part() {
        let page = report().page("grosso lab cost --html \"a&b.html\"", "unknown");
        let headline = "A packet costs 110 ns to send and 55.0 ns to receive with offloads, \
                        550 and 275 ns without</h1>";
        assert!(page.contains(headline), "{page}");
        assert_eq!(page.matches("<rect ").count(), 7 * 2 * 10);
        assert_shown(&page);
        assert!(page.contains("a&amp;b.html"));
    }
}
