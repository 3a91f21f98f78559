//! Tests fragments and ESP between two hosts, each with its own `grosso run`, and inspects the packets on the wire
//! between them.
//!
//! ```text
//!  host a                                          host b
//!  ta (TAP, MTU 1400)   grosso   a0 ------------ e0   grosso   b0 (TAP, MTU 1400)
//!  10.9.0.1, fd09::1                 MTU 1500                  10.9.0.2, fd09::2
//! ```
//!
//! Longer than 600 lines: all cases share the setup of two hosts with `grosso run`.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    io,
    net::UdpSocket,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram, UnixListener},
        },
    },
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use grosso_sys::{namespace::NetworkNamespace, packet::PacketSocket};
use rustix::{
    process::{Gid, Signal, Uid},
    thread::{set_thread_res_gid, set_thread_res_uid},
};

use crate::network::{A, B, Hosts, Running, STALLED, connect, exchange, name, set_up, skip, until};

/// The key for packets from host a to host b, and the key for the opposite direction.
const KEYS: [&str; 2] =
    ["000102030405060708090a0b0c0d0e0fa0a1a2a3", "101112131415161718191a1b1c1d1e1fb0b1b2b3"];
const SPIS: [&str; 2] = ["0x00001001", "0x00001002"];
/// A user other than root and the user of the tests.
const STRANGER: u32 = 65_533;

