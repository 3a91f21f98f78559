//! Accepts options in any position, as in `grosso -r a.pcap wire -w b.pcap`.
//!
//! clap expects a subcommand before its options, so subcommand names are moved to the front before clap parses the
//! arguments. If the first argument is a file name instead of a subcommand, `inspect` is inserted before it.

use std::ffi::OsString;

use clap::Command;
use grosso_sys::path;

/// Moves the subcommands of `command` to the front of `arguments`, whose first element is the program name.
pub(crate) fn arrange(command: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let mut words = arguments;
    // Wireshark starts its capture sources with options but no subcommand.
    let is_asking = |word: &OsString| word.to_string_lossy().starts_with("--extcap-");
    if words.iter().any(is_asking) && !words.iter().any(|word| word == "extcap") {
        words.insert(1.min(words.len()), "extcap".into());
    }
    // clap's `help` takes no options.
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    let mut front = 1.min(words.len());
    let mut level = command;
    while let Some(found) = first_word(level, &words[front..]) {
        let at = front + found;
        match words[at].to_str().and_then(|name| level.find_subcommand(name)) {
            Some(inner) => {
                words[front..=at].rotate_right(1);
                level = inner;
                front += 1;
            }
            None => {
                if front == 1 && looks_like_file(&words[at]) {
                    words.insert(1, "inspect".into());
                }
                break;
            }
        }
        if !level.has_subcommands() {
            break;
        }
    }
    words
}

/// Returns the index of the first argument that is neither an option nor an option's value.
fn first_word(level: &Command, words: &[OsString]) -> Option<usize> {
    let mut takes_next = false;
    for (at, word) in words.iter().enumerate() {
        if core::mem::take(&mut takes_next) {
            continue;
        }
        let Some(word) = word.to_str() else { return Some(at) };
        match word {
            "--" => return None,
            "-" => return Some(at),
            _ if word.starts_with('-') => takes_next = wants_value(level, word),
            _ => return Some(at),
        }
    }
    None
}

/// Returns whether the option `word` takes the next argument as its value, in any subcommand.
fn wants_value(level: &Command, word: &str) -> bool {
    let is_it = |argument: &clap::Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        // In a cluster of short options, only the last one can take the next argument.
        None => argument.get_short() == word.chars().last(),
    };
    let has_value_inside = match word.strip_prefix("--") {
        Some(long) => long.contains('='),
        None => word.chars().nth(1).is_some_and(|first| {
            word.chars().count() > 2
                && all(level, &|a| a.get_short() == Some(first) && a.get_action().takes_values())
        }),
    };
    !has_value_inside && all(level, &|a| is_it(a) && a.get_action().takes_values())
}

/// Returns whether any argument of `level` or its subcommands satisfies `is_it`.
fn all(level: &Command, is_it: &dyn Fn(&clap::Arg) -> bool) -> bool {
    level.get_arguments().any(is_it) || level.get_subcommands().any(|inner| all(inner, is_it))
}

/// Returns whether an argument is a file name rather than a misspelled subcommand: it contains a dot or a slash, or the
/// file exists.
fn looks_like_file(word: &OsString) -> bool {
    let text = word.to_string_lossy();
    text == "-" || text.contains(['.', '/', '\\']) || path::input::is_there(word)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::arrange;
    use crate::commands::Arguments;

    fn arranged(line: &str) -> String {
        let words = line.split(' ').map(Into::into).collect();
        let command = Arguments::command();
        let words = arrange(&command, words);
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn wireshark_needs_no_command_argument() {
        let asked = "--capture --extcap-interface grosso-lo --fifo /tmp/wire";
        assert_eq!(arranged(&format!("grosso {asked}")), format!("grosso extcap {asked}"));
        assert_eq!(arranged(&format!("x extcap {asked}")), format!("x extcap {asked}"));
    }

    #[test]
    fn subcommands_come_first_in_any_order() {
        assert_eq!(arranged("grosso -r a -w b wire"), "grosso wire -r a -w b");
        assert_eq!(arranged("grosso -q -r wire -w b coalesce"), "grosso coalesce -q -r wire -w b");
        assert_eq!(arranged("grosso --json csum -r a verify"), "grosso csum verify --json -r a");
        assert_eq!(arranged("grosso -qr a csum verify"), "grosso csum verify -qr a");
        assert_eq!(arranged("grosso -ra wire -w b"), "grosso wire -ra -w b");
        assert_eq!(arranged("grosso --color=never wire"), "grosso wire --color=never");
    }

    #[test]
    fn file_alone_is_inspected() {
        assert_eq!(arranged("grosso send.pcap"), "grosso inspect send.pcap");
        assert_eq!(arranged("grosso --json send.pcap"), "grosso inspect --json send.pcap");
        assert_eq!(arranged("grosso help csum --color never"), "grosso csum --color never --help");
        assert_eq!(arranged("grosso --color never -"), "grosso inspect --color never -");
        assert_eq!(arranged("grosso insect"), "grosso insect");
    }

    #[test]
    fn nothing_behind_two_dashes_is_moved() {
        assert_eq!(arranged("grosso -q -- wire"), "grosso -q -- wire");
    }
}
