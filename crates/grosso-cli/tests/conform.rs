//! `grosso conform`: a correct coalescer passes, each injected fault is detected by its rule, and a failing program is
//! named and stopped.
#![cfg(unix)]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::common::{Bench, Run, finished};

/// Compiles the test coalescer. Its argument is the name of the fault to inject.
fn coalescer(bench: &Bench) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conform/coalescer.c");
    compiled(bench, &source)
}

fn compiled(bench: &Bench, source: &Path) -> Option<PathBuf> {
    let program = bench.path("judged");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    match compiler.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(error) => {
            println!("skipped: cc: {error}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: cc");
            None
        }
    }
}

/// Runs `grosso conform` on the program with this injected fault, and returns the result and the report.
fn judged(bench: &Bench, options: &str, program: &Path, fault: &str) -> (Run, Value) {
    let line = format!("conform --json {options} -- {} {fault}", program.display());
    let run = bench.run(&line);
    let json = run.json();
    assert_eq!(json["schema"], "grosso.conform/1");
    (run, json)
}

/// Returns the rules that a report lists as violated.
fn broken(report: &Value) -> Vec<String> {
    let rows = report["rules"].as_array().unwrap().iter();
    let wrong = rows.filter(|row| row["wrong"] != 0);
    wrong.map(|row| row["rule"].as_str().unwrap().to_owned()).collect()
}

/// Returns the violated laws, without duplicates.
fn laws(report: &Value) -> Vec<String> {
    let faults = report["faults"].as_array().unwrap().iter();
    let mut laws: Vec<_> = faults.map(|fault| fault["law"].as_str().unwrap().to_owned()).collect();
    laws.sort();
    laws.dedup();
    laws
}

#[test]
fn a_coalescer_that_merges_nothing_violates_no_rule() {
    let bench = Bench::new();
    let run = bench.ok("conform --json -- cat");
    let report = run.json();
    assert_eq!(report["faults"], serde_json::json!([]));
    assert_eq!(report["vectors"]["wrong"], 0);
    assert_eq!(report["joins"]["made"], 0);
    assert!(report["joins"]["possible"].as_u64().unwrap() > 100);
    // A program that merges less than permitted violates no law, unless the user requires full merging.
    assert_eq!(bench.run("conform --strict -- cat").code, 1);
}

#[test]
fn a_right_coalescer_is_judged_right_and_its_joins_are_counted_by_rule() {
    let bench = Bench::new();
    let Some(program) = coalescer(&bench) else { return };
    let (run, report) = judged(&bench, "", &program, "");
    assert_eq!((run.code, &report["faults"]), (0, &serde_json::json!([])), "{}", run.stdout);
    let row = |rule: &str| {
        let rows = report["rules"].as_array().unwrap();
        rows.iter().find(|row| row["rule"] == rule).unwrap()["joins"].clone()
    };
    // The stream has all kinds of TCP packets over IPv4, but no UDP.
    assert_eq!(row("G14")["made"], row("G14")["possible"]);
    assert_eq!(row("U12")["made"], 0);
    assert_ne!(row("U12")["possible"], 0);
}

#[test]
fn each_planted_fault_is_found_by_its_rule() {
    let bench = Bench::new();
    let Some(program) = coalescer(&bench) else { return };
    for (fault, law, rule) in [
        ("psh", "changed", "G36"),
        ("cwr", "changed", "G34"),
        ("cwr", "apart", "G34"),
        ("lose", "lost", "G54"),
        ("id", "changed", "G14"),
        ("gap", "changed", "G14"),
        ("reorder", "order", "G75"),
        ("checksum", "changed", "G30"),
        ("ttl", "changed", "G13"),
        ("unequal", "changed", "G39"),
        ("vouch", "vouched", "C1"),
        ("header", "header", "G52"),
        ("length", "header", "G50"),
        ("sum", "header", "G50"),
        ("seed", "header", "G51"),
        ("whole", "header", "G51"),
    ] {
        let (run, report) = judged(&bench, "", &program, fault);
        assert_eq!(run.code, 1, "{fault}");
        let faults = report["faults"].as_array().unwrap();
        let is_it = |found: &Value| {
            let mut rules = found["rules"].as_array().unwrap().iter();
            found["law"] == law && rules.any(|found| found == rule)
        };
        assert!(faults.iter().any(is_it), "{fault}: {}", run.stdout);
        assert!(broken(&report).iter().any(|broken| broken == rule), "{fault}");
        assert!(!bench.run(&format!("conform -- {} {fault}", program.display())).stdout.is_empty());
    }
    // No other rule detects the fault.
    for (fault, rule) in [("ttl", "G13"), ("lose", "G54"), ("reorder", "G75"), ("vouch", "C1")] {
        assert_eq!(broken(&judged(&bench, "", &program, fault).1), [rule], "{fault}");
    }
}

