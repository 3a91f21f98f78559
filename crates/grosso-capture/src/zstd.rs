//! Reading of consecutive Zstandard frames as one stream of bytes.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, DEFAULT_MAX_WINDOW_SIZE, FrameDecoder};

use super::error::{NoWindowMemory, WINDOWS_BYTES_MAX};

/// Reader that decompresses all frames of a source, ignoring skippable frames (RFC 8878 section 3.1).
///
/// Memory is bounded by the window that a frame declares: at most 128 MiB, as in zstd itself, and at most
/// [`WINDOWS_BYTES_MAX`] for all readers in the process together. Compressors use 8 MiB or less by default.
pub(crate) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    state: FrameState,
    window: WindowMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    BetweenFrames,
    InFrame,
    /// The source ended inside a frame. Some decoded bytes have not been returned yet.
    EndedInFrame,
}

impl<R: BufRead> ZstdReader<R> {
    pub(crate) fn new(source: R) -> Self {
        let (decoder, state) = (FrameDecoder::new(), FrameState::BetweenFrames);
        Self { source, decoder, state, window: WindowMemory::default() }
    }

    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// Begins the next frame. Returns `false` if there is none.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                self.release();
                return Ok(false);
            }
            let header = FrameHeader::read(&mut self.source)?;
            if let Some(bytes) = header.window_bytes() {
                self.reserve(bytes)?;
            }
            match self.decoder.reset(header.bytes().chain(&mut self.source)) {
                Ok(()) => {
                    self.state = FrameState::InFrame;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(u64::from(length))?,
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Reserves memory for a window. The decoder reuses the last frame's window, so a new reservation is needed only
    /// for a longer one.
    fn reserve(&mut self, window_bytes: u64) -> io::Result<()> {
        // The decoder allocates powers of two, and refuses windows that are too long.
        let bytes = window_bytes.min(DEFAULT_MAX_WINDOW_SIZE).next_power_of_two();
        if bytes > self.window.bytes {
            self.release();
            self.window = WindowMemory::take(bytes)?;
        }
        Ok(())
    }

    /// Releases the memory of the window.
    fn release(&mut self) {
        self.decoder = FrameDecoder::new();
        self.window = WindowMemory::default();
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Decodes until bytes are available or the frame ends.
    fn decode(&mut self) -> io::Result<()> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let one_block = BlockDecodingStrategy::UptoBlocks(1);
            if let Err(error) = self.decoder.decode_blocks(&mut self.source, one_block) {
                let error = self.error(error);
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    return Err(error);
                }
                // The decoder withholds one window of decoded bytes until the frame ends. An empty last block ends the
                // frame, so that no complete packet is lost.
                self.decoder
                    .decode_blocks(END_OF_FRAME, BlockDecodingStrategy::All)
                    .map_err(io::Error::other)?;
                self.state = FrameState::EndedInFrame;
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        let ended = self.state;
        self.state = FrameState::BetweenFrames;
        if ended == FrameState::EndedInFrame {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.decoder.get_checksum_from_data() {
            Some(sum) if Some(sum) != self.decoder.get_calculated_checksum() => {
                Err(io::Error::other("wrong content checksum"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the decoder's error, or `UnexpectedEof` if it occurred at the end of the source.
    fn error(&mut self, error: FrameDecoderError) -> io::Error {
        match self.source.fill_buf() {
            Ok([]) => io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => io::Error::other(error),
            Err(error) => error,
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.state == FrameState::BetweenFrames && !self.begin_frame()? {
                return Ok(0);
            }
            self.decode()?;
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.end_frame()?;
        }
    }
}

impl<R> fmt::Debug for ZstdReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdReader").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Header of a frame (RFC 8878 section 3.1.1.1), or the magic number of a skippable frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

impl FrameHeader {
    /// Reads the header of a frame, or the available part of it.
    fn read(source: &mut impl Read) -> io::Result<Self> {
        let mut header = Self { bytes: [0; HEADER_BYTES_MAX], len: 0 };
        header.read_to(MAGIC.len(), source)?;
        if header.bytes() != MAGIC {
            return Ok(header);
        }
        header.read_to(MAGIC.len() + 1, source)?;
        let rest = header.descriptor().map_or(0, |descriptor| {
            usize::from(!descriptor.is_single_segment()) + descriptor.field_bytes()
        });
        header.read_to(header.len + rest, source)?;
        Ok(header)
    }

    fn read_to(&mut self, len: usize, source: &mut impl Read) -> io::Result<()> {
        while self.len < len {
            match source.read(&mut self.bytes[self.len..len]) {
                Ok(0) => break,
                Ok(read) => self.len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.bytes().get(MAGIC.len()).copied().map(Descriptor)
    }

    /// Returns the size of the window in bytes, or `None` for a skippable frame or an incomplete header.
    fn window_bytes(&self) -> Option<u64> {
        let descriptor = self.descriptor()?;
        let fields = &self.bytes()[MAGIC.len() + 1..];
        if !descriptor.is_single_segment() {
            let byte = *fields.first()?;
            let base = 1_u64 << (10 + (byte >> 3));
            return Some(base + base / 8 * u64::from(byte & 7));
        }
        let content = fields.get(descriptor.dictionary_bytes()..descriptor.field_bytes())?;
        let mut number = [0; 8];
        number[..content.len()].copy_from_slice(content);
        // A two-byte content size is stored as the size minus 256.
        let offset = if content.len() == 2 { 256 } else { 0 };
        Some(u64::from_le_bytes(number).saturating_add(offset))
    }
}

/// Frame descriptor, which determines which fields the frame header contains.
#[derive(Clone, Copy, Debug)]
struct Descriptor(u8);

impl Descriptor {
    /// Returns whether the frame declares no window, in which case the window is as long as the content.
    fn is_single_segment(self) -> bool {
        self.0 & 0x20 != 0
    }

    fn dictionary_bytes(self) -> usize {
        [0, 1, 2, 4][usize::from(self.0 & 3)]
    }

    /// Returns the length in bytes of the fields after the window descriptor: dictionary ID and content size.
    fn field_bytes(self) -> usize {
        let content = match self.0 >> 6 {
            0 => usize::from(self.is_single_segment()),
            flag => 1 << flag,
        };
        self.dictionary_bytes() + content
    }
}

/// Part of the window memory that is reserved for one decoder.
#[derive(Debug, Default)]
struct WindowMemory {
    bytes: u64,
}

impl WindowMemory {
    /// Reserves memory for a window.
    ///
    /// # Errors
    ///
    /// Returns [`NoWindowMemory`] if the windows of all readers together would exceed [`WINDOWS_BYTES_MAX`].
    fn take(bytes: u64) -> io::Result<Self> {
        let taken = WINDOWS_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= WINDOWS_BYTES_MAX)
        });
        match taken {
            Ok(_) => Ok(Self { bytes }),
            Err(used) => {
                let error = NoWindowMemory { needs: bytes, used };
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, error))
            }
        }
    }
}

impl Drop for WindowMemory {
    fn drop(&mut self) {
        WINDOWS_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Total size in bytes of all windows in the process.
static WINDOWS_BYTES: AtomicU64 = AtomicU64::new(0);
/// Magic number of a frame.
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Length of the longest frame header in bytes.
const HEADER_BYTES_MAX: usize = 18;
/// Empty raw block that is marked as the last, followed by a content checksum that is not verified.
const END_OF_FRAME: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with this descriptor, these header fields, and one raw block.
    fn frame(descriptor: u8, fields: &[u8], content: &[u8]) -> Vec<u8> {
        let block = ((content.len() as u32) << 3 | 1).to_le_bytes();
        [MAGIC, &[descriptor], fields, &block[..3], content].concat()
    }

    fn decompressed(reader: &mut ZstdReader<&[u8]>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn the_window_is_the_declared_one_or_the_content() {
        for (descriptor, fields, expected) in [
            (0x00, &[0x00][..], 1024),
            (0x00, &[0x59], 2 << 20 | 256 << 10),
            (0x00, &[0x88], 128 << 20),
            (0x20, &[7], 7),
            (0x60, &[1, 1], 257 + 256),
            (0xa0, &[0, 0, 1, 0], 1 << 16),
            (0xe0, &[0, 0, 1, 0, 0, 0, 0, 0], 1 << 16),
            (0x23, &[9, 9, 9, 9, 5], 5),
        ] {
            let bytes = frame(descriptor, fields, b"content");
            let header = FrameHeader::read(&mut &bytes[..]).unwrap();
            assert_eq!(header.bytes(), &bytes[..5 + fields.len()], "{descriptor:#x}");
            assert_eq!(header.window_bytes(), Some(expected), "{descriptor:#x}");
            for len in 0..header.len {
                let short = FrameHeader::read(&mut &bytes[..len]).unwrap();
                assert_eq!((short.bytes(), short.window_bytes()), (&bytes[..len], None));
            }
        }
    }

    #[test]
    fn windows_of_all_readers_have_a_budget_and_give_it_back_at_the_end() {
        let longest = frame(0x00, &[0x88], b"content");
        let count = WINDOWS_BYTES_MAX / DEFAULT_MAX_WINDOW_SIZE;
        let mut readers: Vec<_> = (0..count).map(|_| ZstdReader::new(&longest[..])).collect();
        for reader in &mut readers {
            assert_eq!(reader.read(&mut [0; 2]).unwrap(), 2);
        }
        let mut one_more = ZstdReader::new(&longest[..]);
        let error = decompressed(&mut one_more).unwrap_err();
        let needs = DEFAULT_MAX_WINDOW_SIZE;
        let expected = NoWindowMemory { needs, used: WINDOWS_BYTES_MAX };
        assert_eq!(error.downcast::<NoWindowMemory>().unwrap(), expected);
        // A reader releases its window at the end of its file.
        assert_eq!(decompressed(&mut readers[0]).unwrap(), b"ntent");
        assert_eq!(decompressed(&mut ZstdReader::new(&longest[..])).unwrap(), b"content");
        drop(readers);
        assert_eq!(WINDOWS_BYTES.load(Ordering::Relaxed), 0);
    }
}
