//! Tests that the reader reports the position of each packet in its original file.

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, Merge, Origin, PacketMeta, WriterOptions,
};

/// Returns a capture of packets with these timestamps. The length of each packet depends on its index.
fn capture(format: Format, times_ns: &[u64]) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::new(format));
    for (place, &time_ns) in times_ns.iter().enumerate() {
        let meta = PacketMeta { timestamp_ns: Some(time_ns), ..PacketMeta::default() };
        writer.write_packet(&meta, &vec![0; 20 + place]).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_packet_s_record_begins_at_its_offset() {
    for (format, header) in [(Format::Pcap, 16), (Format::Pcapng, 28)] {
        let bytes = capture(format, &[1, 2, 3]);
        let mut reader = CaptureReader::new(&bytes[..]).unwrap();
        let mut packets = 0;
        while let Some(entry) = reader.next().unwrap() {
            let Entry::Packet(packet) = entry else { continue };
            packets += 1;
            let Origin { file, number, offset } = packet.origin;
            assert_eq!((file, number), (0, packets));
            let start = offset as usize + header;
            assert_eq!(&bytes[offset as usize..start], &packet.raw()[..header]);
            assert_eq!(&bytes[start..start + packet.data.len()], packet.data);
        }
        assert_eq!(packets, 3);
    }
}

#[test]
fn merged_packets_remember_their_files_and_count_those_left_out() {
    let (one, two) = (capture(Format::Pcap, &[10, 30, 50]), capture(Format::Pcapng, &[20, 40, 60]));
    let readers = [(&one[..], "one"), (&two[..], "two")]
        .map(|(bytes, name)| (CaptureReader::new(bytes).unwrap(), name.to_string()));
    // The second packet in each file is skipped.
    let select: grosso_capture::Select = Box::new(|packet| Ok(packet.number != 2));
    let merge = Merge::new(readers.into(), Some(select), true).unwrap();
    let outcome = merge.outcome();
    outcome.borrow_mut().remember_origins();
    let mut reader = CaptureReader::new(merge).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            let origin = outcome.borrow_mut().next_origin().unwrap();
            let bytes = [&one, &two][origin.file as usize];
            assert!(
                bytes[origin.offset as usize..]
                    .windows(packet.data.len())
                    .any(|w| w == packet.data)
            );
            found.push((origin.file, origin.number, packet.data.len()));
        }
    }
    assert_eq!(found, [(0, 1, 20), (1, 1, 20), (0, 3, 22), (1, 3, 22)]);
    assert_eq!(outcome.borrow_mut().next_origin(), None);
}
