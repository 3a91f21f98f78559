//! Finds acknowledgments that were lost on the path or that cover many packets.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = &view.peer.figures;
    let (acks, missing) = (figures.acks, figures.acks_missing.saturating_sub(figures.acks_damaged));
    let is_many = missing >= MISSING_MIN && missing >= (acks + missing) / SHARE;
    // If data is missing from the capture, so are acknowledgments.
    let is_captured = view.figures.uncaptured == 0;
    if is_many && is_captured && view.peer.order.is_own() {
        let found = view.found(Cause::AcksLost, Basis::IpId, missing);
        let lost = Finding { of_packets: u64::from(acks) + u64::from(missing), ..found };
        // Lost acknowledgments cause retransmissions, and some of the reports about those are lost too.
        let is_effect = |found: &Finding| match found.cause {
            Cause::Spurious => true,
            Cause::LostAfter => view.figures.lost_after() <= view.figures.spurious(),
            _ => false,
        };
        let place = findings.iter().position(is_effect);
        findings.insert(place.unwrap_or(findings.len()), lost);
    }
}

/// Finds infrequent acknowledgments in a direction with no other fault. They make the sender send in bursts.
pub(super) fn find_stretched(view: &View<'_>, findings: &mut Vec<Finding>) {
    let (figures, acks) = (view.figures, view.peer.figures.acks);
    let round_trips = view.active_ns().checked_div(view.round_trip_ns).unwrap_or(0);
    // A host that sends data puts its acknowledgments in its data packets.
    let is_one_way = view.peer.figures.frames <= acks;
    // A host that merges packets acknowledges whole superframes.
    let is_merged = figures.superframes > figures.frames / 20;
    let is_rare = u64::from(acks) <= RARE_MAX * round_trips;
    // Receivers acknowledge every second full segment, no matter how many tiny segments arrive (RFC 9293).
    let full = match figures.mss {
        0 => u64::from(figures.packets),
        mss => figures.bytes / u64::from(mss),
    };
    let is_stretched = acks > 0 && full / u64::from(acks) >= STRETCHED_MIN;
    if is_stretched && figures.packets >= PACKETS_MIN && is_rare && is_one_way && !is_merged {
        findings.push(view.found(Cause::AcksStretched, Basis::Sequence, acks));
    }
}

/// Minimum number of packets before stretched acknowledgments are reported.
const PACKETS_MIN: u32 = 256;
/// Minimum number of full segments per acknowledgment.
const STRETCHED_MIN: u64 = 8;
/// Maximum number of acknowledgments per round trip.
const RARE_MAX: u64 = 4;
/// Minimum number of missing acknowledgments.
const MISSING_MIN: u32 = 3;
/// Inverse of the minimum share of missing acknowledgments: at least one in `SHARE` must be missing.
const SHARE: u32 = 200;
