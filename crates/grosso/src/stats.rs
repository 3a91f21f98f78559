//! Counters by name and by reason. They only grow; formatting is for the programs above.

use crate::{
    acknowledge::Kept,
    coalesce::reason::{Close, NoMerge, Pass, Release},
    reassemble::reason::{Discard, Pass as Unjoined},
};

/// What a coalescer did since it was made.
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
    /// Packets that can be in no train, by reason.
    pub passed: [u64; Pass::COUNT],
    /// Packets that did not join the train of their flow, by reason.
    pub refused: [u64; NoMerge::COUNT],
    /// Trains that left, by reason; [`Close::Never`] stays zero here.
    pub closed: [u64; Close::COUNT],
    /// Acknowledgments dropped because a later one said all that they said.
    pub thinned: u64,
    /// Acknowledgments that waited and were not dropped, by reason.
    pub kept: [u64; Kept::COUNT],
    /// Acknowledgments of one flow that waited for each other and left together, whole.
    pub vectors: u64,
    /// How many those were; one alone is a vector too.
    pub vector_packets: u64,
    /// Delivered frames by the wire packets that each stands for; bucket `i` counts those up to
    /// [`SEGMENT_BUCKETS`]`[i]`, the last one those beyond.
    pub segments: [u64; SEGMENT_BUCKETS.len() + 1],
    /// What the repair of reordering did.
    pub reorder: ReorderStats,
}

/// What the repair of reordering did. Packets that were late or overlapped others are counted as
/// [`Pass::TcpLate`] and [`Pass::TcpOverlap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReorderStats {
    /// Wire packets that waited because they were ahead of their flow, or its first.
    pub waited: u64,
    /// Those of them that left, by reason.
    pub released: [u64; Release::COUNT],
    /// Most memory that waited at once, in bytes.
    pub bytes_max: u64,
}

impl ReorderStats {
    /// Wire packets that wait.
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

    /// What inet_lro would have counted (rule L4).
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

/// The counters of inet_lro, by its own meaning of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LroStats {
    /// Packets taken into trains, the first of each too.
    pub aggregated: u64,
    /// Trains delivered, also those of one packet.
    pub flushed: u64,
    /// Times that the table was full. inet_lro then delivered the packet alone; here a train makes room.
    pub no_descriptor: u64,
}

/// What a reassembler did since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassembleStats {
    /// Frames pushed.
    pub frames_in: u64,
    /// Frames that left as they came, by reason.
    pub passed: [u64; Unjoined::COUNT],
    /// Fragments among the frames pushed: those that did not pass.
    pub fragments_in: u64,
    /// Fragments in datagrams that left whole.
    pub fragments_joined: u64,
    /// Fragments that left as they came, their flow known.
    pub fragments_forwarded: u64,
    /// Fragments that came before.
    pub duplicates: u64,
    /// Fragments discarded, by reason.
    pub fragments_discarded: [u64; Discard::COUNT],
    /// Datagrams that left whole, or whose fragments have all left.
    pub datagrams: u64,
    /// Incomplete datagrams that were discarded, by reason; those killed by their first fragment
    /// count as well.
    pub datagrams_discarded: [u64; Discard::COUNT],
    /// Fragments that came with a description of how to cut them (rule F25).
    pub gso_stripped: u64,
    /// Most memory that was held at once, in bytes.
    pub held_bytes_max: u64,
}

impl Default for ReassembleStats {
    fn default() -> Self {
        Self {
            frames_in: 0,
            passed: [0; Unjoined::COUNT],
            fragments_in: 0,
            fragments_joined: 0,
            fragments_forwarded: 0,
            duplicates: 0,
            fragments_discarded: [0; Discard::COUNT],
            datagrams: 0,
            datagrams_discarded: [0; Discard::COUNT],
            gso_stripped: 0,
            held_bytes_max: 0,
        }
    }
}

impl ReassembleStats {
    /// Fragments pushed and neither left nor discarded.
    #[must_use]
    pub fn fragments_held(&self) -> u64 {
        let discarded: u64 = self.fragments_discarded.iter().sum();
        let gone = self.fragments_joined + self.fragments_forwarded + self.duplicates + discarded;
        self.fragments_in - gone
    }
}
