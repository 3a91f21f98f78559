//! Tests reports on superframes, fragments, bad checksums and unusual file names.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use grosso_capture::Format;
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, frames, has, tshark};

/// Returns a pcapng section with one Ethernet interface whose frames end with a four-byte frame check sequence.
fn with_fcs(frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes(), &len, body, &len].concat()
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = [1, 0, 0, 0, 0, 0, 4, 0, 2, 0, 3, 0, b't', b'a', b'p', 0];
    let interface = [&interface[..], &[13, 0, 1, 0, 4, 0, 0, 0], &[0, 0, 0, 0]].concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    for (index, frame) in frames.iter().enumerate() {
        let frame = [&frame[..], &[0xde, 0xad, 0xbe, 0xef]].concat();
        let len = (frame.len() as u32).to_le_bytes();
        let time = [0, 0, 0, 0, index as u8, 0, 0, 0];
        let padding = &[0; 3][..frame.len().wrapping_neg() & 3];
        let body = [&[0; 4][..], &time, &len, &len, &frame, padding].concat();
        file.extend(block(6, &body));
    }
    file
}

#[test]
fn a_known_frame_check_sequence_is_no_part_of_the_frame() {
    let stream = (0..8).map(|index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 1000)).payload_len(1000).build()
    });
    let stream: Vec<Vec<u8>> = stream.collect();
    let bench = Bench::new();
    let mut classic = capture(
        Format::Pcap,
        ETHERNET,
        &stream.iter().map(|frame| [&frame[..], &[1, 2, 3, 4]].concat()).collect::<Vec<_>>(),
    );
    classic[20..24].copy_from_slice(&0x2400_0001_u32.to_le_bytes());
    for (name, bytes) in [("in.pcapng", with_fcs(&stream)), ("in.pcap", classic)] {
        bench.put(name, &bytes);
        let report = bench.ok(&format!("coalesce --json -r {name} -w merged.pcapng")).json();
        assert!(report["superframes"].as_u64().unwrap() > 0, "{name}: {report}");
        bench.ok("segment -r merged.pcapng -w back.pcapng");
        assert!(frames(&bench.get("back.pcapng")) == stream, "{name}");
        // Copies do not declare a frame check sequence, because they have none.
        for copy in ["copy.pcap", "copy.pcapng"] {
            bench.ok(&format!("wire -r {name} -w {copy}"));
            let bytes = bench.get(copy);
            let reader = grosso_capture::CaptureReader::new(&bytes[..]).unwrap();
            assert!(reader.interfaces().iter().all(|i| i.fcs_bytes.unwrap_or(0) == 0), "{copy}");
            assert!(frames(&bytes) == stream, "{name} to {copy}");
        }
    }
}

/// Returns a capture with an Ethernet interface and these packets, each with its original length and flags.
fn with_flags(packets: &[(Vec<u8>, usize, u32)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes(), &len, body, &len].concat()
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &[1, 0, 0, 0, 0, 0, 4, 0])].concat();
    for (index, (frame, original, flags)) in packets.iter().enumerate() {
        let (len, original) = (frame.len() as u32, *original as u32);
        let padding = &[0; 3][..frame.len().next_multiple_of(4) - frame.len()];
        let time = [0, 0, 0, 0, index as u8, 0, 0, 0];
        let lengths = [len.to_le_bytes(), original.to_le_bytes()].concat();
        let flags = [&[2, 0, 4, 0][..], &flags.to_le_bytes(), &[0; 4]].concat();
        file.extend(block(6, &[&[0; 4][..], &time, &lengths, frame, padding, &flags].concat()));
    }
    file
}

