//! The back end of a virtual machine's network device, which meets it over vhost-user: shared memory, rings in it, and
//! a Unix socket over which the two programs agree on both (virtio 1.3, and the vhost-user protocol of QEMU's manual).
//!
//! | module | contents |
//! |---|---|
//! | [`features`] | what a device can do, as bits |
//! | [`memory`] | the guest's memory, mapped: the only code here that is `unsafe`, but for [`lost`](memory) files |
//! | [`ring`] | a split ring: frames that a guest sends, and room for those that it gets |
//! | [`message`] | the messages over the socket, and the descriptors beside them |
//! | [`backend`] | the state that they set: features, memory, two rings |
//!
//! Nothing waits and nothing has a thread: who owns a [`BackEnd`](backend::BackEnd) reads messages when its socket is
//! readable, and rings whenever it likes. A front end that breaks the protocol is cut off; a guest that breaks a ring
//! loses its own frames, each with a [`ChainFault`](ring::ChainFault).
//!
//! Of the descriptors that a front end passes, none is read or written, because it may make either wait for ever: see
//! [`BackEnd`](backend::BackEnd). Its memory has to be in memory, for the same reason.
//!
//! For Linux on a little-endian machine, as virtio 1 has its numbers.
#![cfg(target_os = "linux")]

pub mod backend;
pub mod features;
mod lost;
pub mod memory;
pub mod message;
pub mod ring;
