//! `grosso capture` on real interfaces, compared with the kernel's own segmentation.

#![cfg(target_os = "linux")]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    process::{Command, Stdio},
    thread,
};

use grosso::{checksum::Checksum, meta::GsoSize};
use grosso_capture::{
    CaptureReader, Entry, PacketMeta, SegmentTransport, TunnelPort, options::code,
};
use grosso_sys::{
    datagram,
    ethtool::set_feature,
    interface::Control,
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    scheduling::{allowed_processors, pin},
};
use grosso_testkit::{
    Packet,
    flows::{assert_conserved, assert_order_within_flows},
    oracle::Link,
};
use grosso_wire::Kind;

use crate::{
    common::{Bench, each, frames, has, packets, tshark},
    tap::{BROADCAST, Tap, end, name, namespaces, read, signal, start, superframe, until},
};

/// Two hosts connected by a bridge. The bridge port to the receiver has no offloads, so the kernel segments the
/// sender's packets and completes their checksums there.
///
/// ```text
///  sender        bridge         receiver
///  v0 ---------- v1  w0 -------- w1
/// ```
struct Hosts {
    sender: NetworkNamespace,
    bridge: NetworkNamespace,
    receiver: NetworkNamespace,
}

const NEAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)),
];
const FAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2)),
];
const NEAR_ADDRESS: [u8; 6] = [2, 0, 0, 0, 9, 1];
/// Payload that only the last datagram has.
const MARK: &[u8] = b"that was all of it";

impl Hosts {
    /// Creates the hosts; `None` if the caller cannot create them.
    fn new() -> Option<Self> {
        let [sender, bridge, receiver] = namespaces()?;
        let hosts = Self { sender, bridge, receiver };
        hosts.wire().unwrap();
        Some(hosts)
    }

    fn wire(&self) -> io::Result<()> {
        self.bridge.run(|| {
            let (netlink, control) = (Netlink::new()?, Control::new()?);
            let near = LinkChange::new().namespace(self.sender.as_fd());
            let near = near.hardware_address(NEAR_ADDRESS);
            let far = LinkChange::new().namespace(self.receiver.as_fd());
            netlink.add_veth((&name("v1"), LinkChange::new()), (&name("v0"), near))?;
            netlink.add_veth((&name("w0"), LinkChange::new()), (&name("w1"), far))?;
            control.add_bridge(&name("br"))?;
            for port in ["v1", "w0"] {
                control.add_bridge_port(&name("br"), &name(port))?;
                control.set_up(&name(port), true)?;
            }
            set_feature(&control, &name("w0"), "tx-checksum-ip-generic", false)?;
            control.set_up(&name("br"), true)
        })??;
        self.sender.run(|| set_up("v0", NEAR))??;
        self.receiver.run(|| set_up("w1", FAR))?
    }

