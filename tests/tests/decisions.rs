//! Checks the ADRs: each title states a decision, the index lists every ADR, and if one changes another, they refer to
//! each other.

use std::collections::{BTreeMap, BTreeSet};

use super::tidy::{assert_none, files, read, root, shown};

/// Words with which a title may start.
const VERBS: &str = "\
    Accept Boot Build Busy-poll Check Classify Close Combine Compile Complete \
    Compute Confine Connect Count Decapsulate Derive Describe Detect Diagnose Dissect \
    Distribute Divide Do Drop End Evict Exchange Expand Export Feed Forward Generate Give \
    Hash Hide Identify Implement Infer Instantiate Keep Leave Let Limit List Make Measure Merge \
    Model Move Offer Optimize Pass Poll Port Predict Probe Process Provide Put Raise \
    Read Receive Recognize Record Remove Report Represent Resolve Restart Restore Reuse Run Scope Send \
    Serve Shard Share Signal Size Split Start State Store Test Track Treat Use Wrap Write";

/// A decision: a whole page, or a section of a page about one subject.
struct Decision {
    page: String,
    title: String,
    /// The lines between the title and the first paragraph with a label.
    head: String,
}

impl Decision {
    /// Returns the numbers after `words` in the same sentence of the head.
    fn numbers_after(&self, words: &[&str]) -> BTreeSet<String> {
        let sentences = self.head.split(". ");
        let listed = sentences.filter(|text| words.iter().any(|word| text.starts_with(word)));
        let parts = listed.flat_map(|text| text.split('[').skip(1));
        parts.filter_map(|part| Some(part.split_once("](")?.0.to_owned())).collect()
    }
}

#[test]
fn a_title_states_a_decision_and_is_in_the_index() {
    let index = read(&root().join("docs/adr/README.md"));
    let verbs: Vec<&str> = VERBS.split_whitespace().collect();
    let mut wrong = Vec::new();
    for (number, Decision { page, title, .. }) in decisions() {
        let verb = title.split(' ').next().unwrap_or_default();
        if !verbs.contains(&verb) {
            wrong.push(format!(
                "{page}: {number}. {title}: begin with a verb, and add it to the list"
            ));
        }
        let row =
            |line: &&str| line.starts_with(&format!("| [{number}](")) && line.contains(&title);
        if index.lines().filter(row).count() != 1 {
            wrong.push(format!("{page}: {number}. {title}: list it in docs/adr/README.md"));
        }
    }
    assert_none(&wrong, "a title is the decision");
}

#[test]
fn decisions_that_change_each_other_name_each_other() {
    let decisions = decisions();
    let numbers = |number: &str, words: &[&str]| {
        decisions.get(number).map(|decision| decision.numbers_after(words)).unwrap_or_default()
    };
    let mut wrong = Vec::new();
    let mut pairs = 0;
    for number in decisions.keys() {
        for (words, other_words) in [(AMENDED, AMENDS), (AMENDS, AMENDED)] {
            for other in numbers(number, words) {
                pairs += 1;
                if !numbers(&other, other_words).contains(number) {
                    wrong.push(format!("{other}: {} {number}", other_words[0]));
                }
            }
        }
    }
    assert_none(&wrong, "write below the title of the decision");
    assert!(pairs > 0, "no decision names another");
}

/// Returns all decisions, keyed by number.
fn decisions() -> BTreeMap<String, Decision> {
    let mut decisions = BTreeMap::new();
    for path in files(&root().join("docs/adr")) {
        let text = read(&path);
        let text = text.strip_prefix('#').unwrap_or(&text).replace("\n## ", "\n# ");
        for section in text.split("\n#") {
            let (title, rest) = section.trim_start().split_once("\n\n").unwrap_or_default();
            let Some((number, title)) = title.split_once(". ") else { continue };
            if number.len() != 4 || number.bytes().any(|byte| !byte.is_ascii_digit()) {
                continue;
            }
            let head = rest.split("* **").next().unwrap_or_default().replace('\n', " ");
            let decision = Decision { page: shown(&path), title: title.to_owned(), head };
            let earlier = decisions.insert(number.to_owned(), decision);
            assert!(earlier.is_none(), "{number} is the number of two decisions");
        }
    }
    decisions
}

const AMENDED: &[&str] = &["Amended by", "Replaced in part"];
const AMENDS: &[&str] = &["Amends"];
