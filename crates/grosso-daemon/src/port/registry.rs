//! The macro that lists the kinds of ports, and a description of each kind for documents and messages.

use core::fmt;
use std::{str::FromStr, sync::LazyLock};

use grosso_sys::interface::InterfaceName;

use super::{
    DEFAULT, Device,
    kind::PortKind,
    setting::{PortKey, PortSetting, SettingFacts},
};

/// Declares a module for each kind of port, the enum [`Device`] with a variant for each kind, and the functions that
/// need the whole list.
macro_rules! devices {
    ($($module:ident: $device:ident { $($variant:ident = $kind:ident, $sentence:literal;)* })+) => {
        $(mod $module; pub use self::$module::$device;)+

        /// A device, as the user names it, with its options.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Device {
            $($(#[doc = $sentence] $variant($device),)*)+
            /// A tunnel endpoint, which only configuration files can describe.
            Tunnel(Box<$crate::tunnel::Description>),
        }

        impl Device {
            /// Parses a name; `None` if no kind of port has this word.
            fn of_kind(word: &str, rest: &str) -> Option<Result<Self, String>> {
                $($(if word == $module::$kind.word {
                    return Some(($module::$kind.parse)(rest).map(Self::$variant));
                })*)+
                None
            }

            /// Returns the properties that all devices have.
            pub fn port(&self) -> &dyn PortDevice {
                match self {
                    $($(Self::$variant(device) => device,)*)+
                    Self::Tunnel(description) => &**description,
                }
            }

            /// Sets an option; `None` if the kind of port does not have it.
            fn set(&mut self, name: &str, value: SettingValue) -> Option<Result<(), String>> {
                match self {
                    $($(Self::$variant(device) => {
                        setting::PortSetting::set($module::$kind.settings, device, name, value)
                    })*)+
                    Self::Tunnel(_) => None,
                }
            }

            /// Returns the description of each kind of port for documents and messages.
            fn kinds() -> Vec<registry::KindFacts> {
                vec![$($(registry::KindFacts::of(&$module::$kind),)*)+]
            }
        }
    };
}

pub(super) use devices;

/// Description of a kind of port, for documents and messages.
pub(super) struct KindFacts {
    pub(super) word: &'static str,
    pub(super) forms: &'static [&'static str],
    pub(super) examples: &'static str,
    pub(super) meaning: &'static str,
    pub(super) settings: Vec<SettingFacts>,
}

impl KindFacts {
    pub(super) fn of<D>(kind: &PortKind<D>) -> Self {
        Self {
            word: kind.word,
            forms: kind.forms,
            examples: kind.examples,
            meaning: kind.meaning,
            settings: kind.settings.iter().map(PortSetting::facts).collect(),
        }
    }
}

/// Descriptions of all kinds of ports, in the order in which documents list them.
pub(super) static KINDS: LazyLock<Vec<KindFacts>> = LazyLock::new(Device::kinds);

/// Returns the option called `name`; `None` if no kind of port has such an option.
pub(crate) fn key(name: &str) -> Option<PortKey> {
    settings().find(|setting| setting.name == name).map(SettingFacts::key)
}

/// Returns the names of all options, each once.
pub(crate) fn key_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for setting in settings() {
        if !names.contains(&setting.name) {
            names.push(setting.name);
        }
    }
    names
}

fn settings() -> impl Iterator<Item = &'static SettingFacts> {
    KINDS.iter().flat_map(|kind| &kind.settings)
}

/// Returns the kinds of ports that have an option.
pub(super) fn kinds_with(name: &str) -> impl Iterator<Item = &'static KindFacts> {
    KINDS.iter().filter(move |kind| kind.settings.iter().any(|setting| setting.name == name))
}

/// Returns the ports that an option applies to: "tap, tun and fd ports".
pub(super) fn ports_with(name: &str) -> String {
    let words: Vec<&str> = kinds_with(name).map(|kind| kind.word).collect();
    match &words[..] {
        [first @ .., last] if !first.is_empty() => {
            format!("{} and {last} ports", first.join(", "))
        }
        words => format!("{} ports", words.concat()),
    }
}

/// Returns the syntax of all port names, for a message.
fn forms() -> String {
    let forms: Vec<&str> = KINDS.iter().flat_map(|kind| kind.forms.iter().copied()).collect();
    match &forms[..] {
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
        [] => String::new(),
    }
}

/// Parses the name of an interface.
pub(super) fn interface(name: &str) -> Result<String, String> {
    InterfaceName::new(name).map_err(|error| format!("{error}; expected {}", forms()))?;
    Ok(name.to_owned())
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(':').unwrap_or((DEFAULT, text));
        let unknown = || format!("no port type \"{word}\"; expected {}", forms());
        Self::of_kind(word, rest).unwrap_or_else(|| Err(unknown()))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.port().spelling())
    }
}