/// If a packet's flags specify the length of its frame check sequence, they override the value for the interface.
#[test]
fn a_frame_check_sequence_announced_by_packet_flags_is_excluded_from_the_frame() {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 1000)).payload_len(1000).build()
    };
    let stream: Vec<_> = (0..8).map(frame).collect();
    let inbound_with = |bytes: usize| 1 | (bytes as u32) << 5;
    let packets = stream.iter().enumerate().map(|(index, frame)| {
        let fcs = [4, 2][index % 2];
        let frame = [&frame[..], &[0xa5; 4][..fcs]].concat();
        (frame.clone(), frame.len(), inbound_with(fcs))
    });
    let bench = Bench::new();
    bench.put("in.pcapng", &with_flags(&packets.collect::<Vec<_>>()));
    let report = bench.ok("coalesce --json -r in.pcapng -w merged.pcapng").json();
    assert_eq!(report["superframes"], 1, "{report}");
    for copy in ["copy.pcapng", "copy.pcap"] {
        bench.ok(&format!("wire -r in.pcapng -w {copy}"));
        let bytes = bench.get(copy);
        assert!(frames(&bytes) == stream, "{copy}");
        let mut reader = grosso_capture::CaptureReader::new(&bytes[..]).unwrap();
        while let Some(entry) = reader.next().unwrap() {
            let grosso_capture::Entry::Packet(packet) = entry else { continue };
            // The copy keeps the direction but declares no frame check sequence.
            let expected = if copy.ends_with("ng") { Some(1) } else { None };
            assert_eq!(packet.meta().flags, expected, "{copy}");
        }
    }
}

/// tshark and tcpdump read all captured bytes and keep both lengths, even if the captured length exceeds the original
/// one.
#[test]
fn more_captured_bytes_than_the_packet_had_are_read_and_kept() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(60).build();
    let bench = Bench::new();
    let len = packet.len();
    let file = with_flags(&[(packet.clone(), len - 20, 1), (packet.clone(), len, 1)]);
    bench.put("in.pcapng", &file);
    assert_eq!(bench.ok("csum verify --json in.pcapng").json()["checksums"]["valid"], 2);
    bench.ok("wire -r in.pcapng -w out.pcapng");
    let lengths = |file: &str| {
        let bytes = bench.get(file);
        let mut reader = grosso_capture::CaptureReader::new(&bytes[..]).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            if let grosso_capture::Entry::Packet(packet) = entry {
                found.push((packet.data.len(), packet.original_len as usize));
            }
        }
        found
    };
    assert_eq!(lengths("out.pcapng"), [(len, len - 20), (len, len)]);
    if has("tshark") {
        let read = |file: &str| {
            let mut command = std::process::Command::new("tshark");
            command.args(["-n", "-r"]).arg(bench.path(file)).args(["-T", "fields"]);
            for field in ["frame.len", "frame.cap_len", "udp.length"] {
                command.args(["-e", field]);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let line = |original: usize| format!("{original}\t{len}\t68\n");
        assert_eq!(read("in.pcapng"), line(len - 20) + &line(len));
        assert_eq!(read("out.pcapng"), read("in.pcapng"));
    }
}

/// An IPv6 packet with a payload length of zero extends to the end of its frame, which a truncated capture does not
/// show.
#[test]
fn a_packet_without_a_length_that_was_cut_is_not_called_bad() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp).payload_len(600);
    let mut packet = packet.build();
    packet[18..20].fill(0);
    packet[58..60].fill(0);
    let original = packet.len();
    packet.truncate(100);
    let bench = Bench::new();
    bench.put("in.pcapng", &with_flags(&[(packet, original, 1)]));
    let report = bench.ok("csum verify --json in.pcapng").json();
    assert_eq!(
        (&report["checksums"]["unverifiable"], &report["checksums"]["bad"]),
        (&1.into(), &0.into())
    );
}

/// Returns the link type numbers in a table cell, each with its name if the cell has one.
fn link_types(cell: &str) -> Vec<(u32, Option<String>)> {
    let numbers = cell.split([',', ';']).map(str::trim).map(|item| {
        let (number, name) = item.split_once(' ').unwrap_or((item, ""));
        let name = name.trim_matches(['(', ')', '`']);
        (number.parse().expect("a number"), (!name.is_empty()).then(|| name.to_owned()))
    });
    numbers.collect()
}

