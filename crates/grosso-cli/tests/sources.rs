//! Tests the claims in `docs/sources.md`: each is covered by an existing test or command. If a claim names a verdict of
//! the lab, the lab must agree with the document.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use grosso_testkit::processor::Processor;
use serde_json::Value;

use crate::common::{Bench, Run, copy_captures};

/// Number of claims of each publication in `docs/sources.md`, by letter.
const CLAIMS: [(char, usize); 5] = [('A', 33), ('B', 20), ('C', 26), ('D', 25), ('E', 24)];
/// Possible statuses of a claim; all but the first have an explanation.
const STANDINGS: [&str; 4] = ["works", "in part: ", "contradicted: ", "not here: "];

#[test]
fn every_claim_of_the_sources_is_shown_by_a_test_or_by_a_text_in_the_output_of_a_command() {
    let text = document();
    let rows: Vec<[&str; 4]> = text.lines().filter_map(claim).collect();
    let numbers = rows.iter().map(|row| row[0].to_owned());
    let expected = CLAIMS
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    assert!(numbers.eq(expected), "128 claims, in order");
    let folder = tempfile::tempdir().expect("a folder");
    copy_captures(&folder.path().join("tests/captures"));
    for [number, _, shown, standing] in rows {
        let reason = STANDINGS.iter().find_map(|word| standing.strip_prefix(word));
        let is_whole = standing == "works" || reason.is_some_and(|reason| reason.len() > 10);
        assert!(is_whole, "{number}: {standing}");
        match Shown::of(shown) {
            Some(Shown { words, texts }) if texts.is_empty() => {
                let is_judged = words.starts_with("lab") && standing.contains('*');
                assert!(is_judged, "{number}: no text of the output of grosso {words}");
            }
            Some(Shown { words, texts }) if !words.starts_with("lab") => {
                assert_shows(number, words, &texts, folder.path());
            }
            Some(_) => {}
            None => shown.split("), ").for_each(|link| {
                assert_is_test(number, link.trim_end_matches(')'));
            }),
        }
    }
}

/// A command that demonstrates a claim, and the text that must appear in its output.
struct Shown<'a> {
    words: &'a str,
    texts: Vec<&'a str>,
}

impl<'a> Shown<'a> {
    /// Parses `` `grosso WORDS` shows `TEXT` and `TEXT` ``; `None` if it is not a command.
    fn of(cell: &'a str) -> Option<Self> {
        let (words, rest) = cell.strip_prefix("`grosso ")?.split_once('`')?;
        let texts = rest
            .strip_prefix(" shows `")
            .map(|texts| texts.strip_suffix('`').expect(cell).split("` and `").collect::<Vec<_>>());
        assert!(texts.is_some() || rest.is_empty(), "{cell}");
        Some(Self { words, texts: texts.unwrap_or_default() })
    }
}

/// Returns the four cells of a row in the claims table; `None` for any other line.
fn claim(line: &str) -> Option<[&str; 4]> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>();
    let cells: [&str; 4] = cells.try_into().ok()?;
    let number = cells[0].strip_prefix(CLAIMS.map(|(letter, _)| letter))?;
    number.parse::<u8>().is_ok().then_some(cells)
}

