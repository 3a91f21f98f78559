//! Errors as negative numbers.

use core::ffi::{CStr, c_char, c_int};

/// An argument is null, too short, too long, or unknown.
pub const GROSSO_ERROR_ARGUMENT: c_int = -1;
/// The handle is in use: a callback called a function of the handle that called it.
pub const GROSSO_ERROR_BUSY: c_int = -2;
/// The handle met a defect of the library, now or earlier; it can only be freed.
pub const GROSSO_ERROR_BROKEN: c_int = -3;
/// The frame and its virtio header contradict each other.
pub const GROSSO_ERROR_VNET: c_int = -4;
/// The buffer is too small for a packet.
pub const GROSSO_ERROR_ROOM: c_int = -5;
/// The superframe cannot be cut.
pub const GROSSO_ERROR_SEGMENT: c_int = -6;
/// The packet has no checksum that can be left to whoever takes it.
pub const GROSSO_ERROR_CHECKSUM: c_int = -7;

/// The library took the frame, and then a frame that left could not be described in a virtio header: it was dropped.
pub const GROSSO_ERROR_LOST: c_int = -8;

/// An error inside the library, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) c_int);

/// The sentence for a result of any function of this library; never null, and never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn grosso_error_text(code: c_int) -> *const c_char {
    text(code).as_ptr()
}

const fn text(code: c_int) -> &'static CStr {
    match code {
        GROSSO_ERROR_ARGUMENT => c"an argument is null, too short, too long, or unknown",
        GROSSO_ERROR_BUSY => c"the handle is in use: a callback called it again",
        GROSSO_ERROR_BROKEN => c"the library met a defect of its own; the handle can only be freed",
        GROSSO_ERROR_VNET => c"the frame and its virtio header contradict each other",
        GROSSO_ERROR_ROOM => c"the buffer is too small for a packet",
        GROSSO_ERROR_SEGMENT => c"the superframe cannot be cut into packets",
        GROSSO_ERROR_CHECKSUM => c"the packet has no checksum that can be left open",
        GROSSO_ERROR_LOST => c"a frame that left has no virtio header, and was dropped",
        0.. => c"no error",
        _ => c"a number that is no error of this library",
    }
}
