//! Helpers for the tests in the header files.

extern crate std;

use std::vec;

use crate::error::{Malformed, Reason};

/// Asserts that `emit` writes exactly `expected` and returns the rest of the buffer. The buffer is first filled with
/// other bytes, so that a field that is not written is noticed. Every shorter buffer must be refused and stay
/// unchanged.
#[track_caller]
pub(crate) fn assert_emits(
    expected: &[u8],
    emit: impl Fn(&mut [u8]) -> Result<&mut [u8], Malformed>,
) {
    for old in [0xa5, 0x5a] {
        let mut buffer = vec![old; expected.len() + 3];
        let rest = emit(&mut buffer).expect("the buffer is long enough");
        assert_eq!(rest, [old; 3], "bytes after the header are unchanged");
        assert_eq!(&buffer[..expected.len()], expected);
        for len in 0..expected.len() {
            let mut buffer = vec![old; len];
            let refusal = emit(&mut buffer).map(|_| ()).map_err(|error| error.reason);
            assert_eq!(refusal, Err(Reason::Short), "{len} bytes");
            assert!(
                buffer.iter().all(|byte| *byte == old),
                "the buffer of {len} bytes was changed"
            );
        }
    }
}

/// Asserts that `parse` refuses every proper prefix of a header as too short.
#[track_caller]
pub(crate) fn assert_refuses_prefixes<T>(
    header: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, Malformed>,
) {
    assert!(parse(header).is_ok());
    for len in 0..header.len() {
        let reason = parse(&header[..len]).map(|_| ()).map_err(|error| error.reason);
        assert_eq!(reason, Err(Reason::Short), "{len} bytes");
    }
}
