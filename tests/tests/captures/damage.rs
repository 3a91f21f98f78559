//! Tests the error message for each way in which a capture file can be truncated or damaged.

use std::io::{self, Read, Write};

use proptest::collection::vec;
use proptest::prelude::*;

use grosso_capture::{
    ByteOrder, CaptureError, CaptureReader, CaptureWriter, Entry, Format, PacketMeta,
    RECORD_BYTES_MAX, WriterOptions,
};

use super::build::{File, everything};
use super::compression::{gzip, zstd};
use super::packets::packets;

/// Returns the number of entries read, and the error after them.
fn read(bytes: &[u8]) -> (usize, Option<CaptureError>) {
    let mut reader = match CaptureReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut entries = 0;
    loop {
        match reader.next() {
            Ok(Some(_)) => entries += 1,
            Ok(None) => return (entries, None),
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "an error comes once");
                return (entries, Some(error));
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    read(bytes).1.expect("an error").to_string()
}

#[test]
fn cut_packet_is_named_with_its_place() {
    let mut file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1);
    for _ in 0..55 {
        file.record(0, 0, &[0; 100], 100);
    }
    let offset = file.bytes.len();
    file.record(0, 0, &[0; 65_226], 65_226);
    file.bytes.truncate(offset + 16 + 5758);
    let (packets, error) = read(&file.bytes);
    assert_eq!(packets, 55);
    let expected = format!("ends inside packet 56 (needs 65226 bytes, has 5758, offset {offset})");
    assert_eq!(error.unwrap().to_string(), expected);
    file.bytes.truncate(offset + 7);
    let expected =
        format!("ends inside the header of packet 56 (needs 16 bytes, has 7, offset {offset})");
    assert_eq!(text(&file.bytes), expected);
}

#[test]
fn every_prefix_of_a_file_hands_out_its_complete_entries() {
    let mut pcap = File::pcap(ByteOrder::Big, 0xa1b2_3c4d, 1);
    pcap.record(0, 0, b"one", 3).record(0, 0, b"", 0).record(0, 0, b"three", 5);
    for file in [pcap.bytes, everything(ByteOrder::Little), everything(ByteOrder::Big)] {
        let mut ends = Vec::new();
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let header = reader.offset();
        while reader.next().unwrap().is_some() {
            ends.push(reader.offset());
        }
        assert_eq!(*ends.last().unwrap(), file.len() as u64);
        for length in 0..=file.len() {
            let (entries, error) = read(&file[..length]);
            let complete = ends.iter().filter(|&&end| end <= length as u64).count();
            assert_eq!(entries, complete, "prefix of {length} bytes");
            let is_boundary =
                ends.contains(&(length as u64)) || length as u64 == header && length >= 24;
            match error {
                None => assert!(is_boundary, "prefix of {length} bytes"),
                Some(CaptureError::NotACapture { .. }) => assert!(length < 4),
                Some(CaptureError::Truncated { needs, there, offset, .. }) => {
                    assert!(!is_boundary, "prefix of {length} bytes");
                    assert!(there < needs);
                    let before = ends.iter().rev().find(|&&end| end <= length as u64);
                    let start = if length < 24 { 0 } else { header };
                    assert_eq!(offset, before.copied().unwrap_or(start));
                }
                Some(other) => panic!("prefix of {length} bytes: {other}"),
            }
        }
    }
}

#[test]
fn what_is_no_capture_is_shown() {
    let shown = |starts: &str| {
        format!(
            "not a capture (starts with \"{starts}\"); expected pcap or pcapng, optionally compressed"
        )
    };
    assert_eq!(text(b"{\n\t\"start\": {}}"), shown("{\\n"));
    assert_eq!(text(b"hello world, this is text"), shown("hello world, thi"));
    assert_eq!(text(&[0; 3]), shown("\\x00\\x00\\x00"));
    assert!(text(b"").starts_with("not a capture (empty)"));
}

#[test]
fn relatives_are_refused_by_name() {
    let modified = File::pcap(ByteOrder::Big, 0xa1b2_cd34, 1);
    assert_eq!(
        text(&modified.bytes),
        "modified pcap (Kuznetzov's patch) is not supported; convert it with editcap -F pcapng"
    );
    for (start, said) in [
        (
            &[0x04, 0x22, 0x4d, 0x18, 0, 0][..],
            "lz4 compression is not supported; convert it with editcap -F pcapng",
        ),
        (b"\xfd7zXZ\0", "xz compression is not supported; decompress it with xz -d"),
        (b"BZh91AY", "bzip2 compression is not supported; decompress it with bzip2 -d"),
    ] {
        assert_eq!(text(start), said);
    }
    let mut new = File::new(ByteOrder::Little);
    new.u32(0xa1b2_c3d4).u16(2).u16(5).u32(0).u32(0).u32(0).u32(1);
    assert_eq!(text(&new.bytes), "damaged: format version 2.5 is not supported (offset 0)");
}

