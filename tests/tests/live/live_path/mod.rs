//! Tests the live ports against the running kernel: TCP and UDP sockets on two hosts, each in its own network
//! namespace, with a data path between them in place of the NIC and its driver.
//!
//! The tests need root, or a user namespace (`unshare -Urm`). Without one of these, they print `skipped:` and the
//! reason.

#![cfg(target_os = "linux")]

mod ends;
mod faults;
mod formats;
mod frames;
mod ip;
mod long_frames;
mod offloads;
mod queues;
mod sizes;
mod sockets;
mod superframes;
mod tunnel;
mod tunnels;
mod vxlan;
pub(crate) mod world;