/// Two hosts, and their ESP settings other than keys and sequence numbers.
pub(crate) struct Esp {
    pub(crate) hosts: Hosts,
    /// Additional lines in the configuration files of host a and of host b.
    more: [&'static str; 2],
    /// Directory of the sequence files, with a slash at the end.
    pub(crate) folder: &'static str,
    /// Configuration of another path on host b.
    pub(crate) beside: &'static str,
}

impl Esp {
    /// Creates the hosts. The interface of the first host has no addresses.
    pub(crate) fn new(more: [&'static str; 2]) -> Option<Self> {
        let hosts = Hosts::new()?;
        let quiet = || {
            std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1").unwrap();
        };
        hosts.a.run(quiet).unwrap();
        let mut flush = Command::new("ip");
        let flush = hosts.a.host(flush.args(["addr", "flush", "dev", "a0"])).unwrap();
        assert!(flush.status().unwrap().success());
        Some(Self { hosts, more, folder: "", beside: "" })
    }

    /// Starts the program on host a (0) or b (1), with the stages for its side of the wire.
    pub(crate) fn start(&self, host: usize) -> Running {
        let (near, far) = [("a0", "ta"), ("e0", "b0")][host];
        let (out, back) = (host, 1 - host);
        let keys = format!("in {}\nout {}\n", KEYS[back], KEYS[out]);
        let key_file = self.hosts.path(&format!("{host}.key"));
        std::fs::write(&key_file, keys).unwrap();
        std::fs::set_permissions(&key_file, PermissionsExt::from_mode(0o600)).unwrap();
        let text = format!(
            "[[path]]\nname = \"esp\"\n\
             left = {{ port = \"{near}\", fragments = {{ mtu = 1500, ignore-df = true }}, esp = {{ spi-out = {}, \
             spi-in = {}, icv-bits = 96, key-file = \"{host}.key\", sequence-file = \"{}{host}.seq\" \
             {} }} }}\n\
             right = {{ port = \"tap:{far}\", mtu = 1400, persist = true, fragments = {{}} }}\n{}",
            SPIS[out],
            SPIS[back],
            self.folder,
            self.more[host],
            ["", self.beside][host],
        );
        std::fs::write(self.hosts.path(&format!("{host}.toml")), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(["run", "-c", &format!("{host}.toml")]).current_dir(self.hosts.folder.path());
        let folder = self.hosts.path(&format!("{host}.run"));
        std::fs::create_dir_all(&folder).unwrap();
        command.env("RUNTIME_DIRECTORY", folder).env_remove("NOTIFY_SOCKET");
        let running = Running::spawn(self.space(host).host(&mut command).unwrap());
        running.wait_for_line("esp: ");
        let addresses = [A, B][host];
        // If the program was killed and is started again, the device already has the addresses.
        let addressed = self.space(host).run(|| set_up(far, addresses)).unwrap();
        let is_again = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        assert!(addressed.as_ref().err().is_none_or(is_again), "{addressed:?}");
        running
    }

    fn space(&self, host: usize) -> &NetworkNamespace {
        [&self.hosts.a, &self.hosts.b][host]
    }

    /// Sends a datagram in each direction, and compares it.
    fn datagrams(&self, family: usize, bytes: usize) {
        let bind = |host: usize| {
            let address = [A, B][host][family];
            let socket = self.space(host).run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            socket.set_read_timeout(Some(STALLED)).unwrap();
            socket
        };
        let sockets = [bind(0), bind(1)];
        let sent: Vec<u8> = (0..bytes).map(|i| (i / 3) as u8).collect();
        let mut received = vec![0; bytes + 1];
        for (from, to) in [(0, 1), (1, 0)] {
            let target = sockets[to].local_addr().unwrap();
            sockets[from].send_to(&sent, target).unwrap();
            assert_eq!(sockets[to].recv(&mut received).unwrap(), bytes);
            assert!(received[..bytes] == sent);
        }
    }

    /// Sends datagrams from host b until one arrives. Before it was killed, host a had recorded sequence numbers as
    /// received in advance, and it rejects packets with these numbers.
    pub(crate) fn use_up_numbers_ahead(&self) {
        let bind = |host: usize| {
            let address = [A, B][host][0];
            self.space(host).run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
        };
        let [near, far] = [bind(0), bind(1)];
        near.set_nonblocking(true).unwrap();
        let target = near.local_addr().unwrap();
        until(|| {
            far.send_to(b"number", target).unwrap();
            near.recv(&mut [0; 16]).is_ok()
        });
    }

    pub(crate) fn streams(&self, bytes: usize) {
        for (a, b) in A.into_iter().zip(B) {
            exchange(&connect((&self.hosts.a, a), (&self.hosts.b, b)), bytes);
        }
    }
}

/// Returns the output of tshark on a capture, one line per packet, with or without the keys.
fn tshark(esp: &Esp, keys: bool, filter: &str, field: &str) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(esp.hosts.path("wire.pcap"));
    command.args(["-Y", filter, "-T", "fields", "-e", field]);
    if keys {
        for preference in ["enable_encryption_decode", "enable_authentication_check"] {
            command.args(["-o", &format!("esp.{preference}:TRUE")]);
        }
        for (version, (spi, key)) in
            ["IPv4", "IPv6"].iter().flat_map(|v| SPIS.iter().zip(KEYS).map(move |k| (v, k)))
        {
            let line = format!(
                "uat:esp_sa:\"{version}\",\"*\",\"*\",\"{spi}\",\
                 \"AES-GCM with 12 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\""
            );
            command.args(["-o", &line]);
        }
    }
    let output = command.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn datagrams_and_streams_pass_in_esp_and_in_fragments_and_the_wire_shows_nothing_else() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    // The peer is Grosso too, because many kernels are built without ESP.
    if !has_kernel_esp(&esp) {
        println!("the kernel has no ESP (CONFIG_INET6_ESP): tshark alone judges the wire");
    }
    let mut dump = Command::new("tcpdump");
    // If slots are no longer than the MTU requires, a whole burst fits into the ring.
    dump.args(["-i", "a0", "-s", "2000", "-U", "-Z", "root", "--immediate-mode", "-w"]);
    let dump = esp.hosts.a.host(dump.arg(esp.hosts.path("wire.pcap"))).unwrap();
    let dump = Running::spawn(dump);
    dump.wait_for_line("listening on");
    let programs = [esp.start(0), esp.start(1)];
    for (family, bytes) in [(1, 60_000), (1, 20), (0, 60_000), (0, 20)] {
        esp.datagrams(family, bytes);
    }
    esp.streams(1 << 18);
    for program in programs {
        program.signal(Signal::USR1);
        for name in ["event_ip_reasm_oks", "event_ip_frag_oks", "event_esp_out_packets"] {
            program.wait_for_line(name);
        }
        let ended = program.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    dump.stop(Signal::INT);
    let Some(clear) = tshark(&esp, false, "tcp || udp || igmp", "frame.number") else {
        return skip("no tshark");
    };
    assert_eq!(clear, [""; 0], "unencrypted packets");
    let long = tshark(&esp, false, "ip.len > 1500 || ipv6.plen > 1460", "frame.number");
    assert_eq!(long.unwrap(), [""; 0], "packets longer than the MTU");
    let good = tshark(&esp, true, "esp.icv_good == 1", "frame.number").unwrap();
    let bad = tshark(&esp, true, "esp.icv_bad == 1", "frame.number").unwrap();
    assert!(good.len() > 100 && bad.is_empty(), "{} good, {} bad", good.len(), bad.len());
    let whole = tshark(&esp, true, "udp.length == 60008", "frame.number").unwrap();
    assert_eq!(whole.len(), 4, "each of the long datagrams, once");
    assert!(!tshark(&esp, true, "tcp.len > 0", "frame.number").unwrap().is_empty());
}

#[test]
fn a_program_that_was_killed_goes_on_with_numbers_that_nobody_used() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let [near, far] = [esp.start(0), esp.start(1)];
    esp.streams(1 << 16);
    let numbers = || {
        let text = std::fs::read_to_string(esp.hosts.path("0.seq")).unwrap();
        let number = |line: usize| {
            let line = text.lines().nth(line + 1).unwrap();
            line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        [number(1), number(2)]
    };
    let [sent, _] = numbers();
    assert!(sent >= 1 << 20, "sequence numbers are recorded before use");
    near.stop(Signal::KILL);
    let near = esp.start(0);
    esp.use_up_numbers_ahead();
    esp.streams(1 << 16);
    let [again, _] = numbers();
    assert!(again > sent, "{again} and {sent}");
    assert_eq!(near.stop(Signal::TERM).code, Some(0));
    let [last, received] = numbers();
    assert!(last > sent && last < again, "a clean end returns the unused numbers");
    assert!(received > 0);
    far.stop(Signal::TERM);
}

#[test]
fn a_tunnel_in_udp_with_extended_sequence_numbers_carries_both_families() {
    const MORE: [&str; 2] = [
        ", mode = \"tunnel\", src = \"10.9.0.1\", dst = \"10.9.0.2\", esn = true, encap = {}",
        ", mode = \"tunnel\", src = \"10.9.0.2\", dst = \"10.9.0.1\", esn = true, encap = {}",
    ];
    let Some(esp) = Esp::new(MORE) else { return };
    let programs = [esp.start(0), esp.start(1)];
    esp.streams(1 << 18);
    esp.datagrams(1, 9000);
    for program in programs {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}

#[test]
fn keys_that_others_can_read_and_numbers_that_another_program_uses_are_refused() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let near = esp.start(0);
    let text = std::fs::read_to_string(esp.hosts.path("0.toml")).unwrap();
    let text = text.replace("a0", "e0").replace("tap:ta", "tap:b0");
    std::fs::write(esp.hosts.path("twice.toml"), &text).unwrap();
    assert_eq!(esp.hosts.run("config check twice.toml").code, Some(0));
    let ended = esp.hosts.run("run -c twice.toml");
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let used = "another port or program on this host uses the key \"out\"\nhint: ";
    // If another host uses the key, only the lock on the key file is visible across network namespaces.
    let locked = "another port or program on this host uses the key file\nhint: ";
    assert!(ended.stderr.contains(used) || ended.stderr.contains(locked), "{ended:?}");
    // The error also occurs with another sequence file and with a copy of the keys.
    let copy = std::fs::read_to_string(esp.hosts.path("0.toml")).unwrap();
    let copy = copy
        .replace("port = \"a0\"", "port = \"lo\"")
        .replace("0.seq", "copy.seq")
        .replace("0.key", "copy.key");
    std::fs::copy(esp.hosts.path("0.key"), esp.hosts.path("copy.key")).unwrap();
    std::fs::write(esp.hosts.path("copy.toml"), copy.replace("tap:ta", "tap:tb")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(["run", "-c", "copy.toml"]).current_dir(esp.hosts.folder.path());
    let output = esp.hosts.a.host(&mut command).unwrap().output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(used), "{output:?}");
    let key = esp.hosts.path("0.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    for line in ["config check twice.toml", "run -c twice.toml"] {
        let ended = esp.hosts.run(line);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let hint = format!("hint: chmod 600 {}", key.display());
        assert!(ended.stderr.contains(&hint), "{ended:?}");
        assert!(!ended.stderr.contains(KEYS[0]), "{ended:?}");
    }
    // An error in the file changes nothing.
    near.signal(Signal::HUP);
    near.wait_for_line("no path was changed");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&key, format!("in {}\nout {}\n", KEYS[0], KEYS[1])).unwrap();
    near.signal(Signal::HUP);
    near.wait_for_line("no path was changed");
    // New keys require a new file.
    let main = esp.hosts.path("0.toml");
    let text = std::fs::read_to_string(&main).unwrap().replace("0.seq", "new.seq");
    std::fs::write(&main, text).unwrap();
    near.signal(Signal::HUP);
    near.wait_for_line("run: esp started");
    until(|| near.threads().len() == 1);
    assert_eq!(near.stop(Signal::TERM).code, Some(0));
}

/// Returns the names of the port locks in a host's network namespace.
pub(crate) fn claims(host: &NetworkNamespace) -> Vec<String> {
    let sockets = host.run(|| std::fs::read_to_string("/proc/thread-self/net/unix")).unwrap();
    let name = |line: &str| line.split_once("@grosso-esp-").map(|(_, name)| name.to_owned());
    let names = sockets.unwrap().lines().filter_map(name).collect::<Vec<_>>();
    names.into_iter().map(|name| format!("grosso-esp-{name}")).collect()
}

/// Binds abstract names as another user, with sockets of both types.
pub(crate) fn held_by_stranger(
    host: &NetworkNamespace,
    names: &[String],
) -> Option<Vec<(UnixListener, UnixDatagram)>> {
    let hold = || {
        let (user, group) = (Uid::from_raw(STRANGER), Gid::from_raw(STRANGER));
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        let hold = |name| {
            let address = SocketAddr::from_abstract_name(name)?;
            Ok((UnixListener::bind_addr(&address)?, UnixDatagram::bind_addr(&address)?))
        };
        names.iter().map(hold).collect::<io::Result<_>>()
    };
    let held = host.run(hold).unwrap();
    if let Err(error) = &held {
        skip(&format!("no other user here: {error}"));
    }
    held.ok()
}

#[test]
fn another_user_who_holds_the_names_of_the_keys_does_not_stop_the_path() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    assert_eq!(claims(&esp.hosts.a), Vec::<String>::new());
    let near = esp.start(0);
    let names = claims(&esp.hosts.a);
    assert_eq!(names.len(), 2, "{names:?}");
    // The second start by this user is refused, with a useful hint.
    let text = std::fs::read_to_string(esp.hosts.path("0.toml")).unwrap();
    let text = text.replace("0.seq", "copy.seq").replace("0.key", "copy.key");
    std::fs::copy(esp.hosts.path("0.key"), esp.hosts.path("copy.key")).unwrap();
    std::fs::write(esp.hosts.path("copy.toml"), text.replace("tap:ta", "tap:tb")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(["run", "-c", "copy.toml"]).current_dir(esp.hosts.folder.path());
    let ended = Running::spawn(esp.hosts.a.host(&mut command).unwrap()).end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let hint =
        "uses the key \"out\"\nhint: stop the other program (grosso stats lists the running paths)";
    assert!(ended.stderr.contains(hint), "{ended:?}");
    assert_eq!(near.stop(Signal::TERM).code, Some(0));

    let Some(held) = held_by_stranger(&esp.hosts.a, &names) else { return };
    let near = esp.start(0);
    for key in ["out", "in"] {
        let note = near.wait_for_line(&format!("uses the same key \"{key}\""));
        assert!(note.contains(&format!("user {STRANGER}")), "{note}");
    }
    let far = esp.start(1);
    esp.datagrams(0, 3000);
    // A reload that reopens the path logs it again.
    let main = esp.hosts.path("0.toml");
    let text = std::fs::read_to_string(&main).unwrap().replace("mtu = 1400", "mtu = 1380");
    std::fs::write(&main, text).unwrap();
    near.signal(Signal::HUP);
    near.wait_for_line("uses the same key \"out\"");
    drop(held);
    for program in [near, far] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}

/// Sets the number of packets sent in the sequence file of host a.
fn set_sent(esp: &Esp, sent: u64) {
    let file = esp.hosts.path("0.seq");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = lines.get_mut(2).unwrap();
    let (name, _) = line.split_once(' ').unwrap();
    *line = format!("{name} {sent}");
    std::fs::write(file, lines.join("\n") + "\n").unwrap();
}

/// Greatest sequence number without extended sequence numbers.
const SEQUENCE_MAX: u64 = u32::MAX as u64;
const SCARCE: &str =
    "path esp: 90 % of the sequence numbers of its ESP keys are used; sending stops";
const EXHAUSTED: &str =
    "path esp: all sequence numbers of its ESP keys are used, so no packets are sent";

#[test]
fn scarce_and_exhausted_sequence_numbers_are_noted_at_the_start() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    assert_eq!(esp.start(0).stop(Signal::TERM).code, Some(0));
    for (sent, note) in [(SEQUENCE_MAX / 20 * 19, SCARCE), (SEQUENCE_MAX, EXHAUSTED)] {
        set_sent(&esp, sent);
        // No packet is sent: the peer is not running.
        let near = esp.start(0);
        near.wait_for_line(note);
        assert_eq!(near.stop(Signal::TERM).code, Some(0));
    }
}

#[test]
fn exhausted_sequence_numbers_are_noted_while_a_path_runs() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    assert_eq!(esp.start(0).stop(Signal::TERM).code, Some(0));
    set_sent(&esp, SEQUENCE_MAX - 50);
    let (near, far) = (esp.start(0), esp.start(1));
    let (before, _) = near.wait_for_line_and_earlier(SCARCE);
    assert!(!before.iter().any(|line| line.contains(EXHAUSTED)), "{before:?}");
    let socket = esp.hosts.a.run(|| UdpSocket::bind((A[0], 0))).unwrap().unwrap();
    let exhausted = || {
        // The path may have no buffer space at the moment.
        let _ = socket.send_to(&[7; 100], (B[0], 9));
        near.has_line(EXHAUSTED)
    };
    until(exhausted);
    for program in [near, far] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}

