//! Errors in a text that the user wrote: their place, and the likely correction.

use core::{fmt, num::NonZeroU32, ops::Range};

use crate::error::TextPlace;

/// An error in a text, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) place: TextPlace,
    what: String,
}

impl Wrong {
    /// The error `what` in the bytes `span` of `text`.
    pub(crate) fn at(text: &str, span: Range<usize>, what: &str) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        // Some messages of the parser have several lines.
        let what = what.trim().replace('\n', "; ");
        // The line and column of a text that fits into memory fit into the numbers.
        let number = |count: usize| {
            u32::try_from(count)
                .map_or(NonZeroU32::MAX, |count| NonZeroU32::MIN.saturating_add(count))
        };
        let line = number(before.matches('\n').count());
        Self { place: TextPlace { line, column: number(column) }, what }
    }

    /// The parser's error about `text`.
    pub(crate) fn of_parser(text: &str, error: &toml::de::Error) -> Self {
        Self::at(text, error.span().unwrap_or(0..0), &with_suggestion(error.message()))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.place.line, self.place.column, self.what)
    }
}

/// The name that the user may have meant by a word.
pub(crate) fn similar<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}

/// The message that there is no key of this name, with the likely one, or all keys.
pub(crate) fn no_key(unknown: &str, known: &[&str]) -> String {
    match similar(unknown, known.iter().copied()) {
        Some(meant) => format!("no key \"{unknown}\"; did you mean {meant}?"),
        None => format!("no key \"{unknown}\" here; there are {}", known.join(", ")),
    }
}

/// A message about an unknown key with the likely one added; it names the known keys in backquotes.
pub(crate) fn with_suggestion(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    match names.next() {
        Some(unknown) if message.starts_with("unknown field") => {
            no_key(unknown, &names.collect::<Vec<_>>())
        }
        _ => message.to_owned(),
    }
}

/// The similarity (Jaro-Winkler) above which a name may have been meant.
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
}
