//! The keywords that describe a tunnel, with their values.

use std::collections::BTreeMap;

use super::{kind::Kind, value::Value};

/// The keywords that describe a tunnel, each at most once. The table in `keywords` gives their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub(super) kind: Kind,
    pub(super) values: BTreeMap<&'static str, Value>,
}

impl Words {
    /// Creates an empty list for a tunnel of this type.
    pub(super) const fn new(kind: Kind) -> Self {
        Self { kind, values: BTreeMap::new() }
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub(super) fn switch(&self, name: &str) -> Option<bool> {
        match self.value(name) {
            Some(Value::Switch(is_on)) => Some(*is_on),
            _ => None,
        }
    }
}