#[test]
fn a_program_that_breaks_down_is_named_and_not_tried_for_ever() {
    let bench = Bench::new();
    let Some(program) = coalescer(&bench) else { return };
    for (fault, words) in [
        ("crash", "signal: 6"),
        ("exit", "exit status: 3"),
        ("rubbish", "a record of 4294967295 bytes"),
        ("flood", "more than 256 records"),
        ("cut", "ended inside a record"),
        ("silent", "the program did not end the poll"),
        ("hang", "the program did not end the poll"),
    ] {
        // In the other cases, the timeout is long enough for a busy host.
        let options =
            if words == "the program did not end the poll" { "--timeout 300ms" } else { "" };
        let (run, report) = judged(&bench, options, &program, fault);
        assert_eq!((run.code, laws(&report)), (1, vec!["program".to_owned()]), "{fault}");
        let faults = report["faults"].as_array().unwrap();
        assert_eq!(faults.len(), 3, "{fault}");
        assert!(faults[0]["text"].as_str().unwrap().contains(words), "{fault}: {}", run.stdout);
        assert!(report["vectors"]["left_out"].as_u64().unwrap() > 80, "{fault}");
    }
}

#[test]
fn the_end_of_a_program_is_judged() {
    let bench = Bench::new();
    let Some(program) = coalescer(&bench) else { return };
    for (fault, words) in [("behind", "after the end"), ("status", "exit status: 1")] {
        let (run, report) = judged(&bench, "", &program, fault);
        let faults = report["faults"].as_array().unwrap();
        assert_eq!((run.code, faults.len()), (1, 1), "{fault}: {}", run.stdout);
        assert_eq!(report["vectors"]["wrong"], 0);
        assert!(faults[0]["text"].as_str().unwrap().contains(words), "{fault}");
    }
}

/// Neither side waits for the other: one program writes endlessly and reads nothing, the other neither reads nor
/// writes.
#[test]
fn no_pipe_blocks_the_judge() {
    let bench = Bench::new();
    let run = bench.run("conform -- yes");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("invalid output"), "{}", run.stdout);
    let run = bench.run("conform --timeout 300ms -- sleep 1000");
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("the program did not end the poll"), "{}", run.stdout);
}

#[test]
fn a_program_that_cannot_be_started_is_the_environment_s_fault_and_none_is_the_user_s() {
    let bench = Bench::new();
    let run = bench.run("conform --json -- ./no-such-program");
    assert_eq!((run.code, &run.json_error()["code"]), (4, &"environment.start".into()));
    for line in
        ["conform", "conform cat", "conform --timeout soon -- cat", "conform --timeout 0 -- cat"]
    {
        assert_eq!(bench.run(line).code, 2, "{line}");
    }
}

#[test]
fn ctrl_c_ends_the_judge_and_the_program() {
    let bench = Bench::new();
    bench.put("judged.sh", b"echo $$ >&2\nexec sleep 1000\n");
    let mut command = bench.command("conform -- sh judged.sh");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judge = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(judge.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let sent = Command::new("kill").args(["-INT", &judge.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(finished(judge.wait_with_output().unwrap()).code, 130);
    let alive = Command::new("kill").args(["-0", line.trim()]).stderr(Stdio::null()).status();
    assert!(!alive.unwrap().success(), "process {line} is left");
}

/// Runs the thirty-line program in `docs/conformance.md`.
#[test]
fn the_program_of_the_document_breaks_no_law() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let text = std::fs::read_to_string(document).unwrap();
    let program = text.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(program.lines().count() <= 30, "{program}");
    let bench = Bench::new();
    bench.put("shown.c", program.as_bytes());
    let Some(program) = compiled(&bench, &bench.path("shown.c")) else { return };
    let (run, report) = judged(&bench, "", &program, "");
    assert_eq!((run.code, &report["faults"]), (0, &serde_json::json!([])), "{}", run.stdout);
}
