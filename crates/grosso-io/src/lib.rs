//! Ports for the Grosso engine: sources and sinks of packets.
//!
//! | module | port |
//! |---|---|
//! | [`port`] | the trait of every port: receive, transmit, report features |
//! | [`memory`] | the two ends of a wire in memory |
//! | [`capture_port`] | a port that reads from one capture and writes to another |
//! | [`impair`] | any port behind an impaired wire, repeatable from a seed |
//! | [`record`] | any port, with a capture of the frames that pass |
//! | [`stage`] | any port with fragmentation and reassembly, with ESP, or with a tunnel |
//! | [`coalescer`] | the coalescer of packets in ports' buffers |
//! | [`path`] | the data path that joins two ports |
//! | [`egress`] | its middle step: frame, metadata and features make packets |
//! | [`framing`] | frames in a stream of bytes, as virtual machines have them |
//! | `live` | TUN, TAP, packet sockets, AF_XDP and Unix sockets (Linux) |
//! | `runner` | a data path on a thread of its own (Linux) |
//!
//! The features `capture`, `esp`, `gzip`, `impair`, `live`, `xdp` and `zstd` are there unless turned off.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

mod buffer;
#[cfg(feature = "capture")]
pub mod capture_port;
pub mod coalescer;
mod counts;
pub mod egress;
pub mod framing;
#[cfg(feature = "impair")]
pub mod impair;
#[cfg(all(target_os = "linux", feature = "live"))]
pub mod live;
pub mod memory;
mod notice;
pub mod path;
pub mod port;
#[cfg(feature = "capture")]
pub mod record;
#[cfg(all(target_os = "linux", feature = "live"))]
pub mod runner;
pub mod stage;

pub use buffer::PortBuffer;
pub use coalescer::PortCoalescer;
pub use notice::Notice;
pub use port::{Port, PortError, Transmitted};

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
