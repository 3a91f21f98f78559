//! Compilation of a header's fields into the bits that identify a flow, and into the identifier of its network or
//! tunnel.

use super::{Field, Law, Role};

/// Network or tunnel identifier: bits of a 4-byte word that every header of this kind contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) role: Role,
    pub(super) at: usize,
    pub(super) shift: u32,
    pub(super) mask: u32,
}

impl Number {
    /// Returns the first field that contains an identifier.
    pub(super) const fn of(fields: &[Field]) -> Option<Self> {
        let mut i = 0;
        while i < fields.len() {
            let Field { bytes, role, law, .. } = &fields[i];
            if let Law::Key { bits } = *law
                && matches!(role, Role::Tag | Role::Network | Role::Channel)
            {
                let shift = 32 - 8 * (bytes.end - bytes.start) as u32;
                let mask = (bits >> 32) as u32 >> shift;
                return Some(Self { role: *role, at: bytes.start, shift, mask });
            }
            i += 1;
        }
        None
    }
}

/// Up to eight bytes of a header, with a mask of the bits that identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWord {
    /// Offset in the header, in bytes.
    pub at: u16,
    /// Mask of the identifying bits. The highest bit is that of the first byte.
    pub mask: u64,
}

/// Bits of a header that identify a flow, in as few words as possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) words: [KeyWord; KEY_WORDS_MAX],
    pub(super) count: usize,
}

/// Maximum number of words per header, sufficient for two IPv6 addresses.
pub(super) const KEY_WORDS_MAX: usize = 4;
/// Maximum end of an identifying field, in bytes from the start of its header.
const KEY_BYTES_MAX: usize = 40;

impl Key {
    /// Compiles the identifying fields into words.
    pub(super) const fn of(fields: &[Field]) -> Self {
        let bytes = key_bytes(fields);
        let mut key = Self { words: [KeyWord { at: 0, mask: 0 }; KEY_WORDS_MAX], count: 0 };
        let mut at = 0;
        while at < KEY_BYTES_MAX {
            if bytes[at] == 0 {
                at += 1;
                continue;
            }
            let mut mask = 0;
            let mut byte = 0;
            while byte < 8 {
                mask =
                    mask << 8 | if at + byte < KEY_BYTES_MAX { bytes[at + byte] as u64 } else { 0 };
                byte += 1;
            }
            key.words[key.count] = KeyWord { at: at as u16, mask };
            key.count += 1;
            at += 8;
        }
        key
    }
}

/// Returns the identifying bits of each byte of a header.
const fn key_bytes(fields: &[Field]) -> [u8; KEY_BYTES_MAX] {
    let mut bytes = [0; KEY_BYTES_MAX];
    let mut i = 0;
    while i < fields.len() {
        if let Law::Key { bits } = fields[i].law {
            let start = fields[i].bytes.start;
            let mut byte = 0;
            while start + byte < fields[i].bytes.end {
                bytes[start + byte] = if byte < 8 { (bits >> (56 - 8 * byte)) as u8 } else { 0xff };
                byte += 1;
            }
        }
        i += 1;
    }
    bytes
}
