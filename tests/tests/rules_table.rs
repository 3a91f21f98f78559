//! The truth of `docs/rules.md`: the tests that it names exist, and no rule and no numbered test is missing.

use std::{
    collections::BTreeSet,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// The rules of one kind: the letter, ranges of numbers, and numbers with a suffix letter.
type Rules = (char, &'static [RangeInclusive<u32>], &'static [&'static str]);

/// All rules except those of historic LRO.
const RULES: &[Rules] = &[
    (
        'G',
        &[1..=8, 10..=15, 20..=23, 30..=40, 50..=54, 60..=66, 70..=77],
        &["5a", "14a", "34a", "34b"],
    ),
    ('U', &[1..=4, 10..=17], &[]),
    ('T', &[1..=13, 20..=22], &[]),
    ('S', &[1..=7, 10..=14, 20..=24, 30..=32, 40..=49, 60..=62], &["3a"]),
    ('C', &[1..=3, 10..=11, 20..=22, 30..=30, 40..=40, 50..=57], &[]),
    ('F', &[1..=5, 10..=16, 20..=25, 30..=32, 40..=40], &[]),
    ('V', &[1..=9, 20..=21, 30..=33], &[]),
    ('K', &[1..=36, 40..=56, 60..=69, 80..=85, 90..=98, 100..=105, 110..=119, 130..=137], &[]),
    ('B', &[1..=38, 40..=46, 50..=57, 60..=72], &[]),
    ('P', &[1..=52], &[]),
    ('W', &[1..=4, 10..=10, 20..=24, 30..=32, 40..=42, 50..=52, 60..=61, 70..=70], &[]),
];

/// Test files in which names start with the number of a rule.
const NUMBERED: &[&str] = &[
    "kernel_cases",
    "gro_rules",
    "udp_rules.rs",
    "tunnel_rules.rs",
    "gso_rules",
    "fragment_rules",
    "checksum_rules.rs",
    "virtio_rules",
    "esp_rules",
    "decapsulation_rules",
    "encapsulation_rules",
    "guarded_bugs.rs",
    "pitfalls.rs",
];

/// One row: its rules, and its text about their tests.
struct Row {
    rules: Vec<String>,
    tests: String,
}

#[test]
fn rules_table_names_existing_tests() {
    let existing = functions(&sources());
    for row in rows() {
        for name in named(&row.tests) {
            assert!(existing.contains(&name), "{:?}: there is no test `{name}`", row.rules);
        }
    }
}

#[test]
fn rules_table_has_every_rule_once() {
    let mut found = BTreeSet::new();
    for row in rows() {
        for rule in row.rules {
            assert!(found.insert(rule.clone()), "{rule} twice");
        }
        assert!(!row.tests.trim().is_empty());
    }
    for (kind, ranges, lettered) in RULES {
        let numbers = ranges.iter().cloned().flatten().map(|number| number.to_string());
        for number in numbers.chain(lettered.iter().map(ToString::to_string)) {
            let rule = format!("{kind}{number}");
            assert!(found.contains(&rule), "{rule} is missing");
        }
    }
}

#[test]
fn rules_table_names_every_numbered_test() {
    let folder = root().join("tests/tests");
    let files: Vec<_> = NUMBERED.iter().flat_map(|name| files(&folder.join(name))).collect();
    let table: BTreeSet<_> = rows().iter().flat_map(|row| named(&row.tests)).collect();
    for name in functions(&files).into_iter().filter(|name| is_numbered(name)) {
        assert!(table.contains(&name), "`{name}` is not in docs/rules.md");
    }
}

/// The rows of all tables whose first column is a rule or a range of rules.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/rules.md")).unwrap();
    let row = |line: &str| {
        let mut columns = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(3, " | ");
        let (rules, _, tests) = (columns.next()?, columns.next()?, columns.next()?);
        Some(Row { rules: expand(rules)?, tests: tests.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

/// `K80-K85` as its six rules; `None` if the text is no rule.
fn expand(rules: &str) -> Option<Vec<String>> {
    let (first, last) = rules.split_once('-').unwrap_or((rules, rules));
    let kind = first.chars().next().filter(char::is_ascii_uppercase)?;
    let number = |rule: &str| rule.strip_prefix(kind)?.parse::<u32>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) => Some((first..=last).map(|n| format!("{kind}{n}")).collect()),
        _ if first.chars().nth(1)?.is_ascii_digit() => Some(vec![first.to_owned()]),
        _ => None,
    }
}

/// The test names in backticks.
fn named(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| is_numbered(word)).map(str::to_owned).collect()
}

/// Whether a name starts with a letter, at least two digits, perhaps a letter, and an underscore.
fn is_numbered(name: &str) -> bool {
    let Some((number, _)) = name.split_once('_') else { return false };
    let digits = number.get(1..).unwrap_or_default().trim_end_matches(['a', 'b']);
    // `u16_at` reads a word and is no numbered test.
    digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with("_at")
}

/// The names of all functions in these files.
fn functions(files: &[PathBuf]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")) {
            let end = line.find(['(', '<']).unwrap_or(line.len());
            names.insert(line[..end].to_owned());
        }
    }
    names
}

/// All Rust files of the tests and of the crates.
fn sources() -> Vec<PathBuf> {
    ["tests/tests", "crates"].iter().flat_map(|folder| files(&root().join(folder))).collect()
}

/// The Rust files in a folder, at any depth, or the file itself.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        return if is_rust { vec![path.to_owned()] } else { Vec::new() };
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries.flat_map(|entry| files(&entry.unwrap().path())).collect()
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
