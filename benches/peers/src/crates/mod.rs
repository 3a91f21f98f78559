//! Peers that are crates, which run in this process.

mod checksum;
mod etherparse;
mod smoltcp;
mod tun_rs;

use grosso_testkit::workloads::Workload;

use crate::{contender::Boxed, work::Work};

/// Returns the contenders for a kind of work on a hot workload.
pub(crate) fn contenders(work: Work, workload: &Workload) -> Vec<Boxed<'_>> {
    match work {
        Work::CoalesceVerified => tun_rs::coalescer(workload).into_iter().collect(),
        Work::SegmentCopy => tun_rs::segmenter(workload).into_iter().collect(),
        Work::Reassemble => smoltcp::reassemblers(workload)
            .into_iter()
            .chain(etherparse::reassemblers(workload))
            .collect(),
        Work::Checksum => checksum::contenders(workload),
        Work::CoalesceTrusted | Work::SegmentScatter => Vec::new(),
    }
}
