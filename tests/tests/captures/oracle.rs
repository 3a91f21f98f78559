//! Tests that other readers and tools agree with Grosso's reader, and preserve the output of its writer.

use std::path::Path;
use std::process::Command;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::collection::vec;
use proptest::prelude::*;

use grosso::{
    checksum::Checksum,
    meta::{Gso, Meta},
};
use grosso_capture::{
    ByteOrder, CaptureError, CaptureReader, CaptureWriter, Entry, Format, Interface, Offload,
    PacketMeta, Resolution, SegmentTransport, WriterOptions,
};

use super::packets::{Seen, packets};

/// Reads the packets of a pcap file with the crate `pcap-file`.
fn pcap_of_oracle(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = PcapReader::with_capacity(bytes, 1 << 20).expect("a pcap file");
    let link_type = u32::from(reader.header().datalink);
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a sound packet");
        packets.push(Seen {
            timestamp_ns: Some(packet.timestamp().as_nanos() as u64),
            link_type,
            original_len: packet.orig_len(),
            data: packet.data().to_vec(),
        });
    }
    packets
}

/// Reads the packets of a pcapng file with the crate `pcap-file`.
fn pcapng_of_oracle(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = PcapNgReader::with_capacity(bytes, 1 << 20).expect("a pcapng file");
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        let (block, state) = block.expect("a sound block");
        if let Block::EnhancedPacket(packet) = block {
            let interface = &state.interfaces()[packet.interface_id as usize];
            packets.push(Seen {
                timestamp_ns: Some(packet.timestamp.as_nanos() as u64),
                link_type: u32::from(interface.linktype),
                original_len: packet.original_len,
                data: packet.data.to_vec(),
            });
        }
    }
    packets
}

fn any_packets() -> impl Strategy<Value = Vec<(u64, u32, Vec<u8>)>> {
    let time = 0_u64..4_000_000_000_000_000_000;
    vec((time, 0_u32..2000, vec(any::<u8>(), 0..200)), 0..20)
}

