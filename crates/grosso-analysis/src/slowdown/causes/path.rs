//! Finds causes on the path: a small MTU, routers that merge packets, and damaged packets.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    let mtu = u32::from(figures.icmp_mtu);
    if mtu > 0 {
        // The message quotes a packet that is larger than every packet of the sender.
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
    /// Returns whether the peer sent anything, which shows that small packets pass through the path.
    fn has_small_pass(&self) -> bool {
        self.peer.figures.acks > 0 || self.peer.figures.frames > 0
    }
}

/// Minimum number of transmissions of one segment without an acknowledgment.
const STUCK_MIN: u32 = 4;
/// Default MSS of TCP over IPv4 (RFC 9293 section 3.7.1). No path MTU explains the loss of a smaller segment.
const EVERY_PATH_BYTES: u32 = 536;
