//! Grosso for C: `grosso.h` is its page.
//!
//! | module | job |
//! |---|---|
//! | [`types`] | what both sides lay out alike: options, the virtio header |
//! | [`error`] | the negative numbers, and their texts |
//! | `guard` | the border: no unwinding over it, no second way into a handle |
//! | `lent` | a buffer of the caller while the library holds it |
//! | `sink` | the caller as one who takes frames |
//! | [`coalescer`], [`reassembler`] | the handles |
//! | [`packet`] | what needs no handle: segment, checksums |
//!
//! Every function of the header is `unsafe`, because C gives pointers. Inside, a pointer becomes a reference in
//! `guard`, [`types`], `lent` or [`packet`], and nowhere else.
#![cfg(unix)]

pub mod coalescer;
pub mod error;
mod guard;
mod lent;
pub mod packet;
pub mod reassembler;
mod sink;
pub mod types;
