//! Capture files: pcap and pcapng, read and written in constant memory.
//!
//! | module | job |
//! |---|---|
//! | `reader`, `writer` | files to entries and back; the only modules that do IO |
//! | `pcap`, `pcapng` | the two formats as state machines over bytes |
//! | `magic` | formats, recognised by the first bytes |
//! | `merge` | several captures as one, in the order of time |
//! | `compression`, `zstd` | gzip and zstd input, detected by the first bytes |
//! | `layout` | layout of a record in a buffer, which a format's decoder finds |
//! | `entry` | packets and blocks, borrowed from the reader's buffer |
//! | `options` | options of pcapng blocks |
//! | `metadata`, `offload_option` | metadata of packets |
//! | `tunnel_port` | UDP ports of the tunnels in a packet |
//! | `format`, `order` | formats, interfaces, units of time, byte order |
//! | `identity` | whether two paths are one file |
//! | `error` | every error of a capture, by name |
//!
//! # Contents of a copy
//!
//! | from, to | kept |
//! |---|---|
//! | pcapng to pcapng | every block and option byte for byte, in order, in the section's byte order; only a section header's length becomes "unknown", and comments are added to the first; of damaged options those before the damage, [counted](CaptureWriter::damaged_options) |
//! | pcap to pcap | every byte |
//! | pcap to pcapng | packets, times, lengths, link type |
//! | pcapng to pcap | packets, times (to nanoseconds), lengths; refused at a second link type. **Classic pcap has nowhere to put metadata**: comments, flags and offload states are lost |
//!
//! A packet that is written with new bytes keeps its options when they are handed to
//! [`CaptureWriter::write_packet_with`], except those that would become untrue.
//!
//! # Damaged captures
//!
//! Every complete record before the damage is handed out; then the damage is returned once, as an
//! error with its offset. Lengths are accepted up to [`RECORD_BYTES_MAX`], so that memory stays
//! bounded.
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

/// The example of `README.md`, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
