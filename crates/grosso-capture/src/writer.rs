//! Writing of captures in which some packets were changed. Everything else is written unchanged.
//!
//! Longer than 600 lines: the writer has one state for pcap and pcapng, and each method depends on the options of
//! earlier blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::entry::{Block, Entry, Packet};
use super::error::{CaptureError, Misfit};
use super::format::{Format, INTERFACES_MAX, Interface, LINK_TYPE_ETHERNET, RECORD_BYTES_MAX};
use super::metadata::PacketMeta;
use super::offload_option;
use super::options::{Options, code, padding, push_end, push_option};
use super::order::ByteOrder;
use super::pcap::{self, FileHeader, RECORD_HEADER_BYTES, RECORD_TIME_BYTES};
use super::pcapng::{self, ENHANCED_PACKET_BYTES, EnhancedPacket, TRAILER_BYTES};
use super::reader::{CaptureReader, STANDARD_STREAM};

/// Options of a [`CaptureWriter`].
///
/// ```
/// use grosso_capture::{Format, WriterOptions};
///
/// let mut options = WriterOptions::new(Format::Pcapng);
/// options.application = "my-tool 1.0".into();
/// ```
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Output format.
    pub format: Format,
    /// Byte order of headers that are not copied from an input.
    pub order: ByteOrder,
    /// Interface of packets for which none was declared or copied.
    pub interface: Interface,
    /// Name of the program in a section header that is not copied from an input.
    pub application: String,
    /// Comments for the first section header, for example the origin of this capture. Classic pcap cannot store them.
    pub comments: Vec<String>,
    /// Minimum snapshot length in bytes in the header of a classic pcap file. If a header copied from another capture
    /// has a smaller one, it is raised to this length, because readers truncate longer packets.
    pub snaplen_min: u32,
    /// Link type of all packets, for copying a capture with a wrong link type. `None` keeps the link types of the
    /// interfaces.
    pub link_type: Option<u16>,
    header: Option<FileHeader>,
}

impl WriterOptions {
    /// Creates options for a new Ethernet capture with nanosecond timestamps.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            order: ByteOrder::NATIVE,
            interface: Interface::new(LINK_TYPE_ETHERNET),
            application: concat!("grosso ", env!("CARGO_PKG_VERSION")).into(),
            comments: Vec::new(),
            snaplen_min: 0,
            link_type: None,
            header: None,
        }
    }

    /// Returns options with the format, byte order and timestamp unit of the capture that `reader` reads.
    #[must_use]
    pub fn like<R: Read>(reader: &CaptureReader<R>) -> Self {
        let mut options = Self { order: reader.order(), ..Self::new(reader.format()) };
        if let Some(header) = reader.pcap_header() {
            options.interface = header.interface;
            options.header = Some(*header);
        }
        options
    }
}

/// Writer that writes a capture entry by entry, in constant memory.
///
/// Pass unchanged entries of a reader to [`copy`](Self::copy), including section headers and interfaces, and changed
/// packets to [`write_packet`](Self::write_packet). A capture is complete after [`finish`](Self::finish).
///
/// ```
/// use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
///
/// let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
/// writer.write_packet(&PacketMeta::default(), &[0; 60])?;
/// let file = writer.finish()?;
/// assert_eq!(file.len(), 24 + 16 + 60);
/// # Ok::<(), grosso_capture::CaptureError>(())
/// ```
#[derive(Debug)]
#[must_use = "a capture is incomplete until `finish` is called"]
pub struct CaptureWriter<W: Write> {
    sink: BufWriter<Counted<W>>,
    path: String,
    options: WriterOptions,
    state: WriterState,
    /// Interfaces of the current section, or those declared by a pcapng input.
    interfaces: Vec<Interface>,
    packets: u64,
    bytes: u64,
    buffered: Buffered,
    damaged_options: u64,
    without_time: u64,
    scratch: Vec<u8>,
}

