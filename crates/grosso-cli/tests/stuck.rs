//! Tests paths while another thread is blocked by a frozen file system, a lingering close, or a debugger.
//!
//! The tests check only the order of events: everything is observed while the other thread is still blocked.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{BufRead, BufReader, IoSlice, Read, Write},
    net::{TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use grosso_sys::unix_socket::{UnixAddress, UnixKind, UnixSocket};
use rustix::{net::sockopt::set_socket_linger, process::Signal};
use serde_json::Value;

use crate::{
    common::report,
    network::{A, B, Hosts, Running, connect, exchange, skip, until},
    stages::Esp,
};

/// A path whose thread is stopped in the tests.
const CORE: &str = "[[path]]\nname = \"core\"\nleft = \"e1\"\nright = \"tap:b1\"\n";
/// Configuration of a path next to the stuck one.
const EDGE: &str = "[[path]]\nname = \"edge\"\nleft = \"e0\"\nright = \"tap:b0\"\n";

/// Script that stops one thread, as a debugger does, and resumes it on exit. It prints a line once the thread has
/// stopped.
const TRACER: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
thread = int(sys.argv[1])
assert libc.ptrace(0x4206, thread, None, None) == 0, ctypes.get_errno()  # PTRACE_SEIZE
assert libc.ptrace(0x4207, thread, None, None) == 0, ctypes.get_errno()  # PTRACE_INTERRUPT
os.waitpid(thread, 0x40000000)  # __WALL
print('stopped', flush=True)
os.waitpid(thread, 0x40000000)
";

/// A thread that stays stopped, as by a debugger, until this value is dropped or the thread is killed.
pub(crate) struct Traced(Child);

impl Traced {
    pub(crate) fn stop(thread: &str) -> Option<Self> {
        let mut python = Command::new("python3");
        python.args(["-c", TRACER, thread]).stdin(Stdio::null()).stdout(Stdio::piped());
        let Ok(mut tracer) = python.spawn() else {
            skip("python3 is not installed");
            return None;
        };
        let mut line = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "stopped\n" {
            skip("no thread can be traced here");
            let _ = tracer.wait();
            return None;
        }
        Some(Self(tracer))
    }

    /// Returns whether the tracer still holds the thread.
    pub(crate) fn holds(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns for each of a path's devices whether it is stuck, according to a report from `stats --json` or `monitor
/// --json`.
pub(crate) fn stuck(stats: &Value, path: &str) -> Vec<bool> {
    let devices = stats["devices"].as_array().unwrap();
    let devices = devices.iter().filter(|device| device["path"] == path);
    devices.map(|device| device["stuck"].as_bool().unwrap()).collect()
}

/// Returns the response of the second host's program to an HTTP request.
fn get(hosts: &Hosts, address: &str, page: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    hosts.b.run(ask).unwrap()
}

#[test]
fn a_path_stopped_by_a_debugger_is_reported_and_delays_no_other() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.add_wire("a1", "e1");
    let up = || grosso_sys::interface::Control::new()?.set_up(&crate::network::name("lo"), true);
    hosts.b.run(up).unwrap().unwrap();
    fs::write(hosts.path("paths.toml"), format!("metrics = \"127.0.0.1:0\"\n{EDGE}{CORE}"))
        .unwrap();
    let running = Running::spawn(&mut hosts.command("run -c paths.toml"));
    let line = running.wait_for_line("metrics: http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    running.wait_for_line("core: e1 <-> b1");
    hosts.address("b0");
    let core = || running.threads().into_iter().find(|(name, _)| name == "core/0");
    until(|| core().is_some());
    let Some(mut traced) = Traced::stop(&core().unwrap().1) else { return };

    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    let stats = hosts.run("stats");
    assert_eq!(stats.code, Some(0), "{stats:?}");
    assert!(stats.stdout.contains("e1 (path core, to b1; stuck: no answer"), "{stats:?}");
    assert!(stats.stdout.contains("e0 (path edge, to b0)"), "{stats:?}");
    let stats = report(&hosts.run("stats --json").stdout);
    assert_eq!((stuck(&stats, "core"), stuck(&stats, "edge")), (vec![true; 2], vec![false; 2]));
    let rates = report(&hosts.run("monitor --once -i 0.05 --json").stdout);
    assert_eq!((stuck(&rates, "core"), stuck(&rates, "edge")), (vec![true; 2], vec![false; 2]));
    let page = get(&hosts, &address, "/metrics");
    assert!(page.contains("grosso_path_stuck{path=\"core\"} 1"), "{page}");
    assert!(page.contains("grosso_path_stuck{path=\"edge\"} 0"), "{page}");
    let health = get(&hosts, &address, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.ends_with("stuck: core\n"), "{health}");

    // A reload that has to stop the path also abandons it.
    fs::write(hosts.path("paths.toml"), format!("metrics = \"127.0.0.1:0\"\n{EDGE}")).unwrap();
    running.signal(Signal::HUP);
    running.wait_for_line("run: path core: thread core/0 is stuck");
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    assert!(traced.holds(), "the thread is still stopped");
    let ended = running.stop(Signal::TERM);
    assert_eq!(ended.code, Some(6), "{ended:?}");
    assert!(ended.stderr.contains("thread core/0 is stuck"), "{ended:?}");
}

#[test]
fn a_program_with_a_stuck_path_ends_on_sigterm_and_reports_it() {
    let Some(hosts) = Hosts::new() else { return };
    let bridge = hosts.start("bridge e0 tap:b0 --name edge");
    until(|| !bridge.threads().is_empty());
    let Some(mut traced) = Traced::stop(&bridge.threads()[0].1) else { return };
    let stats = hosts.run("stats");
    assert_eq!(stats.code, Some(0), "{stats:?}");
    assert!(stats.stdout.contains("stuck: no answer"), "{stats:?}");
    assert!(traced.holds(), "the thread is still stopped");
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(6), "{ended:?}");
    assert!(ended.stderr.contains("grosso: bridge: thread edge/0 is stuck"), "{ended:?}");
}

/// Returns a TCP socket whose last close waits for an hour, because its peer acknowledges nothing more.
pub(crate) fn lingering() -> (TcpStream, [TcpStream; 1], TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(std::time::Duration::from_secs(3600))).unwrap();
    (near, [far], listener)
}

#[test]
fn a_lingering_socket_that_is_passed_stops_no_path() {
    let Some(hosts) = Hosts::new() else { return };
    let [plain, vhost] = ["plain", "vhost"].map(|name| hosts.path(name));
    let text = format!(
        "{EDGE}[[path]]\nname = \"plain\"\nleft = \"unix:{}\"\nright = \"tap:b1\"\n\
         [[path]]\nname = \"vhost\"\nleft = \"vhost-user:{}\"\nright = \"tap:b2\"\n",
        plain.display(),
        vhost.display()
    );
    fs::write(hosts.path("paths.toml"), text).unwrap();
    let running = Running::spawn(&mut hosts.command("run -c paths.toml"));
    running.wait_for_line("vhost: ");
    hosts.address("b0");
    let control = hosts.path(&format!("{}.sock", running.id()));
    let mut refused = 0;
    let mut others = Vec::new();
    for path in [&plain, &control, &vhost] {
        let (near, far, listener) = lingering();
        let socket = UnixSocket::new(UnixKind::Stream).unwrap();
        socket.connect(&UnixAddress::new(path).unwrap()).unwrap();
        // GET_FEATURES of vhost-user, a message that needs no descriptor.
        let message: Vec<u8> = [1_u32, 1, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        match socket.send_passing(&message, &[near.as_fd()]) {
            Ok(bytes) => assert_eq!(bytes, message.len()),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{path:?}");
                socket.send(&[IoSlice::new(&message)]).unwrap();
                // Only this test has the socket open, and closing it must not wait.
                set_socket_linger(&near, None).unwrap();
                refused += 1;
            }
        }
        // From here on, only Grosso has the socket open.
        drop(near);
        others.push((far, listener, socket));
    }
    // The VM's port has answered or disconnected, so it must have received the passed descriptors.
    let (.., machine) = others.last().unwrap();
    let mut answer = [0; 64];
    until(|| machine.read(&mut [std::io::IoSliceMut::new(&mut answer)]).is_ok());
    exchange(&connect((&hosts.a, A[0]), (&hosts.b, B[0])), 1 << 20);
    let again = UnixStream::connect(&plain).unwrap();
    let stats = report(&hosts.run("stats --json").stdout);
    for path in ["edge", "plain", "vhost"] {
        assert_eq!(stuck(&stats, path), [false; 2], "{path}");
    }
    drop((others, again));
    println!("{refused} of 3 sockets refused the descriptor");
    assert_eq!(running.stop(Signal::TERM).code, Some(0));
}

/// A small file system for a single test, which can be frozen.
pub(crate) struct FileSystem {
    place: PathBuf,
    frozen: bool,
}

fn succeeds(command: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(command);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl FileSystem {
    pub(crate) fn new(image: &Path, place: &Path) -> Option<Self> {
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(place).unwrap();
        let [image, at] = [image, place].map(|path| path.to_str().unwrap());
        if !succeeds("mkfs.ext4", &["-q", image]) || !succeeds("mount", &["-o", "loop", image, at])
        {
            skip("no file system can be made and mounted here (mkfs.ext4, mount -o loop)");
            return None;
        }
        Some(Self { place: place.to_owned(), frozen: false })
    }

    pub(crate) fn freeze(&mut self) {
        assert!(succeeds("fsfreeze", &["--freeze", self.place.to_str().unwrap()]));
        self.frozen = true;
    }

    pub(crate) fn thaw(&mut self) {
        assert!(succeeds("fsfreeze", &["--unfreeze", self.place.to_str().unwrap()]));
        self.frozen = false;
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let place = self.place.to_str().unwrap();
        if self.frozen {
            succeeds("fsfreeze", &["--unfreeze", place]);
        }
        // If the test failed, programs that are being killed may still use the file system for a moment.
        succeeds("umount", &["--lazy", place]);
    }
}

#[test]
fn a_frozen_file_system_under_a_sequence_file_stops_no_path_and_no_end() {
    let Some(mut esp) = Esp::new(["", ""]) else { return };
    let (image, place) = (esp.hosts.path("image"), esp.hosts.path("frozen"));
    let Some(mut files) = FileSystem::new(&image, &place) else { return };
    esp.hosts.add_wire("a1", "e1");
    (esp.folder, esp.beside) = ("frozen/", CORE);
    let near = esp.start(0);
    let far = esp.start(1);
    esp.streams(1 << 18);
    files.freeze();

    // These packets use up the sequence numbers reserved in advance; further packets are dropped and counted.
    let socket = esp.hosts.a.run(|| std::net::UdpSocket::bind((A[0], 0))).unwrap().unwrap();
    let stats = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(["stats", "--json"]).env("RUNTIME_DIRECTORY", esp.hosts.path("1.run"));
        let ended = Running::spawn(&mut command).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        report(&ended.stdout)
    };
    until(|| {
        for _ in 0..200 {
            // The path may have no buffer space at the moment.
            let _ = socket.send_to(&[7; 100], (B[0], 9));
        }
        let stats = stats();
        assert_eq!(stuck(&stats, "esp"), [false; 2], "the thread continues");
        let wire = stats["devices"].as_array().unwrap().iter().find(|line| line["device"] == "e0");
        wire.unwrap()["drops"]["esp_in_unreserved"].as_u64().is_some_and(|drops| drops > 0)
    });
    let ended = far.stop(Signal::TERM);
    assert!(files.frozen, "the file system is still frozen");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    files.thaw();
    let far = esp.start(1);
    esp.streams(1 << 18);
    for running in [near, far] {
        let ended = running.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn a_start_on_a_frozen_file_system_fails_and_a_reload_goes_on() {
    let Some(mut esp) = Esp::new(["", ""]) else { return };
    let (image, place) = (esp.hosts.path("image"), esp.hosts.path("frozen"));
    let Some(mut files) = FileSystem::new(&image, &place) else { return };
    esp.folder = "frozen/";
    assert_eq!(esp.start(1).stop(Signal::TERM).code, Some(0));
    files.freeze();
    let mut command = esp.hosts.command("run -c 1.toml");
    let ended = Running::spawn(&mut command).end();
    assert!(files.frozen, "the file system is still frozen");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stderr.contains("its file system may be frozen"), "{ended:?}");
}
