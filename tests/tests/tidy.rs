//! Checks the parts of the house style that a program can check: dependencies between crates, the `unsafe` list, the
//! purity of the engine, file structure, and references in documents.
//!
//! The message of a failed test says what to do. `CONTRIBUTING.md` has the reasons.
//!
//! Longer than 600 lines: the rules are tables of crates, files and phrases, each next to its check.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The crates of the workspace that each crate may import. `ARCHITECTURE.md` draws the same arrows.
const ARROWS: &[(&str, &[&str])] = &[
    ("grosso-checksum", &[]),
    ("grosso-wire", &["grosso-checksum"]),
    ("grosso", &["grosso-checksum", "grosso-wire"]),
    ("grosso-sys", &[]),
    ("grosso-vhost", &["grosso-sys"]),
    ("grosso-capture", &["grosso", "grosso-wire"]),
    (
        "grosso-io",
        &[
            "grosso",
            "grosso-capture",
            "grosso-checksum",
            "grosso-sys",
            "grosso-vhost",
            "grosso-wire",
        ],
    ),
    (
        "grosso-lab",
        &[
            "grosso",
            "grosso-capture",
            "grosso-checksum",
            "grosso-io",
            "grosso-report",
            "grosso-sys",
            "grosso-wire",
        ],
    ),
    ("grosso-report", &["grosso-capture"]),
    (
        "grosso-analysis",
        &[
            "grosso",
            "grosso-capture",
            "grosso-checksum",
            "grosso-io",
            "grosso-report",
            "grosso-sys",
            "grosso-wire",
        ],
    ),
    (
        "grosso-conform",
        &[
            "grosso",
            "grosso-capture",
            "grosso-checksum",
            "grosso-io",
            "grosso-report",
            "grosso-wire",
        ],
    ),
    (
        "grosso-daemon",
        &["grosso", "grosso-analysis", "grosso-io", "grosso-report", "grosso-sys", "grosso-wire"],
    ),
    (
        "grosso-cli",
        &[
            "grosso",
            "grosso-analysis",
            "grosso-capture",
            "grosso-checksum",
            "grosso-conform",
            "grosso-daemon",
            "grosso-io",
            "grosso-lab",
            "grosso-report",
            "grosso-sys",
            "grosso-wire",
        ],
    ),
    ("grosso-tun", &["grosso", "grosso-checksum", "grosso-io", "grosso-sys", "grosso-wire"]),
    ("grosso-capi", &["grosso", "grosso-checksum", "grosso-io", "grosso-wire"]),
    ("grosso-testkit", &[]),
];

/// Crates for development, which may import every crate.
const DEVELOPMENT: &[&str] = &["grosso-benches", "grosso-examples", "grosso-rig", "grosso-tests"];

/// The crates that may contain `unsafe`.
const UNSAFE: &[&str] = &["grosso-capi", "grosso-checksum", "grosso-sys", "grosso-vhost"];

/// Crates that build without `std`, and get time, randomness and IO only through arguments.
const SANS_IO: &[&str] = &["grosso", "grosso-checksum", "grosso-wire"];

/// Names that would introduce a clock, randomness or IO into one of the crates of [`SANS_IO`].
const FORBIDDEN_IN_SANS_IO: &[&str] = &[
    "std::time",
    "Instant",
    "SystemTime",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::thread",
    "RandomState",
    "getrandom",
    "rand::",
    "println!",
    "print!",
    "dbg!",
];

