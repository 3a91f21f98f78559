//! A TUN or TAP device, and a UDP socket, with every offload that the kernel has: the two ends of a VPN.
//!
//! | type | job |
//! |---|---|
//! | [`Tun`] | the device: packets of a batch leave as superframes, superframes arrive as the caller can take them |
//! | [`TunOptions`] | layer, name, queues' device, trust, and the superframes that the caller takes |
//! | [`Fallback`] | an offload that this kernel lacks, by name; everything works without it, slower |
//! | [`Udp`] | the socket: datagrams in batches (`UDP_SEGMENT`, `UDP_GRO`), with their ECN marks |
//! | `AsyncTun`, `AsyncUdp` | both for tokio (feature `tokio`) |
//! | `StackDevice` | the device for smoltcp, with TCP segmentation (feature `smoltcp`) |
//!
//! Nothing blocks but [`Tun::recv`], [`Tun::send`], [`Udp::recv`] and [`Udp::send`]; the `try_` forms never do, and
//! both types are `AsFd`, for a loop of your own or for [`wait_for`]. One thread a queue; nothing is shared between
//! queues.
//!
//! # Trust
//!
//! The packets of a train get one checksum. Before that, each packet's own is verified, at the cost of reading the
//! payload, because otherwise damage would leave with a good checksum. A VPN whose AEAD has just vouched for every
//! byte can say so with [`TunOptions::trusted`]. A packet that its *sender* sent damaged is then repaired rather than
//! dropped: the AEAD vouches for the way, and not for the stack of the peer. Say so of peers that you trust.
//!
//! The crate is for Linux: on every other system it compiles to nothing.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod datagrams;
mod device;
mod fallback;
#[cfg(feature = "tokio")]
mod runtime;
mod socket;
#[cfg(feature = "smoltcp")]
mod stack;

pub use datagrams::{DATAGRAMS_MAX, Datagram};
pub use device::{Tun, TunOptions};
pub use fallback::Fallback;
pub use grosso::{Meta, features::Features};
pub use grosso_io::live::LiveStats;
pub use grosso_sys::{
    tun::Layer,
    wait::{Interest, wait_for},
};
#[cfg(feature = "tokio")]
pub use runtime::{AsyncTun, AsyncUdp};
pub use socket::{Received, Udp, UdpStats};
#[cfg(feature = "smoltcp")]
pub use stack::StackDevice;

/// The example of `README.md`, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
