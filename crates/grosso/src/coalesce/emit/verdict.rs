//! Result of a push.

use crate::coalesce::emit::reason::{NoMerge, Pass};

/// Result of pushing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet started a train.
    Held,
    /// The packet was appended to the train of its flow. The train may have been delivered immediately.
    Joined,
    /// The packet did not fit the held train of its flow. The train was delivered; the packet starts the next one or
    /// was delivered after it.
    Refused(NoMerge),
    /// The packet cannot be merged and was delivered unchanged.
    Passed(Pass),
    /// The packet is queued in a [`Batch`] or by reordering repair ([`Reorder`]). Its later fate appears only in the
    /// counters.
    ///
    /// [`Batch`]: crate::coalesce::Batch
    /// [`Reorder`]: crate::coalesce::Reorder
    Waits,
}
