//! Packets, traffic and slow oracles for the tests of Grosso, independent of the code that they
//! test.
//!
//! | module | what it gives |
//! |---|---|
//! | [`Packet`] and [`headers`] | any frame, right or lying, header by header |
//! | [`flows`] | which flow a frame is of, and what must hold between input and output |
//! | [`oracle`] | what is right, said slowly and literally |
//! | [`stack`] | header stacks, nested |
//! | [`Traffic`] | seeded flows with deviations |
//! | [`strategy`] | the same for `proptest` |
//! | [`workloads`] | the traffic of the benchmarks, by name |
//! | [`random`] | seeded random numbers |
//!
//! ```
//! use grosso_testkit::Packet;
//!
//! let first = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(8)).tcp(|t| t).payload_len(100);
//! assert_eq!(first.build().len(), 154);
//! ```

#![forbid(unsafe_code)]

pub mod flows;
pub mod headers;
pub mod oracle;
mod packet;
pub mod random;
pub mod stack;
pub mod strategy;
pub mod traffic;
pub mod workloads;

pub use packet::{Packet, stream};
pub use traffic::Traffic;
