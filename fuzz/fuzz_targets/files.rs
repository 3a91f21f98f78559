//! Parsers for files and replies that Grosso wrote but others may have changed: keys, sequence numbers and counters;
//! and the parser for the output of a program under test. A sequence file that is truncated at any position is
//! rejected, so that no used number counts as unused.

use std::{env, fs, path::PathBuf, process};

use grosso_cli::fuzzing;
use grosso_io::stage::SequenceFile;

/// Fingerprint of the keys in the seed inputs.
const KEYS: u128 = 0xfeed;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    match kind % 4 {
        0 => {
            let keys = fuzzing::keys(text);
            assert_eq!(fuzzing::keys(&[b"# a comment\n", text].concat()), keys);
        }
        1 => fuzzing::answer(text),
        2 => fuzzing::records(text),
        _ => sequence_numbers(text),
    }
}

fn sequence_numbers(text: &[u8]) {
    let path = File(env::temp_dir().join(format!("grosso-fuzz-{}", process::id())));
    let accepts = |text: &[u8]| {
        fs::write(&path.0, text).expect("a folder for temporary files");
        SequenceFile::check(&path.0, KEYS).is_ok()
    };
    if accepts(text) {
        assert!(
            (0..text.len()).all(|len| !accepts(&text[..len])),
            "a part of the file is accepted as the whole"
        );
    }
}

/// A file that is removed on drop.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