/// A sequence file must not block startup or signal handling. If one does, this test hangs.
#[test]
fn a_sequence_file_that_is_not_a_regular_file_is_refused_at_the_start_and_at_a_reload() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let near = esp.start(0);
    let pipe = esp.hosts.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _socket = UnixListener::bind(esp.hosts.path("socket")).unwrap();
    std::fs::create_dir(esp.hosts.path("directory")).unwrap();
    let main = esp.hosts.path("0.toml");
    let text = std::fs::read_to_string(&main).unwrap();
    for name in ["pipe", "socket", "directory", "/dev/zero"] {
        std::fs::write(&main, text.replace("0.seq", name)).unwrap();
        near.signal(Signal::HUP);
        let (before, _) = near.wait_for_line_and_earlier("no path was changed");
        let why = format!("{name}: not a regular file");
        assert!(before.iter().any(|line| line.contains(&why)), "{before:?}");
        for line in ["config check 0.toml", "run -c 0.toml"] {
            let ended = esp.hosts.run(line);
            assert_eq!(ended.code, Some(4), "{ended:?}");
            assert!(ended.stderr.contains(&why), "{ended:?}");
        }
    }
    // The old configuration stays active.
    let far = esp.start(1);
    esp.datagrams(0, 3000);
    for program in [near, far] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}

