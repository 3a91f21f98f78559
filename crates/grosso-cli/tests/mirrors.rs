//! Tests `decap` on mirroring, mobile-network and MPLS tunnels, on reserved bits, and on packets that the snap length
//! truncated.

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, Interface, PacketMeta, WriterOptions,
};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, frames, has};

/// Returns an Ethernet frame that contains a packet.
fn inner() -> Vec<u8> {
    Packet::new()
        .ethernet(|e| e)
        .vlan(|v| v)
        .ipv4(|ip| ip.id(7))
        .tcp(|t| t.sequence(9))
        .payload_len(300)
        .build()
}

/// Returns an IP packet.
fn packet() -> Vec<u8> {
    inner()[18..].to_vec()
}

/// Returns an IPv4 frame with this protocol.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.protocol(protocol)).payload(payload).build()
}

/// Returns an Ethernet frame with a datagram to `port`.
fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp.destination_port(port));
    packet.payload(payload).build()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Returns an IP packet after an Ethernet header, as in the capture.
fn on_ethernet(packet: &[u8]) -> Vec<u8> {
    joined(&[&ipv4(4, &[])[..14], packet])
}

/// Returns the fields that tshark finds in every packet of a file, outermost first.
fn dissected(bench: &Bench, file: &str) -> Vec<Vec<Vec<String>>> {
    let mut command = std::process::Command::new("tshark");
    command.args(["-n", "-r"]).arg(bench.path(file)).args(["-T", "fields"]);
    for field in ["ip.src", "ip.dst", "ip.id", "tcp.seq_raw", "tcp.checksum", "vlan.id"] {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words = |column: &str| column.split(',').map(str::to_owned).collect();
    text.lines().map(|line| line.split('\t').map(words).collect()).collect()
}

/// Asserts that `decap` extracts the packets from these frames, and that tshark reads the same packets.
fn assert_takes_out(tunnel: &str, cases: &[(Vec<u8>, Vec<u8>)]) {
    let bench = Bench::new();
    let outer: Vec<_> = cases.iter().map(|(frame, _)| frame.clone()).collect();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &outer));
    let run = bench.run("decap --json --recursive -r in.pcap -w out.pcap");
    let report = run.json();
    assert_eq!(report["decapsulated"], cases.len(), "{report}");
    assert_eq!(report["tunnels"][0]["tunnel"], tunnel, "{report}");
    let expected: Vec<_> = cases.iter().map(|(_, inside)| inside.clone()).collect();
    assert_eq!(frames(&bench.get("out.pcap")), expected, "{tunnel}");
    if !has("tshark") {
        return;
    }
    let (before, after) = (dissected(&bench, "in.pcap"), dissected(&bench, "out.pcap"));
    assert_eq!((before.len(), after.len()), (cases.len(), cases.len()));
    for (outer, inner) in before.iter().zip(&after) {
        for (whole, part) in outer.iter().zip(inner) {
            assert!(whole.ends_with(part), "{tunnel}: {outer:?} {inner:?}");
        }
        assert_eq!(inner[3].len(), 1, "{tunnel}: a TCP header {inner:?}");
    }
}

const GRE: u8 = 47;

#[test]
fn erspan_of_type_i_has_no_header_behind_gre() {
    let frame = ipv4(GRE, &joined(&[&[0, 0, 0x88, 0xbe], &inner()]));
    assert_takes_out("gre", &[(frame, inner())]);
}

#[test]
fn erspan_of_types_ii_and_iii() {
    let sequence = |ethertype: [u8; 2]| joined(&[&[0x10, 0], &ethertype, &[0, 0, 0, 5]]);
    let second = joined(&[&sequence([0x88, 0xbe]), &[0x10, 0x64, 0x18, 7, 0, 0, 0, 3], &inner()]);
    let third = [0x20, 0x64, 0, 7, 1, 2, 3, 4, 0, 0, 0x00, 0x00];
    let third = joined(&[&sequence([0x22, 0xeb]), &third, &inner()]);
    let platform = [0x20, 0x64, 0, 7, 1, 2, 3, 4, 0, 0, 0x00, 0x01, 0x14, 0, 0, 0, 0, 0, 0, 0];
    let platform = joined(&[&sequence([0x22, 0xeb]), &platform, &inner()]);
    let cases = [second, third, platform].map(|content| (ipv4(GRE, &content), inner()));
    assert_takes_out("erspan", &cases);
}

