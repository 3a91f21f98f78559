//! Round trips: unchanged entries are copied verbatim, changed packets keep their metadata.

use grosso::checksum::Checksum;
use grosso::meta::{Cwr, Gso, IpLevels, Meta, VlanTag};
use grosso_capture::options::{Options, push_option};
use grosso_capture::{
    ByteOrder, CaptureError, CaptureReader, CaptureWriter, Entry, Format, Interface, Misfit,
    Offload, PacketMeta, Resolution, SegmentTransport, TunnelPort, WriterOptions,
};
use grosso_wire::Kind;

use super::build::{File, everything};
use super::packets::packets;

fn copy(bytes: &[u8], change: impl FnOnce(&mut WriterOptions)) -> Result<Vec<u8>, CaptureError> {
    let mut reader = CaptureReader::new(bytes)?;
    let mut options = WriterOptions::like(&reader);
    change(&mut options);
    let mut writer = CaptureWriter::new(Vec::new(), options);
    while let Some(entry) = reader.next()? {
        writer.copy(&entry)?;
    }
    writer.finish()
}

#[test]
fn pcapng_copy_is_byte_identical() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = everything(order);
        assert_eq!(copy(&file, |_| {}).unwrap(), file, "{order:?}");
    }
}

#[test]
fn pcap_copy_is_byte_identical() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            // Fields that Grosso does not interpret are also preserved: the time zone, and a fraction that exceeds one
            // second.
            let mut file = File::new(order);
            file.u32(magic).u16(2).u16(4).u32(3600).u32(6).u32(96).u32(1);
            file.record(1, 2_000_000_000, b"data", 1).record(2, 0, b"", 7);
            assert_eq!(copy(&file.bytes, |_| {}).unwrap(), file.bytes);
            assert_eq!(copy(&file.bytes[..24], |_| {}).unwrap(), &file.bytes[..24], "no packets");
        }
    }
}

// A frame check sequence becomes invalid when its packet is merged, split or repaired.
#[test]
fn a_frame_check_sequence_of_known_length_is_not_copied() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = |network, data: &[u8]| {
            let mut file = File::pcap(order, 0xa1b2_c3d4, network);
            file.record(1, 2, data, data.len() as u32);
            file.bytes
        };
        let copied = copy(&file(0x2400_0001, b"data+fcs"), |_| {}).unwrap();
        assert_eq!(copied, file(1, b"data"), "{order:?}");
    }
}

#[test]
fn pcap_of_a_version_before_2_4_is_read_and_copied_as_2_4() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = |minor: u16, lengths: [u32; 2]| {
            let mut file = File::new(order);
            file.u32(0xa1b2_c3d4).u16(2).u16(minor).u32(3600).u32(2).u32(1600).u32(1);
            // A timestamp later than any that a new record can contain.
            file.record(1, 2, b"whole", 5)
                .u32(u32::MAX)
                .u32(u32::MAX)
                .u32(lengths[0])
                .u32(lengths[1]);
            file.raw(b"cut");
            file.bytes
        };
        let today = file(4, [3, 1514]);
        // Writers of format version 2.3 stored the two lengths in either order.
        let old = [(0, [1514, 3]), (1, [1514, 3]), (2, [1514, 3]), (3, [1514, 3]), (3, [3, 1514])];
        for (minor, lengths) in old {
            let copied = copy(&file(minor, lengths), |_| {}).unwrap();
            assert_eq!(copied, today, "version 2.{minor} {order:?}");
        }
    }
}

