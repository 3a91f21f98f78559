//! A table and charts of the results.

use core::fmt::Write;

use super::{
    Compared, Consumer, ListConsumer, OffloadFindings, OffloadGroup, OffloadParameters, OffloadRow,
    ReaderKind, reorder,
};
use crate::{
    beside::BesideRow,
    netns::{Family, Mtu},
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Latency, Spread, digits, thousands, thousandths, whole},
    table::{self, Column},
    trial::Tool,
    verdict::{Bound, Evidence, Published},
};

impl Findings for OffloadFindings {
    type Parameters = OffloadParameters;

    const LEGEND: &'static str = LEGEND;
    const KNOBS: &'static [Knob] = KNOBS;

    fn heading(&self, environment: &Environment<OffloadParameters>) -> String {
        let OffloadParameters {
            congestion,
            hold,
            full_checksums,
            timestamps,
            buffer_bytes,
            tool,
            ..
        } = &environment.parameters;
        let checksums =
            if *full_checksums { "verified by the receiver" } else { "verified by the NIC" };
        // If the rows have different hold times, the titles already show them.
        let hold_us = hold.as_secs_f64() * 1e6;
        let held = match self.rows().filter_map(|row| row.hold_us).all(|held| held == hold_us) {
            true => format!("; trains held for at most {hold_us} us"),
            false => String::new(),
        };
        let tool = if *tool == Tool::Iperf3 { "traffic from iperf3\n" } else { "" };
        let timestamps = if *timestamps { "" } else { "TCP without timestamps\n" };
        let buffers = buffer_bytes.map_or_else(String::new, |bytes| {
            format!("TCP socket buffers grow to {:.1} MB\n", bytes as f64 * 1e-6)
        });
        format!(
            "Grosso as the {}'s NIC; TCP congestion control: {congestion}\n{tool}{timestamps}{buffers}\
             device: {}; checksums {checksums}; CPUs: {}\n\
             {}{held}",
            self.nic_of,
            environment.through(),
            environment.processors,
            environment.spread_lines(),
        )
    }

    fn write(&self, text: &mut String) {
        for group in &self.groups {
            text.push('\n');
            group.write(text);
        }
        if let Some(consumer) = &self.consumer {
            consumer.write(text);
        }
    }

    fn headline(&self) -> String {
        let headline = self.headline_of_trains();
        let mut compared = self.groups.iter().filter_map(OffloadGroup::compared);
        headline
            .or_else(|| match compared.next() {
                None => None,
                Some((first, true)) => Some(first),
                // Here, the first difference that noise cannot explain is more informative.
                Some((first, false)) => compared
                    .find(|(_, is_certain)| *is_certain)
                    .map_or(Some(first), |(text, _)| Some(text)),
            })
            .unwrap_or_else(|| match self.groups.first() {
                Some(group) if group.first_row().is_none() => {
                    format!("No figures for {}, because a trial failed", group.first)
                }
                _ => "No two settings were compared".into(),
            })
    }

    fn is_seen(&self, observation: &str) -> bool {
        let varies = |cost: fn(&OffloadRow) -> f64| {
            self.groups.iter().any(|group| {
                let costs = group.rows.iter().map(cost).filter(|cost| *cost > 0.0);
                let least = costs.clone().fold(f64::INFINITY, f64::min);
                costs.fold(0.0, f64::max) >= least * NOTICED
            })
        };
        match observation {
            RECEIVER_COST => varies(|row| row.receiver_cpu_s_per_gb.median),
            SENDER_COST => varies(|row| row.sender_cpu_s_per_gb.median),
            SHORT_TRAINS => self.rows().any(|row| {
                let merges_fast_packets = row.hold_us.is_some()
                    && row.offered_gbps.is_none()
                    && row.gigabits_a_second.median >= FAST_GBPS;
                let trains = row.segments_per_train.map_or(0.0, |trains| trains.median);
                merges_fast_packets && trains > 1.0 && trains < FEW_SEGMENTS
            }),
            WAITING => varies(|row| row.latency.map_or(0.0, |latency| latency.p50_us)),
            REORDERING => self.groups.iter().any(|group| {
                let retransmits = |name| group.row(name).map(|row| row.retransmits);
                let levels = retransmits(reorder::OFF).zip(retransmits(reorder::HOLES));
                levels.is_some_and(|(off, repaired)| repaired < off)
            }),
            _ => true,
        }
    }

