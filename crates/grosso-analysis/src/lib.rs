//! Analysis of captures that were taken on hosts with offloads: which frames are packets of the wire, which are
//! superframes with segments of N bytes, by which evidence, and which checksums are right.
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
//! | [`distribution`] | the distribution of values, in bounded memory |
//!
//! The crate reads no file, prints nothing and starts no thread: the caller passes the packets of a
//! [`grosso_capture::CaptureReader`], which reads from any reader. The example of the README judges a whole capture.
#![forbid(unsafe_code)]

pub mod checksums;
pub mod distribution;
pub mod evidence;
pub mod headers;
pub mod links;
pub mod meta;
pub mod slowdown;
pub mod suspicion;

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
