//! Tests `grosso bridge` with Unix sockets, as virtual machines use them. Either this test is the peer, or kernel TCP
//! passes through two bridges, which are connected by a socket or share memory as a device and its driver.
//!
//! ```text
//!  host a                                        host b
//!  ta (TAP)   grosso ---- unix:PATH ---- grosso  tb (TAP)
//!                      vhost-user:PATH
//!  10.9.0.1, fd09::1                             10.9.0.2, fd09::2
//! ```

#![cfg(target_os = "linux")]

use std::{
    io::{Read, Write},
    net::UdpSocket,
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixDatagram, UnixListener, UnixStream},
        },
    },
    process::Command,
    thread,
    time::Instant,
};

use grosso_sys::{datagram::set_segment_bytes, namespace::NetworkNamespace, netlink::Netlink};
use grosso_testkit::{
    front_end::{FrontEnd, sparse},
    oracle,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::network::{
    A, B, CHUNK, Running, STALLED, connect, exchange, namespaces, receive, send, until,
};

/// Two hosts without a link, and the directory that contains their socket.
struct Ends {
    a: NetworkNamespace,
    b: NetworkNamespace,
    folder: tempfile::TempDir,
}

/// Arguments of a socket, for the listening and for the connecting bridge.
type Words = [&'static str; 2];

/// Offload arguments for each of the two bridges: equal in some cases, different in others.
const OFFLOADS: [Words; 6] = [
    ["", ""],
    [",vnet", ",vnet"],
    [",vnet=10,offloads=none", ",vnet=10,offloads=none"],
    [",vnet,offloads=none", ",vnet,offloads=csum+tso4+tso6+uso"],
    [",vnet=24,offloads=csum", ",vnet=24,offloads=tso4"],
    [",vnet,offloads=tso6+uso", ",vnet"],
];

/// Shared-memory ports of both bridges: either the device or its driver listens.
const SHARED: [Words; 2] = [
    ["vhost-user:vm.sock", "vhost-user:vm.sock,driver,connect"],
    ["vhost-user:vm.sock,driver", "vhost-user:vm.sock,connect"],
];

/// Shared-memory feature arguments for each of the two bridges: equal in some cases, different in others.
const FEATURES: [Words; 4] = [
    ["", ""],
    [",offloads=none", ""],
    [",offloads=csum", ",offloads=csum+tso6"],
    [",offloads=csum+tso4+uso", ",offloads=csum+tso4"],
];

/// Arguments for a stream socket and for a datagram socket.
const KINDS: [Words; 2] = [["", ",connect"], [",dgram", ",dgram,connect,local=own"]];

impl Ends {
    /// Creates the hosts; `None` if the caller cannot create them.
    fn new() -> Option<Self> {
        let [a, b] = namespaces()?;
        Some(Self { a, b, folder: tempfile::tempdir().unwrap() })
    }

    fn command(&self, host: &NetworkNamespace, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command.env("RUNTIME_DIRECTORY", self.folder.path()).env_remove("NOTIFY_SOCKET");
        host.host(&mut command).unwrap();
        command
    }

    fn start(&self, host: &NetworkNamespace, line: &str) -> Running {
        let running = Running::spawn(&mut self.command(host, line));
        running.wait_for_line("<->");
        running
    }

    /// Starts the bridge on the listening or on the connecting host.
    fn bridge(&self, listens: bool, words: &str) -> Running {
        self.bridge_at(listens, &format!("unix:vm.sock{words}"))
    }

    /// Starts the bridge with the given port.
    fn bridge_at(&self, listens: bool, port: &str) -> Running {
        let (host, device) = if listens { (&self.a, "ta") } else { (&self.b, "tb") };
        self.start(host, &format!("bridge tap:{device} {port} --persist"))
    }

    fn addresses(&self) {
        self.a.run(|| crate::network::set_up("ta", A)).unwrap().unwrap();
        self.b.run(|| crate::network::set_up("tb", B)).unwrap().unwrap();
    }

    /// Asserts that streams and datagrams pass through these bridges intact, and that the bridges then exit cleanly.
    fn are_whole_through(&self, bridges: [Running; 2], bytes: usize) {
        if self.a.run(|| UdpSocket::bind((A[1], 0))).unwrap().is_err() {
            self.addresses();
        }
        self.streams(bytes);
        self.datagrams();
        for bridge in bridges {
            let ended = bridge.stop(Signal::TERM);
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }

    fn streams(&self, bytes: usize) {
        for (a, b) in A.into_iter().zip(B) {
            exchange(&connect((&self.a, a), (&self.b, b)), bytes);
            exchange(&connect((&self.b, b), (&self.a, a)), bytes);
        }
    }

    /// Sends datagrams as one superframe, and repeats that until they arrive, because datagrams may be lost.
    fn datagrams(&self) {
        for (a, b) in A.into_iter().zip(B) {
            let far = self.b.run(|| UdpSocket::bind((b, 0))).unwrap().unwrap();
            let near = self.a.run(|| UdpSocket::bind((a, 0))).unwrap().unwrap();
            set_segment_bytes(&near, 1200).unwrap();
            far.set_nonblocking(true).unwrap();
            let sent: Vec<u8> = (0..12_100_u32).map(|i| (i * 7) as u8).collect();
            let mut got = Vec::new();
            until(|| {
                near.send_to(&sent, far.local_addr().unwrap()).unwrap();
                thread::sleep(std::time::Duration::from_millis(20));
                let mut buffer = [0; 2000];
                got.clear();
                while let Ok(len) = far.recv(&mut buffer) {
                    got.push(buffer[..len].to_vec());
                }
                got.len() >= 11
            });
            for (datagram, piece) in got.iter().zip(sent.chunks(1200).cycle()) {
                assert!(datagram == piece, "datagrams of {a} differ");
            }
        }
    }
}

#[test]
fn streams_are_complete_for_all_feature_combinations() {
    let Some(ends) = Ends::new() else { return };
    for (kind, offloads) in KINDS.into_iter().flat_map(|kind| OFFLOADS.map(|words| (kind, words))) {
        let words = [0, 1].map(|end| format!("{}{}", kind[end], offloads[end]));
        println!("{words:?}");
        let listening = ends.bridge(true, &words[0]);
        ends.are_whole_through([ends.bridge(false, &words[1]), listening], 2 << 20);
    }
}

#[test]
fn a_host_without_offloads_and_one_with_them_exchange_whole_streams() {
    let Some(ends) = Ends::new() else { return };
    for offloads in [["", ""], [",vnet", ",vnet"]] {
        let listening = ends.bridge(true, offloads[0]);
        let connecting = ends.bridge(false, &format!(",connect{}", offloads[1]));
        if ends.a.run(|| UdpSocket::bind((A[1], 0))).unwrap().is_err() {
            ends.addresses();
        }
        let off = ends.command(&ends.a, "dev -K ta tx off tso off").output().unwrap();
        assert!(off.status.success(), "{off:?}");
        ends.streams(4 << 20);
        for bridge in [connecting, listening] {
            assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
        }
    }
}

#[test]
fn streams_are_whole_between_a_device_and_its_driver() {
    let Some(ends) = Ends::new() else { return };
    for (ports, words) in SHARED.into_iter().flat_map(|ports| FEATURES.map(|words| (ports, words)))
    {
        let ports = [0, 1].map(|end| format!("{}{}", ports[end], words[end]));
        println!("{ports:?}");
        let listening = ends.bridge_at(true, &ports[0]);
        ends.are_whole_through([ends.bridge_at(false, &ports[1]), listening], 4 << 20);
    }
}

#[test]
fn a_connection_outlives_the_death_of_either_bridge() {
    let sockets = KINDS.map(|kind| kind.map(|words| format!("unix:vm.sock{words},vnet")));
    for ports in sockets.into_iter().chain(SHARED.map(|ports| ports.map(str::to_owned))) {
        let Some(ends) = Ends::new() else { return };
        let mut bridges = [true, false]
            .map(|listens| Some(ends.bridge_at(listens, &ports[usize::from(!listens)])));
        ends.addresses();
        let stream = connect((&ends.a, A[0]), (&ends.b, B[0]));
        exchange(&stream, 1 << 20);
        for (killed, listens) in [(1, false), (0, true), (1, false)] {
            let ended = bridges[killed].take().unwrap().stop(Signal::KILL);
            assert_eq!(ended.code, None, "it was killed: {ended:?}");
            thread::scope(|scope| {
                let [near, far] = &stream;
                // Data sent now is lost until the bridge is back.
                scope.spawn(|| send(near, 3, 64 * CHUNK));
                bridges[killed] = Some(ends.bridge_at(listens, &ports[killed]));
                receive(far, 3, 64 * CHUNK);
            });
        }
        let survivor = bridges[0].take().unwrap();
        survivor.signal(Signal::USR1);
        survivor.wait_for_line("event_peer_gone");
        for bridge in [Some(survivor), bridges[1].take()].into_iter().flatten() {
            assert_eq!(bridge.stop(Signal::TERM).code, Some(0), "{ports:?}");
        }
    }
}

/// At the time of the reload, the thread that opens devices is already confined. It can still take over the stopped
/// path's socket file.
#[test]
fn reloading_opens_a_changed_socket_anew_and_its_connections_live_on() {
    let Some(ends) = Ends::new() else { return };
    let path = "[[path]]\nname = \"vm\"\nleft = { port = \"tap:ta\", persist = true }\n";
    let write = |mode: &str| {
        let right = format!("right = {{ port = \"unix:vm.sock,mode={mode}\", vnet_hdr = 12 }}\n");
        std::fs::write(ends.folder.path().join("vm.toml"), format!("{path}{right}")).unwrap();
    };
    write("600");
    let running = ends.start(&ends.a, "run -c vm.toml");
    let connecting = ends.bridge(false, ",connect,vnet");
    ends.addresses();
    let stream = connect((&ends.a, A[0]), (&ends.b, B[0]));
    exchange(&stream, 1 << 20);
    for mode in ["660", "640"] {
        write(mode);
        running.signal(Signal::HUP);
        running.wait_for_line("run: vm started");
        let metadata = ends.folder.path().join("vm.sock").metadata().unwrap();
        assert_eq!(format!("{:o}", metadata.permissions().mode() & 0o777), mode);
        exchange(&stream, 1 << 20);
    }
    for program in [connecting, running] {
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}

/// A bridge that has run out of descriptors disconnects its peer, without blaming the peer.
#[test]
fn a_system_without_descriptors_is_blamed_itself_and_goes_on_when_it_has_some() {
    let folder = tempfile::tempdir().unwrap();
    let [driver, device] = ["a", "b"].map(|name| folder.path().join(name));
    let listener = UnixListener::bind(&driver).unwrap();
    let bridge = bridge_in(&folder, ["vhost-user:a,driver,connect", "vhost-user:b"]);
    // After both peers have connected, the process can open no further descriptor.
    let (mut switch, _) = listener.accept().unwrap();
    let mut machine = UnixStream::connect(&device).unwrap();
    for stream in [&switch, &machine] {
        stream.set_read_timeout(Some(STALLED)).unwrap();
    }
    let mut question = [0; 12];
    switch.read_exact(&mut question).unwrap();
    assert_eq!(question, *words(&[1, 1, 0]));
    machine.write_all(&question).unwrap();
    machine.read_exact(&mut [0; 20]).unwrap();
    let inherited = getrlimit(Resource::Nofile);
    limit(&bridge, Resource::Nofile, Rlimit { current: Some(3), ..inherited });
    switch.write_all(&answer(1, 1 << 32)).unwrap();
    assert_eq!(switch.read(&mut question).unwrap(), 0, "disconnected");
    let shares = FrontEnd::on(machine, u64::MAX, &mut || ());
    assert!(shares.is_err(), "the memory of the VM was not shared");
    limit(&bridge, Resource::Nofile, inherited);
    let (mut switch, _) = listener.accept().unwrap();
    switch.set_read_timeout(Some(STALLED)).unwrap();
    switch.read_exact(&mut question).unwrap();
    switch.write_all(&answer(1, 1 << 32)).unwrap();
    switch.read_exact(&mut question).unwrap();
    assert_eq!(question, *words(&[3, 1, 0]), "the process owns the device, and shares the rest");
    FrontEnd::connect(&device, u64::MAX, &mut || ()).unwrap();
    bridge.signal(Signal::USR1);
    // If a bridge receives SIGTERM before it has handled another signal, it prints nothing for that signal.
    let (first, _) = bridge.wait_for_line_and_earlier("vhost-user:b (path");
    let said = [first.join("\n"), bridge.stop(Signal::TERM).stderr].concat();
    assert_eq!(said.matches("event_setup_failed").count(), 2, "{said}");
    assert!(!said.contains("drop_peer_cut_off"), "{said}");
}

/// If a bridge has run out of descriptors, its client waits, and the bridge does not busy-loop.
#[test]
fn a_client_waits_for_a_descriptor_and_is_accepted_later() {
    for port in ["vhost-user:vm.sock", "unix:vm.sock"] {
        let folder = tempfile::tempdir().unwrap();
        let bridge = bridge_in(&folder, [port, IDLE]);
        let inherited = getrlimit(Resource::Nofile);
        limit(&bridge, Resource::Nofile, Rlimit { current: Some(3), ..inherited });
        let begun = Instant::now();
        let _machine = UnixStream::connect(folder.path().join("vm.sock")).unwrap();
        until(|| counted(&bridge, "event_setup_failed") > 1);
        let failed = counted(&bridge, "event_setup_failed");
        let attempts = begun.elapsed().as_millis() / 100 + 1;
        assert!(u128::from(failed) <= attempts, "{port}: {failed} in {attempts} times 100 ms");
        assert_eq!(counted(&bridge, "event_peer_met"), 0, "{port}");
        limit(&bridge, Resource::Nofile, inherited);
        until(|| counted(&bridge, "event_peer_met") == 1);
        let ended = bridge.stop(Signal::TERM);
        assert!(ended.code == Some(0) && !ended.stderr.contains("drop_"), "{port}: {ended:?}");
    }
}

/// A bridge disconnects a VM whose memory it cannot map, without blaming the VM.
#[test]
fn memory_for_which_there_are_no_addresses_is_no_fault_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge_in(&folder, ["vhost-user:vm.sock,memory=64G", IDLE]);
    let path = folder.path().join("vm.sock");
    let front = FrontEnd::connect(&path, u64::MAX, &mut || ()).unwrap();
    let inherited = getrlimit(Resource::As);
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", bridge.id())).unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let some_more = Some(pages * 4096 + HUGE_BYTES / 2);
    limit(&bridge, Resource::As, Rlimit { current: some_more, ..inherited });
    let memory = sparse(HUGE_BYTES).unwrap();
    let region = [1, 0, HUGE_BYTES, 0, 0].map(u64::to_ne_bytes).concat();
    front.send_request(5, &region, &[memory.as_fd()]).unwrap();
    until(|| counted(&bridge, "event_peer_gone") == 1);
    limit(&bridge, Resource::As, inherited);
    FrontEnd::connect(&path, u64::MAX, &mut || ()).unwrap();
    assert_eq!(counted(&bridge, "event_setup_failed"), 1);
    let said = bridge.stop(Signal::TERM).stderr;
    assert!(!said.contains("memory_refused") && !said.contains("drop_peer_cut_off"), "{said}");
}

/// Starts a bridge between ports in a directory.
fn bridge_in(folder: &tempfile::TempDir, ports: [&str; 2]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.arg("bridge").args(ports).current_dir(folder.path());
    command.env("RUNTIME_DIRECTORY", folder.path()).env_remove("NOTIFY_SOCKET");
    let bridge = Running::spawn(&mut command);
    bridge.wait_for_line("<->");
    // The bridge answers this signal once it has opened everything that it opens at the start.
    bridge.signal(Signal::USR1);
    ports.iter().for_each(|_| drop(bridge.wait_for_line("(path")));
    bridge
}

fn limit(bridge: &Running, resource: Resource, limit: Rlimit) {
    prlimit(Pid::from_raw(bridge.id() as i32), resource, limit).unwrap();
}

/// Returns the value of a counter of a bridge. The counter must be zero on the second port, [`IDLE`].
fn counted(bridge: &Running, name: &str) -> u64 {
    bridge.signal(Signal::USR1);
    let (lines, _) = bridge.wait_for_line_and_earlier(&format!("{IDLE} (path"));
    let line = lines.iter().find(|line| line.contains(name));
    line.map_or(0, |line| line.split_whitespace().last().unwrap().parse().unwrap())
}

/// A port to which no peer connects.
const IDLE: &str = "unix:idle.sock";
/// Memory size that exceeds the address space.
const HUGE_BYTES: u64 = 1 << 36;

/// Encodes an answer to a vhost-user message.
fn answer(request: u32, number: u64) -> Vec<u8> {
    [words(&[request, 5, 8]), number.to_ne_bytes().to_vec()].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Peer program that exchanges frames through a socket. Its arguments determine the socket type and the headers of the
/// frames.
enum Machine {
    Stream(UnixStream),
    Datagram(UnixDatagram),
}

impl Machine {
    fn connect(ends: &Ends, is_datagram: bool) -> Self {
        let [path, own] = ["vm.sock", "machine"].map(|name| ends.folder.path().join(name));
        if is_datagram {
            let socket = UnixDatagram::bind(own).unwrap();
            socket.connect(path).unwrap();
            socket.set_read_timeout(Some(STALLED)).unwrap();
            Self::Datagram(socket)
        } else {
            let stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(STALLED)).unwrap();
            Self::Stream(stream)
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Stream(stream) => {
                let len = (bytes.len() as u32).to_be_bytes();
                stream.write_all(&[&len, bytes].concat()).unwrap();
            }
            Self::Datagram(socket) => assert_eq!(socket.send(bytes).unwrap(), bytes.len()),
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 17];
        let len = match self {
            Self::Stream(stream) => {
                let mut len = [0; 4];
                stream.read_exact(&mut len).unwrap();
                let len = u32::from_be_bytes(len) as usize;
                stream.read_exact(&mut buffer[..len]).unwrap();
                len
            }
            Self::Datagram(socket) => socket.recv(&mut buffer).unwrap(),
        };
        buffer.truncate(len);
        buffer
    }
}

/// A VM without virtio headers gets packets with complete checksums; one with virtio headers gets the kinds of frames
/// that it accepts.
#[test]
fn a_machine_gets_packets_that_are_whole_and_what_it_sends_arrives() {
    for (is_datagram, words) in
        [(false, ""), (true, ",dgram"), (false, ",vnet,offloads=uso"), (true, ",dgram,vnet")]
    {
        let Some(ends) = Ends::new() else { return };
        let bridge = ends.bridge(true, words);
        ends.a.run(|| crate::network::set_up("ta", A)).unwrap().unwrap();
        let socket = ends.folder.path().join("vm.sock");
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let mut machine = Machine::connect(&ends, is_datagram);
        let header_len = if words.contains("vnet") { 12 } else { 0 };
        let behind = |frame: &[u8]| [&vec![0; header_len], frame].concat();
        let neighbour = || -> std::io::Result<()> {
            let index =
                grosso_sys::interface::Control::new()?.index(&crate::network::name("ta"))?;
            Netlink::new()?.set_neighbour(index, B[0], [2, 0, 0, 0, 0, 7])
        };
        ends.a.run(neighbour).unwrap().unwrap();
        let host = ends.a.run(|| UdpSocket::bind((A[0], 4000))).unwrap().unwrap();
        host.set_read_timeout(Some(STALLED)).unwrap();
        // A broadcast datagram from the VM, without a checksum.
        let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 7, 8, 0]].concat();
        let mut ip = [0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
        let checksum = oracle::checksum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(ip);
        frame.extend([0x13, 0x88, 0x0f, 0xa0, 0, 13, 0, 0]);
        frame.extend(b"hello");
        machine.send(&behind(&frame));
        let mut buffer = [0; 100];
        let (len, from) = host.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from.ip(), from.port()), (&b"hello"[..], B[0], 5000));
        // A superframe of three datagrams from the host.
        set_segment_bytes(&host, 1000).unwrap();
        let sent: Vec<u8> = (0..2500_u32).map(|i| (i * 3) as u8).collect();
        host.send_to(&sent, (B[0], 5000)).unwrap();
        let mut payload = Vec::new();
        let mut frames = 0;
        while payload.len() < sent.len() {
            let received = machine.receive();
            let (header, frame) = received.split_at(header_len);
            // Other packets are ARP, IPv6 neighbor discovery and the like.
            if frame[12..14] != [8, 0] || frame[23] != 17 || frame[34..36] != [0x0f, 0xa0] {
                continue;
            }
            frames += 1;
            payload.extend_from_slice(&frame[42..]);
            // A partial checksum is the pseudo-header sum.
            let pseudo =
                oracle::pseudo_header(&frame[26..30], &frame[30..34], 17, frame.len() - 34);
            if header.first().is_some_and(|flags| flags & 1 != 0) {
                assert_eq!(frame[40..42], oracle::sum(&pseudo).to_be_bytes(), "{words}");
            } else {
                assert!(oracle::is_right(frame, oracle::Link::Ethernet), "{words}: complete");
            }
        }
        assert!(payload == sent);
        assert_eq!(frames, if words.contains("uso") { 1 } else { 3 }, "{words}");
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    }
}

