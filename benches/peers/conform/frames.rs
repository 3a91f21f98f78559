//! The input and output of a program that `grosso conform` tests. docs/conformance.md describes the format.

use std::io::{self, BufReader, BufWriter, Read, StdinLock, Write};

/// Length of a virtio header in bytes.
pub(crate) const VIRTIO_BYTES: usize = 10;
/// Maximum number of segments in a superframe.
pub(crate) const SEGMENTS_MAX: usize = 128;
/// Length of an Ethernet header in bytes.
const ETHERNET_BYTES: usize = 14;
/// Length of a VLAN tag in bytes.
const TAG_BYTES: usize = 4;
/// EtherTypes for IPv4 and IPv6.
const IP_TYPES: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];

/// Passes the IP packets of each poll to `coalesce`, and writes its output. The output consists of virtio headers and
/// IP packets; the offsets in a virtio header are relative to the IP header. Link headers are removed, so `coalesce`
/// gets the packets of one link per call. Frames that do not contain IP are written unchanged.
pub(crate) fn run(mut coalesce: impl FnMut(&[&[u8]]) -> Vec<Vec<u8>>) -> io::Result<()> {
    let (mut input, mut output) = (Input::open(), BufWriter::new(io::stdout()));
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(mut record) = input.next()? {
        let frame = record.split_off(record.len().min(VIRTIO_BYTES));
        let is_other_link =
            |first: &Vec<u8>| first.get(..ETHERNET_BYTES) != frame.get(..ETHERNET_BYTES);
        if frames.first().is_some_and(is_other_link) {
            flush(&mut frames, &mut coalesce, &mut output)?;
        }
        match frame.get(ETHERNET_BYTES - 2..ETHERNET_BYTES) {
            Some(kind) if IP_TYPES.iter().any(|ip| ip == kind) => frames.push(frame),
            Some(_) => put(&mut output, &[0; VIRTIO_BYTES], &[&frame])?,
            None => {
                flush(&mut frames, &mut coalesce, &mut output)?;
                output.write_all(&[0; 4])?;
                output.flush()?;
            }
        }
    }
    Ok(())
}

/// Passes the superframe of each poll to `split`: an IP packet, and the virtio header that describes it, with offsets
/// relative to the IP header. Writes the packets that `split` returns, each with the superframe's link header.
pub(crate) fn segment(
    mut split: impl FnMut([u8; VIRTIO_BYTES], &mut [u8]) -> Vec<Vec<u8>>,
) -> io::Result<()> {
    let (mut input, mut output) = (Input::open(), BufWriter::new(io::stdout()));
    while let Some(record) = input.next()? {
        let Some((header, frame)) = record.split_first_chunk() else {
            output.write_all(&[0; 4])?;
            output.flush()?;
            continue;
        };
        let (link, packet) = frame.split_at(link_bytes(frame));
        let mut header = *header;
        for at in [2, 6] {
            let value = u16::from_le_bytes([header[at], header[at + 1]]);
            let value = value.saturating_sub(link.len() as u16);
            header[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        for packet in split(header, &mut packet.to_vec()) {
            put(&mut output, &[0; VIRTIO_BYTES], &[link, &packet])?;
        }
    }
    Ok(())
}

/// Passes the frames of each poll to `complete`, and writes the frames that it returns.
pub(crate) fn reassemble(mut complete: impl FnMut(&[Vec<u8>]) -> Vec<Vec<u8>>) -> io::Result<()> {
    let (mut input, mut output) = (Input::open(), BufWriter::new(io::stdout()));
    let mut frames = Vec::new();
    while let Some(record) = input.next()? {
        if let Some(frame) = record.get(VIRTIO_BYTES..) {
            frames.push(frame.to_vec());
            continue;
        }
        for frame in complete(&frames) {
            put(&mut output, &[0; VIRTIO_BYTES], &[&frame])?;
        }
        frames.clear();
        output.write_all(&[0; 4])?;
        output.flush()?;
    }
    Ok(())
}

/// Returns the length of an Ethernet header with its VLAN tags.
pub(crate) fn link_bytes(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame.get(at - 2..at), Some([0x81, 0x00] | [0x88, 0xa8]));
    let mut end = ETHERNET_BYTES;
    while is_tag(end) && end + TAG_BYTES <= frame.len() {
        end += TAG_BYTES;
    }
    end
}

/// Standard input, record by record.
struct Input(BufReader<StdinLock<'static>>);

impl Input {
    fn open() -> Self {
        Self(BufReader::new(io::stdin().lock()))
    }

    /// Returns the next record, which is empty at the end of a poll, or `None` at the end of the input.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut length = [0; 4];
        if self.0.read_exact(&mut length).is_err() {
            return Ok(None);
        }
        let mut record = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut record)?;
        Ok(Some(record))
    }
}

fn flush(
    frames: &mut Vec<Vec<u8>>,
    coalesce: &mut impl FnMut(&[&[u8]]) -> Vec<Vec<u8>>,
    output: &mut impl Write,
) -> io::Result<()> {
    let Some(first) = frames.first() else { return Ok(()) };
    let link = first[..ETHERNET_BYTES].to_vec();
    let packets: Vec<_> = frames.iter().map(|frame| &frame[ETHERNET_BYTES..]).collect();
    for packet in coalesce(&packets) {
        let (header, packet) = packet.split_at(VIRTIO_BYTES);
        let mut header = header.to_vec();
        // Offsets of the header length, and of the start of the checksum if there is one.
        for at in if header[0] & 1 == 0 { [].as_slice() } else { [2, 6].as_slice() } {
            let value = u16::from_le_bytes([header[*at], header[at + 1]]) + ETHERNET_BYTES as u16;
            header[*at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        put(output, &header, &[&link, packet])?;
    }
    frames.clear();
    Ok(())
}

fn put(output: &mut impl Write, header: &[u8], frame: &[&[u8]]) -> io::Result<()> {
    let bytes = header.len() + frame.iter().map(|part| part.len()).sum::<usize>();
    output.write_all(&(bytes as u32).to_le_bytes())?;
    output.write_all(header)?;
    frame.iter().try_for_each(|part| output.write_all(part))
}
