//! Prints counters in the Prometheus text format, version 0.0.4.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    reading::{DeviceReading, Values, merged},
    table::{COUNTERS, Counter, Label, Series},
};

/// Returns the page with the counters in `readings`. Devices with the same name, for example tunnels, are distinguished
/// by the names of their paths. If two programs also use the same path name, their counters are added up, because two
/// series must not have the same labels.
pub fn page(readings: &[DeviceReading]) -> String {
    let devices = merged(readings);
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(page, "# HELP grosso_build_info The version of Grosso; always 1.");
    let _ = writeln!(page, "# TYPE grosso_build_info gauge");
    let _ = writeln!(page, "grosso_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    print_stuck(&mut page, readings);
    for metric in metrics() {
        print_metric(&mut page, &metric, &devices);
    }
    page
}

/// Prints whether each path is stuck.
fn print_stuck(page: &mut String, readings: &[DeviceReading]) {
    let mut paths: BTreeMap<&str, bool> = BTreeMap::new();
    for reading in readings {
        *paths.entry(&reading.path).or_default() |= reading.stuck_ns.is_some();
    }
    if paths.is_empty() {
        return;
    }
    let help = "1 if a thread of the path did not answer in time; the counters then have their \
                last known values.";
    let _ = writeln!(page, "# HELP grosso_path_stuck {help}\n# TYPE grosso_path_stuck gauge");
    for (path, is_stuck) in paths {
        let stuck = u8::from(is_stuck);
        let _ = writeln!(page, "grosso_path_stuck{{path=\"{}\"}} {stuck}", escaped(path));
    }
}

type Devices<'a> = BTreeMap<(&'a str, &'a str, Option<u32>), Values>;

/// The counters of one metric, with their indexes in the table.
struct Metric {
    name: &'static str,
    help: &'static str,
    unit: &'static str,
    counters: Vec<(usize, &'static Counter, &'static Label)>,
}

/// Returns the metrics in the order of the table.
fn metrics() -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for (place, counter) in COUNTERS.iter().enumerate() {
        let Some(Series { metric, help, label }) = &counter.series else { continue };
        let entry = (place, counter, label);
        match metrics.iter_mut().find(|known| known.name == metric) {
            Some(known) => known.counters.push(entry),
            None => {
                let help = if help.is_empty() { &counter.help } else { *help };
                let unit = counter.unit;
                metrics.push(Metric { name: metric, help, unit, counters: vec![entry] });
            }
        }
    }
    metrics
}

fn print_metric(page: &mut String, metric: &Metric, devices: &Devices<'_>) {
    let Metric { name, help, unit, counters } = metric;
    let is_histogram = counters.iter().any(|(_, _, label)| matches!(label, Label::Bucket(_)));
    let is_gauge = counters.iter().any(|(_, counter, _)| counter.is_gauge);
    let kind = match is_histogram {
        true => "histogram",
        false if is_gauge => "gauge",
        false => "counter",
    };
    let mut lines = String::new();
    for ((device, path, queue), values) in devices {
        let mut labels = format!("device=\"{}\",path=\"{}\"", escaped(device), escaped(path));
        if let Some(queue) = queue {
            let _ = write!(labels, ",queue=\"{queue}\"");
        }
        let values: Vec<Option<u64>> = values.in_order().collect();
        if is_histogram {
            print_histogram(&mut lines, metric, &labels, &values);
            continue;
        }
        for (place, _, label) in counters {
            let Some(value) = values[*place] else { continue };
            let _ = match label {
                Label::Value(label, is) => {
                    writeln!(lines, "{name}{{{labels},{label}=\"{}\"}} {value}", escaped(is))
                }
                _ => writeln!(lines, "{name}{{{labels}}} {value}"),
            };
        }
    }
    if !lines.is_empty() {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = write!(page, "# HELP {name} {help} Unit: {unit}.\n# TYPE {name} {kind}\n{lines}");
    }
}

/// Prints a histogram. Each bucket includes the buckets below it.
fn print_histogram(lines: &mut String, metric: &Metric, labels: &str, values: &[Option<u64>]) {
    let name = metric.name;
    let (mut count, mut sum) = (0_u64, None);
    for (place, _, label) in &metric.counters {
        let Some(value) = values[*place] else { return };
        match label {
            Label::Bucket(bound) => {
                count = count.saturating_add(value);
                let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
                let _ = writeln!(lines, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            _ => sum = Some(value),
        }
    }
    if let Some(sum) = sum {
        let _ = writeln!(lines, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

/// Returns the value of a label, escaped for use in double quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
