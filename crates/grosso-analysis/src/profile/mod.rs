//! Reads and writes profiles. A user names a built-in profile, or a file that lists the differences from one.
//!
//! | module | job |
//! |---|---|
//! | `keys` | every key of a file, and the field that it sets |
//! | `setting` | values, in the form that they have in a file |

mod keys;
mod setting;

use core::{fmt::Write, ops::Range};
use std::{borrow::Cow, io, path::Path};

use grosso::Profile;
use grosso_report::{
    diagnostic::{Wrong, no_key, similar},
    error::Failure,
    name::shown,
    report::COLUMNS,
};
use grosso_sys::path;
use grosso_wire::ipv4;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use self::keys::TABLES;
pub use self::keys::{KEYS, ProfileKey};

/// Returns the profile that `word` names: a built-in profile, or a file if `word` contains a dot or a slash. A relative
/// path is relative to `folder`.
pub fn find(word: &str, folder: &Path) -> Result<Profile, Failure> {
    // `linux-6.12` also contains a dot.
    let is_file = word.contains(['.', '/']) && Profile::named(word).is_none();
    if is_file {
        return read(&folder.join(word));
    }
    named(word).map_err(|what| {
        let hint = "grosso profiles lists the built-in profiles; to use a profile file, pass \
                    --profile FILE.toml";
        Failure::usage("usage.profile", what).hint(hint)
    })
}

/// Returns the built-in profile with this name. For `inet-lro-2007`, the name may include the receiver's MTU:
/// `inet-lro-2007:1500`.
fn named(name: &str) -> Result<Profile, String> {
    let Some((OF_AN_MTU, bytes)) = name.split_once(':') else {
        return Profile::named(name).ok_or_else(|| no_profile(name));
    };
    let possible = ipv4::MTU_MIN..=u16::MAX;
    let mtu = bytes.parse().ok().filter(|mtu| possible.contains(mtu));
    let [least, most] = [possible.start(), possible.end()];
    let mtu = mtu.ok_or_else(|| format!("{name}: an MTU must be from {least} to {most} bytes"))?;
    let mut profile = Profile::inet_lro_2007(mtu);
    profile.name = Cow::Owned(name.to_owned());
    Ok(profile)
}

/// Returns the error message for an unknown profile name, which suggests the most similar name or lists all names.
fn no_profile(name: &str) -> String {
    let profiles = Profile::all();
    match similar(name, profiles.iter().map(|profile| &*profile.name)) {
        Some(meant) => format!("no profile \"{name}\"; did you mean {meant}?"),
        None => {
            let names: Vec<_> = profiles.iter().map(|profile| &*profile.name).collect();
            format!("no profile \"{name}\"; profiles are {}", names.join(", "))
        }
    }
}

/// Reads a profile file.
fn read(path: &Path) -> Result<Profile, Failure> {
    let name = shown(path);
    let text = path::read_text(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            Failure::input("input.profile", format!("{name}: cannot read the profile: {error}"))
        }
        _ => Failure::environment("environment.read", format!("{name}: {error}"))
            .of_system(&path.to_string_lossy(), &error),
    })?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    parse(&text, stem.unwrap_or_default()).map_err(|wrong| {
        let message = format!("{}:{wrong}", shown(path));
        let hint = "grosso profiles show linux prints a file with every key and its allowed values";
        Failure::input("input.profile", message).at(wrong.place).hint(hint)
    })
}

