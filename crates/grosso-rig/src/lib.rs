//! Helpers for tests that span several crates. This crate is compiled with optimization, because the helpers loop over
//! packets (ADR 0196).
//!
//! | module | content |
//! |---|---|
//! | [`allocator`] | an allocator that counts allocations |
//! | [`damage`] | almost valid frames, for property tests |
//! | [`engine`] | the engine as a function from frames to frames, with checks of its output |
//! | [`fragments`] | IP fragments, the reassembler as a function, and an oracle for it |
//! | [`frames`] | one connection, in which a test changes one field at a time |
//! | [`instructions`] | the work of a test, counted by valgrind |
//! | [`session`] | one run of the engine, with numbered buffers and a clock that the test sets |
//! | [`superframe`] | superframes as senders pass them to a device |
//! | `kernel` (Linux) | the running kernel as an oracle for coalescing and segmentation |

#![deny(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it serves tests only")]

#[expect(unsafe_code, reason = "the trait of allocators is unsafe")]
pub mod allocator;
pub mod damage;
pub mod engine;
pub mod fragments;
pub mod frames;
pub mod instructions;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod session;
pub mod superframe;
