//! A table and charts of the results.

use core::fmt::Write;

use super::{
    Costs, PublishedTunnel, Roles, TunnelCarrier, TunnelComparison, TunnelFindings,
    TunnelParameters, TunnelRow, TunnelTrial,
};
use crate::{
    beside::BesideRow,
    netns::Family,
    page::{Bar, BarColumn, charts},
    report::{Environment, Findings, Knob},
    statistics::{Latency, thousandths, whole},
    table::{self, Column},
    tunnel::Tunnel,
};

impl Findings for TunnelFindings {
    type Parameters = TunnelParameters;

    const LEGEND: &'static str = LEGEND;
    const KNOBS: &'static [Knob] = KNOBS;

    fn heading(&self, environment: &Environment<TunnelParameters>) -> String {
        let TunnelParameters { outer, sendfile, .. } = environment.parameters;
        let outer = if outer == Family::V4 { "IPv4" } else { "IPv6" };
        let sendfile = if sendfile { "; sent from a file" } else { "" };
        format!(
            "TCP in UDP tunnels; outer protocol: {outer}{sendfile}\n\
             device: {}; {} connections ({}); CPUs: {}\n\
             {}",
            environment.through(),
            environment.parameters.streams,
            environment.parameters.congestion,
            environment.processors,
            environment.spread_lines(),
        )
    }

    fn write(&self, text: &mut String) {
        for group in &self.groups {
            *text += &format!("\n{}\n", group.title);
            table::write(&TunnelRow::COLUMNS, &group.rows, text);
        }
        *text += &format!("\n{PUBLISHED}\n");
        table::write(&PublishedTunnel::COLUMNS, &self.published, text);
        // Here and below: writing to a string cannot fail.
        *text += "\nCPU seconds per GB of stream data\n";
        table::write(&COSTS, self.rows(), text);
        text.push('\n');
        self.paired.iter().for_each(|paired| paired.write(text));
        self.comparisons.iter().for_each(|compared| compared.write(text));
    }

    fn beside(&self) -> Vec<BesideRow> {
        let mut rows = Vec::new();
        for published in self.published.iter().filter(|row| row.remote_checksum == Some(true)) {
            let others = self.published.iter().filter(|row| row.tunnel == published.tunnel);
            let off = others.clone().find(|row| row.remote_checksum == Some(false));
            let ours = [true, false].map(|on| self.row(published.tunnel, on));
            if let (Some(off), [Some(here), Some(here_off)]) = (off, ours) {
                let name = format!("{}, RCO on / off", published.tunnel);
                rows.extend(published_rows(&name, [published, off], [here, here_off]));
            }
        }
        // The publication has no figures for VXLAN with remote checksum offload, so GUE is also compared without it.
        let [vxlan, gue] = [Tunnel::Vxlan, Tunnel::GreGue].map(|tunnel| {
            let mut published = self.published.iter().filter(|row| row.tunnel == tunnel);
            let published = published.find(|row| row.remote_checksum != Some(true));
            published.zip(self.row(tunnel, false))
        });
        if let (Some((vxlan, here)), Some((gue, here_gue))) = (vxlan, gue) {
            rows.extend(published_rows("VXLAN / GRE/GUE, no RCO", [vxlan, gue], [here, here_gue]));
        }
        rows.extend(self.shares_of_checksums());
        rows
    }

    fn headline(&self) -> String {
        let paired = self.paired.iter().find_map(|paired| Some((paired, paired.tx_cost?)));
        paired.map_or_else(
            || "Tunnels terminated in userspace".into(),
            |(paired, cost)| {
                format!(
                    "{}, remote checksum offload on / off: the sender needs {:.2} times the time for checksums \
                     and encapsulation",
                    paired.tunnel, cost.median
                )
            },
        )
    }

    fn is_seen(&self, observation: &str) -> bool {
        let is_greatest = |path: fn(&Roles) -> f64| {
            self.rows().map(|row| row.roles_s_per_gb).any(|roles| {
                let cost = path(&roles);
                let others = [roles.sender, roles.path_a, roles.path_b, roles.receiver];
                cost > 0.0 && others.iter().all(|other| cost >= *other)
            })
        };
        match observation {
            CHECKSUMS => self
                .rows()
                .filter_map(|row| row.costs)
                .any(|[path_a, _]| path_a.checksums_percent >= MANY_CHECKSUMS),
            PATH_A => is_greatest(|roles| roles.path_a),
            PATH_B => is_greatest(|roles| roles.path_b),
            _ => true,
        }
    }

