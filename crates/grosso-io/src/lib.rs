//! Ports for the Grosso engine: sources and sinks of packets.
//!
//! A [`Port`] is a device, a capture or a queue in memory. A data path connects two ports. It coalesces packets for a
//! port that accepts superframes; for any other port, it segments superframes and completes checksums.
//!
//! ```
//! use grosso::{LinkType, Meta, features::{Device, Features}};
//! use grosso_io::{Port, memory::wire, path::{Direction, PathOptions}};
//!
//! let features = Device::new(Features::ALL); // the receiver accepts superframes
//! let (mut sender, mut from) = wire(LinkType::Ethernet, Device::new(Features::NONE), 64);
//! let (mut to, _receiver) = wire(LinkType::Ethernet, features, 64);
//! let seed = 0x5eed; // key of the flow hash: use a random number
//! let mut direction = Direction::new(PathOptions::new(seed), LinkType::Ethernet, features);
//!
//! sender.transmit(&[&[0; 60]], &Meta::default())?;
//! assert_eq!(direction.poll(&mut from, &mut to, 0)?, 1);
//! # Ok::<(), grosso_io::PortError>(())
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`port`] | the trait of all ports: receive, transmit, report features |
//! | [`memory`] | two connected ports in memory |
//! | [`capture_port`] | a port that reads from one capture and writes to another |
//! | [`impair`] | any port behind an impaired link, reproducible from a seed |
//! | [`record`] | any port, with a capture of its frames |
//! | [`stage`] | stages around any port: fragmentation and reassembly, ESP, or a tunnel |
//! | [`coalescer`] | the coalescer for packets in the buffers of ports |
//! | [`path`] | one direction of a data path between two ports |
//! | [`egress`] | segmentation and checksums for a transmit port, and its queue |
//! | [`framing`] | frames in a byte stream, as used by VMs |
//! | `live` | TUN, TAP, packet sockets, AF_XDP and Unix sockets (Linux) |
//! | `runner` | a data path on its own thread (Linux) |
//!
//! The features `capture`, `esp`, `gzip`, `impair`, `live`, `vhost`, `xdp` and `zstd` are enabled by default. The
//! engine is in [`grosso`]. For a TUN device in a VPN, use `grosso-tun`.
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
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
pub mod live;
pub mod memory;
mod notice;
pub mod path;
pub mod port;
#[cfg(feature = "capture")]
pub mod record;
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
pub mod runner;
pub mod stage;

pub use buffer::PortBuffer;
pub use coalescer::PortCoalescer;
pub use notice::Notice;
pub use port::{Port, PortError, Transmitted};

/// Example from `README.md`, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