/// Maximum length in lines of a file that gives no reason for its length.
const LINES_USUAL: usize = 600;
/// Text with which the reason for a longer file starts.
const REASON: &str = "Longer than 600 lines: ";
/// Number of lines at the start of a file within which the reason must appear.
const HEAD_LINES: usize = 60;
/// Maximum length of a source file, in lines. Consider splitting a file that has more than 600 lines.
const LINES_MAX: usize = 900;
/// Maximum number of source lines in `grosso-cli`.
const COMMAND_LINES_MAX: usize = 15_000;
/// Number of inlining attributes in each crate of the engine. The numbers may only decrease.
const INLINING: &[(&str, usize)] = &[("grosso", 254), ("grosso-checksum", 23), ("grosso-wire", 58)];
/// Maximum number of columns of a line, except for tables, links and JSON in documents.
const COLUMNS_MAX: usize = 120;
/// Words that start a clause instead of a sentence. A doc comment must start with a noun or a verb.
const OPENERS: &[&str] = &["What", "How", "Who", "Whose", "Where", "Why", "Which", "When"];

/// Maximum size in bytes of a file that is not text, such as a capture.
const BINARY_BYTES_MAX: u64 = 300_000;

#[test]
fn arrows_between_crates_go_downwards() {
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|p| !DEVELOPMENT.contains(&p.name.as_str())) {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            wrong.push(format!(
                "{} has no entry in ARROWS: add it there and in ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        let imports = package.normal.iter().filter(|name| name.starts_with("grosso"));
        wrong.extend(
            imports.filter(|name| !allowed.contains(&name.as_str())).map(|name| {
                format!("{} imports {name}, which ARROWS does not allow", package.name)
            }),
        );
        // A crate may depend on itself, which enables additional features for its own tests.
        let own = ["grosso-testkit", &package.name];
        let tests = package.development.iter().filter(|name| name.starts_with("grosso"));
        wrong.extend(
            tests.filter(|name| !own.contains(&name.as_str())).map(|name| {
                format!("tests of {} import {name}: move them to tests/", package.name)
            }),
        );
    }
    assert_none(&wrong, "move the code to a crate that may import the other");
}

/// Checks the package outside the workspace, which contains the Python bindings. It must not import the command, which
/// is not a library (ADR 0284).
#[test]
fn the_python_package_imports_no_command() {
    let manifest = read(&root().join("python/Cargo.toml"));
    let dependencies = manifest.split("[dependencies]").nth(1).expect("a list of dependencies");
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let own = |text: &str, prefix: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let names = lines.map(|line| line.split(['"', ' ']).next().unwrap_or_default().to_owned());
        names.filter(|name| name.starts_with("grosso") && name != "grosso-python").collect()
    };
    assert_eq!(own(dependencies, ""), ["grosso-analysis", "grosso-report"]);
    let locked = own(&read(&root().join("python/Cargo.lock")), "name = \"");
    assert!(locked.iter().any(|name| name == "grosso-analysis"), "{locked:?}");
    let (_, below) = ARROWS.iter().find(|(name, _)| *name == "grosso-analysis").expect("a row");
    // The list includes grosso-vhost, because it is below grosso-io.
    let allowed = [below, &["grosso-analysis", "grosso-vhost"][..]].concat();
    let wrong: Vec<_> = locked.into_iter().filter(|name| !allowed.contains(&&**name)).collect();
    assert_none(&wrong, "move what Python needs into grosso-analysis");
}

#[test]
fn only_the_listed_crates_may_contain_unsafe() {
    let wrong: Vec<String> = packages()
        .iter()
        .filter(|package| !UNSAFE.contains(&package.name.as_str()))
        .filter(|package| !DEVELOPMENT.contains(&package.name.as_str()))
        .flat_map(|package| &package.roots)
        .filter(|root| !read(root).contains("#![forbid(unsafe_code)]"))
        .map(|root| shown(root))
        .collect();
    assert_none(&wrong, "write #![forbid(unsafe_code)] at the top");
}

#[test]
fn the_engine_builds_without_std_and_takes_no_clock_randomness_or_io() {
    let mut wrong = Vec::new();
    for package in packages().iter().filter(|package| SANS_IO.contains(&package.name.as_str())) {
        for root in &package.roots {
            if !read(root).contains("#![no_std]") {
                wrong.push(format!("{}: no #![no_std]", shown(root)));
            }
            let folder = root.parent().expect("a source folder");
            for path in files(folder).into_iter().filter(|path| !is_test_source(path)) {
                wrong.extend(impure(&path));
            }
        }
    }
    assert_none(&wrong, "pass it as an argument: the caller has the clock, the seed and the port");
}

