//! Reordering repaired: what is ahead of its flow waits for what is missing, and leaves in sequence.
//!
//! Several paths, links or queues make packets of one connection overtake each other. Each hole ends a train, and
//! three of them make the sender believe in a loss. Here a packet of TCP that continues its flow goes on at once, as
//! ever; one that is ahead waits in a run of its neighbours until the hole before it fills, or until a time or a bound
//! says that it has waited enough. Nothing is trimmed, dropped or made twice: every packet leaves once, as it came.

mod entry;
mod repair;
mod resequencer;

pub(super) use resequencer::Resequencer;
