//! The claims of `docs/sources.md`: each is covered by an existing test or command, and the lab agrees with the
//! document about those that name a line of its verdicts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use grosso_testkit::processor::Processor;

use crate::common::{Bench, Run, copy_captures};

/// Number of claims of each publication in `docs/sources.md`, by letter.
const CLAIMS: [(char, usize); 5] = [('A', 33), ('B', 20), ('C', 25), ('D', 22), ('E', 21)];
/// Possible statuses of a claim; all but the first have a reason.
const STANDINGS: [&str; 4] = ["works", "in part: ", "contradicted: ", "not here: "];

#[test]
fn every_claim_of_the_sources_is_shown_by_a_test_or_a_command_that_there_is() {
    let text = document();
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

/// Returns the cells of a row of a table of claims.
fn claim(line: &str) -> Option<[&str; 4]> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>();
    let cells: [&str; 4] = cells.try_into().ok()?;
    let number = cells[0].strip_prefix(CLAIMS.map(|(letter, _)| letter))?;
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
    // 1 is a result: something is not as it should be.
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

/// Lab commands that test claims, with the arguments of their quick form.
const QUICK: [(&str, &str); 9] = [
    ("", "--time 50ms"),
    ("lro", "--time 50ms"),
    ("load", "--time 200ms"),
    ("gso", "--time 50ms"),
    ("fragments", "--time 300ms --timeout 150ms --rate 300M --loss 0.5%"),
    ("acks", "--time 50ms --round-trip 10ms --transfer 2000000"),
    ("tunnels", "--time 100ms --streams 4"),
    ("run --config examples/lab/lro-in-the-middle.toml", "--time 200ms"),
    ("run --config examples/lab/offloads.toml", "--time 200ms"),
];
/// Lab commands that test no claim of a publication, in their quick form, each with its alternative.
const UNJUDGED: [(&str, &str); 4] = [
    ("flows --time 50ms --runs 1 --no-html", "lengths of trains by connections and holding times"),
    ("profiles", "counts that are the same on every machine, which a test of its own has"),
    ("rtt --time 50ms --runs 1 --no-html", "claims of the lab itself, on which one run is noise"),
    (
        "cost --time 100ms --runs 1 --device veth --no-html",
        "claims of the lab itself, on which one run is noise",
    ),
];
/// Runs of the quick form, and attempts until its result agrees with the document.
const QUICK_RUNS: [&str; 2] = ["1", "1"];
/// Runs after which a result that noise does not explain is final.
const FINAL_RUNS: &str = "5";

/// A result that the document states: the number of the claim, the line of the lab and its verdict.
type Answer<'a> = (&'a str, &'a str, &'static str);

#[test]
fn experiments_that_no_claim_names_run_too() {
    let document = document();
    at_once(&UNJUDGED, |(words, instead)| {
        let _processor = Processor::acquire();
        let run = Bench::new().run(&format!("lab {words} --json"));
        if is_refused(&run) {
            return;
        }
        let report = run.json();
        let rows =
            [&report["rows"], &report["groups"]].into_iter().find_map(|rows| rows.as_array());
        assert!(rows.is_some_and(|rows| !rows.is_empty()), "{words}: {report}");
        let verdicts = report["verdicts"].as_array().map_or(&[][..], Vec::as_slice);
        let claims = verdicts.iter().filter_map(|verdict| verdict["claim"].as_str());
        let named: Vec<&str> =
            claims.filter(|claim| document.contains(&format!("*{claim}*"))).collect();
        assert!(named.is_empty(), "{words} has {instead}, but the document names {named:?}");
    });
}

/// Calls `each` for all items in threads of their own, which have the test's name so that the gate finds the messages
/// of those that panic. Calls that measure wait for a processor.
fn at_once<T: Copy + Send + Sync>(items: &[T], each: impl Fn(T) + Sync) {
    let test = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        for &item in items {
            let each = &each;
            let thread = thread::Builder::new().name(test.clone());
            thread.spawn_scoped(scope, move || each(item)).unwrap();
        }
    });
}

