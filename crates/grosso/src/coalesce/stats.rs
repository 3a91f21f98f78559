//! Counters of a coalescer, by name and by reason. They only grow; formatting is left to the callers.

use crate::{
    acknowledge::Kept,
    coalesce::reason::{Close, NoMerge, Pass, Release},
};

/// Counters of a coalescer since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoalesceStats {
    /// Frames pushed.
    pub frames_in: u64,
    /// Bytes of the frames pushed.
    pub bytes_in: u64,
    /// Wire packets that the pushed frames stand for: a superframe counts as its segments.
    pub packets_in: u64,
    /// Frames delivered, superframes and single ones.
    pub frames_out: u64,
    /// Bytes of the frames delivered.
    pub bytes_out: u64,
    /// Wire packets that the delivered frames stand for.
    pub packets_out: u64,
    /// Superframes among the delivered frames: trains of at least two packets.
    pub superframes: u64,
    /// Wire packets in those superframes.
    pub superframe_packets: u64,
    /// Packets that cannot be in a train, by reason.
    pub passed: [u64; Pass::COUNT],
    /// Packets that did not join the train of their flow, by reason.
    pub refused: [u64; NoMerge::COUNT],
    /// Trains that left, by reason; [`Close::Never`] stays zero here.
    pub closed: [u64; Close::COUNT],
    /// Acknowledgments dropped because a later one implied them.
    pub thinned: u64,
    /// Acknowledgments that waited and were not dropped, by reason.
    pub kept: [u64; Kept::COUNT],
    /// Vectors of acknowledgments: those of one flow that waited for each other and left together, unmerged.
    pub vectors: u64,
    /// Acknowledgments in these vectors; one alone is a vector too.
    pub vector_packets: u64,
    /// Delivered frames by the wire packets that each stands for; bucket `i` counts those up to
    /// [`SEGMENT_BUCKETS`]`[i]`, the last one those beyond.
    pub segments: [u64; SEGMENT_BUCKETS.len() + 1],
    /// Counters of the repair of reordering.
    pub reorder: ReorderStats,
}

/// Counters of the repair of reordering. Packets that were late or overlapped others are counted as [`Pass::TcpLate`]
/// and [`Pass::TcpOverlap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReorderStats {
    /// Wire packets that waited because they were ahead of their flow, or its first.
    pub waited: u64,
    /// Those that were released, by reason.
    pub released: [u64; Release::COUNT],
    /// Most memory that waited at once, in bytes.
    pub bytes_max: u64,
}

impl ReorderStats {
    /// Wire packets that are waiting.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waited - self.released.iter().sum::<u64>()
    }
}

/// Upper bounds of the buckets of [`CoalesceStats::segments`], in wire packets a frame.
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
            thinned: 0,
            kept: [0; Kept::COUNT],
            vectors: 0,
            vector_packets: 0,
            segments: [0; SEGMENT_BUCKETS.len() + 1],
            reorder: ReorderStats::default(),
        }
    }
}

impl CoalesceStats {
    /// Wire packets pushed, and neither delivered nor dropped yet.
    #[must_use]
    pub const fn packets_held(&self) -> u64 {
        self.packets_in - self.packets_out - self.thinned
    }

    /// The counters that inet_lro would have had (rule L4).
    #[must_use]
    pub fn lro(&self) -> LroStats {
        let flushed = self.closed.iter().sum::<u64>();
        let alone = flushed.saturating_sub(self.superframes);
        LroStats {
            aggregated: self.superframe_packets + alone,
            flushed,
            no_descriptor: self.closed[Close::TableFull.index()]
                + self.closed[Close::BucketFull.index()],
        }
    }

    #[inline]
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

/// The counters of inet_lro, by its own definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LroStats {
    /// Packets taken into trains, the first of each included.
    pub aggregated: u64,
    /// Trains delivered, including those of one packet.
    pub flushed: u64,
    /// Times that the table was full. inet_lro then delivered the packet alone; here a train makes room.
    pub no_descriptor: u64,
}
