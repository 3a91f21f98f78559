//! The dissector: right frames, lying frames, hostile frames, and somebody else's opinion.

mod common;
mod differential;
mod extent;
mod hostile;
mod stacks;
mod stops;
mod structure;