/// `docs/capture-formats.md` lists the supported link types, and those whose error message names the type.
#[test]
fn the_table_of_link_types_is_true() {
    let page = include_str!("../../../docs/capture-formats.md");
    let table = page.split("## Link types").nth(1).expect("a section");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let (mut read, mut refused) = (Vec::new(), Vec::new());
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        match cells[3] {
            cell if cell.starts_with("reads") => read.extend(link_types(cells[2])),
            _ if cells[2].is_empty() => {}
            _ => refused.extend(link_types(cells[2])),
        }
    }
    assert!(read.len() >= 13 && refused.len() >= 8, "{read:?} {refused:?}");
    let bench = Bench::new();
    // These bytes are not valid headers of any link type.
    let packet = vec![vec![0xee; 60]];
    for (number, _) in read {
        bench.put("in.pcap", &capture(Format::Pcap, number, &packet));
        bench.ok("wire -r in.pcap -w out.pcap");
        assert!(bench.get("out.pcap").ends_with(&packet[0]), "{number}");
    }
    for (number, name) in refused {
        let name = name.expect("a name");
        bench.put("in.pcap", &capture(Format::Pcap, number, &packet));
        let run = bench.run("wire -r in.pcap -w out.pcap");
        assert_eq!(run.code, 3, "{number}");
        let message = format!("link type {number} ({name}) is not supported");
        assert!(run.stderr.contains(&message), "{message}: {}", run.stderr);
        assert!(bench.get("out.pcap").ends_with(&packet[0]), "{number}");
    }
}

/// Streams in PPP and PPPoE are merged and restored, and tshark reads the same packets before and after.
#[test]
fn ppp_and_pppoe_are_read_as_link_types() {
    const PPP: u32 = 9;
    const PPP_HDLC: u32 = 50;
    const PPP_ETHER: u32 = 51;
    let packet = |index: u32| {
        let packet = Packet::new().ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 1000)).payload_len(1000).build()
    };
    let session =
        |len: usize| [&[0x11, 0, 0, 7][..], &(len as u16 + 2).to_be_bytes(), &[0, 0x21]].concat();
    let cases: [(u32, Vec<u8>); 4] = [
        (PPP, vec![0xff, 3, 0, 0x21]),
        (PPP, vec![0x21]),
        (PPP_HDLC, vec![0xff, 3, 0, 0x21]),
        (PPP_ETHER, session(packet(0).len())),
    ];
    for (link, front) in cases {
        let stream: Vec<_> = (0..6).map(|index| [&front[..], &packet(index)].concat()).collect();
        let bench = Bench::new();
        bench.put("in.pcapng", &capture(Format::Pcapng, link, &stream));
        let report = bench.ok("coalesce --json -r in.pcapng -w merged.pcapng").json();
        assert_eq!(report["superframes"], 1, "{link}: {report}");
        bench.ok("segment -r merged.pcapng -w back.pcapng");
        assert!(frames(&bench.get("back.pcapng")) == stream, "{link}");
        assert_eq!(bench.ok("csum verify --json in.pcapng").json()["checksums"]["valid"], 6);
        if has("tshark") {
            let found = tshark(&bench.path("in.pcapng"), "tcp.seq_raw");
            assert_eq!(found.len(), 6, "{link}: {front:?}");
        }
    }
}

/// A stream whose packets have NFLOG headers is merged and restored as raw IP, and tshark reads the same packets before
/// and after.
#[test]
fn nflog_is_read_as_raw_ip() {
    const NFLOG: u32 = 239;
    const RAW: u32 = 101;
    let packet = |index: u32| {
        let packet = Packet::new().ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 1001)).payload_len(1001).build()
    };
    let stream: Vec<_> = (0..6).map(packet).collect();
    let logged = |packet: &Vec<u8>| {
        let tlv = |kind: u16, value: &[u8]| {
            let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
            let length = (value.len() as u16 + 4).to_le_bytes();
            [&length[..], &kind.to_le_bytes(), value, &padding].concat()
        };
        let hook = tlv(1, &[8, 0, 1, 0]);
        [&[2, 0, 0, 5][..], &hook, &tlv(10, b"dropped\0"), &tlv(9, packet)].concat()
    };
    let records: Vec<_> = stream.iter().map(logged).collect();
    for format in [Format::Pcap, Format::Pcapng] {
        let bench = Bench::new();
        bench.put("in", &capture(format, NFLOG, &records));
        let report = bench.ok("coalesce --json -r in -w merged.pcapng").json();
        assert_eq!(report["superframes"], 1, "{report}");
        bench.ok("segment -r merged.pcapng -w back");
        bench.ok("wire -r in -w copy");
        for name in ["back", "copy"] {
            let copy = bench.get(name);
            assert!(frames(&copy) == stream, "{name}");
            let reader = grosso_capture::CaptureReader::new(&copy[..]).unwrap();
            assert!(reader.interfaces().iter().all(|it| it.link_type == RAW), "{name}");
        }
        assert_eq!(bench.ok("csum verify --json in").json()["checksums"]["valid"], 6);
        if has("tshark") {
            // The first field is the frame length, which differs between the captures.
            let read = |name| -> Vec<String> {
                let lines = tshark(&bench.path(name), "tcp.seq_raw");
                lines.iter().map(|line| line.split_once("Seq=").unwrap().1.to_owned()).collect()
            };
            assert_eq!(read("in"), read("copy"));
            assert_eq!(read("in").len(), 6);
        }
    }
}

