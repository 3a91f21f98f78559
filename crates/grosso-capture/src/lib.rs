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
//! | item | job |
//! |---|---|
//! | [`CaptureReader`], [`CaptureWriter`] | read and write captures; [`WriterOptions`] sets the format |
//! | [`Entry`], [`Packet`], [`Block`] | the contents of a capture, borrowed from the reader's buffer |
//! | [`PacketMeta`], [`Offload`] | metadata of a packet: timestamp, direction, segment size, checksum state |
//! | [`Merge`] | read several captures in time order |
//! | [`Format`], [`Interface`], [`Resolution`] | the formats, and the properties of an interface |
//! | [`TunnelPort`] | UDP ports of the tunnels in a packet |
//! | [`options`] | options of pcapng blocks |
//! | [`CaptureError`] | errors, with the offset in the file |
//!
//! # Contents of a copy
//!
//! | from, to | preserved |
//! |---|---|
//! | pcapng to pcapng | every block and option byte for byte, in order, in the section's byte order. The length of a section header becomes "unknown", comments are added to the first one, and the options after a damaged one are [dropped and counted](CaptureWriter::damaged_options) |
//! | pcap to pcap | every byte |
//! | pcap to pcapng | packets, timestamps, lengths, link type |
//! | pcapng to pcap | packets, timestamps (to nanoseconds), lengths; fails at a second link type. **Classic pcap cannot store metadata**: comments, flags and offload states are lost |
//!
//! To keep the options of a packet that you changed, pass them to [`CaptureWriter::write_packet_with`], which drops
//! only options that would no longer be true.
//!
//! # Damaged captures
//!
//! The reader returns every complete record before the damage, and then reports the damage once, as an error with its
//! offset. Lengths are limited to [`RECORD_BYTES_MAX`], which bounds memory.
//!
//! [`PacketMeta`] converts between the metadata in a capture and the engine's [`Meta`](grosso::Meta); the engine is the
//! crate [`grosso`]. `docs/pcapng-option.md` specifies how pcapng files store this metadata. The crate `grosso-io` has
//! a port that reads and writes captures, and `grosso-analysis` analyzes them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their files themselves"))]

// Only `reader` and `writer` perform IO. `pcap` and `pcapng` decode the formats as state machines over bytes, and
// `layout` describes the records that they find in a buffer. `magic` and `compression` detect formats from the first
// bytes of a file.
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

/// Example of `README.md`, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
