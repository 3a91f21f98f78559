//! Linux system calls for Grosso, thin and typed. This crate knows no packet formats.
//!
//! Every call is one that the ports (`grosso-io`), the lab or the kernel oracles of the tests need
//! and the standard library lacks. Errors are [`std::io::Error`] with the kernel's own code;
//! nothing is retried, cached or logged here.
//!
//! | module | contents |
//! |---|---|
//! | [`tun`] | TUN and TAP devices: making, adopting, queues, offloads, one packet a read or write |
//! | [`packet`] | packet sockets: virtio header, VLAN tag, batches, mapped rings, fanout, a filter for IP |
//! | [`xdp`] | AF_XDP sockets with owned frames, and the program that redirects packets to them |
//! | [`path`] | every name in the file system: opening, creating, removing, binding, connecting |
//! | [`claim`] | names without a file that one process holds, and the trust in its holder |
//! | [`passed`] | descriptors that another program passed to this one |
//! | [`datagram`] | UDP and raw IP sockets that send and receive in batches; path MTUs |
//! | [`local`] | Unix sockets that carry frames |
//! | [`closer`] | closing of descriptors that another program passed, by a thread that may wait |
//! | [`helper`] | a process that does for this one what may wait without an end |
//! | [`fault`] | classes of errors on the packet path |
//! | [`calendar`] | local time as text, by the C library |
//! | [`calls`] | observation of the system calls of the packet path |
//! | [`bell`] | telling another program by its eventfd, without ever waiting |
//! | [`wait`] | waiting for a descriptor, a time or another thread |
//! | [`interface`] | names, up, MTU, addresses, bridges, device attributes in sysfs |
//! | [`ethtool`] | device features by the names `ethtool -k` prints, coalescing, rings, channels |
//! | [`netlink`] | links, veth pairs across networks, addresses, routes, neighbours |
//! | [`namespace`] | private user, network and mount namespaces |
//! | [`permit`] | whether this process may make networks and devices; if not, the reason and the remedy |
//! | [`secret`] | random numbers, locked memory, a process that others cannot look into |
//! | [`stream`] | receive low-water mark of TCP sockets |
//! | `pcap` | the compiler of tcpdump's expressions, loaded from libpcap at run time |
//! | `confine` | threads that give up capabilities, system calls and files by their role |
//! | [`process`] | processes that end with the one that started them |
//! | [`scheduling`] | CPU affinity, real-time priority, CPU time, finding a kernel thread |
//!
//! Two kinds of buffer lie in memory shared with the kernel: [`packet::RingFrame`] and
//! [`xdp::Frame`]. Each is the only owner of its bytes. It is a plain `AsRef<[u8]>` that may be
//! held, be sent to another thread and outlive its socket, and it returns its memory when dropped.
//!
//! Constants newer than the C headers of stable distributions are in the private module `abi`, each
//! with its origin.
//!
//! The crate is for Linux: on every other system it has only the functions of [`path`] for files, so that crates above
//! it can name it without a condition in their manifest.
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
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

#[cfg(target_os = "linux")]
pub mod bell;
#[cfg(target_os = "linux")]
pub mod calendar;
#[cfg(target_os = "linux")]
pub mod calls;
#[cfg(target_os = "linux")]
pub mod claim;
#[cfg(target_os = "linux")]
pub mod closer;
#[cfg(all(target_os = "linux", feature = "confine"))]
pub mod confine;
#[cfg(target_os = "linux")]
pub mod datagram;
#[cfg(target_os = "linux")]
pub mod ethtool;
#[cfg(target_os = "linux")]
pub mod fault;
#[cfg(target_os = "linux")]
pub mod helper;
#[cfg(target_os = "linux")]
pub mod interface;
#[cfg(target_os = "linux")]
pub mod local;
#[cfg(target_os = "linux")]
pub mod namespace;
#[cfg(target_os = "linux")]
pub mod netlink;
#[cfg(target_os = "linux")]
pub mod packet;
#[cfg(target_os = "linux")]
pub mod passed;
pub mod path;
#[cfg(all(target_os = "linux", feature = "pcap"))]
pub mod pcap;
#[cfg(target_os = "linux")]
pub mod permit;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
pub mod scheduling;
#[cfg(target_os = "linux")]
pub mod secret;
#[cfg(target_os = "linux")]
pub mod stream;
#[cfg(target_os = "linux")]
pub mod tun;
#[cfg(target_os = "linux")]
pub mod wait;
#[cfg(target_os = "linux")]
pub mod xdp;

#[cfg(target_os = "linux")]
mod abi;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod mapping;

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
