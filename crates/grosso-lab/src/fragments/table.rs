//! A table and charts of the results.

use super::{
    FragmentFindings, FragmentGroup, FragmentParameters, FragmentRow, FragmentRun, Receiver,
};
use crate::{
    netns::Family,
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, thousands, whole},
    table::{self, Column},
};

impl Findings for FragmentFindings {
    type Parameters = FragmentParameters;

    const LEGEND: &'static str = LEGEND;
    const KNOBS: &'static [Knob] = KNOBS;

    fn heading(&self, environment: &Environment<FragmentParameters>) -> String {
        let FragmentParameters { datagram_bytes, family, .. } = environment.parameters;
        let version = if family == Family::V6 { "IPv6" } else { "IPv4" };
        let offered = self.offered_gbps();
        format!(
            "datagrams of {datagram_bytes} bytes over {version}, in ESP; wire MTU: 1500\n\
             device: {}; CPUs: {}; offered load: {} Gb/s {}\n\
             {}",
            environment.through(),
            environment.processors,
            digits(offered.median),
            offered.range(digits),
            environment.spread_lines(),
        )
    }

    fn write(&self, text: &mut String) {
        for group in &self.groups {
            *text += &format!("\n{}\n", group.title());
            table::write(&COLUMNS, &group.rows, text);
        }
    }

    fn headline(&self) -> String {
        let nothing = || "Nothing was measured".into();
        // The overload repeats the setting of the publication.
        let overload = self.groups.iter().find(|group| group.is_overload);
        let Some(group) = overload.or_else(|| self.groups.first()) else { return nothing() };
        let Some(buffers) = group.rows.iter().filter_map(|row| row.buffers).min() else {
            return nothing();
        };
        let goodput = |receiver| {
            let row = group.row(receiver, Some(buffers))?;
            Some(megabits(row.goodput_gbps.median))
        };
        match (goodput(Receiver::Coalesces), goodput(Receiver::Queues)) {
            (Some(coalesced), Some(queued)) => format!(
                "{} {buffers} receive buffers, coalescing delivers {coalesced} Mb/s, and queueing {queued} Mb/s",
                if group.is_overload { "Under overload with" } else { "With" },
            ),
            _ => nothing(),
        }
    }

    fn is_seen(&self, observation: &str) -> bool {
        let mut rows = self.groups.iter().flat_map(|group| &group.rows);
        match observation {
            LACK_OF_BUFFERS => rows.any(|row| row.no_buffer_a_second.median > 0.0),
            SILENCE => rows.any(|row| row.silence_ms.median >= SILENT_MS),
            _ => true,
        }
    }

    fn charts(&self) -> String {
        let groups = self.groups.iter().map(|group| (group.title(), &group.rows));
        charts(&BARS, |row| format!("{}: {}", row.buffers(), row.receiver), groups)
    }

    fn remarks(&self, environment: &Environment<FragmentParameters>) -> Vec<&'static str> {
        let FragmentParameters { rate_bits, timeout, .. } = environment.parameters;
        let mut remarks = Vec::new();
        if self.is_short_of_processor(rate_bits as f64 * 1e-9) {
            remarks.push(
                "this machine is too slow for the offered load, which also limits the figures; try a \
                 lower --rate",
            );
        }
        if timeout.as_secs_f64() > environment.seconds {
            remarks.push(
                "the reassembly timeout is longer than a measurement, so no receiver is silent for \
                 the whole timeout",
            );
        }
        remarks
    }
}

impl FragmentGroup {
    /// Returns the title of the group: the loss rate or the load that its rows have in common.
    fn title(&self) -> String {
        if self.is_overload {
            let offered = Spread::of(self.rows.iter().map(|row| row.offered_gbps.median));
            return format!(
                "Overload: {} Gb/s offered, no fragments lost on the wire",
                digits(offered.median)
            );
        }
        match self.loss > 0.0 {
            true => format!("{} % of fragments lost on the wire", self.loss * 100.0),
            false => "No fragments lost on the wire".into(),
        }
    }
}

impl FragmentRow {
    fn goodput_bar(&self) -> Bar {
        let runs = self.runs.iter().map(FragmentRun::goodput_gbps);
        Bar::middle("path", self.goodput_gbps, runs, megabits(self.goodput_gbps.median))
    }

