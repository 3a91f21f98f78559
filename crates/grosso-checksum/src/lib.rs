//! The Internet checksum (RFC 1071): functions that sum, fold, update and combine, and that copy and sum in one pass.
//!
//! A [`Sum`] is a checksum in progress. Sums of adjacent blocks can be combined without reading the bytes again, so a
//! superframe's checksum follows from the sums of its packets, and the payload is read at most once.
//!
//! ```
//! use grosso_checksum::{Sum, pseudo_v4, update};
//!
//! // A UDP datagram from 192.0.2.1 to 192.0.2.2 with a zero checksum field.
//! let header = [0x04, 0x00, 0x00, 0x35, 0x00, 0x0b, 0x00, 0x00];
//! let payload = b"abc";
//! let pseudo = pseudo_v4([192, 0, 2, 1], [192, 0, 2, 2], 17, 11);
//! let checksum = (pseudo + Sum::of_parts([&header[..], payload])).checksum();
//!
//! // A receiver sums everything, including the checksum.
//! let received = pseudo + Sum::of_parts([&header[..], payload]) + Sum::from_word(checksum);
//! assert!(received.is_valid());
//!
//! // Change the source port without reading the payload again.
//! let moved = update(checksum, 0x0400, 0x1234);
//! let header = [0x12, 0x34, 0x00, 0x35, 0x00, 0x0b, 0x00, 0x00];
//! assert_eq!(moved, (pseudo + Sum::of_parts([&header[..], payload])).checksum());
//! ```
//!
//! | item | job |
//! |---|---|
//! | [`Sum`] | create, add, subtract, [append](Sum::append) and fold sums |
//! | [`pseudo_v4`], [`pseudo_v6`] | pseudo-headers of TCP and UDP |
//! | [`update()`], [`update_u32`], [`incremented`] | incremental updates (RFC 1624) |
//! | [`nonzero`] | UDP's substitute for a checksum of zero (RFC 768) |
//! | [`copy()`] | copy and sum in one pass |
//! | [`prefetch()`] | prefetch bytes before summing them |
//! | [`backend()`] | the instruction set of the loops over long blocks, which is selected once |
//!
//! The crate needs neither `std` nor `alloc`, and returns the same results on every CPU. [`observe`] allows measuring
//! the cost of checksums, and costs nothing when unused. The only function that panics is [`copy()`], if the slices
//! have different lengths. The checksum states of packets are in the engine, in the `checksum` module of the crate
//! `grosso`.

#![no_std]

// `backend` contains the loops over long blocks, one per instruction set. `sum` defines the type `Sum`, and `pseudo`
// sums pseudo-headers. Every other module is named after its functions.
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

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
