//! The dissector on valid, inconsistent and hostile frames, and compared with an independent implementation.

mod common;
mod differential;
mod extent;
mod hostile;
mod stacks;
mod stops;
