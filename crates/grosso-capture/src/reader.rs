//! Reading of captures of any size in constant memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::compression::{Compression, Decompressor};
use super::entry::{Block, Entry, Origin, Packet};
use super::error::{CaptureError, FilePart, NoWindowMemory};
use super::format::{Format, Interface, RECORD_BYTES_MAX};
use super::layout::{Layout, Need, Part, Step};
use super::magic::Magic;
use super::metadata::flag;
use super::nflog;
use super::options::{Options, code};
use super::order::ByteOrder;
use super::pcap::{self, FILE_HEADER_BYTES, FileHeader};
use super::pcapng::{self, PcapngDecoder};

/// Name of standard input and output on the command line.
pub(crate) const STANDARD_STREAM: &str = "-";

/// Reader that returns a capture entry by entry, without copying and without allocating per packet.
///
/// Entries borrow the reader's buffer, so each entry must be dropped before the next one is read. After an error or the
/// end of the file, the reader returns no more entries.
///
/// ```no_run
/// use grosso_capture::{CaptureReader, Entry};
///
/// let mut reader = CaptureReader::open("in.pcapng")?;
/// while let Some(entry) = reader.next()? {
///     if let Entry::Packet(packet) = entry {
///         println!("{} bytes at {:?} ns", packet.data.len(), packet.timestamp_ns);
///     }
/// }
/// # Ok::<(), grosso_capture::CaptureError>(())
/// ```
#[derive(Debug)]
pub struct CaptureReader<R> {
    source: Decompressor<R>,
    path: String,
    decoder: Decoder,
    buffer: Buffer,
    packets: u64,
    finished: bool,
}

impl CaptureReader<Input> {
    /// Opens a file, or standard input if `path` is `-`.
    ///
    /// # Errors
    /// Returns the same errors as [`CaptureReader::new`], and `Io` if the file cannot be opened.
    ///
    /// ```no_run
    /// use grosso_capture::CaptureReader;
    ///
    /// let reader = CaptureReader::open("in.pcapng")?;
    /// println!("{:?}", reader.format());
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    #[expect(
        clippy::disallowed_methods,
        reason = "a library opens what its caller names, as the standard library does"
    )]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        if name == STANDARD_STREAM {
            return Self::named(Input(Source::Standard(io::stdin())), "standard input".into());
        }
        match File::open(path) {
            Ok(file) => Self::named(Input(Source::File(file)), name),
            Err(source) => Err(CaptureError::Io { path: name, source }),
        }
    }

    /// Returns the length of the file in bytes before decompression, or `None` if it is not a regular file.
    ///
    /// Together with [`file_bytes`](Self::file_bytes), this can be used for a progress bar.
    #[must_use]
    pub fn file_len(&self) -> Option<u64> {
        let Source::File(file) = &self.source.source().reader.0 else { return None };
        let metadata = file.metadata().ok()?;
        metadata.is_file().then_some(metadata.len())
    }
}

