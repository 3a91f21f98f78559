//! Packet header formats: views, builders and one bounded dissector.
//!
//! [`dissect`] finds the headers of a frame; the module of each header reads and writes it. The
//! crate allocates nothing, needs no `std`, and never panics on input. Of checksums it knows which addresses count in
//! them ([`Ends`]).
//!
//! | module | header |
//! |---|---|
//! | [`ethernet`], [`vlan`], [`pppoe`], [`mpls`] | link layer, and what is between it and IP |
//! | [`null`], [`sll`], [`sll2`] | what stands for a link layer in capture files |
//! | [`ipv4`], [`ipv6`], [`ipv6_extension`], [`ipv6_fragment`] | network layer |
//! | [`tcp`], [`udp`], [`icmp`], [`sctp`], [`udp_lite`] | transport layer |
//! | [`gre`], [`gue`], [`fou`], [`vxlan`], [`nsh`], [`geneve`], [`l2tp`], [`esp`] | tunnels |
//! | [`virtio`] | what a device says about a frame, in front of it |
//!
//! Private modules serve all of them: `registry` has a line for each header, of which `kind` makes [`Kind`];
//! `header::spec` is the form of a [`HeaderSpec`]; `dissect` is the bounded walk, `walk` its place in a frame, `stack`
//! its result.
//!
//! Each header's module has the same parts. `HEADER_LEN` and the constants of its fields. `field`, the byte
//! ranges of the fixed part, for those who work on raw bytes. `TcpHeader` and the like, the fixed part as a view of
//! bytes in network order, whose members are its fields and whose methods are the parts of those
//! that are smaller than a byte or have a meaning. `parse`, which refuses what contradicts
//! itself, and returns the header, its options or optional fields, and its payload. `emit`,
//! which writes all of it at the front of a buffer and returns the rest, so that calls chain from
//! the outermost header inwards. To change a header in place, zerocopy's
//! [`mut_from_prefix`](zerocopy::FromBytes::mut_from_prefix) gives a mutable view.
//!
//! ```
//! use grosso_wire::{Kind, LinkType, Malformed, Ports, Stop, dissect, ethernet, ipv4, tcp};
//!
//! // Written from the outside in.
//! let mut frame = [0; 14 + 20 + 24 + 5];
//! let ethernet = ethernet::EthernetHeader {
//!     ethertype: ethernet::ETHERTYPE_IPV4.into(),
//!     ..Default::default()
//! };
//! let ip = ipv4::Ipv4Header {
//!     total_length: 49.into(),
//!     protocol: ipv4::PROTOCOL_TCP,
//!     source: [192, 0, 2, 1],
//!     destination: [192, 0, 2, 2],
//!     ..Default::default()
//! };
//! let mut tcp = tcp::TcpHeader { destination_port: 80.into(), ..Default::default() };
//! tcp.set_flags(tcp::SYN);
//! let mut options = [0; 4];
//! tcp::TcpOption::MaximumSegmentSize(1460).emit(&mut options)?;
//!
//! let rest = ethernet.emit(&mut frame)?;
//! let rest = ip.emit(&[], rest)?;
//! let rest = tcp.emit(&options, rest)?;
//! rest.copy_from_slice(b"hello");
//!
//! // Found again.
//! let stack = dissect(&frame, LinkType::Ethernet, &Ports::ASSIGNED);
//! assert_eq!(stack.to_string(), "eth ip4 tcp");
//! assert_eq!((stack.stop, stack.header_len()), (Stop::Payload, 58));
//! let layer = stack.last().filter(|layer| layer.kind == Kind::Tcp).unwrap();
//! let (header, mut options, payload) = tcp::TcpHeader::parse(&frame[layer.offset.into()..])?;
//! assert!(header.has(tcp::SYN));
//! assert_eq!(options.next(), Some(Ok(tcp::TcpOption::MaximumSegmentSize(1460))));
//! assert_eq!(payload, b"hello");
//! # Ok::<(), Malformed>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod dissect;
mod ends;
mod error;
pub mod header;
mod kind;
mod layout;
mod link_type;
mod ports;
mod registry;
mod stack;
#[cfg(test)]
mod testing;
pub mod virtio;
mod walk;

pub use dissect::{dissect, dissect_into};
pub use ends::Ends;
pub use error::{Malformed, Reason};
pub use header::*;
pub use kind::Kind;
pub use link_type::LinkType;
pub use ports::{CookieLen, Ports, Pseudowire, UdpPayload};
pub use stack::{Extent, LAYERS_MAX, Layer, Stack, Stop};
pub use zerocopy;

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
