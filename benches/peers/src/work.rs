//! The rows of the table: a kind of work on a workload, hot or cold.

use grosso_benches::{COALESCED, Cache, SEED, SEGMENTED};
use grosso_testkit::{
    random::Random,
    workloads::{Workload, workload},
};
use serde::Serialize;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Merge packets whose checksums a device has verified.
    CoalesceTrusted,
    /// Merge packets whose checksums have not been verified.
    CoalesceVerified,
    /// Segment superframes into complete packets, copying the payload.
    SegmentCopy,
    /// Segment superframes and leave the payload in place.
    SegmentScatter,
    /// Reassemble fragments.
    Reassemble,
    /// Sum bytes.
    Checksum,
}

impl Work {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CoalesceTrusted => "coalesce-trusted",
            Self::CoalesceVerified => "coalesce-verified",
            Self::SegmentCopy => "segment-copy",
            Self::SegmentScatter => "segment-scatter",
            Self::Reassemble => "reassemble",
            Self::Checksum => "checksum",
        }
    }

    /// Returns the unit of work as named in the report.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::CoalesceTrusted | Self::CoalesceVerified => "packet",
            Self::SegmentCopy | Self::SegmentScatter => "segment",
            Self::Reassemble => "fragment",
            Self::Checksum => "sum",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) work: Work,
    /// One workload, or several workloads that only Grosso runs.
    pub(crate) workloads: &'static [&'static str],
    pub(crate) cache: Cache,
}

impl Row {
    /// Returns the name that `--only` is compared with.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}/{}", self.work.name(), self.cache.name(), self.traffic())
    }

    /// Returns the name of the row's workload, or "each" if there are several.
    pub(crate) const fn traffic(&self) -> &'static str {
        match self.workloads {
            [one] => one,
            _ => "each",
        }
    }

    /// Generates the frames of each of the row's workloads.
    pub(crate) fn generate(&self) -> Vec<Workload> {
        let frames = match self.work {
            Work::Checksum => buffer,
            _ => |name: &'static str| workload(name, SEED),
        };
        self.workloads.iter().map(|name| frames(name)).collect()
    }
}

/// Returns every row, in the order of the report.
pub(crate) fn rows() -> Vec<Row> {
    let of = |work, cache, workloads: &'static [&'static str]| -> Vec<Row> {
        workloads.chunks(1).map(|workloads| Row { work, workloads, cache }).collect()
    };
    let each = |work| vec![Row { work, workloads: EACH, cache: Cache::Hot }];
    [
        of(Work::CoalesceTrusted, Cache::Hot, COALESCED),
        each(Work::CoalesceTrusted),
        of(Work::CoalesceVerified, Cache::Hot, COALESCED),
        each(Work::CoalesceVerified),
        of(Work::SegmentCopy, Cache::Hot, SEGMENTED),
        of(Work::SegmentScatter, Cache::Hot, &["gso_tcp4", "gso_vxlan", "gso_gre"]),
        of(Work::Reassemble, Cache::Hot, &["frag4_8k", "frag4_64k", "frag_shuffled"]),
        of(Work::Checksum, Cache::Hot, &["64", "1500", "9000", "65536"]),
        of(Work::CoalesceTrusted, Cache::Cold, &["tcp4_1"]),
        of(Work::CoalesceVerified, Cache::Cold, &["tcp4_1"]),
    ]
    .concat()
}

/// Returns the workload of a checksum: one buffer of random bytes.
fn buffer(name: &'static str) -> Workload {
    let len = name.parse().expect("a number of bytes");
    let frames = vec![Random::new(SEED).bytes(len)];
    let packets = (CHECKSUM_BYTES_A_ROUND / len).max(1);
    Workload { name, frames, packets, payload_bytes: len, gso: None }
}

/// Workloads that Grosso runs in addition to `tcp4_1`: more flows, other headers, tunnels.
const EACH: &[&str] = &[
    "tcp4_1",
    "tcp4_8rr",
    "tcp4_64burst",
    "tcp4_1000rr",
    "tcp6_16burst",
    "udp4_quic",
    "vxlan_tcp4",
    "gre_tcp4",
    "gue_rco_tcp4",
];

/// Number of bytes that a checksum round processes, whatever the length of each call, so that all rounds take about the
/// same time.
const CHECKSUM_BYTES_A_ROUND: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_workload_and_a_name_of_its_own() {
        let mut names: Vec<String> = rows().iter().map(Row::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), rows().len());
        for row in rows() {
            assert!(row.generate().iter().all(|one| !one.frames.is_empty()), "{}", row.name());
        }
    }
}
