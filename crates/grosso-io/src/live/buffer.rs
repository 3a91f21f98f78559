//! Buffers of received frames, and the store of spare ones.

/// A frame in a buffer with room for the longest frame.
#[derive(Debug)]
pub struct LiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
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
}

/// Marks the bytes of a filled buffer that are the frame.
pub(crate) fn filled(bytes: Vec<u8>, start: usize, end: usize) -> LiveBuffer {
    LiveBuffer { bytes, start, end }
}