/// A key read from a file and the same key read from a descriptor count as one key, even within one process.
#[test]
fn a_key_from_a_descriptor_is_refused_where_a_port_has_it_from_a_file() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    assert_eq!(esp.start(0).stop(Signal::TERM).code, Some(0));
    let first = std::fs::read_to_string(esp.hosts.path("0.toml")).unwrap();
    let second = first.replace("\"esp\"", "\"other\"").replace("\"a0\"", "\"lo\"");
    let second = second.replace("tap:ta", "tap:tb").replace("0.seq", "other.seq");
    let second = second.replace("key-file = \"0.key\"", "key-fd = 3");
    std::fs::write(esp.hosts.path("both.toml"), first + &second).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" run -c both.toml 3< 0.key", env!("CARGO_BIN_EXE_grosso")]);
    command.current_dir(esp.hosts.folder.path()).env_remove("NOTIFY_SOCKET");
    command.env("RUNTIME_DIRECTORY", esp.hosts.path("0.run"));
    let ended = Running::spawn(esp.hosts.a.host(&mut command).unwrap()).end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let used = "another port or program on this host uses the key";
    assert!(ended.stderr.contains(used), "{ended:?}");
}

/// Returns the initialization vectors and sequence numbers of the ESP packets in a capture, read by tshark.
fn vectors(esp: &Esp) -> Option<Vec<(String, u64, u64)>> {
    let [spis, numbers, vectors] =
        ["esp.spi", "esp.sequence", "esp.iv"].map(|field| tshark(esp, true, "esp.iv", field));
    let packets = spis?.into_iter().zip(numbers?).zip(vectors?);
    let vector = |hex: &str| u64::from_str_radix(&hex.replace(':', ""), 16).unwrap();
    Some(packets.map(|((spi, number), hex)| (spi, number.parse().unwrap(), vector(&hex))).collect())
}

