//! `docs/rules.md` is generated from the text of the rules in `docs/rules/` and from the tests of the engine. A test's
//! name starts with its rule number, and a comment directly above the test lists further rules. `CONTRIBUTING.md`
//! describes the formats.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

/// The generated page.
const PAGE: &str = "docs/rules.md";
/// The directory with the text of the rules. Its files, sorted by name, become the page.
const TEXT: &str = "docs/rules";

/// The directories with tests, in the order in which a row lists them.
const TESTED: &[&str] = &["tests/tests", "crates"];
/// The crates whose test names contain numbers from other lists, so that only the comments of these tests are used.
const NUMBERED_OTHERWISE: &[&str] = &["crates/grosso-analysis", "crates/grosso-cli"];
/// Tests of implementations other than the engine: the path, and the name that the rows show.
const OTHERS: &[(&str, &str)] =
    &[("tests/tests/kernel_gro.rs", "Linux"), ("crates/grosso-testkit", "test kit")];

/// Start of the comment that lists further rules, such as `G32, K4`.
const COMMENT: &str = "// Rules: ";

/// Advice to print if the page is outdated.
const ANEW: &str =
    "regenerate it: GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-tests --test house rules_table::";
/// The first lines of the page.
const GENERATED: &str =
    "<!-- Generated from docs/rules/ and the tests: see CONTRIBUTING.md. Do not edit. -->\n\n";
/// The header of each rule table.
const TABLE: &str = "\
| rule | what it says | tests, or why there is none |
|---|---|---|
";

#[test]
fn the_page_agrees_with_rules_and_tests() {
    let path = root().join(PAGE);
    let right = page(&parts(), &tests());
    if env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        fs::write(&path, &right).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let alike = written.lines().zip(right.lines()).take_while(|(is, should)| is == should).count();
    let [is, should] = [&written, &right].map(|text| text.lines().nth(alike).unwrap_or_default());
    let line = alike + 1;
    assert!(written == right, "{ANEW}\n{PAGE}:{line} is\n  {is}\nand should be\n  {should}\n");
}

#[test]
fn every_rule_is_written_once() {
    let mut found = BTreeSet::new();
    let rules = rows().into_iter().flat_map(|row| row.rules);
    let twice: Vec<_> = rules.filter(|rule| !found.insert(rule.clone())).collect();
    assert_none(&twice, "write each rule once, in one file of docs/rules");
}

#[test]
fn a_rule_without_tests_has_a_reason() {
    let tests = tests();
    let is_tested = |row: &Row| tests.iter().any(|test| test.other.is_none() && test.shows(row));
    let silent = rows().into_iter().filter(|row| row.note.is_empty() && !is_tested(row));
    let silent: Vec<_> = silent.map(|row| row.label).collect();
    assert_none(&silent, "name a test after the rule, or write below the rule why it has no test");
}

#[test]
fn every_rule_that_a_test_names_is_written() {
    let rules = rules();
    let tests = tests();
    let unknown = tests.iter().flat_map(|test| {
        test.rules.difference(&rules).map(|rule| format!("{}: {rule}", test.name))
    });
    let unknown: Vec<_> = unknown.collect();
    assert_none(&unknown, "add the rule to docs/rules, or correct the rule in the test");
}

#[test]
fn every_rule_that_is_cited_is_written() {
    let rules = rules();
    let mut unknown = Vec::new();
    for file in ["crates", "docs", "tests"].iter().flat_map(|folder| files(folder)) {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let words: Vec<_> = words.collect();
        let pairs =
            words.windows(2).filter(|pair| matches!(pair[0], "rule" | "rules" | "Rule" | "Rules"));
        let cited = pairs.map(|pair| pair[1]).filter(|word| is_rule(word));
        let wrong = cited.filter(|rule| !rules.contains(*rule));
        unknown.extend(wrong.map(|rule| format!("{file}: {rule}")));
    }
    assert_none(&unknown, "cite rules that are in docs/rules");
}

#[test]
fn no_text_names_a_test() {
    let tests = tests();
    let names: BTreeSet<_> = tests.iter().map(|test| format!("`{}`", test.name)).collect();
    let quotes =
        |row: &Row| names.iter().any(|name| row.says.contains(name) || row.note.contains(name));
    let named: Vec<_> = rows().into_iter().filter(quotes).map(|row| row.label).collect();
    assert_none(&named, "remove names of tests from docs/rules: tests name their rules");
}

