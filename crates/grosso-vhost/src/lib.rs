//! Both endpoints of a VM's vhost-user network device, with virtqueues in shared memory and control messages over a
//! Unix socket (virtio 1.3, and QEMU's vhost-user specification).
//!
//! Most programs should use `VhostPort` from the crate `grosso-io` instead, which also handles the socket. With this
//! crate alone, a device looks like this:
//!
//! ```no_run
//! use grosso_vhost::{backend::{BackEnd, Way}, features};
//!
//! let mut device = BackEnd::new(features::OF_RINGS)?; // offers ring features, but no offloads
//! // Pass each message from the socket to `device.obey(...)`, which returns the reply to send. Then:
//! let mut frame = vec![0; 66 << 10];
//! if let Some(ring) = device.ring(Way::FromGuest) { // the ring of frames that the guest sends
//!     while let Ok(Some(length)) = ring.receive(&mut frame) {
//!         println!("{length} bytes from the guest");
//!     }
//! }
//! device.publish(Way::FromGuest); // return the buffers to the guest
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`features`] | feature bits of the device and of the protocol |
//! | [`memory`] | shared memory, accessed as atomic words and by copies |
//! | [`ring`] | the device's side: frames from the guest, and buffers for frames to it |
//! | [`driver`] | the driver's side, in its own memory |
//! | [`message`] | control messages with their file descriptors |
//! | [`backend`] | the device's endpoint: state set by messages |
//! | [`frontend`] | the driver's endpoint: messages that set the state |
//!
//! No function blocks, and the crate starts no threads. The owner of a [`BackEnd`](backend::BackEnd) or a
//! [`FrontEnd`](frontend::FrontEnd) reads messages when its socket is readable, and polls the rings at any time.
//! Neither endpoint trusts its peer. A peer that violates the protocol is disconnected; a peer that corrupts a ring
//! loses its own frames, each with a [`ChainFault`](ring::ChainFault).
//!
//! Shared eventfds are never read or written, because the peer could make either call block forever; see
//! [`BackEnd`](backend::BackEnd). For the same reason, the memory of a front end must be in RAM and not in a file on
//! disk.
//!
//! The crate requires Linux on a little-endian CPU, because virtio 1 is little-endian.
#![cfg(any(target_os = "linux", target_os = "android"))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

// All `unsafe` code is in `memory`, `dirty` (the dirty log for live migration), `mapping` (mapped files) and `sigbus`
// (recovery if a file is truncated). `vring` contains the code for virtqueues that both sides share; `eventfd_set`
// observes the peer's eventfds without reading them.
pub mod backend;
mod dirty;
pub mod driver;
mod eventfd_set;
pub mod features;
pub mod frontend;
mod mapping;
pub mod memory;
pub mod message;
pub mod ring;
mod sigbus;
mod vring;