impl<R: Read> CaptureReader<R> {
    /// Reads the file header, which determines the format.
    ///
    /// # Errors
    /// Returns `NotACapture`, `UnsupportedFormat`, `Truncated` inside the file header, or a read error.
    ///
    /// ```
    /// use grosso_capture::{CaptureReader, CaptureWriter, Format, PacketMeta, WriterOptions};
    ///
    /// let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    /// writer.write_packet(&PacketMeta::default(), &[0; 60])?;
    /// let file = writer.finish()?;
    /// let reader = CaptureReader::new(&file[..])?;
    /// assert_eq!(reader.format(), Format::Pcapng);
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        Self::named(reader, "input".into())
    }

    fn named(reader: R, path: String) -> Result<Self, CaptureError> {
        let mut reader = Self {
            source: Decompressor::new(reader, &path)?,
            path,
            decoder: Decoder::Pcapng(PcapngDecoder::new()),
            buffer: Buffer::new(),
            packets: 0,
            finished: false,
        };
        reader.read_file_header()?;
        Ok(reader)
    }

    /// Returns the next packet or block, or `None` at the end of the file.
    ///
    /// # Errors
    /// Returns `Truncated`, `Damaged`, `CompressedTruncated`, `CompressedDamaged`, or a read error, after all entries
    /// before the error have been returned.
    #[expect(clippy::should_implement_trait, reason = "entries borrow the reader")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, CaptureError> {
        if self.finished {
            return Ok(None);
        }
        match self.locate() {
            Ok(Some((bytes, layout))) => Ok(Some(self.entry(bytes, layout))),
            Ok(None) => {
                self.finished = true;
                Ok(None)
            }
            Err(error) => {
                self.finished = true;
                Err(error)
            }
        }
    }

    /// Returns the format of the file.
    #[must_use]
    pub const fn format(&self) -> Format {
        match self.decoder {
            Decoder::Pcap(_) => Format::Pcap,
            Decoder::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Returns the compression of the file.
    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.source.compression()
    }

    /// Returns the byte order of the file, or of the latest section.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        match &self.decoder {
            Decoder::Pcap(header) => header.order,
            Decoder::Pcapng(decoder) => decoder.order,
        }
    }

    /// Returns the interfaces declared so far in the current section. Classic pcap has exactly one.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        match &self.decoder {
            Decoder::Pcap(header) => core::slice::from_ref(&header.interface),
            Decoder::Pcapng(decoder) => &decoder.interfaces,
        }
    }

    /// Returns the number of packets read so far.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the offset of the next record in the uncompressed file, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.buffer.offset
    }

    /// Returns the number of bytes of the file that have been read so far, for example for a progress bar. In a
    /// compressed file, these are compressed bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.source.source().bytes
    }

    /// Returns the size of the record buffer in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer.bytes.len()
    }

    /// Returns the original header of a classic pcap file, or `None` for pcapng.
    pub(crate) fn pcap_header(&self) -> Option<&FileHeader> {
        match &self.decoder {
            Decoder::Pcap(header) => Some(header),
            Decoder::Pcapng(_) => None,
        }
    }

    fn read_file_header(&mut self) -> Result<(), CaptureError> {
        let more = self.fill(FILE_HEADER_BYTES);
        let bytes = self.buffer.unread();
        match Magic::detect(bytes) {
            // A read or decompression error takes precedence, because it may be why the format was not recognized.
            Err(error) => return Err(more.err().unwrap_or(error)),
            Ok(Magic::Pcapng) => return Ok(()),
            Ok(Magic::Pcap { .. }) => {}
        }
        let Some(&raw) = bytes.first_chunk::<FILE_HEADER_BYTES>() else {
            let there = bytes.len() as u64;
            more?;
            let needs = FILE_HEADER_BYTES as u64;
            return Err(CaptureError::Truncated {
                place: FilePart::FileHeader,
                needs,
                there,
                offset: 0,
            });
        };
        self.decoder = Decoder::Pcap(Box::new(FileHeader::parse(raw)?));
        self.buffer.consume(FILE_HEADER_BYTES);
        Ok(())
    }

    /// Finds the next complete record, reading more bytes if necessary.
    #[inline]
    fn locate(&mut self) -> Result<Option<(usize, Layout)>, CaptureError> {
        loop {
            let step = match &mut self.decoder {
                Decoder::Pcap(header) => pcap::step(header, self.buffer.unread()),
                Decoder::Pcapng(decoder) => decoder.step(self.buffer.unread()),
            };
            match step {
                Ok(Step::Record { bytes, layout }) => return Ok(Some((bytes, layout))),
                Ok(Step::Need(need)) => {
                    if !self.read_on(need)? {
                        return Ok(None);
                    }
                }
                Err(what) => {
                    return Err(CaptureError::Damaged { what, offset: self.buffer.offset });
                }
            }
        }
    }

    /// Reads the missing bytes of an incomplete record. Returns `false` if the file ends between records.
    #[cold]
    fn read_on(&mut self, need: Need) -> Result<bool, CaptureError> {
        let more = self.fill(need.bytes);
        let there = self.buffer.unread().len();
        if there >= need.bytes {
            // If reading failed after these bytes, the error is returned once the buffer is empty.
            return Ok(true);
        }
        match more {
            Ok(()) if there == 0 => Ok(false),
            // "The file ends inside a record" is more precise than "the compressed data ends early".
            Err(CaptureError::CompressedTruncated { .. }) | Ok(()) if there > 0 => {
                Err(self.truncated(need, there))
            }
            Err(error) => Err(error),
            Ok(()) => Ok(false),
        }
    }

    fn truncated(&self, need: Need, there: usize) -> CaptureError {
        let number = self.packets + 1;
        let place = match need.part {
            Part::PacketHeader => FilePart::PacketHeader(number),
            Part::Packet => FilePart::Packet(number),
            Part::BlockHeader => FilePart::BlockHeader,
            Part::Block(kind) => FilePart::Block(kind),
        };
        CaptureError::Truncated {
            place,
            needs: (need.bytes - need.before) as u64,
            there: there.saturating_sub(need.before) as u64,
            offset: self.buffer.offset,
        }
    }

    /// Reads until `bytes` unread bytes are buffered or the file ends. The last read takes as many bytes as it can get.
    fn fill(&mut self, bytes: usize) -> Result<(), CaptureError> {
        self.buffer.make_room(bytes);
        while self.buffer.unread().len() < bytes {
            match self.source.read(self.buffer.room()) {
                Ok(0) => break,
                Ok(read) => self.buffer.end += read,
                Err(error) => return Err(self.read_error(error)),
            }
        }
        Ok(())
    }

    fn read_error(&self, error: io::Error) -> CaptureError {
        let compression = self.source.compression();
        if compression == Compression::None || self.source.source().failed {
            return CaptureError::Io { path: self.path.clone(), source: error };
        }
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<NoWindowMemory>());
        if let Some(error) = inner {
            return (*error).into();
        }
        let offset = self.buffer.offset + self.buffer.unread().len() as u64;
        let compression = compression.name();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return CaptureError::CompressedTruncated { compression, offset };
        }
        CaptureError::CompressedDamaged { compression, detail: error.to_string(), offset }
    }

    #[inline]
    fn entry(&mut self, bytes: usize, layout: Layout) -> Entry<'_> {
        let offset = self.buffer.offset;
        let start = self.buffer.consume(bytes);
        let (format, order) = (self.format(), self.order());
        if let Layout::Block { interface: Some(interface), .. } = &layout {
            let block = &mut self.buffer.bytes[start..start + bytes];
            if interface.fcs_bytes.is_some() {
                pcapng::clear_fcs(block, order);
            }
            if interface.has_nflog {
                pcapng::put_link_type(block, order, nflog::WITHOUT);
            }
        }
        let raw = &self.buffer.bytes[start..start + bytes];
        match layout {
            Layout::Packet(packet) => {
                self.packets += 1;
                let interfaces = match &self.decoder {
                    Decoder::Pcap(header) => core::slice::from_ref(&header.interface),
                    Decoder::Pcapng(decoder) => &decoder.interfaces,
                };
                // The decoder has already refused packets with unknown interfaces.
                let description = &interfaces[packet.interface as usize];
                let options = Options::new(&raw[packet.options.range()], order);
                let fcs = fcs_bytes(&options, description);
                let data = &raw[packet.data.range()];
                let mut original_len = packet.original_len.saturating_sub(fcs);
                // The snapshot length may have cut off all or part of the frame check sequence.
                let end = data.len().saturating_sub(fcs as usize).max(original_len as usize);
                let mut data = data.get(..end).unwrap_or(data);
                if description.has_nflog {
                    (data, original_len) = nflog::packet(order, data, original_len);
                }
                // Writers require an original length no smaller than the captured length.
                let original_len = match fcs {
                    0 => original_len,
                    _ => original_len.max(data.len() as u32),
                };
                Entry::Packet(Packet {
                    data,
                    original_len,
                    timestamp_ns: packet.timestamp_ns,
                    interface: packet.interface,
                    device: packet.interface,
                    description,
                    number: self.packets,
                    origin: Origin { file: 0, number: self.packets, offset },
                    options,
                    raw,
                    format,
                    is_stripped: fcs > 0 || description.has_nflog,
                })
            }
            Layout::Block { kind, interface } => {
                Entry::Block(Block { kind, raw, order, interface })
            }
        }
    }
}

