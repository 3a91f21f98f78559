//! Tests that the reader returns the fields of packets in every format, byte order and time unit.

use grosso::meta::Gso;
use grosso_capture::{ByteOrder, CaptureReader, Compression, Entry, Format, SegmentTransport};

use super::build::{File, everything};

/// One packet, with the fields that the tests compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) timestamp_ns: Option<u64>,
    pub(crate) link_type: u32,
    pub(crate) original_len: u32,
    pub(crate) data: Vec<u8>,
}

/// Returns all packets up to the end or the first error.
pub(crate) fn packets(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = CaptureReader::new(bytes).expect("a capture");
    let mut packets = Vec::new();
    while let Ok(Some(entry)) = reader.next() {
        if let Entry::Packet(packet) = entry {
            packets.push(Seen {
                timestamp_ns: packet.timestamp_ns,
                link_type: packet.description.link_type,
                original_len: packet.original_len,
                data: packet.data.to_vec(),
            });
        }
    }
    packets
}

#[test]
fn pcap_of_every_magic_is_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for (magic, scale) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let mut file = File::pcap(order, magic, 113);
            file.record(1_700_000_000, 999_999, b"one", 3);
            file.record(4_294_967_295, 0, b"", 0);
            file.record(0, 5, b"cut", 1514);
            file.record(0, 6, b"longer than it was", 2);
            let found = packets(&file.bytes);
            let times: Vec<_> = found.iter().map(|packet| packet.timestamp_ns.unwrap()).collect();
            let first = 1_700_000_000_000_000_000 + 999_999 * scale;
            let expected = [first, 4_294_967_295_000_000_000, 5 * scale, 6 * scale];
            assert_eq!(times, expected, "{order:?} {magic:x}");
            let data: Vec<_> = found.iter().map(|packet| &packet.data[..]).collect();
            assert_eq!(data, [&b"one"[..], b"", b"cut", b"longer than it was"]);
            let lengths: Vec<_> = found.iter().map(|packet| packet.original_len).collect();
            assert_eq!(lengths, [3, 0, 1514, 2]);
            assert!(found.iter().all(|packet| packet.link_type == 113));
        }
    }
}

#[test]
fn frame_check_sequence_bits_are_no_part_of_the_link_type() {
    let file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 0x2400_0001);
    let reader = CaptureReader::new(&file.bytes[..]).unwrap();
    assert_eq!(reader.interfaces()[0].link_type, 1);
    assert_eq!(reader.interfaces()[0].fcs_bytes, Some(4));
    let file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 0x2000_0001);
    let reader = CaptureReader::new(&file.bytes[..]).unwrap();
    assert_eq!(reader.interfaces()[0].fcs_bytes, None, "the presence bit is clear");
}

/// Tests that NFLOG TLVs have the byte order of the file, and that a record without a packet is returned as it is.
#[test]
fn packets_are_read_without_their_nflog_headers() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut record = File::new(order);
        record.raw(&[2, 0, 0, 5]).u16(6).u16(12).raw(&[7, 7]).raw(&[0; 2]);
        let front = record.bytes.len();
        record.u16(10).u16(9).raw(b"packet").raw(&[0; 2]);
        let whole = record.bytes;
        let mut endless = File::new(order);
        endless.raw(&[2, 0, 0, 5]).u16(3).u16(12).raw(&[0; 8]);
        let records = [&whole, &whole[..front + 7], &whole[..front], &endless.bytes];
        let mut classic = File::pcap(order, 0xa1b2_c3d4, 239);
        let mut blocks = File::new(order);
        blocks.section(|_| {}).interface(239, 0, |_| {});
        for record in records {
            classic.record(1, 0, record, whole.len() as u32);
            blocks.packet(0, 1, record, whole.len() as u32, |_| {});
        }
        for file in [&classic.bytes, &blocks.bytes] {
            let found = packets(file);
            let data: Vec<_> = found.iter().map(|packet| &packet.data[..]).collect();
            assert_eq!(data, [b"packet", &b"pac"[..], &whole[..front], &endless.bytes]);
            let lengths: Vec<_> = found.iter().map(|packet| packet.original_len).collect();
            assert_eq!(lengths, [6, 6, whole.len() as u32, whole.len() as u32]);
            assert!(found.iter().all(|packet| packet.link_type == 101));
        }
    }
}