/// Returns a TCP superframe as it is captured on the sender.
fn superframe() -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).tcp(|t| t.timestamps(1, 1));
    packet.payload_len(4 * 1448).build_superframe().0
}

#[test]
fn explain_calls_a_superframe_one() {
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[superframe(), superframe()]));
    let text = bench.ok("explain in.pcap 1").stdout;
    assert!(text.contains("already a superframe"), "{text}");
    assert!(!text.contains("untrusted"), "{text}");
}

#[test]
fn explain_shows_the_addresses_of_a_fragment() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| {
        ip.source([192, 0, 2, 1]).destination([192, 0, 2, 2]).protocol(17).fragment_offset(4)
    });
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[packet.payload(&[1; 64]).build()]));
    let report = bench.ok("explain --json in.pcap 1").json();
    assert_eq!(report["packet"]["endpoints"], "192.0.2.1 > 192.0.2.2", "{report}");
}

#[test]
fn inspect_counts_one_set_of_fragments_in_the_singular() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.protocol(17).fragment_offset(4));
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[packet.payload(&[1; 64]).build()]));
    let text = bench.run("inspect in.pcap").stdout;
    assert!(text.contains(" 1 set, 1 incomplete"), "{text}");
}

#[test]
fn inspect_does_not_guess_the_number_of_udp_packets_of_unknown_size() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(20_000);
    let frames = vec![packet.build_superframe().0; 3];
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &frames));
    let text = bench.run("inspect in.pcap").stdout;
    assert!(text.contains("wire packet count unknown"), "{text}");
    let run = bench.run("wire -r in.pcap -w out.pcap");
    assert!(run.stderr.contains("--uso-size BYTES"), "{}", run.stderr);
}

#[test]
fn inspect_does_not_deny_damage_beside_partial_checksums() {
    let bench = Bench::new();
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    let partial = plain.clone().build_partial().0;
    let mut bad = plain.build();
    *bad.last_mut().unwrap() ^= 1;
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[partial, bad]));
    let text = bench.run("inspect in.pcap").stdout;
    assert!(text.contains("some checksums are bad"), "{text}");
    assert!(!text.contains("No corruption"), "{text}");
}

#[test]
fn file_names_need_not_be_utf_8() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[packet.build()]));
    let name = OsStr::from_bytes(b"caf\xe9.pcap");
    std::fs::rename(bench.path("in.pcap"), bench.path("").join(name)).unwrap();
    let run = bench.command("inspect").arg(name).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_file_of_unsupported_compression_does_not_refuse_its_directory() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    std::fs::create_dir(bench.path("ring")).unwrap();
    bench.put("ring/a.pcap", &capture(Format::Pcap, ETHERNET, &[packet.build()]));
    bench.put("ring/b.pcap.xz", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46");
    let run = bench.ok("inspect ring");
    assert!(run.stderr.contains("b.pcap.xz"), "{}", run.stderr);
    assert!(run.stderr.contains("1 file skipped"), "{}", run.stderr);
    let warnings = bench.ok("inspect --json ring").json()["warnings"].to_string();
    assert!(warnings.contains("b.pcap.xz"), "{warnings}");
    // A file that is named explicitly is refused, not skipped.
    assert_eq!(bench.run("inspect ring/b.pcap.xz").code, 3);
}
