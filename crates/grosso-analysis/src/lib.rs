//! Analysis of captures that were taken on hosts with offloads. The crate classifies each frame as a wire packet or as
//! a superframe with segments of N bytes, states the evidence (`docs/evidence.md`), and verifies checksums. Every
//! `grosso` command that works on captures is built on this crate.
//!
//! [`Capture`] answers the usual questions about a file, a directory or bytes in memory:
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/host.pcap");
//! let report = grosso_analysis::Capture::open(path)?.classify()?;
//! println!("{}: {}", report.verdict.vantage, report.verdict.reasons.join(", "));
//! # Ok::<(), grosso_report::error::Failure>(())
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`capture`] | several captures read as one, with cancellation, hash and provenance; the trait of all capture commands |
//! | [`inspect`] | a report of whether a capture shows wire packets |
//! | [`convert`] | conversion of captures: `wire`, `coalesce`, `segment`, tunnels, fragments, checksums |
//! | [`replay`] | replay of a capture's packets through coalescers, at the captured times |
//! | [`explain`], [`whatif`] | why a packet was merged or not; the effect of other settings |
//! | [`tables`] | rows of packets and of trains, and their Arrow columns (feature `tables`) |
//! | `export` | these tables in Parquet files (feature `tables`) |
//! | [`evidence`] | the classification of a frame as a wire packet or a superframe, and its segment size |
//! | [`checksums`] | a verdict for every checksum of a packet, and the correction of wrong ones |
//! | [`slowdown`] | causes that slow a TCP direction (loss, reordering, windows, path MTU), with evidence and remedy |
//! | [`suspicion`] | hints about UDP datagrams that look like a tunnel on an unknown port |
//! | [`headers`] | offsets and fields of packets |
//! | [`links`] | the link type that determines how a packet is parsed |
//! | [`meta`] | conversion of packet metadata between captures and the engine |
//! | [`profile`] | profiles: a built-in profile by name, or a file that lists the differences from a built-in profile |
//! | [`fragments`] | reassembly of the IP fragments in a capture, and the reasons why datagrams stay incomplete |
//! | [`line`](mod@line) | departure times of packets on a link of a given rate |
//! | [`shard`] | division of flows into shards; each run writes the rows of one shard |
//! | [`digest`] | the SHA-256 of the input |
//! | [`keywords`] | commands called by name with keyword options, for other languages |
//! | [`values`] | option values as users write them |
//! | [`reports`] | the report of each capture command |
//! | [`distribution`] | the distribution of values, in bounded memory |
//!
//! The crate prints nothing and parses no command line. It starts threads only for features that the caller requests: a
//! hash of the input, the `jobs` of [`whatif`], and the files of `export`. The crate builds for
//! `wasm32-unknown-unknown`, where captures come from [memory](Capture::from_bytes). It reads captures with
//! [`grosso_capture`], and merges and splits packets with the engine, [`grosso`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

pub mod capture;
pub mod checksums;
pub mod convert;
pub mod digest;
pub mod distribution;
pub mod evidence;
pub mod explain;
#[cfg(feature = "tables")]
pub mod export;
mod facade;
pub mod fragments;
pub mod headers;
pub mod inspect;
pub mod keywords;
pub mod line;
pub mod links;
pub mod meta;
pub mod profile;
pub mod replay;
pub mod reports;
pub mod shard;
pub mod slowdown;
pub mod suspicion;
pub mod tables;
pub mod values;
pub mod whatif;

pub use self::facade::Capture;
use grosso_report::{diagnostic, error, name, report, schema as form, style, units};

/// Placeholder whose doc test is the example in `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