/// Returns the lines of a source before its unit tests that contain a forbidden name.
fn impure(path: &Path) -> Vec<String> {
    let text = read(path);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines
        .filter_map(|(i, line)| {
            let word = FORBIDDEN_IN_SANS_IO.iter().find(|word| line.contains(**word))?;
            Some(format!("{}:{}: {word}", shown(path), i + 1))
        })
        .collect()
}

fn is_test_source(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "tests.rs" | "testing.rs") || path.iter().any(|part| part == "tests")
}

#[test]
fn no_crate_above_the_ports_compiles_the_merge_path() {
    let above = ["grosso-analysis", "grosso-cli", "grosso-conform", "grosso-daemon", "grosso-lab"]
        .map(|name| root().join("crates").join(name).join("src"));
    let lines = lines_where(|path, line| {
        let line = line.replace("PortCoalescer", "");
        let is_own = line.contains("Coalescer::new") || line.contains("Coalescer<");
        is_own && above.iter().any(|src| path.starts_with(src))
    });
    assert_none(&lines, "use grosso_io::PortCoalescer, which the command already contains");
}

#[test]
fn every_crate_obeys_the_lints_of_the_workspace() {
    let wrong: Vec<String> = packages()
        .iter()
        .filter(|package| !read(&package.manifest).contains("[lints]\nworkspace = true"))
        .map(|package| shown(&package.manifest))
        .collect();
    assert_none(&wrong, "write [lints] workspace = true");
}

#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let packages = packages();
    let programs: Vec<&PathBuf> =
        packages.iter().flat_map(|package| package.tests.values()).collect();
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    let mut open: Vec<PathBuf> = programs.iter().map(|&path| path.clone()).collect();
    while let Some(path) = open.pop() {
        let is_root = path.ends_with("mod.rs") || programs.contains(&&path);
        open.extend(modules(&path, is_root));
        found.insert(path);
    }
    let folders =
        packages.iter().map(|package| package.manifest.parent().expect("a folder").join("tests"));
    let there = folders.filter(|folder| folder.is_dir()).flat_map(|folder| files(&folder));
    let lost = there.filter(|path| is_rust(path) && !found.contains(path));
    let wrong: Vec<String> = lost.map(|path| shown(&path)).collect();
    assert_none(
        &wrong,
        "declare it as a module of a [[test]] in Cargo.toml; otherwise it never runs",
    );
}

/// Checks the locations of proptest's regression files: next to the source file, or in a directory next to the
/// directory of the enclosing `main.rs` or `lib.rs`.
#[test]
fn regressions_are_where_the_next_run_reads_them() {
    let is_root =
        |folder: &Path| ["main.rs", "lib.rs"].iter().any(|file| folder.join(file).exists());
    let beside =
        |path: &Path| path.with_extension("rs").exists() && !path.ancestors().skip(1).any(is_root);
    let apart = |path: &Path| {
        let mut folders = path.ancestors().skip(1);
        let Some(kept) = folders.find(|folder| folder.ends_with("proptest-regressions")) else {
            return false;
        };
        let Ok(source) = path.strip_prefix(kept).map(|path| path.with_extension("rs")) else {
            return false;
        };
        let around = kept.parent().and_then(|parent| fs::read_dir(parent).ok());
        let mut around = around.into_iter().flatten().flatten().map(|entry| entry.path());
        around.any(|folder| is_root(&folder) && folder.join(&source).exists())
    };
    let kept = tree().into_iter().filter(|path| is_regression(path));
    let wrong = kept.filter(|path| match path.extension().and_then(|end| end.to_str()) {
        Some("proptest-regressions") => !beside(path),
        _ => !apart(path),
    });
    let wrong: Vec<String> = wrong.map(|path| shown(&path)).collect();
    assert_none(
        &wrong,
        "move it to the directory in which proptest writes it; otherwise no run repeats it",
    );
}

