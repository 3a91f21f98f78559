//! The conformance vectors in `vectors/`, for implementations that do not link Grosso. They are generated here from the
//! test kit's packets, and Grosso passes them. `docs/conformance.md` describes the files.

mod book;
mod checksum;
mod coalesce;
mod reassemble;
mod segment;
mod superframe;
mod tshark;

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use self::book::Pair;

const KINDS: [&str; 4] = ["coalesce", "segment", "reassemble", "checksum"];
/// Minimum number of vectors of all kinds together.
const VECTORS_MIN: usize = 120;

#[test]
fn the_files_are_what_this_program_makes() {
    for book in [coalesce::book(), segment::book(), reassemble::book(), checksum::book()] {
        book.assert_current();
    }
}

#[test]
fn grosso_passes_every_vector_in_the_files() {
    let checks = [
        coalesce::assert_passes,
        segment::assert_passes,
        reassemble::assert_passes,
        checksum::assert_passes,
    ];
    let mut vectors = 0;
    for (kind, assert_passes) in KINDS.into_iter().zip(checks) {
        let pair = Pair::read(kind);
        pair.vectors.iter().for_each(|vector| assert_passes(&pair, vector));
        vectors += pair.vectors.len();
    }
    assert!(vectors >= VECTORS_MIN, "{vectors} vectors");
}

#[test]
fn every_vector_has_a_name_of_its_own_and_rules_that_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let files = fs::read_dir(folder.join("docs/rules")).expect("the rules");
    let text: String =
        files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    let mut names = BTreeSet::new();
    for vector in KINDS.into_iter().flat_map(|kind| Pair::read(kind).vectors) {
        let name = vector["name"].as_str().expect("a name").to_owned();
        let rules = vector["rules"].as_array().expect("a list");
        let first = rules.first().and_then(Value::as_str).expect("a rule");
        let (letter, number) = first.split_at(1);
        let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let padded = format!("{}{:0>2}{}", letter.to_lowercase(), digits, &number[digits.len()..]);
        assert!(name.starts_with(&format!("{padded}_")), "{name} begins with no {padded}_");
        for rule in rules.iter().filter_map(Value::as_str) {
            assert!(text.contains(&format!("* **{rule}** ")), "{name}: no rule {rule}");
        }
        assert!(names.insert(name.clone()), "{name} is there twice");
    }
}