#[test]
fn lying_lengths_are_damage_with_an_offset() {
    let mut pcap = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1);
    pcap.record(0, 0, b"fine", 4).u32(0).u32(0).u32(0xffff_fff0).u32(60).raw(&[0; 64]);
    let (packets, error) = read(&pcap.bytes);
    assert_eq!(packets, 1);
    let expected =
        "damaged: record length 4294967280 exceeds the maximum of 16777216 bytes (offset 44)";
    assert_eq!(error.unwrap().to_string(), expected);

    let damaged = |change: &dyn Fn(&mut [u8])| {
        let mut file = File::new(ByteOrder::Little);
        file.section(|_| {}).interface(1, 0, |_| {}).packet(0, 0, b"1234", 4, |_| {});
        change(&mut file.bytes[48..]);
        let (entries, error) = read(&file.bytes);
        assert_eq!(entries, 2);
        error.unwrap().to_string()
    };
    let put = |at: usize, value: u32| {
        move |block: &mut [u8]| block[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    let cases = [
        (4, 8, "a block of type 0x6 cannot have a length of 8 bytes"),
        (4, 0, "a block of type 0x6 cannot have a length of 0 bytes"),
        (4, 35, "block length 35 is not a multiple of 4"),
        (4, 0x7fff_fffc, "record length 2147483644 exceeds the maximum of 16777216 bytes"),
        (32, 40, "the length fields of a block differ: 36 at its start, 40 at its end"),
        (20, 5, "a packet of 5 bytes exceeds the 4 bytes left in its block"),
        (20, u32::MAX, "a packet of 4294967295 bytes exceeds the 4 bytes left in its block"),
        (8, 1, "a packet has interface number 1, but its section declares only 1"),
    ];
    for (at, value, expected) in cases {
        let expected = format!("damaged: {expected} (offset 48)");
        assert_eq!(damaged(&put(at, value)), expected);
    }
}

#[test]
fn section_headers_are_checked() {
    let mut file = File::new(ByteOrder::Little);
    file.section(|_| {});
    file.bytes[8] ^= 1;
    let expected =
        "damaged: a section header has the invalid byte-order magic 0x4c3c2b1a (offset 0)";
    assert_eq!(text(&file.bytes), expected);
    let mut file = File::new(ByteOrder::Big);
    file.block(0x0a0d_0d0a, |block| {
        block.u32(0x1a2b_3c4d).u16(7).u16(1).u64(u64::MAX);
    });
    assert_eq!(text(&file.bytes), "damaged: format version 7.1 is not supported (offset 0)");
}

#[test]
fn interfaces_are_bounded() {
    let mut file = File::new(ByteOrder::Little);
    file.section(|_| {});
    for _ in 0..65_537 {
        file.interface(1, 0, |_| {});
    }
    let (entries, error) = read(&file.bytes);
    assert_eq!(entries, 65_537, "the section header and the accepted interfaces");
    assert!(error.unwrap().to_string().contains("more than 65536 interfaces"));
}

/// A reader that returns one byte at a time, and is interrupted before each one.
struct Drip<'a> {
    bytes: &'a [u8],
    interrupted: bool,
}

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = buffer.len().min(1);
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn pipes_that_drip_and_interrupt_are_read_whole() {
    let file = everything(ByteOrder::Big);
    let entries = read(&file).0;
    assert_eq!(entries, 28);
    for bytes in [&file, &gzip(&file), &zstd(&file)] {
        let mut reader = CaptureReader::new(Drip { bytes, interrupted: false }).unwrap();
        for _ in 0..entries {
            assert!(reader.next().unwrap().is_some());
        }
        assert!(reader.next().unwrap().is_none());
    }
}

#[test]
fn failing_files_are_named_and_come_after_complete_packets() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    let mut file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1);
    file.record(0, 0, b"one", 3);
    let mut reader = CaptureReader::new(file.bytes.chain(Failing)).unwrap();
    assert!(matches!(reader.next(), Ok(Some(Entry::Packet(_)))));
    let error = reader.next().unwrap_err();
    assert_eq!(error.to_string(), "input: the disk is on fire");
    assert!(error.names_file());
    let missing = CaptureReader::open("does/not/exist.pcap").unwrap_err();
    assert!(missing.to_string().starts_with("does/not/exist.pcap: "), "{missing}");
}

