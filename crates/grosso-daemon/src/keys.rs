//! Reads ESP keys from a file that only its owner can read, or from a descriptor. Keys are never printed, and are
//! overwritten when they are no longer needed.

use core::fmt;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use grosso::tunnel::esp::{KeyMaterial, NoAssociation};
use grosso_sys::{inherited_fd, path, secret};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::readers::{self, Readers};
use crate::{error::Failure, name::shown};

/// The source of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file, and the keys in it once the configuration has been read.
    File(PathBuf, Option<Keys>),
    /// A descriptor inherited from another program, which is read to its end when the path starts.
    Descriptor(i32),
}

impl KeySource {
    /// Reads the file; a relative path is relative to `folder`. A descriptor is read later.
    pub fn read(&mut self, folder: &Path) -> Result<(), Failure> {
        if let Self::File(path, keys) = self {
            *keys = Some(read_file(&folder.join(path))?);
        }
        Ok(())
    }

    /// Returns the keys; call it after the configuration has been read.
    pub fn keys(&self) -> Result<Keys, Failure> {
        match self {
            Self::File(_, Some(keys)) => Ok(keys.clone()),
            Self::File(path, None) => read_file(path),
            Self::Descriptor(number) => read_descriptor(*number),
        }
    }
}

/// The keys of both directions, each with its salt.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// Key for received packets.
    pub inbound: Key,
    /// Key for sent packets.
    pub outbound: Key,
}

/// A key with its salt, stored once, in locked memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<Zeroizing<Vec<u8>>>);

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
    /// Returns the key as an argument for a new security association.
    pub fn material(&self) -> Result<KeyMaterial, NoAssociation> {
        KeyMaterial::aes_gcm(&self.0)
    }

    /// Returns whether both keys are equal, regardless of their salts.
    pub fn equals(&self, other: &Self) -> bool {
        self.without_salt() == other.without_salt()
    }

    fn without_salt(&self) -> &[u8] {
        &self.0[..self.0.len().saturating_sub(SALT_BYTES)]
    }

    /// Returns a number that distinguishes keys, regardless of their salts, without revealing anything about them.
    pub(super) fn fingerprint(&self, purpose: &str) -> u128 {
        fingerprint(&[purpose.as_bytes(), self.without_salt()])
    }
}

impl Keys {
    /// Returns a number that distinguishes pairs of keys without revealing anything about them.
    pub fn fingerprint(&self) -> u128 {
        fingerprint(&[b"pair", &self.outbound.0, &self.inbound.0])
    }

    /// Parses `in` and `out` lines, each with the hexadecimal digits of a key and its salt.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let (mut inbound, mut outbound) = (None, None);
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let wrong = |what: &str| format!("line {number}: {what}");
            let (word, digits) = match line.iter().position(u8::is_ascii_whitespace) {
                Some(at) => line.split_at(at),
                None => return Err(wrong("expected \"in\" or \"out\", then hexadecimal digits")),
            };
            let place = match word {
                b"in" => &mut inbound,
                b"out" => &mut outbound,
                _ => return Err(wrong("expected \"in\" or \"out\", then hexadecimal digits")),
            };
            let key = Key::parse(digits.trim_ascii()).map_err(|what| wrong(&what))?;
            if place.replace(key).is_some() {
                return Err(wrong("this key is set twice"));
            }
        }
        let missing = |word| format!("no key \"{word}\"");
        Ok(Self {
            inbound: inbound.ok_or_else(|| missing("in"))?,
            outbound: outbound.ok_or_else(|| missing("out"))?,
        })
    }

    /// Checks that the directions have different keys, unless the user accepts one key for both (`is_shared`).
    pub fn check(&self, is_shared: bool) -> Result<(), String> {
        match is_shared || !self.inbound.equals(&self.outbound) {
            true => Ok(()),
            false => Err("in and out must be different keys".to_owned()),
        }
    }
}

impl Key {
    fn parse(digits: &[u8]) -> Result<Self, String> {
        let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let (pairs, rest) = digits.as_chunks::<2>();
        // The buffer never grows, because growing would leave a copy of the keys in memory.
        let mut bytes = locked(pairs.len())?;
        for [high, low] in pairs {
            match (nibble(*high), nibble(*low)) {
                (Some(high), Some(low)) => bytes.push(high << 4 | low),
                _ => return Err("expected hexadecimal digits".to_owned()),
            }
        }
        if !rest.is_empty() {
            return Err("expected hexadecimal, two digits per byte".to_owned());
        }
        let key = Self(Arc::new(bytes));
        key.material().map_err(|error| format!("{error}"))?;
        Ok(key)
    }
}

