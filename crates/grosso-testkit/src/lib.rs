//! Packets, traffic and slow oracles for the tests of Grosso, independent of the tested code.
//!
//! | module | content |
//! |---|---|
//! | [`Packet`] and [`headers`] | any frame, correct or deliberately wrong, header by header |
//! | [`browser`] | a page as a real browser displays it |
//! | [`esp_vectors`] | published encrypted packets |
//! | [`flows`] | invariants between input and output |
//! | `front_end` | a vhost-user front end: a VM without a CPU (Linux) |
//! | `processor` | an exclusive CPU for each test that measures (Linux) |
//! | [`oracle`] | slow, literal computations of the expected results, and of the flow of a frame |
//! | [`originals`] | literal models of published receive offloads |
//! | [`stack`] | header stacks, nested |
//! | [`transfer`] | a TCP transfer over a path with one fault, captured at both endpoints |
//! | [`Traffic`] | flows with deviations, generated from a seed |
//! | [`strategy`] | the same flows as strategies for `proptest` |
//! | [`Watchdog`] | a time limit for tests that might wait forever |
//! | [`workloads`] | the traffic of the benchmarks, by name |
//! | [`random`] | seeded random numbers |
//!
//! Two packets through a tunnel, and their expected fate:
//!
//! ```
//! use grosso_testkit::oracle::{join, segment, trains, verify, Link, Rules, State};
//! use grosso_testkit::Packet;
//!
//! let frame = |id, sequence| {
//!     let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id)).udp(|u| u);
//!     let inner = outer.vxlan(|v| v.vni(42)).ethernet(|e| e).ipv4(|ip| ip.id(8));
//!     inner.tcp(|t| t.sequence(sequence).timestamps(1, 2)).payload_len(1000).build()
//! };
//! let frames = [frame(1, 100), frame(2, 1100)];
//!
//! // Outer IPv4 and UDP, inner IPv4 and TCP.
//! let states: Vec<State> = verify(&frames[0], Link::Ethernet).iter().map(|v| v.state).collect();
//! assert_eq!(states, [State::Right; 4]);
//!
//! // They are one train, which segmentation turns into the same packets again.
//! let trains = trains(&frames, Link::Ethernet, Rules::default());
//! assert_eq!(trains[0].packets, [0, 1]);
//! let (superframe, description) = join(&frames, Link::Ethernet);
//! assert_eq!(segment(&superframe, Link::Ethernet, description), Ok(frames.to_vec()));
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it serves tests only")]

pub mod browser;
pub mod esp_vectors;
pub mod flows;
#[cfg(target_os = "linux")]
pub mod front_end;
pub mod headers;
pub mod oracle;
pub mod originals;
mod packet;
#[cfg(target_os = "linux")]
pub mod processor;
pub mod random;
pub mod stack;
pub mod strategy;
pub mod traffic;
pub mod transfer;
mod watchdog;
pub mod workloads;

pub use packet::{Packet, stream};
pub use traffic::Traffic;
pub use watchdog::{STUCK, Watchdog};
