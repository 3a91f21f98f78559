//! The way to the other end, and what fits on it.

use std::{io, net::IpAddr};

use grosso_sys::datagram::PathMtu;

/// What is known of the way to the other end.
#[derive(Debug)]
pub(in crate::live) struct Path {
    paths: PathMtu,
    remote: Option<IpAddr>,
    mtu: Option<usize>,
    /// When to ask for it again.
    look_ns: u64,
}

impl Path {
    /// The way to an end of this family, if it is known where that is.
    pub(in crate::live) fn new(remote: Option<IpAddr>, is_ipv4: bool) -> io::Result<Self> {
        let paths = PathMtu::new(is_ipv4)?;
        let mtu = remote.and_then(|remote| paths.to(remote).ok());
        Ok(Self { paths, remote, mtu, look_ns: 0 })
    }

    /// The longest packet that gets there, in bytes from its IP header on.
    pub(in crate::live) fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// Asks again, where it is time to.
    pub(in crate::live) fn look(&mut self, now_ns: u64) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_AGAIN_NS);
            self.look_now();
        }
    }

    /// Asks again: a way that is too long for what was sent has become shorter.
    pub(in crate::live) fn look_now(&mut self) {
        if let Some(mtu) = self.remote.and_then(|remote| self.paths.to(remote).ok()) {
            self.mtu = Some(mtu);
        }
    }
}

/// How long the path to the other end is not asked for its MTU.
const LOOK_AGAIN_NS: u64 = 10_000_000_000;
