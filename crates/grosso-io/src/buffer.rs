//! Buffers that hold received frames, and lists of spare buffers for reuse.

use core::{fmt::Debug, ops::Range};
use std::sync::Arc;

#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
use grosso_sys::packet::RingFrame;
#[cfg(all(target_os = "linux", feature = "xdp"))]
use grosso_sys::xdp;

/// A received frame in a port's buffer.
///
/// All ports use this type, so that the code of a data path is compiled once, not once per combination of ports and
/// stages.
#[derive(Debug)]
pub struct PortBuffer {
    memory: Memory,
    /// Range of the frame within the memory. The bounds have 32 bits to keep buffers small, because paths move them
    /// between lists.
    start: u32,
    end: u32,
}

/// Memory that holds a frame. The variant determines who reuses the memory.
#[derive(Debug)]
enum Memory {
    /// Memory that a port allocated and will reuse.
    Own(Vec<u8>),
    /// Memory that a stage around the port allocated. The port does not reuse it.
    Made(Vec<u8>),
    /// Memory that several buffers share and that is not reused.
    Shared(Arc<dyn SharedMemory>),
    /// A slot in the ring of a packet socket.
    #[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
    Ring(RingFrame),
    /// A chunk of an AF_XDP socket.
    #[cfg(all(target_os = "linux", feature = "xdp"))]
    Chunk(xdp::Frame),
}

/// Memory that several buffers may share.
trait SharedMemory: AsRef<[u8]> + Debug + Send + Sync {}

impl<M: AsRef<[u8]> + Debug + Send + Sync> SharedMemory for M {}

impl PortBuffer {
    #[inline]
    fn new(memory: Memory, frame: Range<usize>) -> Self {
        Self { memory, start: bound(frame.start), end: bound(frame.end) }
    }

    #[inline]
    fn frame(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Creates a buffer from owned memory; `frame` is the range of the frame. A range beyond the end gives an empty
    /// frame.
    #[must_use]
    pub fn filled(bytes: Vec<u8>, frame: Range<usize>) -> Self {
        Self::new(Memory::Own(bytes), frame)
    }

    /// Creates a buffer from shared memory; `frame` is the range of the frame. A range beyond the end gives an empty
    /// frame.
    #[must_use]
    pub fn shared<M>(memory: Arc<M>, frame: Range<usize>) -> Self
    where
        M: AsRef<[u8]> + Debug + Send + Sync + 'static,
    {
        Self::new(Memory::Shared(memory), frame)
    }

    /// Creates a buffer from a stage's memory; `frame` is the range of the frame.
    pub(crate) fn made(bytes: Vec<u8>, frame: Range<usize>) -> Self {
        Self::new(Memory::Made(bytes), frame)
    }

    /// Creates a buffer from a stage's memory, which contains only the frame.
    pub(crate) fn made_whole(bytes: Vec<u8>) -> Self {
        let frame = 0..bytes.len();
        Self::made(bytes, frame)
    }

    /// Shortens the frame to the range `part` of its bytes.
    pub(crate) fn part(mut self, part: Range<usize>) -> Self {
        let frame = self.frame();
        debug_assert!(part.start <= part.end && part.end <= frame.len());
        self.start = bound(frame.start + part.start);
        self.end = bound(frame.start + part.end);
        self
    }

    /// Returns the bytes before the frame in the same memory, which may hold out-of-band data.
    #[must_use]
    pub fn before(&self) -> &[u8] {
        self.bytes().get(..self.start as usize).unwrap_or_default()
    }

    /// Returns the memory for reuse if the buffer owns it. Slots and chunks return to their rings when the buffer is
    /// dropped.
    #[must_use]
    pub fn into_own(self) -> Option<Vec<u8>> {
        match self.memory {
            Memory::Own(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns whether the memory returns to its ring when the buffer is dropped, so that no port has to be notified.
    #[inline]
    pub(crate) fn returns_when_dropped(&self) -> bool {
        match &self.memory {
            Memory::Own(_) | Memory::Made(_) => false,
            Memory::Shared(_) => true,
            #[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
            Memory::Ring(_) => true,
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            Memory::Chunk(_) => true,
        }
    }

    /// Returns all readable bytes of the memory.
    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(bytes) | Memory::Made(bytes) => bytes,
            Memory::Shared(memory) => (**memory).as_ref(),
            #[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
            Memory::Ring(slot) => slot.as_ref(),
            #[cfg(all(target_os = "linux", feature = "xdp"))]
            Memory::Chunk(chunk) => chunk.as_ref(),
        }
    }
}

/// Creates a buffer whose frame fills the memory.
impl From<Vec<u8>> for PortBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        let frame = 0..bytes.len();
        Self::filled(bytes, frame)
    }
}

#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
impl From<RingFrame> for PortBuffer {
    fn from(slot: RingFrame) -> Self {
        let frame = 0..slot.as_ref().len();
        Self::new(Memory::Ring(slot), frame)
    }
}

