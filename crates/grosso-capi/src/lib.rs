//! Grosso for C. The header `grosso.h` documents the interface.
//!
//! | module | job |
//! |---|---|
//! | [`types`] | layouts shared with C: options, the virtio header, callbacks |
//! | [`error`] | error codes and their texts |
//! | `guard` | the C boundary: catches panics and rejects re-entrant calls |
//! | `lent` | a buffer that the caller has lent to the library |
//! | `sink` | delivery of frames to the caller's callbacks |
//! | [`coalescer`], [`reassembler`] | handles of coalescers and reassemblers |
//! | [`packet`] | functions without a handle: segmentation, checksums |
//!
//! Every function in the header is `unsafe`, because C passes pointers. Only `guard`, [`types`], `lent` and [`packet`]
//! turn a pointer into a reference. The engine itself is [`grosso`].
#![cfg(unix)]

pub mod coalescer;
pub mod error;
mod guard;
mod lent;
pub mod packet;
pub mod reassembler;
mod sink;
pub mod types;