    /// Sends a stream and superframes of datagrams over IPv4 and IPv6, and finally [`MARK`].
    fn talk(&self) -> io::Result<()> {
        for (near, far) in NEAR.into_iter().zip(FAR) {
            let listener = self.receiver.run(|| TcpListener::bind((far, 0)))??;
            let target = listener.local_addr()?;
            let mut stream = self.sender.run(|| TcpStream::connect(target))??;
            let (mut accepted, _) = listener.accept()?;
            let reader = thread::spawn(move || io::copy(&mut accepted, &mut io::sink()));
            let bytes: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
            for part in bytes.chunks(100_003) {
                stream.write_all(part)?;
            }
            drop(stream);
            assert_eq!(reader.join().unwrap()?, BYTES as u64);

            let socket = self.receiver.run(|| UdpSocket::bind((far, 0)))??;
            let near = self.sender.run(|| UdpSocket::bind((near, 0)))??;
            near.connect(socket.local_addr()?)?;
            for (size, payload) in [(1200_u16, 12_345), (500, 32_000), (1400, 700)] {
                datagram::set_segment_bytes(&near, size)?;
                near.send(&bytes[..payload])?;
            }
            datagram::set_segment_bytes(&near, 0)?;
            near.send(b"one alone")?;
            if far.is_ipv6() {
                near.send(MARK)?;
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_sender_captures_splits_into_what_the_receiver_saw() {
    if !["tcpdump", "tshark"].iter().all(|tool| has(tool)) {
        return;
    }
    // On two CPUs, data and an acknowledgment may be sent at the same time, and recorded in different orders.
    let processors = allowed_processors().unwrap();
    pin(None, processors[0]).unwrap();
    let Some(hosts) = Hosts::new() else { return };
    let bench = Bench::new();
    let (sent, received) = (bench.path("send.pcapng"), bench.path("recv.pcap"));
    let mut capture = start(&hosts.sender, bench.command("capture -q -i v0 -w send.pcapng"), &sent);
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "w1", "-B", "65536", "-U", "-w"]).arg(&received).stderr(Stdio::null());
    let mut tcpdump = start(&hosts.receiver, tcpdump, &received);
    hosts.talk().unwrap();
    for file in [&sent, &received] {
        until(|| read(file).windows(MARK.len()).any(|bytes| bytes == MARK));
    }
    assert_eq!(end(&mut capture), Some(130), "Ctrl-C");
    end(&mut tcpdump);

    let from_sender = |frame: &Vec<u8>| {
        let is_ip = frame[12..14] == [0x08, 0] || frame[12..14] == [0x86, 0xdd];
        let protocol = if frame[12] == 8 { frame[23] } else { frame[20] };
        frame[6..12] == NEAR_ADDRESS && is_ip && matches!(protocol, 6 | 17)
    };
    let theirs: Vec<_> = frames(&read(&received)).into_iter().filter(from_sender).collect();
    let mut superframes = [0, 0];
    each(&read(&sent), |packet| {
        if let Some(gso) = packet.meta().gso() {
            assert!(matches!(gso.size, GsoSize::Every(_)), "{gso:?}");
            let transport = packet.meta().offload.unwrap().transport;
            superframes[usize::from(transport == SegmentTransport::Udp)] += 1;
            assert!(packet.meta().flags.unwrap() & 0x203 == 0x202, "outbound, checksum not ready");
        }
    });
    assert!(superframes[0] > 10 && superframes[1] == 4, "{superframes:?}");
    assert!(theirs.len() > 2 * BYTES / 1448, "{}", theirs.len());

    bench.ok("wire -q --strict -r send.pcapng -w wire.pcapng");
    bench.ok("segment -q -r send.pcapng -w cut.pcapng");
    bench.ok("csum fix -q --only partial -r cut.pcapng -w fixed.pcapng");
    for file in ["wire.pcapng", "fixed.pcapng"] {
        let ours: Vec<_> = frames(&bench.get(file)).into_iter().filter(from_sender).collect();
        assert_conserved(&theirs, &ours);
        assert_order_within_flows(&theirs, &ours, Link::Ethernet);
    }
    // tshark 4 reports partial checksums as wrong, so only the packet structure is checked here.
    assert_eq!(tshark(&sent, "_ws.malformed"), Vec::<String>::new());
    let times: Vec<u64> = packets(&read(&sent)).into_iter().map(|(time, _)| time).collect();
    assert!(times.is_sorted() && times.iter().any(|time| time % 1000 != 0), "nanoseconds");
}

#[test]
fn the_file_records_interface_filter_and_offloads() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let file = bench.path("x.pcapng");
    let command = bench.command("capture -i t0 -c 3 --json -w x.pcapng");
    let mut capture = tap.start(command, &file);
    // A TCP superframe of two segments of 100 bytes, the same superframe with a VLAN tag, and 60 bytes of an unknown
    // protocol.
    let (header, frame) = superframe();
    let mut tagged_header = header;
    tagged_header[6] += 4;
    let tagged = [&frame[..12], &[0x88, 0xa8, 0x20, 7], &frame[12..]].concat();
    tap.write(&[&header[..], &frame].concat());
    tap.write(&[&tagged_header[..], &tagged].concat());
    tap.write(&[&[0; 10][..], &BROADCAST].concat());
    let mut report = String::new();
    capture.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    let report = crate::common::report(&report);
    assert_eq!(
        (&report["schema"], &report["ended"]),
        (&"grosso.capture/1".into(), &"count".into())
    );
    assert_eq!((&report["superframes_tcp"], &report["vlan_tags"]), (&2.into(), &1.into()));
    assert_eq!((&report["output"]["packets"], &report["drops"]), (&3.into(), &0.into()));

    let mut found: Vec<(PacketMeta, Vec<u8>)> = Vec::new();
    let bytes = read(&file);
    each(&bytes, |packet| found.push((packet.meta(), packet.data.to_vec())));
    let data: Vec<_> = found.iter().map(|(_, data)| data.clone()).collect();
    assert_eq!(data, [frame, tagged, BROADCAST.to_vec()]);
    for ((meta, _), start) in found.iter().zip([34, 38]) {
        let offload = meta.offload.as_ref().unwrap();
        assert_eq!(offload.meta.checksum, Checksum::Partial { start, offset: 16 });
        let gso = offload.meta.gso.unwrap();
        assert_eq!((gso.size(), gso.segments), (Some(100), 2));
        assert_eq!(offload.transport, SegmentTransport::Tcp);
        // Flags: addressed to another host, because the TAP has a different address; checksum not ready; needs
        // segmentation.
        assert_eq!(meta.flags, Some(0b1010_0001_0001), "{meta:?}");
    }
    assert_eq!(found[2].0.flags, Some(0b01101), "inbound by broadcast");
    assert_eq!(found[2].0.offload, None);
    facts(&bytes);
}

/// Checks the contents of the blocks that contain no packets.
fn facts(bytes: &[u8]) {
    let mut blocks = Vec::new();
    let mut reader = CaptureReader::new(bytes).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Block(block) = entry {
            let options = block.options();
            let text = |code| options.find(code).map(|v| String::from_utf8_lossy(v).into_owned());
            blocks.push((block.kind, text(2), text(3), text(code::COMMENT), text(4), text(7)));
        }
    }
    let kinds: Vec<u32> = blocks.iter().map(|block| block.0).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 5]);
    let [section, interface, statistics] = &blocks[..] else { unreachable!() };
    assert!(section.3.as_ref().unwrap().ends_with("capture -i t0 -c 3 --json -w x.pcapng"));
    let (name, description) = (interface.1.as_deref(), interface.2.as_deref());
    assert_eq!((name, description), (Some("t0"), Some("tun")));
    let comment = interface.3.as_ref().unwrap();
    assert!(comment.contains("tx-generic-segmentation") && comment.contains("gso_max_size"));
    // Counters are eight bytes in the host's byte order.
    let counter = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    assert_eq!(counter(&statistics.4), Some(3_u64.to_ne_bytes().to_vec()), "received");
    assert_eq!(counter(&statistics.5), Some(vec![0; 8]), "dropped");
}

