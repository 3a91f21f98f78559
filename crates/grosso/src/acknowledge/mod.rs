//! Acknowledgments without data: what each of them says, kept when many travel together.
//!
//! A sender's clock is its acknowledgments: how many came, what each of them acknowledged, when, and with which marks.
//! Joining data costs it nothing of that; joining acknowledgments does, unless what they said is kept beside them.
//!
//! * A [`Record`] is one of them in 32 bytes, and [`Records`] are those of one flow, bounded, in order of arrival.
//!   A sender that reads them like the packets has the same congestion window, round-trip times and marks (P15).
//! * A [`Summary`] is what must survive of those that a lossy profile merged.
//! * [`AckFilter`] says which of several that wait can go, because a later one says all that they said.

mod filter;
mod record;
mod summary;

pub use filter::{AckFilter, AckFiltering, Fate, Kept};
pub use record::{Full, Ineligible, RECORDS_MAX, Record, Records, Stamp};
pub use summary::{Summary, Timestamps};
