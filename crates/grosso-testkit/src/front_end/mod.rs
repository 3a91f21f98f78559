//! A vhost-user front end that contains a driver: in effect, a VM without a CPU.
//!
//! The front end keeps its memory in a file and accesses it through reads and writes, so that it shares no code with
//! the tested program. Guest addresses, process addresses and file offsets all differ. The memory has two regions; the
//! guest's second region comes first in the file.

mod packed;

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream},
    },
    path::Path,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

use self::packed::Packed;

/// Number of the ring for frames to the guest in the first pair. The ring numbers of each further pair are two higher.
pub const TO_GUEST: usize = 0;
/// Number of the ring for frames from the guest in the first pair.
pub const FROM_GUEST: usize = 1;
/// Event index: a ring feature that the driver supports.
pub const EVENT_INDEX: u64 = 1 << 29;
/// Mergeable receive buffers: a frame may occupy several buffers.
pub const MERGEABLE: u64 = 1 << 15;
/// Virtio 1: rings and headers in the format of the standard.
pub const VERSION_1: u64 = 1 << 32;
/// Protocol features: a ring is not used until it is enabled.
pub const PROTOCOL: u64 = 1 << 30;
/// Packed rings.
pub const PACKED: u64 = 1 << 34;
/// Logging of the memory that the device writes.
const LOG_ALL: u64 = 1 << 26;

/// Way to divide a frame into descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// This many descriptors in the ring, at most [`PIECES_MAX`].
    Direct(usize),
    /// An indirect table with this many descriptors.
    Table(usize),
}

/// A front end whose memory and rings are configured.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
    memory: File,
    /// Offered features.
    pub offered: u64,
    /// Features that the front end has acknowledged.
    pub chosen: u64,
    kicks: Vec<OwnedFd>,
    calls: Vec<File>,
    /// Number of entries made available in each ring so far, modulo 2^16.
    available: Vec<u16>,
    /// Number of used entries processed in each ring so far, modulo 2^16.
    used: Vec<u16>,
    packed: Vec<Packed>,
    /// Queue pair on which frames are sent and received.
    pub pair: usize,
    /// Length of a virtio header.
    pub header_bytes: usize,
}

impl FrontEnd {
    /// Connects, and accepts the offered features that are in `wanted`.
    ///
    /// # Errors
    /// Fails if the socket fails, or if a reply does not arrive within [`STALLED`].
    pub fn connect(path: &Path, wanted: u64, serve: &mut dyn FnMut()) -> io::Result<Self> {
        Self::on(UnixStream::connect(path)?, wanted, serve)
    }

    /// Sets up the rings over a socket that is already connected to the back end. `serve` is called repeatedly so that
    /// the back end can run.
    ///
    /// # Errors
    /// Fails for the same reasons as [`FrontEnd::connect`].
    pub fn on(socket: UnixStream, wanted: u64, serve: &mut dyn FnMut()) -> io::Result<Self> {
        Self::with_pairs(socket, (wanted, 1), serve)
    }

    /// Sets up this many ring pairs, at most [`PAIRS_MAX`], and enables all of them.
    ///
    /// # Errors
    /// Fails for the same reasons as [`FrontEnd::connect`].
    pub fn with_pairs(
        socket: UnixStream,
        (wanted, pairs): (u64, usize),
        serve: &mut dyn FnMut(),
    ) -> io::Result<Self> {
        socket.set_read_timeout(Some(STALLED))?;
        let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        memory.set_len(MEMORY_BYTES)?;
        let event = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let kicks = (0..2 * pairs).map(event).collect::<Result<_, _>>()?;
        let calls = (0..2 * pairs).map(|ring| event(ring).map(File::from));
        let mut front = Self {
            socket,
            memory,
            offered: 0,
            chosen: 0,
            kicks,
            calls: calls.collect::<Result<_, _>>()?,
            available: vec![0; 2 * pairs],
            used: vec![0; 2 * pairs],
            packed: vec![Packed::default(); 2 * pairs],
            pair: 0,
            header_bytes: 12,
        };
        front.offered = front.ask(1, serve)?;
        front.send_request(3, &[], &[])?;
        // The log feature is acknowledged only if there is a log.
        front.chosen = front.offered & wanted & !LOG_ALL;
        if front.chosen & (VERSION_1 | MERGEABLE) == 0 {
            front.header_bytes = 10;
        }
        if front.chosen & PROTOCOL != 0 {
            let protocol = front.ask(15, serve)?;
            front.send_request(16, &protocol.to_ne_bytes(), &[])?;
        }
        front.send_request(2, &front.chosen.to_ne_bytes(), &[])?;
        front.set_memory()?;
        for ring in 0..2 * pairs {
            front.set_ring(ring)?;
        }
        // A frame sent to rings that are not configured yet would be lost. This reply shows that all previous messages
        // have been processed.
        front.ask(17, serve)?;
        Ok(front)
    }

