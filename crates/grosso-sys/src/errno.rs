//! Classifies errors on the packet path by the action that they require.

use core::fmt;
use std::io;

/// Class of an error on the packet path, which determines how the caller proceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// No packet is available, or there is no room: wait and retry (`EAGAIN`, `ENOBUFS`, `EINTR`, `EBUSY`).
    Later,
    /// The kernel rejected this packet because of its metadata, for example its virtio header: drop it, and use fewer
    /// features (`EINVAL`, `EPROTO`).
    Malformed,
    /// This packet is too long or has too many parts (`EMSGSIZE`, `E2BIG`).
    TooLong,
    /// The interface is down: wait until it is up (`EIO` from a TUN device, `ENETDOWN`).
    Down,
    /// The remote host is currently unreachable, or this socket can never reach it (`ENETUNREACH`, `EHOSTUNREACH`,
    /// `EADDRNOTAVAIL`, `EAFNOSUPPORT`).
    Unreachable,
    /// The device is gone (`ENODEV`, `ENXIO`, `EBADFD`).
    Gone,
    /// The caller lacks a privilege (`EPERM`, `EACCES`).
    Forbidden,
    /// The kernel or the device does not support the operation (`EOPNOTSUPP`, `ENOPROTOOPT`, `ENOTTY`, `ENOSYS`).
    Unsupported,
    /// Memory or another resource of the system is exhausted (`ENOMEM`, `ENOSPC`, `EMFILE`,
    /// `ENFILE`).
    Exhausted,
    /// Any other error.
    Other,
}

impl ErrorClass {
    /// Returns the class of an error returned by this crate.
    pub fn of(error: &io::Error) -> Self {
        let Some(code) = error.raw_os_error() else {
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Self::Later,
                io::ErrorKind::InvalidInput => Self::Malformed,
                io::ErrorKind::Unsupported => Self::Unsupported,
                io::ErrorKind::OutOfMemory => Self::Exhausted,
                _ => Self::Other,
            };
        };
        match code {
            libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::EBUSY => Self::Later,
            libc::EINVAL | libc::EPROTO => Self::Malformed,
            libc::EMSGSIZE | libc::E2BIG => Self::TooLong,
            libc::EIO | libc::ENETDOWN => Self::Down,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT => {
                Self::Unreachable
            }
            libc::ENODEV | libc::ENXIO | libc::EBADFD => Self::Gone,
            libc::EPERM | libc::EACCES => Self::Forbidden,
            libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::ENOTTY | libc::ENOSYS => Self::Unsupported,
            libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE => Self::Exhausted,
            _ => Self::Other,
        }
    }
}

/// Returns whether the device queue dropped the packet (`ENOBUFS`) although the socket had room.
pub fn is_full_queue(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Returns whether the device failed to do its part of the work (`EIO`). `ENETDOWN`, which is also
/// [`ErrorClass::Down`], says nothing about the device's features.
pub fn is_device_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Later => "temporarily unavailable",
            Self::Malformed => "invalid request",
            Self::TooLong => "too long",
            Self::Down => "the interface is down",
            Self::Unreachable => "no route to the host",
            Self::Gone => "the device was removed",
            Self::Forbidden => "not permitted",
            Self::Unsupported => "not supported",
            Self::Exhausted => "out of memory, or a limit was reached",
            Self::Other => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_codes_of_a_tap_are_distinguished() {
        for (code, class) in [
            (libc::EAGAIN, ErrorClass::Later),
            (libc::EINVAL, ErrorClass::Malformed),
            (libc::EIO, ErrorClass::Down),
            (libc::EPERM, ErrorClass::Forbidden),
            (libc::ENODEV, ErrorClass::Gone),
            (libc::EBADFD, ErrorClass::Gone),
            (libc::ENOENT, ErrorClass::Other),
        ] {
            assert_eq!(ErrorClass::of(&io::Error::from_raw_os_error(code)), class, "{code}");
        }
        assert_eq!(ErrorClass::of(&io::ErrorKind::WouldBlock.into()), ErrorClass::Later);
        assert_eq!(ErrorClass::of(&io::ErrorKind::OutOfMemory.into()), ErrorClass::Exhausted);
    }
}
