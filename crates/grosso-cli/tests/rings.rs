//! `grosso capture` with tcpdump's options, compared with a concurrent tcpdump: rotating files, capturing on all
//! interfaces, and listing interfaces.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use grosso_sys::{interface::Control, tun::TunBuilder};
use serde_json::Value;

use crate::{
    common::{Bench, each, frames, has},
    tap::{BROADCAST, Tap, name, read, start},
};

/// Length of a long frame; 17 of them exceed one million bytes.
const LONG_BYTES: usize = 60_000;

/// Returns a unique frame of an unknown protocol.
fn frame(number: u16, len: usize) -> Vec<u8> {
    let mut frame = BROADCAST.to_vec();
    frame.resize(len, 0);
    frame[20..22].copy_from_slice(&number.to_be_bytes());
    frame
}

fn write(tap: &Tap, frame: &[u8]) {
    tap.write(&[&[0; 10][..], frame].concat());
}

/// Returns a tcpdump command that runs in a directory and stays root. As the user nobody, it could not open its second
/// file.
fn tcpdump(bench: &Bench, line: &str) -> Command {
    let mut command = Command::new("tcpdump");
    command
        .args(["-Z", "root", "-B", "65536", "-U"])
        .args(line.split(' '))
        .current_dir(bench.path(""));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns the frames in all files whose names start with `begin`, keyed by the remainder of the name.
fn files(bench: &Bench, begin: &str) -> BTreeMap<String, Vec<Vec<u8>>> {
    let entries = fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.into_string().unwrap());
    let rest = |name: String| Some((name.strip_prefix(begin)?.to_owned(), name));
    names.filter_map(rest).map(|(rest, name)| (rest, frames(&bench.get(&name)))).collect()
}

fn report(capture: &mut Child) -> Value {
    let mut report = String::new();
    capture.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    crate::common::report(&report)
}

#[test]
fn files_of_a_size_are_those_of_tcpdump_packet_by_packet() {
    let Some(tap) = Tap::new() else { return };
    if !has("tcpdump") {
        return;
    }
    // 80 frames fill five files.
    for (options, first, last, count) in
        [("-C 1", "", "4", 5), ("-C 1 -W 3", "0", "1", 3), ("-C 1 -W 12", "00", "04", 5)]
    {
        let bench = Bench::new();
        let line = format!("capture -i t0 -c 80 -F pcap --json -w g {options}");
        let mut capture = tap.start(bench.command(&line), &bench.path(&format!("g{first}")));
        let line = format!("-i t0 -c 80 -w t {options}");
        let mut other =
            start(&tap.network, tcpdump(&bench, &line), &bench.path(&format!("t{first}")));
        for number in 0..80 {
            write(&tap, &frame(number, LONG_BYTES));
        }
        let report = report(&mut capture);
        assert!(other.wait().unwrap().success());
        let (ours, theirs) = (files(&bench, "g"), files(&bench, "t"));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{options}");
        assert!(ours == theirs, "{options}: the same packets in each");
        assert_eq!(ours.len(), count, "{options}");
        assert_eq!(report["files"]["begun"], 5, "{options}");
        assert_eq!(report["files"]["last"], format!("g{last}"), "{options}");
        assert_eq!((&report["ended"], &report["output"]["packets"]), (&"count".into(), &80.into()));
    }
}

#[test]
fn each_file_of_pcapng_is_whole_and_has_its_own_counts() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let command = bench.command("capture -i t0 -c 40 --json -C 64K -w x");
    let mut capture = tap.start(command, &bench.path("x"));
    for number in 0..40 {
        write(&tap, &frame(number, 10_000));
    }
    assert_eq!(report(&mut capture)["files"]["begun"], 6);
    let mut found = Vec::new();
    for (rest, frames) in files(&bench, "x") {
        let inspected = bench.run(&format!("inspect x{rest} --json")).json();
        assert_eq!(inspected["input"]["packets"], frames.len(), "x{rest}");
        found.extend(frames);
    }
    assert_eq!(found, (0..40).map(|number| frame(number, 10_000)).collect::<Vec<_>>());
    if has("capinfos") {
        let output = Command::new("capinfos").arg(bench.path("x5")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Name = t0") && text.contains("packets:   5"), "{text}");
    }
}

