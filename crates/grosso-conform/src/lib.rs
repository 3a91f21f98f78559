//! Conformance tests for programs that coalesce packets, segment superframes or reassemble fragments: test vectors, a
//! runner for the program under test, and the rules that its output must obey. `docs/conformance.md` describes the
//! cases, the format and the rules. This crate is used by the command `grosso conform` (`grosso-cli`).
//!
//! ```no_run
//! use std::{sync::atomic::AtomicBool, time::Duration};
//!
//! use grosso_conform::{Task, examine};
//!
//! let words = ["./my-coalescer".into(), "--udp".into()]; // the program and its arguments
//! let (timeout, interrupted) = (Duration::from_secs(10), AtomicBool::new(false));
//! let score = examine(Task::Coalesce, &words, timeout, &interrupted)?;
//! println!("violates a rule: {}", score.is_wrong());
//! println!("merges every packet that may be merged: {}", score.joins_all());
//! # Ok::<(), grosso_report::error::Failure>(())
//! ```
//!
//! | item | job |
//! |---|---|
//! | [`examine`] | run every case with one program, and restart the program after a breakdown |
//! | [`vectors`], [`vectors_of`] | the packets of each case, its rules and its flows |
//! | [`judge`] | check that no packet is lost, changed, reordered, or merged against the rules |
//! | [`Fault`], [`Law`] | a violation, and the violated rule |
//! | [`framing`] | the records that are passed to the program and back |
//! | [`superframe`] | the packets in a record |
//! | [`report`] | the score of a program, as text and as JSON |
//!
//! To test a coalescer in the same process, pass its output for a vector's frames to [`judge`]:
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

// Private modules: `exact` checks segmentation and reassembly, whose correct output is known; `difference` finds the
// field in which two packets differ, and the rule that applies to it; `program` runs a program and limits its time and
// output.
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

/// Placeholder whose doc test is the example in `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