/// Packets whose bytes may still be in the write buffer.
#[derive(Debug, Default)]
struct Buffered {
    /// End offset of each packet in the capture, in bytes.
    ends: VecDeque<u64>,
    /// Number of earlier packets that the sink has accepted in full.
    before: u64,
    /// Number of bytes that the sink had accepted when `before` was last updated.
    taken: u64,
}

impl Buffered {
    #[inline]
    fn push(&mut self, end: u64, taken: u64) {
        if taken != self.taken {
            self.take(taken);
        }
        self.ends.push_back(end);
    }

    #[cold]
    fn take(&mut self, taken: u64) {
        self.taken = taken;
        while self.ends.front().is_some_and(|end| *end <= taken) {
            self.ends.pop_front();
            self.before += 1;
        }
    }

    /// Returns the number of complete packets in a sink that has accepted `taken` bytes.
    fn whole(&self, taken: u64) -> u64 {
        self.before + self.ends.iter().take_while(|end| **end <= taken).count() as u64
    }
}

/// Sink that counts the bytes that it has accepted.
#[derive(Debug)]
struct Counted<W> {
    sink: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[derive(Debug)]
enum WriterState {
    Unstarted,
    Pcap(Box<FileHeader>),
    Pcapng(ByteOrder),
}

impl CaptureWriter<Output> {
    /// Creates a file, or uses standard output if `path` is `-`.
    ///
    /// An existing file is overwritten; see [`same_file`](super::same_file).
    ///
    /// # Errors
    /// Returns `Io` if the file cannot be created.
    ///
    /// ```no_run
    /// use grosso_capture::{CaptureWriter, Format, WriterOptions};
    ///
    /// let writer = CaptureWriter::create("out.pcapng", WriterOptions::new(Format::Pcapng))?;
    /// writer.finish()?;
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    #[expect(
        clippy::disallowed_methods,
        reason = "a library creates what its caller names, as the standard library does"
    )]
    pub fn create(path: impl AsRef<Path>, options: WriterOptions) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        if name == STANDARD_STREAM {
            return Ok(Self::to_standard_output(options));
        }
        match File::create(path) {
            Ok(file) => Ok(Self::to_file(file, name, options)),
            Err(source) => Err(CaptureError::Io { path: name, source }),
        }
    }

    /// Writes to a file that the caller has opened. Errors contain `name`.
    pub fn to_file(file: File, name: impl Into<String>, options: WriterOptions) -> Self {
        Self::named(Output(Destination::File(file)), name.into(), options)
    }

    /// Writes to standard output.
    pub fn to_standard_output(options: WriterOptions) -> Self {
        let output = Output(Destination::Standard(io::stdout()));
        Self::named(output, "standard output".into(), options)
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Creates a writer for `sink`, which need not be buffered. The file header is written with the first entry.
    pub fn new(sink: W, options: WriterOptions) -> Self {
        Self::named(sink, "output".into(), options)
    }

    fn named(sink: W, path: String, mut options: WriterOptions) -> Self {
        if let Some(link_type) = options.link_type {
            options.interface.link_type = link_type.into();
            options.header = options.header.map(|header| header.with_link_type(link_type));
        }
        Self {
            sink: BufWriter::with_capacity(BUFFER_BYTES, Counted { sink, bytes: 0 }),
            path,
            options,
            state: WriterState::Unstarted,
            interfaces: Vec::new(),
            packets: 0,
            bytes: 0,
            buffered: Buffered::default(),
            damaged_options: 0,
            without_time: 0,
            scratch: Vec::new(),
        }
    }

    /// Declares an interface and returns its index in the current section.
    ///
    /// A classic pcap file has only one interface: that of its first packet.
    ///
    /// # Errors
    /// Returns `Unwritable` if the link type needs more than 16 bits or there are too many interfaces, or a write
    /// error.
    ///
    /// ```
    /// # use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
    /// # use grosso_capture::Interface;
    /// # let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    /// let number = writer.add_interface(&Interface::new(1))?; // LINKTYPE_ETHERNET
    /// assert_eq!(number, 0);
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    pub fn add_interface(&mut self, interface: &Interface) -> Result<u32, CaptureError> {
        self.add_interface_with(interface, &[])
    }

    /// Declares an interface with additional options, encoded in the byte order of the section, and returns its index.
    pub(super) fn add_interface_with(
        &mut self,
        interface: &Interface,
        more: &[u8],
    ) -> Result<u32, CaptureError> {
        let link_type = interface.link_type;
        if u16::try_from(link_type).is_err() {
            return Err(CaptureError::Unwritable { what: Misfit::LinkType { link_type } });
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(CaptureError::Unwritable { what: Misfit::TooManyInterfaces });
        }
        if self.options.format == Format::Pcapng {
            let order = self.begin_section()?;
            self.scratch.clear();
            pcapng::push_interface(&mut self.scratch, order, interface, more);
            self.write_scratch()?;
        }
        self.interfaces.push(*interface);
        Ok(interface_number(self.interfaces.len() - 1))
    }

    /// Writes an entry from a reader. The entry is unchanged, except for content that the output format cannot store
    /// and for the [link type](WriterOptions::link_type), if this writer sets one.
    ///
    /// # Errors
    /// Returns `Unwritable` if a packet does not fit into the output format, or a write error.
    ///
    /// ```no_run
    /// # use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
    /// # let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    /// # let mut reader = grosso_capture::CaptureReader::open("in.pcapng")?;
    /// while let Some(entry) = reader.next()? {
    ///     writer.copy(&entry)?;
    /// }
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    pub fn copy(&mut self, entry: &Entry<'_>) -> Result<(), CaptureError> {
        match self.options.link_type {
            Some(link_type) => self.copy_as(entry, link_type),
            None => self.copy_same(entry),
        }
    }

    #[cold]
    fn copy_as(&mut self, entry: &Entry<'_>, link_type: u16) -> Result<(), CaptureError> {
        let retyped = |interface| Interface { link_type: link_type.into(), ..interface };
        match entry {
            Entry::Packet(packet) => {
                let description = retyped(*packet.description);
                self.copy_same(&Entry::Packet(Packet { description: &description, ..*packet }))
            }
            Entry::Block(block) => {
                let Some(interface) = block.interface.map(retyped) else {
                    return self.copy_same(entry);
                };
                let mut raw = block.raw.to_vec();
                pcapng::put_link_type(&mut raw, block.order, link_type);
                let interface = Some(interface);
                self.copy_same(&Entry::Block(Block { raw: &raw, interface, ..*block }))
            }
        }
    }

    #[inline]
    fn copy_same(&mut self, entry: &Entry<'_>) -> Result<(), CaptureError> {
        match (entry, self.options.format) {
            (Entry::Packet(packet), Format::Pcap) => self.copy_to_pcap(packet),
            (Entry::Packet(packet), Format::Pcapng) => self.copy_to_pcapng(packet),
            (Entry::Block(block), Format::Pcap) => {
                self.learn_interfaces(block);
                Ok(())
            }
            (Entry::Block(block), Format::Pcapng) => self.copy_block(block),
        }
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Returns `Unwritable` if the packet does not fit into the output format, or a write error.
    ///
    /// ```
    /// # use grosso_capture::{CaptureWriter, Format, PacketMeta, WriterOptions};
    /// # let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    /// let meta = PacketMeta { timestamp_ns: Some(0), ..PacketMeta::default() };
    /// writer.write_packet(&meta, &[0; 60])?;
    /// assert_eq!(writer.packets(), 1);
    /// # Ok::<(), grosso_capture::CaptureError>(())
    /// ```
    #[inline]
    pub fn write_packet(&mut self, meta: &PacketMeta, data: &[u8]) -> Result<(), CaptureError> {
        self.write(meta, data, None)
    }

    /// Writes a packet that was derived from another, with that packet's options.
    ///
    /// Options that would no longer be true are dropped: hashes, custom options marked as not to be copied, and flags
    /// and offload states, which `meta` replaces. If the section's byte order differs from that of `options`, only
    /// comments are kept.
    ///
    /// # Errors
    /// Returns the same errors as [`write_packet`](Self::write_packet).
    pub fn write_packet_with(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        options: &Options<'_>,
    ) -> Result<(), CaptureError> {
        self.write(meta, data, Some(options))
    }

    /// Writes the file header now rather than with the first entry.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn begin(&mut self) -> Result<(), CaptureError> {
        match self.options.format {
            Format::Pcap => {
                let interface = self.interfaces.first().copied();
                self.begin_pcap(&interface.unwrap_or(self.options.interface)).map(drop)
            }
            Format::Pcapng => self.begin_section().map(drop),
        }
    }

    /// Flushes all buffered bytes to the sink.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.sink.flush().map_err(|source| self.write_error(source))
    }

    /// Completes the capture and returns the sink. If the capture has no entries, its header is written first.
    ///
    /// # Errors
    /// Returns write errors.
    pub fn finish(mut self) -> Result<W, CaptureError> {
        self.begin()?;
        self.flush()?;
        let Self { sink, path, packets, .. } = self;
        let sink = sink.into_inner();
        let sink = sink.map_err(|error| name_error(path, packets, error.into_error()))?;
        Ok(sink.sink)
    }

    /// Returns the number of packets written so far.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of bytes written so far, including bytes in the buffer. This is the length of the file.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks with damaged options in a pcapng output. The options before the damage were
    /// written; those after it were dropped, because no reader can parse them.
    #[must_use]
    pub const fn damaged_options(&self) -> u64 {
        self.damaged_options
    }

    /// Returns the number of packets without a timestamp. They were written with timestamp 0 (1 January 1970), because
    /// the record requires one.
    #[must_use]
    pub const fn without_time(&self) -> u64 {
        self.without_time
    }

    #[inline]
    fn write(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        options: Option<&Options<'_>>,
    ) -> Result<(), CaptureError> {
        let interface = self.declared_interface(meta.interface)?;
        // Callers may pass a length of 0 for a complete packet. A copied packet keeps its length even if the data is
        // longer.
        let length = meta.original_len.max(u32::try_from(data.len()).unwrap_or(u32::MAX));
        match self.options.format {
            Format::Pcap => self.write_record(meta, data, length, &interface),
            Format::Pcapng => self.write_enhanced(meta, data, length, &interface, options),
        }
    }

    /// Returns the interface with this number. Declares number 0 if necessary.
    #[inline]
    fn declared_interface(&mut self, interface: u32) -> Result<Interface, CaptureError> {
        if let Some(found) = self.interfaces.get(interface as usize) {
            return Ok(*found);
        }
        let declared = interface_number(self.interfaces.len());
        if interface != 0 {
            let what = Misfit::UnknownInterface { interface, declared };
            return Err(CaptureError::Unwritable { what });
        }
        let own = self.options.interface;
        self.add_interface(&own)?;
        Ok(own)
    }

    fn copy_to_pcap(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let header = self.begin_pcap(packet.description)?;
        let is_same_record = packet.format == Format::Pcap
            && header.order == packet.order()
            && header.interface.resolution == packet.description.resolution
            && header.interface.link_type == packet.description.link_type;
        if !is_same_record {
            let length = packet.original_len;
            return self.write_record(&packet.meta(), packet.data, length, packet.description);
        }
        // The timestamp is copied byte by byte, because converting it could change it.
        let (time, _) = packet.raw.split_at(RECORD_TIME_BYTES);
        let captured = packet.data.len() as u32;
        let lengths = pcap::lengths(header.order, captured, packet.original_len);
        self.write_all(&[time, &lengths, packet.data])?;
        self.count_packet();
        Ok(())
    }

    fn copy_to_pcapng(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let is_same_format = packet.format == Format::Pcapng;
        if is_same_format {
            self.begin_section_in(packet.order())?;
        }
        let number = self.number_of(packet)?;
        if !is_same_format || number != packet.interface || packet.is_stripped {
            let meta = PacketMeta { interface: number, ..packet.meta() };
            let options = packet.options();
            let length = packet.original_len;
            let description = packet.description;
            return self.write_enhanced(&meta, packet.data, length, description, Some(&options));
        }
        self.write_block(packet.raw, &packet.options())?;
        self.count_packet();
        Ok(())
    }

    /// Writes a block unchanged, or up to the damage in its options.
    #[inline]
    fn write_block(&mut self, raw: &[u8], options: &Options<'_>) -> Result<(), CaptureError> {
        if options.damage().is_none() {
            return self.write_all(&[raw]);
        }
        self.damaged_options += 1;
        self.scratch.clear();
        pcapng::push_sound(&mut self.scratch, raw, options);
        self.write_scratch()
    }

    /// Returns the number of a packet's interface in this section. It stays the same if it belongs to an equal
    /// interface here, as when a whole capture is copied. Otherwise, it is the number of another equal interface, or a
    /// new number if there is none.
    #[inline]
    fn number_of(&mut self, packet: &Packet<'_>) -> Result<u32, CaptureError> {
        if self.interfaces.get(packet.interface as usize) == Some(packet.description) {
            return Ok(packet.interface);
        }
        match self.interfaces.iter().position(|interface| interface == packet.description) {
            Some(index) => Ok(interface_number(index)),
            None => self.add_interface(packet.description),
        }
    }

    fn copy_block(&mut self, block: &Block<'_>) -> Result<(), CaptureError> {
        if block.is_section_header() {
            return self.copy_section_header(block);
        }
        self.begin_section_in(block.order)?;
        self.write_block(block.raw, &block.options())?;
        self.learn_interfaces(block);
        Ok(())
    }

    /// Copies a section header with its options, followed by the writer's comments.
    ///
    /// The section length is set to "unknown" (-1), because it may change.
    fn copy_section_header(&mut self, block: &Block<'_>) -> Result<(), CaptureError> {
        let order = block.order;
        let options = pcapng::block_options(block.kind, order, block.raw);
        let is_first = matches!(self.state, WriterState::Unstarted);
        let comments = if is_first { core::mem::take(&mut self.options.comments) } else { vec![] };
        let mut encoded = Vec::new();
        let is_damaged = options.damage().is_some();
        self.damaged_options += u64::from(is_damaged);
        if comments.is_empty() && !is_damaged {
            encoded.extend_from_slice(options.as_bytes());
        } else {
            for option in options.iter().flatten() {
                push_option(&mut encoded, order, option.code, option.value);
            }
            push_comments(&mut encoded, order, &comments);
            push_end(&mut encoded, order);
        }
        let version = block.raw.get(12..16).and_then(|bytes| bytes.first_chunk::<4>());
        let version =
            version.map_or((1, 0), |bytes| (order.u16_at(bytes, 0), order.u16_at(bytes, 2)));
        self.scratch.clear();
        pcapng::push_section(&mut self.scratch, order, version, &encoded);
        self.write_scratch()?;
        self.interfaces.clear();
        self.state = WriterState::Pcapng(order);
        Ok(())
    }

    fn learn_interfaces(&mut self, block: &Block<'_>) {
        if block.is_section_header() {
            self.interfaces.clear();
        }
        self.interfaces.extend(block.interface);
    }

    fn write_record(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        original_len: u32,
        interface: &Interface,
    ) -> Result<(), CaptureError> {
        let captured = packet_length(data, RECORD_HEADER_BYTES)?;
        let header = self.begin_pcap(interface)?;
        let (first, other) = (header.interface.link_type, interface.link_type);
        if first != other {
            return Err(CaptureError::Unwritable { what: Misfit::SecondLinkType { first, other } });
        }
        let nanoseconds = self.nanoseconds(meta);
        let seconds = nanoseconds / NANOSECONDS_PER_SECOND;
        let Ok(seconds) = u32::try_from(seconds) else {
            return Err(CaptureError::Unwritable { what: Misfit::TimestampTooLate { seconds } });
        };
        let within_second = (nanoseconds % NANOSECONDS_PER_SECOND) as u32;
        let fraction = within_second / header.nanoseconds_per_fraction();
        let record = header.record(seconds, fraction, captured, original_len);
        self.write_all(&[&record, data])?;
        self.count_packet();
        Ok(())
    }

    fn write_enhanced(
        &mut self,
        meta: &PacketMeta,
        data: &[u8],
        original_len: u32,
        interface: &Interface,
        options: Option<&Options<'_>>,
    ) -> Result<(), CaptureError> {
        let order = self.begin_section()?;
        self.scratch.clear();
        if let Some(options) = options {
            self.damaged_options += u64::from(options.damage().is_some());
            push_kept(&mut self.scratch, order, options);
        }
        push_meta(&mut self.scratch, order, meta)
            .map_err(|what| CaptureError::Unwritable { what })?;
        if !self.scratch.is_empty() {
            push_end(&mut self.scratch, order);
        }
        let around = ENHANCED_PACKET_BYTES + 3 + self.scratch.len() + TRAILER_BYTES;
        let captured = packet_length(data, around)?;
        let padding = padding(data.len());
        let length = ENHANCED_PACKET_BYTES + data.len() + padding + self.scratch.len();
        let header = EnhancedPacket {
            interface: meta.interface,
            ticks: interface.ticks(self.nanoseconds(meta)),
            captured,
            original: original_len,
            // `packet_length` has checked the limit.
            length: (length + TRAILER_BYTES) as u32,
        };
        let trailer = order.u32_bytes(header.length);
        self.write_all(&[&header.emit(order), data, &[0; 3][..padding]])?;
        let scratch = core::mem::take(&mut self.scratch);
        let written = self.write_all(&[&scratch, &trailer]);
        self.scratch = scratch;
        written?;
        self.count_packet();
        Ok(())
    }

    /// Returns the packet's timestamp. If it has none, increments `without_time` and returns 0.
    #[inline]
    fn nanoseconds(&mut self, meta: &PacketMeta) -> u64 {
        self.without_time += u64::from(meta.timestamp_ns.is_none());
        meta.timestamp_ns.unwrap_or(0)
    }

    /// Writes the pcap file header, unless it has already been written.
    fn begin_pcap(&mut self, interface: &Interface) -> Result<FileHeader, CaptureError> {
        if let WriterState::Pcap(header) = &self.state {
            return Ok(**header);
        }
        let copied = self.options.header;
        let header = copied.unwrap_or_else(|| FileHeader::new(interface, self.options.order));
        let header = header.with_snaplen_min(self.options.snaplen_min);
        self.write_all(&[&header.raw])?;
        self.state = WriterState::Pcap(Box::new(header));
        Ok(header)
    }

    /// Writes a section header, unless the output already has one.
    #[inline]
    fn begin_section(&mut self) -> Result<ByteOrder, CaptureError> {
        match self.state {
            WriterState::Pcapng(order) => Ok(order),
            _ => self.begin_own_section(self.options.order),
        }
    }

    /// Begins a new section, unless the current one already has byte order `order`.
    #[inline]
    fn begin_section_in(&mut self, order: ByteOrder) -> Result<(), CaptureError> {
        match self.state {
            WriterState::Pcapng(current) if current == order => Ok(()),
            _ => self.begin_own_section(order).map(drop),
        }
    }

    fn begin_own_section(&mut self, order: ByteOrder) -> Result<ByteOrder, CaptureError> {
        let mut options = Vec::new();
        let application = self.options.application.as_bytes();
        push_option(&mut options, order, code::SECTION_APPLICATION, application);
        push_comments(&mut options, order, &core::mem::take(&mut self.options.comments));
        push_end(&mut options, order);
        self.scratch.clear();
        pcapng::push_section(&mut self.scratch, order, (1, 0), &options);
        self.write_scratch()?;
        self.interfaces.clear();
        self.state = WriterState::Pcapng(order);
        Ok(order)
    }

    fn write_scratch(&mut self) -> Result<(), CaptureError> {
        self.bytes += self.scratch.len() as u64;
        self.sink.write_all(&self.scratch).map_err(|source| self.write_error(source))
    }

    #[inline]
    fn write_all(&mut self, parts: &[&[u8]]) -> Result<(), CaptureError> {
        for part in parts {
            self.bytes += part.len() as u64;
            self.sink.write_all(part).map_err(|source| self.write_error(source))?;
        }
        Ok(())
    }

    /// Counts a packet that has just been written completely.
    #[inline]
    fn count_packet(&mut self) {
        self.packets += 1;
        self.buffered.push(self.bytes, self.sink.get_ref().bytes);
    }

    fn write_error(&self, source: io::Error) -> CaptureError {
        let packets = self.buffered.whole(self.sink.get_ref().bytes);
        name_error(self.path.clone(), packets, source)
    }
}

