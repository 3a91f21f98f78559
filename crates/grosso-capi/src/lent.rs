//! A caller's buffer while the library holds it.

use core::ffi::c_void;

use crate::error::{Failure, GROSSO_ERROR_ARGUMENT};

/// Maximum frame length in bytes, far below the range of `uint32_t` offsets.
const FRAME_BYTES_MAX: usize = 1 << 24;

/// Bytes that the caller lends until they are released, with the caller's pointer that identifies them.
#[derive(Debug)]
pub(crate) struct Lent {
    bytes: *const u8,
    len: usize,
    pub(crate) user: *mut c_void,
}

impl Lent {
    /// Wraps the caller's buffer.
    ///
    /// # Safety
    /// `bytes` must be null or point to `len` initialized bytes that are not written until the buffer is released.
    pub(crate) unsafe fn new(
        bytes: *const c_void,
        len: usize,
        user: *mut c_void,
    ) -> Result<Self, Failure> {
        let len = frame_len(len)?;
        if bytes.is_null() {
            return Err(Failure(GROSSO_ERROR_ARGUMENT));
        }
        Ok(Self { bytes: bytes.cast(), len, user })
    }
}

/// Checks the length of a frame.
pub(crate) fn frame_len(len: usize) -> Result<usize, Failure> {
    if len > FRAME_BYTES_MAX { Err(Failure(GROSSO_ERROR_ARGUMENT)) } else { Ok(len) }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller of `new` guarantees that this many bytes are initialized and not written while this value
        // exists: it is dropped before its buffer is released.
        unsafe { core::slice::from_raw_parts(self.bytes, self.len) }
    }
}