#[test]
fn a_place_where_no_socket_can_be_is_refused_with_what_to_do() {
    let Some(ends) = Ends::new() else { return };
    let run = |line: &str| Running::spawn(&mut ends.command(&ends.a, line)).end();
    std::fs::write(ends.folder.path().join("text"), "").unwrap();
    for (words, code, why) in [
        ("unix:text", 4, "another program uses this socket, or the file is not a socket"),
        ("unix:no/folder", 4, "the directory does not exist"),
        ("unix:s,dgram,connect", 2, "local=PATH"),
        ("unix:s,offloads=csum", 2, "vnet"),
        ("unix:s --queues 2", 2, "one queue"),
        (&format!("unix:{}", "x".repeat(108)), 2, "107 bytes"),
    ] {
        let ended = run(&format!("bridge tap:t0 {words}"));
        assert_eq!(ended.code, Some(code), "{words}: {ended:?}");
        assert!(ended.stderr.contains(why), "{words}: {}", ended.stderr);
    }
    let first = ends.bridge(true, "");
    let ended = run("bridge tap:t0 unix:vm.sock");
    assert!(ended.stderr.contains("another program uses this socket"), "{ended:?}");
    // The socket left by a killed program is taken over.
    first.stop(Signal::KILL);
    let next = ends.bridge(true, ",mode=660");
    let mode = ends.folder.path().join("vm.sock").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(next.stop(Signal::TERM).code, Some(0));
}
