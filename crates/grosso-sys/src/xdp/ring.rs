//! The four rings of an AF_XDP socket, each with one writer and one reader, in memory shared with
//! the kernel.
//!
//! Indices are 32-bit counters that wrap; only their differences are meaningful.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::xdp::XdpRingOffset;

use crate::abi;
use crate::mapping::Mapping;

/// One ring, with the indices that this program knows.
#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    entry_bytes: usize,
    slots: u32,
    /// This program's index; the kernel sees it once it is published.
    mine: u32,
    /// The kernel's index when it was last read.
    theirs: u32,
}

impl Ring {
    fn map(
        file: BorrowedFd<'_>,
        page_offset: u64,
        offsets: XdpRingOffset,
        slots: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        let offset = |value: u64| usize::try_from(value).map_err(io::Error::other);
        let entries = offset(offsets.desc)?;
        let bytes = entries + slots as usize * entry_bytes;
        Ok(Self {
            mapping: Mapping::of_file(file, page_offset, bytes)?,
            producer: offset(offsets.producer)?,
            consumer: offset(offsets.consumer)?,
            flags: offsets.flags.map(offset).transpose()?,
            entries,
            entry_bytes,
            slots,
            mine: 0,
            theirs: 0,
        })
    }

    fn entry(&self, index: u32) -> Range<usize> {
        let start = self.entries + (index & (self.slots - 1)) as usize * self.entry_bytes;
        start..start + self.entry_bytes
    }

    fn needs_wakeup(&self) -> bool {
        let flags = self.flags.map(|flags| self.mapping.atomic(flags).load(Ordering::Acquire));
        flags.is_some_and(|flags| flags & abi::XDP_RING_NEED_WAKEUP != 0)
    }
}

/// A ring that this program writes.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
}

impl Producer {
    pub(super) fn map(
        file: BorrowedFd<'_>,
        page_offset: u64,
        offsets: XdpRingOffset,
        slots: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(file, page_offset, offsets, slots, entry_bytes)? })
    }

    /// Returns the number of entries that can be written now.
    pub(super) fn room(&mut self) -> u32 {
        let ring = &mut self.ring;
        ring.theirs = ring.mapping.atomic(ring.consumer).load(Ordering::Acquire);
        ring.slots.saturating_sub(ring.mine.wrapping_sub(ring.theirs))
    }

    /// Returns the number of entries that the kernel has not read.
    pub(super) fn pending(&mut self) -> u32 {
        self.ring.slots - self.room()
    }

    /// Writes an entry, for which there must be room. The kernel sees it after
    /// [`Producer::publish`].
    pub(super) fn write(&mut self, entry: &[u8]) {
        let range = self.ring.entry(self.ring.mine);
        // SAFETY: the entry is after the published index, where the kernel does not read, and this
        // ring has one owner.
        let target = unsafe { self.ring.mapping.slice_mut(range) };
        target.copy_from_slice(entry);
        self.ring.mine = self.ring.mine.wrapping_add(1);
    }

    /// Makes written entries visible to the kernel.
    pub(super) fn publish(&self) {
        self.ring.mapping.atomic(self.ring.producer).store(self.ring.mine, Ordering::Release);
    }

    /// Returns whether the kernel must be woken by a system call, or does not report whether it must.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags.is_none() || self.ring.needs_wakeup()
    }
}

/// A ring that this program reads.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
}

impl Consumer {
    pub(super) fn map(
        file: BorrowedFd<'_>,
        page_offset: u64,
        offsets: XdpRingOffset,
        slots: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(file, page_offset, offsets, slots, entry_bytes)? })
    }

    /// Returns the number of entries that can be read now.
    pub(super) fn available(&mut self) -> u32 {
        let ring = &mut self.ring;
        ring.theirs = ring.mapping.atomic(ring.producer).load(Ordering::Acquire);
        ring.theirs.wrapping_sub(ring.mine).min(ring.slots)
    }

    /// Reads the next available entry. The kernel may overwrite it after [`Consumer::publish`].
    pub(super) fn read<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let range = self.ring.entry(self.ring.mine);
        // SAFETY: the entry is between the two indices, where the kernel does not write.
        let source = unsafe { self.ring.mapping.slice(range) };
        let mut entry = [0; BYTES];
        entry.copy_from_slice(source);
        self.ring.mine = self.ring.mine.wrapping_add(1);
        entry
    }

    /// Gives the slots of the read entries back to the kernel.
    pub(super) fn publish(&self) {
        self.ring.mapping.atomic(self.ring.consumer).store(self.ring.mine, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// Returns both ends of a ring with four entries of eight bytes, whose indices are about to wrap.
    fn both_ends() -> (Producer, Consumer) {
        let path = std::env::temp_dir().join(format!("grosso-sys-ring-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        file.set_len(4096).unwrap();
        std::fs::remove_file(&path).unwrap();
        let offsets = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(192) };
        let mut producer = Producer::map(file.as_fd(), 0, offsets, 4, 8).unwrap();
        let mut consumer = Consumer::map(file.as_fd(), 0, offsets, 4, 8).unwrap();
        for ring in [&mut producer.ring, &mut consumer.ring] {
            ring.mine = u32::MAX - 1;
        }
        producer.publish();
        consumer.publish();
        (producer, consumer)
    }

    #[test]
    fn entries_come_out_in_order_while_the_indices_wrap() {
        let (mut producer, mut consumer) = both_ends();
        assert_eq!((producer.room(), consumer.available()), (4, 0));
        for round in 0..5_u64 {
            for i in 0..4 {
                producer.write(&(round * 4 + i).to_ne_bytes());
            }
            assert_eq!(consumer.available(), 0, "nothing is available before it is published");
            producer.publish();
            assert_eq!((producer.room(), producer.pending(), consumer.available()), (0, 4, 4));
            for i in 0..4 {
                assert_eq!(u64::from_ne_bytes(consumer.read()), round * 4 + i);
            }
            assert_eq!(producer.room(), 0, "nothing is available before it is published");
            consumer.publish();
            assert_eq!((producer.room(), consumer.available()), (4, 0));
        }
    }
}
