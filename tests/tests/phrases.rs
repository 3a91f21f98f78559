//! Phrases that do not belong in documents, comments, help texts and messages, each with the reason. `CONTRIBUTING.md`
//! has the rules of style.

use std::{collections::BTreeSet, path::Path};

use crate::tidy::{assert_none, files, is_document, is_rust, read, root, shown, texts};

/// Phrases, and what to write instead. A single word counts only in prose, because a name in code may contain it.
const PHRASES: &[(&str, &str)] = &[
    ("told of", "notified of, knows"),
    ("tell of", "report, describe"),
    ("so many", "this many, or the name of the number"),
    ("unsaid", "default"),
    ("must be said", "required"),
    ("is said", "is reported, is configured"),
    ("are said", "are reported, are configured"),
    ("is told", "is given, is configured"),
    ("who has", "a caller with; if you have"),
    ("by which it", "that it; the noun itself"),
    ("lets in", "accepts"),
    ("goes by", "bypasses"),
    ("go by", "bypass"),
    ("bell", "notification, signal"),
    ("words behind", "options after"),
    ("belongs into", "belongs in"),
    ("is meant from", "is relative to"),
    ("times as long", "times faster or slower, with both figures"),
    ("sent again", "retransmitted"),
    ("some hundred", "several hundred"),
    ("hung up", "disconnected"),
    ("rules over", "overrides"),
    ("rule over", "override"),
    ("a second of a processor", "a CPU-second"),
    ("dearest", "most expensive"),
    ("invalid digit", "expected a whole number"),
    ("whose nic grosso", "at which Grosso acts as the NIC"),
    ("as the json has", "in the form of the JSON"),
    ("hosts of its own", "new hosts, which are removed afterwards"),
    ("in every try", "in every attempt"),
    ("nobody writes meanwhile", "nobody writes during the call"),
];

/// The files that contain the phrases in order to forbid them.
const LISTS: &[&str] =
    &["tests/tests/phrases.rs", "CONTRIBUTING.md", "crates/grosso-cli/src/usage.rs"];

#[test]
fn texts_have_no_phrases_that_stop_a_reader() {
    let mut wrong = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| is_prose(path)) {
        for (number, line) in text.lines().enumerate() {
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| has(path, line, phrase)) {
                wrong.push(format!("{}:{}: \"{phrase}\": {instead}", shown(path), number + 1));
            }
        }
    }
    assert_none(&wrong, "write the suggested words instead");
}

#[test]
fn a_phrase_is_found_in_prose_and_not_in_names() {
    let (rust, page) = (Path::new("a.rs"), Path::new("a.md"));
    assert!(has(rust, "    /// Opens So Many queues.", "so many"));
    assert!(has(rust, "    let text = \"so many\";", "so many"), "messages are checked too");
    assert!(has(rust, "    ring(); // The bell.", "bell"));
    assert!(!has(rust, "    let bell = Bell::new();", "bell"));
    assert!(!has(rust, "    /// A label, and `bell_of`.", "bell"));
    assert!(has(page, "| key | unsaid |", "unsaid"));
    assert!(!has(page, "labelled", "bell"));
}

/// Tests that the navigation of the site contains every page of `docs`, and that every entry of the navigation is a
/// page.
#[test]
fn the_site_leads_to_every_page() {
    let docs = root().join("docs");
    let navigation = read(&root().join("mkdocs.yml"));
    let entries = navigation.lines().filter_map(|line| line.split(": ").nth(1));
    let listed: BTreeSet<String> =
        entries.filter(|entry| entry.ends_with(".md")).map(str::to_owned).collect();
    let pages = files(&docs).into_iter().filter(|path| is_document(path));
    let pages: BTreeSet<String> = pages
        .map(|path| path.strip_prefix(&docs).expect("below docs").display().to_string())
        // The navigation omits the sources of rules.md, and the ADRs, which have their own index.
        .filter(|name| !name.starts_with("rules/"))
        .filter(|name| !name.starts_with("adr/") || name == "adr/README.md")
        .collect();
    let wrong: Vec<String> = pages.symmetric_difference(&listed).cloned().collect();
    assert_none(&wrong, "correct `nav` in mkdocs.yml");
    let index = read(&docs.join("index.md"));
    let missing = pages.iter().filter(|name| *name != "index.md");
    let missing: Vec<String> =
        missing.filter(|name| !index.contains(&format!("]({name})"))).cloned().collect();
    assert_none(&missing, "list it in docs/index.md");
}

/// Returns whether a line has a phrase. In Rust, a single word counts only in a comment.
fn has(path: &Path, line: &str, phrase: &str) -> bool {
    let line = match (is_rust(path) && !phrase.contains(' '), line.split_once("//")) {
        (true, Some((_, comment))) => comment,
        (true, None) => return false,
        (false, _) => line,
    };
    let line = line.to_lowercase();
    let is_boundary =
        |letter: Option<char>| !letter.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, _)| {
        is_boundary(line[..at].chars().next_back())
            && is_boundary(line[at + phrase.len()..].chars().next())
    })
}

/// Returns whether people read the file: a document, a source file with comments and messages, or a C header.
fn is_prose(path: &Path) -> bool {
    let is_list = LISTS.iter().any(|list| shown(path) == *list);
    let is_source = path.extension().is_some_and(|extension| extension == "h" || extension == "py");
    !is_list && (is_document(path) || is_rust(path) || is_source)
}
