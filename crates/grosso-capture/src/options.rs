//! Options of pcapng blocks. Each option has a code, a length, and a value that is padded to four bytes.

use super::error::Damage;
use super::order::ByteOrder;

/// Codes of the options that Grosso reads or writes (draft-ietf-opsawg-pcapng section 3.5).
pub mod code {
    /// End of the options.
    pub const END: u16 = 0;
    /// UTF-8 comment. Every block may have several.
    pub const COMMENT: u16 = 1;
    /// Custom binary value that tools may copy.
    pub const CUSTOM_BINARY: u16 = 2989;
    /// Custom text that tools must not copy when they change the block.
    pub const CUSTOM_TEXT_NO_COPY: u16 = 2990;
    /// Custom binary value that tools must not copy when they change the block.
    pub const CUSTOM_BINARY_NO_COPY: u16 = 2991;
    /// Section header option: the program that wrote the file.
    pub const SECTION_APPLICATION: u16 = 4;
    /// Interface option: the timestamp unit.
    pub const INTERFACE_RESOLUTION: u16 = 9;
    /// Interface option: the length of the frame check sequence.
    pub const INTERFACE_FCS_LENGTH: u16 = 13;
    /// Interface option: the number of seconds to add to every timestamp.
    pub const INTERFACE_OFFSET: u16 = 14;
    /// Packet option: direction, checksum state and link-layer errors.
    pub const PACKET_FLAGS: u16 = 2;
    /// Packet option: hash of the packet's bytes.
    pub const PACKET_HASH: u16 = 3;
}

/// Encoded options at the end of a block.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Options<'a> {
    /// Wraps the options encoded in `bytes`, with or without an end marker.
    #[must_use]
    pub const fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { bytes, order }
    }

    /// Returns the encoded options, including the end marker and the padding.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the byte order of the encoded options.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the options up to the end marker, in file order.
    ///
    /// If the options are damaged, the iterator's last item is an error that describes the damage.
    #[must_use]
    pub const fn iter(&self) -> Iter<'a> {
        Iter { rest: self.bytes, order: self.order }
    }

    /// Returns the value of the first option with `code`. Options after a damaged one are not found.
    #[must_use]
    pub fn find(&self, code: u16) -> Option<&'a [u8]> {
        let found = self.iter().flatten().find(|option| option.code == code);
        found.map(|option| option.value)
    }

    /// Returns the damage that ends the options early, or `None` if they are intact.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        self.iter().find_map(Result::err)
    }
}

impl<'a> IntoIterator for &Options<'a> {
    type Item = Result<BlockOption<'a>, Damage>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// One option of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOption<'a> {
    /// Option code; its meaning depends on the block type.
    pub code: u16,
    /// Value without padding.
    pub value: &'a [u8],
}

/// Iterator over the options of a block.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<BlockOption<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        let Some((header, body)) = rest.split_first_chunk::<4>() else {
            return (!rest.is_empty()).then_some(Err(Damage::OptionStray { bytes: rest.len() }));
        };
        let code = self.order.u16_at(header, 0);
        let length = self.order.u16_at(header, 2);
        if code == code::END {
            return None;
        }
        let Some((value, after)) = body.split_at_checked(usize::from(length)) else {
            return Some(Err(Damage::OptionPastBlock { code, length, room: body.len() }));
        };
        self.rest = after.get(padding(value.len())..).unwrap_or(&[]);
        Some(Ok(BlockOption { code, value }))
    }
}

/// Appends one option. A `value` of more than 65,535 bytes is truncated; only comments can be that long.
pub fn push_option(out: &mut Vec<u8>, order: ByteOrder, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    let value = &value[..usize::from(length)];
    out.extend_from_slice(&order.u16_bytes(code));
    out.extend_from_slice(&order.u16_bytes(length));
    out.extend_from_slice(value);
    out.extend_from_slice(&[0; 3][..padding(value.len())]);
}

/// Appends the marker that ends a list of options.
pub fn push_end(out: &mut Vec<u8>, order: ByteOrder) {
    push_option(out, order, code::END, &[]);
}

/// Returns the number of bytes that pad `length` to a multiple of four.
#[inline]
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bytes = Vec::new();
            for length in 0..9 {
                push_option(&mut bytes, order, 100 + length, &vec![7; usize::from(length)]);
            }
            push_end(&mut bytes, order);
            bytes.extend_from_slice(b"behind the end");
            let options = Options::new(&bytes, order);
            let found: Vec<_> = options.iter().map(Result::unwrap).collect();
            assert_eq!(found.len(), 9);
            for (length, option) in found.iter().enumerate() {
                assert_eq!(usize::from(option.code), 100 + length);
                assert_eq!(option.value, vec![7; length]);
            }
            assert_eq!(options.find(103), Some(&[7, 7, 7][..]));
        }
    }

    #[test]
    fn option_past_the_block_is_damage_and_ends_the_iteration() {
        let mut bytes = Vec::new();
        push_option(&mut bytes, ByteOrder::Little, 1, b"fine");
        bytes.extend_from_slice(&[2, 0, 9, 0, 1, 2, 3, 4]);
        let found: Vec<_> = Options::new(&bytes, ByteOrder::Little).iter().collect();
        assert_eq!(found[0], Ok(BlockOption { code: 1, value: b"fine" }));
        assert_eq!(found[1], Err(Damage::OptionPastBlock { code: 2, length: 9, room: 4 }));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn stray_bytes_are_damage() {
        let found: Vec<_> = Options::new(&[1, 0, 0], ByteOrder::Little).iter().collect();
        assert_eq!(found, [Err(Damage::OptionStray { bytes: 3 })]);
    }
}