/// Returns the length of a packet's frame check sequence, from the packet's flags or, if they do not contain it, from
/// its interface.
#[inline]
fn fcs_bytes(options: &Options<'_>, description: &Interface) -> u32 {
    let flags = options.find(code::PACKET_FLAGS).and_then(|value| value.first_chunk());
    let flags = flags.map_or(0, |bytes| options.order().u32_from(*bytes));
    match flags & flag::FCS_BYTES {
        0 => u32::from(description.fcs_bytes.unwrap_or(0)),
        own => own >> flag::FCS_BYTES.trailing_zeros(),
    }
}

/// File or standard input.
#[derive(Debug)]
pub struct Input(Source);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::File(file) => file.read(buffer),
            Source::Standard(stdin) => stdin.read(buffer),
        }
    }
}

#[derive(Debug)]
enum Source {
    File(File),
    Standard(io::Stdin),
}

#[derive(Debug)]
enum Decoder {
    Pcap(Box<FileHeader>),
    Pcapng(PcapngDecoder),
}

/// Buffered part of the uncompressed file.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `start` in the uncompressed file.
    offset: u64,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES], start: 0, end: 0, offset: 0 }
    }

    /// Moves the unread bytes to the start of the buffer, and grows it until `bytes` bytes fit.
    fn make_room(&mut self, bytes: usize) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if bytes > self.bytes.len() {
            // Decoders refuse longer records, so memory use is bounded.
            self.bytes.resize(bytes.next_power_of_two().min(RECORD_BYTES_MAX), 0);
        }
    }

    /// Consumes `bytes` bytes and returns their offset in the buffer.
    #[inline]
    fn consume(&mut self, bytes: usize) -> usize {
        let start = self.start;
        self.start += bytes;
        self.offset += bytes as u64;
        start
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    #[inline]
    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

/// Number of bytes per read: 1 MiB, large enough to make the cost of system calls negligible.
const BUFFER_BYTES: usize = 1 << 20;
