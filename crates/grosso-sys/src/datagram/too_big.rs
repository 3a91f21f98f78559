//! ICMPv6 messages that report a packet as too long for a path.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::ipproto::ICMPV6;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// A socket that receives the ICMPv6 messages "packet too big" in this network namespace (RFC 4443 section 3.2), for
/// packets from any sender. The kernel verifies only their checksums.
#[derive(Debug)]
pub struct TooBigMessages {
    file: OwnedFd,
}

impl TooBigMessages {
    /// Opens a nonblocking socket.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)`, for example `EPERM` without `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ICMPV6))?;
        let length = size_of_val(&PASSED_TYPES) as libc::socklen_t;
        // SAFETY: the kernel reads the array, which lives until the call returns.
        let result = unsafe {
            let filter = (&raw const PASSED_TYPES).cast();
            libc::setsockopt(file.as_raw_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, filter, length)
        };
        if result == 0 { Ok(Self { file }) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the next message in `buffer`, starting with its type, or `None` if there is none. A longer message is
    /// truncated.
    ///
    /// # Errors
    ///
    /// Returns any error from `read(2)`.
    pub fn next<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match rustix::io::read(&self.file, &mut *buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// `struct icmp6_filter`: a set bit blocks the type.
static PASSED_TYPES: [u32; 8] = {
    let mut types = [u32::MAX; 8];
    types[0] = !(1 << PACKET_TOO_BIG);
    types
};
const PACKET_TOO_BIG: u32 = 2;
/// The option of `SOL_ICMPV6` (`linux/icmpv6.h`).
const ICMP6_FILTER: i32 = 1;
