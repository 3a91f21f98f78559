//! Analysis of captures taken on hosts with offloads: which frames are wire packets, which are superframes with
//! segments of N bytes, by which evidence, and which checksums are valid.
//!
//! | module | job |
//! |---|---|
//! | [`evidence`] | the judgment whether a frame is a packet of the wire or a superframe, and its segment size |
//! | [`checksums`] | a verdict for every checksum of a packet, and the repair of those that are not right |
//! | [`slowdown`] | what slows each TCP direction: loss, reordering, windows, path MTU, with evidence and cure |
//! | [`suspicion`] | hints at UDP datagrams that look like a tunnel on an unknown port |
//! | [`headers`] | offsets and fields of packets |
//! | [`links`] | the link type by which the headers of a packet are found |
//! | [`meta`] | translation of a capture's packet metadata to the engine's, and back |
//! | [`profile`] | profiles as users write them: a name, or a file with the differences from a built-in one |
//! | [`fragments`] | IP fragments in captures: those that become datagrams, and why the others do not |
//! | [`line`](mod@line) | the times at which packets leave on a line of a given rate |
//! | [`shard`] | the share of the flows whose rows one of several runs takes |
//! | [`digest`] | the hash of the input |
//! | [`reports`] | the report of each command on captures |
//! | [`distribution`] | the distribution of values, in bounded memory |
//!
//! The crate reads no files but those of profiles (Linux), prints nothing and starts no threads: the caller passes the
//! packets of a [`grosso_capture::CaptureReader`], which reads from any reader. The example in the README classifies a
//! whole capture.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

pub mod checksums;
pub mod digest;
pub mod distribution;
pub mod evidence;
pub mod fragments;
pub mod headers;
pub mod line;
pub mod links;
pub mod meta;
pub mod profile;
pub mod reports;
pub mod shard;
pub mod slowdown;
pub mod suspicion;

use grosso_report::{name, report, schema as form, style, units};

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