#[test]
fn section_length_becomes_unknown_and_comments_are_added_to_the_first_section() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let section = |file: &mut File, length: u64, comments: &[&[u8]]| {
            file.block(0x0a0d_0d0a, |block| {
                block.u32(0x1a2b_3c4d).u16(1).u16(2).u64(length);
                block.option(4, b"dumpcap");
                for comment in comments {
                    block.option(1, comment);
                }
                block.option(0, b"");
            });
            file.interface(1, 0, |_| {});
        };
        let mut file = File::new(order);
        section(&mut file, 20, &[b"old"]);
        section(&mut file, 20, &[]);
        let mut expected = File::new(order);
        section(&mut expected, u64::MAX, &[b"old", b"grosso wire -r a -w b", b"sha256 00"]);
        section(&mut expected, u64::MAX, &[]);
        let copied = copy(&file.bytes, |options| {
            options.comments = vec!["grosso wire -r a -w b".into(), "sha256 00".into()];
        });
        assert_eq!(copied.unwrap(), expected.bytes, "{order:?}");
    }
}

#[test]
fn pcap_becomes_pcapng_and_back_without_a_difference() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let mut file = File::pcap(order, magic, 113);
            file.record(1_700_000_000, 123_456, b"data!", 1514).record(0, 0, b"", 0);
            let pcapng = copy(&file.bytes, |options| options.format = Format::Pcapng).unwrap();
            assert_eq!(CaptureReader::new(&pcapng[..]).unwrap().format(), Format::Pcapng);
            assert_eq!(packets(&pcapng), packets(&file.bytes));
            let back = copy(&pcapng, |options| {
                options.format = Format::Pcap;
                options.order = order;
            });
            assert_eq!(back.unwrap(), file.bytes);
        }
    }
}

/// Copies the packets of several files into one, without other blocks.
fn join(files: &[&[u8]], options: WriterOptions) -> Result<Vec<u8>, CaptureError> {
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for file in files {
        let mut reader = CaptureReader::new(*file)?;
        while let Some(entry) = reader.next()? {
            if let Entry::Packet(_) = entry {
                writer.copy(&entry)?;
            }
        }
    }
    writer.finish()
}

#[test]
fn copy_has_the_link_type_that_it_is_given() {
    let typed = |options: &mut WriterOptions| options.link_type = Some(101);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let pcap = |link: u32| {
            let mut file = File::pcap(order, 0xa1b2_c3d4, link);
            file.record(1, 2, b"data", 4);
            file.bytes
        };
        assert_eq!(copy(&pcap(147), typed).unwrap(), pcap(101), "{order:?}");
        assert_eq!(copy(&pcap(147)[..24], typed).unwrap(), pcap(101)[..24], "no packets");
        let pcapng = |links: [u16; 2]| {
            let mut file = File::new(order);
            file.section(|_| {});
            for link in links {
                file.interface(link, 0, |_| {});
            }
            file.bytes
        };
        assert_eq!(copy(&pcapng([147, 1]), typed).unwrap(), pcapng([101; 2]), "{order:?}");
        for format in [Format::Pcap, Format::Pcapng] {
            let other = |options: &mut WriterOptions| {
                typed(options);
                options.format = format;
            };
            for file in [pcap(147), everything(order)] {
                let copied = copy(&file, other).unwrap();
                let reader = &mut CaptureReader::new(&copied[..]).unwrap();
                while reader.next().unwrap().is_some() {}
                let interfaces = reader.interfaces();
                assert!(interfaces.iter().all(|interface| interface.link_type == 101));
                assert_eq!(packets(&copied).len(), packets(&file).len());
            }
        }
    }
}