/// A piece of the page.
enum Part {
    /// An unchanged line.
    Line(String),
    /// Consecutive rules: a table.
    Rows(Vec<Row>),
}

/// Text of one rule, or of several rules that the engine does not distinguish.
struct Row {
    /// The rules as written, `K134-K135`.
    label: String,
    rules: Vec<String>,
    says: String,
    /// Difference from Linux, or reason why there is no test; may be empty.
    note: String,
}

impl Row {
    /// Parses a line of `docs/rules/` that starts a row.
    fn starting(line: &str) -> Option<Self> {
        let (label, says) = line.strip_prefix("* **")?.split_once("** ")?;
        let rules = expand(label)?;
        Some(Self { label: label.to_owned(), rules, says: says.to_owned(), note: String::new() })
    }

    /// Adds another line. It starts the note, or continues the previous line.
    fn carry_on(&mut self, line: &str) {
        let note = line.strip_prefix("* ");
        if note.is_some() || !self.note.is_empty() {
            self.note = format!("{} {}", self.note, note.unwrap_or(line)).trim_start().to_owned();
        } else {
            self.says = format!("{} {line}", self.says);
        }
    }

    /// Returns the row as a line on the page.
    fn line(&self, tests: &[Test]) -> String {
        let engine = (None, String::new());
        let others = OTHERS.iter().map(|&(_, other)| (Some(other), format!("*{other}:* ")));
        let groups = [engine].into_iter().chain(others).filter_map(|(other, word)| {
            let shown = tests.iter().filter(|test| test.other == other && test.shows(self));
            // Tests in several files may have the same name.
            let mut found = BTreeSet::new();
            let names = shown.map(|test| format!("`{}`", test.name));
            let names: Vec<_> = names.filter(|name| found.insert(name.clone())).collect();
            (!names.is_empty()).then(|| word + &names.join(" "))
        });
        let note = (!self.note.is_empty()).then(|| self.note.clone());
        let cell: Vec<_> = note.into_iter().chain(groups).collect();
        format!("| {} | {} | {} |\n", self.label, self.says, cell.join(" "))
    }
}

/// A test of one or more rules.
struct Test {
    name: String,
    rules: BTreeSet<String>,
    /// Name of the tested implementation, if it is not the engine.
    other: Option<&'static str>,
}

impl Test {
    fn shows(&self, row: &Row) -> bool {
        row.rules.iter().any(|rule| self.rules.contains(rule))
    }
}

fn page(parts: &[Part], tests: &[Test]) -> String {
    let parts = parts.iter().map(|part| match part {
        Part::Line(line) => format!("{line}\n"),
        Part::Rows(rows) => {
            let lines: String = rows.iter().map(|row| row.line(tests)).collect();
            format!("{TABLE}{lines}")
        }
    });
    // The page is one directory above its text, so links lose one level.
    format!("{GENERATED}{}", parts.collect::<String>().replace("](../", "]("))
}

/// Parses the text in `docs/rules/` into parts.
fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for file in files(TEXT) {
        if !parts.is_empty() {
            parts.push(Part::Line(String::new()));
        }
        for line in read(&file).lines() {
            match (Row::starting(line), parts.last_mut()) {
                (Some(row), Some(Part::Rows(rows))) => rows.push(row),
                (Some(row), _) => parts.push(Part::Rows(vec![row])),
                (None, Some(Part::Rows(rows))) if line.starts_with(' ') => {
                    rows.last_mut().expect("a row").carry_on(line.trim_start());
                }
                (None, _) => {
                    assert!(!line.starts_with("* "), "{file}: a rule is `* **G1** text`: {line}");
                    parts.push(Part::Line(line.to_owned()));
                }
            }
        }
    }
    parts
}

fn rows() -> Vec<Row> {
    let rows = parts().into_iter().filter_map(|part| match part {
        Part::Line(_) => None,
        Part::Rows(rows) => Some(rows),
    });
    rows.flatten().collect()
}

/// Returns all rules in the text.
fn rules() -> BTreeSet<String> {
    rows().into_iter().flat_map(|row| row.rules).collect()
}

