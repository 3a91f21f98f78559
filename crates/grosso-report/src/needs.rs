//! Sets of capabilities needed by commands.

/// Set of relevant capabilities: bit `n` is the capability at index `n` of [`CAPABILITIES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u8);

impl Needs {
    /// Empty set.
    pub const NONE: Self = Self(0);

    /// Returns the capabilities with these names. Unknown names are ignored.
    pub fn of(names: &[&str]) -> Self {
        let has = |name: &str| names.contains(&name);
        let bits = CAPABILITIES.iter().enumerate().filter(|(_, (_, name))| has(name));
        Self(bits.fold(0, |all, (place, _)| all | 1 << place))
    }

    /// Returns the union of the two sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the capabilities that are in this set but not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the names of the capabilities in the set.
    pub fn names(self) -> Vec<&'static str> {
        let all = CAPABILITIES.iter().enumerate();
        all.filter(|(place, _)| self.0 & 1 << place != 0).map(|(_, (_, name))| *name).collect()
    }
}

/// Relevant capabilities, with their numbers and their names in capabilities(7).
pub const CAPABILITIES: [(u32, &str); 4] =
    [(12, "net_admin"), (13, "net_raw"), (21, "sys_admin"), (39, "bpf")];