#[test]
fn files_of_a_time_have_its_name_and_end_after_so_many_as_tcpdump_s_do() {
    let Some(tap) = Tap::new() else { return };
    if !has("tcpdump") {
        return;
    }
    let bench = Bench::new();
    let mut ours = bench.command("capture -i t0 -F pcap --json -G 1 -W 2 -w g-%s-%Y");
    ours.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut ours = tap.command(ours).spawn().unwrap();
    let line = "-i t0 -G 1 -W 2 -w t-%s-%Y";
    let mut theirs = tap.command(tcpdump(&bench, line)).spawn().unwrap();
    let mut number = 0;
    let mut ended = [false; 2];
    while ended != [true; 2] {
        write(&tap, &frame(number, 100));
        number += 1;
        thread::sleep(Duration::from_millis(20));
        ended = [&mut ours, &mut theirs].map(|child| child.try_wait().unwrap().is_some());
    }
    assert_eq!(report(&mut ours)["ended"], "files");
    assert!(theirs.wait().unwrap().success());
    for begin in ["g-", "t-"] {
        let files = files(&bench, begin);
        assert_eq!(files.len(), 2, "{begin} {:?}", files.keys());
        let mut packets = files.values().flatten().map(|frame| (frame[20], frame[21]));
        let mut last = packets.next().unwrap();
        for packet in packets {
            assert_eq!(
                u16::from_be_bytes([packet.0, packet.1]),
                u16::from_be_bytes([last.0, last.1]) + 1
            );
            last = packet;
        }
        for rest in files.keys() {
            let (seconds, year) = rest.split_once('-').unwrap();
            assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000 && year.len() == 4, "{rest}");
        }
    }
}

#[test]
fn all_interfaces_keep_their_link_types_and_each_packet_is_there_once() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let (tun, socket) = tap
        .network
        .run(|| {
            let tun = TunBuilder::tun(name("n0")).open().unwrap();
            let control = Control::new().unwrap();
            for device in ["lo", "n0"] {
                control.set_up(&name(device), true).unwrap();
            }
            (tun, UdpSocket::bind("127.0.0.1:0").unwrap())
        })
        .unwrap();
    let file = bench.path("x.pcapng");
    let mut capture = tap.start(bench.command("capture -i any -c 4 --json -w x.pcapng"), &file);
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    ip.extend_from_slice(&[0, 1, 0, 2, 0, 8, 0, 0]);
    write(&tap, &BROADCAST);
    assert_eq!(tun.write(&ip).unwrap(), ip.len());
    socket.send_to(b"to myself", socket.local_addr().unwrap()).unwrap();
    write(&tap, &frame(7, 90));
    let report = report(&mut capture);
    let facts = |interface: &Value| (interface["name"].clone(), interface["packets"].clone());
    let interfaces: Vec<_> = report["interfaces"].as_array().unwrap().iter().map(facts).collect();
    let expected = [("t0", 2), ("n0", 1), ("lo", 1)];
    assert_eq!(interfaces, expected.map(|(name, packets)| (name.into(), packets.into())));
    assert_eq!(report["interface"], "any");
    let mut seen = Vec::new();
    each(&read(&file), |packet| {
        seen.push((packet.interface, packet.description.link_type, packet.data.len()));
    });
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1, 60), (0, 1, 90), (1, 101, 28), (2, 1, 51)]);
    if has("tshark") {
        let mut names = field(&file, "frame.interface_name");
        names.sort_unstable();
        assert_eq!(names, ["lo", "n0", "t0", "t0"]);
    }
    assert_eq!(bench.run("inspect x.pcapng --json").json()["input"]["packets"], 4);
}

fn field(path: &Path, field: &str) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    let output = tshark.args(["-T", "fields", "-e", field, "-r"]).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_list_agrees_with_tcpdump_for_each_interface() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let run = |line: &str| {
        let output = tap.command(bench.command(line)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let ours = run("capture -D");
    let json = crate::common::report(&run("capture -D --json"));
    assert_eq!(json["interfaces"].as_array().unwrap().len(), ours.lines().count());
    assert_eq!(json["interfaces"][0]["name"], "t0");
    let state = |text: &str, wanted: &str| {
        let line = text.lines().find(|line| line.split(['.', ' ']).nth(1) == Some(wanted))?;
        let words = line.split_once('[')?.1.split_once(']')?.0;
        let words = words.split(", ").filter(|word| *word != "Connected");
        Some(words.map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(state(&ours, "lo"), Some(vec!["Loopback".into()]), "{ours}");
    if has("tcpdump") {
        let output = tap.command(tcpdump(&bench, "-D")).stdout(Stdio::piped()).output().unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        for device in ["t0", "lo", "any"] {
            assert_eq!(state(&ours, device), state(&theirs, device), "{ours}{theirs}");
        }
    }
    // The option also accepts an interface number.
    let mut capture = tap.start(bench.command("capture -i 1 -c 1 --json -w x"), &bench.path("x"));
    write(&tap, &BROADCAST);
    assert_eq!(report(&mut capture)["interface"], "t0");
}

#[test]
fn options_that_contradict_each_other_are_refused_before_anything_is_opened() {
    let bench = Bench::new();
    for line in [
        "capture -i t0 -w x -W 3",
        "capture -i t0 -w - -C 1",
        "capture -i t0 -w - -G 1",
        "capture -i any -w x -F pcap",
        "capture -D -w x",
        "capture -w x",
        "capture -i t0 -w x -C 0",
    ] {
        let run = bench.run(line);
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
    }
    assert!(fs::read_dir(bench.path("")).unwrap().next().is_none());
}
