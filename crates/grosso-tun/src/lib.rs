//! A TUN or TAP device and a UDP socket for VPNs, with every offload of the Linux kernel.
//!
//! [`Tun::send`] merges the packets of a batch into superframes. [`Tun::recv`] passes either plain packets or
//! superframes to the caller, depending on the options. [`Udp`] sends and receives many datagrams per system call. If a
//! kernel lacks an offload, only the speed changes; [`Tun::fallbacks`] lists the missing offloads.
//!
//! ```no_run
//! # #[cfg(target_os = "linux")]
//! # fn main() -> std::io::Result<()> {
//! use grosso_tun::{Batch, Tun, TunOptions, Udp, UdpOptions};
//!
//! let mut tun: Tun = Tun::open("vpn%d", &TunOptions::new())?;
//! let mut udp = Udp::bind("0.0.0.0:51820".parse().unwrap(), &UdpOptions::new())?;
//! let mut batch = Batch::new();
//! udp.recv(|datagram| batch.push_copy(datagram.payload))?; // decrypt here
//! tun.send(&mut batch) // a few superframes instead of many packets
//! # }
//! # #[cfg(not(target_os = "linux"))]
//! # fn main() {}
//! ```
//!
//! | type | job |
//! |---|---|
//! | [`Tun`] | one queue of a TUN or TAP device: [`TunReceiver`] and [`TunSender`] |
//! | [`TunOptions`] | layer, addresses, MTU, queues, trust, and the offloads to use in each direction |
//! | [`Batch`] | packets to send, and unused buffers |
//! | [`Room`] | layout of the buffers for [`TunReceiver::recv_into`] |
//! | [`Interface`] | name, index and MTU of the device |
//! | [`Fallback`] | an offload that the options request and the device lacks, by name |
//! | [`Udp`] | a UDP socket that batches datagrams (`UDP_SEGMENT`, `UDP_GRO`): [`UdpReceiver`] and [`UdpSender`] |
//! | [`UdpOptions`] | sharing, address families, buffers, hop limit, mark and interface of a socket |
//! | [`Joiner`] | merges TCP packets for devices without offloads, for example WinTUN and utun |
//! | `AsyncTun`, `AsyncUdp` | the device and the socket for tokio (feature `tokio`) |
//! | `StackDevice` | the device for smoltcp, with TCP segmentation (feature `smoltcp`) |
//!
//! Functions with the prefix `try_` never block; they return 0 if no packet is available or there is no room. The
//! functions of the same name without the prefix block. [`Tun`], [`Udp`] and their halves implement `AsFd`, so you can
//! wait for them in your own event loop or with [`wait_for`]. Use one thread per queue: queues share no state.
//!
//! # Batches, errors and cancellation
//!
//! A send call removes exactly the packets that the device or the socket accepted from its [`Batch`] or list. After an
//! error or a dropped future, the batch contains exactly the remaining packets, and the same call continues. If the
//! future of a receive call is dropped, the call has received no packets.
//!
//! # Trust
//!
//! A superframe has one checksum for all of its packets. By default the checksum of each packet is verified before the
//! merge, which reads the payload; otherwise a corrupted packet would be sent with a valid checksum. A VPN whose AEAD
//! has just authenticated every byte can skip the verification with [`Trust::Authenticated`]. A packet that was already
//! corrupted when the *peer* encrypted it is then sent with a valid checksum instead of being dropped, because the AEAD
//! covers the path and not the peer's network stack. Set the option for trusted peers only.
//!
//! # Systems
//!
//! Everything works on Linux, and compiles for Android, where [`Tun::adopt`] accepts the descriptor of a `VpnService`.
//! On macOS and Windows, [`Tun`] carries IP packets through utun and WinTUN, and merges the TCP packets of a batch as
//! [`Joiner`] does; an option that the system lacks is an error of the kind `Unsupported`. CI compiles for these three
//! systems, but runs no tests on them. [`Joiner`] and [`Batch`] work on every system.
//!
//! The engine behind this crate is [`grosso`]; its ports are in [`grosso_io`]. The repository's directory `examples`
//! has complete VPN programs.
#![forbid(unsafe_code)]

mod batch;
mod joiner;
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "tokio"))]
mod runtime;
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "smoltcp"))]
mod stack;
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos", windows))]
mod tun;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod udp;

pub use batch::{Batch, SPARES_MAX};
pub use grosso::{Meta, features::Features};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use grosso_io::live::LiveStats;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use grosso_sys::wait::{Interest, wait_for};
pub use joiner::{Joined, Joiner, Trust};
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "tokio"))]
pub use runtime::{
    AsyncTun, AsyncTunReceiver, AsyncTunSender, AsyncUdp, AsyncUdpReceiver, AsyncUdpSender,
};
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "smoltcp"))]
pub use stack::{Departing, ReceivedFrame, StackDevice};
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos", windows))]
pub use tun::{
    Fallback, Filled, Interface, Layer, Persistence, Queues, Room, Tun, TunOptions, TunReceiver,
    TunSender,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use udp::{
    DATAGRAMS_MAX, Datagram, Families, Received, Sharing, Udp, UdpOptions, UdpReceiver, UdpSender,
    UdpStats,
};

/// Example of `README.md`, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
