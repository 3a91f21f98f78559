//! Receives packets in blocks of mapped memory (`TPACKET_V3`). Each block holds several packets, like a page into which
//! a NIC writes.
//!
//! Only experiments use blocks: a block returns to the kernel as a whole, so a single held packet keeps the whole
//! block.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::param::page_size;

use super::{PacketSocket, Statistics, set_option};
use crate::abi;
use crate::mapping::Mapping;

/// Maximum memory of one ring in bytes: a larger one is a configuration mistake.
const RING_BYTES_MAX: usize = 1 << 30;
/// Number of bytes that a packet takes up in a block in addition to its own: the kernel's header and address, a virtio
/// header, and padding.
const PACKET_OVERHEAD_BYTES: usize = 96;
/// Alignment of the packets in a block in bytes.
const PACKET_ALIGNMENT: usize = 8;
/// Status bit of a block that this program has taken and not returned. The kernel looks only at `TP_STATUS_USER`.
const TAKEN: u32 = 1 << 27;

/// Number and size of the blocks of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Length of a block in bytes, a multiple of the page size. A packet that does not fit in an empty block is
    /// truncated.
    pub block_bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Time after which the kernel hands over a block that is not full. It is rounded up to milliseconds and limited to
    /// 65 s.
    pub retire: Duration,
}

impl BlockLayout {
    /// Returns the number of Ethernet frames of `packet_bytes` bytes that fit in a block if each has a virtio header.
    #[must_use]
    pub fn packets_per_block(block_bytes: usize, packet_bytes: usize) -> usize {
        let each = packet_bytes.saturating_add(PACKET_OVERHEAD_BYTES);
        let each = each.checked_next_multiple_of(PACKET_ALIGNMENT).unwrap_or(usize::MAX);
        block_bytes.saturating_sub(abi::PACKET_BLOCK_HEADER_BYTES) / each
    }