    fn charts(&self) -> String {
        match self.is_sweep() {
            true => self.curves(),
            false => {
                let is_timed = self.rows().any(|row| row.latency.is_some());
                let parts = if is_timed { LATENCY_LEGEND } else { ROLES_LEGEND };
                let bars = if is_timed { &REQUEST_BARS } else { &BARS };
                let groups = self.groups.iter().map(|group| (group.title.clone(), &group.rows));
                format!("<p>{parts}</p>\n{}", charts(bars, |row| row.name.clone(), groups))
            }
        }
    }

    fn beside(&self) -> Vec<BesideRow> {
        self.groups.iter().flat_map(OffloadGroup::beside).collect()
    }

    fn remarks(&self, environment: &Environment<OffloadParameters>) -> Vec<&'static str> {
        let runs = || self.rows().flat_map(|row| &row.runs);
        let mut remarks = Vec::new();
        if self.groups.iter().any(OffloadGroup::is_disturbed) {
            remarks.push(
                "other programs used the same CPU. Gb/s per CPU excludes their time, but packets that wait for \
                 the CPU arrive in batches, and a packet in a batch costs less than a single packet",
            );
        }
        if runs().any(|run| run.receiver_coalesced == Some(false)) {
            remarks.push(
                "without root, the receiver's kernel does not coalesce. Every packet costs more, so the sender's \
                 superframes gain less",
            );
        }
        if runs().any(|run| run.retransmits > 0 && run.acknowledgements_steered == Some(false)) {
            remarks.push(
                "without root, the sender's packets overtake each other on two CPUs, so the sender retransmits \
                 packets that were not lost",
            );
        }
        if environment.parameters.congestion == "bbr" {
            remarks.push("bbr paces its packets, which hides the effect of offloads; try cubic");
        }
        remarks
    }
}

impl OffloadFindings {
    /// Returns the headline for rows with different offered loads or numbers of connections: the length of trains in
    /// the first and the last row. Rows with an unlimited load are left out.
    fn headline_of_trains(&self) -> Option<String> {
        let group = self.groups.first()?;
        let abscissa = |row: &OffloadRow| match self.is_sweep() {
            true => Some(row.connections as f64),
            false => row.offered_gbps,
        };
        let mut rows: Vec<(f64, &OffloadRow, Spread)> = group
            .rows
            .iter()
            .filter(|row| row.hold_us.is_some())
            .filter_map(|row| Some((abscissa(row)?, row, row.segments_per_train?)))
            .collect();
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        let [(_, least, few), .., (_, most, many)] = &rows[..] else { return None };
        let verb = if least.name == "1 flow" { "makes" } else { "make" };
        let [few, many] = [few, many].map(|trains| digits(trains.median));
        Some(format!(
            "{} {verb} trains of {few} packets; {} make trains of {many} packets",
            least.name, most.name
        ))
    }

    /// Returns whether the rows have different numbers of connections.
    fn is_sweep(&self) -> bool {
        self.rows().any(|row| row.connections > 1)
    }
}

impl OffloadGroup {
    /// Describes the first comparison with both medians and their ratio, and returns whether the difference exceeds the
    /// noise.
    fn compared(&self) -> Option<(String, bool)> {
        let Compared { rows: [over, under], ratio, .. } = *self.comparisons.first()?;
        let [one, other] = self.pair(over, under)?;
        let figure = |row: &OffloadRow| match row.requests_a_second {
            Some(requests) => format!("{:.0} requests/s", requests.median),
            None => format!("{} Gb/s per CPU", digits(row.gigabits_a_cpu_second.median)),
        };
        let word = Evidence::ratio(&one.speed(), &other.speed(), Bound::AtLeast(1.0));
        let setting = self.title.split(',').next().unwrap_or_default();
        let result = match word.is_noise() {
            true => "noise explains the difference".into(),
            false => format!("{ratio:.2} times"),
        };
        let with = |name: &str| match name {
            "none" => "without coalescing".to_owned(),
            _ => format!("with {name}"),
        };
        let text = format!(
            "{setting}: {} {}, {} {}: {result}",
            figure(one),
            with(over),
            figure(other),
            with(under)
        );
        Some((text, !word.is_noise()))
    }

