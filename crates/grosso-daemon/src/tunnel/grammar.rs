//! The grammar of `ip link add NAME type ...`: a type, and keywords with values. Converts keywords to a tunnel, and a
//! tunnel to keywords.

use core::fmt;

use super::{
    description::Description,
    keywords::{Keyword, keyword_names, rows},
    value::Value,
    words::Words,
};
use crate::wrong::similar;

impl Words {
    /// Parses the tunnel type and the keywords after it.
    ///
    /// # Errors
    /// Returns a message that describes the error, and suggests a correction.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Self, String> {
        let mut rest = arguments.iter().map(AsRef::as_ref).peekable();
        let kind = rest.next().ok_or("type is missing; expected vxlan, geneve, gre, ipip, ...")?;
        let mut words = Self::new(kind.parse()?);
        while let Some(text) = rest.next() {
            if AS_IT_IS.contains(&text) {
                continue;
            }
            let (word, is_on) = words.find(text)?;
            let mut values: Vec<&str> = rest.by_ref().take(word.form.count()).collect();
            if values.len() < word.form.count() {
                return Err(format!("{text} needs {}", word.form));
            }
            if is_on {
                values.extend(rest.next_if(|next| word.form.wants(next)));
            }
            words.parse_value(word, is_on, &values)?;
        }
        Ok(words)
    }

    /// Returns the keyword that `text` names, and whether `text` turns it on.
    fn find(&self, text: &str) -> Result<(&'static Keyword, bool), String> {
        if let Some(word) = Keyword::named(text) {
            return self.fits(word, text).map(|()| (word, true));
        }
        let positive = text.strip_prefix("no").and_then(Keyword::named);
        match positive {
            Some(word) if word.form.is_switch() => self.fits(word, text).map(|()| (word, false)),
            _ => Err(self.unknown(text)),
        }
    }

    fn fits(&self, word: &Keyword, text: &str) -> Result<(), String> {
        if word.kinds.contains(&self.kind) {
            return Ok(());
        }
        let kinds: Vec<&str> = word.kinds.iter().map(|kind| kind.name()).collect();
        Err(format!(
            "option `{text}` applies only to {}, not to {}",
            kinds.join(", "),
            self.kind.name()
        ))
    }

    fn unknown(&self, text: &str) -> String {
        let bare = text.strip_prefix("no").unwrap_or(text);
        if let Some((_, why)) = ELSEWHERE.iter().find(|(word, _)| *word == text || *word == bare) {
            return format!("{text}: {why}");
        }
        let fitting = || rows().filter(|word| word.kinds.contains(&self.kind));
        let negative = |word: &Keyword| word.form.is_switch().then(|| format!("no{}", word.name));
        let names: Vec<String> = fitting()
            .flat_map(|word| word.names().map(str::to_owned).chain(negative(word)))
            .collect();
        match similar(text, names.iter().map(String::as_str)) {
            Some(meant) => format!("no option \"{text}\"; did you mean {meant}?"),
            None => {
                let names: Vec<&str> = fitting().map(|word| word.name).collect();
                let kind = self.kind.name();
                format!("{kind} has no option \"{text}\"; options are {}", names.join(", "))
            }
        }
    }

    /// Adds a keyword with its value.
    ///
    /// # Errors
    /// Fails if the type does not have the keyword.
    pub(super) fn take(&mut self, word: &'static Keyword, value: Value) -> Result<(), String> {
        self.fits(word, word.name)?;
        self.insert(word, value)
    }

    fn parse_value(
        &mut self,
        word: &'static Keyword,
        is_on: bool,
        values: &[&str],
    ) -> Result<(), String> {
        let value = match (word.form.is_switch(), is_on, values) {
            (true, false, []) => Value::Switch(false),
            _ => word.form.read(values).map_err(|why| format!("{}: {why}", word.name))?,
        };
        self.insert(word, value)
    }

    fn insert(&mut self, word: &'static Keyword, value: Value) -> Result<(), String> {
        let together = self.values.get(word.name).and_then(|said| said.and(&value));
        if let Some(together) = together {
            self.values.insert(word.name, together);
            return Ok(());
        }
        match self.values.insert(word.name, value.clone()) {
            None => Ok(()),
            Some(before) if before == value => Err(format!("{} is set twice", word.name)),
            Some(before) => {
                let [before, value] = [before, value].map(|value| word.spell(&value));
                Err(format!("{before} and {value} cannot be combined"))
            }
        }
    }

    /// Adds a keyword with a value that is known to be valid.
    pub(super) fn put(&mut self, row: &'static Keyword, value: Value) {
        self.values.insert(row.name, value);
    }

    /// Checks that every required keyword of the type is present.
    pub(super) fn check_required(&self) -> Result<(), String> {
        let fitting = rows().filter(|row| row.kinds.contains(&self.kind));
        let missing = fitting.filter(|row| !self.values.contains_key(row.name));
        match missing.filter_map(|row| Some((row.name, row.required?))).next() {
            Some((name, expected)) => Err(format!("{name} is missing: expected {expected}")),
            None => Ok(()),
        }
    }

    /// Returns the keywords with their values, in the order of the table.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Keyword, &Value)> {
        rows().filter_map(|word| Some((word, self.values.get(word.name)?)))
    }
}

