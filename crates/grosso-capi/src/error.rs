//! Error codes, which are negative.

use core::ffi::{CStr, c_char, c_int};

/// An argument is null, too short, too long, or unknown.
pub const GROSSO_ERROR_ARGUMENT: c_int = -1;
/// The handle is in use: a callback called a function of its own handle.
pub const GROSSO_ERROR_BUSY: c_int = -2;
/// The library panicked in a function of this handle. The handle can only be freed.
pub const GROSSO_ERROR_BROKEN: c_int = -3;
/// The frame contradicts its virtio header.
pub const GROSSO_ERROR_VNET: c_int = -4;
/// The buffer is too small for a packet.
pub const GROSSO_ERROR_ROOM: c_int = -5;
/// The superframe cannot be segmented.
pub const GROSSO_ERROR_SEGMENT: c_int = -6;
/// The packet has no TCP or UDP checksum that can be left to the device.
pub const GROSSO_ERROR_CHECKSUM: c_int = -7;

/// The library accepted the frame, but an outgoing frame was dropped because no virtio header can describe it.
pub const GROSSO_ERROR_LOST: c_int = -8;

/// An error code inside the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) c_int);

/// Returns the text for the result of any function in this library. The text is never null and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn grosso_error_text(code: c_int) -> *const c_char {
    text(code).as_ptr()
}

const fn text(code: c_int) -> &'static CStr {
    match code {
        GROSSO_ERROR_ARGUMENT => c"an argument is null, too short, too long, or unknown",
        GROSSO_ERROR_BUSY => c"the handle is in use: a callback passed it to another function",
        GROSSO_ERROR_BROKEN => c"internal error: from now on, the handle can only be freed",
        GROSSO_ERROR_VNET => c"the frame and its virtio header contradict each other",
        GROSSO_ERROR_ROOM => c"the buffer is too small for a packet",
        GROSSO_ERROR_SEGMENT => c"the superframe cannot be split into packets",
        GROSSO_ERROR_CHECKSUM => c"the packet has no checksum that the device could complete",
        GROSSO_ERROR_LOST => {
            c"a delivered frame was dropped, because no virtio header can describe it"
        }
        0.. => c"no error",
        _ => c"not an error code of this library",
    }
}
