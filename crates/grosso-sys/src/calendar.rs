//! Formats local time as text, with the conversions of `strftime(3)`.

use std::ffi::CString;
use std::io;

/// Formats a time in seconds since 1970 with `strftime(3)` in the local time zone.
///
/// # Errors
///
/// Returns [`io::ErrorKind::InvalidInput`] if the format contains a NUL byte or the result exceeds 4096 bytes, or
/// `EOVERFLOW` if the year exceeds 32 bits.
pub fn local_text(format: &[u8], seconds: i64) -> io::Result<Vec<u8>> {
    // The C library does not distinguish an empty result from a failure, so the result is never empty.
    let guarded = CString::new([format, b"."].concat())?;
    let seconds = seconds as libc::time_t;
    // SAFETY: all fields of a `tm` are numbers and a pointer, for which zero is a valid value.
    let mut parts: libc::tm = unsafe { core::mem::zeroed() };
    // SAFETY: both pointers are to variables that outlive the call.
    if unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut text = vec![0_u8; TEXT_BYTES_MAX];
    // SAFETY: the C library does not write beyond the end of the buffer, and both strings outlive the call.
    let written = unsafe {
        libc::strftime(text.as_mut_ptr().cast(), text.len(), guarded.as_ptr(), &raw const parts)
    };
    if written == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    text.truncate(written - 1);
    Ok(text)
}

/// Maximum text length in bytes, equal to the length of the longest path (`PATH_MAX`).
const TEXT_BYTES_MAX: usize = 4096 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_become_a_time_and_the_rest_stays() {
        // Noon in the middle of the year falls in the same year in every time zone.
        let text = |format: &str| {
            String::from_utf8(local_text(format.as_bytes(), 1_700_000_000).unwrap()).unwrap()
        };
        assert_eq!(text("x-%Y-%m.pcap"), "x-2023-11.pcap");
        assert_eq!(text(""), "");
        assert_eq!(text("100%%"), "100%");
        assert_eq!(text("%s"), "1700000000");
        assert!(local_text(b"a\0b", 0).is_err());
        assert!(local_text(&[b'x'; 5000], 0).is_err());
    }
}
