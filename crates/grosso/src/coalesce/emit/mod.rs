//! Results of coalescing: deliveries, verdicts, reasons for every decision, and counters.

pub(crate) mod delivery;
pub mod reason;
pub(crate) mod stats;
pub(crate) mod verdict;
