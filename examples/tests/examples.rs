//! Tests that run the examples as a reader would, between network namespaces, and compare the received data byte by
//! byte.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

#[cfg(feature = "wireguard")]
use boringtun::x25519::{PublicKey, StaticSecret};
use grosso_sys::{
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    userns,
};

/// Number of bytes sent through the tunnel.
const STREAM_BYTES: usize = (4 << 20) + 5;

/// Program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates network namespaces; prints the reason and returns `None` if they cannot be created.
fn hosts<const COUNT: usize>() -> Option<[NetworkNamespace; COUNT]> {
    let hosts: Result<Vec<_>, _> = (0..COUNT).map(|_| NetworkNamespace::new()).collect();
    let hosts = hosts.map_err(|error| error.to_string());
    let hosts = hosts.and_then(|hosts| userns::tap().map(|()| hosts).map_err(|no| no.to_string()));
    match hosts {
        Ok(hosts) => hosts.try_into().ok(),
        Err(why) => {
            println!("skipped: {why}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {why}");
            None
        }
    }
}

/// Returns the path of an example, which `cargo test` builds next to the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

/// Starts an example in a namespace, and waits until its device exists.
fn start(host: &NetworkNamespace, name: &str, words: &[&str]) -> Running {
    let program = example(name);
    assert!(
        program.exists(),
        "{} is missing: `cargo build --examples` builds it",
        program.display()
    );
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped());
    let mut child = host.host(&mut command).unwrap().spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let line = lines.next().expect("the example prints that its device exists").unwrap();
    assert!(line.ends_with("is there"), "{line}");
    Running(child)
}

fn set_up(device: &str, address: Ipv4Addr) {
    let name = InterfaceName::new(device).unwrap();
    let netlink = Netlink::new().unwrap();
    netlink.add_address(netlink.link(&name).unwrap().index, IpAddr::V4(address), 24).unwrap();
    Control::new().unwrap().set_up(&name, true).unwrap();
}

/// Connects two hosts with a link, runs an example on each, and checks that a stream between the examples' devices
/// arrives unchanged. `ends` contains the example for each host, and its last arguments.
fn carries_a_stream(ends: [(&str, &[&str]); 2]) {
    let Some([a, b]) = hosts() else { return };
    let name = |name| InterfaceName::new(name).unwrap();
    a.run(|| {
        let far = LinkChange::new().namespace(b.as_fd());
        let (near_name, far_name) = (name("wire0"), name("wire0"));
        Netlink::new()
            .unwrap()
            .add_veth((&near_name, LinkChange::new()), (&far_name, far))
            .unwrap();
    })
    .unwrap();
    let outer = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    let inner = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
    for (host, address) in [(&a, outer[0]), (&b, outer[1])] {
        host.run(|| set_up("wire0", address)).unwrap();
    }
    let sides = [(&a, outer[0], outer[1]), (&b, outer[1], outer[0])];
    let _running: Vec<Running> = sides
        .into_iter()
        .zip(ends)
        .map(|((host, local, remote), (example, rest))| {
            let ends = [local, remote].map(|address| format!("{address}:51820"));
            let words = [&[&ends[0][..], &ends[1], "vpn0"], rest].concat();
            start(host, example, &words)
        })
        .collect();
    for (host, address) in [(&a, inner[0]), (&b, inner[1])] {
        // Leaves room for the tunnel's headers.
        host.run(|| {
            Control::new().unwrap().set_mtu(&name("vpn0"), 1400).unwrap();
            set_up("vpn0", address);
        })
        .unwrap();
    }
    let listener = b.run(|| TcpListener::bind((inner[1], 0)).unwrap()).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    send_stream(&a, &listener, address);
}

/// Sends a stream from one host to a socket on another, and checks that it arrives unchanged.
fn send_stream(from: &NetworkNamespace, to: &TcpListener, address: SocketAddr) {
    let bytes = stream();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = from.run(|| TcpStream::connect(address).unwrap()).unwrap();
            socket.write_all(&bytes).unwrap();
        });
        let mut arrived = Vec::new();
        to.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
        assert!(arrived == bytes, "{} of {STREAM_BYTES} bytes", arrived.len());
    });
}

fn stream() -> Vec<u8> {
    (0..STREAM_BYTES).map(|i| (i * 11 / 7) as u8).collect()
}

/// Creates a file with this content. The test has to remove it.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("grosso-{name}-{}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_stream_passes_the_vpn() {
    let key = file("vpn-key", b"sixteen byte key");
    let path = key.to_str().unwrap();
    carries_a_stream([("vpn", &[path, "a"]), ("vpn", &[path, "b"])]);
    fs::remove_file(&key).unwrap();
}

#[test]
fn a_stream_passes_from_the_vpn_on_tokio_to_the_other() {
    let key = file("tokio-key", b"another 16 bytes");
    let path = key.to_str().unwrap();
    carries_a_stream([("vpn_tokio", &[path, "a"]), ("vpn", &[path, "b"])]);
    carries_a_stream([("vpn", &[path, "a"]), ("vpn_tokio", &[path, "b"])]);
    fs::remove_file(&key).unwrap();
}

