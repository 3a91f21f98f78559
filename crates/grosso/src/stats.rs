//! Counters by name and by reason. They only grow; formatting is left to the callers.

pub use crate::{
    coalesce::stats::{CoalesceStats, LroStats, ReorderStats, SEGMENT_BUCKETS},
    reassemble::ReassembleStats,
};
