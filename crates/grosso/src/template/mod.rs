//! Templates: a train described by its headers, with laws for the fields that vary.
//!
//! Packets of one train have the same headers except for a few fields, and each of these varies by a law: a length
//! field gives the packet's length, a sequence number advances by the payload length, and FIN is set only in the last
//! packet. Each header's [`HeaderSpec`](grosso_wire::HeaderSpec) states the laws of its fields once, as data, and
//! `shape` compiles them for one header stack. `compare` compares a packet with the first packet of a train under these
//! laws. `render` applies them to the whole train (its superframe) or to one packet of it, and `incremental` derives
//! the headers of one packet from those of another. Coalescing and segmentation use the same table in opposite
//! directions, so each undoes the other.

pub(crate) mod compare;
pub(crate) mod incremental;
pub(crate) mod render;
pub(crate) mod shape;

/// Maximum length of a train's headers in bytes: enough for six tunnel levels, or for one Geneve header with all
/// options.
pub const HEADER_BYTES_MAX: usize = 512;