#[test]
fn captures_of_different_interfaces_are_joined_without_confusing_them() {
    let mut first = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1);
    first.record(1, 999_999, b"ethernet", 8);
    let mut second = File::pcap(ByteOrder::Big, 0xa1b2_3c4d, 101);
    second.record(2, 999_999_999, b"raw", 3);
    let third = everything(ByteOrder::Big);
    let files = [&first.bytes[..], &second.bytes, &third, &first.bytes];
    let joined = join(&files, WriterOptions::new(Format::Pcapng)).unwrap();
    let expected = files.map(packets).concat();
    let mut found = packets(&joined);
    // A simple packet whose interface gets another number becomes an enhanced packet, with time 0.
    for (found, expected) in found.iter_mut().zip(&expected) {
        if expected.timestamp_ns.is_none() && found.timestamp_ns == Some(0) {
            found.timestamp_ns = None;
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn pcap_files_of_other_orders_and_units_are_joined() {
    let mut first = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 1);
    first.record(1, 2, b"one", 3);
    let mut options = WriterOptions::like(&CaptureReader::new(&first.bytes[..]).unwrap());
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let mut second = File::pcap(order, magic, 1);
            second.record(3, 4, b"two", 60);
            let joined = join(&[&first.bytes, &second.bytes], options.clone()).unwrap();
            let expected = [packets(&first.bytes), packets(&second.bytes)].concat();
            assert_eq!(packets(&joined), expected, "{order:?} {magic:#x}");
        }
    }
    let mut other = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 101);
    other.record(3, 4, b"two", 60);
    let files = [&first.bytes[..], &other.bytes];
    let refused = join(&files, options.clone()).unwrap_err();
    let what = Misfit::SecondLinkType { first: 1, other: 101 };
    assert!(matches!(refused, CaptureError::Unwritable { what: found } if found == what));
    options.format = Format::Pcapng;
    let expected = [packets(files[0]), packets(files[1])].concat();
    assert_eq!(packets(&join(&files, options).unwrap()), expected);
}

#[test]
fn pcapng_files_of_other_orders_are_joined_with_a_section_for_each() {
    let [little, big] = [ByteOrder::Little, ByteOrder::Big].map(|order| {
        let mut file = File::new(order);
        file.section(|_| {}).interface(1, 9, |_| {});
        file.packet(0, 77, b"data", 9, |block| {
            block.u16(2).u16(4).u32(1);
        });
        file.bytes
    });
    let files = [&little[..], &big, &little];
    let joined = join(&files, WriterOptions::new(Format::Pcapng)).unwrap();
    assert_eq!(packets(&joined), files.map(packets).concat());
}

#[test]
fn interfaces_of_one_section_are_forgotten_in_the_next() {
    let mut file = File::new(ByteOrder::Big);
    file.section(|_| {}).interface(1, 1, |_| {}).interface(1, 2, |_| {});
    file.packet(1, 0, b"one", 3, |_| {});
    file.section(|_| {}).interface(1, 2, |_| {}).packet(0, 0, b"two", 3, |_| {});
    assert_eq!(copy(&file.bytes, |_| {}).unwrap(), file.bytes);
}

#[test]
fn changed_packet_has_its_offload_option_replaced() {
    let offload = |hash| Some(Offload::new(&Meta { hash: Some(hash), ..Meta::default() }));
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let meta = PacketMeta { offload: offload(1), ..PacketMeta::default() };
    writer.write_packet(&meta, b"before").unwrap();
    let before = writer.finish().unwrap();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let mut reader = CaptureReader::new(&before[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            assert_eq!(packet.original_len, 6, "never shorter than the captured bytes");
            let meta = PacketMeta { offload: offload(2), ..packet.meta() };
            writer.write_packet_with(&meta, b"after", &packet.options()).unwrap();
        }
    }
    let after = writer.finish().unwrap();
    let mut reader = CaptureReader::new(&after[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            assert_eq!(packet.meta().offload, offload(2));
            assert_eq!(packet.options().iter().count(), 1);
        }
    }
}

#[test]
fn empty_captures_are_captures() {
    for format in [Format::Pcap, Format::Pcapng] {
        let file = CaptureWriter::new(Vec::new(), WriterOptions::new(format)).finish().unwrap();
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        assert_eq!(reader.format(), format);
        while let Some(entry) = reader.next().unwrap() {
            assert!(matches!(entry, Entry::Block(_)));
        }
        assert_eq!(reader.packets(), 0);
    }
}

