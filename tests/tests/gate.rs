//! The scripts of the gate: jobs that cover every step, features that are checked, and lock files that are compared.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the words between two markers of a script.
fn words<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    let (words, _) = rest.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}"));
    words.split_whitespace().collect()
}

#[test]
fn three_jobs_run_each_step_of_the_gate_once() {
    let workflow = text(".github/workflows/ci.yml");
    let (_, jobs) = workflow.split_once("        steps:\n").expect("the jobs of the matrix");
    let jobs: Vec<&str> =
        jobs.lines().map_while(|line| line.strip_prefix("          - ")).collect();
    assert_eq!(jobs.len(), 3);
    let mut run: Vec<&str> = jobs.iter().flat_map(|job| job.split_whitespace()).collect();
    let script = text(".ci/run");
    let lists = ["\nalone=(", "\nleft=(", "\nright=("];
    let mut steps: Vec<&str> =
        lists.into_iter().flat_map(|list| words(&script, list, ")")).collect();
    run.sort_unstable();
    steps.sort_unstable();
    assert_eq!(run, steps, "the jobs of ci.yml and all_steps of .ci/run");
}

/// Checks that `.ci/features` builds each feature alone, except cargo-c, which changes no code.
#[test]
fn every_feature_of_a_crate_is_checked_alone() {
    let script = text(".ci/features");
    let checked: BTreeSet<(&str, &str)> = script
        .lines()
        .filter_map(|line| line.strip_prefix("check ")?.split_once(' '))
        .flat_map(|(package, features)| features.split(' ').map(move |feature| (package, feature)))
        .collect();
    let mut missing = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let entry = entry.expect("an entry");
        if !entry.path().is_dir() {
            continue;
        }
        let package = entry.file_name().into_string().expect("a name");
        let manifest = text(&format!("crates/{package}/Cargo.toml"));
        let Some((_, features)) = manifest.split_once("\n[features]\n") else { continue };
        let features = features.split("\n[").next().unwrap_or_default();
        let names = features.lines().filter_map(|line| line.split_once(" = "));
        for name in names.map(|(name, _)| name).filter(|name| !["default", "capi"].contains(name)) {
            if !name.starts_with(['#', ' ']) && !checked.contains(&(package.as_str(), name)) {
                missing.push(format!("{package}/{name}"));
            }
        }
    }
    assert!(missing.is_empty(), ".ci/features does not check {}", missing.join(", "));
}

#[test]
fn the_gate_compares_every_tracked_lock_file() {
    let Ok(git) =
        Command::new("git").args(["ls-files", "*Cargo.lock"]).current_dir(root()).output()
    else {
        return println!("skipped: git is not installed");
    };
    let tracked = String::from_utf8(git.stdout).expect("paths");
    // A packaged source tree has no history.
    let mut tracked: Vec<String> =
        tracked.lines().map(|file| file.replace(".lock", ".toml")).collect();
    let script = text(".ci/run");
    let mut compared = words(&script, "manifests=(", ")");
    tracked.sort_unstable();
    compared.sort_unstable();
    assert!(tracked.is_empty() || tracked == compared, "{tracked:?}, {compared:?}");
}

#[test]
fn newcomers_and_the_gate_run_the_same_tests() {
    assert!(text("README.md").contains("\n$ cargo test --workspace --no-fail-fast\n"));
    let command = "cargo test --workspace \"${features[@]}\" --no-fail-fast \"$@\"";
    assert!(text(".ci/run").contains(command));
}