    /// Returns the comparisons that have a published ratio.
    fn beside(&self) -> impl Iterator<Item = BesideRow> {
        let Mtu { sender, receiver } = self.mtu;
        let version = if self.family == Family::V6 { ", IPv6" } else { "" };
        self.comparisons.iter().filter_map(move |compared| {
            let setting = format!("MTU {sender} to {receiver}{version}: {}", compared.name);
            Some(BesideRow::new(setting, compared.published?.ratio, compared.ratio))
        })
    }

    /// Returns whether other programs used the CPU. An undisturbed test uses one CPU-second per second.
    fn is_disturbed(&self) -> bool {
        self.processors == 1
            && self.rows.iter().any(|row| {
                row.gigabits_a_second.median < row.gigabits_a_cpu_second.median * UNDISTURBED
            })
    }

    fn write(&self, text: &mut String) {
        let waits = self.rows.iter().any(|row| row.latency.is_some());
        *text += &format!("{}\n", self.title);
        table::write(if waits { &REQUEST_COLUMNS } else { &COLUMNS }, &self.rows, text);
        for Compared { name, ratio, published, .. } in &self.comparisons {
            let _ = write!(text, "{name:<15} {ratio:>5.2} times");
            if let Some(Published { ratio, source }) = published {
                let _ = write!(text, " ({source}: {ratio:.2} times)");
            }
            text.push('\n');
        }
        if !waits {
            self.write_receiver(text);
        }
    }

    /// Writes the throughput and the receiver's share of a CPU, as in table R1, with two rows per line.
    fn write_receiver(&self, text: &mut String) {
        let _ = writeln!(text, "Gb/s, and CPU use of the receiver's host in %, as in table R1:");
        for pair in self.rows.chunks(2) {
            let columns = pair.iter().map(|row| {
                let speed = digits(row.gigabits_a_second.median);
                format!("{:<16}{speed:>5} {:>4.0} %", row.name, row.receiver_cpu_percent.median)
            });
            let _ = writeln!(text, "{}", columns.collect::<Vec<_>>().join("       "));
        }
    }
}

impl OffloadRow {
    fn speed_bar(&self) -> Bar {
        let runs = self.runs.iter().map(|run| match self.latency {
            Some(_) => run.units as f64 / run.seconds,
            None => run.gigabits_a_cpu_second(),
        });
        Bar::middle("speed", self.speed(), runs, digits(self.speed().median))
    }

    fn cost_bar(&self) -> Bar {
        let costs = self.costs();
        let names = if self.latency.is_some() { PERCENTILES } else { ROLES };
        let parts = [0, 1, 2].map(|i| (ROLES[i], names[i], costs[i]));
        Bar::parts(&parts, digits(costs.iter().sum()))
    }

    /// Returns the figure for the first column.
    fn speed(&self) -> Spread {
        self.requests_a_second.unwrap_or(self.gigabits_a_cpu_second)
    }

    /// Returns the CPU-seconds per gigabyte in the order of [`ROLES`] or, for requests, the differences between
    /// successive latency percentiles.
    fn costs(&self) -> [f64; 3] {
        if let Some(Latency { p50_us, p90_us, p99_us, .. }) = self.latency {
            return [p50_us, p90_us - p50_us, p99_us - p90_us];
        }
        let costs = [self.sender_cpu_s_per_gb, self.path_cpu_s_per_gb, self.receiver_cpu_s_per_gb];
        costs.map(|cost| cost.median)
    }

    /// Formats a latency percentile, or returns a dash if there were no requests.
    fn percentile(&self, of: impl Fn(Latency) -> f64) -> String {
        self.latency.map_or_else(|| "-".into(), |latency| format!("{:.1}", of(latency)))
    }
}

