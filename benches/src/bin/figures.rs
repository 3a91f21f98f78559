//! Prints Criterion's latest measurements as Markdown tables for `docs/performance.md`.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::Value;

/// The rows of each group, keyed by group name.
type Groups = BTreeMap<String, BTreeMap<Row, Figure>>;

/// Name of a benchmark, sorted numerically by the number that it contains.
type Row = (u64, String);

/// Measurement of one benchmark.
#[derive(Clone, Copy, Debug)]
struct Figure {
    median_ns: f64,
    /// Median of the absolute differences between the samples and their median.
    spread_ns: f64,
    /// Number of bytes processed in that time, if the benchmark measures bytes.
    bytes: Option<f64>,
}

fn main() -> ExitCode {
    let folder = env::var_os("CARGO_TARGET_DIR").map_or_else(default_target, PathBuf::from);
    let folder = folder.join("criterion");
    let mut groups = Groups::new();
    collect(&folder, &mut groups);
    if groups.is_empty() {
        eprintln!("figures: nothing is measured; run: cargo bench -p grosso-benches");
        return ExitCode::FAILURE;
    }
    for (name, rows) in groups {
        print_group(&name, &rows);
    }
    ExitCode::SUCCESS
}

fn default_target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

/// Collects the latest run of every benchmark, which Criterion stores in a directory called `new`.
fn collect(folder: &Path, groups: &mut Groups) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if path.ends_with("new") {
            if let Some((group, row, figure)) = figure(&path) {
                groups.entry(group).or_default().insert(row, figure);
            }
        } else if path.is_dir() {
            collect(&path, groups);
        }
    }
}

fn figure(folder: &Path) -> Option<(String, Row, Figure)> {
    let read =
        |name| -> Option<Value> { serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok() };
    let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    // The directory also contains benchmarks from other packages, but only this package nests groups.
    let group = benchmark["group_id"].as_str().filter(|group| group.contains('/'))?.to_owned();
    let name = ["function_id", "value_str"].iter().find_map(|key| benchmark[*key].as_str())?;
    let estimate = |of: &str| estimates[of]["point_estimate"].as_f64();
    let figure = Figure {
        median_ns: estimate("median")?,
        spread_ns: estimate("median_abs_dev")?,
        bytes: benchmark["throughput"]["BytesDecimal"].as_f64(),
    };
    Some((group, (name.parse().unwrap_or(0), name.to_owned()), figure))
}

fn print_group(name: &str, rows: &BTreeMap<Row, Figure>) {
    let with_bytes = rows.values().any(|figure| figure.bytes.is_some());
    println!("\n### {name}\n");
    if with_bytes {
        println!("| bytes | ns | spread | GB/s |\n|---:|---:|---:|---:|");
    } else {
        println!("| workload | ns a packet | spread |\n|---|---:|---:|");
    }
    for ((_, name), Figure { median_ns, spread_ns, bytes }) in rows {
        print!("| {name} | {median_ns:.1} | {spread_ns:.1} |");
        match bytes {
            Some(bytes) => println!(" {:.1} |", bytes / median_ns),
            None => println!(),
        }
    }
}
