//! What a received frame lies in, and the store of those that are not in use.

/// A frame in a buffer that has room for the longest.
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

/// Buffers of one size that wait to be filled.
#[derive(Debug)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

/// Most buffers that are kept; more than a poll and many trains hold is a burst that is over.
const SPARE_MAX: usize = 1024;

impl Buffers {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { spare: Vec::new(), bytes }
    }

    /// A buffer to fill, as long as any.
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

/// The part of a filled buffer that is a frame.
pub(crate) fn filled(bytes: Vec<u8>, start: usize, end: usize) -> LiveBuffer {
    LiveBuffer { bytes, start, end }
}
