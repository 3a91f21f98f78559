//! Pure acknowledgments: records, summaries and filtering.
//!
//! A sender uses its acknowledgments as a clock: it reads their number, acknowledged bytes, arrival times and ECN
//! marks. Merging data packets loses none of this information; merging acknowledgments does, unless their content is
//! kept with the superframe.
//!
//! * A [`Record`] stores one acknowledgment in 32 bytes, and [`Records`] stores a bounded number of records of one flow
//!   in order of arrival. A sender that reads records computes the same congestion window, round-trip times and marks
//!   as it would from the packets (P15).
//! * A [`Summary`] keeps the counts that would be lost when a lossy profile merges acknowledgments.
//! * [`AckFilter`] drops queued acknowledgments that a later one makes redundant.

mod filter;
mod record;
mod summary;

pub use filter::{AckFilter, AckFiltering, Fate, Kept};
pub use record::{Full, Ineligible, RECORDS_MAX, Record, Records, Stamp};
pub use summary::{Summary, Timestamps};