#[test]
fn offload_metadata_round_trips_and_sets_the_standard_flags() {
    let offload = Offload {
        meta: Meta {
            checksum: Checksum::Partial { start: 34, offset: 16 },
            gso: Gso::every(1448).map(|gso| Gso {
                segments: 3,
                fixed_ids: IpLevels::from_bits(2),
                cwr: Cwr::Every,
                partial_members: true,
                ..gso
            }),
            vlan: Some(VlanTag { protocol: 0x8100, tci: 42 }),
            hash: Some(0xdead_beef),
            ..Meta::default()
        },
        has_partial_transport: false,
        transport: SegmentTransport::Tcp,
        parts: Vec::new(),
        arrivals_ns: vec![1000, 4_000_000_000],
        tunnel_ports: vec![TunnelPort::new(Kind::Vxlan, 8472), TunnelPort::fou(5555, 47)],
    };
    let meta = PacketMeta {
        timestamp_ns: Some(1_700_000_000_123_456_789),
        interface: 0,
        original_len: 4000,
        flags: Some(0x1),
        offload: Some(offload),
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut options = WriterOptions::new(Format::Pcapng);
        options.order = order;
        let mut writer = CaptureWriter::new(Vec::new(), options);
        writer.write_packet(&meta, &[1; 3999]).unwrap();
        let file = writer.finish().unwrap();
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let found = loop {
            if let Entry::Packet(packet) = reader.next().unwrap().unwrap() {
                assert_eq!(packet.data, [1; 3999]);
                break packet.meta();
            }
        };
        assert_eq!(found.flags, Some(0xa01));
        assert_eq!(PacketMeta { flags: meta.flags, ..found }, meta);
    }
}

#[test]
fn changed_packet_keeps_the_options_that_stay_true() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let file = everything(order);
        let mut reader = CaptureReader::new(&file[..]).unwrap();
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::like(&reader));
        while let Some(entry) = reader.next().unwrap() {
            match entry {
                Entry::Packet(packet) if packet.data.len() == 61 => {
                    let mut meta = packet.meta();
                    let checksum = Checksum::Unnecessary { levels: 1 };
                    meta.offload = Some(Offload::new(&Meta { checksum, ..Meta::default() }));
                    writer.write_packet_with(&meta, &[8; 62], &packet.options()).unwrap();
                }
                entry => writer.copy(&entry).unwrap(),
            }
        }
        let changed = writer.finish().unwrap();
        let mut reader = CaptureReader::new(&changed[..]).unwrap();
        let mut seen = 0;
        while let Some(entry) = reader.next().unwrap() {
            let Entry::Packet(packet) = entry else { continue };
            if packet.data.len() != 62 {
                continue;
            }
            seen += 1;
            assert_eq!(packet.data, [8; 62]);
            assert_eq!((packet.original_len, packet.interface), (1514, 1));
            assert_eq!(packet.timestamp_ns, Some(1_700_000_000_123_456_000));
            let codes: Vec<_> = packet.options().iter().map(|o| o.unwrap().code).collect();
            assert_eq!(codes, [1, 2989, 2, 2989], "no hash, nothing that must not be copied");
            let meta = packet.meta();
            assert_eq!(meta.flags, Some(0x401));
            let checksum = meta.offload.unwrap().meta.checksum;
            assert_eq!(checksum, Checksum::Unnecessary { levels: 1 });
        }
        assert_eq!(seen, 2);
        let (before, after) = (packets(&file), packets(&changed));
        assert_eq!(before.len(), after.len());
        let same = before.iter().zip(&after).filter(|(before, after)| before == after).count();
        assert_eq!(same, before.len() - 2);
    }
}

#[test]
fn unknown_version_of_our_option_is_kept_verbatim_and_ignored() {
    let mut value = 32_473_u32.to_le_bytes().to_vec();
    value.extend_from_slice(b"GROSSO\0\x02and more");
    let mut file = File::new(ByteOrder::Little);
    file.section(|_| {}).interface(1, 0, |_| {});
    file.packet(0, 0, b"x", 1, |block| {
        block.option(2989, &value);
    });
    let mut reader = CaptureReader::new(&file.bytes[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            assert_eq!(packet.meta().offload, None);
        }
    }
    assert_eq!(copy(&file.bytes, |_| {}).unwrap(), file.bytes);
}

