//! Counters by name and by reason. Counters only increase; the caller formats them.

pub use crate::{
    coalesce::stats::{CoalesceStats, LroStats, ReorderStats, SEGMENT_BUCKETS},
    reassemble::ReassembleStats,
};
