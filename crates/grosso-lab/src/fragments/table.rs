//! The results as a table and as charts.

use core::fmt::Write;

use super::{
    FragmentFindings, FragmentGroup, FragmentParameters, FragmentRow, FragmentRun, Receiver,
};
use crate::{
    netns::Family,
    page::{Bar, Chart, Column},
    report::{Environment, Findings, Knob},
    statistics::{Spread, digits, thousands},
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
            "datagrams of {datagram_bytes} bytes over {version}, in ESP, in fragments of 1500\n\
             through {}; CPUs: {}; offered {} Gb/s ({}-{})\n\
             {}",
            environment.through(),
            environment.processors,
            digits(offered.median),
            digits(offered.min),
            digits(offered.max),
            environment.spread_lines(),
        )
    }

    fn write(&self, text: &mut String) {
        for group in &self.groups {
            text.push('\n');
            group.write(text);
        }
    }

    fn headline(&self) -> String {
        let nothing = || "Nothing was measured".into();
        let Some(group) = self.groups.first() else { return nothing() };
        let Some(buffers) = group.rows.iter().filter_map(|row| row.buffers).min() else {
            return nothing();
        };
        let goodput = |receiver| {
            let row = group.row(receiver, Some(buffers))?;
            Some(megabits(row.goodput_gbps.median))
        };
        match (goodput(Receiver::Coalesces), goodput(Receiver::Queues)) {
            (Some(coalesced), Some(queued)) => format!(
                "With {buffers} receive buffers: {coalesced} Mb/s if fragments are coalesced, {queued} if queued"
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
        let rows = || self.groups.iter().flat_map(|group| &group.rows);
        let columns = [
            Column::new("goodput, Mb/s", rows().map(|row| row.goodput_gbps.max)),
            Column::new("longest silence, ms", rows().map(|row| row.silence_ms.max)),
        ];
        self.groups.iter().map(|group| group.chart(columns).draw()).collect()
    }

    fn remarks(&self, environment: &Environment<FragmentParameters>) -> Vec<&'static str> {
        let FragmentParameters { rate_bits, timeout, .. } = environment.parameters;
        let mut remarks = Vec::new();
        if self.is_short_of_processor(rate_bits as f64 * 1e-9) {
            remarks.push(
                "this machine cannot carry the offered load, so its own speed limits the figures too; try \
                 a lower --rate",
            );
        }
        if timeout.as_secs_f64() > environment.seconds {
            remarks.push(
                "the timeout is longer than a measurement, so no silence lasts for the whole \
                          timeout",
            );
        }
        remarks
    }
}

impl FragmentGroup {
    /// Returns a chart of goodput and the longest silence of each row, side by side.
    fn chart(&self, columns: [Column; 2]) -> Chart {
        let name = |row: &FragmentRow| format!("{}: {}", row.buffers(), row.receiver);
        let rows = self.rows.iter().map(|row| (name(row), row.bars())).collect();
        Chart { title: self.title(), columns, rows }
    }

    /// Returns the title of the group: the loss or the load that its rows share.
    fn title(&self) -> String {
        if self.is_overload {
            let offered = Spread::of(self.rows.iter().map(|row| row.offered_gbps.median));
            return format!(
                "Overload: {} Gb/s offered, no fragment lost on the wire",
                digits(offered.median)
            );
        }
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

impl FragmentRow {
    fn bars(&self) -> [Bar; 2] {
        let (goodput, silence) = (self.goodput_gbps, self.silence_ms);
        let goodputs = self.runs.iter().map(FragmentRun::goodput_gbps);
        let silences = self.runs.iter().map(|run| run.silence_seconds * 1e3);
        [
            Bar::middle("path", goodput, goodputs, megabits(goodput.median)),
            Bar::middle("receiver", silence, silences, format!("{:.0}", silence.median)),
        ]
    }

    /// Returns the number of buffers in words.
    fn buffers(&self) -> String {
        self.buffers.map_or_else(|| "no limit".into(), |buffers| buffers.to_string())
    }

    fn write(&self, text: &mut String) {
        let Spread { median, min, max, .. } = self.goodput_gbps;
        let goodput = format!("{} ({}-{})", megabits(median), megabits(min), megabits(max));
        let _ = writeln!(
            text,
            "{:<9} {:<15} {goodput:<18} {:>6} {:>7} {:>6} {:>6} {:>6}",
            self.buffers(),
            self.receiver.to_string(),
            self.share_of_unbounded
                .map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0)),
            thousands(self.no_buffer_a_second.median),
            thousands(self.died_a_second.median),
            thousands(self.held_bytes_max as f64 / 1024.0),
            thousands(self.silence_ms.median),
        );
    }
}

/// Formats Gb/s as Mb/s, because a collapse leaves only a few of them.
fn megabits(gbps: f64) -> String {
    let megabits = gbps * 1e3;
    if megabits < 99.95 { format!("{megabits:.1}") } else { format!("{megabits:.0}") }
}

const LEGEND: &str = "\
Datagrams of many fragments, inside ESP, between two network namespaces of this machine. A bar is the median, a \
 dot is a run: <b class=\"path\">complete datagrams</b>, and \
<b class=\"receiver\">the longest time without a datagram</b>.";

const LACK_OF_BUFFERS: &str = "fragments are dropped for lack of buffers";
const SILENCE: &str = "after a loss, no data arrives for a long time";
/// A silence that a user notices, in milliseconds.
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

/// Heading of the columns of [`FragmentRow::write`].
const HEADING: [&str; 2] = [
    "receive   receiver        goodput              % of  no buf   died   held silent",
    "buffers                   Mb/s               no lim      /s     /s    KiB     ms",
];

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::page::assert_shown;

    #[test]
    fn table_fits_a_terminal_and_shows_the_collapse() {
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
        assert!(
            table.contains("reproduced            no loss: coalescing keeps 90 % of the goodput"),
            "{table}"
        );
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab fragments --html \"a&b.html\"", "unknown");
        let headline =
            "With 32 receive buffers: 1490 Mb/s if fragments are coalesced, 0.5 if queued</h1>";
        assert!(page.contains(headline), "{page}");
        let runs: usize = report.findings.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs * 2);
        assert_shown(&page);
        assert!(page.contains("a&amp;b.html"));
    }
}
