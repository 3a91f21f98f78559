//! Tests how `grosso capture`, `grosso extcap` and `grosso bridge` are confined, according to the kernel.

#![cfg(target_os = "linux")]

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::{PermissionsExt, chown},
    process::{Child, Command, Stdio},
    thread,
};

use grosso_sys::interface::Control;

use crate::{
    common::{Bench, frames},
    tap::{BROADCAST, Tap, end, name, until},
};

/// Length of a long frame; 17 of them exceed one million bytes.
const LONG_BYTES: usize = 60_000;

fn send(tap: &Tap, count: usize) {
    let mut frame = BROADCAST.to_vec();
    frame.resize(LONG_BYTES, 0);
    (0..count).for_each(|_| tap.write(&[&[0; 10][..], &frame].concat()));
}

/// A thread of a program, as reported by the kernel.
#[derive(Debug)]
struct Confined {
    name: String,
    capabilities: u64,
    no_new_privs: u32,
    seccomp: u32,
    uid: u32,
}

/// Returns a program's threads, sorted by name.
fn threads(id: u32) -> Vec<Confined> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let of = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().next().unwrap().to_owned()
        };
        Some(Confined {
            name: value("Name:"),
            capabilities: u64::from_str_radix(&value("CapEff:"), 16).unwrap(),
            no_new_privs: value("NoNewPrivs:").parse().unwrap(),
            seccomp: value("Seccomp:").parse().unwrap(),
            uid: value("Uid:").parse().unwrap(),
        })
    };
    let mut threads: Vec<Confined> = tasks.filter_map(of).collect();
    threads.sort_by(|one, other| one.name.cmp(&other.name));
    threads
}

/// Waits until every thread has a system call filter, and compares its remaining capabilities with the expected ones.
fn check(id: u32, expected: &[(&str, u64)]) {
    until(|| {
        let threads = threads(id);
        let is_confined = |thread: &Confined| thread.seccomp == 2 && thread.no_new_privs == 1;
        threads.len() == expected.len() && threads.iter().all(is_confined)
    });
    for (thread, (name, kept)) in threads(id).iter().zip(expected) {
        assert_eq!(thread.name, *name);
        assert_eq!(thread.capabilities & !kept, 0, "{thread:?}");
        assert_eq!(thread.uid, rustix::process::getuid().as_raw(), "{thread:?}");
    }
}

/// The capability to write to directories of other users.
const DAC_OVERRIDE: u64 = 1 << 1;

#[test]
fn a_capture_gives_up_every_privilege_before_its_first_packet() {
    let Some(tap) = Tap::new() else { return };
    tap.network.run(|| Control::new().unwrap().set_up(&name("lo"), true)).unwrap().unwrap();
    let bench = Bench::new();
    for (line, expected) in [
        ("capture -i t0 -w x.pcap", &[("grosso", 0)][..]),
        ("capture -i any -w x.pcap", &[("capture-files", DAC_OVERRIDE), ("grosso", 0)]),
        (
            "capture -i t0 -w x.pcap -C 1 --listen 127.0.0.1:57013 --to tap:m0",
            &[("capture-files", DAC_OVERRIDE), ("grosso", 0), ("pcap-listener", 0)],
        ),
    ] {
        let mut capture = tap.start(bench.command(line), &bench.path("x.pcap"));
        check(capture.id(), expected);
        send(&tap, 1);
        until(|| fs::metadata(bench.path("x.pcap")).unwrap().len() > LONG_BYTES as u64);
        check(capture.id(), expected);
        assert_eq!(end(&mut capture), Some(130), "{line}");
        fs::remove_file(bench.path("x.pcap")).unwrap();
    }
}

#[test]
fn wireshark_s_capture_source_gives_up_every_privilege() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let fifo = bench.path("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut command = bench.command("--extcap-interface grosso-t0 --capture --fifo pipe");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut source: Child = tap.command(command).spawn().unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        File::open(fifo).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    });
    check(source.id(), &[("grosso", 0)]);
    send(&tap, 1);
    assert_eq!(end(&mut source), Some(130));
    assert_eq!(frames(&reader.join().unwrap()).len(), 1);
}

#[test]
fn the_next_file_can_be_made_where_only_another_user_writes() {
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    fs::create_dir_all(bench.path("theirs/inside")).unwrap();
    let theirs = bench.path("theirs");
    if let Err(error) = chown(&theirs, Some(65_534), Some(65_534)) {
        println!("skipped: no directory of another user: {error}");
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{error}");
        return;
    }
    fs::set_permissions(&theirs, PermissionsExt::from_mode(0o700)).unwrap();
    for (stem, first, second) in
        [("theirs/x", "theirs/x", "theirs/x1"), ("theirs/%%d/../y", "theirs/y", "theirs/y1")]
    {
        // If a file name has strftime conversions, files are opened below its fixed part. The conversion used here
        // always expands to the same text.
        let _ = fs::create_dir(bench.path("theirs/%d"));
        let options = if stem.contains('%') { "-C 1 -G 3600" } else { "-C 1" };
        let line = format!("capture -i t0 -F pcap -w {stem} {options}");
        let mut capture = tap.start(bench.command(&line), &bench.path(first));
        check(capture.id(), &[("capture-files", DAC_OVERRIDE), ("grosso", 0)]);
        send(&tap, 20);
        until(|| fs::metadata(bench.path(second)).is_ok_and(|file| file.len() > 0));
        assert_eq!(end(&mut capture), Some(130));
        let packets = [first, second].map(|file| frames(&bench.get(file)).len());
        assert_eq!(packets, [17, 3], "{stem}");
    }
}

#[test]
fn a_bridge_is_confined_like_the_paths_of_a_file() {
    /// Capabilities for low ports, devices, packet sockets, AF_XDP memory and the XDP program.
    const OPENER: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;
    let Some(tap) = Tap::new() else { return };
    let bench = Bench::new();
    let mut command = bench.command("bridge tap:b0 tap:b1 --name p");
    command.env("RUNTIME_DIRECTORY", bench.path(""));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bridge = tap.command(command).spawn().unwrap();
    let expected =
        [("closer", 0), ("grosso", OPENER), ("grosso-observe", 0), ("p/0", 0), ("signals", 0)];
    check(bridge.id(), &expected);
    assert_eq!(end(&mut bridge), Some(130));
}
