//! Reasons why a header cannot be parsed or written.

use core::fmt;

/// Error: a header is malformed, or does not fit into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// Name of the header: [`Kind::name`](crate::Kind::name) if the header has a kind.
    pub header: &'static str,
    /// Reason for the error.
    pub reason: Reason,
}

/// Reason why a header is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The bytes end inside the header, or the output buffer is too short.
    Short,
    /// The version field does not have the value that the header requires.
    Version,
    /// A length field is below its minimum, or too small for other fields.
    Length,
    /// An unknown flag that changes the layout is set.
    Flags,
    /// An option is truncated, or its length is below its minimum.
    Options,
    /// A value to be written does not fit into its field.
    Value,
}

impl Malformed {
    pub(crate) const fn new(header: &'static str, reason: Reason) -> Self {
        Self { header, reason }
    }
}

impl Reason {
    /// Returns the sentence at the end of [`Malformed`]'s `Display` text.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Short => "the header is truncated",
            Self::Version => "the version does not match this header",
            Self::Length => "a length field is below its minimum",
            Self::Flags => "an unknown flag could change the header layout",
            Self::Options => "an option extends beyond the options area",
            Self::Value => "a value does not fit its field",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {} header: {}", self.header, self.reason.describe())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::string::ToString;

    #[test]
    fn error_names_the_header_and_the_reason() {
        let error = Malformed::new("tcp", Reason::Length);
        assert_eq!(error.to_string(), "malformed tcp header: a length field is below its minimum");
        let boxed: std::boxed::Box<dyn core::error::Error> = error.into();
        assert!(boxed.source().is_none());
    }
}
