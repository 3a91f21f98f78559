//! Colour, where it is wanted.

use clap::ValueEnum;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// Whether to colour a stream. An option rules over the environment, `CLICOLOR_FORCE` over
    /// `NO_COLOR` being absent (no-color.org, bixense.com/clicolors).
    pub(crate) fn decide(self, is_terminal: bool) -> bool {
        let is_set =
            |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != *"0");
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => {
                false
            }
            Self::Auto => is_set("CLICOLOR_FORCE") || is_terminal,
        }
    }
}

/// How to paint text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether to paint at all.
    pub(crate) color: bool,
}

impl Style {
    /// Text that should stand out.
    pub(crate) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Text that may be passed over.
    pub(crate) fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Something is wrong.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Something is worth knowing.
    pub(crate) fn notice(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Something is right.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }
}