    fn charts(&self) -> String {
        let name = |row: &TunnelRow| match row.remote_checksum {
            Some(_) => format!("{}, RCO {}", row.name(), on_or_off(row.remote_checksum)),
            None => row.name(),
        };
        let groups = self.groups.iter().map(|group| (group.title.into(), &group.rows));
        charts(&BARS, name, groups)
    }
}

impl TunnelFindings {
    /// Returns the row for one of Grosso's tunnels.
    fn row(&self, tunnel: Tunnel, remote_checksum: bool) -> Option<&TunnelRow> {
        let mut rows = self.rows().filter(|row| row.carrier == TunnelCarrier::Grosso);
        rows.find(|row| (row.tunnel, row.remote_checksum) == (tunnel, Some(remote_checksum)))
    }

    /// Returns, for each path, the share of its time that checksums take with remote checksum offload, divided by their
    /// share without it.
    fn shares_of_checksums(&self) -> Vec<BesideRow> {
        let shares = |remote_checksum| {
            let costs = self.row(Tunnel::GreGue, remote_checksum)?.costs?;
            Some(costs.map(|path| path.checksums_percent))
        };
        let Some((on, off)) = shares(true).zip(shares(false)) else { return Vec::new() };
        let sides = PUBLISHED_SHARES.iter().zip(on.into_iter().zip(off));
        let row = |(&(side, published), (on, off)): (&(&str, f64), (f64, f64))| {
            let name = format!("GRE/GUE, RCO on / off: share of checksums, {side}");
            BesideRow::new(name, published, on / off)
        };
        sides.map(row).collect()
    }
}

/// Returns the ratios of a table's first row to its second: throughput, CPU time for this throughput, requests, and
/// latency.
fn published_rows(
    name: &str,
    published: [&PublishedTunnel; 2],
    here: [&TunnelRow; 2],
) -> [BesideRow; 5] {
    let of_published = |value: &dyn Fn(&PublishedTunnel) -> f64| {
        let [one, other] = published.map(value);
        one / other
    };
    let of_here = |value: &dyn Fn(&TunnelRow) -> f64| {
        let [one, other] = here.map(value);
        one / other
    };
    let row = |what, published, here| BesideRow::new(format!("{name}: {what}"), published, here);
    let rate = |row: &PublishedTunnel| f64::from(row.megabits_a_second);
    let rate_here = |row: &TunnelRow| row.megabits_a_second.median;
    [
        row("Mb/s", of_published(&rate), of_here(&rate_here)),
        row(
            "TX CPU per Mb/s",
            of_published(&|row| row.tx_cpu_percent / rate(row)),
            of_here(&|row| row.tx_cpu_percent.median / rate_here(row)),
        ),
        row(
            "RX CPU per Mb/s",
            of_published(&|row| row.rx_cpu_percent / rate(row)),
            of_here(&|row| row.rx_cpu_percent.median / rate_here(row)),
        ),
        row(
            "requests/s",
            of_published(&|row| f64::from(row.transactions_a_second)),
            of_here(&|row| row.transactions_a_second.median),
        ),
        row(
            "latency, 99 %",
            of_published(&|row| f64::from(row.latency_us[2])),
            of_here(&|row| row.latency.map_or(f64::NAN, |latency| latency.p99_us)),
        ),
    ]
}

impl TunnelRow {
    const COLUMNS: [Column<Self>; 8] = r4_columns([
        Self::name,
        |row| on_or_off(row.remote_checksum).to_owned(),
        |row| {
            let speed = row.megabits_a_second;
            format!("{:>6} {}", whole(speed.median), speed.range(whole))
        },
        |row| format!("{:.1}", row.tx_cpu_percent.median),
        |row| format!("{:.1}", row.rx_cpu_percent.median),
        |row| whole(row.transactions_a_second.median),
        |row| format!("{:.1}", row.requests_cpu_percent.median),
        Self::percentiles,
    ]);

    /// Returns the name of the row: the tunnel, or the carrier if it is not Grosso.
    fn name(&self) -> String {
        match self.carrier {
            TunnelCarrier::Grosso => self.tunnel.to_string(),
            other => other.to_string(),
        }
    }

    fn percentiles(&self) -> String {
        self.latency.map_or_else(
            || "-".into(),
            |Latency { p90_us, p95_us, p99_us, .. }| format!("{p90_us:.0}/{p95_us:.0}/{p99_us:.0}"),
        )
    }