#[test]
fn writer_errors_state_the_cause() {
    struct Failing(io::ErrorKind);
    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = |kind| {
        let mut writer = CaptureWriter::new(Failing(kind), WriterOptions::new(Format::Pcapng));
        writer.write_packet(&PacketMeta::default(), b"x").unwrap();
        writer.finish().map(drop).unwrap_err()
    };
    assert!(error(io::ErrorKind::BrokenPipe).is_broken_pipe());
    let full = error(io::ErrorKind::StorageFull);
    assert!(!full.is_broken_pipe() && !full.is_input());
    assert!(full.to_string().starts_with("output: "), "{full}");
    assert!(full.to_string().ends_with("(after packet 0)"), "{full}");
}

/// Tests that the options before a damaged one are written, and that the damage is counted.
#[test]
fn damaged_options_are_written_as_far_as_they_are_sound() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = |is_damaged: bool| {
            let lost = |block: &mut File| {
                if is_damaged {
                    block.u16(1).u16(99).raw(b"lost");
                } else {
                    block.u32(0);
                }
            };
            let mut file = File::new(order);
            file.section(|block| {
                block.option(4, b"hand");
                lost(block);
            });
            file.interface(1, 0, |block| {
                block.option(9, &[9]).option(1, b"kept");
                lost(block);
            });
            file.block(4, |block| {
                block.u16(1).u16(9).raw(b"\x0a\0\0\x01host\0").pad().u32(0).option(1, b"names");
                lost(block);
            });
            file.block(10, |block| {
                block.u32(0x544c_534b).u32(3).raw(b"key").pad().option(1, b"secrets");
                lost(block);
            });
            file.packet(0, 7, b"odd", 3, |block| {
                block.option(3, &[2, 1, 2, 3, 4]).option(1, b"of a packet");
                lost(block);
            });
            file.block(2, |block| {
                block.u16(0).u16(3).u32(1).u32(2).u32(6).u32(60).raw(b"older!").pad();
                block.option(1, b"of an old packet");
                lost(block);
            });
            file.block(5, |block| {
                block.u32(0).u32(1).u32(2).option(4, &[0; 8]);
                lost(block);
            });
            file.bytes
        };
        let (damaged, sound) = (file(true), file(false));
        let mut reader = CaptureReader::new(&damaged[..]).unwrap();
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::like(&reader));
        while let Some(entry) = reader.next().unwrap() {
            writer.copy(&entry).unwrap();
        }
        assert_eq!(writer.damaged_options(), 7);
        assert_eq!(writer.finish().unwrap(), sound);
    }
}

/// Reads and examines all entries, and checks that the memory limit is not exceeded.
fn survive(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(bytes) else { return };
    let mut entries = 0;
    loop {
        match reader.next() {
            Ok(Some(Entry::Packet(packet))) => {
                let _ = (packet.meta(), packet.warning(), packet.is_cut());
            }
            Ok(Some(Entry::Block(block))) => {
                assert!(block.raw.len() >= 12);
            }
            Ok(None) | Err(_) => break,
        }
        entries += 1;
        assert!(entries <= bytes.len(), "every entry takes at least a byte");
    }
    assert!(reader.buffer_bytes() <= RECORD_BYTES_MAX);
}

fn seeds() -> Vec<Vec<u8>> {
    let mut pcap = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 1);
    pcap.record(0, 0, b"one", 3).record(0, 0, b"", 0).record(0, 0, b"three", 5);
    vec![pcap.bytes, everything(ByteOrder::Little), everything(ByteOrder::Big)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_files_never_panic_and_cost_bounded_memory(
        seed in 0_usize..3,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        cut: bool,
    ) {
        let mut bytes = seeds().swap_remove(seed);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        survive(&bytes);
    }

    #[test]
    fn whatever_can_be_read_of_a_mutated_file_is_copied(
        seed in 0_usize..3,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        is_annotated: bool,
    ) {
        let mut bytes = seeds().swap_remove(seed);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let Ok(mut reader) = CaptureReader::new(&bytes[..]) else { return Ok(()) };
        let mut options = WriterOptions::like(&reader);
        if is_annotated {
            options.comments.push("a comment".into());
        }
        let mut writer = CaptureWriter::new(Vec::new(), options);
        while let Ok(Some(entry)) = reader.next() {
            writer.copy(&entry).expect("a readable entry can be written unchanged");
        }
        let copied = writer.finish().unwrap();
        prop_assert_eq!(packets(&copied), packets(&bytes));
        prop_assert!(read(&copied).1.is_none(), "a copy is never damaged");
    }

    #[test]
    fn arbitrary_bytes_behind_a_header_never_panic(
        seed in 0_usize..3,
        tail in vec(any::<u8>(), 0..300),
    ) {
        let header = [24, 108, 108][seed];
        let mut bytes = seeds().swap_remove(seed);
        bytes.truncate(header);
        bytes.extend_from_slice(&tail);
        survive(&bytes);
    }
}