    fn silence_bar(&self) -> Bar {
        let runs = self.runs.iter().map(|run| run.silence_seconds * 1e3);
        Bar::middle("receiver", self.silence_ms, runs, whole(self.silence_ms.median))
    }

    /// Formats the number of buffers.
    fn buffers(&self) -> String {
        self.buffers.map_or_else(|| "no limit".into(), |buffers| buffers.to_string())
    }

    fn percent_of_unbounded(&self) -> String {
        self.share_of_unbounded.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
    }
}

/// Formats a rate given in Gb/s as Mb/s, because only a few Mb/s are left after a collapse.
fn megabits(gbps: f64) -> String {
    let megabits = gbps * 1e3;
    if megabits < 99.95 { format!("{megabits:.1}") } else { format!("{megabits:.0}") }
}

const LEGEND: &str = "\
UDP datagrams of many fragments are sent in ESP between two network namespaces on this machine. A bar is the \
median, and each dot is one run. The bars show the rate of <b class=\"path\">complete datagrams</b> and \
<b class=\"receiver\">the longest time without one</b>.";

const LACK_OF_BUFFERS: &str = "fragments are dropped because no receive buffer is free";
const SILENCE: &str = "after a loss, no data arrives for a long time";
/// Shortest silence that a user notices, in milliseconds.
const SILENT_MS: f64 = 100.0;

const KNOBS: &[Knob] = &[
    Knob {
        seen: "datagrams arrive as fragments",
        turn: &["ip link set TUNNEL mtu MTU-OF-THE-PATH-LESS-HEADERS"],
    },
    Knob {
        seen: LACK_OF_BUFFERS,
        turn: &["ethtool -G DEV rx 4096", "grosso run: left = { ..., fragments = {} }"],
    },
    Knob {
        seen: SILENCE,
        turn: &[
            "sysctl net.ipv4.ipfrag_time=2 net.ipv6.ip6frag_time=2",
            "sysctl net.ipv4.ipfrag_high_thresh=16777216",
            "grosso run: fragments = { ipfrag_time = 2, ip6frag_time = 2 }",
        ],
    },
];

const COLUMNS: [Column<FragmentRow>; 8] = [
    Column::left(&["receive", "buffers"], 10, FragmentRow::buffers),
    Column::left(&["receiver"], 16, |row| row.receiver.to_string()),
    Column::left(&["goodput", "Mb/s"], 18, |row| row.goodput_gbps.text(megabits)),
    Column::right(&["% of", "max"], 7, FragmentRow::percent_of_unbounded),
    Column::right(&["no buf", "/s"], 8, |row| thousands(row.no_buffer_a_second.median)),
    Column::right(&["timed", "out/s"], 7, |row| thousands(row.died_a_second.median)),
    Column::right(&["held", "KiB"], 7, |row| thousands(row.held_bytes_max as f64 / 1024.0)),
    Column::right(&["silent", "ms"], 7, |row| thousands(row.silence_ms.median)),
];

const BARS: [BarColumn<FragmentRow>; 2] = [
    BarColumn::new("goodput, Mb/s", |row| row.goodput_gbps.max, FragmentRow::goodput_bar),
    BarColumn::new("longest silence, ms", |row| row.silence_ms.max, FragmentRow::silence_bar),
];

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::{page::assert_shown, table::assert_kept};

    #[test]
    fn table_fits_a_terminal_and_shows_the_collapse() {
        let table = assert_kept("fragments", &report());
        let words = |start: &str| {
            let line = table.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().skip(1).map(String::from).collect::<Vec<_>>()
        };
        let coalesced = ["coalesces", "1490", "(1485-1495)", "99.3", "0", "20", "68", "2"];
        assert_eq!(words("32        coalesces"), coalesced);
        let queued = ["queues", "0.5", "(0.0-1.0)", "0.0", "130k", "2929", "128", "500"];
        assert_eq!(words("32        queues"), queued);
        assert!(table.contains("0.1 % of fragments lost on the wire"), "{table}");
        assert!(
            table.contains(
                "reproduced            without loss, coalescing keeps 90 % of the goodput"
            ),
            "{table}"
        );
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab fragments --html \"a&b.html\"", "unknown");
        let headline = "Under overload with 64 receive buffers, coalescing delivers 1490 Mb/s, and queueing 0.5";
        assert!(page.contains(headline), "{page}");
        let runs: usize = report.findings.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs * 2);
        assert_shown(&page);
        assert!(page.contains("a&amp;b.html"));
    }
}