/// A claim whose status has an emphasized line of the lab is confirmed by that line. One run is noise if an effect is
/// small, so differing results are repeated, at last with enough runs for a test of the difference: only a result that
/// this distinguishes from noise is a failure.
#[test]
fn the_lab_answers_the_claims_of_the_sources_as_the_document_says() {
    let text = document();
    let rows: Vec<[&str; 4]> = text.lines().filter_map(claim).collect();
    let mut answers: BTreeMap<&str, Vec<Answer<'_>>> = BTreeMap::new();
    for &[number, _, shown, standing] in &rows {
        let lines = standing.split('*').skip(1).step_by(2);
        let expected = match standing {
            _ if standing.starts_with("cannot be loaded") => "cannot_be_shown_here",
            _ if standing.contains("not reproduced") => "not_reproduced",
            _ => "reproduced",
        };
        for line in lines {
            let command = shown.strip_prefix("`grosso lab").expect(number).trim_end_matches('`');
            let is_its = |name: &&str| command.trim_start().starts_with(name);
            let name = QUICK.map(|(name, _)| name).into_iter().filter(is_its);
            let name = name.max_by_key(|name| name.len()).expect(number);
            answers.entry(name).or_default().push((number, line, expected));
        }
    }
    let named: BTreeSet<&str> = answers.keys().copied().collect();
    assert_eq!(named, QUICK.iter().map(|(name, _)| *name).collect(), "every command is run");
    at_once(&QUICK, |(name, words)| agree(name, words, &answers[name]));
}

/// Runs a command of the lab until each of these answers was given.
fn agree(name: &str, words: &str, answers: &[Answer<'_>]) {
    let bench = Bench::new();
    put_examples(&bench);
    let mut open: Vec<Answer<'_>> = answers.to_vec();
    for (runs, is_final) in
        QUICK_RUNS.map(|runs| (runs, false)).into_iter().chain([(FINAL_RUNS, true)])
    {
        let processor = Processor::acquire();
        let run = bench.run(&format!("lab {name} {words} --runs {runs} --no-html --json"));
        drop(processor);
        if is_refused(&run) {
            return;
        }
        let report = run.json();
        let verdicts = report["verdicts"].as_array().unwrap();
        open.retain(|(number, line, expected)| {
            let found = verdicts.iter().find(|verdict| verdict["claim"] == *line);
            let Some(verdict) = found else {
                panic!("{number}: lab {name} has no line \"{line}\": {verdicts:#?}")
            };
            let answer = verdict["verdict"].as_str().unwrap();
            if answer == "cannot_be_shown_here" && answer != *expected {
                println!("skipped: {number}: {line}: {}", verdict["needed"]);
                return false;
            }
            let is_noise = verdict["within_noise"] == true;
            assert!(
                answer == *expected || is_noise || !is_final,
                "{number}: the document says {expected} of \"{line}\": {verdict}"
            );
            answer != *expected && !is_final
        });
        if open.is_empty() {
            return;
        }
        println!("lab {name}: asked again in more runs than {runs}: {open:?}");
    }
}

/// Puts the files of experiments where they are in the repository.
pub(crate) fn put_examples(bench: &Bench) {
    fs::create_dir_all(bench.path("examples/lab")).unwrap();
    for entry in fs::read_dir(root().join("examples/lab")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, bench.path("examples/lab").join(path.file_name().unwrap())).unwrap();
    }
}

/// Returns whether a lab, or the device for the experiment of a file, is unavailable here; prints the reason.
pub(crate) fn is_refused(run: &Run) -> bool {
    if run.code != 4 {
        assert_eq!(run.code, 0, "{}", run.stderr);
        return false;
    }
    println!("skipped: {}", run.stderr);
    assert!(run.stderr.contains("hint"), "{}", run.stderr);
    assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{}", run.stderr);
    true
}

fn document() -> String {
    fs::read_to_string(root().join("docs/sources.md")).expect("the document is there")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