    /// Sends the memory table.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub fn set_memory(&self) -> io::Result<()> {
        let mut payload = 2_u64.to_ne_bytes().to_vec();
        payload.extend(regions().iter().flatten().flat_map(|number| number.to_ne_bytes()));
        self.send_request(5, &payload, &[self.memory.as_fd(), self.memory.as_fd()])
    }

    /// Sends the configuration of a ring and enables the ring.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub fn set_ring(&self, ring: usize) -> io::Result<()> {
        let index = ring as u32;
        let pair = |value: u32| [index, value].map(u32::to_ne_bytes).concat();
        self.send_request(8, &pair(SIZE.into()), &[])?;
        let base = if self.is_packed() { self.packed[ring].base() } else { self.used[ring].into() };
        self.send_request(10, &pair(base), &[])?;
        let [table, available, used] = rings(ring).map(|at| USER[0] + at);
        let mut payload = u64::from(index).to_ne_bytes().to_vec();
        payload.extend([table, used, available, 0].iter().flat_map(|at| at.to_ne_bytes()));
        self.send_request(9, &payload, &[])?;
        let number = (ring as u64).to_ne_bytes();
        self.send_request(12, &number, &[self.kicks[ring].as_fd()])?;
        self.send_request(13, &number, &[self.calls[ring].as_fd()])?;
        if self.chosen & PROTOCOL != 0 {
            self.send_request(18, &pair(1), &[])?;
        }
        Ok(())
    }

    /// Enables or disables a ring.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub fn enable(&self, ring: usize, is_enabled: bool) -> io::Result<()> {
        let payload = [ring as u32, is_enabled.into()].map(u32::to_ne_bytes).concat();
        self.send_request(18, &payload, &[])
    }

    /// Stops a ring and returns the index of its next entry or, for a packed ring, the encoded position.
    ///
    /// # Errors
    /// Fails for the same reasons as [`FrontEnd::connect`].
    pub fn stop_ring(&mut self, ring: usize, serve: &mut dyn FnMut()) -> io::Result<u16> {
        self.send_request(11, &[ring as u32, 0].map(u32::to_ne_bytes).concat(), &[])?;
        serve();
        Ok((self.answer(11)? >> 32) as u16)
    }

    /// Restarts the driver, as a rebooted VM does: the rings are empty.
    ///
    /// # Errors
    /// Fails for the same reasons as [`FrontEnd::connect`].
    pub fn reboot(&mut self, serve: &mut dyn FnMut()) -> io::Result<()> {
        for ring in 0..self.used.len() {
            self.stop_ring(ring, serve)?;
            let [table, ..] = rings(ring);
            self.write(GUEST + table, &vec![0; RING_BYTES as usize]);
            (self.available[ring], self.used[ring]) = (0, 0);
            self.packed[ring] = Packed::default();
            self.set_ring(ring)?;
        }
        serve();
        Ok(())
    }

    /// Sends a message without waiting for a reply.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub fn send_request(
        &self,
        request: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let header = [request, 1, payload.len() as u32].map(u32::to_ne_bytes).concat();
        let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(files));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(payload)];
        sendmsg(&self.socket, &parts, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a request and returns the first number in the reply.
    ///
    /// # Errors
    /// Fails for the same reasons as [`FrontEnd::connect`].
    pub fn ask(&mut self, request: u32, serve: &mut dyn FnMut()) -> io::Result<u64> {
        self.send_request(request, &[], &[])?;
        serve();
        self.answer(request)
    }

    fn answer(&mut self, request: u32) -> io::Result<u64> {
        let mut answer = [0; 20];
        self.socket.read_exact(&mut answer)?;
        assert_eq!(answer[..8], [request, 5].map(u32::to_ne_bytes).concat());
        Ok(u64::from_ne_bytes(*answer[12..].first_chunk().expect("8 bytes")))
    }

    /// Makes a frame, including its header, available to the back end; returns `false` if the ring is full.
    pub fn send(&mut self, bytes: &[u8], shape: Shape) -> bool {
        self.put(2 * self.pair + FROM_GUEST, bytes.len(), shape, Some(bytes))
    }

    /// Makes a buffer that holds a frame or part of one available; returns `false` if the ring is full.
    pub fn give(&mut self, bytes: usize, shape: Shape) -> bool {
        self.put(2 * self.pair + TO_GUEST, bytes, shape, None)
    }

    fn put(&mut self, ring: usize, bytes: usize, shape: Shape, data: Option<&[u8]>) -> bool {
        self.reclaim(ring);
        if self.available[ring].wrapping_sub(self.used[ring]) >= SLOTS {
            return false;
        }
        let slot = u64::from(self.available[ring] % SLOTS);
        let (at, head) = (slot_at(ring, slot), slot as u16 * PIECES_MAX as u16);
        if let Some(data) = data {
            self.write(at, data);
        }
        let [table, ..] = rings(ring).map(|at| GUEST + at);
        let writes = if ring % 2 == TO_GUEST { 2_u16 } else { 0 };
        if self.is_packed() {
            self.put_packed(ring, (slot as u16, bytes), shape, writes);
            return true;
        }
        let (place, first, count) = match shape {
            Shape::Direct(count) => (table, head, count.min(PIECES_MAX)),
            Shape::Table(count) => (at + DATA_BYTES, 0, count),
        };
        let each = bytes.div_ceil(count);
        for piece in 0..count {
            let start = (piece * each).min(bytes);
            let length = each.min(bytes - start);
            let flags = writes | u16::from(piece + 1 < count);
            let number = first + piece as u16;
            let words = (at + start as u64, length as u32, flags, number + 1);
            self.write(place + 16 * u64::from(number), &descriptor(words));
        }
        if let Shape::Table(count) = shape {
            let words = (at + DATA_BYTES, 16 * count as u32, 4, 0);
            self.write(table + 16 * u64::from(head), &descriptor(words));
        }
        self.offer(ring, head);
        true
    }

    /// Adds an entry to the available entries of a split ring.
    pub fn offer(&mut self, ring: usize, head: u16) {
        let [_, available, _] = rings(ring).map(|at| GUEST + at);
        let entry = u64::from(self.available[ring] % SIZE);
        self.write(available + 4 + 2 * entry, &head.to_le_bytes());
        self.available[ring] = self.available[ring].wrapping_add(1);
        self.write(available + 2, &self.available[ring].to_le_bytes());
    }

    /// Returns whether the back end has asked to be notified of the entries that were made available last.
    #[must_use]
    pub fn is_asked(&self, ring: usize) -> bool {
        let [_, _, used] = rings(ring).map(|at| GUEST + at);
        if self.is_packed() {
            return self.packed[ring].is_asked([used, used + 2].map(|at| self.number(at)));
        }
        if self.chosen & EVENT_INDEX == 0 {
            return self.number(used) & 1 == 0;
        }
        let event = self.number(used + 4 + 8 * u64::from(SIZE));
        self.available[ring].wrapping_sub(event) == 1
    }

    /// Notifies the back end that entries are available.
    ///
    /// # Errors
    /// Fails if `write(2)` fails.
    pub fn kick(&self, ring: usize) -> io::Result<()> {
        rustix::io::write(&self.kicks[ring], &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Makes the file descriptors that are shared with the back end blocking, as any program that holds them can.
    ///
    /// # Errors
    /// Fails if `fcntl(2)` fails.
    pub fn let_wait(&self) -> io::Result<()> {
        let kicks = self.kicks.iter().map(AsFd::as_fd);
        kicks.chain(self.calls.iter().map(AsFd::as_fd)).try_for_each(let_wait)
    }

    /// Fills the driver's notification counter, so that a blocking write to it would wait.
    ///
    /// # Errors
    /// Fails if `write(2)` fails.
    pub fn fill_call(&mut self, ring: usize) -> io::Result<()> {
        self.calls[ring].write_all(&(u64::MAX - 1).to_ne_bytes())
    }

    /// Returns the number of interrupts for a ring since this method was last called.
    pub fn calls(&mut self, ring: usize) -> u64 {
        let mut count = [0; 8];
        self.calls[ring].read(&mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// Requests an interrupt for the next used entry.
    pub fn want_calls(&mut self, ring: usize) {
        let [_, available, _] = rings(ring).map(|at| GUEST + at);
        if self.is_packed() {
            return self.write(available, &self.packed[ring].wanted());
        }
        let used = self.used[ring].to_le_bytes();
        self.write(available + 4 + 2 * u64::from(SIZE), &used);
    }

    /// Returns the number of frames that the back end received.
    #[must_use]
    pub fn taken(&self) -> u16 {
        self.count_used(2 * self.pair + FROM_GUEST)
    }

    /// Returns the next frame that the guest received, including its header.
    pub fn received(&mut self) -> Option<Vec<u8>> {
        let ring = 2 * self.pair + TO_GUEST;
        let (mut frame, mut left) = (Vec::new(), 1);
        while left > 0 {
            let Some((at, bytes)) = self.returned(ring) else {
                assert!(frame.is_empty(), "an incomplete frame");
                return None;
            };
            let part = self.read(at, bytes);
            if frame.is_empty() && self.header_bytes >= 12 && part.len() >= 12 {
                left = usize::from(u16::from_le_bytes([part[10], part[11]])).max(1);
            }
            frame.extend(part);
            left -= 1;
        }
        Some(frame)
    }

    /// Returns the address of the next used entry's buffer, and the number of bytes written to it.
    fn returned(&mut self, ring: usize) -> Option<(u64, usize)> {
        if self.is_packed() {
            let (slot, bytes) = self.returned_packed(ring)?;
            return Some((slot_at(ring, slot.into()), bytes));
        }
        let [table, _, used] = rings(ring).map(|at| GUEST + at);
        if self.number(used + 2) == self.used[ring] {
            return None;
        }
        let entry = self.read(used + 4 + 8 * u64::from(self.used[ring] % SIZE), 8);
        let long = |at: usize| u32::from_le_bytes(*entry[at..].first_chunk().expect("4 bytes"));
        let (head, bytes) = (long(0), long(4) as usize);
        self.used[ring] = self.used[ring].wrapping_add(1);
        let first = self.read(table + 16 * u64::from(head), 16);
        let at = u64::from_le_bytes(*first.first_chunk().expect("8 bytes"));
        // The pieces of a buffer are contiguous in memory, whether a table or the ring lists them.
        Some((if first[12] & 4 == 0 { at } else { at - DATA_BYTES }, bytes))
    }

    /// Returns the file that backs the memory.
    #[must_use]
    pub fn memory(&self) -> &File {
        &self.memory
    }

    /// Truncates the memory file while the back end has it mapped.
    ///
    /// # Errors
    /// Fails if `ftruncate(2)` fails.
    pub fn lose_memory(&self) -> io::Result<()> {
        self.memory.set_len(0)
    }

    /// Writes to a guest address.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        for (i, byte_range) in pieces(at, bytes.len()) {
            self.memory.write_all_at(&bytes[byte_range], i).expect("memory of the guest");
        }
    }

    /// Reads from a guest address.
    #[must_use]
    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        for (i, byte_range) in pieces(at, bytes) {
            self.memory.read_exact_at(&mut read[byte_range], i).expect("memory of the guest");
        }
        read
    }

    /// Processes the used entries of a ring of frames from the guest.
    fn reclaim(&mut self, ring: usize) {
        if ring % 2 != FROM_GUEST {
            return;
        }
        if self.is_packed() {
            // Each call counts the entry that it returns. If a separate pass counted the entries, an entry returned in
            // between would be counted twice.
            while self.returned_packed(ring).is_some() {}
        } else {
            self.used[ring] = self.count_used(ring);
        }
    }

    /// Returns whether the rings are packed.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.chosen & PACKED != 0
    }

    fn count_used(&self, ring: usize) -> u16 {
        if self.is_packed() {
            return self.count_packed(ring);
        }
        let [_, _, used] = rings(ring).map(|at| GUEST + at);
        self.number(used + 2)
    }

    fn number(&self, at: u64) -> u16 {
        u16::from_le_bytes(*self.read(at, 2).first_chunk().expect("2 bytes"))
    }
}

