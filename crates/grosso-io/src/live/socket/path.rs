//! Paths to the other ends, and the packet length that fits on all of them.

use std::{io, net::IpAddr};

use grosso_sys::datagram::PathMtu;

/// Path MTU to the other ends.
#[derive(Debug)]
pub(in crate::live) struct Paths {
    paths: PathMtu,
    remotes: Vec<IpAddr>,
    mtu: Option<usize>,
    hint: Option<usize>,
    /// Time of the next query, in nanoseconds.
    look_ns: u64,
}

impl Paths {
    /// Paths to these addresses, all of one family.
    pub(in crate::live) fn new(remotes: &[IpAddr], is_ipv4: bool) -> io::Result<Self> {
        let (paths, remotes) = (PathMtu::new(is_ipv4)?, remotes.to_vec());
        let mut known = Self { paths, remotes, mtu: None, hint: None, look_ns: 0 };
        known.look_now();
        Ok(known)
    }

    /// The longest packet that leaves towards every other end, in bytes from its IP header on: a
    /// fact of this host.
    pub(in crate::live) fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// The longest packet that reaches every other end, as the kernel was told by ICMP. It forgets
    /// that after ten minutes (`net.ipv4.route.mtu_expires`).
    pub(in crate::live) fn hint(&self) -> Option<usize> {
        self.hint
    }

    /// Queries the path MTU again, if the interval has passed.
    pub(in crate::live) fn look(&mut self, now_ns: u64) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_AGAIN_NS);
            self.look_now();
        }
    }

    /// Queries the path MTU again at once, because a packet was too long for the last known one.
    pub(in crate::live) fn look_now(&mut self) {
        let Self { paths, remotes, .. } = self;
        let of_routes = remotes.iter().filter_map(|remote| paths.of_route(*remote).ok()).min();
        let hints = remotes.iter().filter_map(|remote| paths.to(*remote).ok()).min();
        (self.mtu, self.hint) = (of_routes.or(self.mtu), hints.or(self.hint));
    }
}

/// Interval between queries of the path MTU, in nanoseconds. A query takes some ten system calls a
/// path. Nobody says that a packet of a raw IPv6 socket was too long for a router, so such packets
/// are lost for up to one interval.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;
