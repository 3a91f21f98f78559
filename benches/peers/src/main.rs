//! Compares Grosso with its alternatives on the same packets, on one core, in alternating rounds.
//!
//! | module | job |
//! |---|---|
//! | `work` | the rows: one kind of work on one workload, hot or cold |
//! | `contender` | participants of a row; `polls`, `sums`, `frame`: helpers that contenders share |
//! | `ours` | Grosso, and the cost of only reading the bytes |
//! | `crates` | peers that are crates, in this process |
//! | `tool`, `child`, `dpdk`, `go` | peers in other languages: their compilers, and each as a child process |
//! | `field` | participants of a run, and the reasons why others are missing |
//! | `measure` | alternating rounds, medians, ratios |
//! | `goals` | goals for Grosso's speed |
//! | `check`, `semantics` | checks of the output |
//! | `row_report`, `report`, `text`, `page` | the findings of a row and of a run, and their output formats |
//! | `progress` | a bar during the run |

#![forbid(unsafe_code)]

mod arguments;
mod check;
mod child;
mod contender;
mod crates;
mod dpdk;
mod field;
mod frame;
mod go;
mod goals;
mod measure;
mod ours;
mod page;
mod polls;
mod progress;
mod report;
mod row_report;
mod semantics;
mod sums;
mod text;
mod tool;
mod work;

use std::{fs, path::Path, process::ExitCode};

use clap::Parser;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    arguments::Arguments,
    field::Field,
    report::{Machine, Report},
    row_report::{Line, RowReport},
    work::{Row, Work, rows},
};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let rows: Vec<Row> = rows()
        .into_iter()
        .filter(|row| arguments.only.as_ref().is_none_or(|only| row.name().contains(only.as_str())))
        .collect();
    if rows.is_empty() {
        let only = arguments.only.unwrap_or_default();
        eprintln!("error: no row has {only:?} in its name\nhint: --list names them");
        return ExitCode::from(USAGE);
    }
    let field = match Field::assemble(&arguments) {
        Ok(field) => field,
        Err(error) => {
            eprintln!("error: {error}\nhint: set TMPDIR to a folder that can be written");
            return ExitCode::from(ENVIRONMENT);
        }
    };
    if arguments.list {
        list(&field, &rows);
        return ExitCode::SUCCESS;
    }
    field.absent.iter().for_each(|absent| eprintln!("{absent}"));
    let report = run(&arguments, &field, &rows);
    if !arguments.json_is_output() {
        anstream::print!("{}", text::text(&report));
    }
    if let Err(error) = write_files(&arguments, &report) {
        eprintln!("error: {error}");
        return ExitCode::from(INPUT);
    }
    let faults = report.own_faults();
    faults.iter().for_each(|fault| eprintln!("error: Grosso is wrong: {fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(INTERNAL) }
}

fn run(arguments: &Arguments, field: &Field<'_>, rows: &[Row]) -> Report {
    // Children inherit the core of this thread.
    let core = pin();
    let bar = progress::bar(rows.len());
    let row_reports = rows.iter().map(|row| {
        bar.set_message(row.name());
        let report = measured(field, row, arguments.rounds.into());
        bar.inc(1);
        report
    });
    let row_reports: Vec<RowReport> = row_reports.collect();
    bar.finish_and_clear();
    let mut works: Vec<Work> = rows.iter().map(|row| row.work).collect();
    works.dedup();
    let kinds = [Work::CoalesceTrusted, Work::CoalesceVerified, Work::SegmentCopy];
    let kinds = kinds.into_iter().filter(|work| works.contains(work));
    let semantics = kinds.flat_map(|work| {
        semantics::examine(work, |work, cache, workload| field.contenders(work, cache, workload))
    });
    Report {
        schema: Report::SCHEMA,
        machine: machine(core),
        rounds: arguments.rounds,
        absent: field.absent.clone(),
        goals: goals::verdicts(&row_reports),
        rows: row_reports,
        semantics: semantics.collect(),
    }
}

fn measured(field: &Field<'_>, row: &Row, rounds: usize) -> RowReport {
    let workloads = row.generate();
    let mut contenders = field.row(row, &workloads);
    let figures = measure::alternate(&mut contenders, rounds);
    // If a row has only one workload, all contenders share it. Otherwise, each contender gets its own.
    let whose = workloads.iter().cycle();
    let lines =
        contenders.iter_mut().zip(figures).zip(whose).map(|((contender, figures), whose)| {
            let about = contender.about();
            let (frames, wrong) = match contender.output() {
                Ok(output) => (output.len(), check::complaints(row.work, whose, &output)),
                // A contender without output has already failed in its rounds.
                Err(_) => (0, Vec::new()),
            };
            Line::new(row, &about, figures, frames, wrong)
        });
    RowReport {
        name: row.name(),
        work: row.work,
        workload: row.traffic(),
        cache: row.cache.name(),
        contenders: lines.collect(),
    }
}

/// Lists the rows, the contenders of each, and the missing peers.
fn list(field: &Field<'_>, rows: &[Row]) {
    for row in rows {
        let workloads = row.generate();
        let contenders = field.row(row, &workloads);
        println!("{}", row.name());
        contenders.iter().for_each(|contender| println!("  {}", contender.about().name()));
    }
    field.absent.iter().for_each(|absent| println!("{absent}"));
}

fn write_files(arguments: &Arguments, report: &Report) -> Result<(), String> {
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
        match arguments.json_is_output() {
            true => println!("{json}"),
            false => write(path, &(json + "\n"))?,
        }
    }
    if let Some(path) = &arguments.html {
        write(path, &page::page(report))?;
    }
    Ok(())
}

/// Pins this thread to the last core that it may use, because the first cores process most interrupts.
fn pin() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let core = (0..CpuSet::MAX_CPU).rev().find(|core| allowed.is_set(*core))?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).ok().map(|()| core)
}

fn machine(core: Option<usize>) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    Machine {
        processor: known(model.map_or("", |(_, model)| model)),
        kernel: known(read("/proc/sys/kernel/osrelease").trim()),
        core,
        compiled_for: match (cfg!(target_feature = "avx512bw"), cfg!(target_feature = "avx2")) {
            (true, _) => "AVX-512",
            (false, true) => "AVX2",
            (false, false) => "any processor of its kind",
        },
    }
}

const USAGE: u8 = 2;
const INPUT: u8 = 3;
const ENVIRONMENT: u8 = 4;
const INTERNAL: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one round of every row.
    fn one_round(without: &[&str]) -> Report {
        let mut words = vec!["grosso-peers", "--rounds", "1"];
        without.iter().for_each(|peer| words.extend(["--without", *peer]));
        let arguments = Arguments::parse_from(words);
        let field = Field::assemble(&arguments).expect("a temporary folder");
        run(&arguments, &field, &rows())
    }

    #[test]
    fn everybody_in_this_process_does_every_row_and_grosso_does_it_right() {
        let report = one_round(&["dpdk", "wireguard-go", "tailscale", "gvisor"]);
        assert_eq!(report.own_faults(), Vec::<String>::new());
        for row in &report.rows {
            let failed: Vec<_> = row.contenders.iter().filter_map(|l| l.failed.as_ref()).collect();
            assert!(failed.is_empty(), "{}: {failed:?}", text::heading(row));
        }
        let text = anstream::adapter::strip_str(&text::text(&report)).to_string();
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:?}");
    }
}
