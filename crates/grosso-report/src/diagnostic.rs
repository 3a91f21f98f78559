//! Describes errors in text written by the user: what is wrong, where, and the likely correction.

use core::{fmt, num::NonZeroU32, ops::Range};

use crate::error::TextPlace;

/// Error in user-written text, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Line and column of the error.
    pub place: TextPlace,
    what: String,
}

impl Wrong {
    /// Creates an error with the message `what` about the bytes `span` of `text`.
    pub fn at(text: &str, span: Range<usize>, what: &str) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        // Some parser messages span several lines.
        let what = what.trim().replace('\n', "; ");
        // Line and column numbers fit into 32 bits if the text fits into memory.
        let number = |count: usize| {
            u32::try_from(count)
                .map_or(NonZeroU32::MAX, |count| NonZeroU32::MIN.saturating_add(count))
        };
        let line = number(before.matches('\n').count());
        Self { place: TextPlace { line, column: number(column) }, what }
    }

    /// Converts an error that the TOML parser reports for `text`.
    pub fn of_parser(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().unwrap_or(0..0), &readable(error.message()))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.place.line, self.place.column, self.what)
    }
}

/// Returns the name that the user probably meant by `word`.
pub fn similar<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// Returns the message for an unknown key, which suggests a similar key or lists all known keys.
pub fn no_key(unknown: &str, known: &[&str]) -> String {
    match similar(unknown, known.iter().copied()) {
        Some(meant) => format!("no key \"{unknown}\"; did you mean {meant}?"),
        None => format!("no key \"{unknown}\"; known keys: {}", known.join(", ")),
    }
}

/// Rewrites a TOML parser message without Rust type names: "invalid type: string "on", expected a boolean" becomes
/// "expected true or false, found "on"". For an unknown key, suggests a similar known one.
pub fn readable(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let rest_of = |start: &str| message.strip_prefix(start);
    if rest_of("unknown field").is_some() {
        let unknown = quoted.next().unwrap_or_default();
        return no_key(unknown, &quoted.collect::<Vec<_>>());
    }
    if rest_of("unknown variant").is_some() {
        let unknown = quoted.next().unwrap_or_default();
        return format!(
            "unknown value \"{unknown}\"; expected {}",
            one_of(&quoted.collect::<Vec<_>>())
        );
    }
    if rest_of("missing field").is_some() {
        return format!("missing key \"{}\"", quoted.next().unwrap_or_default());
    }
    let found = rest_of("invalid type: ").or_else(|| rest_of("invalid value: "));
    match found.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some(("map", "a sequence")) => {
            "expected a list of tables, found a table: write [[NAME]] instead of [NAME]".into()
        }
        Some((found, expected)) => {
            format!("expected {}, found {}", type_name(expected), value_name(found))
        }
        None if message.starts_with("string values must be quoted") => {
            "expected a value; a string needs quotes".into()
        }
        None if message == "invalid socket address syntax" => {
            "expected an address and a port, for example \"127.0.0.1:9000\"".into()
        }
        None if message == "invalid IP address syntax" => {
            "expected an IP address, for example \"192.0.2.7\" or \"fd00::7\"".into()
        }
        None => message.to_owned(),
    }
}

/// Returns a value without the name of its Rust type: "integer `5`" becomes "5".
fn value_name(found: &str) -> String {
    match found {
        "map" => return "a table".into(),
        "sequence" => return "a list".into(),
        _ => {}
    }
    let kinds = ["string ", "integer ", "floating point ", "boolean "];
    let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
    value.replace('`', "")
}

/// Formats a list of alternatives: "a, b or c".
fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// Returns the name that TOML's documentation uses for a Rust type.
fn type_name(expected: &str) -> String {
    let most = match expected {
        "a boolean" => return "true or false".into(),
        "a sequence" => return "a list".into(),
        "a map" => return "a table".into(),
        "socket address" | "IPv4 address" | "IPv6 address" | "IP address" => {
            return format!("an {}", expected.replace("socket address", "address and a port"));
        }
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => return "a non-negative whole number".into(),
        "i32" | "i64" => return "a whole number".into(),
        "f32" | "f64" => return "a number".into(),
        name if name.starts_with("struct ") => return "a table".into(),
        other => return other.replace('`', ""),
    };
    format!("a whole number from 0 to {most}")
}

/// Minimum Jaro-Winkler similarity at which a name is suggested for an unknown word.
const SIMILAR: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_similar_is_meant_and_what_is_not_is_not() {
        let names = || ["rx-gro", "rx-udp-gro-forwarding", "tx-udp-segmentation"].into_iter();
        assert_eq!(similar("rx-udp-gro-fwd", names()), Some("rx-udp-gro-forwarding"));
        assert_eq!(similar("warp-drive", names()), None);
    }

    #[test]
    fn messages_of_the_parser_name_no_types_of_rust() {
        for (message, expected) in [
            ("missing field `right`", "missing key \"right\""),
            (
                "invalid type: string \"on\", expected a boolean",
                "expected true or false, found \"on\"",
            ),
            (
                "invalid value: integer `70000`, expected u16",
                "expected a whole number from 0 to 65535, found 70000",
            ),
            ("invalid type: integer `1`, expected struct PathTable", "expected a table, found 1"),
            (
                "invalid type: floating point `1.5`, expected socket address",
                "expected an address and a port, found 1.5",
            ),
            (
                "invalid type: map, expected a sequence",
                "expected a list of tables, found a table: write [[NAME]] instead of [NAME]",
            ),
            ("invalid type: sequence, expected a string", "expected a string, found a list"),
            (
                "string values must be quoted, expected literal string",
                "expected a value; a string needs quotes",
            ),
            (
                "unknown variant `beet`, expected `transport` or `tunnel`",
                "unknown value \"beet\"; expected transport or tunnel",
            ),
            (
                "unknown variant `x`, expected one of `a`, `b`, `c`",
                "unknown value \"x\"; expected a, b or c",
            ),
            (
                "unknown field `rx-usec`, expected `rx-usecs`",
                "no key \"rx-usec\"; did you mean rx-usecs?",
            ),
        ] {
            assert_eq!(readable(message), expected);
        }
    }
}