/// Returns all tests of rules, sorted by directory, file and name.
fn tests() -> Vec<Test> {
    let files = TESTED.iter().flat_map(|folder| files(folder));
    let sources = files.filter(|file| file.ends_with(".rs"));
    let tests = sources.map(|file| {
        let mut tests = tests_of(&file, &read(&file));
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        tests
    });
    tests.flatten().collect()
}

/// Returns the rule tests in a file. A function that a macro turns into a test has no `#[test]`, so it is recognized by
/// its comment.
fn tests_of(file: &str, text: &str) -> Vec<Test> {
    let other = OTHERS.iter().find(|(place, _)| file.starts_with(place)).map(|(_, other)| *other);
    let mut tests = Vec::new();
    let (mut is_test, mut said) = (false, BTreeSet::new());
    for (number, line) in text.lines().map(str::trim_start).enumerate() {
        if let Some(rules) = line.strip_prefix(COMMENT) {
            said.extend(rules.split(", ").map(str::to_owned));
        } else if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            let mut rules = std::mem::take(&mut said);
            if is_test && !NUMBERED_OTHERWISE.iter().any(|folder| file.starts_with(folder)) {
                rules.extend(named(name));
            }
            if !rules.is_empty() {
                tests.push(Test { name: name.to_owned(), rules, other });
            }
            is_test = false;
        } else {
            let is_odd =
                line.starts_with("//") && line.trim_start_matches(['/', ' ']).starts_with("Rules:");
            let is_apart = !said.is_empty() && !line.starts_with("#[");
            let place = format!("{file}:{}", number + 1);
            assert!(!is_odd && !is_apart, "{place}: `{COMMENT}` must be directly above a test");
            is_test |= line == "#[test]";
        }
    }
    tests
}

/// Returns the rules whose numbers a test's name starts with: `g05a_b07_...` or `k01_to_k04_...`.
fn named(test: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    let mut words = test.split('_');
    while let Some(word) = words.next() {
        match (numbered(word), rules.last()) {
            (Some(rule), _) => rules.push(rule),
            (None, Some(first)) if word == "to" => {
                let Some(last) = words.next().and_then(numbered) else { break };
                rules.extend(expand(&format!("{first}-{last}")).unwrap_or_default());
            }
            _ => break,
        }
    }
    rules
}

/// Converts `g05a` to `G5a`. Requires at least two digits, because `v4` and `v6` are IP versions.
fn numbered(word: &str) -> Option<String> {
    let digits = word.get(1..)?.trim_end_matches(['a', 'b']);
    let number: u32 = digits.parse().ok().filter(|_| digits.len() >= 2)?;
    let rule = format!("{}{number}{}", word[..1].to_ascii_uppercase(), &word[1 + digits.len()..]);
    is_rule(&rule).then_some(rule)
}

/// Expands `L4, K80-K85` to its seven rules; `None` if it is not a list of rules.
fn expand(label: &str) -> Option<Vec<String>> {
    let mut rules = Vec::new();
    for range in label.split(", ") {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let kind = range.chars().next()?;
        let number = |rule: &str| rule.strip_prefix(kind)?.parse::<u32>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                rules.extend((first..=last).map(|n| format!("{kind}{n}")))
            }
            _ if is_rule(range) => rules.push(range.to_owned()),
            _ => return None,
        }
    }
    rules.iter().all(|rule| is_rule(rule)).then_some(rules)
}

/// Returns whether a word is a capital letter, a number, and optionally a letter that divides a rule in two.
fn is_rule(word: &str) -> bool {
    let number = word.strip_prefix(|letter: char| letter.is_ascii_uppercase()).unwrap_or_default();
    let digits = number.strip_suffix(['a', 'b']).unwrap_or(number);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the files in a directory of the repository, at any depth, sorted by name.
fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut paths: Vec<_> = names.map(|name| format!("{folder}/{name}")).collect();
    paths.sort();
    let found = paths
        .into_iter()
        .map(|path| if root().join(&path).is_dir() { files(&path) } else { vec![path] });
    found.flatten().collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the repository's root directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[track_caller]
fn assert_none(wrong: &[String], advice: &str) {
    assert!(wrong.is_empty(), "{advice}:\n  {}\n", wrong.join("\n  "));
}
