//! The sessions in README.md and the guide are true: each `$ grosso` command is run on the captures of the repository,
//! and its standard output is the text below it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The line that stands for the rest of an output.
const AND_SO_ON: &str = "...";

#[test]
fn the_readme_prints_what_it_shows() {
    assert_true("README.md", 2);
}

#[test]
fn the_guide_prints_what_it_shows() {
    assert_true("docs/guide.md", 10);
}

#[test]
fn every_fuzz_target_is_in_the_table_of_security_and_no_other() {
    let text = fs::read_to_string(root().join("SECURITY.md")).expect("the document is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let named =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut documented: Vec<String> = rows.flat_map(named).collect();
    let files = fs::read_dir(root().join("fuzz/fuzz_targets")).expect("the targets are there");
    let stem = |path: PathBuf| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let mut targets: Vec<String> =
        files.filter_map(|entry| stem(entry.expect("an entry").path())).collect();
    documented.sort();
    targets.sort();
    assert_eq!(documented, targets);
}

/// Claims of each publication in `docs/sources.md`, by their letters.
const CLAIMS: [(char, usize); 5] = [('A', 33), ('B', 20), ('C', 25), ('D', 22), ('E', 21)];
/// Standings of a claim; all but the first have a reason.
const STANDINGS: [&str; 4] = ["works", "in part: ", "contradicted: ", "not here: "];

#[test]
fn every_claim_of_the_sources_is_shown_by_a_test_or_a_command_that_there_is() {
    let text = fs::read_to_string(root().join("docs/sources.md")).expect("the document is there");
    let rows: Vec<[&str; 4]> = text.lines().filter_map(claim).collect();
    let numbers = rows.iter().map(|row| row[0].to_owned());
    let expected = CLAIMS
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    assert!(numbers.eq(expected), "121 claims, in order");
    let folder = tempfile::tempdir().expect("a folder");
    copy_captures(&folder.path().join("tests/captures"));
    for [number, _, shown, standing] in rows {
        let reason = STANDINGS.iter().find_map(|word| standing.strip_prefix(word));
        let is_whole = standing == "works" || reason.is_some_and(|reason| reason.len() > 10);
        assert!(is_whole, "{number}: {standing}");
        match shown.strip_prefix("`grosso ").and_then(|rest| rest.strip_suffix('`')) {
            Some(words) => assert_runs(number, words, folder.path()),
            None => assert_is_test(number, shown),
        }
    }
}

/// The cells of a row of a table of claims.
fn claim(line: &str) -> Option<[&str; 4]> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>();
    let cells: [&str; 4] = cells.try_into().ok()?;
    let number = cells[0].strip_prefix(['A', 'B', 'C', 'D', 'E'])?;
    number.parse::<u8>().is_ok().then_some(cells)
}

/// Runs a command on the captures of the repository; of one that needs devices or minutes, its words are checked.
fn assert_runs(number: &str, words: &str, folder: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(words.split_whitespace()).current_dir(folder);
    if !words.contains("tests/captures/") {
        command.arg("--help");
    }
    let output = command.output().expect("the command runs");
    // 1 is an answer: something is not as it should be.
    let is_answer = matches!(output.status.code(), Some(0 | 1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(is_answer, "{number}: grosso {words}: {}: {errors}", output.status);
}

/// Looks for the test that a link names in the file that it leads to.
fn assert_is_test(number: &str, link: &str) {
    let parts = link.strip_prefix("[`").and_then(|rest| rest.strip_suffix(')'));
    let (name, path) = parts.and_then(|rest| rest.split_once("`](../")).expect(link);
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(text.contains(&format!("fn {name}(")), "{number}: no test {name} in {path}");
}

/// Runs the sessions of a document, at least that many, in a folder with nothing but the captures.
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

/// The `$ grosso` lines of all console blocks with the lines up to the next command. A command in a pipe, or without
/// output below it, is not run.
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

fn copy_captures(to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(root().join("tests/captures")).expect("captures") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("a copy");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