    fn speed_bar(&self) -> Bar {
        let speed = self.megabits_a_second;
        let runs =
            self.runs.iter().flat_map(|run| &run.streams).map(TunnelTrial::megabits_a_second);
        Bar::middle("speed", speed, runs, whole(speed.median))
    }

    fn cost_bar(&self) -> Bar {
        let Roles { sender, path_a, path_b, receiver, kernel } = self.roles_s_per_gb;
        let costs = [
            ("sender", "sender", sender),
            ("path", "path a", path_a),
            ("far", "path b", path_b),
            ("receiver", "receiver", receiver),
            ("sender", "kernel threads", kernel),
        ];
        Bar::parts(&costs, format!("{:.2}", self.roles_s_per_gb.total()))
    }

    /// Formats a figure for path a (0) or path b (1) with this number of decimals; returns an empty string for the
    /// kernel's tunnel.
    fn of_path(&self, path: usize, figure: fn(&Costs) -> f64, decimals: usize) -> String {
        self.costs
            .as_ref()
            .map_or_else(String::new, |costs| format!("{:.decimals$}", figure(&costs[path])))
    }
}

impl TunnelComparison {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "VXLAN, RCO {:<3} / {:<6}  throughput {:.2}, CPU/GB {:.2}, requests {:.2} times",
            on_or_off(Some(self.remote_checksum)),
            self.with.to_string(),
            self.throughput,
            self.cpu_a_gigabyte,
            self.transactions,
        );
    }
}

impl PublishedTunnel {
    const COLUMNS: [Column<Self>; 8] = r4_columns([
        |row| row.tunnel.to_string(),
        |row| on_or_off(row.remote_checksum).to_owned(),
        |row| format!("{:>6}", row.megabits_a_second),
        |row| format!("{:.2}", row.tx_cpu_percent),
        |row| format!("{:.2}", row.rx_cpu_percent),
        |row| row.transactions_a_second.to_string(),
        |row| format!("{:.2}", row.requests_cpu_percent),
        |row| row.latency_us.map(|us| us.to_string()).join("/"),
    ]);
}

/// Returns the columns of table R4, either for the rows from this machine or for the published rows. `of` returns the
/// cells.
const fn r4_columns<R>(of: [fn(&R) -> String; 8]) -> [Column<R>; 8] {
    let [name, remote_checksum, speed, tx, rx, transactions, requests, latency] = of;
    [
        Column::left(&["tunnel"], 9, name),
        Column::left(&["RCO"], 4, remote_checksum),
        Column::left(&["  TCP_STREAM", "    Mb/s"], 20, speed),
        Column::right(&["TX ", "CPU %"], 6, tx),
        Column::right(&["RX ", "CPU %"], 6, rx),
        Column::right(&["TCP_RR ", "tps"], 9, transactions),
        Column::right(&["", "CPU %"], 6, requests),
        Column::right(&["90/95/99 % ", "in us"], 17, latency),
    ]
}