impl Consumer {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nThroughput of an in-memory consumer; {} bytes per packet, as slices or copies",
            self.payload_bytes,
        );
        table::write(&consumer_columns(), &self.readings().collect::<Vec<_>>(), text);
        *text += "\nThe same trains, as slices of one superframe or as lists of whole packets\n";
        table::write(&LIST_COLUMNS, &self.lists, text);
    }
}

const LIST_COLUMNS: [Column<ListConsumer>; 6] = [
    Column::left(&["consumer reads"], 16, |row| row.consumer.name().to_owned()),
    Column::left(&["Gb/s per CPU", "slices"], 18, |row| spread(5, &row.parts, whole)),
    Column::left(&["", "lists"], 17, |row| spread(5, &row.list, whole)),
    Column::right(&["  CPU seconds per GB", "slices"], 7, |row| {
        thousandths(8.0 / row.parts.median)
    }),
    Column::right(&["", "lists"], 7, |row| thousandths(8.0 / row.list.median)),
    Column::right(&["slices /", "lists"], 15, |row| {
        format!("{:.2} times", row.parts.median / row.list.median)
    }),
];

/// Returns the columns for the table of consumers, with the figures for parts and for copies.
fn consumer_columns<'a>() -> [Column<(ReaderKind, &'a Spread, &'a Spread)>; 6] {
    [
        Column::left(&["consumer reads"], 16, |(kind, ..)| kind.name().to_owned()),
        Column::left(&["Gb/s per CPU", "slices"], 18, |(_, parts, _)| spread(5, parts, whole)),
        Column::left(&["", "copies"], 17, |(.., copied)| spread(5, copied, whole)),
        // Gigabits per CPU-second are converted to CPU-seconds per gigabyte.
        Column::right(&["  CPU seconds per GB", "slices"], 7, |(_, parts, _)| {
            thousandths(8.0 / parts.median)
        }),
        Column::right(&["", "copies"], 7, |(.., copied)| thousandths(8.0 / copied.median)),
        Column::right(&["slices /", "copies"], 15, |(_, parts, copied)| {
            format!("{:.2} times", parts.median / copied.median)
        }),
    ]
}

/// Formats a median with this many columns, followed by its minimum and maximum.
fn spread(columns: usize, spread: &Spread, format: fn(f64) -> String) -> String {
    format!("{:>columns$} {}", format(spread.median), spread.range(format))
}

/// Users of CPU time, whose names are also the CSS classes of the bars' parts.
const ROLES: [&str; 3] = ["sender", "path", "receiver"];
const LEGEND: &str = "\
Real TCP between two network namespaces on this machine. A bar is the median, and each dot is one run. The kernel's \
own rows avoid the copies into and out of Grosso, so compare rows only with rows on the same path.";
const ROLES_LEGEND: &str = "\
Cost bars show the <b class=\"sender\">sender</b>, the <b class=\"path\">data path</b> with the receiver's kernel, \
and the <b class=\"receiver\">receiver</b>.";
/// The parts of a latency bar.
const PERCENTILES: [&str; 3] = ["50 %", "90 %", "99 %"];
const LATENCY_LEGEND: &str = "\
Latency bars show the time in which <b class=\"sender\">50 %</b>, <b class=\"path\">90 %</b> and \
<b class=\"receiver\">99 %</b> of the requests complete.";

const RECEIVER_COST: &str = "the receiver's CPU time depends on the number of packets";
const SHORT_TRAINS: &str = "trains are short although packets arrive fast";
const WAITING: &str = "requests wait until a train ends";
const REORDERING: &str = "out-of-order packets end trains";
const SENDER_COST: &str = "the sender's CPU time depends on the number of packets";
/// Minimum ratio of the highest to the lowest cost for a group to show an effect.
const NOTICED: f64 = 1.25;
/// Minimum throughput in Gb/s for packets to count as fast.
const FAST_GBPS: f64 = 1.0;
/// Minimum number of packets for a train not to count as short.
const FEW_SEGMENTS: f64 = 8.0;

