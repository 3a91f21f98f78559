//! Packet header formats: views, builders and one bounded dissector.
//!
//! [`dissect`] finds the headers of a frame; the module of each header parses and writes it. The crate does not
//! allocate, needs no `std`, and never panics, whatever the input. Checksums are left to `grosso-checksum`, but
//! [`Ends`] finds the addresses for the pseudo-header. The engine that merges and splits packets with these headers is
//! the crate `grosso`.
//!
//! ```
//! use grosso_wire::{Kind, LinkType, Malformed, Ports, Stop, dissect, ethernet, ipv4, tcp};
//!
//! // Write the headers, outermost first.
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
//! // Dissect the frame.
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
//!
//! # Modules
//!
//! | module | header |
//! |---|---|
//! | [`ethernet`], [`vlan`], [`pppoe`], [`mpls`] | link layer, and headers between it and IP |
//! | [`null`], [`sll`], [`sll2`] | pseudo link layers of capture files |
//! | [`ipv4`], [`ipv6`], [`ipv6_extension`], [`ipv6_fragment`] | network layer |
//! | [`tcp`], [`udp`], [`icmp`], [`sctp`], [`udp_lite`] | transport layer |
//! | [`gre`], [`gue`], [`fou`], [`vxlan`], [`nsh`], [`geneve`], [`l2tp`], [`esp`] | tunnels |
//! | [`virtio`] | `virtio_net_hdr`, which a device puts before a frame |
//!
//! The module of each header has the same parts: `HEADER_LEN` and constants for the values of fields; `field`, the byte
//! ranges of the fixed part; a type such as `TcpHeader`, a view of the fixed part in network byte order; `parse`, which
//! checks the header and returns it with its options and payload; and `emit`, which writes all of it to a buffer and
//! returns the rest of the buffer, so that calls chain from the outermost header inwards. To change a header in place,
//! use zerocopy's [`mut_from_prefix`](zerocopy::FromBytes::mut_from_prefix).
#![no_std]
#![forbid(unsafe_code)]

// Private modules: `registry` lists all headers, and `kind` derives `Kind` from it. `header::spec` defines
// `HeaderSpec`. `dissect` is the bounded parser, `walk` its position in a frame, and `stack` its result.
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

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
