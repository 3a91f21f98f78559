//! Packet offload in userspace: the engine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bytes;
pub mod checksum;
pub mod coalesce;
pub mod features;
mod flow;
mod frame;
pub mod meta;
pub mod segment;
pub mod stats;
pub mod template;
mod tunnel;

pub use coalesce::{Coalescer, Delivery, Profile, Sink, Verdict};
pub use frame::Frame;
pub use meta::Meta;
