//! Writes error messages about the command line. They are clap's messages rewritten as sentences, without the wording
//! of Rust's parsers.

use std::error::Error as _;

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Returns the message for an error, with a hint on a separate line; `None` for help and version, which are not errors.
/// `grosso` contains the grammar and help of all commands.
pub(crate) fn message(error: &clap::Error, grosso: &Command) -> Option<String> {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").filter(|_| error.use_stderr())?;
    let text = text.trim_end().replace("\n  tip: ", "\nhint: ");
    Some(match error.kind() {
        ErrorKind::MissingRequiredArgument => missing(error, grosso).unwrap_or(text),
        ErrorKind::UnknownArgument => named_otherwise(error).unwrap_or(text),
        ErrorKind::ValueValidation => match error.source().map(ToString::to_string) {
            Some(reason) => text.replacen(&reason, &sentence(&reason), 1),
            None => text,
        },
        _ => text,
    })
}

/// Returns a message that names the right option, if an argument is a configuration key that `bridge` calls something
/// else.
fn named_otherwise(error: &clap::Error) -> Option<String> {
    let ContextValue::String(option) = error.get(ContextKind::InvalidArg)? else { return None };
    let usage = error.get(ContextKind::Usage)?.to_string();
    let (_, instead) = KEYS.iter().find(|(key, _)| option == key)?;
    let is_of_bridge = usage.contains("grosso bridge ");
    is_of_bridge.then(|| format!("bridge: no option {option}\nhint: use {instead}"))
}

/// Configuration keys, and the `bridge` options that set the same values.
const KEYS: [(&str, &str); 4] = [
    ("--rx-usecs", "--hold TIME, for example --hold 20us"),
    ("--adaptive-rx", "--hold auto"),
    ("--gro", "--no-coalesce to disable merging"),
    ("--promisc", "--no-promisc to ignore frames for other hosts"),
];

/// Returns the message for missing arguments, with an example.
fn missing(error: &clap::Error, grosso: &Command) -> Option<String> {
    let ContextValue::Strings(names) = error.get(ContextKind::InvalidArg)? else { return None };
    let usage = error.get(ContextKind::Usage)?.to_string();
    let (path, example) = example(&usage, grosso);
    let names: Vec<String> = names.iter().map(|name| alternatives(name)).collect();
    Some(format!("{path}: missing {}\nhint: {example}", names.join(" and ")))
}

/// Returns the name of a missing argument. For a group such as `<--write <FILE>|--to <DEV>>`, returns its options.
fn alternatives(name: &str) -> String {
    match name.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
        Some(options) if options.starts_with('-') => {
            format!("one of {}", options.split('|').collect::<Vec<_>>().join(", "))
        }
        _ => name.to_owned(),
    }
}

/// Returns the command in a usage line, without `grosso`, and an example. The example is the first one in the help of
/// the command or of its parent command. If neither contains an example, the usage line is returned instead.
fn example(usage: &str, grosso: &Command) -> (String, String) {
    let usage = usage.trim().trim_start_matches("Usage: ").lines().next().unwrap_or_default();
    let mut commands = vec![grosso.clone()];
    let mut path = Vec::new();
    for word in usage.split(' ').skip(1) {
        let Some(inner) = commands.last().and_then(|command| command.find_subcommand(word)) else {
            break;
        };
        path.push(word.to_owned());
        commands.push(inner.clone());
    }
    let path = path.join(" ");
    let example = commands.iter().rev().find_map(|command| first_example(command, &path));
    (path, example.unwrap_or_else(|| usage.to_owned()))
}

/// Returns the first line in a command's help that calls the command, without the explanation that follows it.
fn first_example(command: &Command, path: &str) -> Option<String> {
    let help = command.get_after_long_help()?.to_string();
    let call = format!("grosso {path} ");
    let line = help.lines().find(|line| line.starts_with("  ") && line.contains(&call))?;
    let line = line.trim().trim_end_matches('\\');
    let end = line.find("   ").unwrap_or(line.len());
    Some(line[..end].trim_end().to_owned())
}

