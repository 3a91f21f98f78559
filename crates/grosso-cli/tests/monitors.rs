//! Tests `grosso capture` as a source for monitors: it supplies wire packets, live, whatever the device's offloads.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    io::Read,
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use grosso_sys::{interface::Control, netlink::Netlink, packet::PacketSocket};
use grosso_testkit::Packet;
use serde_json::{Value, json};

use crate::{
    common::{Bench, Timed, frames, packets},
    tap::{BROADCAST, Tap, name, read, signal, start, until},
    vantage::{BYTES, Chain, IPV4, IPV6, Way, between, ip, is_over},
};

/// Address on which captures listen, in the test's own network namespace.
const LISTENER: &str = "127.0.0.1:57012";

fn report(mut capture: Child) -> Value {
    signal(&capture, "TERM");
    let mut report = String::new();
    capture.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    crate::common::report(&report)
}

/// Returns the frames, grouped by sender.
fn by_sender(packets: Vec<Timed>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut senders: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (_, frame) in packets {
        senders.entry(frame[6..12].to_vec()).or_default().push(frame);
    }
    senders
}

#[test]
fn every_output_has_the_packets_of_the_wire_although_the_device_has_its_offloads_on() {
    for family in [IPV4, IPV6] {
        let Some(chain) = Chain::new(Way { mtu: 1500, behind: None }) else { return };
        ip(&chain.sender, "link set lo up");
        let bench = Bench::new();
        let (file, plain) = (bench.path("x.pcap"), bench.path("plain.pcap"));
        let line =
            format!("capture -i s0 --json -F pcap -w x.pcap --listen {LISTENER} --to tap:mon0");
        let mut command = bench.command(&line);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let capture = start(&chain.sender, command, &file);
        let mut command = bench.command("capture -i s0 -q -F pcap -w plain.pcap");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut beside = start(&chain.sender, command, &plain);
        let client = chain.sender.run(|| TcpStream::connect(LISTENER)).unwrap().unwrap();
        let client = reader(client);
        let devices = [(&chain.receiver, "d0"), (&chain.sender, "mon0")];
        let mut seen = chain.record(&devices, family, || {
            chain.stream(chain.ends(family), BYTES);
            chain.datagrams(chain.ends(family), 1200, &[40_000, 1201, 30]);
        });
        until(|| is_over(&file) && is_over(&plain));
        let report = report(capture);
        signal(&beside, "TERM");
        assert!(beside.wait().unwrap().success());
        let monitor = by_sender(seen.pop().unwrap());
        let wire = by_sender(seen.pop().unwrap());
        assert!(wire.values().flatten().count() > BYTES / 1448, "{}", wire.len());
        assert!(by_sender(between(&packets(&read(&file)))) == wire, "the file, {family}");
        assert!(monitor == wire, "the device of the monitor, {family}");
        let heard = client.join().unwrap();
        assert!(by_sender(between(&packets(&heard))) == wire, "the client, {family}");
        let host = by_sender(between(&packets(&read(&plain))));
        assert!(host != wire, "without Grosso the monitor receives superframes");
        assert!(report["wire"]["superframes"].as_u64().unwrap() > 5, "{report}");
        assert!(report["wire"]["segments"].as_u64().unwrap() > BYTES as u64 / 1448, "{report}");
        assert_eq!(report["wire"]["left"], json!({}), "{report}");
        for output in report["outputs"].as_array().unwrap() {
            // Some of the first packets arrived before the client.
            let before = output["lost"].get("no_client").cloned().unwrap_or_else(|| 0.into());
            let count = |value: &Value| value.as_u64().unwrap();
            let all = count(&output["packets"]) + count(&before);
            assert_eq!(all, count(&report["output"]["packets"]), "{report}");
            let others =
                output["lost"].as_object().unwrap().keys().filter(|key| *key != "no_client");
            assert_eq!(others.count(), 0, "{report}");
        }
        let wrong = bench.run("csum verify --json -r x.pcap").json();
        assert_eq!(wrong["checksums"]["bad"], 0);
    }
}

