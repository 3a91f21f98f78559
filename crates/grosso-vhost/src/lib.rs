//! Both ends of a virtual machine's network device that meet over vhost-user: shared memory, rings in it, and a Unix
//! socket over which the two programs agree on both (virtio 1.3, and the vhost-user protocol of QEMU's manual).
//!
//! | module | contents |
//! |---|---|
//! | [`features`] | what a device can do, as bits |
//! | [`memory`] | shared memory, as words and copies |
//! | `dirty` | the pages of it that were written |
//! | `mapping`, `lost` | files that are mapped, and may become shorter: with the two above all that is `unsafe` here |
//! | `parts` | a ring in it, of either form, as both sides have it |
//! | [`ring`] | the device's side: frames that a guest sends, and room for those that it gets |
//! | [`driver`] | the driver's side, in memory of its own |
//! | `edges` | eventfds of the other program, heard without a read |
//! | [`message`] | the messages over the socket, and the descriptors beside them |
//! | [`backend`] | the device's end: the state that messages set |
//! | [`frontend`] | the driver's end: the messages that set it |
//!
//! Nothing waits and nothing has a thread: who owns a [`BackEnd`](backend::BackEnd) or a
//! [`FrontEnd`](frontend::FrontEnd) reads messages when its socket is readable, and rings whenever it likes. Neither
//! believes the other end. One that breaks the protocol is cut off; one that breaks a ring loses its own frames, each
//! with a [`ChainFault`](ring::ChainFault).
//!
//! Of the eventfds that both ends have, none is read or written, because the other end may make either wait for ever:
//! see [`BackEnd`](backend::BackEnd). A front end's memory has to be in memory, for the same reason.
//!
//! For Linux on a little-endian machine, as virtio 1 has its numbers.
#![cfg(target_os = "linux")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

pub mod backend;
mod dirty;
pub mod driver;
mod edges;
pub mod features;
pub mod frontend;
mod lost;
mod mapping;
pub mod memory;
pub mod message;
mod parts;
pub mod ring;
