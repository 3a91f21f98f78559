//! Conformance tests for programs that coalesce packets, segment superframes or reassemble fragments: test vectors, a
//! runner for the program under test, and the laws that its output must obey.
//!
//! | module | job |
//! |---|---|
//! | `examination` | [`examine`]: runs every case with one program, and restarts the program after a breakdown |
//! | `vectors` | [`vectors`]: the packets of each case, its rules and its flows |
//! | [`framing`] | the records that are passed to the program and back |
//! | `program` | a running program with limits on its time and output |
//! | [`superframe`] | the packets in a record |
//! | `exact` | the laws of segmentation and reassembly, for which each input has exactly one correct output |
//! | `fault` | the laws, and their violations |
//! | `judge` | [`judge`]: checks that no packet is lost, changed, reordered, or merged against the rules |
//! | `difference` | the field in which two packets differ, and the rule that applies to it |
//! | [`report`] | the score of a program, as text and as JSON |
//!
//! A coalescer in the same process can be judged too: pass its output for the frames of a vector to [`judge`].
//!
//! ```
//! use grosso_conform::{framing::Framed, judge, vectors};
//!
//! for vector in vectors()? {
//!     // This coalescer merges nothing.
//!     let frames = vector.frames.iter().cloned();
//!     let records: Vec<_> = frames.map(|frame| Framed { header: [0; 10], frame }).collect();
//!     let (faults, joins) = judge(&vector, &records);
//!     assert!(faults.is_empty() && joins == 0, "{faults:?}");
//! }
//! # Ok::<(), grosso_report::error::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod difference;
mod exact;
mod examination;
mod fault;
pub mod framing;
mod judge;
mod program;
pub mod report;
pub mod superframe;
mod vectors;

pub use self::{
    examination::examine,
    fault::{Fault, Law},
    judge::{RULES_OF_ALL, judge},
    vectors::{Task, Vector, vectors, vectors_of},
};

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