#[test]
fn a_shorter_snaplen_keeps_length_and_metadata() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let (header, frame) = superframe();
    // Snap lengths that truncate the frame inside the headers, directly after them, and inside the apparent second
    // segment. The last length keeps the whole frame.
    for len in [30, 60, 100, 150, frame.len()] {
        let command = bench.command(&format!("capture -i t0 -c 1 -s {len} --json -w x.pcapng"));
        let mut capture = tap.start(command, &bench.path("x.pcapng"));
        tap.write(&[&header[..], &frame].concat());
        let mut report = String::new();
        capture.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        let report = crate::common::report(&report);
        assert_eq!(
            (&report["output"]["bytes"], &report["superframes_tcp"]),
            (&len.into(), &1.into())
        );
        assert_eq!(capture.wait().unwrap().code(), Some(0));
        let mut seen = 0;
        each(&bench.get("x.pcapng"), |packet| {
            seen += 1;
            assert_eq!((packet.data, packet.original_len as usize), (&frame[..len], frame.len()));
            let offload = packet.meta().offload.unwrap();
            let gso = offload.meta.gso.unwrap();
            assert_eq!((gso.size(), gso.segments), (Some(100), 2), "{len} bytes");
            assert_eq!(offload.transport, SegmentTransport::Tcp);
        });
        assert_eq!(seen, 1);
        std::fs::remove_file(bench.path("x.pcapng")).unwrap();
    }
}

#[test]
fn b10_tunnels_on_ports_that_are_named_are_recorded_with_their_packets() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let datagram = |source: u16, destination: u16| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(destination));
        let outer = outer.udp(|u| u.source_port(source).destination_port(destination));
        let inner = outer.vxlan(|v| v.vni(3)).ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
        inner.payload_len(100).build()
    };
    let line = "capture -i t0 -c 4 -w x.pcapng --port vxlan=8472 --port fou=5555/4";
    let mut capture = tap.start(bench.command(line), &bench.path("x.pcapng"));
    let ports = [(40_000, 8472), (8472, 40_000), (40_000, 4789), (40_000, 53)];
    for (source, destination) in ports {
        tap.write(&[&[0; 10][..], &datagram(source, destination)].concat());
    }
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    let mut seen = Vec::new();
    each(&bench.get("x.pcapng"), |packet| {
        let meta = packet.meta();
        assert_eq!(meta.flags.unwrap_or(0) & 3, 1, "the direction is kept");
        seen.push(meta.offload.map(|offload| offload.tunnel_ports).unwrap_or_default());
    });
    let vxlan = || vec![TunnelPort::new(Kind::Vxlan, 8472)];
    assert_eq!(seen, [vxlan(), vxlan(), vec![], vec![]]);
    let report = bench.ok("decap --json -r x.pcapng -w inside.pcapng").json();
    assert_eq!(report["decapsulated"], 2, "the packets on ports 8472 and 4789: {report}");
}