fn written(options: WriterOptions, given: &[(u64, u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for (time, cut, data) in given {
        let meta = PacketMeta {
            timestamp_ns: Some(*time),
            original_len: data.len() as u32 + cut,
            flags: Some(1),
            ..PacketMeta::default()
        };
        writer.write_packet(&meta, data).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn pcap_file_crate_reads_what_we_write_as_we_do(
        given in any_packets(),
        big: bool,
        nanoseconds: bool,
        pcapng: bool,
    ) {
        let mut options =
            WriterOptions::new(if pcapng { Format::Pcapng } else { Format::Pcap });
        options.order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let unit = if nanoseconds { 1 } else { 1000 };
        options.interface.resolution =
            if nanoseconds { Resolution::NANOSECONDS } else { Resolution::MICROSECONDS };
        let file = written(options, &given);
        let oracle = if pcapng { pcapng_of_oracle(&file) } else { pcap_of_oracle(&file) };
        prop_assert_eq!(&packets(&file), &oracle);
        prop_assert_eq!(oracle.len(), given.len());
        for (seen, (time, cut, data)) in oracle.iter().zip(&given) {
            prop_assert_eq!(seen.timestamp_ns, Some(time / unit * unit));
            prop_assert_eq!(seen.original_len, data.len() as u32 + cut);
            prop_assert_eq!(&seen.data, data);
        }
    }
}

/// Runs one of Wireshark's tools; `None` when it is not installed.
fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(name).args(arguments).output() else {
        println!("skipped: {name} is not installed");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {errors}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Returns two interfaces, and packets with every kind of metadata.
fn annotated(order: ByteOrder) -> (Vec<u8>, Vec<PacketMeta>) {
    let mut options = WriterOptions::new(Format::Pcapng);
    options.order = order;
    options.comments = vec!["grosso wire -r send.pcap".into(), "sha256 0123".into()];
    let mut writer = CaptureWriter::new(Vec::new(), options);
    writer.add_interface(&Interface::new(1)).unwrap();
    let micro = Interface { resolution: Resolution::MICROSECONDS, ..Interface::new(101) };
    writer.add_interface(&micro).unwrap();
    let gso = Gso::every(1448).map(|gso| Gso { segments: 2, ..gso });
    let checksum = Checksum::Partial { start: 34, offset: 16 };
    let partial = Meta { checksum, ..Meta::default() };
    let verified = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
    let metas = [
        (0, Some(0x2), None),
        (1, None, Some(Offload::new(&partial))),
        (
            0,
            Some(0x1),
            Some(Offload {
                transport: SegmentTransport::Tcp,
                arrivals_ns: vec![1200],
                ..Offload::new(&Meta { gso, hash: Some(7), ..partial })
            }),
        ),
        (0, None, Some(Offload::new(&verified))),
    ];
    let metas: Vec<_> = metas
        .into_iter()
        .zip(0..)
        .map(|((interface, flags, offload), number)| PacketMeta {
            timestamp_ns: Some(1_700_000_000_123_456_000 + number * 1_000_000),
            interface,
            original_len: 1514,
            flags,
            offload,
        })
        .collect();
    for meta in &metas {
        // The third length is odd, so there is padding.
        writer.write_packet(meta, &[0x42; 61]).unwrap();
    }
    (writer.finish().unwrap(), metas)
}

fn metas(bytes: &[u8]) -> Vec<PacketMeta> {
    let mut reader = CaptureReader::new(bytes).unwrap();
    let mut metas = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            assert_eq!(packet.data, [0x42; 61]);
            metas.push(packet.meta());
        }
    }
    metas
}

#[test]
fn tshark_sees_lengths_times_interfaces_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("annotated.pcapng");
    for order in [ByteOrder::Little, ByteOrder::Big] {
        std::fs::write(&path, annotated(order).0).unwrap();
        let mut arguments = vec!["-n", "-r", text(&path), "-T", "fields"];
        let fields = ["frame.time_epoch", "frame.interface_id", "frame.cap_len", "frame.len"];
        for field in fields.into_iter().chain(["frame.packet_flags"]) {
            arguments.extend(["-e", field]);
        }
        let Some(seen) = tool("tshark", &arguments) else { return };
        let expected = "\
            1700000000.123456000\t0\t61\t1514\t0x00000002\n\
            1700000000.124456000\t1\t61\t1514\t0x00000200\n\
            1700000000.125456000\t0\t61\t1514\t0x00000a01\n\
            1700000000.126456000\t0\t61\t1514\t0x00000400\n";
        assert_eq!(seen, expected, "{order:?}");
    }
}

#[test]
fn metadata_survives_editcap_and_mergecap() {
    let folder = tempfile::tempdir().unwrap();
    let [before, edited, merged] =
        ["before", "edited", "merged"].map(|name| folder.path().join(name));
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let (file, given) = annotated(order);
        std::fs::write(&before, &file).unwrap();
        let expected = metas(&file);
        assert_eq!(expected.len(), given.len());
        for (found, given) in expected.iter().zip(&given) {
            assert_eq!(found.offload, given.offload, "{order:?}");
        }
        let files = [text(&before), text(&edited)];
        if tool("editcap", &["-F", "pcapng", files[0], files[1]]).is_none() {
            return;
        }
        assert_eq!(metas(&std::fs::read(&edited).unwrap()), expected, "{order:?}");
        if tool("mergecap", &["-F", "pcapng", "-w", text(&merged), files[0]]).is_none() {
            return;
        }
        assert_eq!(metas(&std::fs::read(&merged).unwrap()), expected, "{order:?}");
    }
}

#[test]
fn capinfos_counts_what_we_write_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    let given: Vec<_> = (0..7).map(|at| (at, 0, vec![1; at as usize])).collect();
    for (format, name) in [(Format::Pcap, "nsecpcap"), (Format::Pcapng, "pcapng")] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut options = WriterOptions::new(format);
            options.order = order;
            std::fs::write(&path, written(options, &given)).unwrap();
            let arguments = ["-T", "-r", "-m", "-t", "-c", "-d", text(&path)];
            let Some(seen) = tool("capinfos", &arguments) else { return };
            let columns: Vec<_> = seen.trim_end().split(',').collect();
            assert_eq!(columns[1..], [name, "7", "21"], "{order:?}: {seen}");
        }
    }
}

#[test]
fn files_that_editcap_writes_are_read_and_copied_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    std::fs::write(&before, annotated(ByteOrder::NATIVE).0).unwrap();
    let names = [text(&before), text(&after)];
    if tool("editcap", &["-F", "pcapng", "-a", "2:a comment", names[0], names[1]]).is_none() {
        return;
    }
    let file = std::fs::read(&after).unwrap();
    let mut reader = CaptureReader::open(&after).unwrap();
    let mut writer = CaptureWriter::new(Vec::new(), WriterOptions::like(&reader));
    while let Some(entry) = reader.next().unwrap() {
        writer.copy(&entry).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), file);
}

#[test]
fn relatives_of_pcap_that_editcap_writes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    std::fs::write(&before, written(WriterOptions::new(Format::Pcap), &[(1, 0, vec![1])])).unwrap();
    for format in ["modpcap", "suse6_3pcap"] {
        if tool("editcap", &["-F", format, text(&before), text(&after)]).is_none() {
            return;
        }
        let refused = CaptureReader::open(&after).unwrap_err();
        assert!(matches!(refused, CaptureError::UnsupportedFormat { .. }), "{format}: {refused}");
    }
}
