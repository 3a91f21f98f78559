//! The ways to the other ends, and what fits on all of them.

use std::{io, net::IpAddr};

use grosso_sys::datagram::PathMtu;

/// What is known of the ways to the other ends.
#[derive(Debug)]
pub(in crate::live) struct Paths {
    paths: PathMtu,
    remotes: Vec<IpAddr>,
    mtu: Option<usize>,
    /// When to ask for it again.
    look_ns: u64,
}

impl Paths {
    /// The ways to ends of this family.
    pub(in crate::live) fn new(remotes: &[IpAddr], is_ipv4: bool) -> io::Result<Self> {
        let (paths, remotes) = (PathMtu::new(is_ipv4)?, remotes.to_vec());
        let mut known = Self { paths, remotes, mtu: None, look_ns: 0 };
        known.look_now();
        Ok(known)
    }

    /// The longest packet that gets to each, in bytes from its IP header on.
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
        let Self { paths, remotes, .. } = self;
        self.mtu = remotes.iter().filter_map(|remote| paths.to(*remote).ok()).min().or(self.mtu);
    }
}

/// How long the paths are not asked for their MTU: that takes three system calls each, and so long is lost what became
/// too long for a raw socket of IPv6, which is not told of it.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