/// Returns a digest of `parts`. Two digests reveal only whether their parts are equal.
fn fingerprint(parts: &[&[u8]]) -> u128 {
    let mut digest = Sha256::new().chain_update("grosso esp keys");
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let bytes = digest.finalize();
    bytes.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Returns empty memory for a secret of this many bytes, which is never swapped out and is overwritten when dropped.
fn locked(bytes: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let memory = Zeroizing::new(Vec::with_capacity(bytes));
    secret::lock(memory.as_ptr(), memory.capacity())
        .map(|()| memory)
        .map_err(|error| format!("cannot be locked in memory (see ulimit -l): {error}"))
}

fn read_file(path: &Path) -> Result<Keys, Failure> {
    let name = shown(path);
    let unreadable = |error: io::Error| {
        Failure::environment("environment.read", format!("key file {name}: {error}"))
    };
    let file = path::open(path).map_err(unreadable)?;
    if let Readers::Others { mode } = readers::of(&file).map_err(unreadable)? {
        let message = format!(
            "key file {name}: other users can read or write it (mode \
                               {mode:04o})"
        );
        let hint = format!("chmod 600 {name}; make new keys if another user may have read them");
        return Err(Failure::input("input.key_mode", message).hint(hint));
    }
    understand(file, &format!("key file {name}"))
}

/// Reads keys from a descriptor, and keeps them for paths that restart, because a descriptor can be read only once.
fn read_descriptor(number: i32) -> Result<Keys, Failure> {
    static READ: Mutex<BTreeMap<i32, Keys>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(keys) = read.get(&number) {
        return Ok(keys.clone());
    }
    let name = format!("key descriptor {number}");
    let descriptor = inherited_fd::duplicate(number).map_err(|error| {
        let failure = Failure::environment("environment.descriptor", format!("{name}: {error}"));
        failure.hint("the parent program must leave the descriptor open: grosso run ... 3< KEYS")
    })?;
    let keys = understand(File::from(descriptor), &name)?;
    read.insert(number, keys.clone());
    Ok(keys)
}

/// Reads text that contains keys into locked memory that is later overwritten, and protects the process from core dumps
/// and inspection.
///
/// # Errors
/// Fails if the text is too long, or cannot be read; `name` describes the text in the message.
pub fn read_secret(
    source: impl Read,
    bytes_max: usize,
    name: &str,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // Neither a core dump nor another program run by this user may reveal the secret.
    let hidden = secret::hide_process().map_err(|error| error.to_string());
    let mut text = hidden
        .and_then(|()| locked(2 * bytes_max))
        .map_err(|error| Failure::environment("environment.memory", format!("{name}: {error}")))?;
    source
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::environment("environment.read", format!("{name}: {error}")))?;
    match text.len() > bytes_max {
        true => Err(Failure::input("input.key", format!("{name}: more than {bytes_max} bytes"))),
        false => Ok(text),
    }
}

fn understand(file: File, name: &str) -> Result<Keys, Failure> {
    let text = read_secret(file, KEY_BYTES_MAX, name)?;
    Keys::parse(&text).map_err(|what| {
        Failure::input("input.key", format!("{name}: {what}")).hint(
            "expected two lines: in HEX, out HEX; a key is 16 or 32 bytes followed by 4 \
                   bytes of salt",
        )
    })
}

/// Length of the salt after a key, in bytes.
const SALT_BYTES: usize = 4;
/// Maximum length of a text that contains keys, in bytes.
const KEY_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::{
            fd::{AsRawFd, OwnedFd},
            unix::fs::PermissionsExt,
        },
    };

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
    fn fingerprints_depend_on_keys_and_purposes_and_not_on_salts() {
        let keys = Keys::parse(TEXT.as_bytes()).unwrap();
        let salted = Keys::parse(TEXT.replace("deadbeef", "deadbeee").as_bytes()).unwrap();
        let (out, inbound) = (&keys.outbound, &keys.inbound);
        assert_eq!(inbound.fingerprint("in"), salted.inbound.fingerprint("in"));
        assert_ne!(inbound.fingerprint("in"), inbound.fingerprint("out"));
        assert_ne!(inbound.fingerprint("in"), out.fingerprint("in"));
        assert_ne!(keys.fingerprint(), salted.fingerprint());
        let swapped = Keys { inbound: out.clone(), outbound: inbound.clone() };
        assert_ne!(keys.fingerprint(), swapped.fingerprint());
    }

    #[test]
    fn a_process_that_has_read_keys_is_hidden_and_keeps_them_in_memory() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(TEXT.as_bytes()).unwrap();
        drop(writer);
        let _keys = understand(File::from(OwnedFd::from(reader)), "pipe").unwrap();
        let hidden = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(hidden, rustix::process::DumpableBehavior::NotDumpable);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        assert_ne!(locked.trim(), "0 kB");
    }

    #[test]
    fn errors_about_keys_do_not_print_them() {
        let long = "ab".repeat(20);
        for (text, expected) in [
            (String::new(), "no key \"in\""),
            (format!("in {long}"), "no key \"out\""),
            (format!("in {long}\nin {long}"), "line 2: this key is set twice"),
            (format!("key {long}"), "line 1: expected \"in\" or \"out\""),
            (long.clone(), "line 1: expected \"in\" or \"out\""),
            ("in abcd".into(), "line 1: key and salt together must have 20 or 36 bytes"),
            (format!("in {long}a"), "line 1: expected hexadecimal, two digits per byte"),
            (format!("in {long}xy"), "line 1: expected hexadecimal digits"),
        ] {
            let found = Keys::parse(text.as_bytes()).unwrap_err();
            assert!(found.starts_with(expected), "{found}");
            assert!(!found.contains("abab"), "{found}");
        }
    }

    #[test]
    fn one_key_for_both_directions_needs_the_user_s_consent() {
        let keys = |[inbound, outbound]: [&str; 2]| {
            let [inbound, outbound] = [inbound, outbound].map(|byte| byte.repeat(16));
            // Keys that differ only in their salts count as the same key.
            Keys::parse(format!("in {inbound}00000001\nout {outbound}00000002").as_bytes()).unwrap()
        };
        assert!(keys(["ab", "cd"]).check(false).is_ok());
        assert_eq!(
            keys(["ab", "ab"]).check(false).unwrap_err(),
            "in and out must be different keys"
        );
        assert!(keys(["ab", "ab"]).check(true).is_ok());
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
    fn a_pipe_instead_of_a_key_file_is_refused_at_once() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refused = read_file(&pipe).err().unwrap();
        assert!(refused.message.ends_with("not a regular file"), "{}", refused.message);
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
