//! The capture reader: it does not panic, its memory is bounded, and a copy of the packets can be read back unchanged.

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, RECORD_BYTES_MAX, WriterOptions,
    options::push_option,
};

/// Number of uncompressed bytes after which reading stops, because a few compressed bytes may expand to gigabytes.
const BYTES_MAX: u64 = 4 << 20;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(data) else { return };
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::like(&reader));
    let mut converted = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let mut read = Vec::new();
    while reader.offset() < BYTES_MAX {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) | Err(_) => break,
        };
        if let Entry::Packet(packet) = &entry {
            assert!(packet.data.len() <= packet.raw().len());
            let _ = (packet.meta(), packet.warning(), packet.is_cut());
        }
        read.push(Record::of(&entry));
        writer.copy(&entry).expect("a capture can be copied into its own format");
        // Copying may fail: the output can represent any classic pcap file, but not every section of a pcapng file from
        // another program.
        let _ = converted.copy(&entry);
    }
    assert!(reader.buffer_bytes() <= RECORD_BYTES_MAX);
    assert_eq!(reader.packets() as usize, read.iter().filter(|record| record.is_packet).count());

    let copy = writer.finish().expect("writing to memory succeeds");
    let mut again = CaptureReader::new(&copy[..]).expect("a written capture can be read");
    let mut copied = Vec::new();
    while let Some(entry) = again.next().expect("a written capture can be read") {
        copied.push(Record::of(&entry));
    }
    // A capture without any entry still gets a header.
    assert!(read == copied || read.is_empty() && copied.len() <= 1, "{read:?}\n{copied:?}");
    let converted = converted.finish().expect("writing to memory succeeds");
    let mut converted = CaptureReader::new(&converted[..]).expect("a written capture can be read");
    while converted.next().expect("a written capture can be read").is_some() {}
}

/// Contents that must survive a copy.
#[derive(Debug, PartialEq)]
struct Record {
    is_packet: bool,
    time_and_length: Option<(Option<u64>, u32, u64)>,
    data: Vec<u8>,
}

impl Record {
    fn of(entry: &Entry<'_>) -> Self {
        match entry {
            Entry::Packet(packet) => Self {
                is_packet: true,
                time_and_length: Some((packet.timestamp_ns, packet.original_len, packet.number)),
                data: packet.data.to_vec(),
            },
            // The length of a section is not compared, because a copy may change it.
            Entry::Block(block) if block.is_section_header() => {
                Self { is_packet: false, time_and_length: None, data: block.raw[..4].to_vec() }
            }
            // Options after damaged ones are omitted.
            Entry::Block(block) => {
                let options = block.options();
                let end = block.raw.len() - 4 - options.as_bytes().len();
                let mut data = [&block.raw[..4], &block.raw[8..end]].concat();
                for option in options.iter().flatten() {
                    push_option(&mut data, block.order, option.code, option.value);
                }
                Self { is_packet: false, time_and_length: None, data }
            }
        }
    }
}
