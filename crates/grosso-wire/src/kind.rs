//! Kinds of headers.

use core::fmt;

use crate::registry::registry;

/// Declares the kinds of headers.
macro_rules! kinds {
    ($($module:ident { $($kind:ident = $spec:ident, $sentence:literal;)* })+) => {
        /// Kind of header.
        ///
        /// The type is two bytes long, so that [`Layer`](crate::Layer) has no padding and wide stores can initialize an
        /// empty [`Stack`](crate::Stack).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[doc = $sentence] $kind,)*)+
        }

        impl Kind {
            /// All kinds, in the order of the registry.
            pub const ALL: &'static [Self] = &[$($(Self::$kind,)*)+];
        }
    };
}

registry!(kinds);

/// Returns Ethernet, the first header of most frames.
impl Default for Kind {
    fn default() -> Self {
        Self::Ethernet
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
