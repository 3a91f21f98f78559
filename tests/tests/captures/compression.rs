//! Tests compressed input with concatenated, truncated and damaged members and frames.

use std::io::Write;

use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use grosso_capture::{ByteOrder, CaptureError, CaptureReader, Compression};

use super::build::{File, everything};
use super::packets::packets;

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Returns a capture that is larger than any buffer involved, with nearly incompressible data.
fn large() -> Vec<u8> {
    let mut file = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 1);
    let mut state = 1_u32;
    for packet in 0..3000 {
        let data: Vec<u8> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 28) as u8
            })
            .collect();
        file.record(packet, 0, &data, 1000);
    }
    file.bytes
}

#[test]
fn compressed_captures_read_like_plain_ones() {
    for file in [everything(ByteOrder::Little), large()] {
        let expected = packets(&file);
        for (compressed, compression) in
            [(gzip(&file), Compression::Gzip), (zstd(&file), Compression::Zstd)]
        {
            assert_eq!(packets(&compressed), expected, "{compression:?}");
            let mut reader = CaptureReader::new(&compressed[..]).unwrap();
            assert_eq!(reader.compression(), compression);
            while reader.next().unwrap().is_some() {}
            assert_eq!(reader.file_bytes(), compressed.len() as u64, "{compression:?}");
            assert_eq!(reader.offset(), file.len() as u64);
        }
    }
}

#[test]
fn joined_members_and_frames_are_one_capture() {
    let file = large();
    let (front, back) = file.split_at(1_234_567);
    let expected = packets(&file);
    assert_eq!(packets(&[gzip(front), gzip(back)].concat()), expected);
    // A skippable frame may be anywhere, including the start (RFC 8878 section 3.1.2).
    let skippable = b"\x53\x2a\x4d\x18\x05\0\0\0hello";
    let joined = [&skippable[..], &zstd(front), skippable, &zstd(back), skippable].concat();
    assert_eq!(packets(&joined), expected);
}

/// `zstd -3` of a pcap file with one packet, with a content checksum; created with zstd 1.5.4.
const ZSTD_FILE: &[u8] = include_bytes!("one-packet.pcap.zst");

#[test]
fn file_of_the_reference_compressor_is_read_and_its_checksum_verified() {
    let found = packets(ZSTD_FILE);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].data, [0x42; 64]);
    let mut damaged = ZSTD_FILE.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut reader = CaptureReader::new(&damaged[..]).unwrap();
    assert!(reader.next().unwrap().is_some(), "decompressed entries are returned");
    let error = reader.next().unwrap_err();
    let expected =
        "the zstd data is damaged: wrong content checksum (offset 104 in the decompressed data)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn cut_compressed_captures_hand_out_every_complete_packet_first() {
    let file = large();
    let expected = packets(&file);
    for (name, compressed) in [("gzip", gzip(&file)), ("zstd", zstd(&file))] {
        for length in [compressed.len() / 4, compressed.len() / 2, compressed.len() - 20] {
            let mut reader = CaptureReader::new(&compressed[..length]).unwrap();
            let error = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{name} cut at {length} ends without an error"),
                    Err(error) => break error,
                }
            };
            let found = reader.packets();
            assert!(matches!(error, CaptureError::Truncated { .. }), "{name}: {error}");
            // A decompressor outputs blocks of at most 128 KiB.
            let wanted = (expected.len() * length / compressed.len()) as u64;
            assert!(found + 200 > wanted, "{name}: {found} of {wanted}");
            assert_eq!(packets(&compressed[..length]), expected[..found as usize]);
        }
    }
}

#[test]
fn compression_truncated_between_packets_is_reported() {
    let mut file = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 1);
    file.record(0, 0, &[0x42; 64], 64);
    let mut compressed = gzip(&file.bytes);
    compressed.truncate(compressed.len() - 4);
    let mut reader = CaptureReader::new(&compressed[..]).unwrap();
    assert!(reader.next().unwrap().is_some());
    let error = reader.next().unwrap_err();
    assert_eq!(error.to_string(), "the gzip data ends early (offset 104 in the decompressed data)");
    assert!(error.is_input());
}

#[test]
fn damaged_compressed_captures_never_panic() {
    let file = everything(ByteOrder::Little);
    for compressed in [gzip(&file), zstd(&file), ZSTD_FILE.to_vec()] {
        for at in 0..compressed.len() {
            for bit in 0..8 {
                let mut damaged = compressed.clone();
                damaged[at] ^= 1 << bit;
                let Ok(mut reader) = CaptureReader::new(&damaged[..]) else { continue };
                while let Ok(Some(_)) = reader.next() {}
            }
        }
    }
}

#[test]
fn compressed_data_that_is_no_capture_is_shown_decompressed() {
    let error = CaptureReader::new(&gzip(b"{\n}")[..]).unwrap_err();
    assert!(error.to_string().starts_with("not a capture (starts with \"{\\n\")"), "{error}");
}
