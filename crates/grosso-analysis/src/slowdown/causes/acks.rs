//! Acknowledgments that were lost on the path.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = &view.peer.figures;
    let (acks, missing) = (figures.acks, figures.acks_missing.saturating_sub(figures.acks_damaged));
    let is_many = missing >= MISSING_MIN && missing >= (acks + missing) / SHARE;
    // A capture without all data lacks acknowledgments too.
    let is_captured = view.figures.uncaptured == 0;
    if is_many && is_captured && view.peer.order.is_own() {
        let found = view.found(Cause::AcksLost, Basis::IpId, missing);
        let lost = Finding { of_packets: u64::from(acks) + u64::from(missing), ..found };
        // Retransmissions after lost acknowledgments are their effect.
        let place = findings.iter().position(|found| found.cause == Cause::Spurious);
        findings.insert(place.unwrap_or(findings.len()), lost);
    }
}

/// Minimum number of missing acknowledgments.
const MISSING_MIN: u32 = 3;
/// Minimum share of missing acknowledgments: one in `SHARE`.
const SHARE: u32 = 200;