#[test]
fn gtp_u_with_and_without_optional_fields_and_extensions() {
    let packet = packet();
    let gtp = |flags: u8, optional: &[u8]| {
        let len = (packet.len() + optional.len()) as u16;
        joined(&[&[flags, 255], &len.to_be_bytes(), &[0, 0, 0x12, 0x34], optional, &packet])
    };
    let contents = [
        gtp(0x30, &[]),
        gtp(0x32, &[0, 9, 0, 0]),
        // The PDU session container of 5G, and a longer extension before it.
        gtp(0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0]),
        gtp(0x36, &[0, 1, 0, 0xc0, 2, 0, 0, 0, 0, 0, 0, 0x85, 1, 0x10, 9, 0]),
    ];
    let cases = contents.map(|content| (udp(2152, &content), on_ethernet(&packet)));
    assert_takes_out("gtp-u", &cases);
    // An echo request contains no packet.
    let echo = udp(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]);
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[echo]));
    assert_eq!(bench.ok("decap --json -r in.pcap -w out.pcap").json()["plain"], 1);
}

#[test]
fn mpls_in_udp() {
    let content = joined(&[&[0, 1, 0x10, 64, 0, 2, 0x11, 64], &packet()]);
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[udp(6635, &content)]));
    let report = bench.ok("decap --json -r in.pcap -w out.pcap").json();
    assert_eq!(report["tunnels"][0]["tunnel"], "mpls", "{report}");
    let mut expected = joined(&[&ipv4(4, &[])[..14], &content]);
    expected[12..14].copy_from_slice(&[0x88, 0x47]);
    assert_eq!(frames(&bench.get("out.pcap")), [expected]);
    if has("tshark") {
        let (before, after) = (dissected(&bench, "in.pcap"), dissected(&bench, "out.pcap"));
        assert!(
            before[0][0].ends_with(&after[0][0]) && after[0][3].len() == 1,
            "{before:?} {after:?}"
        );
    }
}

/// Returns a stack of two labels, followed by `content`.
fn labels(content: &[u8]) -> Vec<u8> {
    joined(&[&[0, 1, 0x10, 64, 0, 2, 0x11, 64], content])
}

/// Returns the frame with MAC addresses of known vendors, so that tshark recognizes it without a control word.
fn between_vendors(destination: [u8; 6]) -> Vec<u8> {
    let mut frame = inner();
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&[0x00, 0x50, 0x56, 1, 2, 3]);
    frame
}

#[test]
fn ethernet_over_mpls_with_and_without_control_word() {
    let [intel, vmware] = [[0x00, 0x1b, 0x21, 4, 5, 6], [0x00, 0x0c, 0x29, 4, 5, 6]];
    let plain = [intel, vmware].map(between_vendors);
    let numbered = |number: u8| joined(&[&[0, 0, 0, number], &plain[0]]);
    let contents = [
        (plain[0].clone(), plain[0].clone()),
        (plain[1].clone(), plain[1].clone()),
        (numbered(0), plain[0].clone()),
        (numbered(7), plain[0].clone()),
    ];
    let on_links = contents.clone().map(|(content, inside)| (label_frame(&content), inside));
    assert_takes_out("pseudowire", &on_links);
    let one_label = joined(&[&ipv4(4, &[])[..12], &[0x88, 0x48, 0, 2, 0x11, 64], &plain[0]]);
    assert_takes_out("pseudowire", &[(one_label, plain[0].clone())]);
    let in_udp = contents.clone().map(|(content, inside)| (udp(6635, &labels(&content)), inside));
    assert_takes_out("mpls", &in_udp);
    let in_gre = contents.map(|(content, inside)| {
        (ipv4(GRE, &joined(&[&[0, 0, 0x88, 0x47], &labels(&content)])), inside)
    });
    assert_takes_out("gre", &in_gre);
}

