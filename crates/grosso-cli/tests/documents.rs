//! Tests the console sessions in README.md and the guide: runs each `$ grosso` command on the repository's captures,
//! and compares its standard output with the text below the command.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{common::copy_captures, slow_jobs::put_transfers};

/// The line that stands for omitted output in a document.
const AND_SO_ON: &str = "...";

#[test]
fn the_readme_prints_what_it_shows() {
    assert_true("README.md", 2);
}

#[test]
fn the_guide_prints_what_it_shows() {
    assert_true("docs/guide.md", 10);
}

/// Rows of `docs/peers.json` with their labels in README.md.
const BESIDE_PEERS: [(&str, &str); 8] = [
    ("coalesce-trusted/hot/tcp4_1", "merge one flow, checksums trusted"),
    ("coalesce-verified/hot/tcp4_1", "merge one flow, checksums verified"),
    ("coalesce-verified/hot/tcp4_1000rr", "a thousand interleaved flows, verified"),
    ("coalesce-trusted/hot/vxlan_tcp4", "merge one flow in VXLAN, trusted"),
    ("coalesce-trusted/hot/tcp4_acks", "data and acknowledgments, trusted"),
    ("segment-copy/hot/gso_tcp4", "split a superframe, payload copied"),
    ("reassemble/hot/frag4_8k", "join fragments of 8 KB datagrams"),
    ("checksum/hot/1500", "checksum of 1500 bytes"),
];

/// The README's table must match a file that `benches/peers --json` wrote, with the times of the single rounds removed.
#[test]
fn the_readme_compares_with_peers_as_measured() {
    let text = fs::read_to_string(root().join("docs/peers.json")).expect("the report is there");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let named = |list: &str, key: &str, name: &str| {
        let list = report[list].as_array().expect("a list");
        list.iter().find(|entry| entry[key] == name).expect(name).clone()
    };
    let row = |(name, work): (&str, &str)| {
        let (row, goal) = (named("rows", "name", name), named("goals", "row", name));
        let contenders = row["contenders"].as_array().expect("a list");
        let time_ns = |name: &str| {
            let entry = contenders.iter().find(|entry| entry["name"] == name).expect(name);
            entry["ns"].as_f64().expect("a time")
        };
        let peer = goal["beside"].as_str().expect("a name");
        let ratio = match goal["measured"].as_f64().expect("a ratio") {
            ratio if ratio < 1.0 => format!("{:.2} times slower", 1.0 / ratio),
            ratio => format!("{ratio:.2} times faster"),
        };
        let (own_ns, peer_ns, peer) = (time_ns("grosso"), time_ns(peer), displayed(peer));
        format!("| {work} | {own_ns:.1} ns; {peer} {peer_ns:.1} ns: {ratio} |\n")
    };
    let table: String = BESIDE_PEERS.map(row).concat();
    let readme = fs::read_to_string(root().join("README.md")).expect("the document is there");
    assert!(readme.contains(&table), "README.md should have:\n{table}");
}

/// Returns a peer's name and variant as README.md displays them: `dpdk, context` is `DPDK (context)`.
fn displayed(contender: &str) -> String {
    let (peer, variant) = match contender.split_once(", ") {
        Some((peer, variant)) => (peer, format!(" ({})", variant.trim_start_matches("+ "))),
        None => (contender, String::new()),
    };
    let peer = match peer {
        "dpdk" => "DPDK",
        "tailscale" => "Tailscale",
        other => other,
    };
    format!("{peer}{variant}")
}

/// Runs every table row that documents its output. The order matters, because some commands read the output of earlier
/// ones.
#[test]
fn every_job_of_the_guide_has_the_answer_of_its_row() {
    let text = fs::read_to_string(root().join("docs/guide.md")).expect("the document is there");
    let rows: Vec<Vec<&str>> = text.lines().filter_map(job).collect();
    assert!(rows.len() > 20, "{} jobs", rows.len());
    let folder = tempfile::tempdir().expect("a folder");
    copy_captures(&folder.path().join("tests/captures"));
    put_transfers(folder.path(), 1001);
    let mut run = 0;
    for row in &rows {
        let [name, command, answer, ..] = row[..] else { panic!("{row:?}") };
        let Some(answer) = answer.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else {
            assert!(answer.contains("](") && answer.contains(".md"), "{name} has a page: {answer}");
            continue;
        };
        let words = command.trim_matches('`').strip_prefix("grosso ").expect(name);
        let output = Command::new(env!("CARGO_BIN_EXE_grosso"))
            .args(words.split_whitespace())
            .current_dir(folder.path())
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(answer), "{name}: {said}{errors}");
        run += 1;
    }
    assert!(run >= 14, "{run} jobs were run");
}