/// Returns the files that a source file declares as modules. If `is_root` is set, they are in the directory of the
/// source file.
fn modules(path: &Path, is_root: bool) -> Vec<PathBuf> {
    let folder = path.parent().expect("a folder");
    let folder = if is_root { folder.to_owned() } else { path.with_extension("") };
    let text = read(path);
    let lines = text.lines().filter_map(|line| line.trim_start().strip_suffix(';'));
    let names =
        lines.filter_map(|line| line.trim_start_matches("pub(crate) ").strip_prefix("mod "));
    let places = names.flat_map(|name| [format!("{name}.rs"), format!("{name}/mod.rs")]);
    places.map(|place| folder.join(place)).filter(|place| place.exists()).collect()
}

#[test]
fn test_programs_that_texts_name_are_there() {
    let programs: BTreeSet<String> =
        packages().into_iter().flat_map(|package| package.tests.into_keys()).collect();
    let lines = lines_where(|path, line| {
        let mut names = line.split("--test ").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        });
        !is_history(path) && names.any(|name| !name.is_empty() && !programs.contains(name))
    });
    assert_none(&lines, "name a test program and a module in it: `--test engine tiers::`");
}

/// Returns whether a document describes the past instead of the present.
fn is_history(path: &Path) -> bool {
    path.ends_with("CHANGELOG.md")
}

#[test]
fn files_are_short_enough_to_be_read() {
    let wrong: Vec<String> = texts()
        .iter()
        .filter(|(path, text)| is_rust(path) && text.lines().count() > LINES_MAX)
        .map(|(path, text)| format!("{}: {} lines", shown(path), text.lines().count()))
        .collect();
    assert_none(&wrong, "split the file, one concept per file");
}

#[test]
fn long_files_have_a_reason() {
    let wrong: Vec<String> = texts()
        .iter()
        .filter(|(path, text)| is_rust(path) && text.lines().count() > LINES_USUAL)
        .filter(|(_, text)| !text.lines().take(HEAD_LINES).any(|line| line.contains(REASON)))
        .map(|(path, text)| format!("{}: {} lines", shown(path), text.lines().count()))
        .collect();
    assert_none(
        &wrong,
        "split the file, or say at its head why it is \"Longer than 600 lines: ...\"",
    );
}

/// Checks that the command stays thin: its logic belongs in the crates below it (ADR 0263).
#[test]
fn the_command_is_thin() {
    let sources = root().join("crates/grosso-cli/src");
    let is_of_command = |path: &Path| is_rust(path) && path.starts_with(&sources);
    let texts = texts();
    let of_command = texts.iter().filter(|(path, _)| is_of_command(path));
    let lines: usize = of_command.map(|(_, text)| text.lines().count()).sum();
    assert!(lines > 0, "the sources of the command are not there");
    assert!(
        lines <= COMMAND_LINES_MAX,
        "grosso-cli/src has {lines} lines, more than {COMMAND_LINES_MAX}: move what is no argument \
         and no output into a library"
    );
}

#[test]
fn attributes_about_inlining_do_not_become_more() {
    let is_one = |line: &&str| ["#[inline", "#[cold"].iter().any(|it| line.trim().starts_with(it));
    for &(name, expected) in INLINING {
        let sources = root().join("crates").join(name).join("src");
        let texts = files(&sources).into_iter().map(|path| read(&path));
        let found: usize = texts.map(|text| text.lines().filter(is_one).count()).sum();
        assert!(
            found <= expected,
            "{name}: {found} attributes, more than {expected}: run `.ci/run instructions` without \
             the new ones"
        );
        assert!(found == expected, "{name}: {found} attributes: lower the number in INLINING");
    }
}