#[test]
fn packets_without_a_ring_slot_are_counted() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let command = bench.command("capture -i t0 -c 16 -s 60 --ring 1 --json -w x.pcapng");
    let mut capture = tap.start(command, &bench.path("x.pcapng"));
    signal(&capture, "STOP");
    let state = format!("/proc/{}/stat", capture.id());
    until(|| std::fs::read_to_string(&state).unwrap().contains(") T "));
    for _ in 0..100 {
        tap.write(&[&[0; 10][..], &BROADCAST].concat());
    }
    signal(&capture, "CONT");
    let mut report = String::new();
    capture.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    let report = crate::common::report(&report);
    assert_eq!((&report["output"]["packets"], &report["drops"]), (&16.into(), &84.into()));
    assert!(
        report["warnings"][0]
            .as_str()
            .unwrap()
            .contains("84 packets dropped because the ring was full")
    );
}

#[test]
fn the_output_may_be_a_pipe_or_classic_pcap_with_a_note_on_lost_metadata() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let command = bench.command("capture -i t0 -c 1 -w -");
    let mut command = tap.command(command);
    let mut capture = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = capture.stdout.take().unwrap();
    let mut bytes = vec![0; 12];
    stdout.read_exact(&mut bytes).unwrap();
    tap.write(&[&[0; 10][..], &BROADCAST].concat());
    stdout.read_to_end(&mut bytes).unwrap();
    assert_eq!(frames(&bytes), [BROADCAST]);
    let output = capture.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("standard output: 1 packet of t0"));

    let command = bench.command("capture -i t0 -c 1 -F pcap -w x.pcap");
    let mut capture = tap.start(command, &bench.path("x.pcap"));
    let (header, frame) = superframe();
    tap.write(&[&header[..], &frame].concat());
    let mut notes = String::new();
    capture.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    assert_eq!(frames(&bench.get("x.pcap")), [frame]);
    assert!(
        notes.contains("pcap cannot store packet directions, the segment size of 1 superframe"),
        "{notes}"
    );
}

#[test]
fn a_filter_selects_in_the_kernel_and_where_tags_count_beside_it() {
    let Some(tap) = Tap::new() else { return };
    if !has("tcpdump") {
        println!("skipped: no tcpdump, so perhaps no libpcap");
        return;
    }
    let bench = Bench::new();
    let tagged =
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 0x88, 0xb5], &[9; 50]].concat();
    for (filter, wanted) in [
        ("ether proto 0x88b5", &BROADCAST[..]),
        ("not ip and not ip6 and not vlan", &BROADCAST[..]),
        ("-f vlan", &tagged[..]),
    ] {
        let command = bench.command(&format!("capture -i t0 -c 1 -w x.pcapng {filter}"));
        let mut capture = tap.start(command, &bench.path("x.pcapng"));
        let (header, other) = superframe();
        tap.write(&[&header[..], &other].concat());
        let in_order =
            if wanted == tagged { [&BROADCAST[..], &tagged] } else { [&tagged[..], &BROADCAST] };
        for frame in in_order {
            tap.write(&[&[0; 10][..], frame].concat());
        }
        assert_eq!(capture.wait().unwrap().code(), Some(0), "{filter}");
        assert_eq!(frames(&bench.get("x.pcapng")), [wanted], "{filter}");
        std::fs::remove_file(bench.path("x.pcapng")).unwrap();
    }
}