const KNOBS: &[Knob] = &[
    Knob {
        seen: RECEIVER_COST,
        turn: &["ethtool -K DEV gro on", "grosso bridge ... --profile linux"],
    },
    Knob {
        seen: SHORT_TRAINS,
        turn: &[
            "ethtool -C DEV rx-usecs 50",
            "echo 2 > /sys/class/net/DEV/napi_defer_hard_irqs",
            "echo 50000 > /sys/class/net/DEV/gro_flush_timeout",
            "grosso bridge ... --hold 100us",
        ],
    },
    Knob { seen: WAITING, turn: &["ethtool -C DEV rx-usecs 0", "grosso bridge ... --hold 0"] },
    Knob {
        seen: REORDERING,
        turn: &["ethtool -N DEV rx-flow-hash tcp4 sdfn", "grosso bridge ... --reorder holes"],
    },
    Knob { seen: SENDER_COST, turn: &["ethtool -K DEV tx on sg on tso on gso on"] },
];

const COLUMNS: [Column<OffloadRow>; 9] = [
    Column::left(&[], 16, |row| row.name.clone()),
    Column::left(&["Gb/s per CPU"], 17, |row| spread(5, &row.gigabits_a_cpu_second, digits)),
    Column::right(&["", "Gb/s"], 6, |row| digits(row.gigabits_a_second.median)),
    Column::right(&["  CPU seconds per GB", "sender"], 7, |row| {
        thousandths(row.sender_cpu_s_per_gb.median)
    }),
    Column::right(&["", "path"], 7, |row| thousandths(row.path_cpu_s_per_gb.median)),
    Column::right(&["", "recvr"], 7, |row| thousandths(row.receiver_cpu_s_per_gb.median)),
    Column::right(&["segm.", "/train"], 7, |row| {
        row.segments_per_train.map_or_else(|| "-".into(), |segments| digits(segments.median))
    }),
    Column::right(&["ACKs", "/s"], 6, |row| thousands(row.acknowledgements_a_second.median)),
    Column::right(&["re-", "trans"], 6, |row| thousands(row.retransmits as f64)),
];

const BARS: [BarColumn<OffloadRow>; 2] = [
    BarColumn::new("Gb/s per CPU", |row| row.speed().max, OffloadRow::speed_bar),
    BarColumn::new("CPU seconds per GB", |row| row.costs().iter().sum(), OffloadRow::cost_bar),
];

/// The columns for requests.
const REQUEST_COLUMNS: [Column<OffloadRow>; 6] = [
    Column::left(&[], 16, |row| row.name.clone()),
    Column::left(&["requests", "a second"], 26, |row| spread(8, &row.speed(), whole)),
    Column::right(&["     microseconds per request", "50 %"], 9, |row| {
        row.percentile(|latency| latency.p50_us)
    }),
    Column::right(&["", "90 %"], 9, |row| row.percentile(|latency| latency.p90_us)),
    Column::right(&["", "95 %"], 9, |row| row.percentile(|latency| latency.p95_us)),
    Column::right(&["", "99 %"], 9, |row| row.percentile(|latency| latency.p99_us)),
];

const REQUEST_BARS: [BarColumn<OffloadRow>; 2] = [
    BarColumn::new("requests per second", |row| row.speed().max, OffloadRow::speed_bar),
    BarColumn::new(
        "latency in us: 50, 90 and 99 % of requests",
        |row| row.costs().iter().sum(),
        OffloadRow::cost_bar,
    ),
];