/// Makes a file descriptor blocking for all processes that hold it.
///
/// # Errors
/// Fails if `fcntl(2)` fails.
pub fn let_wait(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(file, OFlags::empty())?)
}

/// Creates a counter that each read decrements by one, and that is large enough never to reach zero.
///
/// # Errors
/// Fails if `eventfd(2)` fails.
pub fn semaphore() -> io::Result<File> {
    Ok(eventfd(1 << 30, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?.into())
}

/// Creates a sparse in-memory file with this many bytes.
///
/// # Errors
/// Fails if `memfd_create(2)` or `ftruncate(2)` fails.
pub fn sparse(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    Ok(file)
}

/// Encodes a descriptor: address, length, flags and the index of the next descriptor.
#[must_use]
pub fn descriptor((address, bytes, flags, next): (u64, u32, u16, u16)) -> Vec<u8> {
    let mut words = address.to_le_bytes().to_vec();
    words.extend(bytes.to_le_bytes());
    words.extend([flags, next].iter().flat_map(|word| word.to_le_bytes()));
    words
}

/// Returns the memory regions, each with its guest address, length, process address and file offset.
#[must_use]
pub fn regions() -> [[u64; 4]; 2] {
    let half = MEMORY_BYTES / 2;
    // The first half of the guest's memory is the second half of the file, and vice versa.
    [[GUEST, half, USER[0], half], [GUEST + half, half, USER[1], 0]]
}

/// Returns the offsets in memory of a ring's three parts: the descriptor table, the available entries and the used
/// entries.
#[must_use]
pub fn rings(ring: usize) -> [u64; 3] {
    let start = ring as u64 * RING_BYTES;
    [start, start + 0x4000, start + 0x6000]
}

/// Returns the guest address of an entry's buffer. Some buffers span both regions.
#[must_use]
pub fn slot_at(ring: usize, slot: u64) -> u64 {
    GUEST + RINGS_MAX * RING_BYTES + (slot * RINGS_MAX + ring as u64) * SLOT_BYTES
}

/// Returns the file offsets of the bytes at a guest address.
fn pieces(at: u64, bytes: usize) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> {
    let half = MEMORY_BYTES / 2;
    let from = at - GUEST;
    let first = (half.saturating_sub(from) as usize).min(bytes);
    let places =
        [(half + from, 0..first), ((from + first as u64).wrapping_sub(half), first..bytes)];
    places.into_iter().filter(|(_, range)| !range.is_empty())
}

/// First address of the guest's memory.
pub const GUEST: u64 = 0x4000_0000;
/// Process addresses of the two regions, which are in reverse order there.
const USER: [u64; 2] = [0x7f12_0000_0000, 0x7f01_0000_0000];
/// Size of the guest's memory.
pub const MEMORY_BYTES: u64 = 32 << 20;
/// Maximum number of ring pairs of a front end.
pub const PAIRS_MAX: usize = 2;
const RINGS_MAX: u64 = 2 * PAIRS_MAX as u64;
/// Number of entries in a ring.
pub const SIZE: u16 = 256;
/// Size in bytes of the memory for one ring.
const RING_BYTES: u64 = 0x8000;
/// Maximum number of outstanding entries.
pub const SLOTS: u16 = 64;
/// Maximum number of descriptors that an entry uses in the ring.
pub const PIECES_MAX: usize = 4;
/// Size of an entry's memory: a superframe, followed by a descriptor table.
const SLOT_BYTES: u64 = DATA_BYTES + 0x1000;
/// Size of the superframe in an entry's memory.
const DATA_BYTES: u64 = 0x1_1000;
/// Maximum time to wait for a reply.
pub const STALLED: Duration = Duration::from_secs(20);
