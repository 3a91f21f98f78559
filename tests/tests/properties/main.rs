//! What holds of the engine whatever comes: laws, order, conservation, bounds of memory and time.
//!
//! Every case is made from a seed that a failure prints; how many frames it has is what shrinks.

mod checksum_forms;
mod collisions;
mod holding;
mod oracle;
mod order;
mod round_trip;
mod segmentation;
mod trains;
