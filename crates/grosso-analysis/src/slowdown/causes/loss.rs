//! Finds loss, reordering, duplicate packets, and retransmissions that were not caused by loss.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    let basis = if figures.told_by_time > 0 {
        Basis::Timing
    } else if figures.told_by_timestamps > 0 {
        Basis::Timestamps
    } else {
        Basis::IpId
    };
    let is_black_hole = findings.iter().any(|found| {
        matches!(
            found.cause,
            Cause::BlackHole | Cause::PathMtu | Cause::PathMtuIgnored | Cause::MergedByRouter
        )
    });
    let mut found = Vec::new();
    let tails = if view.stream.order.is_own() { figures.tails_lost } else { 0 };
    // A damaged packet leaves a hole but is not lost.
    let lost = (figures.lost_before + tails).saturating_sub(figures.damaged);
    if lost > 0 && !is_black_hole {
        found.push(view.found(Cause::LostBefore, basis, lost));
    }
    if figures.late > 0 {
        let late = view.found(Cause::ReorderedBefore, basis, figures.late);
        found.push(Finding { time_ns: Some(figures.late_ns_max), ..late });
    }
    // After a black hole, smaller packets replace larger ones, so gaps close without a matching retransmission.
    if figures.healed > 0 && !is_black_hole {
        found.push(view.found(Cause::ReorderedAfter, Basis::Sack, figures.healed));
    }
    let (spurious, lost) = (figures.spurious(), figures.lost_after());
    if lost > 0 && !is_black_hole {
        found.push(view.found(Cause::LostAfter, Basis::Sequence, lost));
    }
    let is_cause = spurious >= SPURIOUS_MIN && figures.healed == 0 && figures.late == 0;
    if is_cause && !is_black_hole {
        let by = if figures.received_twice > 0 { Basis::Dsack } else { Basis::Sequence };
        found.push(view.found(Cause::Spurious, by, spurious));
    }
    let copies_after = figures.received_twice.saturating_sub(figures.retransmitted);
    if figures.duplicated > 0 {
        found.push(view.found(Cause::Duplicated, Basis::IpId, figures.duplicated));
    } else if copies_after > 0 && !is_black_hole {
        found.push(view.found(Cause::Duplicated, Basis::Dsack, copies_after));
    }
    found.sort_by_key(|found| (std::cmp::Reverse(found.packets), found.cause));
    findings.extend(found);
}

/// Minimum number of unnecessary retransmissions. Tail loss probes cause an occasional one.
const SPURIOUS_MIN: u32 = 3;
