//! Tests the dissector on valid, inconsistent and hostile frames, and compares it with an independent implementation.

mod common;
mod differential;
mod extent;
mod hostile;
mod stacks;
mod stops;
mod structure;
