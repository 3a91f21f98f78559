//! Analysis of captures taken on hosts with offloads: it classifies frames as wire packets or superframes with segments
//! of N bytes, shows the evidence, and verifies checksums.
//!
//! | module | job |
//! |---|---|
//! | [`evidence`] | the classification of a frame as a wire packet or a superframe, and its segment size |
//! | [`checksums`] | a verdict for every checksum of a packet, and the correction of wrong ones |
//! | [`slowdown`] | causes that slow a TCP direction: loss, reordering, windows, path MTU, with evidence and remedy |
//! | [`suspicion`] | hints about UDP datagrams that look like a tunnel on an unknown port |
//! | [`headers`] | offsets and fields of packets |
//! | [`links`] | the link type with which a packet is parsed |
//! | [`meta`] | conversion of packet metadata between captures and the engine |
//! | [`profile`] | profiles as users write them: a name, or a file with the differences from a built-in profile |
//! | [`fragments`] | IP fragments in captures: those that form datagrams, and the reasons why the others do not |
//! | [`line`](mod@line) | departure times of packets on a line of a given rate |
//! | [`shard`] | the flows whose rows one of several runs writes |
//! | [`digest`] | the SHA-256 of the input |
//! | [`reports`] | the report of each command on captures |
//! | [`distribution`] | the distribution of values, in bounded memory |
//!
//! The crate reads no files except profiles (Linux), prints nothing and starts no threads: the caller passes the
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