#[test]
fn options_of_the_other_byte_order_keep_only_comments() {
    let mut bytes = Vec::new();
    push_option(&mut bytes, ByteOrder::Big, 1, b"a comment");
    push_option(&mut bytes, ByteOrder::Big, 5, &[0, 0, 0, 0, 0, 0, 0, 1]);
    let mut options = WriterOptions::new(Format::Pcapng);
    options.order = ByteOrder::Little;
    let mut writer = CaptureWriter::new(Vec::new(), options);
    let foreign = Options::new(&bytes, ByteOrder::Big);
    writer.write_packet_with(&PacketMeta::default(), b"x", &foreign).unwrap();
    let file = writer.finish().unwrap();
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            let found: Vec<_> = packet.options().iter().map(Result::unwrap).collect();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].code, found[0].value), (1, &b"a comment"[..]));
        }
    }
}

#[test]
fn several_interfaces_keep_their_units() {
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcapng));
    let time = 1_700_000_000_123_456_789;
    for (link_type, byte) in [(1, 9), (101, 6), (1, 0x80 | 10)] {
        let resolution = Resolution::from_byte(byte);
        let interface =
            Interface { resolution, offset_seconds: 1_000_000_000, ..Interface::new(link_type) };
        let number = writer.add_interface(&interface).unwrap();
        let meta =
            PacketMeta { timestamp_ns: Some(time), interface: number, ..PacketMeta::default() };
        writer.write_packet(&meta, b"data").unwrap();
    }
    let file = writer.finish().unwrap();
    let found = packets(&file);
    let times: Vec<_> = found.iter().map(|packet| packet.timestamp_ns.unwrap()).collect();
    assert_eq!(times[..2], [time, time - 789]);
    assert!(times[2].abs_diff(time) <= 500_000, "half a tick of 2^-10 seconds: {}", times[2]);
    assert_eq!(found[1].link_type, 101);
}

#[test]
fn what_pcap_cannot_hold_is_refused_by_name() {
    let refusal = |error: CaptureError| match error {
        CaptureError::Unwritable { what } => what,
        other => panic!("{other}"),
    };
    let file = everything(ByteOrder::Little);
    let refused = copy(&file, |options| options.format = Format::Pcap).unwrap_err();
    assert_eq!(refusal(refused), Misfit::SecondLinkType { first: 1, other: 101 });

    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(Format::Pcap));
    let late = PacketMeta { timestamp_ns: Some(5_000_000_000_000_000_000), ..Default::default() };
    let refused = writer.write_packet(&late, b"x").unwrap_err();
    assert_eq!(refusal(refused), Misfit::TimestampTooLate { seconds: 5_000_000_000 });
    let unknown = PacketMeta { interface: 4, ..PacketMeta::default() };
    let refused = writer.write_packet(&unknown, b"x").unwrap_err();
    assert_eq!(refusal(refused), Misfit::UnknownInterface { interface: 4, declared: 1 });
    let refused = writer.write_packet(&PacketMeta::default(), &vec![0; 16 << 20]).unwrap_err();
    assert_eq!(refusal(refused), Misfit::PacketTooLong { bytes: 16 << 20 });
}

#[test]
fn packets_beyond_64_kilobytes_and_beyond_the_buffer_round_trip() {
    for format in [Format::Pcap, Format::Pcapng] {
        let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(format));
        let sizes = [65_535, 65_536, 512 << 10, (1 << 20) + 3, (16 << 20) - 64];
        for size in sizes {
            let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            writer.write_packet(&PacketMeta::default(), &data).unwrap();
        }
        let counted = writer.bytes();
        let file = writer.finish().unwrap();
        assert_eq!(counted, file.len() as u64, "buffered bytes are counted too");
        let found = packets(&file);
        assert_eq!(found.len(), sizes.len());
        for (packet, size) in found.iter().zip(sizes) {
            assert_eq!(packet.data.len(), size);
            assert!(packet.data.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        }
    }
}
