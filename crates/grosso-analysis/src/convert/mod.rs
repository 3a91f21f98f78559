//! Commands that convert a capture or verify its checksums.
//!
//! | module | job |
//! |---|---|
//! | `wire` | converts a host capture to the packets on the wire |
//! | `coalesce`, `segment` | merge packets as a receiving host does, and split them again |
//! | `fragment`, `reassemble` | create and reassemble IP fragments |
//! | `encap`, `decap` | encapsulate and decapsulate packets |
//! | `csum` | verifies and repairs checksums |
//! | `cutter` | segments one superframe |
//!
//! Each command is a [`CaptureCommand`](crate::capture::CaptureCommand): a struct with the options, and a `run` method
//! that returns a report.

mod coalesce;
mod csum;
mod cutter;
mod decap;
mod encap;
mod fragment;
mod reassemble;
mod segment;
mod wire;

pub use self::{
    coalesce::Coalesce,
    csum::{Fix, Verify, Which},
    cutter::{CutFrame, Cutter, How, Uncut},
    decap::Decap,
    encap::Encap,
    fragment::Fragment,
    reassemble::Reassemble,
    segment::Segment,
    wire::Wire,
};