/// tshark 4.0 does not recognize a frame whose destination address starts with these bits.
#[test]
fn ethernet_over_mpls_to_addresses_that_start_with_other_bits() {
    let plain = [0xf8, 0x9c, 0x02].map(|first| between_vendors([first, 0x66, 0xf2, 4, 5, 6]));
    let bench = Bench::new();
    let frames_in: Vec<_> = plain.iter().map(|frame| label_frame(frame)).collect();
    // The first byte 0x02 starts with four zero bits, like a control word, but a control word has zeros in the next
    // bits too.
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &frames_in));
    let report = bench.ok("decap --json -r in.pcap -w out.pcap").json();
    assert_eq!(report["decapsulated"], 3, "{report}");
    assert_eq!(frames(&bench.get("out.pcap")), plain);
}

/// Returns an Ethernet frame that contains a stack of labels and `content`.
fn label_frame(content: &[u8]) -> Vec<u8> {
    joined(&[&ipv4(4, &[])[..12], &[0x88, 0x47], &labels(content)])
}

/// Tests that an associated channel, a truncated label stack and an IP packet after labels are not read as frames.
#[test]
fn other_contents_of_labels_stay() {
    let frames = [
        label_frame(&[0x10, 0, 0, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
        label_frame(&[0, 0, 0, 0, 1, 2, 3]),
        label_frame(&packet()),
    ];
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &frames));
    let report = bench.ok("decap --json -r in.pcap -w out.pcap").json();
    assert_eq!(report["plain"], 3, "{report}");
}

#[test]
fn explain_and_inspect_name_ethernet_over_mpls() {
    let frame = |sequence: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(sequence as u16));
        packet.tcp(|tcp| tcp.sequence(sequence * 900)).payload_len(900).build()
    };
    let bench = Bench::new();
    let control = |sequence| label_frame(&joined(&[&[0; 4], &frame(sequence)]));
    let frames: Vec<_> = (0..4).map(control).collect();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &frames));
    let text = bench.ok("explain in.pcap 1").stdout;
    assert!(text.contains("eth mpls mpls pseudowire eth ip4 tcp"), "{text}");
    let text = bench.ok("inspect in.pcap").stdout;
    assert!(text.contains("pseudowire"), "{text}");
}

/// Streams inside these tunnels are merged or passed through unchanged, and are restored byte for byte.
#[test]
fn streams_in_these_tunnels_come_back() {
    let stream = |index: u32| {
        let len = if index % 5 == 4 { 90 } else { 900 };
        let packet = Packet::new().ipv4(|ip| ip.id(index as u16));
        packet.tcp(|tcp| tcp.sequence(index * 900)).payload_len(len).build()
    };
    let gtp = |flags: u8, optional: &[u8], packet: &[u8]| {
        let len = (packet.len() + optional.len()) as u16;
        udp(2152, &joined(&[&[flags, 255], &len.to_be_bytes(), &[0, 0, 0, 9], optional, packet]))
    };
    let erspan = |head: &[u8], index: u32, packet: &[u8]| {
        let gre = [&[0x10, 0], &head[..2], &index.to_be_bytes()].concat();
        ipv4(GRE, &joined(&[&gre, &head[2..], &on_ethernet(packet)]))
    };
    let mut all = Vec::new();
    for index in 0..20 {
        let packet = stream(index);
        all.push(gtp(0x30, &[], &packet));
        all.push(gtp(0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0], &packet));
        all.push(udp(6635, &joined(&[&[0, 2, 0x11, 64], &packet])));
        all.push(erspan(&[0x88, 0xbe, 0x10, 0x64, 0x18, 7, 0, 0, 0, 3], index, &packet));
        let third = [0x22, 0xeb, 0x20, 0x64, 0, 7, 1, 2, 3, index as u8, 0, 0, 0, 0];
        all.push(erspan(&third, index, &packet));
        all.push(ipv4(GRE, &joined(&[&[0, 0, 0x88, 0xbe], &on_ethernet(&packet)])));
        // Four kinds of packets alternate under one label: frames, frames after a control word with and without a
        // sequence number, and IP packets.
        all.push(label_frame(&on_ethernet(&packet)));
        all.push(label_frame(&joined(&[&[0; 4], &on_ethernet(&packet)])));
        all.push(label_frame(&joined(&[&[0, 0, 0, index as u8], &on_ethernet(&packet)])));
        all.push(label_frame(&packet));
    }
    let bench = Bench::new();
    bench.put("in.pcapng", &capture(Format::Pcapng, ETHERNET, &all));
    let report = bench.ok("coalesce --json -r in.pcapng -w merged.pcapng").json();
    assert!(report["superframes"].as_u64().unwrap() >= 4, "{report}");
    bench.ok("segment -r merged.pcapng -w back.pcapng");
    let (mut before, mut after) = (all, frames(&bench.get("back.pcapng")));
    before.sort();
    after.sort();
    assert!(before == after);
}