/// Runs a command in a directory with the repository's captures, and searches its output for these texts.
#[track_caller]
fn assert_shows(number: &str, words: &str, texts: &[&str], folder: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(words.split_whitespace()).current_dir(folder);
    let output = command.output().expect("the command runs");
    // Exit code 1 is a valid result: the command found a problem.
    let is_answer = matches!(output.status.code(), Some(0 | 1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(is_answer, "{number}: grosso {words}: {}: {errors}", output.status);
    let output = String::from_utf8_lossy(&output.stdout);
    for text in texts {
        assert!(
            shows(&output, text),
            "{number}: grosso {words} does not show \"{text}\": {output}"
        );
    }
}

/// Returns whether `output` contains `text`, regardless of line breaks and column alignment.
fn shows(output: &str, text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    words(output).contains(&words(text))
}

/// Asserts that the file to which a link points contains the test that it names; `link` lacks its closing parenthesis.
fn assert_is_test(number: &str, link: &str) {
    let (name, path) =
        link.strip_prefix("[`").and_then(|rest| rest.split_once("`](../")).expect(link);
    let text = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(text.contains(&format!("fn {name}(")), "{number}: no test {name} in {path}");
}

/// Lab commands that test claims, each with the arguments for a quick run.
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
/// Arguments for a quick run of `lab cost`.
pub(crate) const COST: &str = "cost --time 100ms --runs 1 --device veth";
/// Lab commands that test no published claim, with arguments for a quick run, and a description of what they measure
/// instead.
const UNJUDGED: [(&str, &str); 4] = [
    ("flows --time 50ms --runs 1", "lengths of trains by connections and holding times"),
    ("profiles", "counts that are the same on every machine, which a test of its own has"),
    ("rtt --time 50ms --runs 1", "claims of the lab itself, on which one run is noise"),
    (COST, "claims of the lab itself, on which one run is noise"),
];
/// Number of runs in each attempt. Attempts are repeated until no answer contradicts the document. Three runs suffice
/// to compare two settings, and five to compare a setting with a bound. One test in twenty finds a difference that does
/// not exist, but two in succession hardly ever do.
const RUNS: [&str; 3] = ["3", "5", "5"];

/// A result that the document states: the number of the claim, the line in the lab's output, and the verdict in that
/// line.
type Answer<'a> = (&'a str, &'a str, &'static str);

#[test]
fn experiments_that_no_claim_names_run_too() {
    let document = document();
    at_once(&UNJUDGED, |(words, instead)| {
        let Some(Measured { report, .. }) = &*measured(words) else { return };
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

/// Calls `each` for every item in a separate thread. The threads have the test's name, so that the gate finds their
/// panic messages. Calls that measure time wait for a free CPU.
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

/// With the options in the document, the lab's tables contain the text that the document quotes.
#[test]
fn the_tables_of_the_lab_show_the_claims_of_the_sources() {
    let document = document();
    let mut texts: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for [number, _, shown, _] in document.lines().filter_map(claim) {
        if let Some(Shown { words, texts: shown }) = Shown::of(shown)
            && words.starts_with("lab")
            && !shown.is_empty()
        {
            let all = texts.entry(words).or_default();
            all.extend(shown.into_iter().map(|text| (number, text)));
        }
    }
    let commands: Vec<&str> = texts.keys().copied().collect();
    at_once(&commands, |words| {
        let Some(Measured { table, .. }) = &*measured(&quick(words)) else { return };
        for (number, text) in &texts[words] {
            assert!(shows(table, text), "{number}: {words} does not show \"{text}\": {table}");
        }
    });
}

/// Returns the arguments after `lab` for a quick run of a command from the document. A command without options gets the
/// same arguments as in other tests, so that one run serves all of them.
fn quick(words: &str) -> String {
    let words = words.strip_prefix("lab").expect(words).trim();
    let name = words.split_whitespace().next().filter(|name| !name.starts_with("--"));
    let name = name.unwrap_or_default();
    let Some(&(_, options)) = QUICK.iter().find(|(quick, _)| *quick == name) else {
        let mut unjudged = UNJUDGED.iter().map(|(words, _)| *words);
        return unjudged.find(|words| words.starts_with(name)).expect(words).to_owned();
    };
    match words == name {
        true => first_runs(name, options),
        false if words.contains("--time") => words.to_owned(),
        false => {
            // An option of the command itself takes precedence.
            let options = options.split("--").filter(|option| {
                let option = option.split_whitespace().next();
                option.is_some_and(|option| !words.contains(&format!("--{option}")))
            });
            let options: String = options.map(|option| format!("--{} ", option.trim())).collect();
            format!("{words} {options}--runs 1")
        }
    }
}

/// Returns the arguments for the first attempt of the lab command `name`, which tests claims.
fn first_runs(name: &str, words: &str) -> String {
    // A claim about a bound needs five runs. A separate test covers such claims about this file.
    let runs = if name.ends_with("lro-in-the-middle.toml") { RUNS[1] } else { RUNS[0] };
    format!("{name} {words} --runs {runs}").trim().to_owned()
}

/// Returns the arguments for the first attempt of the lab command `name`, with its quick options.
pub(crate) fn first_runs_of(name: &str) -> String {
    let quick = QUICK.iter().find(|(quick, _)| *quick == name);
    let (name, words) = quick.expect(name);
    first_runs(name, words)
}

/// Results of a lab command.
pub(crate) struct Measured {
    pub(crate) report: Value,
    pub(crate) page: String,
    /// The tables, as a terminal shows them.
    pub(crate) table: String,
}

/// Results of the commands that have been run. One test measures each for all tests.
static MEASURED: Mutex<BTreeMap<String, Arc<OnceLock<Arc<Option<Measured>>>>>> =
    Mutex::new(BTreeMap::new());

/// Returns the results of `lab` with these arguments, measured on a dedicated CPU. Runs it only if no other test has
/// done so. `None` if a lab cannot run here.
pub(crate) fn measured(words: &str) -> Arc<Option<Measured>> {
    let mut all = MEASURED.lock().unwrap();
    let cell = Arc::clone(all.entry(words.to_owned()).or_default());
    drop(all);
    Arc::clone(cell.get_or_init(|| Arc::new(measure(words))))
}

/// Runs `lab` with these arguments on a dedicated CPU. `None` if a lab cannot run here.
fn measure(words: &str) -> Option<Measured> {
    let bench = Bench::new();
    put_examples(&bench);
    if words == "profiles" {
        // Experiments that only count packets need no dedicated CPU, and write no page.
        let [report, table] =
            ["--json", ""].map(|option| bench.ok(&format!("lab {words} {option}")));
        return Some(Measured { report: report.json(), page: String::new(), table: table.stdout });
    }
    let processor = Processor::acquire();
    let run = bench.run(&format!("lab {words} --html page.html --json"));
    drop(processor);
    if is_refused(&run) {
        return None;
    }
    let page = String::from_utf8(bench.get("page.html")).unwrap();
    let table = page.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>"));
    let table = table.map_or("", |(table, _)| table);
    let table = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")]
        .iter()
        .fold(table.to_owned(), |table, (escaped, plain)| table.replace(escaped, plain));
    Some(Measured { report: run.json(), page, table })
}

/// Compares the status of each claim with the line that it emphasizes in the lab's output, if any. "Undecided" is not a
/// contradiction, and a contradiction counts only if it occurs in every attempt. Exact lines are always decided.
#[test]
fn the_lab_confirms_the_claims_of_the_sources_as_documented() {
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
    let decided = AtomicUsize::new(0);
    at_once(&QUICK, |(name, words)| {
        decided.fetch_add(agree(name, words, &answers[name]), Ordering::Relaxed);
    });
    println!("{} of the document's lines are decided", decided.into_inner());
}

/// Runs a command of the lab until none of these answers is contradicted. Returns the number of decided answers.
fn agree(name: &str, words: &str, answers: &[Answer<'_>]) -> usize {
    let mut open: Vec<Answer<'_>> = answers.to_vec();
    let mut decided = 0;
    for (attempt, runs) in RUNS.into_iter().enumerate() {
        let results = match attempt {
            0 => measured(&first_runs(name, words)),
            _ => Arc::new(measure(&format!("{name} {words} --runs {runs}"))),
        };
        let Some(Measured { report, .. }) = &*results else { return decided };
        let verdicts = report["verdicts"].as_array().unwrap();
        let mut contradictions = Vec::new();
        open.retain(|(number, line, expected)| {
            let found = verdicts.iter().find(|verdict| verdict["claim"] == *line);
            let Some(verdict) = found else {
                panic!("{number}: lab {name} has no line \"{line}\": {verdicts:#?}")
            };
            match verdict["verdict"].as_str().unwrap() {
                answer if answer == *expected => decided += 1,
                "undecided" => {
                    let is_exact = EXACT.contains(line);
                    assert!(
                        !is_exact,
                        "{number}: nothing in \"{line}\" depends on time: {verdict}"
                    );
                    println!("undecided: {number}: {line}: {}", verdict["measured"]);
                }
                "cannot_be_shown_here" => {
                    println!("skipped: {number}: {line}: {}", verdict["needed"]);
                }
                _ => {
                    contradictions.push(format!("{number}: expected {expected}: {verdict}"));
                    return true;
                }
            }
            false
        });
        if open.is_empty() {
            return decided;
        }
        println!("lab {name}: {runs} runs contradict the document: {contradictions:?}");
    }
    panic!("lab {name}: every attempt contradicts the document: {open:?}");
}

/// Lines whose counts do not depend on timing.
const EXACT: [&str; 1] = ["ACKs overtake data only if they bypass the coalescer"];

/// Copies the experiment files into the test's directory, under the same paths as in the repository.
fn put_examples(bench: &Bench) {
    fs::create_dir_all(bench.path("examples/lab")).unwrap();
    for entry in fs::read_dir(root().join("examples/lab")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, bench.path("examples/lab").join(path.file_name().unwrap())).unwrap();
    }
}

/// Returns whether a lab, or the device that an experiment needs, is unavailable here; prints the reason.
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