#[test]
fn interface_failures_are_reported() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let said = |line: &str| {
        let output = tap.command(bench.command(line)).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = stderr.lines().find(|line| !line.contains("Ctrl-C")).unwrap_or_default();
        (output.status.code().unwrap(), line.to_owned())
    };
    let unknown = r#"grosso: capture: no interface "t00"; did you mean t0?"#.to_owned();
    assert_eq!(said("capture -i t00 -w x.pcapng"), (4, unknown));
    assert_eq!(said("capture -i lo -w x.pcapng"), (4, "grosso: capture: lo is down".into()));
    if has("tcpdump") {
        assert_eq!(said("capture -i t0 -w x.pcapng tcp-port").0, 2);
    }
    assert_eq!(said("capture -i t0 -w missing/x.pcapng").0, 4);
    assert!(!bench.path("x.pcapng").exists(), "nothing was captured, so there is no file");
    assert_eq!(said("capture -i t0 -w x.pcapng --duration 50ms").0, 0);
    let full = said("capture -i t0 -w /dev/full --duration 50ms");
    assert_eq!(full.0, 4);
    assert!(full.1.starts_with("grosso: /dev/full: No space left on device"), "{}", full.1);

    let mut terminated =
        tap.start(bench.command("capture -i t0 -w y.pcapng"), &bench.path("y.pcapng"));
    signal(&terminated, "TERM");
    assert_eq!(terminated.wait().unwrap().code(), Some(0));
    assert_eq!(frames(&bench.get("y.pcapng")), Vec::<Vec<u8>>::new());

    let mut removed =
        tap.start(bench.command("capture -i t0 -w z.pcapng"), &bench.path("z.pcapng"));
    drop(tap.device);
    let mut notes = String::new();
    removed.stderr.take().unwrap().read_to_string(&mut notes).unwrap();
    assert_eq!(removed.wait().unwrap().code(), Some(4));
    let gone =
        "grosso: capture: t0 was removed; 0 packets were captured before that and are in z.pcapng";
    assert_eq!(notes.lines().last(), Some(gone), "{notes}");
    assert_eq!(frames(&bench.get("z.pcapng")), Vec::<Vec<u8>>::new());
}

#[test]
fn a_missing_privilege_is_named_and_no_file_remains() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_grosso");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--", program]);
    command.args("capture -i t0 -w x.pcapng".split(' ')).current_dir(bench.path(""));
    let output = tap.command(command).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[0], "grosso: capture: opening t0 needs CAP_NET_RAW");
    assert!(
        lines[1].starts_with("hint: run it with sudo, or: sudo setcap cap_net_raw+ep /"),
        "{}",
        lines[1]
    );
    assert_eq!(output.status.code(), Some(4));
    assert!(!bench.path("x.pcapng").exists());
}

#[test]
fn every_missing_privilege_of_a_capture_is_named_at_once() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--", env!("CARGO_BIN_EXE_grosso")]);
    command.args("capture -i t0 --to tap:m0".split(' ')).current_dir(bench.path(""));
    let output = tap.command(command).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let needs = "opening t0 needs CAP_NET_RAW; the command also needs CAP_NET_ADMIN\n";
    assert!(stderr.contains(needs), "{stderr}");
    assert!(stderr.contains("sudo setcap cap_net_admin,cap_net_raw+ep /"), "{stderr}");
}

#[test]
fn a_full_disk_ends_a_capture_with_the_count_of_packets_that_can_be_read() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    std::fs::create_dir(bench.path("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k none disk || exit 99
         {} capture -i t0 -F pcap -w disk/x.pcap; code=$?
         cp disk/x.pcap copy.pcap; exit $code",
        env!("CARGO_BIN_EXE_grosso")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).current_dir(bench.path(""));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut capture = tap.command(command).spawn().unwrap();
    let mut said = BufReader::new(capture.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if !line.contains("capture: t0") {
        said.read_to_string(&mut line).unwrap();
        capture.wait().unwrap();
        println!("skipped: no file system of one's own: {line}");
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{line}");
        return;
    }
    let mut frame = BROADCAST.to_vec();
    frame.resize(1000, 0);
    (0..200).for_each(|_| tap.write(&[&[0; 10][..], &frame].concat()));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(4), "{rest}");
    let mut readable = 0;
    let file = bench.get("copy.pcap");
    let mut reader = CaptureReader::new(&file[..]).unwrap();
    while let Ok(Some(entry)) = reader.next() {
        readable += u32::from(matches!(entry, Entry::Packet(_)));
    }
    assert!(readable > 50, "{readable}");
    assert!(rest.contains(&format!("(after packet {readable})")), "{readable}: {rest}");
}

fn set_up(interface: &str, addresses: [IpAddr; 2]) -> io::Result<()> {
    let (netlink, control) = (Netlink::new()?, Control::new()?);
    let index = control.index(&name(interface))?;
    control.set_up(&name(interface), true)?;
    netlink.add_address(index, addresses[0], 24)?;
    netlink.add_address(index, addresses[1], 64)
}

/// Number of bytes per stream.
const BYTES: usize = 700_000;
