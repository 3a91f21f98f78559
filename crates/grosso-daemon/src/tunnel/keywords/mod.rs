//! Every keyword, once: its spelling, the types that have it, its values, and how it sets and reads a tunnel.
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

mod encap;
mod gre;
mod identity;
mod outer;
mod peers;
mod udp;
mod virtual_network;

use super::{
    description::Description,
    kind::Kind,
    value::{Form, Value},
    words::Words,
};

/// Rows of all keywords, in output order.
const ROWS: &[&[Keyword]] = &[
    identity::ROWS,
    peers::ROWS,
    outer::ROWS,
    gre::ROWS,
    udp::ROWS,
    virtual_network::ROWS,
    encap::ROWS,
];

/// Returns all keywords, in output order.
pub(super) fn rows() -> impl Iterator<Item = &'static Keyword> {
    ROWS.iter().copied().flatten()
}

/// Returns the names of all keywords, in output order.
pub fn word_names() -> impl Iterator<Item = &'static str> {
    rows().map(|row| row.name)
}

/// One keyword of the grammar.
pub(super) struct Keyword {
    /// Spelling on the command line, and name as a key of a file.
    pub(super) name: &'static str,
    /// Other spellings that `ip` accepts.
    synonyms: &'static [&'static str],
    /// Types that have the keyword.
    pub(super) kinds: &'static [Kind],
    pub(super) form: Form,
    /// Whether `ip` prints the number in hexadecimal.
    is_hexadecimal: bool,
    /// The expected value, if the keyword is required.
    pub(super) required: Option<&'static str>,
    /// Function that sets the value, which has this form. Keywords before this one in the table are already set.
    pub(super) set: fn(&mut Description, &Value),
    /// Function that returns the value in a tunnel; `None` if the tunnel does not need the keyword.
    pub(super) get: fn(&Description) -> Option<Value>,
    /// Function that checks the value against the whole tunnel and all its keywords.
    pub(super) check: fn(&Description, &Value, &Words) -> Result<(), String>,
}

impl Keyword {
    const fn new(
        name: &'static str,
        kinds: &'static [Kind],
        form: Form,
        set: fn(&mut Description, &Value),
        get: fn(&Description) -> Option<Value>,
    ) -> Self {
        Self {
            name,
            synonyms: &[],
            kinds,
            form,
            is_hexadecimal: false,
            required: None,
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
