//! Pure acknowledgments: records, summaries and filtering.
//!
//! A sender uses acknowledgments as a clock: it looks at how many arrive, when they arrive, how many bytes they
//! acknowledge, and how they are ECN-marked. Merging data packets loses none of this information; merging
//! acknowledgments does, unless their content is kept with the superframe.
//!
//! * A [`Record`] stores one acknowledgment in 32 bytes, and [`Records`] stores a bounded number of records for one
//!   flow in order of arrival. A sender that reads records computes the same congestion window, round-trip times and
//!   ECN marks as it would from the packets (P15).
//! * A [`Summary`] keeps the counts that would be lost when a lossy profile merges acknowledgments.
//! * [`AckFilter`] drops queued acknowledgments that a later one makes redundant.

mod filter;
mod record;
mod summary;

pub use filter::{AckFilter, AckFiltering, Fate, Kept};
pub use record::{Full, Ineligible, RECORDS_MAX, Record, Records, Stamp};
pub use summary::{Summary, Timestamps};
