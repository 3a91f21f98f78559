//! Format of the frames passed to a program and back. Each record is a 32-bit little-endian length, a 10-byte
//! `virtio_net_hdr`, and the frame. The length covers the header and the frame. A length of 0 ends a poll.

use std::io::{self, Read};

use grosso_wire::virtio::HEADER_LEN;

/// Frame with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    /// `virtio_net_hdr` of the frame.
    pub header: [u8; HEADER_LEN],
    /// Ethernet frame.
    pub frame: Vec<u8>,
}

/// Violation of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The length of a record is out of range.
    Length(u32),
    /// The output ended inside a record.
    Cut,
    /// The output ended before the end of the poll.
    NoEnd,
    /// The poll has too many records.
    Records,
}

impl core::fmt::Display for Misfit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "invalid output: a record of {length} bytes (allowed: {HEADER_LEN} to \
                 {RECORD_BYTES_MAX}, or 0 for the end of the poll)"
            ),
            Self::Cut => f.write_str("the program's output ended inside a record"),
            Self::NoEnd => f.write_str("the program's output ended before the end of the poll"),
            Self::Records => {
                write!(f, "the program wrote more than {RECORDS_MAX} records in one poll")
            }
        }
    }
}

/// Encodes one poll of frames that all have the same virtio header, which is zero for packets.
#[must_use]
pub fn poll(header: [u8; HEADER_LEN], frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        let length = (HEADER_LEN + frame.len()) as u32;
        bytes.extend(length.to_le_bytes());
        bytes.extend(header);
        bytes.extend(frame);
    }
    bytes.extend(0_u32.to_le_bytes());
    bytes
}

/// Reads a program's output for one poll; returns `None` if the output ends before the poll begins. A read error is
/// treated as the end of the output.
///
/// # Errors
///
/// Returns the first violation of the format or of a limit.
pub fn read_poll(input: &mut impl Read) -> Result<Option<Vec<Framed>>, Misfit> {
    let mut records = Vec::new();
    loop {
        let mut length = [0; 4];
        match fill(input, &mut length) {
            0 if records.is_empty() => return Ok(None),
            0 => return Err(Misfit::NoEnd),
            4 => {}
            _ => return Err(Misfit::Cut),
        }
        let length = u32::from_le_bytes(length);
        if length == 0 {
            return Ok(Some(records));
        }
        if !(HEADER_LEN as u32..=RECORD_BYTES_MAX).contains(&length) {
            return Err(Misfit::Length(length));
        }
        if records.len() == RECORDS_MAX {
            return Err(Misfit::Records);
        }
        let mut header = [0; HEADER_LEN];
        let mut frame = vec![0; length as usize - HEADER_LEN];
        if fill(input, &mut header) < header.len() || fill(input, &mut frame) < frame.len() {
            return Err(Misfit::Cut);
        }
        records.push(Framed { header, frame });
    }
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}

/// Maximum length of a record in bytes: twice the longest IP packet.
const RECORD_BYTES_MAX: u32 = 1 << 17;
/// Maximum number of records that a program may write in one poll: several times the number of packets in any vector.
const RECORDS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; HEADER_LEN] = [0; HEADER_LEN];

    fn read(bytes: &[u8]) -> Result<Option<Vec<Framed>>, Misfit> {
        read_poll(&mut &bytes[..])
    }

    #[test]
    fn a_poll_is_read_as_it_was_written() {
        let frames = [vec![1, 2, 3], Vec::new()];
        let records = read(&poll(HEADER, &frames)).unwrap().unwrap();
        assert_eq!(
            records.iter().map(|record| &record.frame).collect::<Vec<_>>(),
            [&frames[0], &frames[1]]
        );
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[0; 4]), Ok(Some(Vec::new())));
    }

    #[test]
    fn every_cut_and_every_impossible_length_is_named() {
        let bytes = poll(HEADER, &[vec![7; 20]]);
        for end in 1..bytes.len() {
            let expected = if end == bytes.len() - 4 { Misfit::NoEnd } else { Misfit::Cut };
            assert_eq!(read(&bytes[..end]), Err(expected), "{end}");
        }
        for length in [1, 9, RECORD_BYTES_MAX + 1, u32::MAX] {
            assert_eq!(read(&length.to_le_bytes()), Err(Misfit::Length(length)));
        }
        let many = vec![Vec::new(); RECORDS_MAX + 1];
        assert_eq!(read(&poll(HEADER, &many)), Err(Misfit::Records));
        assert!(read(&poll(HEADER, &many[1..])).is_ok());
    }
}