#[cfg(feature = "wireguard")]
#[test]
fn a_stream_passes_wireguard() {
    let own = [[0x11; 32], [0x22; 32]];
    let public = own.map(|own| *PublicKey::from(&StaticSecret::from(own)).as_bytes());
    let keys = [("wg-a", own[0], public[1]), ("wg-b", own[1], public[0])];
    let keys = keys.map(|(name, own, other)| file(name, &[own, other].concat()));
    let paths = keys.each_ref().map(|key| key.to_str().unwrap());
    carries_a_stream([("wireguard", &[paths[0]]), ("wireguard", &[paths[1]])]);
    keys.iter().for_each(|key| fs::remove_file(key).unwrap());
}

#[test]
fn a_stack_in_userspace_returns_a_stream_in_superframes() {
    let Some([host]) = hosts() else { return };
    let mut service = start(&host, "stack", &["stack0", "10.80.0.2", "7000"]);
    host.run(|| set_up("stack0", Ipv4Addr::new(10, 80, 0, 1))).unwrap();
    let bytes = stream();
    let socket = host.run(|| TcpStream::connect("10.80.0.2:7000").unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&socket).write_all(&bytes).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        });
        let mut arrived = Vec::new();
        (&socket).read_to_end(&mut arrived).unwrap();
        assert!(arrived == bytes, "{} of {STREAM_BYTES} bytes", arrived.len());
    });
    let mut said = String::new();
    service.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(service.0.wait().unwrap().success());
    let numbers: Vec<usize> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [sent, frames] = numbers[..] else { panic!("{said}") };
    assert_eq!(sent, STREAM_BYTES);
    // Without superframes, there would be more than 2800 packets of 1460 bytes, plus acknowledgments.
    assert!(frames < STREAM_BYTES / 1460, "{said}");
}

/// Compiles a C program against the installed library, which pkg-config finds; returns `None` if there is no compiler.
fn compiled(source: &str, prefix: &Path) -> Option<PathBuf> {
    for tool in ["cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: {tool} is not installed");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {tool}");
            return None;
        }
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().unwrap();
    let installed = Command::new("sh")
        .arg(here.join("../crates/grosso-capi/install.sh"))
        .args([Path::new("--from"), test.parent().unwrap(), prefix])
        .status();
    assert!(installed.unwrap().success());
    let program = prefix.join("program");
    let script = "cc -O2 -Wall -Wextra -Werror -std=gnu11 \"$1\" -o \"$2\" $(pkg-config --cflags --libs grosso)";
    let built = Command::new("sh")
        .args(["-euc", script, "sh"])
        .args([&here.join("c").join(source), &program])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .status();
    assert!(built.unwrap().success());
    Some(program)
}

/// Creates a directory for a test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("grosso-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_stream_passes_the_bridge_in_c_as_superframes() {
    // The reference ensures that the library is built.
    assert_eq!(grosso_capi::types::grosso_version(), 0x00_01_00);
    let prefix = folder("c-bridge");
    let Some(program) = compiled("bridge.c", &prefix) else { return };
    let Some([a, b]) = hosts() else { return };
    let mut command = Command::new(program);
    command.args(["cone0", "cother0"]).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bridge = Running(a.host(&mut command).unwrap().spawn().unwrap());
    let mut said = BufReader::new(bridge.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "cone0 is there\n");
    let inner = [Ipv4Addr::new(10, 82, 0, 1), Ipv4Addr::new(10, 82, 0, 2)];
    a.run(|| {
        let netlink = Netlink::new().unwrap();
        let other = netlink.link(&InterfaceName::new("cother0").unwrap()).unwrap();
        netlink.change_link(other.index, LinkChange::new().namespace(b.as_fd())).unwrap();
        set_up("cone0", inner[0]);
    })
    .unwrap();
    b.run(|| set_up("cother0", inner[1])).unwrap();
    let listener = b.run(|| TcpListener::bind((inner[1], 0)).unwrap()).unwrap();
    send_stream(&a, &listener, listener.local_addr().unwrap());
    drop(bridge.0.stdin.take());
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert!(bridge.0.wait().unwrap().success());
    let numbers: Vec<usize> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [taken, made] = numbers[..] else { panic!("{line}") };
    // The device sends packets of at most 1460 bytes, because no program asked for larger ones.
    assert!(taken > STREAM_BYTES / 1460 && made < taken, "{line}");
    fs::remove_dir_all(&prefix).unwrap();
}

#[test]
fn the_capture_tool_writes_the_packets_that_pass() {
    let Some([host]) = hosts() else { return };
    let file = std::env::temp_dir().join(format!("grosso-capture-{}.pcap", std::process::id()));
    let _ = fs::remove_file(&file);
    let mut tool = start(&host, "capture", &["cap0", file.to_str().unwrap(), "3"]);
    host.run(|| {
        let _ = fs::write("/proc/sys/net/ipv6/conf/cap0/disable_ipv6", "1");
        set_up("cap0", Ipv4Addr::new(10, 79, 0, 1));
        let socket = UdpSocket::bind("10.79.0.1:0").unwrap();
        for payload in [&b"first"[..], b"second", b"third"] {
            socket.send_to(payload, "10.79.0.2:9").unwrap();
        }
    })
    .unwrap();
    assert!(tool.0.wait().unwrap().success());
    let written = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(written[..4], 0xa1b2_3c4d_u32.to_ne_bytes());
    let mut rest = &written[24..];
    for payload in [&b"first"[..], b"second", b"third"] {
        let len = u32::from_ne_bytes(rest[8..12].try_into().unwrap()) as usize;
        let packet = &rest[16..16 + len];
        assert_eq!((packet[0] >> 4, &packet[28..]), (4, payload));
        rest = &rest[16 + len..];
    }
    assert!(rest.is_empty());
}