#[test]
fn pcapng_packets_of_every_block_and_unit_are_read() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = everything(order);
        let found = packets(&file);
        assert_eq!(found.len(), 10);
        assert_eq!(found[..5], found[5..], "both sections hold the same");
        let micro = 1_700_000_000_123_456_000;
        let binary = 1_700_000_000_000_000_000 + ((99 * 1_000_000_000) >> 20);
        let expected = [
            (Some(1_700_000_000_123_456_789), 1, 5, &b"first"[..]),
            (Some(micro), 101, 1514, &[7; 61]),
            (Some(binary), 1, 0, b""),
            (None, 1, 4, b"simp"),
            (Some(((1 << 32) + 2) * 1000), 101, 60, b"older!"),
        ];
        for (found, (timestamp_ns, link_type, original_len, data)) in found.iter().zip(expected) {
            let data = data.to_vec();
            assert_eq!(*found, Seen { timestamp_ns, link_type, original_len, data });
        }
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        assert_eq!((reader.format(), reader.compression()), (Format::Pcapng, Compression::None));
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.interfaces().len(), 3);
        assert_eq!((reader.packets(), reader.offset()), (10, file.len() as u64));
        assert_eq!(reader.file_bytes(), file.len() as u64);
    }
}

#[test]
fn simple_packet_is_cut_at_the_interface_limit() {
    let mut file = File::new(ByteOrder::Big);
    file.section(|_| {}).interface(1, 5, |_| {});
    file.block(3, |block| {
        block.u32(1514).raw(b"12345").pad();
    });
    let found = packets(&file.bytes);
    assert_eq!((&found[0].data[..], found[0].original_len), (&b"12345"[..], 1514));
}

#[test]
fn timestamp_offset_is_applied() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut file = File::new(order);
        file.section(|_| {});
        file.interface(1, 0, |block| {
            block.u16(14).u16(8).u64(1_000_000_000);
        });
        file.packet(0, 7, b"x", 1, |_| {});
        assert_eq!(packets(&file.bytes)[0].timestamp_ns, Some(1_000_000_000_000_007_000));
    }
}

#[test]
fn standard_flags_are_understood_without_our_option() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut file = File::new(order);
        file.section(|_| {}).interface(1, 0, |_| {});
        file.packet(0, 0, b"x", 1, |block| {
            block.u16(2).u16(4).u32(0xa02);
        });
        let mut reader = CaptureReader::new(&file.bytes[..]).unwrap();
        let meta = loop {
            if let Entry::Packet(packet) = reader.next().unwrap().unwrap() {
                break packet.meta();
            }
        };
        assert_eq!(meta.flags, Some(0xa02));
        let offload = meta.offload.unwrap();
        assert!(offload.has_partial_transport);
        assert_eq!(offload.meta.gso, Some(Gso::UNKNOWN));
        assert_eq!(offload.transport, SegmentTransport::Tcp);
    }
}

#[test]
fn damaged_options_leave_the_packet_usable_and_warn() {
    let mut file = File::new(ByteOrder::Little);
    file.section(|_| {}).interface(1, 0, |_| {});
    file.packet(0, 0, b"x", 1, |block| {
        block.u16(2).u16(400).u32(0xa02);
    });
    file.packet(0, 0, b"y", 1, |_| {});
    let mut reader = CaptureReader::new(&file.bytes[..]).unwrap();
    let mut warnings = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            warnings.push((packet.data[0], packet.warning().map(|damage| damage.to_string())));
        }
    }
    let text = "option 2 has 400 bytes, but only 4 bytes are left in the block".to_owned();
    assert_eq!(warnings, [(b'x', Some(text)), (b'y', None)]);
}

#[test]
fn truncated_packets_are_distinguished() {
    let mut file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1);
    file.record(0, 0, b"whole", 5).record(0, 0, b"cut", 4).record(0, 0, b"longer", 1);
    let mut reader = CaptureReader::new(&file.bytes[..]).unwrap();
    let mut cut = Vec::new();
    while let Some(Entry::Packet(packet)) = reader.next().unwrap() {
        cut.push(packet.is_cut());
    }
    assert_eq!(cut, [false, true, false]);
}

#[test]
fn options_of_blocks_are_found() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = everything(order);
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            if let Entry::Block(block) = entry {
                let first = block.options().iter().next();
                found.extend(first.map(|option| (block.kind, option.unwrap().value.to_vec())));
            }
        }
        let section = [
            (0x0a0d_0d0a, b"taken for a test".to_vec()),
            (1, b"eth0".to_vec()),
            (1, b"tun0".to_vec()),
            (1, vec![0x94]),
        ];
        assert_eq!(found.len(), 10);
        assert_eq!(found[..4], section);
        assert_eq!((found[4].0, found[4].1.len()), (5, 8));
        assert_eq!(found[5..9], section);
    }
}

#[test]
fn length_of_a_file_is_known_for_a_progress_bar() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    let file = everything(ByteOrder::Big);
    std::fs::write(&path, &file).unwrap();
    let mut reader = CaptureReader::open(&path).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.file_len(), Some(file.len() as u64));
    assert_eq!(reader.file_bytes(), file.len() as u64);
}
