//! Counters of a coalescer, by name and by reason. Counters never decrease.

use crate::{
    acknowledge::Kept,
    coalesce::emit::reason::{Close, NoMerge, Pass, Release},
};

/// Counters of a coalescer since its creation. Packet counts satisfy `packets_in = packets_out + filtered +
/// packets_held()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoalesceStats {
    /// Number of frames pushed.
    pub frames_in: u64,
    /// Total length of the pushed frames in bytes.
    pub bytes_in: u64,
    /// Number of wire packets that the pushed frames represent. Each segment of a superframe counts as one packet.
    pub packets_in: u64,
    /// Number of frames delivered, including single packets.
    pub frames_out: u64,
    /// Total length of the delivered frames in bytes.
    pub bytes_out: u64,
    /// Number of wire packets that the delivered frames represent.
    pub packets_out: u64,
    /// Number of delivered superframes, which are trains of at least two packets.
    pub superframes: u64,
    /// Number of wire packets that the delivered superframes represent.
    pub superframe_packets: u64,
    /// Number of packets that could not be merged into any train, by reason.
    pub passed: [u64; Pass::COUNT],
    /// Number of packets that did not fit into the train of their flow, by reason.
    pub refused: [u64; NoMerge::COUNT],
    /// Number of trains delivered, by reason. [`Close::Never`] stays zero.
    pub closed: [u64; Close::COUNT],
    /// Number of acknowledgments dropped because a later one made them redundant.
    pub filtered: u64,
    /// Number of queued acknowledgments that were not dropped, by reason.
    pub kept: [u64; Kept::COUNT],
    /// Number of delivered vectors of acknowledgments. A vector consists of unmerged acknowledgments of one flow that
    /// are delivered together.
    pub vectors: u64,
    /// Number of acknowledgments in the delivered vectors, including vectors of a single acknowledgment.
    pub vector_packets: u64,
    /// Number of delivered frames by the number of wire packets in the frame. Bucket `i` counts frames of up to
    /// [`SEGMENT_BUCKETS`]`[i]` packets; the last bucket counts all larger frames.
    pub segments: [u64; SEGMENT_BUCKETS.len() + 1],
    /// Counters for the repair of reordering.
    pub reorder: ReorderStats,
}

/// Counters for the repair of reordering. Late and overlapping packets are counted as [`Pass::TcpLate`] and
/// [`Pass::TcpOverlap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReorderStats {
    /// Number of wire packets queued because an earlier packet of their flow was missing or the start of the flow was
    /// unknown.
    pub waited: u64,
    /// Number of wire packets released from the queue, by reason.
    pub released: [u64; Release::COUNT],
    /// Maximum memory used by queued packets so far, in bytes.
    pub bytes_max: u64,
}

impl ReorderStats {
    /// Returns the number of queued wire packets.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waited - self.released.iter().sum::<u64>()
    }
}

/// Upper bounds of the buckets of [`CoalesceStats::segments`], in wire packets per frame.
pub const SEGMENT_BUCKETS: [u32; 9] = [1, 2, 4, 8, 16, 32, 45, 64, 128];

impl Default for CoalesceStats {
    fn default() -> Self {
        Self {
            frames_in: 0,
            bytes_in: 0,
            packets_in: 0,
            frames_out: 0,
            bytes_out: 0,
            packets_out: 0,
            superframes: 0,
            superframe_packets: 0,
            passed: [0; Pass::COUNT],
            refused: [0; NoMerge::COUNT],
            closed: [0; Close::COUNT],
            filtered: 0,
            kept: [0; Kept::COUNT],
            vectors: 0,
            vector_packets: 0,
            segments: [0; SEGMENT_BUCKETS.len() + 1],
            reorder: ReorderStats::default(),
        }
    }
}

impl CoalesceStats {
    /// Returns the number of wire packets that were pushed and neither delivered nor dropped.
    #[must_use]
    pub const fn packets_held(&self) -> u64 {
        self.packets_in - self.packets_out - self.filtered
    }