#[test]
fn lines_fit_a_screen() {
    let lines = lines_where(|path, line| {
        let is_table = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
        let is_long_by_nature = is_document(path) && (line.contains("](") || line.starts_with('{'));
        // Sentences in JSON cannot be wrapped. The schemas are generated from code, in which the sentences are wrapped.
        let is_long_by_nature =
            is_long_by_nature || path.starts_with(root().join("crates/grosso-cli/schemas"));
        line.chars().count() > COLUMNS_MAX && !is_table && !is_long_by_nature && !is_lock(path)
    });
    assert_none(&lines, "wrap the line");
}

#[test]
fn no_file_has_conflict_markers() {
    let lines =
        lines_where(|_, line| ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark)));
    assert_none(&lines, "resolve the conflict of the merge");
}

#[test]
fn lines_end_with_what_is_seen() {
    let lines = lines_where(|_, line| line.ends_with([' ', '\t', '\r']));
    assert_none(&lines, "remove the trailing white space");
    let open: Vec<String> = texts()
        .iter()
        .filter(|(_, text)| !text.is_empty() && !text.ends_with('\n'))
        .map(|(path, _)| shown(path))
        .collect();
    assert_none(&open, "end the file with a newline");
}

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| is_rust(path)) {
        let lines = text.lines().enumerate().filter(|(_, line)| opens_a_clause(line));
        wrong.extend(lines.map(|(i, line)| format!("{}:{}: {}", shown(path), i + 1, line.trim())));
    }
    assert_none(
        &wrong,
        "start with a noun, such as position, length or reason: \"Start of the header\"",
    );
}

/// Returns whether a line belongs to a doc comment and starts a sentence with one of [`OPENERS`].
fn opens_a_clause(line: &str) -> bool {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let word = text.and_then(|text| text.split_whitespace().next());
    word.is_some_and(|word| OPENERS.contains(&word.trim_end_matches(',')))
}

#[test]
fn nothing_is_left_for_later() {
    // Each word is split in two, because this file must not contain it.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
        concat!("to", "do!"),
        concat!("unimp", "lemented!"),
    ];
    let lines = lines_where(|path, line| {
        !is_lock(path)
            && words.iter().any(|word| line.split(|c| !is_word(c)).any(|part| part == *word))
    });
    assert_none(&lines, "do it, or remove it and file an issue");
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '!'
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    let paths = ["work/", "root/", "home/"].map(|folder| format!("/{folder}"));
    let hosts = ["static.", "index.", ""].map(|host| format!("https://{host}{}", "crates.io"));
    let lines = lines_where(|path, line| {
        !is_lock(path) && paths.iter().chain(&hosts).any(|name| names(line, name))
    });
    assert_none(&lines, "write a path relative to the tree");
}

/// Returns whether a line contains a path that is not only the end of a longer path.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/'))
    })
}

#[test]
fn what_is_no_text_is_small() {
    let wrong: Vec<String> = tree()
        .iter()
        // Files at the top level are ignored, because the user's own commands write their output there.
        .filter(|path| path.parent() != Some(&root()))
        .filter(|path| fs::read_to_string(path).is_err())
        .filter(|path| fs::metadata(path).is_ok_and(|data| data.len() > BINARY_BYTES_MAX))
        .map(|path| shown(path))
        .collect();
    assert_none(&wrong, "keep a shorter capture");
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| is_document(path)) {
        for target in links(text).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = path.parent().expect("a folder");
            let aim = if file.is_empty() { path.clone() } else { folder.join(file) };
            let there = aim.exists();
            if !there || (!anchor.is_empty() && !anchors(&read(&aim)).contains(anchor)) {
                wrong.push(format!("{}: {target}", shown(path)));
            }
        }
    }
    assert_none(&wrong, "correct the link, or write the text that it should lead to");
}

