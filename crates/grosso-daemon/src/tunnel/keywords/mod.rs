//! A table of all keywords: the spelling, the types that have the keyword, the values, and the conversion to tunnel
//! settings and back.
//!
//! | module | keywords |
//! |---|---|
//! | `identity` | the network identifier, and the mode |
//! | `peers` | addresses, and forwarding among several peers |
//! | `outer` | the outer IP header, and the path MTU |
//! | `gre` | the GRE header |
//! | `udp` | the UDP header of VXLAN and Geneve |
//! | `virtual_network` | the VXLAN and Geneve headers |
//! | `encap` | UDP around the other types |

use super::{
    description::Description,
    kind::Kind,
    value::{Form, Value},
    words::Words,
};

/// Declares the files of keywords, in output order.
macro_rules! keywords {
    ($($module:ident,)+) => {
        $(mod $module;)+

        /// Rows of all keywords, in output order.
        const ROWS: &[&[Keyword]] = &[$($module::ROWS,)+];
    };
}

keywords! {
    identity,
    peers,
    outer,
    gre,
    udp,
    virtual_network,
    encap,
}

/// Returns all keywords, in output order.
pub(super) fn rows() -> impl Iterator<Item = &'static Keyword> {
    ROWS.iter().copied().flatten()
}

/// Returns the names of all keywords, in output order.
pub fn keyword_names() -> impl Iterator<Item = &'static str> {
    rows().map(|row| row.name)
}

/// Returns lines of help with all keywords, their values and their defaults, grouped by the types that have them.
pub fn keyword_help() -> String {
    let mut groups: Vec<&[Kind]> = Vec::new();
    for row in rows() {
        if !groups.contains(&row.kinds) {
            groups.push(row.kinds);
        }
    }
    groups.sort_by_key(|kinds| core::cmp::Reverse(kinds.len()));
    let mut text = String::new();
    for kinds in groups {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let label = if kinds.len() == Kind::ALL.len() { "all".into() } else { names.join(", ") };
        let mut line = format!("  {label:<width$}", width = INDENT - 2);
        if line.len() > INDENT {
            text += &format!("{line}\n");
            line = " ".repeat(INDENT);
        }
        for row in rows().filter(|row| row.kinds == kinds && !row.usage.is_empty()) {
            if line.len() + row.usage.len() > COLUMNS {
                text += &format!("{}\n", line.trim_end());
                line = " ".repeat(INDENT);
            }
            line += &format!("{} ", row.usage);
        }
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// Column of keywords in help.
const INDENT: usize = 17;
/// Number of columns in a line of help.
const COLUMNS: usize = 79;

/// One keyword of the grammar.
pub(super) struct Keyword {
    /// Spelling on the command line, and name as a key of a file.
    pub(super) name: &'static str,
    /// The keyword with its value and its default, for help; empty if another row's text includes it.
    usage: &'static str,
    /// Other spellings that `ip` accepts.
    synonyms: &'static [&'static str],
    /// Types that have the keyword.
    pub(super) kinds: &'static [Kind],
    pub(super) form: Form,
    /// Whether `ip` prints the number in hexadecimal.
    is_hexadecimal: bool,
    /// The expected value, if the keyword is required.
    pub(super) required: Option<&'static str>,
    /// Description of the setting if other programs lack it; exports then leave it out with a note.
    pub(super) grosso_only: Option<&'static str>,
    /// Function that sets the value. All keywords that precede this one in the table have already been set.
    pub(super) set: fn(&mut Description, &Value),
    /// Function that returns a tunnel's value; `None` if the tunnel does not need the keyword.
    pub(super) get: fn(&Description) -> Option<Value>,
    /// Function that checks the value against the whole tunnel and all its keywords.
    pub(super) check: fn(&Description, &Value, &Words) -> Result<(), String>,
}

impl Keyword {
    const fn new(
        name: &'static str,
        usage: &'static str,
        kinds: &'static [Kind],
        form: Form,
        set: fn(&mut Description, &Value),
        get: fn(&Description) -> Option<Value>,
    ) -> Self {
        Self {
            name,
            usage,
            synonyms: &[],
            kinds,
            form,
            is_hexadecimal: false,
            required: None,
            grosso_only: None,
            set,
            get,
            check: |_, _, _| Ok(()),
        }
    }

    const fn synonyms(self, synonyms: &'static [&'static str]) -> Self {
        Self { synonyms, ..self }
    }

    const fn hexadecimal(self) -> Self {
        Self { is_hexadecimal: true, ..self }
    }

    const fn required(self, expected: &'static str) -> Self {
        Self { required: Some(expected), ..self }
    }

    const fn grosso_only(self, setting: &'static str) -> Self {
        Self { grosso_only: Some(setting), ..self }
    }

    const fn check(self, check: fn(&Description, &Value, &Words) -> Result<(), String>) -> Self {
        Self { check, ..self }
    }

    /// Returns the keyword with this name or synonym.
    pub(super) fn named(text: &str) -> Option<&'static Self> {
        rows().find(|row| row.names().any(|name| name == text))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once(self.name).chain(self.synonyms.iter().copied())
    }

    /// Returns the keyword with its value, as typed.
    pub(super) fn spell(&self, value: &Value) -> String {
        match value {
            Value::Switch(true) => self.name.to_owned(),
            Value::Switch(false) => format!("no{}", self.name),
            Value::Number(number) if self.is_hexadecimal => format!("{} {number:#x}", self.name),
            value => {
                let spelt = value.parts().map(|part| format!("{} {part}", self.name));
                spelt.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Returns a value if the switch is on.
fn switched_on(is_on: bool) -> Option<Value> {
    is_on.then_some(Value::Switch(true))
}

/// Returns a value if the switch is off.
fn switched_off(is_on: bool) -> Option<Value> {
    (!is_on).then_some(Value::Switch(false))
}
