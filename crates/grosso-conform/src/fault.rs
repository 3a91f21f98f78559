//! Laws that a program under test must obey, and violations of them.

use schemars::JsonSchema;
use serde::Serialize;

/// Law that a program can violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Law {
    /// No packet is lost.
    Lost,
    /// No packet is added.
    Added,
    /// No packet is changed.
    Changed,
    /// Packets of the same flow are not reordered.
    Order,
    /// Packets that the rules exclude from merging are left unmerged.
    Apart,
    /// A wrong checksum is not marked as verified.
    Vouched,
    /// The virtio header describes the frame correctly.
    Header,
    /// The program runs, answers, and exits.
    Program,
}

impl Law {
    /// Returns the law's name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Order => "order",
            Self::Apart => "apart",
            Self::Vouched => "vouched",
            Self::Header => "header",
            Self::Program => "program",
        }
    }
}

/// Violation of a law.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Fault {
    pub law: Law,
    /// Rules on which the law is based.
    pub rules: Vec<String>,
    pub text: String,
}