/// Parses the contents of a profile file. The profile is called `name` unless the file sets a name.
pub fn parse(text: &str, name: String) -> Result<Profile, Wrong> {
    let table = DeTable::parse(text).map_err(|error| Wrong::of_parser(text, &error))?;
    let table = table.get_ref();
    let mut profile = match word(text, table, "base")? {
        None => Profile::linux(),
        Some((base, span)) => named(base).map_err(|what| Wrong::at(text, span, &what))?,
    };
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        match value.get_ref() {
            _ if OF_THE_FILE.contains(&name) => {}
            DeValue::Table(inner) if TABLES.contains(&name) => {
                for (key, value) in inner {
                    set(&mut profile, text, name, key, value)?;
                }
            }
            _ if TABLES.contains(&name) => {
                let what = format!("{name} must be a table: [{name}]");
                return Err(Wrong::at(text, value.span(), &what));
            }
            _ => set(&mut profile, text, "", key, value)?,
        }
    }
    let (name, span) = match word(text, table, "name")? {
        None => (name, 0..0),
        Some((name, span)) => (name.to_owned(), span),
    };
    name_it(&mut profile, name).map_err(|what| Wrong::at(text, span, &what))?;
    Ok(profile)
}

/// Returns a quoted word and its position.
fn word<'a>(
    text: &str,
    table: &'a DeTable<'_>,
    key: &str,
) -> Result<Option<(&'a str, Range<usize>)>, Wrong> {
    let Some((_, value)) = table.iter().find(|(name, _)| name.get_ref() == key) else {
        return Ok(None);
    };
    let what = || Wrong::at(text, value.span(), &format!("{key} must be a string in quotes"));
    value.get_ref().as_str().map(|word| Some((word, value.span()))).ok_or_else(what)
}

/// Sets the name of a profile, as shown in reports.
fn name_it(profile: &mut Profile, name: String) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(format!("a name must have 1 to {NAME_BYTES_MAX} printable bytes"));
    }
    profile.name = Cow::Owned(name);
    match Profile::named(&profile.name) {
        Some(named) if named != *profile => {
            let name = &profile.name;
            Err(format!(
                "\"{name}\" is the name of a built-in profile; use another one: name = \
                         \"my-{name}\""
            ))
        }
        _ => Ok(()),
    }
}

/// Sets one key in a table.
fn set(
    profile: &mut Profile,
    text: &str,
    table: &str,
    name: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), Wrong> {
    let Some(key) = ProfileKey::find(table, name.get_ref()) else {
        let others = KEYS.iter().filter(|key| key.table == table).map(|key| key.name);
        let mut known: Vec<_> = others.collect();
        if table.is_empty() {
            known.extend(OF_THE_FILE.iter().chain(&TABLES));
        }
        return Err(Wrong::at(text, name.span(), &no_key(name.get_ref(), &known)));
    };
    (key.set)(profile, value.get_ref()).ok_or_else(|| {
        let what = format!("{}: expected {}", key.full_name(), (key.choices)());
        Wrong::at(text, value.span(), &what)
    })
}

/// Returns the contents of a profile file that produces exactly this profile. The file lists the permitted values of
/// each key.
pub fn write(profile: &Profile) -> String {
    let mut text = format!("name = {}\n", setting::toml(&(*profile.name).into()));
    let mut table = "";
    for key in KEYS {
        if key.table != table {
            table = key.table;
            let _ = write!(text, "\n[{table}]\n");
        }
        let line = format!("{} = {}", key.name, setting::toml(&(key.show)(profile)));
        let choices = (key.choices)();
        let _ = if CHOICES_COLUMN + choices.len() + 3 <= COLUMNS {
            writeln!(text, "{line:<CHOICES_COLUMN$} # {choices}")
        } else {
            writeln!(text, "# {choices}\n{line}")
        };
    }
    text
}

/// Maximum hold time with `auto`: twice the time that a superframe takes to arrive at 10 Gb/s.
pub const AUTO_HOLD_NS: u64 = 100_000;
/// Keys of a profile file that are not fields of the profile.
const OF_THE_FILE: [&str; 2] = ["base", "name"];
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Profile whose packet count depends on the receiver's MTU.
const OF_AN_MTU: &str = "inet-lro-2007";
/// Maximum size of a file in bytes. A file with all keys takes about 2000.
const FILE_BYTES_MAX: u64 = 1 << 16;
/// Column at which a key's permitted values are listed.
const CHOICES_COLUMN: usize = 36;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
