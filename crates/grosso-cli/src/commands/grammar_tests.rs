//! Tests the grammar of the whole command line.

use clap::{CommandFactory, Parser};

use super::*;

#[test]
fn grammar_is_sound() {
    Arguments::command().debug_assert();
}

/// Calls a function for a command and for each of its subcommands.
fn walk(command: &mut clap::Command, visit: &mut dyn FnMut(&mut clap::Command)) {
    visit(command);
    command.get_subcommands_mut().for_each(|inner| walk(inner, visit));
}

#[test]
fn short_help_fits_on_a_screen() {
    for columns in [60, 80, 200] {
        let mut command = Arguments::command().term_width(columns);
        command.build();
        walk(&mut command, &mut |command| {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            let about = format!("{} at {columns} columns", command.get_name());
            assert!(lines <= SCREEN_LINES, "{about}: {lines} lines:\n{help}");
            // Usage lines are never broken, and neither is a word longer than a line.
            let is_usage = |line: &str| line.starts_with("Usage:") || line.contains(" grosso ");
            let sticks_out = |line: &&str| {
                let is_one_word = !line.trim_start().contains(' ');
                line.chars().count() > columns && !is_one_word && !is_usage(line)
            };
            let long = help.lines().find(sticks_out);
            assert_eq!(long, None, "{about}:\n{help}");
        });
    }
}

#[test]
fn capture_commands_share_arguments_that_no_other_command_has() {
    let mut command = Arguments::command();
    command.build();
    let mut on_captures = Vec::new();
    walk(&mut command, &mut |command| {
        let (name, usage) = (command.get_name().to_owned(), command.render_usage());
        let long = |letter: char| {
            let has = command.get_arguments().find(|one| one.get_short() == Some(letter))?;
            has.get_long().map(str::to_owned)
        };
        for (letter, word) in [('r', "read"), ('w', "write"), ('f', "filter")] {
            assert!(long(letter).is_none_or(|long| long == word), "{name} -{letter}");
        }
        if long('r').is_none() {
            return;
        }
        assert!(long('f').is_some(), "{name}");
        let usage = usage.to_string();
        let has_files = ["[FILE]...", "<FILE>..."].iter().any(|files| usage.contains(files));
        assert!(has_files, "{name}: {usage}");
        let words: Vec<_> = command.get_positionals().collect();
        assert!(matches!(words[..], [_]), "{name}: the captures are the only words");
        on_captures.push((name, long('w').is_some()));
    });
    let writing = |is_writing: bool| {
        let those = on_captures.iter().filter(|(_, writes)| *writes == is_writing);
        those.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let transforming = ["coalesce", "segment", "wire", "reassemble", "decap", "encap"];
    assert_eq!(writing(true), [&transforming[..], &["fragment", "fix"]].concat());
    let mut reporting = vec!["inspect", "verify", "explain"];
    reporting.extend(cfg!(feature = "parquet").then_some("export"));
    assert_eq!(writing(false), [&reporting[..], &["whatif"]].concat());
}

#[test]
fn options_of_some_commands_are_no_options_of_others() {
    let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
    for line in [
        "grosso dev lo --linktype raw",
        "grosso dev lo --strict",
        "grosso doctor --allow-truncated",
        "grosso doctor -v",
        "grosso inspect x --strict",
        "grosso bridge a b --strict",
        "grosso profiles -v",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let own = |line: &str| parse(line).unwrap().command.shared_options();
    assert!(own("grosso wire -r a -w b --strict").strictness.strict);
    assert!(own("grosso csum verify -r a -v --linktype raw").detail.verbose);
    assert!(own("grosso explain a 3 --allow-truncated").reading.unwrap().allow_truncated);
}

/// Number of lines on a tall terminal screen.
const SCREEN_LINES: usize = 48;
