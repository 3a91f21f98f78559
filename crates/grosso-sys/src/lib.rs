//! Linux system calls for Grosso, thin and typed. This crate knows no packet formats.
//!
//! Every call is one the ports (`grosso-io`), the lab and the kernel oracles of the tests need, and
//! that the standard library has not. Errors are [`std::io::Error`] with the kernel's own code;
//! nothing is retried, cached or logged here.
//!
//! | module | what it wraps |
//! |---|---|
//! | [`tun`] | TUN and TAP devices: flags, header size, offloads, one packet a read or write |
//! | [`packet`] | packet sockets bound to one interface, with virtio header and VLAN tag |
//! | [`interface`] | names, up, MTU, addresses, bridges, device attributes in sysfs |
//! | [`ethtool`] | device features by the names `ethtool -k` prints |
//! | [`netlink`] | what only rtnetlink can do: `gro_max_size`, VXLAN devices |
//! | [`namespace`] | private user, network and mount namespaces |
//! | [`scheduling`] | CPU affinity, real-time priority, finding a kernel thread |
//!
//! Constants newer than the C headers of stable distributions are in the private module `abi`, each
//! with its origin.
//!
//! The crate is for Linux only: on every other system it compiles to nothing, so that crates above
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
#![cfg(target_os = "linux")]

pub mod ethtool;
pub mod interface;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod scheduling;
pub mod tun;

mod abi;
