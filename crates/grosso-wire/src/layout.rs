//! Bounds-checked reading and writing at the start of a buffer, shared by the header modules.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Malformed, Reason};

/// Splits a header from the start of `bytes`.
#[inline]
pub(crate) fn split<'a, T>(
    name: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a T, &'a [u8]), Malformed>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| Malformed::new(name, Reason::Short))
}

/// Splits `bytes` after the header length `len`.
#[inline]
pub(crate) fn split_at<'a>(
    name: &'static str,
    bytes: &'a [u8],
    len: usize,
) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    bytes.split_at_checked(len).ok_or_else(|| Malformed::new(name, Reason::Short))
}

/// Truncates `bytes` to a declared length.
pub(crate) fn clip(bytes: &[u8], len: usize) -> &[u8] {
    bytes.get(..len).unwrap_or(bytes)
}

/// Writes the fixed part of a header and the bytes after it, for example options, and returns the rest of the buffer. A
/// buffer that is too short is left unchanged.
#[inline]
pub(crate) fn emit<'a, T>(
    name: &'static str,
    header: &T,
    tail: &[u8],
    buffer: &'a mut [u8],
) -> Result<&'a mut [u8], Malformed>
where
    T: IntoBytes + Immutable,
{
    let header = header.as_bytes();
    let short = Malformed::new(name, Reason::Short);
    let len = header.len() + tail.len();
    let (written, rest) = buffer.split_at_mut_checked(len).ok_or(short)?;
    let (front, back) = written.split_at_mut_checked(header.len()).ok_or(short)?;
    front.copy_from_slice(header);
    back.copy_from_slice(tail);
    Ok(rest)
}

/// Splits an option from the start of `bytes` and returns its kind, its data, and the rest. The length byte covers the
/// data and `counted` bytes before it.
#[inline]
pub(crate) fn split_option<'a>(
    name: &'static str,
    bytes: &'a [u8],
    counted: usize,
) -> Result<(u8, &'a [u8], &'a [u8]), Malformed> {
    let split = || {
        let (&[kind, len], rest) = bytes.split_first_chunk()?;
        let (data, rest) = rest.split_at_checked(usize::from(len).checked_sub(counted)?)?;
        Some((kind, data, rest))
    };
    split().ok_or_else(|| Malformed::new(name, Reason::Options))
}

/// Asserts at compile time that the byte ranges in `field` match the members of a type of this size.
macro_rules! assert_layout {
    ($header:ty, $header_len:expr; $($range:ident = $member:ident,)*) => {
        const _: () = {
            $(
                let start = core::mem::offset_of!($header, $member);
                let len = $crate::layout::len_of_member::<$header, _>(|header| &header.$member);
                assert!(field::$range.start == start);
                assert!(field::$range.end == start + len);
            )*
            assert!(size_of::<$header>() == $header_len);
        };
    };
}

pub(crate) use assert_layout;

/// Returns the size in bytes of the member that `_member` returns.
pub(crate) const fn len_of_member<T, M>(_member: fn(&T) -> &M) -> usize {
    size_of::<M>()
}