/// Rewrites a reason from the standard library's or clap's parsers as a sentence. Other reasons stay unchanged.
fn sentence(reason: &str) -> String {
    let expected = match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number"
        }
        "number too large to fit in target type" => "a smaller number",
        "number too small to fit in target type" => "a non-negative number",
        "invalid float literal" | "cannot parse float from empty string" => "a number",
        "invalid IP address syntax" => "an IP address such as 192.0.2.7 or fd00::7",
        "invalid socket address syntax" => {
            "an address and a port such as 127.0.0.1:9000 or [::1]:9000"
        }
        _ => return in_range(reason).unwrap_or_else(|| reason.to_owned()),
    };
    format!("expected {expected}")
}

/// Returns a sentence for a reason such as "100000 is not in 1..=65535".
fn in_range(reason: &str) -> Option<String> {
    let (_, range) = reason.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    // A bound of 2^63 or more comes from the type, not from the option.
    let most =
        most.trim_start_matches('=').parse::<u64>().ok().filter(|most| *most < i64::MAX as u64);
    Some(match (least, most) {
        ("", Some(most)) => format!("expected at most {most}"),
        (least, Some(most)) => format!("expected a number from {least} to {most}"),
        (least, None) => format!("expected at least {least}"),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Arguments;

    fn said(line: &str) -> String {
        let command = Arguments::command();
        let error = command.clone().try_get_matches_from(line.split(' ')).unwrap_err();
        message(&error, &command).unwrap()
    }

    #[test]
    fn values_that_do_not_parse_are_answered_by_what_is_expected() {
        for (line, reason) in [
            ("grosso fragment a --mtu abc", "expected a whole number"),
            ("grosso fragment a --mtu 100000", "expected a number from 68 to 65535"),
            ("grosso capture -i lo -w x -c 0", "expected at least 1"),
            ("grosso coalesce a --tunnels 300", "expected a number from 0 to 255"),
            ("grosso bridge a b --metrics here", "expected an address and a port"),
            ("grosso bridge a b --rx -1", "unexpected argument '-1'"),
            ("grosso bridge a b --rx 1.5", "expected a whole number"),
            ("grosso config esp --here x --key-file y", "expected an IP address such as"),
        ] {
            let said = said(line);
            assert!(said.contains(reason), "{line}: {said}");
            assert!(!said.contains("digit") && !said.contains("..="), "{said}");
        }
    }

    #[test]
    fn keys_of_files_lead_to_the_options_of_the_command_line() {
        let expected =
            "bridge: no option --rx-usecs\nhint: use --hold TIME, for example --hold 20us";
        assert_eq!(said("grosso bridge a b --rx-usecs 20"), expected);
        assert!(said("grosso bridge a b --adaptive-rx").ends_with("hint: use --hold auto"));
        assert!(said("grosso coalesce a --rx-usecs 20").starts_with("unexpected argument"));
    }

    #[test]
    fn missing_arguments_are_named_with_an_example() {
        for (line, expected) in [
            (
                "grosso fragment a.pcap",
                "fragment: missing --mtu <BYTES>\nhint: grosso fragment -r big.pcap -w fragments.pcap --mtu 1280",
            ),
            (
                "grosso bridge eth1",
                "bridge: missing <B>\nhint: sudo grosso bridge eth1 tap:grosso0",
            ),
            (
                "grosso profiles show",
                "profiles show: missing <NAME|FILE.toml>\nhint: grosso profiles show inet-lro > mine.toml",
            ),
            (
                "grosso config check",
                "config check: missing <FILE.toml>\nhint: grosso config check edge.toml",
            ),
            ("grosso tunnel up", "tunnel up: missing <NAME>\nhint: sudo grosso tunnel up gue0"),
            (
                "grosso capture",
                "capture: missing --interface <IFACE> and one of --write <FILE>, --listen <ADDRESS:PORT>, --to <DEV>, \
                 --list-interfaces\nhint: sudo grosso capture -i eth0 -w send.pcapng",
            ),
        ] {
            assert_eq!(said(line), expected);
        }
    }
}
