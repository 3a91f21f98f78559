//! Tests the gate's scripts: the jobs cover every step, every feature is checked, and lock files are compared.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the words between two markers in a script.
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
    // In a packaged source tree, git lists no files.
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

/// Runs the steps `guests`, `peers`, `lints` and `features` in a copy of the gate where every step runs `body`, so that
/// no tools are needed. Returns the exit status and the output.
fn gate_with_steps(body: &str) -> Option<(bool, String)> {
    let script = text(".ci/run");
    let (functions, main) = script.split_once("\ncase ${1:-} in\n").expect("the main part");
    let idle = "install_toolchain() { :; }\nlocks() { :; }\ninstall_tools() { :; }\ntree() { :; }";
    let folder = tempfile::tempdir().expect("a directory");
    let gate = folder.path().join(".ci/run");
    fs::create_dir(folder.path().join(".ci")).expect("a directory");
    fs::write(&gate, format!("{functions}\n{idle}\n{body}\ncase ${{1:-}} in\n{main}"))
        .expect("a script");
    let mut command = Command::new("bash");
    command.arg(&gate).args(["guests", "peers", "lints", "features"]).current_dir(folder.path());
    let Ok(run) = command.stdin(Stdio::null()).output() else {
        println!("skipped: bash is not installed");
        return None;
    };
    let output = [run.stdout, run.stderr].concat();
    Some((run.status.success(), String::from_utf8(output).expect("text")))
}

#[test]
fn two_lanes_run_every_step_and_report_its_time() {
    let steps = "guests() { echo from guests; }\npeers() { :; }\nlints() { :; }\nfeatures() { :; }";
    let Some((passed, output)) = gate_with_steps(steps) else { return };
    assert!(passed, "{output}");
    for step in ["guests", "peers", "lints", "features"] {
        assert!(output.contains(&format!("\n=== {step} begins\n")), "{step}: {output}");
        assert!(
            output.lines().any(|line| line.starts_with(&format!("{step} "))),
            "{step}: {output}"
        );
    }
    assert!(output.contains("\nfrom guests\n"), "{output}");
    assert!(output.contains("\n4 steps passed, 0 left out; "), "{output}");
}

/// Tests that a failing step stops both lanes. The other lane waits in its first step until the failure has been
/// written, so its second step must not start.
#[test]
fn a_failing_step_of_one_lane_ends_both_and_is_named() {
    let steps = "guests() { while [ ! -s \"$failure\" ]; do sleep 0.01; done; }\npeers() { :; }\n\
                 lints() { echo why it failed; false; echo not reached; }\nfeatures() { :; }";
    let Some((passed, output)) = gate_with_steps(steps) else { return };
    assert!(!passed, "{output}");
    assert!(output.contains("\nwhy it failed\n") && !output.contains("not reached"), "{output}");
    assert!(output.contains("\nFAILED at: lints (exit 1)\n"), "{output}");
    for step in ["peers", "features"] {
        assert!(!output.contains(&format!("=== {step} begins")), "{step}: {output}");
    }
}