/// Minimum fraction of the CPU that an undisturbed test uses.
const UNDISTURBED: f64 = 0.85;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        Consumer, ListConsumer,
        consumer::{ReaderKind, ReadingConsumer},
        reorder,
        tests::report,
    };
    use crate::{
        page::assert_shown,
        statistics::{Latency, Spread},
        table::assert_kept,
    };

    #[test]
    fn table_fits_a_terminal_and_leads_with_gigabits_a_cpu() {
        let table = assert_kept("offload", &report());
        let line = |start| table.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        let on = line("coalescing on");
        let on: Vec<String> = on.split_whitespace().map(Into::into).collect();
        assert_eq!(
            on[2..],
            ["10.0", "(10.0-10.0)", "10.0", "0.200", "0.400", "0.200", "44.9", "123k", "0"]
        );
        assert!(line("coalescing off").contains(" 2.75 (2.50-3.00)"), "{table}");
        assert!(line("on / off").contains("3.64 times (R1, in 2007"), "{table}");
        let beside: Vec<String> =
            line("MTU 1500 to 1500: on / off").split_whitespace().map(Into::into).collect();
        assert_eq!(beside[7..], ["2.74", "3.64", "1.32"], "{table}");
    }

    #[test]
    fn suggested_settings_follow_the_figures_and_appear_once() {
        let mut report = report();
        let short = ["rx-usecs 50", "DEV/gro_flush_timeout", "--hold 100us"];
        let costly = ["DEV gro on", "--profile linux", "tso on gso on"];
        let never = ["--reorder"];
        for has_short_trains in [false, true] {
            let (table, page) = (report.table(), report.page("grosso lab", "unknown"));
            for knob in short.into_iter().chain(costly).chain(never) {
                let is_seen = costly.contains(&knob) || has_short_trains && short.contains(&knob);
                assert_eq!(table.contains(knob), is_seen, "{knob}: {table}");
                let counts = [&page, &table].map(|text| text.matches(knob).count());
                assert_eq!(counts[0], counts[1], "{knob}: {page}");
            }
            assert_shown(&page);
            report.findings.groups[0].rows[0].segments_per_train = Some(Spread::of([3.0]));
        }
        // Slow packets also form short trains, and reordering is not the only cause of retransmissions.
        report.findings.groups[0].rows[0].gigabits_a_second = Spread::of([0.5]);
        report.findings.groups[0].rows[0].retransmits = 9;
        let table = report.table();
        assert!(short.iter().chain(&never).all(|knob| !table.contains(knob)), "{table}");
        for (row, (name, retransmits)) in
            report.findings.groups[0].rows.iter_mut().zip([(reorder::OFF, 9), (reorder::HOLES, 1)])
        {
            (row.name, row.retransmits) = (name.into(), retransmits);
        }
        assert!(report.table().contains("--reorder holes"), "repair avoids retransmissions");
    }

    #[test]
    fn requests_are_reported_by_their_duration() {
        let mut report = report();
        for row in &mut report.findings.groups[0].rows {
            row.latency = Latency::of((1..=100).map(|i| Duration::from_micros(i * 100)));
            row.requests_a_second = Some(Spread::of([177_700.0, 73_400.4]));
        }
        let table = assert_kept("offload-requests", &report);
        let line = table.lines().find(|line| line.starts_with("coalescing on")).unwrap();
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let expected = ["125550", "(73400-177700)", "5000.0", "9000.0", "9500.0", "9900.0"];
        assert_eq!(words, expected);
    }

    #[test]
    fn consumers_are_listed_with_parts_and_with_copies() {
        let mut report = report();
        let [parts, copied] = [[60.0, 64.0, 70.0], [31.0, 32.0, 40.0]].map(Spread::of);
        let (consumer, list) = (ReaderKind::EveryByte, copied);
        let reading = vec![ReadingConsumer { consumer, parts: copied, copied }];
        let lists = vec![ListConsumer { consumer, parts, list }];
        let payload_bytes = 8948;
        report.findings.consumer = Some(Consumer { payload_bytes, parts, copied, reading, lists });
        assert_kept("offload-consumer", &report);
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let mut report = report();
        report.environment.parameters.congestion = "<script>".into();
        let page = report.page("grosso lab --html \"a&b.html\"", "unknown");
        let headline = "10.0 Gb/s per CPU with coalescing on, \
                        2.75 Gb/s per CPU with coalescing off: 3.64 times</h1>";
        assert!(page.contains(headline), "{page}");
        let runs: usize = report
            .findings
            .groups
            .iter()
            .flat_map(|group| &group.rows)
            .map(|row| row.runs.len())
            .sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert_shown(&page);
        assert!(
            page.contains("a&amp;b.html") && page.contains("congestion control: &lt;script&gt;")
        );
        // The longest bar has the maximum width.
        assert!(page.contains("width=\"270.0\""));
    }
}