/// Returns the cells of a row in the table of tasks.
fn job(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
    cells.get(1)?.starts_with("`grosso ").then_some(cells)
}

#[test]
fn every_fuzz_target_is_in_the_table_of_security_and_no_other() {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("the document is there");
    let (_, text) = text.split_once("| input | target |").expect("the table is there");
    let (text, _) = text.split_once("\n\n").expect("the table has an end");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let named =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut documented: Vec<String> = rows.flat_map(named).collect();
    let stem = |path: PathBuf| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    documented.sort();
    // The fuzz targets are modules of a library, and each has a program of the same name.
    for directory in ["fuzz/fuzz_targets", "fuzz/src/bin"] {
        let files = fs::read_dir(root().join(directory)).expect("the targets are there");
        let names = files.filter_map(|entry| stem(entry.expect("an entry").path()));
        let mut targets: Vec<String> = names.filter(|name| name != "mod").collect();
        targets.sort();
        assert_eq!(documented, targets, "{directory}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_file_of_paths_of_the_example_for_clusters_is_sound() {
    let text = fs::read_to_string(root().join("examples/kubernetes/gateway.yaml")).unwrap();
    let (_, rest) = text.split_once("  gateway.toml: |\n").expect("the file of paths");
    let lines = rest.lines().map_while(|line| match line {
        "" => Some(""),
        line => line.strip_prefix("    "),
    });
    let file = lines.collect::<Vec<_>>().join("\n").replace("NODE_ADDRESS", "192.0.2.1");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    let output = command.args(["config", "check"]).arg(&path).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 path"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs all sessions in a document, in a directory that contains only the captures. Asserts that there are at least
/// `sessions_min` of them.
#[track_caller]
fn assert_true(document: &str, sessions_min: usize) {
    let text = fs::read_to_string(root().join(document)).expect("the document is there");
    let sessions = sessions(&text);
    assert!(sessions.len() >= sessions_min, "{document} has only {} sessions", sessions.len());
    let folder = tempfile::tempdir().expect("a folder");
    copy_captures(&folder.path().join("tests/captures"));
    for Session { arguments, shown } in sessions {
        let output = Command::new(env!("CARGO_BIN_EXE_grosso"))
            .args(&arguments)
            .env("NO_COLOR", "1")
            .current_dir(folder.path())
            .output()
            .expect("the command runs");
        let printed = String::from_utf8(output.stdout).expect("text");
        let whole = shown.last().is_none_or(|line| *line != AND_SO_ON);
        let shown = if whole { &shown[..] } else { &shown[..shown.len() - 1] };
        let printed: Vec<&str> = printed.lines().collect();
        let compared = if whole { printed.len() } else { shown.len().min(printed.len()) };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(shown, &printed[..compared], "{document}: grosso {arguments:?}: {errors}");
    }
}

/// A command, and its output according to the document.
struct Session<'a> {
    arguments: Vec<&'a str>,
    shown: Vec<&'a str>,
}

/// Returns the `$ grosso` commands in all console blocks, each with its output: the lines up to the next command.
/// Commands in a pipe, or without output, are omitted.
fn sessions(text: &str) -> Vec<Session<'_>> {
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1));
    let sessions = commands.filter_map(|session| {
        let (command, shown) = session.split_once('\n')?;
        let arguments = command.strip_prefix("grosso ")?.split_whitespace().collect();
        let shown = shown.trim_end().lines().collect();
        Some(Session { arguments, shown })
    });
    sessions
        .filter(|session| !session.shown.is_empty() && !session.arguments.contains(&"|"))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
