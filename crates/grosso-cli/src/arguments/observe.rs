//! Arguments of `grosso stats` and `grosso monitor`.

use std::time::Duration;

use clap::Args;

use super::own::Detail;

#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// Select these devices [default: all]
    #[arg(value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,
    /// Print the counters again at this interval
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) interval: Option<Duration>,
    /// Stop after printing COUNT times [default: until Ctrl-C]
    #[arg(short, long, value_name = "COUNT", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Also print the change since the previous reading
    #[arg(long, requires = "interval")]
    pub(crate) delta: bool,
    /// Print one JSON line per device
    #[arg(long, conflicts_with = "json")]
    pub(crate) jsonl: bool,
    /// Print in the Prometheus text format
    #[arg(long, conflicts_with_all = ["json", "jsonl", "interval"])]
    pub(crate) prom: bool,
    /// Print each queue separately
    #[arg(long)]
    pub(crate) per_queue: bool,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Args, Debug)]
pub(crate) struct Monitor {
    /// Select these devices [default: all]
    #[arg(value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,
    /// Read the counters at this interval
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) interval: Duration,
    /// Print one interval as text and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print each interval as text, for logs
    #[arg(short, long, conflicts_with = "once")]
    pub(crate) batch: bool,
    /// Stop after COUNT intervals with --batch [default: until Ctrl-C]
    #[arg(short, long, value_name = "COUNT", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| INTERVAL_S.contains(seconds));
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .ok_or_else(|| format!("expected {} to {} seconds", INTERVAL_S.start(), INTERVAL_S.end()))
}

pub(crate) const STATS_HELP: &str = "\
Prints the counters of all running data paths (`grosso bridge` and `grosso run`)
to which this user has access. Counters never decrease. -v also prints counters
that are zero; docs/counters.md explains each one.

Examples:
  grosso stats                                counters of every device
  grosso stats eth1 -i 1 --delta              counters and changes, every second
  grosso stats -i 1 --jsonl | jq .rx_gro_wire_packets
  grosso stats --json | jq '.devices[].drops'
  grosso stats --prom > /var/lib/node_exporter/grosso.prom";

pub(crate) const MONITOR_HELP: &str = "\
Rates count wire packets. `in batch` is the number of wire packets per frame
received from the device, and `segs/send` per frame sent to it. The flush columns
show why trains were flushed: size limit (size), changed timestamp or options (ts),
PSH or FIN (psh), sequence gap (gap), hold time (time).

Keys: up and down select a device, s sorts by the next column, d switches between
totals and the last interval, space pauses, ? shows help, q quits.

Examples:
  grosso monitor                   full screen
  grosso monitor --once            one second, as text
  grosso monitor -b -i 10 >> log   a block every ten seconds";

/// Permitted interval between two readings, in seconds. The minimum is the shortest interval between requests to a data
/// path, and the maximum is one day.
const INTERVAL_S: core::ops::RangeInclusive<f64> = 0.01..=86400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "1s", "nan", "inf", "86401", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