/// Each start has its own salt: after a clean restart, after SIGKILL, with a sequence file restored from a copy, and
/// without the file (an empty one was refused and then deleted).
#[test]
fn no_vector_repeats_on_the_wire_across_starts_whatever_happens_to_the_sequence_file() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let mut dump = Command::new("tcpdump");
    dump.args(["-i", "a0", "-s", "2000", "-U", "-Z", "root", "--immediate-mode", "-w"]);
    let dump = esp.hosts.a.host(dump.arg(esp.hosts.path("wire.pcap"))).unwrap();
    let dump = Running::spawn(dump);
    dump.wait_for_line("listening on");
    let file = esp.hosts.path("0.seq");
    let said = |what: &str| {
        let ended = esp.hosts.run("config check 0.toml");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains("make new keys"), "{ended:?}");
    };
    let mut backup = Vec::new();
    let payload = [0; 500];
    for start in 0..5 {
        match start {
            0 => {}
            1 => backup = std::fs::read(&file).unwrap(),
            2 => {}
            3 => std::fs::write(&file, &backup).unwrap(),
            _ => {
                std::fs::write(&file, "").unwrap();
                said("0.seq: the file is empty");
                let foreign = String::from_utf8(backup.clone()).unwrap().replace("keys ", "keys 1");
                std::fs::write(&file, foreign.replacen("keys 1", "keys 1\n", 1)).unwrap();
                said("0.seq: the file ");
                std::fs::remove_file(&file).unwrap();
            }
        }
        let far = esp.start(1);
        let near = esp.start(0);
        // The peer's replay window drops repeated numbers, so only transmitted packets are counted.
        let socket = esp.hosts.a.run(|| UdpSocket::bind((A[1], 0))).unwrap().unwrap();
        let captured = || std::fs::metadata(esp.hosts.path("wire.pcap")).unwrap().len();
        let enough = captured() + 120 * payload.len() as u64;
        until(|| {
            (0..20).for_each(|_| drop(socket.send_to(&payload, (B[1], 9))));
            captured() >= enough
        });
        let signal = if start == 1 { Signal::KILL } else { Signal::TERM };
        near.stop(signal);
        far.stop(Signal::TERM);
    }
    dump.stop(Signal::INT);
    let Some(packets) = vectors(&esp) else { return skip("no tshark") };
    for spi in SPIS {
        let of_key: Vec<_> = packets.iter().filter(|(other, ..)| other == spi).collect();
        let count = |by: fn(&(String, u64, u64)) -> u64| {
            of_key.iter().map(|packet| by(packet)).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(count(|packet| packet.2), of_key.len(), "a vector repeats");
        let salts = count(|packet| packet.1 ^ packet.2);
        if spi == SPIS[0] {
            assert!(of_key.len() >= 500, "{}", of_key.len());
            assert!(
                count(|packet| packet.1) < of_key.len(),
                "sequence numbers must repeat for this test"
            );
            assert_eq!(salts, 5, "one salt per start");
        }
    }
}