/// Returns the targets of `[text](target)` outside code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    let lines = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    lines.flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next())
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_dependency_has_a_decision() {
    let decisions: String = files(&root().join("docs/adr")).iter().map(|path| read(path)).collect();
    let wrong: BTreeSet<String> = packages()
        .iter()
        .flat_map(|package| package.normal.iter())
        .filter(|name| !name.starts_with("grosso"))
        .filter(|name| !decisions.contains(&format!("`{name}`")))
        .cloned()
        .collect();
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert_none(
        &wrong,
        "add a section of five lines to docs/adr/crates.md that names it in backquotes",
    );
}

/// Facts about a package that these tests check.
struct Package {
    name: String,
    manifest: PathBuf,
    /// Root files of the package's library and programs.
    roots: Vec<PathBuf>,
    /// The package's test programs, each with its root file.
    tests: BTreeMap<String, PathBuf>,
    /// Dependencies of the package's library and programs.
    normal: Vec<String>,
    /// Dependencies that only the package's tests and examples use.
    development: Vec<String>,
}

/// Returns the workspace's packages, as Cargo reports them.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > ARROWS.len(), "all packages are listed");
    packages.iter().map(package).collect()
}

fn package(json: &Value) -> Package {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let dependencies = json["dependencies"].as_array().expect("dependencies");
    let of_kind = |kind: Value| {
        let chosen = dependencies.iter().filter(|dependency| dependency["kind"] == kind);
        chosen.map(|dependency| text(&dependency["name"])).collect()
    };
    let targets = json["targets"].as_array().expect("targets");
    let tests = targets.iter().filter(|target| target["kind"][0] == "test");
    let roots =
        targets.iter().filter(|target| ["lib", "bin"].iter().any(|k| target["kind"][0] == *k));
    Package {
        name: text(&json["name"]),
        manifest: text(&json["manifest_path"]).into(),
        roots: roots.map(|target| text(&target["src_path"]).into()).collect(),
        tests: tests
            .map(|target| (text(&target["name"]), text(&target["src_path"]).into()))
            .collect(),
        normal: of_kind(Value::Null),
        development: of_kind("dev".into()),
    }
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Returns every file in the repository except generated ones.
fn tree() -> Vec<PathBuf> {
    files(&root())
}

pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    const MADE: &[&str] = &[".git", "artifacts", "corpus", "target"];
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // The first command of README.md writes such a page.
        let is_page = name.starts_with("grosso-lab") && name.ends_with(".html");
        // In a linked worktree, `.git` is a file instead of a directory.
        if MADE.contains(&name) || is_page {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the text files that people write, and their contents.
pub(super) fn texts() -> Vec<(PathBuf, String)> {
    let texts = tree().into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path, text))
    });
    texts.filter(|(path, _)| !is_regression(path)).collect()
}

fn lines_where(is_wrong: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        let lines = text.split('\n').enumerate().filter(|(_, line)| is_wrong(&path, line));
        wrong.extend(lines.map(|(i, line)| format!("{}:{}: {line}", shown(&path), i + 1)));
    }
    wrong
}

pub(super) fn is_rust(path: &Path) -> bool {
    path.extension() == Some("rs".as_ref())
}

/// Returns whether tools write the file: versions of dependencies, and their checksums.
fn is_lock(path: &Path) -> bool {
    path.extension() == Some("lock".as_ref()) || path.file_name() == Some("go.sum".as_ref())
}

/// Returns whether proptest writes the file.
fn is_regression(path: &Path) -> bool {
    shown(path).contains("proptest-regressions")
}

pub(super) fn is_document(path: &Path) -> bool {
    path.extension() == Some("md".as_ref())
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[track_caller]
pub(super) fn assert_none(wrong: &[String], advice: &str) {
    assert!(wrong.is_empty(), "{advice}:\n  {}\n", wrong.join("\n  "));
}
