//! The rows of the table: a kind of work on a workload, hot or cold.

use grosso_benches::{Cache, SEED};
use grosso_testkit::{
    random::Random,
    workloads::{Workload, workload},
};
use serde::Serialize;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// Join packets whose checksums a device verified.
    CoalesceTrusted,
    /// Join packets whose checksums nobody verified.
    CoalesceVerified,
    /// Cut superframes into complete packets, payload copied.
    SegmentCopy,
    /// Cut superframes, payload left where it is.
    SegmentScatter,
    /// Join fragments.
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

    /// What one of its packets is called.
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
    pub(crate) workload: &'static str,
    pub(crate) cache: Cache,
}

impl Row {
    /// What `--only` is compared with.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}/{}", self.work.name(), self.cache.name(), self.workload)
    }

    /// The frames of the row.
    pub(crate) fn workload(&self) -> Workload {
        if self.work == Work::Checksum {
            buffer(self.workload)
        } else {
            workload(self.workload, SEED)
        }
    }
}

/// Every row, in the order of the report.
pub(crate) fn rows() -> Vec<Row> {
    let of = |work, cache, workloads: &[&'static str]| -> Vec<Row> {
        workloads.iter().map(|workload| Row { work, workload, cache }).collect()
    };
    [
        of(Work::CoalesceTrusted, Cache::Hot, COALESCED),
        of(Work::CoalesceVerified, Cache::Hot, COALESCED),
        of(Work::SegmentCopy, Cache::Hot, &["gso_tcp4", "gso_udp4", "gso_vxlan", "gso_gre"]),
        of(Work::SegmentScatter, Cache::Hot, &["gso_tcp4", "gso_vxlan", "gso_gre"]),
        of(Work::Reassemble, Cache::Hot, &["frag4_8k", "frag4_64k"]),
        of(Work::Checksum, Cache::Hot, &["64", "1500", "9000", "65536"]),
        of(Work::CoalesceTrusted, Cache::Cold, &["tcp4_1"]),
        of(Work::CoalesceVerified, Cache::Cold, &["tcp4_1"]),
    ]
    .concat()
}

/// The workload of a checksum: one buffer of random bytes.
fn buffer(name: &'static str) -> Workload {
    let len = name.parse().expect("a number of bytes");
    let frames = vec![Random::new(SEED).bytes(len)];
    let packets = (CHECKSUM_BYTES_A_ROUND / len).max(1);
    Workload { name, frames, packets, payload_bytes: len, gso: None }
}

const COALESCED: &[&str] = &[
    "tcp4_1",
    "tcp4_1000rr",
    "tcp4_small",
    "tcp6_16burst",
    "udp4_quic",
    "vxlan_tcp4",
    "gre_tcp4",
    "gue_rco_tcp4",
];

/// What one round of a checksum sums up, so that every length takes about as long.
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
            assert!(!row.workload().frames.is_empty(), "{}", row.name());
        }
    }
}