#[cfg(all(target_os = "linux", feature = "xdp"))]
impl From<xdp::Frame> for PortBuffer {
    fn from(chunk: xdp::Frame) -> Self {
        let frame = 0..chunk.as_ref().len();
        Self::new(Memory::Chunk(chunk), frame)
    }
}

impl AsRef<[u8]> for PortBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes().get(self.frame()).unwrap_or_default()
    }
}

/// A value of up to this size is moved without a call to `memcpy`.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<grosso::Frame<PortBuffer>>() <= 128);

/// Converts a frame bound to 32 bits. No port has frames longer than 4 GiB, so a larger bound is replaced by the
/// maximum.
#[inline]
fn bound(at: usize) -> u32 {
    debug_assert!(u32::try_from(at).is_ok(), "a frame of {at} bytes");
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Spare buffers of a port, all of the same size.
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
#[derive(Debug)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

/// Maximum number of spare buffers per port. Only a burst leaves more than this unused.
#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
const SPARE_MAX: usize = 1024;

#[cfg(all(any(target_os = "linux", target_os = "android"), feature = "live"))]
impl Buffers {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { spare: Vec::new(), bytes }
    }

    /// Returns a buffer of at least the configured size, to be filled.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.bytes])
    }

    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    /// Takes back one of this port's buffers for reuse.
    pub(crate) fn recycle(&mut self, buffer: PortBuffer) {
        if let Some(bytes) = buffer.into_own() {
            self.put_back(bytes);
        }
    }
}

/// Spare buffers of a stage, for the frames that it creates.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: Vec<Vec<u8>>,
}

/// Maximum number of spare buffers per stage: the number of frames that a path receives in one poll. Buffers for 64 KiB
/// datagrams therefore take at most 4 MiB.
const SPARE_BUFFERS_MAX: usize = 64;

impl Spare {
    /// Returns an empty buffer, reusing a spare one if possible.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(crate) fn put_back(&mut self, mut bytes: Vec<u8>) {
        if self.buffers.len() < SPARE_BUFFERS_MAX {
            bytes.clear();
            self.buffers.push(bytes);
        }
    }

    /// Keeps a buffer that a stage created. Returns any other buffer, because it belongs to the inner port.
    ///
    /// With two nested stages, the outer stage keeps the buffers of both until it has enough; all further buffers go to
    /// the inner stage.
    pub(crate) fn give(&mut self, buffer: PortBuffer) -> Option<PortBuffer> {
        if self.buffers.len() >= SPARE_BUFFERS_MAX {
            return Some(buffer);
        }
        match buffer.memory {
            Memory::Made(bytes) => {
                self.put_back(bytes);
                None
            }
            memory => Some(PortBuffer { memory, ..buffer }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_is_counted_from_the_part() {
        let buffer = PortBuffer::filled((0..100).collect(), 10..90).part(5..40).part(1..3);
        assert_eq!(buffer.as_ref(), [16, 17]);
        assert_eq!(
            buffer.into_own().map(|bytes| bytes.len()),
            Some(100),
            "the whole memory is returned"
        );
        assert_eq!(
            PortBuffer::filled(vec![1; 4], 2..9).as_ref(),
            [0; 0],
            "a range beyond the end is empty"
        );
    }

    #[test]
    fn shared_memory_is_not_taken_and_bytes_before_a_frame_are_readable() {
        let memory = Arc::new((0..100).collect::<Vec<u8>>());
        let [one, two] = [8..20, 8..9].map(|frame| PortBuffer::shared(Arc::clone(&memory), frame));
        assert_eq!((one.as_ref(), two.as_ref()), (&memory[8..20], &[8][..]));
        assert_eq!((one.before(), two.part(1..1).before()), (&memory[..8], &memory[..9]));
        assert!(Spare::default().give(one).unwrap().into_own().is_none());
        assert_eq!(Arc::strong_count(&memory), 1);
        assert_eq!(PortBuffer::from(vec![1; 4]).before(), [0; 0]);
    }

    #[test]
    fn memory_of_a_stage_is_no_port_s_and_memory_of_a_port_no_stage_s() {
        let mut spare = Spare::default();
        let own = spare.give(PortBuffer::from(vec![1; 9])).unwrap();
        assert_eq!((own.as_ref(), spare.take().capacity()), (&[1; 9][..], 0));
        assert!(own.into_own().is_some());
        assert!(PortBuffer::made_whole(vec![2; 9]).into_own().is_none());
    }

    #[test]
    fn a_stage_that_has_enough_leaves_memory_to_the_one_behind_it() {
        let (mut outer, mut inner) = (Spare::default(), Spare::default());
        for place in 0..2 * SPARE_BUFFERS_MAX {
            let left = outer.give(PortBuffer::made_whole(vec![0; 100]));
            assert_eq!(left.is_some(), place >= SPARE_BUFFERS_MAX);
            assert!(left.and_then(|buffer| inner.give(buffer)).is_none());
        }
        assert!(outer.give(PortBuffer::made_whole(Vec::new())).is_some());
        assert!(inner.give(PortBuffer::made_whole(Vec::new())).is_some());
        assert!(outer.take().capacity() >= 100 && inner.take().capacity() >= 100);
    }
}