fn on_or_off(remote_checksum: Option<bool>) -> &'static str {
    match remote_checksum {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

const LEGEND: &str = "\
Real TCP between two network namespaces on this machine, through a tunnel. A bar is the median, and each dot is \
one run. Cost bars show the <b class=\"sender\">sender</b>, <b class=\"path\">path a</b>, which encapsulates packets, \
path b (paler), which decapsulates them, and the <b class=\"receiver\">receiver</b>.";

const CHECKSUMS: &str = "path a spends much of its time on inner checksums";
const PATH_A: &str = "path a's CPU time depends on the number of packets";
const PATH_B: &str = "path b's CPU time depends on the number of packets";
/// Minimum percentage of a path's time for the report to suggest a setting for checksums.
const MANY_CHECKSUMS: f64 = 2.0;

const KNOBS: &[Knob] = &[
    Knob {
        seen: CHECKSUMS,
        turn: &["grosso tunnel add ... encap gue encap-remcsum", "grosso tunnel add ... remcsumtx"],
    },
    Knob {
        seen: PATH_A,
        turn: &[
            "ethtool -K DEV tx-udp_tnl-segmentation on",
            "ethtool -K DEV tx-udp_tnl-csum-segmentation on",
        ],
    },
    Knob { seen: PATH_B, turn: &["ethtool -K DEV gro on", "grosso tunnel add ... encap-csum"] },
];

const BARS: [BarColumn<TunnelRow>; 2] = [
    BarColumn::new("TCP_STREAM, Mb/s", |row| row.megabits_a_second.max, TunnelRow::speed_bar),
    BarColumn::new("CPU seconds per GB", |row| row.roles_s_per_gb.total(), TunnelRow::cost_bar),
];

const COSTS: [Column<TunnelRow>; 12] = [
    Column::left(&["", "tunnel"], 9, TunnelRow::name),
    Column::left(&["", "RCO"], 4, |row| on_or_off(row.remote_checksum).to_owned()),
    Column::right(&["", "sender"], 6, |row| thousandths(row.roles_s_per_gb.sender)),
    Column::right(&["path", "a"], 7, |row| thousandths(row.roles_s_per_gb.path_a)),
    Column::right(&["path", "b"], 7, |row| thousandths(row.roles_s_per_gb.path_b)),
    Column::right(&["", "recv"], 7, |row| thousandths(row.roles_s_per_gb.receiver)),
    Column::right(&["", "kernel"], 7, |row| thousandths(row.roles_s_per_gb.kernel)),
    Column::right(&["", "all"], 7, |row| thousandths(row.cpu_s_per_gb.median)),
    Column::right(&[" checksums %", "in a"], 6, |row| {
        row.of_path(0, |path| path.checksums_percent, 2)
    }),
    Column::right(&["", "in b"], 6, |row| row.of_path(1, |path| path.checksums_percent, 2)),
    Column::right(&["   tunnel in", "a"], 7, |row| row.of_path(0, |path| path.tunnel_s_per_gb, 4)),
    Column::right(&["", "b"], 7, |row| row.of_path(1, |path| path.tunnel_s_per_gb, 4)),
];

/// Published effect on the time for checksums, for TX and RX: their share of the time with remote checksum offload,
/// divided by their share without it.
const PUBLISHED_SHARES: [(&str, f64); 2] = [("TX", 0.33 / 6.00), ("RX", 1.81 / 0.51)];

const PUBLISHED: &str = "\
Published in 2014 for Linux, 200 streams and a 40 Gb/s NIC. Share of checksums
for GRE/GUE: TX 6.00 % without RCO, 0.33 % with RCO; RX 0.51 % and 1.81 %";

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use crate::{page::assert_shown, table::assert_kept};

    #[test]
    fn table_fits_a_terminal_and_has_the_columns_of_r4() {
        let table = assert_kept("tunnels", &report());
        let lines = |start: &str| {
            let lines = table.lines().filter(|line| line.starts_with(start));
            lines
                .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let grosso = lines("SIT/GUE  on");
        assert_eq!(
            grosso[0],
            ["on", "10000", "(9800-10200)", "30.0", "40.0", "50000", "75.0", "180/190/198"]
        );
        assert_eq!(
            grosso[2],
            [
                "on", "0.160", "0.320", "0.480", "0.160", "0.080", "1.200", "0.62", "0.21",
                "0.0160", "0.0080"
            ]
        );
        assert_eq!(grosso[1], ["on", "35971", "9.68", "7.36", "1888420", "79.32", "94/158/295"]);
        let beside = lines("SIT/GUE, RCO on / off: Mb/s");
        assert_eq!(beside[0][5..], ["0.99", "1.00", "1.01"], "{table}");
        assert_eq!(lines("VXLAN / GRE/GUE, no RCO: TX")[0][8..9], ["2.85"], "{table}");
        assert_eq!(lines("GRE/GUE, RCO on / off: share of checksums, RX").len(), 1, "{table}");
        assert_eq!(lines("kernel")[1].len(), 7, "no clock in the kernel");
        assert!(table.contains("VXLAN, RCO on  / kernel  throughput 0.50, "), "{table}");
        assert!(
            table.contains("VXLAN, RCO off / plain   throughput 5.00, CPU/GB 0.20, "),
            "{table}"
        );
    }

    #[test]
    fn page_is_self_contained_and_shows_every_run() {
        let report = report();
        let page = report.page("grosso lab tunnels --html \"a&b.html\"", "unknown");
        assert!(
            page.contains("GRE/GUE, remote checksum offload on / off: the sender needs 0.45 times"),
            "{page}"
        );
        // No verdict is about requests, but the publication has their ratio.
        assert!(page.contains("<td>IPIP/GUE, RCO on / off: requests/s</td>"), "{page}");
        let runs: usize = report.findings.rows().map(|row| row.runs.len()).sum();
        assert_eq!(page.matches("<circle ").count(), runs);
        assert_shown(&page);
        assert!(page.contains("a&amp;b.html"));
        // The longest bar has the maximum width: the kernel is twice as fast as Grosso.
        assert!(page.contains("width=\"264.7\""), "{page}");
    }
}
