//! Helpers for frames that several contenders share.

use grosso_testkit::oracle::{Lengths, Link, parse};

/// Size of an Ethernet header in bytes.
pub(crate) const ETHERNET_BYTES: usize = 14;

/// Returns the transport of a frame that consists only of Ethernet, IP, and TCP or UDP.
pub(crate) fn plain_transport(frame: &[u8]) -> Option<&'static str> {
    let parsed = parse(frame, Link::Ethernet, Lengths::Whole);
    let names: Vec<&str> = parsed.layers.iter().map(|layer| layer.name).collect();
    match names[..] {
        ["ethernet", "ipv4" | "ipv6", "tcp"] => Some("tcp"),
        ["ethernet", "ipv4" | "ipv6", "udp"] => Some("udp"),
        _ => None,
    }
}
