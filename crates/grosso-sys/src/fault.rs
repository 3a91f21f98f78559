//! Classes of errors on the packet path, by the required action.

use core::fmt;
use std::io;

/// Class of an error on the packet path, which determines the next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No packet is available, or there is no room: wait and repeat (`EAGAIN`, `ENOBUFS`, `EINTR`, `EBUSY`).
    Later,
    /// The kernel rejected this packet because of its metadata, for example its virtio header: drop it, and use fewer
    /// features (`EINVAL`, `EPROTO`).
    Malformed,
    /// This packet is too long or has too many parts (`EMSGSIZE`, `E2BIG`).
    TooLong,
    /// The interface is down: wait until it is up (`EIO` of a TUN device, `ENETDOWN`).
    Down,
    /// The remote host is currently unreachable, or never reachable from this socket (`ENETUNREACH`, `EHOSTUNREACH`,
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

impl Fault {
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

/// Returns whether the device failed to do its part of the work (`EIO`). `ENETDOWN`, which is also [`Fault::Down`],
/// says nothing about the device's features.
pub fn is_device_failure(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Later => "temporarily unavailable",
            Self::Malformed => "rejected as malformed",
            Self::TooLong => "too long",
            Self::Down => "the interface is down",
            Self::Unreachable => "no route to the host",
            Self::Gone => "the device was removed",
            Self::Forbidden => "not permitted",
            Self::Unsupported => "not supported",
            Self::Exhausted => "no memory, or a limit was reached",
            Self::Other => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_a_tap_are_told_apart() {
        for (code, fault) in [
            (libc::EAGAIN, Fault::Later),
            (libc::EINVAL, Fault::Malformed),
            (libc::EIO, Fault::Down),
            (libc::EPERM, Fault::Forbidden),
            (libc::ENODEV, Fault::Gone),
            (libc::EBADFD, Fault::Gone),
            (libc::ENOENT, Fault::Other),
        ] {
            assert_eq!(Fault::of(&io::Error::from_raw_os_error(code)), fault, "{code}");
        }
        assert_eq!(Fault::of(&io::ErrorKind::WouldBlock.into()), Fault::Later);
        assert_eq!(Fault::of(&io::ErrorKind::OutOfMemory.into()), Fault::Exhausted);
    }
}