/// Reads everything that a client receives.
fn reader(mut stream: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    // The header shows that the client is registered to receive packets.
    let mut bytes = vec![0; 24];
    stream.read_exact(&mut bytes).unwrap();
    thread::spawn(move || {
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

#[test]
fn outputs_share_the_flows_and_each_has_both_directions() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let command = bench.command("capture -i t0 -c 64 --wire --json -w a.pcap -w b.pcap -F pcap");
    let capture = tap.start(command, &bench.path("b.pcap"));
    for flow in 0..32_u16 {
        let link = || Packet::new().ethernet(|e| e);
        let there = link().ipv4(|ip| ip.source([192, 0, 2, 1]).destination([192, 0, 2, 2]));
        let there = there.udp(|udp| udp.source_port(4000 + flow).destination_port(53)).build();
        let back = link().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
        let back = back.udp(|udp| udp.source_port(53).destination_port(4000 + flow)).build();
        for packet in [there, back] {
            tap.write(&[&[0; 10][..], &packet].concat());
        }
    }
    let output = capture.wait_with_output().unwrap();
    let report = crate::common::report(&String::from_utf8(output.stdout).unwrap());
    let mut all = Vec::new();
    for (place, file) in ["a.pcap", "b.pcap"].into_iter().enumerate() {
        let mut flows: BTreeMap<u16, u32> = BTreeMap::new();
        for frame in frames(&bench.get(file)) {
            let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            *flows.entry(port(34).max(port(36))).or_default() += 1;
        }
        assert!(flows.values().all(|directions| *directions == 2), "{file}: {flows:?}");
        assert!(flows.len() > 4, "{file}: {flows:?}");
        assert_eq!(report["outputs"][place]["packets"], 2 * flows.len(), "{report}");
        all.extend(flows.into_keys());
    }
    assert_eq!(all.len(), 32);
}

#[test]
fn a_client_that_takes_nothing_holds_nothing_up_and_its_losses_are_counted() {
    let Some(tap) = Tap::new() else { return };
    tap.network.run(|| Control::new().unwrap().set_up(&name("lo"), true)).unwrap().unwrap();
    let bench = Bench::new();
    let line = format!("capture -i t0 --json -w x.pcap -F pcap --listen {LISTENER}");
    let capture = tap.start(bench.command(&line), &bench.path("x.pcap"));
    let mut client = tap.network.run(|| TcpStream::connect(LISTENER)).unwrap().unwrap();
    // The header shows that the client is registered to receive packets.
    client.read_exact(&mut [0; 24]).unwrap();
    let mut frame = BROADCAST.to_vec();
    frame.resize(60_000, 0);
    for count in 1..=1000 {
        tap.write(&[&[0; 10][..], &frame].concat());
        // The number of waiting packets must not exceed the ring.
        let written = || std::fs::metadata(bench.path("x.pcap")).unwrap().len();
        if count % 100 == 0 {
            until(|| written() == 24 + count * (16 + 60_000));
        }
    }
    let mut bytes = Vec::new();
    let reading = thread::spawn(move || {
        client.read_to_end(&mut bytes).unwrap();
        bytes.len() / (16 + 60_000)
    });
    let report = report(capture);
    let heard = reading.join().unwrap() as u64;
    let [file, server] = [0, 1].map(|place| &report["outputs"][place]);
    let lost = server["lost"]["client_full"].as_u64().unwrap();
    assert!(lost > 0, "{report}");
    assert_eq!((&server["packets"], &file["packets"]), (&1000.into(), &1000.into()), "{report}");
    assert_eq!(server["packets"].as_u64().unwrap(), heard + lost, "{report}");
    assert_eq!(server["clients"], 1);
}

/// Starts a capture on a TAP, with a listener and these options.
fn listening(options: &str) -> Option<(Tap, Bench, Child)> {
    let tap = Tap::new()?;
    tap.network
        .run(|| {
            // With a small buffer, a client that does not read stalls after a few bytes.
            std::fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 4096 4096").unwrap();
            std::fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 4096 4096").unwrap();
            Control::new().unwrap().set_up(&name("lo"), true)
        })
        .unwrap()
        .unwrap();
    let bench = Bench::new();
    let line = format!("capture -i t0 --json -w x.pcap -F pcap {options}");
    let capture = tap.start(bench.command(&line), &bench.path("x.pcap"));
    Some((tap, bench, capture))
}

/// Connects a client; `None` if the listener refuses it. An accepted client has received the header.
fn client(tap: &Tap) -> Option<TcpStream> {
    let mut client = tap.network.run(|| TcpStream::connect(LISTENER)).unwrap().ok()?;
    client.read_exact(&mut [0; 24]).ok().map(|()| client)
}

/// Sends enough frames to fill the buffers of clients, and waits until they are in the file.
fn fill(tap: &Tap, bench: &Bench) {
    let mut frame = BROADCAST.to_vec();
    frame.resize(60_000, 0);
    (0..FILLING).for_each(|_| tap.write(&[&[0; 10][..], &frame].concat()));
    let written = || std::fs::metadata(bench.path("x.pcap")).unwrap().len();
    until(|| written() == 24 + FILLING * (16 + 60_000));
}

/// Number of 60,000-byte frames that exceeds the capacity of a client's socket buffers.
const FILLING: u64 = 20;
/// Maximum number of concurrent clients of a listener.
const CLIENTS_MAX: usize = 32;

#[test]
fn clients_that_left_a_quiet_interface_do_not_exclude_others() {
    let Some((tap, _bench, capture)) = listening(&format!("--listen {LISTENER}")) else { return };
    for _ in 0..CLIENTS_MAX {
        drop(client(&tap).expect("a place for each"));
    }
    until(|| client(&tap).is_some());
    let report = report(capture);
    assert_eq!(report["outputs"][1]["cut_off"], 0, "{report}");
}

#[test]
fn a_client_too_many_is_turned_away_and_counted() {
    let Some((tap, _bench, capture)) = listening(&format!("--listen {LISTENER}")) else { return };
    let clients: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| client(&tap).unwrap()).collect();
    assert!(client(&tap).is_none(), "all other clients read their bytes");
    let report = report(capture);
    let server = &report["outputs"][1];
    assert_eq!((&server["clients"], &server["turned_away"]), (&32.into(), &1.into()), "{report}");
    drop(clients);
}

#[test]
fn a_client_that_takes_nothing_makes_way_for_the_next() {
    let Some((tap, bench, capture)) = listening(&format!("--listen {LISTENER}")) else { return };
    let clients: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| client(&tap).unwrap()).collect();
    fill(&tap, &bench);
    let mut next = None;
    until(|| {
        next = client(&tap);
        next.is_some()
    });
    let report = report(capture);
    let server = &report["outputs"][1];
    assert!(server["cut_off"].as_u64().unwrap() >= 1, "{report}");
    assert!(server["clients"].as_u64().unwrap() >= 33, "{report}");
    drop(clients);
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_at_the_end_and_its_packets_are_counted() {
    let Some((tap, bench, capture)) = listening(&format!("--listen {LISTENER}")) else { return };
    let mut client = client(&tap).unwrap();
    fill(&tap, &bench);
    let report = report(capture);
    let server = &report["outputs"][1];
    assert_eq!(server["cut_off"], 1, "{report}");
    let mut bytes = Vec::new();
    // The client reads nothing until the capture has ended.
    let _ = client.read_to_end(&mut bytes);
    let heard = (bytes.len() / (16 + 60_000)) as u64;
    assert_eq!(server["lost"]["client_full"].as_u64().unwrap(), FILLING - heard, "{report}");
}

#[test]
fn an_address_that_others_reach_is_noted() {
    for (address, is_noted) in [("127.0.0.1:57012", false), ("0.0.0.0:57012", true)] {
        let Some((_tap, _bench, capture)) = listening(&format!("--listen {address}")) else {
            return;
        };
        let report = report(capture);
        let note = format!("packets of t0 on {address} can be reached from other hosts");
        let warnings = report["warnings"].as_array().unwrap();
        assert_eq!(warnings.contains(&note.into()), is_noted, "{report}");
    }
}

/// Arkime's reader of pcap over IP supports only the magic number for microseconds.
#[test]
fn times_are_in_microseconds_for_readers_without_nanoseconds() {
    let Some(tap) = Tap::new() else { return };
    tap.network.run(|| Control::new().unwrap().set_up(&name("lo"), true)).unwrap().unwrap();
    let bench = Bench::new();
    let line = "capture -i t0 --json -c 40 -w x.pcap -F pcap";
    let micro = format!("{line} --time-stamp-precision micro --listen {LISTENER}");
    let micro = tap.start(bench.command(&micro), &bench.path("x.pcap"));
    let line = line.replace("x.pcap", "y.pcapng").replace("-F pcap", "--wire");
    let nano = tap.start(bench.command(&line), &bench.path("y.pcapng"));
    let line = line.replace("y.pcapng", "z.pcapng") + " --time-stamp-precision micro";
    let beside = tap.start(bench.command(&line), &bench.path("z.pcapng"));
    let client = tap.network.run(|| TcpStream::connect(LISTENER)).unwrap().unwrap();
    let client = reader(client);
    (0..40).for_each(|_| tap.write(&[&[0; 10][..], &BROADCAST].concat()));
    for capture in [micro, nano, beside] {
        assert!(capture.wait_with_output().unwrap().status.success());
    }
    let magic = 0xa1b2_c3d4_u32.to_ne_bytes();
    let (heard, file) = (client.join().unwrap(), bench.get("x.pcap"));
    assert_eq!([&heard[..4], &file[..4]], [&magic; 2]);
    let times = |capture: &[u8]| -> Vec<u64> {
        packets(capture).into_iter().map(|(time, _)| time).collect()
    };
    let exact = times(&bench.get("y.pcapng"));
    assert!(exact.len() == 40 && exact.iter().any(|time| time % 1000 != 0), "{exact:?}");
    // Each socket timestamps a packet separately, some microseconds apart.
    for capture in [&heard, &file, &bench.get("z.pcapng")] {
        let cut = times(capture);
        assert!(cut.iter().all(|time| time % 1000 == 0), "{cut:?}");
        let mut pairs = cut.iter().zip(&exact);
        assert!(pairs.all(|(cut, exact)| cut.abs_diff(*exact) < 1_000_000_000), "{cut:?}");
    }
    assert_eq!(times(&heard), times(&file));
}

#[test]
fn packets_too_long_for_the_monitor_s_device_are_counted() {
    let Some(chain) = Chain::bare() else { return };
    ip(&chain.sender, "link add m0 type veth peer name m1");
    ip(&chain.sender, "link add s0 type veth peer name s1");
    for device in ["m0", "m1", "s0", "s1"] {
        ip(&chain.sender, &format!("link set {device} mtu 1500 up"));
    }
    ip(&chain.sender, "link set s0 mtu 9000");
    ip(&chain.sender, "link set s1 mtu 9000");
    let bench = Bench::new();
    let mut command =
        bench.command("capture -i s1 --json -w x.pcap -F pcap --to m0 ether proto 0x88b5");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let capture = start(&chain.sender, command, &bench.path("x.pcap"));
    let send = || {
        let socket = PacketSocket::builder().bind(&name("s0")).unwrap();
        for len in [60, 1514, 1600, 9000] {
            let mut frame = BROADCAST.to_vec();
            frame.resize(len, 0);
            socket.send(&frame).unwrap();
        }
    };
    chain.sender.run(send).unwrap();
    until(|| std::fs::metadata(bench.path("x.pcap")).unwrap().len() > 12_000);
    let report = report(capture);
    let monitor = &report["outputs"][1];
    assert_eq!((&monitor["kind"], &monitor["packets"]), (&"device".into(), &2.into()), "{report}");
    assert_eq!(monitor["lost"], json!({ "longer_than_mtu": 2 }), "{report}");
    assert_eq!(report["output"]["packets"], 4);
}

#[test]
fn a_removed_monitor_device_is_reported() {
    for (outputs, code, said) in [
        ("--to tap:mon0", 4, "grosso: capture: mon0 was removed; "),
        ("-w x.pcapng --to tap:mon0", 0, "note: mon0 was removed; "),
    ] {
        let Some(tap) = Tap::new() else { return };
        let bench = Bench::new();
        let mut command = tap.command(bench.command(&format!("capture -i t0 {outputs}")));
        let mut capture = command.stderr(Stdio::piped()).spawn().unwrap();
        let is_up = || Ok::<_, std::io::Error>(Netlink::new()?.link(&name("mon0"))?.up);
        until(|| tap.network.run(is_up).unwrap().is_ok_and(|up| up));
        // The capture ends when a packet arrives and no receiver is left. As long as one is left, it continues.
        let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name("mon0"))?);
        tap.network.run(remove).unwrap().unwrap();
        for _ in 0..100 {
            tap.write(&[&[0; 10][..], &BROADCAST].concat());
            thread::sleep(Duration::from_millis(10));
        }
        // A capture that has exited by itself already has its exit code.
        signal(&capture, "TERM");
        let mut stderr = String::new();
        capture.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(capture.wait().unwrap().code(), Some(code), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn a_monitor_s_device_that_would_feed_itself_is_refused() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let _held = tap.network.run(|| TcpListener::bind("0.0.0.0:57013")).unwrap().unwrap();
    for (line, code) in [
        ("capture -i t0 --to t0", 2),
        ("capture -i any --to tap:mon0", 2),
        ("capture -i any --listen 127.0.0.1:0", 2),
        ("capture -i t0 -w x -w x", 2),
        ("capture -i t0 --to no-such", 4),
        ("capture -i t0 --listen 0.0.0.0:57013", 4),
    ] {
        let output = tap.command(bench.command(line)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    }
}
