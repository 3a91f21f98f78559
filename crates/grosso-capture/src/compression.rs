//! Decompression of input while it is read, so that uncompressed, gzip and zstd input look the same to the reader.
//!
//! The first bytes determine the compression; the file name does not matter. The input may consist of several gzip
//! members or Zstandard frames, as written by parallel compressors.

#[cfg(any(feature = "gzip", feature = "zstd"))]
use std::io::BufReader;
use std::io::{self, Read};

#[cfg(feature = "gzip")]
use flate2::bufread::MultiGzDecoder;

use super::error::{CONVERT, CaptureError};
#[cfg(feature = "zstd")]
use super::zstd::ZstdReader;

/// Compression of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip, with one or more members.
    Gzip,
    /// Zstandard, with one or more frames.
    Zstd,
}

impl Compression {
    /// Detects the compression from the magic number at the start of a file.
    ///
    /// # Errors
    /// Returns `UnsupportedFormat` for compressions that are recognized but not supported.
    fn detect(bytes: &[u8]) -> Result<Self, CaptureError> {
        let unsupported =
            |what: &str, remedy| Err(CaptureError::UnsupportedFormat { what: what.into(), remedy });
        match bytes {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            // Magic number of a frame or a skippable frame (RFC 8878 sections 3.1.1 and 3.1.2).
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => unsupported("lz4 compression", CONVERT),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => {
                unsupported("xz compression", "decompress it with xz -d")
            }
            [b'B', b'Z', b'h', b'0'..=b'9', ..] => {
                unsupported("bzip2 compression", "decompress it with bzip2 -d")
            }
            _ => Ok(Self::None),
        }
    }

    /// Returns the name of the compression format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Reader that decompresses a source.
#[derive(Debug)]
pub(crate) enum Decompressor<R> {
    Plain(CountingReader<R>),
    #[cfg(feature = "gzip")]
    Gzip(Box<MultiGzDecoder<BufReader<CountingReader<R>>>>),
    #[cfg(feature = "zstd")]
    Zstd(Box<ZstdReader<BufReader<CountingReader<R>>>>),
}

impl<R: Read> Decompressor<R> {
    /// Detects the compression of `reader`. Errors contain `path` as the file name.
    ///
    /// # Errors
    /// Returns `Io` if reading fails, or `UnsupportedFormat` if the compression is not supported.
    pub(crate) fn new(reader: R, path: &str) -> Result<Self, CaptureError> {
        let mut source = CountingReader::new(reader);
        source.fill_prefix().map_err(|source| CaptureError::Io { path: path.into(), source })?;
        let compression = Compression::detect(source.prefix())?;
        #[cfg(any(feature = "gzip", feature = "zstd"))]
        let buffered = |source| BufReader::with_capacity(COMPRESSED_BUFFER_BYTES, source);
        Ok(match compression {
            Compression::None => Self::Plain(source),
            #[cfg(feature = "gzip")]
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(buffered(source)))),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Self::Zstd(Box::new(ZstdReader::new(buffered(source)))),
            #[cfg(not(all(feature = "gzip", feature = "zstd")))]
            other => {
                let what = format!("{} compression (not included in this build)", other.name());
                return Err(CaptureError::UnsupportedFormat { what, remedy: CONVERT });
            }
        })
    }

    pub(crate) const fn compression(&self) -> Compression {
        match self {
            Self::Plain(_) => Compression::None,
            #[cfg(feature = "gzip")]
            Self::Gzip(_) => Compression::Gzip,
            #[cfg(feature = "zstd")]
            Self::Zstd(_) => Compression::Zstd,
        }
    }

    pub(crate) fn source(&self) -> &CountingReader<R> {
        match self {
            Self::Plain(source) => source,
            #[cfg(feature = "gzip")]
            Self::Gzip(reader) => reader.get_ref().get_ref(),
            #[cfg(feature = "zstd")]
            Self::Zstd(reader) => reader.source().get_ref(),
        }
    }
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            #[cfg(feature = "gzip")]
            Self::Gzip(reader) => reader.read(buffer),
            #[cfg(feature = "zstd")]
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// Reader of the source file. It counts the bytes read and records whether a read failed.
#[derive(Debug)]
pub(crate) struct CountingReader<R> {
    pub(crate) reader: R,
    /// First bytes of the file, which were read to detect the compression. The decompressor reads them from here.
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    prefix_taken: usize,
    /// Number of bytes read from the file so far.
    pub(crate) bytes: u64,
    /// Whether reading the file itself failed, as opposed to decompressing its content.
    pub(crate) failed: bool,
}

impl<R: Read> CountingReader<R> {
    fn new(reader: R) -> Self {
        let prefix = [0; PREFIX_BYTES];
        Self { reader, prefix, prefix_len: 0, prefix_taken: 0, bytes: 0, failed: false }
    }

    /// Reads until the prefix is full or the file ends. This may take several reads, because a pipe may return one byte
    /// at a time.
    fn fill_prefix(&mut self) -> io::Result<()> {
        while self.prefix_len < PREFIX_BYTES {
            let room = &mut self.prefix[self.prefix_len..];
            match self.reader.read(room) {
                Ok(0) => break,
                Ok(read) => self.prefix_len += read.min(room.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes = self.prefix_len as u64;
        Ok(())
    }

    fn prefix(&self) -> &[u8] {
        &self.prefix[..self.prefix_len]
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.prefix_taken < self.prefix_len {
            let rest = &self.prefix[self.prefix_taken..self.prefix_len];
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            self.prefix_taken += length;
            return Ok(length);
        }
        loop {
            match self.reader.read(buffer) {
                Ok(read) => {
                    self.bytes += read as u64;
                    return Ok(read);
                }
                // A decompressor may be unable to resume after an interrupted read, so the read is repeated here.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
    }
}

/// Length of the longest magic number, in bytes.
const PREFIX_BYTES: usize = 5;

/// Number of compressed bytes per read, large enough to make the cost of system calls negligible.
#[cfg(any(feature = "gzip", feature = "zstd"))]
const COMPRESSED_BUFFER_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_are_handed_out_again_however_few_are_asked_for() {
        let mut reader = Decompressor::new(&b"more than a prefix"[..], "input").unwrap();
        let mut found = Vec::new();
        let mut buffer = [0; 2];
        while let read @ 1.. = reader.read(&mut buffer).unwrap() {
            found.extend_from_slice(&buffer[..read]);
        }
        assert_eq!(found, b"more than a prefix");
        assert_eq!(reader.source().bytes, 18);
    }
}