    /// Returns the length of the ring in bytes.
    fn checked_bytes(self) -> io::Result<usize> {
        let bytes = self.block_bytes.checked_mul(self.blocks);
        match bytes.filter(|bytes| (1..=RING_BYTES_MAX).contains(bytes)) {
            Some(bytes) if self.block_bytes.is_multiple_of(page_size()) => Ok(bytes),
            _ => {
                let text = format!("invalid ring of blocks: {self:?}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    fn request(self) -> abi::PacketBlocksRequest {
        let milliseconds = self.retire.as_nanos().div_ceil(1_000_000).max(1);
        // The kernel checks the slots but does not use them: a packet may fill a block.
        let ring = abi::PacketRingRequest {
            block_bytes: self.block_bytes as u32,
            blocks: self.blocks as u32,
            slot_bytes: self.block_bytes as u32,
            slots: self.blocks as u32,
        };
        // Older kernels store the time in 16 bits.
        let retire_ms = u16::try_from(milliseconds).unwrap_or(u16::MAX).into();
        abi::PacketBlocksRequest { ring, retire_ms, private_bytes: 0, features: 0 }
    }
}

/// A packet socket whose packets arrive in blocks.
///
/// While the newest block is held, `poll` reports the socket as readable even without another packet. Do not wait while
/// packets are held, or wait with an edge-triggered [`crate::wait::Waiter`].
#[derive(Debug)]
pub struct BlockRing {
    socket: PacketSocket,
    queue: BlockQueue,
}

impl BlockRing {
    pub(super) fn new(socket: PacketSocket, layout: BlockLayout) -> io::Result<Self> {
        let bytes = layout.checked_bytes()?;
        let version = abi::TPACKET_V3;
        set_option(&socket.file, abi::PACKET_VERSION, &version)?;
        set_option(&socket.file, abi::PACKET_RX_RING, &layout.request())?;
        let mapping = Mapping::of_file(socket.file.as_fd(), 0, bytes)?;
        let queue = BlockQueue::new(mapping, layout.block_bytes, socket.virtio_bytes.into());
        Ok(Self { socket, queue })
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Returns the next packet in order of arrival, or `None` if there is none, or if the next block is still held from
    /// the previous round.
    pub fn receive(&mut self) -> Option<BlockPacket> {
        self.queue.receive()
    }

    /// Returns the number of blocks and packets received since the ring was opened.
    pub fn counts(&self) -> BlockCounts {
        self.queue.counts
    }

    /// Waits until a block arrives and returns whether there is one. A signal ends the wait early.
    ///
    /// # Errors
    ///
    /// Returns any error from `poll(2)`, except `EINTR`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        self.socket.wait(at_most)
    }

    /// Returns the number of packets received and the number of packets dropped because no block was free, both since
    /// the last call.
    ///
    /// # Errors
    ///
    /// Returns any error from `getsockopt(2)`.
    pub fn take_statistics(&self) -> io::Result<Statistics> {
        self.socket.take_statistics()
    }
}

impl AsFd for BlockRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Numbers of blocks and packets that a [`BlockRing`] has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Number of blocks received with at least one packet.
    pub blocks: u64,
    /// Number of packets received.
    pub packets: u64,
    /// Number of blocks whose headers pointed outside the block. The remaining packets of these blocks were skipped.
    pub malformed: u64,
}

/// The mapped blocks, and the current position in them.
#[derive(Debug)]
struct BlockQueue {
    memory: Arc<BlockMemory>,
    virtio_bytes: usize,
    /// Offset of the block that the kernel hands over next.
    next: usize,
    /// The block whose packets are being received.
    open: Option<(Arc<ReceivedBlock>, PacketWalk)>,
    counts: BlockCounts,
}

/// The memory of a ring, which the ring shares with the blocks that it has handed out. The kernel keeps the memory
/// until it is unmapped.
#[derive(Debug)]
struct BlockMemory {
    mapping: Mapping,
    block_bytes: usize,
}

impl BlockQueue {
    /// Creates a queue in a mapping of whole blocks.
    fn new(mapping: Mapping, block_bytes: usize, virtio_bytes: usize) -> Self {
        let memory = Arc::new(BlockMemory { mapping, block_bytes });
        Self { memory, virtio_bytes, next: 0, open: None, counts: BlockCounts::default() }
    }

    fn receive(&mut self) -> Option<BlockPacket> {
        // A correct kernel hands over blocks with valid packets; the loop limit protects against one that does not.
        for _ in 0..self.memory.mapping.bytes() / self.memory.block_bytes {
            let (block, mut walk) = match self.open.take() {
                Some(open) => open,
                None => self.take_block()?,
            };
            match walk.next((*block).as_ref(), self.virtio_bytes) {
                Some(Some((range, truncated))) => {
                    self.counts.packets += 1;
                    if walk.left > 0 {
                        self.open = Some((Arc::clone(&block), walk));
                    }
                    return Some(BlockPacket {
                        block,
                        range,
                        truncated,
                        virtio_bytes: self.virtio_bytes,
                    });
                }
                Some(None) => self.counts.malformed += 1,
                // Some kernels hand over a block without packets after the timeout.
                None => {}
            }
        }
        None
    }

    /// Takes the next block if the kernel has handed it over and none of its packets is held.
    fn take_block(&mut self) -> Option<(Arc<ReceivedBlock>, PacketWalk)> {
        let (start, memory) = (self.next, &self.memory);
        let status = memory.status(start);
        if status.load(Ordering::Acquire) & (abi::TP_STATUS_USER | TAKEN) != abi::TP_STATUS_USER {
            return None;
        }
        status.store(abi::TP_STATUS_USER | TAKEN, Ordering::Relaxed);
        let after = start + memory.block_bytes;
        self.next = if after < memory.mapping.bytes() { after } else { 0 };
        let fields = start + abi::PACKET_BLOCK_FIELDS.start..start + abi::PACKET_BLOCK_FIELDS.end;
        // SAFETY: the kernel handed the block over, so it does not write these fields, and neither does this program.
        let fields = unsafe { memory.mapping.slice(fields) };
        let [packets, first, bytes] = [0, 4, 8].map(|at| word(fields, at));
        let bytes = (bytes as usize).min(memory.block_bytes);
        let end = start + bytes.max(abi::PACKET_BLOCK_HEADER_BYTES);
        let range = start + abi::PACKET_BLOCK_HEADER_BYTES..end;
        let first = (first as usize).checked_sub(abi::PACKET_BLOCK_HEADER_BYTES);
        let walk = PacketWalk { next: first.unwrap_or(usize::MAX), left: packets };
        self.counts.blocks += u64::from(packets > 0);
        let block = ReceivedBlock { memory: Arc::clone(memory), start, range };
        Some((Arc::new(block), walk))
    }
}

impl BlockMemory {
    /// Returns the status word of the block at this offset, which shows who owns the block.
    fn status(&self, start: usize) -> &AtomicU32 {
        self.mapping.atomic(start + abi::PACKET_BLOCK_STATUS)
    }
}

/// A block that the kernel handed over. Packets share the block; when the last of them is dropped, the block returns to
/// the kernel.
#[derive(Debug)]
pub struct ReceivedBlock {
    memory: Arc<BlockMemory>,
    start: usize,
    /// Range of the packets in the mapping, after the block's header.
    range: Range<usize>,
}

/// Returns the packets of the block, including their headers.
impl AsRef<[u8]> for ReceivedBlock {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range lies in a block that the kernel handed over and does not write until this value is dropped,
        // and this program writes only the status word, which is before the range.
        unsafe { self.memory.mapping.slice(self.range.clone()) }
    }
}

impl Drop for ReceivedBlock {
    fn drop(&mut self) {
        self.memory.status(self.start).store(abi::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// A packet in its block.
#[derive(Debug)]
pub struct BlockPacket {
    block: Arc<ReceivedBlock>,
    /// Range of the packet within the block's bytes.
    range: Range<usize>,
    truncated: bool,
    virtio_bytes: usize,
}

impl BlockPacket {
    /// Returns the virtio header of the packet, which is empty if the socket was opened without a virtio header.
    #[inline]
    pub fn virtio_header(&self) -> &[u8] {
        let start = self.range.start;
        self.block_bytes(start.saturating_sub(self.virtio_bytes)..start)
    }

    /// Returns whether an empty block was too short for the packet.
    #[inline]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the block, and the range of the packet in its bytes.
    #[inline]
    pub fn into_block(self) -> (Arc<ReceivedBlock>, Range<usize>) {
        (self.block, self.range)
    }

    #[inline]
    fn block_bytes(&self, range: Range<usize>) -> &[u8] {
        (*self.block).as_ref().get(range).unwrap_or_default()
    }
}

/// Returns the bytes of the packet, starting with its link-layer header.
impl AsRef<[u8]> for BlockPacket {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.block_bytes(self.range.clone())
    }
}

/// A position among the packets of a block. Offsets from the kernel are checked against the bytes of the block.
#[derive(Clone, Copy, Debug)]
struct PacketWalk {
    /// Offset of the header of the next packet.
    next: usize,
    /// Number of packets that have not been visited.
    left: u32,
}

impl PacketWalk {
    /// Returns the range of the next packet, and whether the packet is truncated. Returns `Some(None)` and ends the
    /// walk if its header, its bytes or the header after it are outside the block.
    fn next(&mut self, block: &[u8], virtio_bytes: usize) -> Option<Option<(Range<usize>, bool)>> {
        self.left = self.left.checked_sub(1)?;
        let packet = self.packet(block, virtio_bytes);
        if packet.is_none() {
            self.left = 0;
        }
        Some(packet)
    }

    fn packet(&mut self, block: &[u8], virtio_bytes: usize) -> Option<(Range<usize>, bool)> {
        let header_end = self.next.checked_add(abi::PACKET_BLOCK_PACKET_BYTES)?;
        let header = block.get(self.next..header_end)?;
        let [next_offset, snap_length, length] = [0, 12, 16].map(|at| word(header, at));
        let mac = usize::from(u16::from_ne_bytes([header[24], header[25]]));
        let start = self.next.checked_add(mac)?;
        let end = start.checked_add(snap_length as usize)?;
        let is_inside = start >= header_end.checked_add(virtio_bytes)? && end <= block.len();
        if self.left > 0 {
            let next = self.next.checked_add(next_offset as usize)?;
            // Each header must lie after the previous one, so that a walk ends even if the number of packets is wrong.
            if next < header_end {
                return None;
            }
            self.next = next;
        }
        is_inside.then_some((start..end, snap_length < length))
    }
}

/// Returns the 32-bit number at an offset, or zero if the offset is beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;
    /// Offset of the Ethernet header from the start of the packet header, as chosen by the kernel.
    const MAC: usize = 92;

    /// Writes whole words into a mapping.
    fn write(mapping: &Mapping, at: usize, bytes: &[u8]) {
        for (number, word) in bytes.chunks_exact(4).enumerate() {
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            mapping.atomic(at + 4 * number).store(word, Ordering::Relaxed);
        }
    }

    /// Encodes a packet header from the offset of the next header, the captured length, the original length, and the
    /// offset of the packet's bytes.
    fn header(next: usize, snap_length: usize, length: usize, mac: usize) -> [u8; 48] {
        let mut header = [0; 48];
        header[..4].copy_from_slice(&(next as u32).to_ne_bytes());
        header[12..16].copy_from_slice(&(snap_length as u32).to_ne_bytes());
        header[16..20].copy_from_slice(&(length as u32).to_ne_bytes());
        header[24..26].copy_from_slice(&(mac as u16).to_ne_bytes());
        header
    }

    /// Hands over block `number` with these header fields, as the kernel does.
    fn hand_over(queue: &BlockQueue, number: usize, fields: [usize; 3]) {
        let (start, mapping) = (number * BLOCK, &queue.memory.mapping);
        for (field, value) in [12, 16, 20].into_iter().zip(fields) {
            mapping.atomic(start + field).store(value as u32, Ordering::Relaxed);
        }
        let status = abi::TP_STATUS_USER | abi::TP_STATUS_LOSING;
        queue.memory.status(start).store(status, Ordering::Release);
    }

    /// Returns a queue of two blocks. The first block contains two packets; `second` is the header of the second
    /// packet.
    fn queue_with(second: [u8; 48], fields: [usize; 3]) -> BlockQueue {
        let queue = BlockQueue::new(Mapping::anonymous(2 * BLOCK).unwrap(), BLOCK, 10);
        let mapping = &queue.memory.mapping;
        write(mapping, 48, &header(256, 100, 100, MAC));
        write(mapping, 48 + MAC, &[7; 100]);
        write(mapping, 48 + 256, &second);
        write(mapping, 48 + 256 + MAC, &[8; 100]);
        hand_over(&queue, 0, fields);
        queue
    }

    #[test]
    fn packets_of_a_block_come_in_order_and_the_last_returns_the_block() {
        let mut queue = queue_with(header(0, 100, 2000, MAC), [2, 48, 600]);
        let status = |queue: &BlockQueue, start| queue.memory.status(start).load(Ordering::Acquire);
        let one = queue.receive().unwrap();
        assert_eq!((one.as_ref(), one.virtio_header()), (&[7; 100][..], &[0; 10][..]));
        let other = queue.receive().unwrap();
        assert_eq!(
            (other.as_ref(), one.truncated(), other.truncated()),
            (&[8; 100][..], false, true)
        );
        assert!(queue.receive().is_none());
        drop(one);
        assert_eq!(status(&queue, 0), abi::TP_STATUS_USER | TAKEN);
        // In the next round, the queue finds a block that is still held.
        queue.next = 0;
        assert!(queue.receive().is_none());
        let (block, range) = other.into_block();
        assert_eq!((*block).as_ref()[range], [8; 100]);
        drop(block);
        assert_eq!(status(&queue, 0), abi::TP_STATUS_KERNEL);
        assert_eq!(queue.counts, BlockCounts { blocks: 1, packets: 2, malformed: 0 });
    }

    #[test]
    fn a_block_outlives_its_ring() {
        let mut queue = queue_with(header(0, 100, 100, MAC), [2, 48, 600]);
        let packet = queue.receive().unwrap();
        drop(queue);
        assert_eq!(packet.as_ref(), [7; 100]);
    }

    #[test]
    fn headers_that_point_outside_the_block_end_it_and_are_counted() {
        let good = header(0, 100, 100, MAC);
        let huge = u32::MAX as usize;
        let first = header(0, 100, 100, MAC);
        for (name, second, fields, packets) in [
            ("a packet beyond the bytes of the block", good, [2, 48, 48 + 256 + MAC + 99], 1),
            ("a header beyond the bytes of the block", good, [2, 48, 48 + 256 + 47], 1),
            ("a packet as long as memory", header(0, huge, huge, MAC), [2, 48, 600], 1),
            ("a packet over its own header", header(0, 100, 100, 57), [2, 48, 600], 1),
            ("a packet at the end of 16 bits", header(0, 100, 100, 0xffff), [2, 48, 600], 1),
            ("a first packet in the block's header", first, [2, 47, 600], 0),
            ("a first packet beyond the block", first, [2, huge, 600], 0),
            ("no bytes", first, [2, 48, 0], 0),
            ("a third packet over the second", header(47, 100, 100, MAC), [3, 48, 600], 1),
            ("a third packet far away", header(huge, 100, 100, MAC), [3, 48, 600], 2),
            ("more packets than bytes", header(300, 100, 100, MAC), [huge, 48, huge], 2),
        ] {
            let mut queue = queue_with(second, fields);
            let received = core::iter::from_fn(|| queue.receive()).count();
            assert_eq!(received, packets, "{name}");
            assert_eq!(queue.counts.malformed, 1, "{name}");
            let status = queue.memory.status(0).load(Ordering::Acquire);
            assert_eq!(status, abi::TP_STATUS_KERNEL, "{name}");
        }
    }

    #[test]
    fn blocks_follow_in_a_circle_and_empty_ones_are_skipped() {
        let mut queue = queue_with(header(0, 100, 100, MAC), [1, 48, 600]);
        assert_eq!(queue.receive().unwrap().as_ref(), [7; 100]);
        hand_over(&queue, 1, [0, 48, 48]);
        hand_over(&queue, 0, [1, 48 + 256, 600]);
        assert_eq!(queue.receive().unwrap().as_ref(), [8; 100]);
        assert_eq!(queue.counts, BlockCounts { blocks: 2, packets: 2, malformed: 0 });
    }

    #[test]
    fn blocks_are_whole_pages_and_hold_as_many_packets_as_fit() {
        let sizes = [4, 8, 16, 32].map(|kib| kib << 10);
        assert_eq!(sizes.map(|bytes| BlockLayout::packets_per_block(bytes, 1514)), [2, 5, 10, 20]);
        assert_eq!(sizes.map(|bytes| BlockLayout::packets_per_block(bytes, 9014)), [0, 0, 1, 3]);
        assert_eq!(BlockLayout::packets_per_block(4096, usize::MAX), 0);
        let bytes = |block_bytes, blocks| {
            BlockLayout { block_bytes, blocks, retire: Duration::ZERO }.checked_bytes().ok()
        };
        assert_eq!(bytes(page_size(), 3), Some(3 * page_size()));
        for (block_bytes, blocks) in [(0, 3), (4096, 0), (1000, 8), (1 << 20, 1 << 60)] {
            assert_eq!(bytes(block_bytes, blocks), None, "{block_bytes} x {blocks}");
        }
    }
}