/// RFC 7348 section 5: reserved bits are ignored on receipt.
#[test]
fn reserved_bits_of_vxlan_are_ignored_with_a_note() {
    let vxlan = |header: [u8; 8]| udp(4789, &joined(&[&header, &inner()]));
    let cases = [
        vxlan([0x08, 0, 0, 0, 0, 0, 9, 0]),
        vxlan([0x0c, 0, 0, 0, 0, 0, 9, 0]),
        vxlan([0x08, 1, 2, 3, 0, 0, 9, 0]),
        vxlan([0x08, 0, 0, 0, 0, 0, 9, 0xff]),
    ];
    let cases = cases.map(|frame| (frame, inner()));
    assert_takes_out("vxlan", &cases);
    let bench = Bench::new();
    let outer: Vec<_> = cases.iter().map(|(frame, _)| frame.clone()).collect();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &outer));
    let run = bench.ok("decap -r in.pcap -w out.pcap");
    assert!(run.stderr.contains("3 packets: reserved bits"), "{}", run.stderr);
    let strict = bench.run("decap --strict --json -r in.pcap -w out.pcap");
    assert_eq!(strict.json()["refused"]["vxlan_flags"]["count"], 3, "{}", strict.stdout);
    assert_eq!(strict.code, 1);
    // Without the network flag, there is no network identifier.
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[vxlan([0; 8])]));
    let run = bench.run("decap --json -r in.pcap -w out.pcap");
    assert_eq!(run.json()["refused"]["vxlan_flags"]["count"], 1, "{}", run.stdout);
}

/// Returns the captured bytes and the original length of each packet.
fn lengths(bytes: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut reader = CaptureReader::new(bytes).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            found.push((packet.data.to_vec(), packet.original_len));
        }
    }
    found
}

#[test]
fn packets_that_the_snap_length_cut_keep_what_was_captured_of_them() {
    let whole = udp(4789, &joined(&[&[8, 0, 0, 0, 0, 0, 9, 0], &inner()]));
    let overhead = whole.len() - inner().len();
    for cut in [4, 100, 300] {
        let bench = Bench::new();
        for format in [Format::Pcap, Format::Pcapng] {
            let mut options = WriterOptions::new(format);
            options.interface = Interface::new(ETHERNET);
            let mut writer = CaptureWriter::new(Vec::new(), options);
            let meta = PacketMeta {
                timestamp_ns: Some(1),
                original_len: whole.len() as u32,
                ..PacketMeta::default()
            };
            writer.write_packet(&meta, &whole[..whole.len() - cut]).unwrap();
            bench.put("in", &writer.finish().unwrap());
            let report = bench.ok("decap --json -r in -w out.pcap").json();
            assert_eq!(report["decapsulated"], 1, "{report}");
            let captured = inner()[..inner().len() - cut].to_vec();
            let original = (whole.len() - overhead) as u32;
            assert_eq!(lengths(&bench.get("out.pcap")), [(captured, original)], "cut by {cut}");
        }
    }
}
