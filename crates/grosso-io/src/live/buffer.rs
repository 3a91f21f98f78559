//! Buffers of received frames, and the store of spare ones.

use grosso_sys::packet::RingFrame;
#[cfg(feature = "xdp")]
use grosso_sys::xdp;

/// Buffer of a frame of a port that is chosen at run time, or of a tunnel's sockets: one type, so
/// that the data paths between them are compiled once.
#[derive(Debug)]
#[non_exhaustive]
pub enum PortBuffer {
    /// Memory of this process.
    Own(LiveBuffer),
    /// A slot of a packet socket's ring.
    Ring(RingFrame),
    /// A chunk of an AF_XDP socket.
    #[cfg(feature = "xdp")]
    Chunk(xdp::Frame),
}

impl AsRef<[u8]> for PortBuffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer.as_ref(),
            Self::Ring(frame) => frame.as_ref(),
            #[cfg(feature = "xdp")]
            Self::Chunk(frame) => frame.as_ref(),
        }
    }
}

/// A frame in a buffer with room for the longest frame.
#[derive(Debug)]
pub struct LiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl LiveBuffer {
    /// The memory, for another frame.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl From<Vec<u8>> for LiveBuffer {
    /// A frame that fills its buffer.
    fn from(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        filled(bytes, 0, end)
    }
}

impl AsRef<[u8]> for LiveBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }
}

/// Spare buffers of one size.
#[derive(Debug)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

/// Greatest number of spare buffers. More than this is left over only from a burst.
const SPARE_MAX: usize = 1024;

impl Buffers {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { spare: Vec::new(), bytes }
    }

    /// A buffer to fill, of at least the configured size.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.bytes])
    }

    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    pub(crate) fn recycle(&mut self, buffer: LiveBuffer) {
        self.put_back(buffer.bytes);
    }

    /// Takes back a buffer of these; slots and chunks return to their rings when dropped.
    pub(crate) fn recycle_own(&mut self, buffer: PortBuffer) {
        if let PortBuffer::Own(buffer) = buffer {
            self.recycle(buffer);
        }
    }
}

/// Marks the bytes of a filled buffer that are the frame.
pub(crate) fn filled(bytes: Vec<u8>, start: usize, end: usize) -> LiveBuffer {
    LiveBuffer { bytes, start, end }
}
