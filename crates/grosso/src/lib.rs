//! Packet offload in userspace: the engine.
//!
//! Packets come from the wire one MTU at a time, and every stack is fast only when it is handed big
//! ones. This crate couples received packets into superframes (GRO), cuts superframes into packets
//! (TSO, GSO, USO), and carries checksums as states instead of recomputing them. It takes bytes and
//! gives bytes: no clock, no randomness, no system call, no thread, and no allocation once it is
//! warm.
//!
//! The idea: packets of one train have the same headers except for a few fields, and each of those
//! varies by a law. The laws are stated once, in each header's
//! [`HeaderSpec`](grosso_wire::HeaderSpec). Coalescing asks whether a packet obeys them, segmentation
//! applies them, so cutting a superframe gives back exactly the packets that were joined.
//!
//! | module | job |
//! |---|---|
//! | [`Frame`] | a packet: its bytes, and beside them what is known about it |
//! | [`meta`] | checksum state, how to cut a superframe, VLAN tag, timestamp, hash |
//! | [`checksum`] | the states of a checksum, and completing a partial one |
//! | [`coalesce`] | receive: join, hold, flush; profiles, limits and the names of all refusals |
//! | [`acknowledge`] | acknowledgments without data: records, summaries, filtering |
//! | [`expand`] | one acknowledgment becomes those that the packets of its train would have got |
//! | [`reassemble`] | receive: IP fragments to datagrams |
//! | [`segment`] | transmit: superframes to packets |
//! | [`tunnel`] | packets inside packets: ESP |
//! | [`steering`] | which of several queues a packet belongs to |
//! | [`fair`] | which frames of a queue that fills up are dropped, so that others find room |
//! | [`features`] | what a device can take, and what must be done to a frame for it |
//! | [`vnet`] | metadata as a `virtio_net_hdr`, and back |
//! | [`stats`] | counters by name and by reason |
//!
//! # Example
//!
//! Three segments of one TCP connection become one superframe, and the superframe becomes the three
//! segments again.
//!
//! ```
//! use grosso::{
//!     CoalesceOptions, Coalescer, Delivery, Frame, LinkType, Ports,
//!     segment::{Outgoing, Segments},
//! };
//! # use grosso_testkit::Packet;
//! # fn tcp(i: u32) -> Vec<u8> {
//! #     let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i as u16));
//! #     packet.tcp(|t| t.sequence(1000 + i * 500)).payload_len(500).build()
//! # }
//!
//! let packets = [tcp(0), tcp(1), tcp(2)];
//! let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
//!
//! let mut delivered = Vec::new();
//! let mut sink = |delivery: Delivery<'_, &[u8]>| {
//!     let mut bytes = Vec::new();
//!     delivery.copy_to(&mut bytes); // or write `delivery.slices()` with one vectored write
//!     delivered.push((bytes, delivery.meta));
//! };
//! for packet in &packets {
//!     coalescer.push(Frame::new(&packet[..]), 0, &mut sink);
//! }
//! coalescer.poll_end(0, &mut sink);
//!
//! let (superframe, meta) = &delivered[0];
//! assert_eq!(meta.gso.map(|gso| (gso.size(), gso.segments)), Some((Some(500), 3)));
//!
//! let slices = [&superframe[..]];
//! let mut segments =
//!     Segments::new(&slices, meta, LinkType::Ethernet, &Ports::ASSIGNED, Outgoing::default())?;
//! let mut buffer = [0; 1514];
//! for packet in &packets {
//!     let segment = segments.write_next(&mut buffer)?.ok_or("three packets")?;
//!     assert_eq!(&buffer[..segment.len()], &packet[..]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acknowledge;
mod bytes;
pub mod checksum;
pub mod coalesce;
mod connection;
pub mod expand;
pub mod fair;
pub mod features;
mod first_fragment;
mod flow;
mod flow_memory;
mod frame;
mod keyed_hash;
pub mod meta;
mod reasons;
pub mod reassemble;
mod remote_checksum;
pub mod segment;
pub mod stats;
pub mod steering;
mod template;
pub mod tunnel;
pub mod vnet;

pub use coalesce::{CoalesceOptions, Coalescer, Delivery, Profile, Sink, Verdict};
pub use frame::Frame;
pub use grosso_wire::{LinkType, Ports};
pub use meta::Meta;

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
