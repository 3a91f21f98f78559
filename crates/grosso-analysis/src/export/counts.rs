//! Counts the rows of each table.

use crate::{
    report::Counts,
    reports::export::{FlowCounts, PacketCounts, TrainCounts},
    slowdown::{Cause, FlowRow},
    tables::{Packet, TrainRow},
};

/// Counts a row of the packet table.
pub(super) fn count_packet(counts: &mut PacketCounts, row: &Packet<'_>) {
    counts.rows += 1;
    counts.bytes += u64::from(row.length);
    row.time_ns.into_iter().for_each(|time_ns| counts.span.take(time_ns));
    let finding = &row.finding;
    counts.segments += u64::from(finding.segment.is_some());
    counts.guessed += u64::from(finding.is_guess);
    count(&mut counts.checksums, finding.checksum);
    count(&mut counts.evidence, finding.evidence);
    count(&mut counts.left, finding.left);
    count(&mut counts.events, finding.event);
}

/// Counts a row of the train table.
pub(super) fn count_train(counts: &mut TrainCounts, row: &TrainRow<'_>) {
    counts.rows += 1;
    counts.bytes += row.length;
    if let Some((first_ns, last_ns)) = row.times_ns {
        counts.span.take(first_ns);
        counts.span.take(last_ns);
    }
    counts.packets += u64::from(row.packets);
    counts.joined += u64::from(row.packets > 1);
    *counts.sizes.entry(row.packets).or_default() += 1;
    count(&mut counts.closed, Some(row.closed));
    count(&mut counts.why, row.why);
}

/// Counts a row of the flow table.
pub(super) fn count_flow(counts: &mut FlowCounts, row: &FlowRow) {
    counts.rows += 1;
    counts.bytes += row.bytes;
    counts.packets += row.packets;
    count(&mut counts.causes, row.cause.map(Cause::code));
}

fn count(counts: &mut Counts, name: Option<&'static str>) {
    name.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
}
