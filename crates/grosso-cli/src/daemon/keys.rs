//! Keys of ESP, from a file that only its owner can read, or from a descriptor. They are never printed, and are
//! overwritten when they are no longer needed.

use core::fmt;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use grosso::tunnel::esp::{KeyMaterial, NoAssociation};
use grosso_sys::passed;
use zeroize::Zeroizing;

use crate::{error::Failure, name::shown};

/// The source of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// A file, and its contents once the configuration has been read.
    File(PathBuf, Option<Keys>),
    /// A descriptor that another program left open, which is read to its end when the path starts.
    Descriptor(i32),
}

impl KeySource {
    /// Reads the file, which is in `folder` unless its path is absolute; a descriptor is read later.
    pub(crate) fn read(&mut self, folder: &Path) -> Result<(), Failure> {
        if let Self::File(path, keys) = self {
            *keys = Some(read_file(&folder.join(path))?);
        }
        Ok(())
    }

    /// The keys, after the configuration has been read.
    pub(crate) fn keys(&self) -> Result<Keys, Failure> {
        match self {
            Self::File(_, Some(keys)) => Ok(keys.clone()),
            Self::File(path, None) => read_file(path),
            Self::Descriptor(number) => read_descriptor(*number),
        }
    }
}

/// The keys of both directions, each with its salt.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) inbound: Key,
    pub(crate) outbound: Key,
}

/// A key with its salt.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(Zeroizing<Vec<u8>>);

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Keys")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    /// The key in the form that an association takes.
    pub(crate) fn material(&self) -> Result<KeyMaterial, NoAssociation> {
        KeyMaterial::aes_gcm(&self.0)
    }
}

impl Keys {
    /// Parses lines of `in` and `out`, each with the hexadecimal digits of a key and its salt.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let (mut inbound, mut outbound) = (None, None);
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let wrong = |what: &str| format!("line {number}: {what}");
            let (word, digits) = match line.iter().position(u8::is_ascii_whitespace) {
                Some(at) => line.split_at(at),
                None => return Err(wrong("expected in or out, and hexadecimal digits")),
            };
            let place = match word {
                b"in" => &mut inbound,
                b"out" => &mut outbound,
                _ => return Err(wrong("expected in or out, and hexadecimal digits")),
            };
            let key = Key::parse(digits.trim_ascii()).map_err(|what| wrong(&what))?;
            if place.replace(key).is_some() {
                return Err(wrong("this key was given already"));
            }
        }
        let missing = |word| format!("no key \"{word}\"");
        let keys = Self {
            inbound: inbound.ok_or_else(|| missing("in"))?,
            outbound: outbound.ok_or_else(|| missing("out"))?,
        };
        if keys.inbound == keys.outbound {
            // Both sides start with the same sequence numbers, and so would use each nonce twice.
            return Err("in and out are the same key, and must be two".to_owned());
        }
        Ok(keys)
    }
}

impl Key {
    fn parse(digits: &[u8]) -> Result<Self, String> {
        let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let (pairs, rest) = digits.as_chunks::<2>();
        // The buffer never grows, because that would leave a copy behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
        for [high, low] in pairs {
            match (nibble(*high), nibble(*low)) {
                (Some(high), Some(low)) => bytes.push(high << 4 | low),
                _ => return Err("a key is hexadecimal digits".to_owned()),
            }
        }
        if !rest.is_empty() {
            return Err("a key has two digits a byte".to_owned());
        }
        let key = Self(bytes);
        key.material().map_err(|error| format!("{error}"))?;
        Ok(key)
    }
}