/// Programs in two network namespaces do not see each other's locks, and a copy of the key file is a different file. So
/// both send with the same key and the same numbers, and only the salts keep their IVs distinct.
#[test]
fn a_copy_of_the_keys_in_another_namespace_repeats_numbers_and_no_vector() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let mut dump = Command::new("tcpdump");
    dump.args(["-i", "a0", "-s", "2000", "-U", "-Z", "root", "--immediate-mode", "-w"]);
    let dump = esp.hosts.a.host(dump.arg(esp.hosts.path("wire.pcap"))).unwrap();
    let dump = Running::spawn(dump);
    dump.wait_for_line("listening on");
    let near = esp.start(0);
    let text = std::fs::read_to_string(esp.hosts.path("0.toml")).unwrap();
    let text = text.replace("\"a0\"", "\"e0\"").replace("tap:ta", "tap:b0");
    let text = text.replace("0.key", "copy.key").replace("0.seq", "copy.seq");
    std::fs::write(esp.hosts.path("copy.toml"), text).unwrap();
    std::fs::copy(esp.hosts.path("0.key"), esp.hosts.path("copy.key")).unwrap();
    let copy = Running::spawn(&mut esp.hosts.command("run -c copy.toml"));
    copy.wait_for_line("esp: ");
    esp.hosts.b.run(|| set_up("b0", B)).unwrap().unwrap();
    let socket = |host: usize| {
        esp.space(host).run(|| UdpSocket::bind(([A, B][host][1], 0))).unwrap().unwrap()
    };
    let sockets = [socket(0), socket(1)];
    let captured = || std::fs::metadata(esp.hosts.path("wire.pcap")).unwrap().len();
    for (socket, target) in sockets.iter().zip([B, A]) {
        let enough = captured() + 60_000;
        until(|| {
            (0..20).for_each(|_| drop(socket.send_to(&[0; 500], (target[1], 9))));
            captured() >= enough
        });
    }
    for program in [near, copy] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
    dump.stop(Signal::INT);
    let Some(packets) = vectors(&esp) else { return skip("no tshark") };
    let of_key: Vec<_> = packets.iter().filter(|(spi, ..)| spi == SPIS[0]).collect();
    let count = |by: fn(&(String, u64, u64)) -> u64| {
        of_key.iter().map(|packet| by(packet)).collect::<BTreeSet<_>>().len()
    };
    assert!(count(|packet| packet.1) < of_key.len(), "sequence numbers must repeat for this test");
    assert_eq!(count(|packet| packet.2), of_key.len(), "a vector repeats");
    assert_eq!(count(|packet| packet.1 ^ packet.2), 2, "one salt per program");
}

