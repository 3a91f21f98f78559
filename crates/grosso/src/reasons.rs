//! Lists of named reasons and events. Each entry has a name, an explanation and an index.

/// Declares a list of reasons or events. Each variant has a name for reports and counters, and an explanation.
#[doc(hidden)]
#[macro_export]
macro_rules! reasons {
    ($(#[$doc:meta])* $list:ident { $($(#[doc = $sentence:literal])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $list {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl $list {
            /// All values, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Number of values, the length of [`Self::ALL`].
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the name in reports and counters: lower-case words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns one or two sentences that explain the value to users.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => concat!($($sentence),+).trim_ascii(),)+ }
            }

            /// Returns the index in [`Self::ALL`].
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        // Counters are named after reasons, so all names must use the same characters.
        const _: () = {
            let names = [$($name.as_bytes(),)+];
            let mut at = (0, 0);
            while at.0 < names.len() {
                let name = names[at.0];
                if at.1 == name.len() {
                    at = (at.0 + 1, 0);
                    continue;
                }
                assert!(
                    matches!(name[at.1], b'a'..=b'z' | b'0'..=b'9' | b'_'),
                    "a name has lower-case letters, digits and underscores"
                );
                at.1 += 1;
            }
        };

        impl core::fmt::Display for $list {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use reasons;
