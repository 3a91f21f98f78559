//! A TUN or TAP device, and a UDP socket, with every offload that the kernel has: the two ends of a VPN.
//!
//! | type | job |
//! |---|---|
//! | [`Tun`] | the device: packets of a batch leave as superframes, superframes arrive as the caller can take them |
//! | [`TunOptions`] | layer, name, queues' device, trust, and the superframes that the caller takes |
//! | [`Fallback`] | an offload that this kernel lacks, by name; everything works without it, slower |
//! | [`Udp`] | the socket: datagrams in batches (`UDP_SEGMENT`, `UDP_GRO`), with their ECN marks |
//! | [`Joiner`] | for devices without offloads, such as WinTUN and utun: joined packets with complete checksums |
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
//! All of it is for Linux but [`Joiner`], which is for every system.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod datagrams;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod fallback;
mod joiner;
#[cfg(all(target_os = "linux", feature = "tokio"))]
mod runtime;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(all(target_os = "linux", feature = "smoltcp"))]
mod stack;

#[cfg(target_os = "linux")]
pub use datagrams::{DATAGRAMS_MAX, Datagram};
#[cfg(target_os = "linux")]
pub use device::{Tun, TunOptions};
#[cfg(target_os = "linux")]
pub use fallback::Fallback;
pub use grosso::{Meta, features::Features};
#[cfg(target_os = "linux")]
pub use grosso_io::live::LiveStats;
#[cfg(target_os = "linux")]
pub use grosso_sys::{
    tun::Layer,
    wait::{Interest, wait_for},
};
pub use joiner::{Joined, Joiner};
#[cfg(all(target_os = "linux", feature = "tokio"))]
pub use runtime::{AsyncTun, AsyncUdp};
#[cfg(target_os = "linux")]
pub use socket::{Received, Udp, UdpStats};
#[cfg(all(target_os = "linux", feature = "smoltcp"))]
pub use stack::StackDevice;

/// The example of `README.md`, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
