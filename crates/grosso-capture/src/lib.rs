//! Capture files: pcap and pcapng, read and written in constant memory, optionally compressed with gzip or zstd.
//!
//! ```no_run
//! use grosso_capture::{CaptureReader, CaptureWriter, Entry, WriterOptions};
//!
//! let mut reader = CaptureReader::open("in.pcapng")?;
//! let mut writer = CaptureWriter::create("out.pcapng", WriterOptions::like(&reader))?;
//! while let Some(entry) = reader.next()? {
//!     if !matches!(&entry, Entry::Packet(packet) if packet.data.len() < 60) {
//!         writer.copy(&entry)?; // every entry except short packets
//!     }
//! }
//! writer.finish()?;
//! # Ok::<(), grosso_capture::CaptureError>(())
//! ```
//!
//! | module | job |
//! |---|---|
//! | `reader`, `writer` | conversion of files to entries and back; only these modules perform IO |
//! | `pcap`, `pcapng` | the two formats as state machines over bytes |
//! | `magic` | detection of formats by their first bytes |
//! | `merge` | merging of several captures in time order |
//! | `compression`, `zstd` | gzip and zstd input, detected by the first bytes |
//! | `layout` | layout of a record in a buffer, as found by the decoder of a format |
//! | `entry` | packets and blocks, borrowed from the reader's buffer |
//! | `options` | options of pcapng blocks |
//! | `metadata`, `offload_option` | metadata of packets |
//! | `tunnel_port` | UDP ports of the tunnels in a packet |
//! | `format`, `order` | formats, interfaces, timestamp units, byte order |
//! | `identity` | a check of whether two paths lead to the same file |
//! | `error` | capture errors |
//!
//! # Contents of a copy
//!
//! | from, to | preserved |
//! |---|---|
//! | pcapng to pcapng | every block and option byte for byte, in order, in the section's byte order. The length of a section header becomes "unknown", comments are added to the first one, and the options after a damaged one are [dropped and counted](CaptureWriter::damaged_options) |
//! | pcap to pcap | every byte |
//! | pcap to pcapng | packets, times, lengths, link type |
//! | pcapng to pcap | packets, times (to nanoseconds), lengths; fails at a second link type. **Classic pcap cannot store metadata**: comments, flags and offload states are lost |
//!
//! A packet with new bytes keeps its options if they are passed to [`CaptureWriter::write_packet_with`], except options
//! that would no longer be true.
//!
//! # Damaged captures
//!
//! The reader returns every complete record before the damage, and then reports the damage once, as an error with its
//! offset. Lengths are limited to [`RECORD_BYTES_MAX`], which bounds memory.
//!
//! [`PacketMeta`] converts between the metadata in a capture and the engine's [`Meta`](grosso::Meta). The crate
//! `grosso-io` has a port that reads and writes captures.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

mod compression;
mod entry;
mod error;
mod format;
mod identity;
mod layout;
mod magic;
mod merge;
mod metadata;
mod nflog;
mod offload_option;
pub mod options;
mod order;
mod pcap;
mod pcapng;
mod reader;
mod tunnel_port;
mod writer;
#[cfg(feature = "zstd")]
mod zstd;

pub use compression::Compression;
pub use entry::{Block, Entry, Origin, Packet};
pub use error::{CaptureError, Damage, FilePart, Misfit, NoWindowMemory, WINDOWS_BYTES_MAX};
pub use format::{
    Format, INTERFACES_MAX, Interface, LINK_TYPE_ETHERNET, RECORD_BYTES_MAX, Resolution,
    SNAPLEN_DEFAULT,
};
pub use identity::same_file;
pub use merge::{Merge, Outcome, Select};
pub use metadata::{Offload, PacketMeta, SegmentTransport, flag};
pub use offload_option::{ENTERPRISE_NUMBER, MAGIC};
pub use order::ByteOrder;
pub use reader::{CaptureReader, Input};
pub use tunnel_port::{TUNNEL_PORTS_MAX, TunnelPort};
pub use writer::{CaptureWriter, Output, WriterOptions};

/// Compiles and runs the example of `README.md` as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
