//! Thin, typed wrappers for the Linux system calls that Grosso needs. This crate does not parse packets.
//!
//! The crate contains calls that the standard library lacks and that the ports (`grosso-io`), the lab or the tests
//! need. Errors are [`std::io::Error`] with the kernel's error code; nothing is retried, cached or logged.
//!
//! ```no_run
//! use grosso_sys::interface::{Control, InterfaceName};
//! use grosso_sys::packet::PacketSocket;
//! use grosso_sys::tun::TunBuilder;
//!
//! # fn main() -> std::io::Result<()> {
//! let name = InterfaceName::new("grosso0")?;
//! let tap = TunBuilder::tap(name).virtio_header(true).napi(true).nonblocking(true).open()?;
//! let control = Control::new()?;
//! control.set_mtu(tap.name(), 65_000)?;
//! control.set_up(tap.name(), true)?;
//!
//! let socket = PacketSocket::builder().virtio_header(true).bind(tap.name())?;
//! tap.write(&[0; 10 + 60])?;
//! let mut buffer = vec![0; 65_536];
//! if let Some(received) = socket.receive(&mut buffer)? {
//!     println!("{} bytes", received.length);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`tun`] | TUN and TAP devices: creation, queues, offloads, one packet per read or write |
//! | [`packet`] | packet sockets: virtio header, VLAN tag, batches, mapped rings, fanout, a filter for IP |
//! | [`xdp`] | AF_XDP sockets with owned frames, and the program that redirects packets to them |
//! | [`path`] | all access to files by name: opening, creating, removing, binding, connecting |
//! | [`claim`] | claims: abstract socket names that one process holds, and a check of whether the holder is trusted |
//! | [`inherited_fd`] | inherited descriptors |
//! | [`datagram`] | UDP and raw IP sockets that send and receive in batches; path MTUs |
//! | [`unix_socket`] | Unix sockets that carry frames |
//! | [`closer`] | a thread that closes descriptors received from other programs, because closing may block |
//! | [`helper`] | a helper process for work that may block forever |
//! | [`errno`] | classes of errors on the packet path |
//! | [`calendar`] | local time as text, formatted by the C library |
//! | [`calls`] | observation of the system calls of the packet path |
//! | [`eventfd_signal`] | signaling the eventfd of another program without blocking |
//! | [`wait`] | waiting for a descriptor, a deadline or another thread |
//! | [`interface`] | interface names, state, MTU, addresses, bridges, device attributes in sysfs |
//! | [`ethtool`] | device features by the names of `ethtool -k`, interrupt coalescing, rings, channels |
//! | [`netlink`] | links, veth pairs across namespaces, addresses, routes, neighbors |
//! | [`namespace`] | private user, network and mount namespaces |
//! | [`userns`] | whether this process may create networks and devices; if not, the reason and the remedy |
//! | [`secret`] | random numbers, locked memory, protection from inspection by other processes |
//! | [`stream`] | options of TCP sockets |
//! | `pcap` | the tcpdump filter compiler, loaded from libpcap at run time |
//! | `sandbox` | sandboxing of threads by role: capabilities, system calls and files |
//! | [`process`] | processes that end with their parent |
//! | [`scheduling`] | CPU affinity, real-time priority, CPU time, kernel threads |
//!
//! Two buffer types live in memory shared with the kernel: [`packet::RingFrame`] and [`xdp::Frame`]. Each exclusively
//! owns its bytes, and is a plain `AsRef<[u8]>` that can be held, can be sent to another thread and can outlive its
//! socket. Dropping it returns the memory.
//!
//! Constants newer than the C headers of stable distributions are in the private module `abi`, each with its source.
//!
//! The crate is for Linux and Android; AF_XDP is for Linux only. On other systems it contains only the file functions
//! of [`path`], so that dependent crates need no condition in their manifest. Most users want `grosso-io` or
//! `grosso-tun` instead.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod calendar;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod calls;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod claim;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod closer;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod datagram;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod errno;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod ethtool;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod eventfd_signal;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod helper;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod inherited_fd;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod interface;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod namespace;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod netlink;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod packet;
pub mod path;
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "pcap"))]
pub mod pcap;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod process;
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "sandbox"))]
pub mod sandbox;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod scheduling;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod secret;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod stream;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod tun;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod unix_socket;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod userns;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod wait;
#[cfg(target_os = "linux")]
pub mod xdp;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod abi;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod filter;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod mapping;

/// Example from `README.md`, compiled and run as a test.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
