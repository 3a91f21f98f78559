//! The live ports against the running kernel: TCP and UDP sockets of two hosts, each a network namespace of its own,
//! with a data path between them where the NIC and its driver would be.
//!
//! The tests want root, or a user namespace of their own (`unshare -Urm`); without, they say `skipped:` and why.

#![cfg(target_os = "linux")]

mod ends;
mod faults;
mod formats;
mod frames;
mod ip;
mod offloads;
mod queues;
mod sizes;
mod sockets;
mod tunnelled;
mod tunnels;
mod vxlan;
mod world;
