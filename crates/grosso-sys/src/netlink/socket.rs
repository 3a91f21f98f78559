//! Queries the kernel's list of Unix sockets.

use std::io;

use rustix::net::netlink;

use super::{
    Netlink, abi,
    message::{Attributes, Request, number},
};

impl Netlink {
    /// Opens a netlink socket for queries about the sockets in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)`, for example if the kernel cannot list sockets.
    pub(crate) fn of_sockets() -> io::Result<Self> {
        Self::of(Some(netlink::SOCK_DIAG))
    }

    /// Returns the user who created the Unix stream socket with this name. The name is in the kernel's format, in which
    /// an abstract name begins with a zero byte. Returns `None` if no socket has the name, and always before Linux 5.3.
    ///
    /// # Errors
    ///
    /// Returns `ENOENT` if the kernel does not list Unix sockets (`CONFIG_UNIX_DIAG`).
    pub(crate) fn unix_stream_owner(&self, name: &[u8]) -> io::Result<Option<u32>> {
        let mut fixed = [0; REQUEST_BYTES];
        fixed[0] = libc::AF_UNIX as u8;
        // Accepted sockets have the name of their listener but do not necessarily belong to the same user.
        let states: u32 = 1 << abi::TCP_LISTEN | 1 << abi::TCP_CLOSE;
        fixed[4..8].copy_from_slice(&states.to_ne_bytes());
        let show = abi::UDIAG_SHOW_NAME | abi::UDIAG_SHOW_UID;
        fixed[12..16].copy_from_slice(&show.to_ne_bytes());
        let request = Request::new(abi::SOCK_DIAG_BY_FAMILY, &fixed).flags(abi::NLM_F_DUMP);
        let mut owner = None;
        self.exchange(request, |_, payload| {
            let is_stream = payload.get(1).copied() == Some(libc::SOCK_STREAM as u8);
            let attributes = payload.get(SOCKET_BYTES..).unwrap_or_default();
            let of = |wanted| Attributes::new(attributes).find(|(kind, _)| *kind == wanted);
            if is_stream && of(abi::UNIX_DIAG_NAME).is_some_and(|(_, found)| found == name) {
                let user = || of(abi::UNIX_DIAG_UID).and_then(|(_, value)| number(value));
                owner = owner.or_else(user);
            }
        })?;
        Ok(owner)
    }
}

/// Length of `struct unix_diag_req` in bytes.
const REQUEST_BYTES: usize = 24;
/// Length of `struct unix_diag_msg` in bytes.
const SOCKET_BYTES: usize = 16;
