//! Reordering repair. Packets ahead of a missing packet wait for it and are released in sequence.
//!
//! The packets of a connection are reordered if they take different paths, links or queues. Each hole ends a train, and
//! after three packets ahead of a hole the sender assumes a loss. This stage immediately delivers a TCP packet that
//! continues its flow. A packet ahead of a hole waits until the hole is filled, or until a limit on time or memory is
//! reached; adjacent waiting packets form a run. No packet is trimmed, dropped or duplicated; every packet is released
//! once and unchanged.

mod entry;
mod repair;
mod resequencer;

pub(crate) use resequencer::Resequencer;
