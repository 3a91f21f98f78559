//! Takes over inherited descriptors, for example from a service manager, or from a program that has the privilege to
//! create devices.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Duplicates the descriptor with this number, which stays open. The duplicate closes on exec.
///
/// # Errors
///
/// Returns `EBADF` if the number is not an open descriptor.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes only numbers, accesses no memory, and may duplicate a descriptor of any type.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, STANDARD_STREAMS) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created the descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// First descriptor number after the standard streams, which a duplicate must not replace.
const STANDARD_STREAMS: RawFd = 3;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_duplicate_is_the_same_file_and_outlives_the_number() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut duplicate = std::fs::File::from(duplicate(writer.as_raw_fd()).unwrap());
        drop(writer);
        duplicate.write_all(b"x").unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_number_without_a_descriptor_is_refused() {
        for number in [-1, RawFd::MAX] {
            assert_eq!(duplicate(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
