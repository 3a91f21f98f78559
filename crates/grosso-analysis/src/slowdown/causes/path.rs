//! Finds causes that lie on the path: a small MTU, routers that merge packets, and damaged packets.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    let mtu = u32::from(figures.icmp_mtu);
    if mtu > 0 {
        // The message quotes a packet that is larger than anything the sender sent.
        let is_merged = u32::from(figures.icmp_quoted) > figures.ip_bytes_max;
        let guessed = if figures.is_icmp_repeated { figures.above_mtu_guessed } else { 0 };
        let (cause, packets) = match figures.above_mtu + guessed {
            _ if is_merged && figures.ip_bytes_max <= mtu => (Cause::MergedByRouter, 1),
            0 => (Cause::PathMtu, 1),
            packets => (Cause::PathMtuIgnored, packets),
        };
        let found = view.found(cause, Basis::Icmp, packets);
        findings.push(Finding { bytes: Some(mtu.into()), ..found });
    } else if figures.stuck_bytes > EVERY_PATH_BYTES
        && (figures.stuck_times >= STUCK_MIN || figures.stuck_probed)
    {
        let found = view.found(Cause::BlackHole, Basis::Sequence, figures.stuck_times);
        let is_proven = figures.stuck_probed || figures.segment_max > figures.stuck_bytes;
        findings.push(Finding {
            bytes: Some(figures.stuck_bytes.into()),
            guess: !is_proven && !view.has_small_pass(),
            ..found
        });
    }
    if figures.bad > 0 {
        findings.push(view.found(Cause::BadChecksums, Basis::Checksum, figures.bad));
    }
}

impl View<'_> {
    /// Returns whether the peer sent anything, which proves that small packets get through.
    fn has_small_pass(&self) -> bool {
        self.peer.figures.acks > 0 || self.peer.figures.frames > 0
    }
}

/// Minimum number of times that a segment must be sent without being acknowledged.
const STUCK_MIN: u32 = 4;
/// Default MSS for TCP over IPv4 (RFC 9293 section 3.7.1). The path MTU cannot explain the loss of a smaller segment.
const EVERY_PATH_BYTES: u32 = 536;