/// Prints the keywords after `type`.
impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind.name())?;
        self.iter().try_for_each(|(word, value)| write!(formatter, " {}", word.spell(value)))
    }
}

impl TryFrom<&Words> for Description {
    type Error = String;

    fn try_from(words: &Words) -> Result<Self, String> {
        words.check_required()?;
        let mut description = Self::new(words.kind);
        words.iter().for_each(|(row, value)| (row.set)(&mut description, value));
        description.set_default_port();
        words.iter().try_for_each(|(row, value)| (row.check)(&description, value, words))?;
        description.endpoint.check().map_err(|contradiction| contradiction.to_string())?;
        Ok(description)
    }
}

impl Description {
    /// Returns the keywords that describe the tunnel, including those with default values.
    pub fn words(&self) -> Words {
        let mut words = Words::new(self.kind);
        for row in rows().filter(|row| row.kinds.contains(&self.kind)) {
            if let Some(value) = (row.get)(self) {
                words.put(row, value);
            }
        }
        words
    }
}

/// Prints the keywords after `type`.
impl fmt::Display for Description {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(formatter)
    }
}

/// Returns the message for an unknown key, which suggests the most similar key.
pub(super) fn no_such_key(name: &str) -> String {
    if let Some(word) = name.strip_prefix("no").and_then(Keyword::named)
        && word.form.is_switch()
    {
        return format!("no key \"{name}\"; use {} = false", word.name);
    }
    match similar(name, keyword_names().chain(["type"])) {
        Some(meant) => format!("no key \"{name}\"; did you mean {meant}?"),
        None => format!("tunnels have no key \"{name}\"; keys are the options of ip link"),
    }
}

/// Keywords of `ip link` that are not supported, with the reason or the alternative.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "group",
        "multicast is not supported: list each peer with remote; multicast packets are sent to all of them",
    ),
    (
        "dev",
        "not supported: routes choose the interface for outgoing packets (ip route add REMOTE dev IFACE)",
    ),
    ("external", "not supported: the options apply to the tunnel, not to single packets"),
    ("vnifilter", "not supported: a tunnel has one id"),
    ("proxy", "not supported: address resolution is left to the peer"),
    ("rsc", "not supported: packets are not routed"),
    ("l2miss", "not supported: packets to unknown addresses go to all peers"),
    ("l3miss", "not supported: packets to unknown addresses go to all peers"),
    ("fwmark", "not supported: packets are not marked"),
    ("6rd-prefix", "6rd derives peers from addresses, which is not supported: set remote"),
    ("isatap", "ISATAP derives peers from addresses, which is not supported: set remote"),
];

/// Keywords of `ip link` for behavior that cannot be changed here. They are accepted because `ip` prints them.
const AS_IT_IS: &[&str] =
    &["noproxy", "norsc", "nol2miss", "nol3miss", "noexternal", "novnifilter", "noencap"];

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
