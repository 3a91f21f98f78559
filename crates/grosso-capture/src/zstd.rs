//! A sequence of Zstandard frames as one stream of bytes.

use std::fmt;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Decompresses every frame of a source and skips skippable frames (RFC 8878 section 3.1).
///
/// Memory is bounded by the window that a frame declares: at most 128 MiB, as in zstd itself.
/// Compressors use 8 MiB or less by default.
pub(crate) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    state: FrameState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    BetweenFrames,
    InFrame,
    /// The source ended inside a frame; its decoded bytes have yet to be handed out.
    EndedInFrame,
}

impl<R: BufRead> ZstdReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), state: FrameState::BetweenFrames }
    }

    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// Begins the next frame; `false` when there is none.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
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

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        if skipped < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Decodes until there are bytes to hand out or the frame ends.
    fn decode(&mut self) -> io::Result<()> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let one_block = BlockDecodingStrategy::UptoBlocks(1);
            if let Err(error) = self.decoder.decode_blocks(&mut self.source, one_block) {
                let error = self.error(error);
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    return Err(error);
                }
                // The decoder withholds a window of decoded bytes until the frame ends.
                // An empty last block ends it, so that no complete packet is lost.
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

    /// The decoder's error, or `UnexpectedEof` when it failed at the end of the source.
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

/// An empty raw block marked as the last, and a content checksum that is not checked.
const END_OF_FRAME: &[u8] = &[1, 0, 0, 0, 0, 0, 0];
