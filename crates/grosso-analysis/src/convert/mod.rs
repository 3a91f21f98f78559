//! Commands that turn a capture into another one, or judge its checksums.
//!
//! | module | job |
//! |---|---|
//! | `wire` | a host capture as the packets of the wire |
//! | `coalesce`, `segment` | packets merged as a receiving host merges them, and split again |
//! | `fragment`, `reassemble` | IP fragments made, and joined |
//! | `encap`, `decap` | packets put into tunnels, and taken out |
//! | `csum` | checksums verified, and repaired |
//! | `cutter` | the splitting of one superframe |
//!
//! Each is a [`CaptureCommand`](crate::capture::CaptureCommand): options whose `run` returns a report.

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
