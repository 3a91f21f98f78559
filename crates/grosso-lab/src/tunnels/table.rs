//! The experiment's table for people, of at most 80 columns.

use core::fmt::Write;

use super::{Carrier, Compared, GroupResult, Published, Report, Roles, RowResult};
use crate::experiment::{Latency, Spread};

impl Report {
    /// The results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.heading();
        for group in &self.groups {
            text.push('\n');
            group.write(&mut text);
        }
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "\nProcessor seconds a GB of streams\n{}", COSTS.join("\n"));
        self.rows().for_each(|row| row.write_costs(&mut text));
        text.push('\n');
        self.paired.iter().for_each(|paired| paired.write(&mut text));
        self.comparisons.iter().for_each(|compared| compared.write(&mut text));
        self.verdicts.iter().for_each(|verdict| verdict.write(&mut text));
        let _ = writeln!(text, "\n{PUBLISHED}\n{}", HEADING.join("\n"));
        self.published.iter().for_each(|published| published.write(&mut text));
        let _ = writeln!(text, "\n{}", self.notes.join("\n"));
        let retransmits: u64 = self.rows().map(|row| row.retransmits).sum();
        let checksum_errors: u64 = self.rows().map(|row| row.checksum_errors).sum();
        let _ = writeln!(
            text,
            "Segments sent again in all runs of streams: {retransmits}; with a wrong checksum: \
             {checksum_errors}."
        );
        text
    }

    /// The rows of all groups.
    pub(super) fn rows(&self) -> impl Iterator<Item = &RowResult> {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    fn heading(&self) -> String {
        let environment = &self.environment;
        format!(
            "lab tunnels: two kernels, and a tunnel at each over UDP sockets and a veth wire\n\
             through {}; {} connections, {}; CPUs: {}\n\
             {}\n",
            environment.conditions.device,
            environment.streams,
            environment.congestion,
            environment.conditions.processors,
            environment.conditions.spread_lines(),
        )
    }
}

impl GroupResult {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "{}\n{}", self.title, HEADING.join("\n"));
        self.rows.iter().for_each(|row| row.write(text));
    }
}

impl RowResult {
    /// Name of the row: its tunnel, or its carrier if that is not Grosso.
    pub(super) fn name(&self) -> String {
        match self.carrier {
            Carrier::Grosso => self.tunnel.to_string(),
            other => other.to_string(),
        }
    }

    fn write(&self, text: &mut String) {
        let Spread { median, min, max } = self.megabits_a_second;
        let latency = self.latency.map_or_else(
            || "-".into(),
            |Latency { p90_us, p95_us, p99_us, .. }| format!("{p90_us:.0}/{p95_us:.0}/{p99_us:.0}"),
        );
        let spread = format!("({min:.0}-{max:.0})");
        let _ = writeln!(
            text,
            "{:<9}{:<4}{median:>6.0} {spread:<13} {:>5.1} {:>5.1}{:>9.0} {:>5.1} {latency:>16}",
            self.name(),
            on_or_off(self.remote_checksum),
            self.tx_cpu_percent.median,
            self.rx_cpu_percent.median,
            self.transactions_a_second.median,
            self.requests_cpu_percent.median,
        );
    }

    fn write_costs(&self, text: &mut String) {
        let Roles { sender, path_a, path_b, receiver, kernel } = self.roles_s_per_gb;
        let _ = write!(
            text,
            "{:<9}{:<4}{sender:>6.3} {path_a:>6.3} {path_b:>6.3} {receiver:>6.3} {kernel:>6.3} {:>6.3}",
            self.name(),
            on_or_off(self.remote_checksum),
            self.cpu_s_per_gb.median,
        );
        if let Some([path_a, path_b]) = self.costs {
            let shares = [path_a.checksums_percent, path_b.checksums_percent];
            let _ = write!(
                text,
                " {:>5.2} {:>5.2} {:>6.4} {:>6.4}",
                shares[0], shares[1], path_a.tunnel_s_per_gb, path_b.tunnel_s_per_gb
            );
        }
        text.push('\n');
    }
}

impl Compared {
    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "VXLAN, RCO {:<3} / {:<6}  throughput {:.2}, CPU a GB {:.2}, requests {:.2} times",
            on_or_off(Some(self.remote_checksum)),
            self.with.to_string(),
            self.throughput,
            self.cpu_a_gigabyte,
            self.transactions,
        );
    }
}

impl Published {
    fn write(&self, text: &mut String) {
        let [p90, p95, p99] = self.latency_us;
        let latency = format!("{p90}/{p95}/{p99}");
        let _ = writeln!(
            text,
            "{:<9}{:<4}{:>6} {:<13} {:>5.2} {:>5.2}{:>9} {:>5.2} {latency:>16}",
            self.tunnel.to_string(),
            on_or_off(self.remote_checksum),
            self.megabits_a_second,
            "",
            self.tx_cpu_percent,
            self.rx_cpu_percent,
            self.transactions_a_second,
            self.requests_cpu_percent,
        );
    }
}

pub(super) fn on_or_off(remote_checksum: Option<bool>) -> &'static str {
    match remote_checksum {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

/// Heading of the columns of [`RowResult::write`].
const HEADING: [&str; 2] = [
    "tunnel   RCO   TCP_STREAM           TX    RX   TCP_RR             90/95/99 %",
    "                 Mb/s             CPU % CPU %      tps CPU %            in us",
];

/// Heading of the columns of [`RowResult::write_costs`].
const COSTS: [&str; 2] = [
    "                    path   path                      checksums %    tunnel",
    "tunnel   RCO sender    a      b   recv kernel    all  in a  in b      a      b",
];

const PUBLISHED: &str = "\
Published (2014: Linux, 200 streams, a NIC of 40 Gb/s). Share of checksums,
GRE/GUE: TX 6.00 % without and 0.33 % with RCO, RX 0.51 % and 1.81 %";

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn table_fits_a_terminal_and_has_the_columns_of_r4() {
        let table = report().table();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
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
            grosso[1],
            [
                "on", "0.160", "0.320", "0.480", "0.160", "0.080", "1.200", "0.62", "0.21",
                "0.0160", "0.0080"
            ]
        );
        assert_eq!(grosso[2], ["on", "35971", "9.68", "7.36", "1888420", "79.32", "94/158/295"]);
        assert_eq!(lines("kernel")[1].len(), 7, "no clock in the kernel");
        assert!(table.contains("VXLAN, RCO on  / kernel  throughput 0.50, "), "{table}");
        assert!(
            table.contains("VXLAN, RCO off / plain   throughput 5.00, CPU a GB 0.20, "),
            "{table}"
        );
    }
}
