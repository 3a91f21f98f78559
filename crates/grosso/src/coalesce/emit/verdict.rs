//! Result of a push.

use crate::coalesce::emit::reason::{NoMerge, Pass};

/// Result of pushing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet started a train.
    Held,
    /// The packet was appended to the train of its flow. The train may have been delivered immediately.
    Joined,
    /// The packet did not fit into the held train of its flow. The train was delivered; the packet then started the
    /// next train or was delivered as well.
    Refused(NoMerge),
    /// The packet cannot be merged and was delivered unchanged.
    Passed(Pass),
    /// The packet is queued in a [`Batch`] or by reordering repair ([`Reorder`]). Its eventual result appears only in
    /// the counters.
    ///
    /// [`Batch`]: crate::coalesce::Batch
    /// [`Reorder`]: crate::coalesce::Reorder
    Waits,
}
