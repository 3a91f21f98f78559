//! Finds traffic that receive offload cannot merge.

use super::{Basis, Cause, Finding, View};

pub(super) fn find(view: &View<'_>, findings: &mut Vec<Finding>) {
    let figures = view.figures;
    // Superframes show that merging works, unless the sender itself created them.
    if figures.packets < PACKETS_MIN || figures.superframes > figures.frames / 20 {
        return;
    }
    let mean = figures.bytes / u64::from(figures.packets);
    let rate_ns = figures.duration_ns() / u64::from(figures.packets);
    if mean <= TINY_BYTES && rate_ns <= SPACING_NS_MAX {
        let found = view.found(Cause::TinySegments, Basis::Sizes, figures.packets);
        findings.push(Finding { bytes: Some(mean), ..found });
    } else if figures.pushed >= figures.frames - figures.frames / 10 && rate_ns <= SPACING_NS_MAX {
        findings.push(view.found(Cause::PushOnEveryPacket, Basis::Flags, figures.pushed));
    } else if figures.alternated > figures.packets / 2 && rate_ns <= SPACING_NS_MAX {
        let found = view.found(Cause::AlternatingFlows, Basis::Order, figures.alternated);
        findings.push(Finding { time_ns: Some(rate_ns), ..found });
    }
    if figures.pairs >= figures.packets / 4 && figures.stepped >= figures.pairs / 2 {
        findings.push(view.found(Cause::SteppingTimestamps, Basis::Timestamps, figures.stepped));
    }
}

/// Minimum number of packets in a direction for its traffic to be evaluated.
const PACKETS_MIN: u32 = 256;
/// Maximum mean payload, in bytes, at which segments count as tiny.
const TINY_BYTES: u64 = 200;
/// Maximum mean time between packets, in nanoseconds. Receive offload cannot merge packets that are farther apart.
const SPACING_NS_MAX: u64 = 1_000_000;