/// Sender and receiver of numbered datagrams over IPv6, in both directions between the hosts. No number is sent twice.
struct Numbered {
    sockets: [UdpSocket; 2],
    next: AtomicU64,
    /// Numbers of the datagrams that the first host received.
    passed: Mutex<BTreeSet<u64>>,
    flows: AtomicBool,
    ends: AtomicBool,
}

impl Numbered {
    fn new(esp: &Esp) -> Self {
        let bind = |host: usize| {
            let bind = || UdpSocket::bind((if host == 0 { A } else { B }[1], NUMBERED_PORT));
            let socket = esp.space(host).run(bind).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            socket
        };
        Self {
            sockets: [bind(0), bind(1)],
            next: AtomicU64::new(0),
            passed: Mutex::default(),
            flows: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        }
    }

    /// Sends the next numbers to both hosts. While the program is down, the kernel may refuse them.
    fn send(&self, count: usize) {
        for _ in 0..count {
            let number = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            let payload = [&number[..], &[0; 200]].concat();
            let _ = self.sockets[1].send_to(&payload, (A[1], NUMBERED_PORT));
            let _ = self.sockets[0].send_to(&payload, (B[1], NUMBERED_PORT));
        }
    }

    fn keep_sending(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            if self.flows.load(Ordering::Relaxed) {
                self.send(20);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Receives datagrams at the first host, where no number may arrive twice. The second host does not read its
    /// datagrams.
    fn keep_receiving(&self) {
        let mut payload = [0; 300];
        while !self.ends.load(Ordering::Relaxed) {
            let Ok(len) = self.sockets[0].recv(&mut payload) else { continue };
            let number = u64::from_be_bytes(payload[..len].first_chunk().copied().unwrap());
            let is_new = self.passed.lock().unwrap().insert(number);
            if !is_new {
                self.ends.store(true, Ordering::Relaxed);
                panic!("the recorded packet with number {number} passed again");
            }
        }
    }

    fn received(&self) -> usize {
        assert!(!self.ends.load(Ordering::Relaxed), "a recorded packet passed again");
        self.passed.lock().unwrap().len()
    }

    /// Sends datagrams until this many more have arrived.
    fn flow(&self, more: usize) {
        let enough = self.received() + more;
        self.flows.store(true, Ordering::Relaxed);
        until(|| self.received() >= enough);
    }

    /// Waits until a new datagram has arrived. By then, everything that was on the wire before it has arrived, too.
    fn pass_one(&self) {
        let first = self.next.load(Ordering::Relaxed);
        until(|| {
            self.send(1);
            self.received() > 0 && self.passed.lock().unwrap().last() >= Some(&first)
        });
    }
}

const NUMBERED_PORT: u16 = 4444;

/// Records each ESP packet that the wire carries to the first host, once.
fn record(wire: &PacketSocket, recorded: &Mutex<Vec<Vec<u8>>>, ends: &AtomicBool) {
    let spi = u32::from_str_radix(&SPIS[1][2..], 16).unwrap().to_be_bytes();
    let (mut frame, mut last) = ([0; 2048], 0);
    while !ends.load(Ordering::Relaxed) {
        let _ = wire.wait(Duration::from_millis(20));
        while let Some(packet) = wire.receive(&mut frame).unwrap() {
            let frame = &frame[..packet.length];
            // The frame has an ESP header after the headers of Ethernet and IPv6.
            if frame.get(20) == Some(&50) && frame[54..58] == spi {
                let number = u32::from_be_bytes(*frame[58..].first_chunk().unwrap());
                // Replayed packets are not new, and are not recorded again.
                if number > last {
                    last = number;
                    recorded.lock().unwrap().push(frame.to_vec());
                }
            }
        }
    }
}

/// Kills the program at random points (SIGKILL) while datagrams pass in both directions. Recorded packets, replayed to
/// each new process, are rejected, and no two processes use the same IV.
#[test]
fn nothing_recorded_passes_again_and_no_vector_repeats_however_often_the_program_is_killed() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let mut dump = Command::new("tcpdump");
    dump.args(["-i", "a0", "-s", "2000", "-U", "-Z", "root", "--immediate-mode", "-w"]);
    let dump = esp.hosts.a.host(dump.arg(esp.hosts.path("wire.pcap"))).unwrap();
    let dump = Running::spawn(dump);
    dump.wait_for_line("listening on");
    let hear = || PacketSocket::builder().receive_buffer_bytes(16 << 20).bind(&name("a0"));
    let wire = esp.hosts.a.run(hear).unwrap().unwrap();
    let attacker = || PacketSocket::builder().bind(&name("e0"));
    let attacker = esp.hosts.b.run(attacker).unwrap().unwrap();
    let recorded = Mutex::default();
    let far = esp.start(1);
    let near = esp.start(0);
    let datagrams = Numbered::new(&esp);
    let mut dice = fastrand::Rng::with_seed(16);
    let near = thread::scope(|scope| {
        let mut near = near;
        let ends = AtEnd(&datagrams.ends);
        scope.spawn(|| datagrams.keep_sending());
        scope.spawn(|| datagrams.keep_receiving());
        scope.spawn(|| record(&wire, &recorded, &datagrams.ends));
        for kill in 0..KILLS {
            datagrams.flow(dice.usize(1..600));
            near.stop(Signal::KILL);
            datagrams.flows.store(false, Ordering::Relaxed);
            near = esp.start(0);
            let all: Vec<Vec<u8>> = recorded.lock().unwrap().clone();
            for packets in all[all.len().saturating_sub(2000)..].chunks(200) {
                for packet in packets {
                    while attacker.send(packet).is_err() {
                        thread::yield_now();
                    }
                }
                datagrams.pass_one();
            }
            println!("kill {kill}: {} recorded, {} passed", all.len(), datagrams.received());
        }
        drop(ends);
        near
    });
    near.signal(Signal::USR1);
    let refused = near.wait_for_line("drop_esp_in_too_old");
    println!("{refused}");
    for program in [near, far] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
    dump.stop(Signal::INT);
    let Some(packets) = vectors(&esp) else { return skip("no tshark") };
    let of_key: Vec<_> = packets.iter().filter(|(spi, ..)| spi == SPIS[0]).collect();
    let count = |by: fn(&(String, u64, u64)) -> u64| {
        of_key.iter().map(|packet| by(packet)).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(count(|packet| packet.2), of_key.len(), "a vector repeats");
    assert_eq!(count(|packet| packet.1), of_key.len(), "a number repeats");
    assert_eq!(count(|packet| packet.1 ^ packet.2), KILLS + 1, "one salt per start");
}

/// Guard that sets a flag when it is dropped, so that all threads exit even if the test fails.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const KILLS: usize = 12;

#[test]
fn a_program_with_keys_is_hidden_from_others_and_its_keys_from_the_disk() {
    let Some(esp) = Esp::new(["", ""]) else { return };
    let near = esp.start(0);
    let status = std::fs::read_to_string(format!("/proc/{}/status", near.id())).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    assert_ne!(locked.trim(), "0 kB");
    near.stop(Signal::TERM);
}

/// Returns whether the kernel supports ESP.
fn has_kernel_esp(esp: &Esp) -> bool {
    let mut state = Command::new("ip");
    state.args(["xfrm", "state", "add", "src", "fd09::1", "dst", "fd09::2", "proto", "esp"]);
    state.args(["spi", SPIS[0], "mode", "transport", "aead", "rfc4106(gcm(aes))"]);
    let state = state.args([&format!("0x{}", KEYS[0]), "96"]);
    let added = esp.hosts.b.host(state).unwrap().output();
    let flush = || {
        let mut flush = Command::new("ip");
        let _ = esp.hosts.b.host(flush.args(["xfrm", "state", "flush"])).unwrap().status();
    };
    added.is_ok_and(|output| output.status.success().then(flush).is_some())
}
