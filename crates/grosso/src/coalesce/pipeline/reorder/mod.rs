//! Repair of reordering. Packets that are ahead of a missing packet wait for it and are released in sequence.
//!
//! Several paths, links or queues reorder the packets of a connection. Each hole ends a train, and three packets ahead
//! of a hole make the sender assume a loss. This stage delivers a TCP packet that continues its flow immediately; a
//! packet ahead of a hole waits in a run with its neighbors until the hole is filled, or until a limit on time or
//! memory is reached. No packet is trimmed, dropped or duplicated; every packet is released once and unchanged.

mod entry;
mod repair;
mod resequencer;

pub(crate) use resequencer::Resequencer;
