//! The Internet checksum of RFC 1071: sum, fold, update, combine, and copy with sum.
//!
//! A [`Sum`] is a checksum under construction. Sums of adjacent blocks combine without reading the
//! bytes again, so the checksum of a train of packets is arithmetic on the sums of its packets, and
//! payload is read at most once.
//!
//! | module | job |
//! |---|---|
//! | `sum` | [`Sum`]: make, add, subtract, [append](Sum::append), fold |
//! | `pseudo` | [`pseudo_v4`] and [`pseudo_v6`]: the pseudo-headers of TCP and UDP |
//! | `update` | [`update()`], [`update_u32`], [`incremented`]: a field changed, RFC 1624; [`nonzero`]: RFC 768 |
//! | `copy` | [`copy()`]: copy and sum in one pass |
//! | `prefetch` | [`prefetch()`]: bytes that will be summed soon |
//! | `backend` | the loops over many bytes, one for each kind of machine, selected once |
//!
//! The crate needs neither `std` nor `alloc`, takes no input but its arguments, and gives the same
//! results on every machine. [`observe`] measures its cost, and is free when not used. Nothing here
//! panics except [`copy()`] on slices of different lengths.
//!
//! ```
//! use grosso_checksum::{Sum, pseudo_v4, update};
//!
//! // A UDP datagram from 192.0.2.1 to 192.0.2.2, its checksum field still zero.
//! let header = [0x04, 0x00, 0x00, 0x35, 0x00, 0x0b, 0x00, 0x00];
//! let payload = b"abc";
//! let pseudo = pseudo_v4([192, 0, 2, 1], [192, 0, 2, 2], 17, 11);
//! let checksum = (pseudo + Sum::of_parts([&header[..], payload])).checksum();
//!
//! // The receiver sums everything, the checksum included.
//! let received = pseudo + Sum::of_parts([&header[..], payload]) + Sum::from_word(checksum);
//! assert!(received.is_valid());
//!
//! // Another source port: the payload is not read again.
//! let moved = update(checksum, 0x0400, 0x1234);
//! let header = [0x12, 0x34, 0x00, 0x35, 0x00, 0x0b, 0x00, 0x00];
//! assert_eq!(moved, (pseudo + Sum::of_parts([&header[..], payload])).checksum());
//! ```

#![no_std]

mod backend;
mod copy;
mod prefetch;
mod pseudo;
mod sum;
mod update;

pub use backend::{Backend, Observer, backend, observe};
pub use copy::copy;
#[doc(hidden)]
pub use copy::copy_with;
pub use prefetch::prefetch;
pub use pseudo::{pseudo_v4, pseudo_v6};
pub use sum::Sum;
#[doc(hidden)]
pub use sum::of_with;
pub use update::{incremented, nonzero, update, update_u32};

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
