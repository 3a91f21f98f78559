//! Peers that compute the Internet checksum with functions from other crates.

use etherparse::checksum::Sum16BitWords;
use grosso_testkit::workloads::Workload;
use smoltcp::wire::checksum::data;

use crate::{
    contender::{About, Boxed, Peer},
    sums::Sums,
};

pub(super) fn contenders(workload: &Workload) -> Vec<Boxed<'_>> {
    let about = |peer| About::new(peer, "", "");
    vec![
        Sums::boxed(about(Peer::TunRs), workload, |bytes| tun_rs::checksum(bytes, 0)),
        Sums::boxed(about(Peer::Smoltcp), workload, data),
        Sums::boxed(about(Peer::Etherparse), workload, |bytes| {
            // The crate keeps its sums in native byte order.
            u16::from_be(!Sum16BitWords::new().add_slice(bytes).ones_complement())
        }),
        Sums::boxed(about(Peer::InternetChecksum), workload, |bytes| {
            !u16::from_be_bytes(internet_checksum::checksum(bytes))
        }),
    ]
}
