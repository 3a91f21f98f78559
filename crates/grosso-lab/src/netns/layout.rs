//! Configuration of the hosts and the wire between them.

use std::time::Duration;

use grosso::features::Features;
use grosso_io::live::PacketOptions;
use grosso_sys::packet::{BlockLayout, RingLayout};
use grosso_wire::ethernet;

use super::CHECKSUMS;

/// MTUs of the two hosts in bytes, from the IP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Mtu {
    /// MTU of the sender and the wire.
    pub sender: u16,
    /// MTU of the receiver.
    pub receiver: u16,
}

/// IP version between the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6, in addition to IPv4.
    V6,
}

/// Configuration of the hosts and the wire between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// MTUs of the hosts.
    pub mtu: Mtu,
    /// IP version between the hosts.
    pub family: Family,
    /// Maximum size of a TCP socket buffer in bytes. All connections together should have fewer than 1000 packets in
    /// flight, which is the length of a wire's backlog (`net.core.netdev_max_backlog`; packets beyond it are dropped
    /// silently).
    pub tcp_buffer_bytes: usize,
    /// Number of bytes that may be in flight on the wire. The data path's ring has a slot for each packet in flight.
    pub under_way_bytes: usize,
    /// Size of a receive page in bytes, if the data path acts as the receiver's NIC; a page holds several packets.
    /// `None` means buffers for one packet each.
    pub page_bytes: Option<usize>,
    /// Whether packets cross the wire with complete checksums, which the receiver must verify. If not, checksums are
    /// partial and need no verification, as if a NIC had verified them.
    pub full_checksums: bool,
    /// Whether the sender's TCP is configured not to mistake a pause for a lost packet: without tail loss probes, and
    /// with a longer timeout if the kernel supports it (6.11 and later). Such pauses happen when other threads keep the
    /// data path's thread off the CPU.
    pub patient: bool,
    /// Number of bytes that must have arrived before a stream is read. Until then, the kernel acknowledges every second
    /// segment immediately. With 0, data is read and acknowledged as it arrives.
    pub read_bytes_min: u16,
    /// Maximum rate in bits per second of each stream that the sender sends, evenly spread; `None` if unlimited.
    pub offered_bits: Option<u64>,
    /// Whether TCP segments have timestamps.
    pub timestamps: bool,
    /// Whether the sender's device has generic segmentation offload (`ethtool -K gso`), if a data path acts as the
    /// sender's NIC.
    pub generic_segmentation: bool,
}

impl Default for Layout {
    /// Returns a layout for one stream of 1500-byte packets over IPv4.
    fn default() -> Self {
        Self {
            mtu: Mtu { sender: 1500, receiver: 1500 },
            family: Family::V4,
            tcp_buffer_bytes: TCP_BUFFER_BYTES,
            under_way_bytes: TCP_BUFFER_BYTES,
            page_bytes: None,
            full_checksums: false,
            patient: true,
            read_bytes_min: 0,
            offered_bits: None,
            timestamps: true,
            generic_segmentation: true,
        }
    }
}

impl Layout {
    /// Returns the same layout for `count` streams, whose total number of bytes in flight is limited as for one stream.
    #[must_use]
    pub fn streams(self, count: usize) -> Self {
        let each = (TCP_BUFFER_BYTES / count.max(1)).max(STREAM_BYTES_MIN);
        Self { tcp_buffer_bytes: each, under_way_bytes: each * count.max(1), ..self }
    }

    /// Returns the number of slots that a data path's ring needs.
    fn slots(&self) -> usize {
        let payload = usize::from(self.mtu.sender) - TCP_HEADERS_BYTES;
        (self.under_way_bytes / payload + RING_SPARE).next_power_of_two()
    }

    /// Returns the layout of a ring whose pages have this size. It has space for one packet per slot, and a few spare
    /// pages.
    pub(crate) fn pages(&self, page_bytes: usize) -> BlockLayout {
        let packets = self.packets_per_page(page_bytes).max(1);
        let blocks = self.slots().div_ceil(packets) + PAGES_SPARE;
        BlockLayout { block_bytes: page_bytes, blocks, retire: RETIRE }
    }

    /// Returns the number of wire packets that fit into a page.
    #[must_use]
    pub fn packets_per_page(&self, page_bytes: usize) -> usize {
        let packet_bytes = usize::from(self.mtu.sender) + ethernet::HEADER_LEN;
        BlockLayout::packets_per_block(page_bytes, packet_bytes)
    }

    /// Returns the size of a receive buffer that can hold a wire packet.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        let needed = usize::from(self.mtu.sender) + SLOT_OVERHEAD_BYTES;
        RingLayout::fitting(needed, 1).slot_bytes
    }
}

/// Returns the options for a wire that accepts no superframes. Each slot of its ring holds one packet, and there is
/// exactly one slot for every packet that may be in flight: a sleeping data path loses nothing, and the ring stays in
/// the CPU's cache.
pub(super) fn packet_options(layout: &Layout) -> PacketOptions {
    let mut options = PacketOptions::default();
    options.slot_bytes = Some(layout.slot_bytes());
    options.slots = Some(layout.slots());
    options.fair = false;
    options.transmit = if layout.full_checksums { Features::NONE } else { CHECKSUMS };
    options
}

/// Default of [`Layout::tcp_buffer_bytes`] for one stream.
const TCP_BUFFER_BYTES: usize = 640 << 10;
/// Minimum buffer size per stream if there are many streams. It has space for several packets in each direction, so
/// that a packet need not wait for the acknowledgment of the previous one.
const STREAM_BYTES_MIN: usize = 32 << 10;
/// Number of slots in the ring beyond those for the packets that the receiver's buffer allows in flight. They hold
/// packets that have been acknowledged, but whose train is still held.
const RING_SPARE: usize = 64;
/// Number of pages in the ring beyond those for the packets in [`Layout::slots`]. They are needed because some pages
/// are handed over before they are full.
const PAGES_SPARE: usize = 4;
/// Time after which a partly filled page is handed over: the shortest possible time.
const RETIRE: Duration = Duration::from_millis(1);
/// Number of bytes before a packet's IP header, including the part of a slot that the kernel uses.
const SLOT_OVERHEAD_BYTES: usize = 160;
/// Size of the IP and TCP headers of a stream's packet, including timestamps, in bytes.
const TCP_HEADERS_BYTES: usize = 52;
