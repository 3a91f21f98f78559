//! Packet offload in userspace: receive coalescing (GRO), segmentation (GSO, TSO, USO) and checksum offload.
//!
//! Most of the time that a network stack spends depends on the number of packets, not on the number of bytes. This
//! crate merges received packets into superframes, segments superframes into packets, and carries checksums as states
//! instead of recomputing them. The crate does no IO: it uses no clock, no random numbers, no system calls and no
//! threads, and does not allocate once it is warm.
//!
//! Packets of a train have the same headers except for a few fields, and each of those fields follows a law: for
//! example, TCP sequence numbers advance by the payload length. The laws are stated once, in each header's
//! [`HeaderSpec`](grosso_wire::HeaderSpec). Coalescing checks whether a packet obeys the laws and segmentation applies
//! them, so segmenting a superframe restores exactly the packets that were merged.
//!
//! # Example
//!
//! Three segments of a TCP connection are merged into one superframe, which is then segmented again. `tcp(i)` returns
//! the Ethernet frame of segment `i`: 500 bytes of payload at sequence number `1000 + i * 500`. In a program, the
//! frames come from a device or a capture. `README.md` has a longer example that builds its own packets.
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
//! let seed = 0x5eed; // key of the flow hash: use a random number, so that nobody can choose flows that collide
//! let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, seed));
//!
//! let mut delivered = Vec::new();
//! let mut sink = |delivery: Delivery<'_, &[u8]>| {
//!     let mut bytes = Vec::new();
//!     delivery.copy_to(&mut bytes); // or write `delivery.slices()` with one vectored write
//!     delivered.push((bytes, delivery.meta));
//! };
//! for packet in &packets {
//!     coalescer.push(Frame::new(&packet[..]), 0, &mut sink); // 0: the time in nanoseconds
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
//!
//! # Modules
//!
//! | module | job |
//! |---|---|
//! | [`Frame`] | a packet buffer with its metadata |
//! | [`meta`] | metadata: checksum state, segmentation, VLAN tag, timestamp, hash |
//! | [`checksum`] | checksum states; completing a partial checksum |
//! | [`coalesce`] | receive: packets to superframes; profiles, limits and the reasons for every decision |
//! | [`acknowledge`] | pure acknowledgments: records, summaries, filtering |
//! | [`expand`] | replaces one acknowledgment of a superframe with the acknowledgments of its packets |
//! | [`reassemble`] | receive: IP fragments to datagrams |
//! | [`segment`] | transmit: superframes to packets, packets to IP fragments |
//! | [`tunnel`] | encapsulation and decapsulation; ESP |
//! | [`steering`] | choice of a queue by flow |
//! | [`fair`] | fair dropping from a queue that fills up |
//! | [`features`] | offload features of a device, and the work that a frame needs before transmission |
//! | [`vnet`] | conversion between metadata and `virtio_net_hdr` |
//! | [`stats`] | counters by name and by reason |
//!
//! Header formats are in [`grosso_wire`], checksum arithmetic in [`grosso_checksum`]. The crate `grosso-io` connects
//! the engine to devices and captures; `grosso-tun` wraps both for VPNs.
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

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
