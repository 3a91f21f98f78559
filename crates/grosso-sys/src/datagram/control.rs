//! Control messages, which describe properties of a datagram, for example its TTL and traffic class.

use core::ffi::{c_int, c_void};

/// Space for the control messages of one call. Each message starts with a length field, which determines the alignment
/// of the space.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlMessages {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl ControlMessages {
    /// Capacity in bytes. Four numbers with their headers take 96 bytes, and an address with an interface takes 40.
    pub(super) const CAPACITY: usize = 160;

    pub(super) const fn empty() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Adds a message. The space suffices for four numbers and an address.
    pub(super) fn push<const BYTES: usize>(
        &mut self,
        level: c_int,
        kind: c_int,
        data: [u8; BYTES],
    ) {
        let end = self.len + HEADER_BYTES + BYTES.next_multiple_of(ALIGNMENT);
        let Some(room) = self.bytes.get_mut(self.len..end) else { return };
        // SAFETY: all fields of a `cmsghdr` are numbers, for which zero is a valid value.
        let mut header: libc::cmsghdr = unsafe { core::mem::zeroed() };
        header.cmsg_len = (HEADER_BYTES + BYTES) as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: `room` is longer than a header and aligned for it, because `ControlMessages` is,
        // and the length of every message is a multiple of that alignment.
        unsafe { room.as_mut_ptr().cast::<libc::cmsghdr>().write(header) };
        room[HEADER_BYTES..HEADER_BYTES + BYTES].copy_from_slice(&data);
        self.len = end;
    }

    /// Returns the length of the added messages in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Returns the messages written by the kernel.
    pub(super) fn received(&self, written: usize) -> &[u8] {
        self.bytes.get(..written).unwrap_or_default()
    }
}

/// Calls `each` with level, type and data of each control message written by the kernel.
pub(super) fn each_message(mut written: &[u8], mut each: impl FnMut(c_int, c_int, &[u8])) {
    while written.len() >= HEADER_BYTES {
        // SAFETY: `written` has at least the length of a header, and all fields of a header are numbers.
        let header = unsafe { written.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        // `size_t` in glibc, `socklen_t` in musl.
        let len: usize = header.cmsg_len as _;
        let Some(data) = written.get(HEADER_BYTES..len) else { return };
        each(header.cmsg_level, header.cmsg_type, data);
        written = written.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
}

/// Returns the number in a control message. The number is one byte long (as for TOS) or four.
pub(super) fn number(data: &[u8]) -> Option<c_int> {
    match data {
        [byte] => Some(c_int::from(*byte)),
        _ => data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes)),
    }
}

/// Length of the header in bytes, a multiple of the alignment of messages.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const ALIGNMENT: usize = size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_behind_them() {
        let mut control = ControlMessages::empty();
        control.push(1, 2, 3_u16.to_ne_bytes());
        control.push(4, 5, 6_i32.to_ne_bytes());
        // SAFETY: the call only computes a length.
        let space = unsafe { libc::CMSG_SPACE(4) as usize };
        assert_eq!(control.len(), 2 * space);
        let read = |written: &[u8]| {
            let mut seen = Vec::new();
            each_message(written, |level, kind, data| seen.push((level, kind, data.to_vec())));
            seen
        };
        let all = read(control.received(control.len()));
        assert_eq!(all[0], (1, 2, 3_u16.to_ne_bytes().to_vec()));
        assert_eq!(all[1], (4, 5, 6_i32.to_ne_bytes().to_vec()));
        assert_eq!(read(control.received(space + HEADER_BYTES + 3)).len(), 1, "cut short");
        assert!(read(control.received(HEADER_BYTES - 1)).is_empty());
        let mut endless = [0; 64];
        assert!(read(&endless).is_empty(), "a length of zero ends the iteration");
        endless[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert!(read(&endless).is_empty(), "a length beyond the end ends the iteration");
    }
}