fn read_file(path: &Path) -> Result<Keys, Failure> {
    let name = shown(path);
    let unreadable = |error: io::Error| {
        Failure::environment("environment.read", format!("key file {name}: {error}"))
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode();
    if mode & OTHERS != 0 {
        let mode = mode & 0o7777;
        let message = format!("key file {name}: others can read or write it (mode {mode:04o})");
        let hint = format!("chmod 600 {name}, and new keys if anybody may have read them");
        return Err(Failure::input("input.key_mode", message).hint(hint));
    }
    understand(file, &format!("key file {name}"))
}

/// Reads a descriptor, which can be read only once: the result is kept for paths that start again.
fn read_descriptor(number: i32) -> Result<Keys, Failure> {
    static READ: Mutex<BTreeMap<i32, Keys>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(keys) = read.get(&number) {
        return Ok(keys.clone());
    }
    let name = format!("key descriptor {number}");
    let descriptor = passed::duplicate(number).map_err(|error| {
        let failure = Failure::environment("environment.descriptor", format!("{name}: {error}"));
        failure.hint("the program that starts this one must leave it open: grosso run ... 3< KEYS")
    })?;
    let keys = understand(File::from(descriptor), &name)?;
    read.insert(number, keys.clone());
    Ok(keys)
}

fn understand(file: File, name: &str) -> Result<Keys, Failure> {
    let mut text = Zeroizing::new(Vec::with_capacity(2 * KEY_BYTES_MAX));
    file.take(KEY_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::environment("environment.read", format!("{name}: {error}")))?;
    let keys = match text.len() > KEY_BYTES_MAX {
        true => Err(format!("more than {KEY_BYTES_MAX} bytes")),
        false => Keys::parse(&text),
    };
    keys.map_err(|what| {
        Failure::input("input.key", format!("{name}: {what}"))
            .hint("two lines: in HEX, out HEX; a key of 16 or 32 bytes followed by 4 of salt")
    })
}

/// The permission bits of a file for everybody except its owner.
const OTHERS: u32 = 0o077;
/// Bytes of the longest text with keys.
const KEY_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsRawFd, os::unix::fs::PermissionsExt};

    use super::*;

    const TEXT: &str = "# of edge\nin 0x000102030405060708090a0b0c0d0e0fdeadbeef\n\n\
         out\tFFFEFDFCFBFAF9F8F7F6F5F4F3F2F1F0DEADBEEF\n";

    #[test]
    fn keys_of_both_directions_are_understood_and_never_printed() {
        let keys = Keys::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(keys.inbound.0[..3], [0, 1, 2]);
        assert_eq!(keys.outbound.0[16..], [0xde, 0xad, 0xbe, 0xef]);
        let source = KeySource::File("k".into(), Some(keys));
        assert_eq!(format!("{source:?}"), "File(\"k\", Some(Keys))");
    }

    #[test]
    fn what_is_wrong_with_keys_is_said_without_saying_them() {
        let long = "ab".repeat(20);
        for (text, expected) in [
            (String::new(), "no key \"in\""),
            (format!("in {long}"), "no key \"out\""),
            (format!("in {long}\nout {long}"), "in and out are the same key"),
            (format!("in {long}\nin {long}"), "line 2: this key was given already"),
            (format!("key {long}"), "line 1: expected in or out"),
            (long.clone(), "line 1: expected in or out"),
            ("in abcd".into(), "line 1: key and salt have neither 20 nor 36 bytes"),
            (format!("in {long}a"), "line 1: a key has two digits a byte"),
            (format!("in {long}xy"), "line 1: a key is hexadecimal digits"),
        ] {
            let found = Keys::parse(text.as_bytes()).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
            assert!(!found.contains("abab"), "{found}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_what_to_do() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(TEXT.as_bytes()).unwrap();
        let mut source = KeySource::File(file.path().into(), None);
        let mut read = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            file.as_file().set_permissions(permissions).unwrap();
            source.read(Path::new("/")).map_err(|failure| format!("{failure:?}"))
        };
        assert_eq!(read(0o600), Ok(()));
        assert_eq!(read(0o400), Ok(()));
        for mode in [0o640, 0o604, 0o620] {
            let failure = read(mode).unwrap_err();
            assert!(failure.contains("chmod 600 "), "{failure}");
        }
    }

    #[test]
    fn a_descriptor_is_read_once_and_remembered() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(TEXT.as_bytes()).unwrap();
        drop(writer);
        let source = KeySource::Descriptor(reader.as_raw_fd());
        let first = source.keys().unwrap();
        assert!(first == source.keys().unwrap());
        assert!(first == Keys::parse(TEXT.as_bytes()).unwrap());
    }
}