/// File or standard output.
#[derive(Debug)]
pub struct Output(Destination);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Destination::File(file) => file.write(bytes),
            Destination::Standard(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Destination::File(file) => file.flush(),
            Destination::Standard(stdout) => stdout.flush(),
        }
    }
}

#[derive(Debug)]
enum Destination {
    File(File),
    Standard(io::Stdout),
}

/// Appends those options of a packet that remain true when its bytes change.
fn push_kept(out: &mut Vec<u8>, order: ByteOrder, options: &Options<'_>) {
    for option in options.iter().flatten() {
        let is_stale = match option.code {
            code::PACKET_FLAGS | code::PACKET_HASH => true,
            code::CUSTOM_TEXT_NO_COPY | code::CUSTOM_BINARY_NO_COPY => true,
            code::CUSTOM_BINARY => offload_option::is_ours(options.order(), option.value),
            _ => false,
        };
        // Most option values cannot be converted to the other byte order without knowing their format.
        let is_foreign = options.order() != order && option.code != code::COMMENT;
        if !is_stale && !is_foreign {
            push_option(out, order, option.code, option.value);
        }
    }
}

/// Appends the options that encode `meta`.
fn push_meta(out: &mut Vec<u8>, order: ByteOrder, meta: &PacketMeta) -> Result<(), Misfit> {
    if let Some(flags) = meta.flags_to_write() {
        push_option(out, order, code::PACKET_FLAGS, &order.u32_bytes(flags));
    }
    if let Some(offload) = &meta.offload {
        let mut value = Vec::new();
        offload_option::encode(&mut value, order, offload)?;
        push_option(out, order, code::CUSTOM_BINARY, &value);
    }
    Ok(())
}

fn push_comments(out: &mut Vec<u8>, order: ByteOrder, comments: &[String]) {
    for comment in comments {
        // The comment is truncated at a character boundary, so that readers see valid UTF-8.
        let end = comment.floor_char_boundary(usize::from(u16::MAX));
        push_option(out, order, code::COMMENT, &comment.as_bytes()[..end]);
    }
}

/// Returns the length of a packet, after checking that the packet plus `around` more bytes of its record are within the
/// limit.
#[inline]
fn packet_length(data: &[u8], around: usize) -> Result<u32, CaptureError> {
    let bytes = data.len();
    match u32::try_from(bytes) {
        Ok(length) if bytes + around <= RECORD_BYTES_MAX => Ok(length),
        _ => Err(CaptureError::Unwritable { what: Misfit::PacketTooLong { bytes } }),
    }
}

fn interface_number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn name_error(path: String, packets: u64, source: io::Error) -> CaptureError {
    if source.kind() == io::ErrorKind::BrokenPipe {
        return CaptureError::BrokenPipe { path };
    }
    CaptureError::Write { path, packets, source }
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Size of the write buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;