    /// Returns the counters in the form in which inet_lro reports them (rule L4).
    #[must_use]
    pub fn lro(&self) -> LroStats {
        let flushed = self.closed.iter().sum::<u64>();
        let alone = flushed.saturating_sub(self.superframes);
        LroStats {
            aggregated: self.superframe_packets + alone,
            flushed,
            no_descriptor: self.passed[Pass::TableFull.index()]
                + self.closed[Close::TableFull.index()]
                + self.closed[Close::BucketFull.index()],
        }
    }

    /// Returns the name and value of each counter that is not split by reason. Omits the histogram of frame sizes and
    /// the memory maximum, because they are not plain counters.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("frames_in", self.frames_in),
            ("bytes_in", self.bytes_in),
            ("packets_in", self.packets_in),
            ("frames_out", self.frames_out),
            ("bytes_out", self.bytes_out),
            ("packets_out", self.packets_out),
            ("superframes", self.superframes),
            ("superframe_packets", self.superframe_packets),
            ("filtered", self.filtered),
            ("vectors", self.vectors),
            ("vector_packets", self.vector_packets),
            ("reorder_waited", self.reorder.waited),
        ]
        .into_iter()
    }

    /// Returns the counters by reason, as tuples of event, reason name and count. Different events may have reasons
    /// with the same name.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let passed = Pass::ALL.iter().map(|why| ("passed", why.name(), self.passed[why.index()]));
        let refused =
            NoMerge::ALL.iter().map(|why| ("refused", why.name(), self.refused[why.index()]));
        let closed = Close::ALL.iter().map(|why| ("closed", why.name(), self.closed[why.index()]));
        let kept = Kept::ALL.iter().map(|why| ("kept", why.name(), self.kept[why.index()]));
        let released = &self.reorder.released;
        let released =
            Release::ALL.iter().map(|why| ("released", why.name(), released[why.index()]));
        passed.chain(refused).chain(closed).chain(kept).chain(released)
    }

    pub(crate) fn count_in(&mut self, bytes: usize, packets: u32) {
        self.frames_in += 1;
        self.bytes_in += bytes as u64;
        self.packets_in += u64::from(packets);
    }

    #[inline]
    pub(crate) fn count_out(&mut self, bytes: usize, packets: u32, superframe: bool) {
        self.frames_out += 1;
        self.bytes_out += bytes as u64;
        self.packets_out += u64::from(packets);
        if superframe {
            self.superframes += 1;
            self.superframe_packets += u64::from(packets);
        }
        let bucket = if packets <= 1 {
            0
        } else {
            SEGMENT_BUCKETS.iter().position(|&le| packets <= le).unwrap_or(SEGMENT_BUCKETS.len())
        };
        self.segments[bucket] += 1;
    }
}

/// Counters as defined by inet_lro.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LroStats {
    /// Number of packets in trains, including the first packet of each train.
    pub aggregated: u64,
    /// Number of trains delivered, including trains of one packet.
    pub flushed: u64,
    /// Number of packets that arrived when the flow table was full. Depending on the profile, the packet was delivered
    /// alone or a train was evicted.
    pub no_descriptor: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CoalesceStats;
    use crate::coalesce::emit::reason::NoMerge;

    #[test]
    fn a_name_is_that_of_one_counter() {
        let mut stats = CoalesceStats { frames_in: 3, ..CoalesceStats::default() };
        stats.refused[NoMerge::ALL[0].index()] = 2;
        let sums: std::vec::Vec<_> = stats.named().collect();
        let reasons: std::vec::Vec<_> = stats.reasons().collect();
        assert_eq!(sums.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>().len(), sums.len());
        let names = reasons.iter().map(|(list, name, _)| (*list, *name));
        assert_eq!(names.collect::<BTreeSet<_>>().len(), reasons.len());
        assert!(sums.contains(&("frames_in", 3)));
        assert!(reasons.contains(&("refused", NoMerge::ALL[0].name(), 2)));
        assert_eq!(reasons.iter().map(|(.., count)| count).sum::<u64>(), 2);
    }
}
