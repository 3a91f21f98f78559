//! One kernel stream, captured at its sender and on the wire at the same time.
//!
//! ```text
//!  sender         bridge         router (if any)        receiver
//!  s0 ---------- s1     w0 ----- r0            r1 ----- d0
//!  superframes          packets
//! ```
//!
//! `w0` has no offloads, so the kernel segments the sender's packets and completes their checksums there. The devices
//! after it have none either, so packets in the reverse direction are wire packets, too.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    net::{IpAddr, Shutdown, UdpSocket},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use grosso_sys::{
    datagram,
    ethtool::set_feature,
    interface::Control,
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    scheduling,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    common::{Timed, has, packets},
    network::{STALLED, connect, name, receive, send, skip, until},
};

/// IP versions, as indices.
pub(crate) const IPV4: usize = 0;
pub(crate) const IPV6: usize = 1;
/// Addresses of the sender.
pub(crate) const SENDER: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// Addresses of the receiver: on the sender's network, and behind a router.
const RECEIVER: [[&str; 2]; 2] = [["10.9.0.2", "fd09::2"], ["10.10.0.2", "fd10::2"]];
/// Addresses of the router, on the sender's and on the receiver's side.
const ROUTER: [[&str; 2]; 2] = [["10.9.0.9", "fd09::9"], ["10.10.0.9", "fd10::9"]];
/// The inner addresses of the sender and the receiver.
pub(crate) const INSIDE: [[&str; 2]; 2] = [["10.8.0.1", "fd08::1"], ["10.8.0.2", "fd08::2"]];
/// Number of bytes in a stream: enough for superframes of 64 KB.
pub(crate) const BYTES: usize = 1 << 19;

/// Configuration of the path from the sender to the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The MTU of every link.
    pub(crate) mtu: u32,
    /// MTU of a link behind a router, which the hosts do not know; `None` without a router.
    pub(crate) behind: Option<u32>,
}

/// The hosts along a path.
pub(crate) struct Chain {
    pub(crate) sender: NetworkNamespace,
    pub(crate) bridge: NetworkNamespace,
    pub(crate) router: NetworkNamespace,
    pub(crate) receiver: NetworkNamespace,
    has_router: bool,
    folder: tempfile::TempDir,
}

impl Chain {
    /// Creates the hosts; `None` if the caller cannot create them.
    pub(crate) fn new(way: Way) -> Option<Self> {
        let chain = Self::hosts(way.behind.is_some())?;
        chain.wire(("s0", &chain.sender), ("s1", &chain.bridge), way.mtu);
        let far = way.behind.map_or(("d0", &chain.receiver), |_| ("r0", &chain.router));
        chain.wire(("w0", &chain.bridge), far, way.mtu);
        chain.join(&["s1", "w0"]);
        for (host, device) in [(&chain.bridge, "w0"), (far.1, far.0)] {
            without_offloads(host, device);
        }
        if let Some(behind) = way.behind {
            chain.wire(("r1", &chain.router), ("d0", &chain.receiver), way.mtu);
            chain.route(behind);
        }
        chain.address();
        Some(chain)
    }

    /// Creates hosts without any wire.
    pub(crate) fn bare() -> Option<Self> {
        Self::hosts(false)
    }

    fn hosts(has_router: bool) -> Option<Self> {
        if !["ip", "tcpdump"].iter().all(|tool| has(tool)) {
            return None;
        }
        pin();
        let made = Self::make(has_router);
        made.map_err(|error| skip(&format!("cannot create a private network namespace: {error}")))
            .ok()
    }

    fn make(has_router: bool) -> io::Result<Self> {
        let host = || -> io::Result<NetworkNamespace> {
            let host = NetworkNamespace::new()?;
            // Addresses are usable immediately, and a sender without pacing creates long superframes.
            host.run(|| {
                std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")?;
                std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")
            })??;
            Ok(host)
        };
        Ok(Self {
            sender: host()?,
            bridge: host()?,
            router: host()?,
            receiver: host()?,
            has_router,
            folder: tempfile::tempdir()?,
        })
    }

    /// Creates a wire between two hosts.
    fn wire(&self, near: (&str, &NetworkNamespace), far: (&str, &NetworkNamespace), mtu: u32) {
        let lay = || {
            let end = LinkChange::new().namespace(far.1.as_fd()).mtu(mtu);
            let own = LinkChange::new().mtu(mtu);
            Netlink::new()?.add_veth((&name(near.0), own), (&name(far.0), end))
        };
        near.1.run(lay).unwrap().unwrap();
        for (device, host) in [near, far] {
            ip(host, &format!("link set {device} up"));
        }
    }

    /// Connects these devices with a bridge, which has no addresses and sends no packets of its own.
    pub(crate) fn join(&self, ports: &[&str]) {
        let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        self.bridge.run(quiet).unwrap().unwrap();
        ip(&self.bridge, "link add bridge0 type bridge");
        for port in ports {
            ip(&self.bridge, &format!("link set {port} master bridge0 up"));
        }
        ip(&self.bridge, "link set bridge0 up");
    }

    fn route(&self, behind: u32) {
        without_offloads(&self.router, "r1");
        without_offloads(&self.receiver, "d0");
        let forward = || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
        };
        self.router.run(forward).unwrap().unwrap();
        for (device, addresses) in [("r0", ROUTER[0]), ("r1", ROUTER[1])] {
            self.give(&self.router, device, addresses);
        }
        ip(&self.router, &format!("link set r1 mtu {behind}"));
    }

    /// Configures the addresses of the sender and the receiver.
    pub(crate) fn address(&self) {
        let side = usize::from(self.has_router);
        self.give(&self.sender, "s0", SENDER);
        self.give(&self.receiver, "d0", RECEIVER[side]);
        if self.has_router {
            for (host, routers) in [(&self.sender, ROUTER[0]), (&self.receiver, ROUTER[1])] {
                ip(host, &format!("route add default via {}", routers[IPV4]));
                ip(host, &format!("-6 route add default via {}", routers[IPV6]));
            }
        }
    }

    /// Configures addresses on a device; only IPv4 if its MTU is too small for IPv6.
    pub(crate) fn give(&self, host: &NetworkNamespace, device: &str, addresses: [&str; 2]) {
        ip(host, &format!("addr add {}/24 dev {device}", addresses[IPV4]));
        let is_wide = host.run(|| Control::new()?.mtu(&name(device))).unwrap().unwrap() >= 1280;
        if is_wide {
            ip(host, &format!("addr add {}/64 dev {device} nodad", addresses[IPV6]));
        }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Creates a kernel VXLAN device `x0` on both hosts, in UDP over IPv4; returns false if the kernel has no VXLAN.
    pub(crate) fn vxlan(&self, words: &str, mtu: u32) -> bool {
        let [near, far] = self.ends(IPV4);
        for (host, local, remote, inside) in
            [(&self.sender, near, far, INSIDE[0]), (&self.receiver, far, near, INSIDE[1])]
        {
            let ends = format!("local {local} remote {remote}");
            if let Err(error) =
                attempt(host, &format!("ip link add x0 type vxlan id 42 {ends} {words}"))
            {
                skip(&format!("this machine has no VXLAN devices: {error}"));
                return false;
            }
            ip(host, &format!("link set x0 mtu {mtu} up"));
            self.give(host, "x0", inside);
        }
        true
    }

    /// Returns the addresses of the sender and the receiver.
    pub(crate) fn ends(&self, family: usize) -> [IpAddr; 2] {
        let receiver = RECEIVER[usize::from(self.has_router)];
        [SENDER, receiver].map(|host| host[family].parse().unwrap())
    }

    /// Sends a stream through a connection of the sender, and closes it.
    pub(crate) fn stream(&self, [from, to]: [IpAddr; 2], bytes: usize) {
        let [near, far] = connect((&self.sender, from), (&self.receiver, to));
        thread::scope(|scope| {
            scope.spawn(|| send(&near, 3, bytes));
            scope.spawn(|| receive(&far, 3, bytes));
        });
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&far).read(&mut [0]).unwrap(), 0);
        drop(far);
        assert_eq!((&near).read(&mut [0]).unwrap(), 0);
    }

    /// Sends datagrams that the kernel segments (`UDP_SEGMENT`), and one that it does not.
    pub(crate) fn datagrams(&self, [from, to]: [IpAddr; 2], size: u16, lengths: &[usize]) {
        let far = self.receiver.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
        let near = self.sender.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..1 << 16).map(|i| (i % 251) as u8).collect();
        let mut buffer = vec![0; 1 << 16];
        far.set_read_timeout(Some(STALLED)).unwrap();
        for &len in lengths {
            datagram::set_segment_bytes(&near, size).unwrap();
            near.send(&bytes[..len]).unwrap();
            // At most one superframe fits into the receiver's buffer at a time.
            let mut left = len;
            while left > 0 {
                left -= far.recv(&mut buffer).unwrap();
            }
        }
        datagram::set_segment_bytes(&near, 0).unwrap();
        near.send(b"one alone").unwrap();
        far.recv(&mut buffer).unwrap();
    }

    /// Captures on several devices while a stream runs, and returns the packets of each.
    pub(crate) fn record(
        &self,
        devices: &[(&NetworkNamespace, &str)],
        family: usize,
        talk: impl FnOnce(),
    ) -> Vec<Vec<Timed>> {
        let watch = |(index, &(host, device))| {
            Watch::start(host, device, self.path(&format!("{index}.pcap")))
        };
        let watches: Vec<Watch> = devices.iter().enumerate().map(watch).collect();
        self.mark(family, BEGIN);
        talk();
        self.mark(family, END);
        watches.into_iter().map(Watch::seen).collect()
    }

    /// Sends a datagram in each direction, the sender's first.
    fn mark(&self, family: usize, marks: [&[u8]; 2]) {
        let [from, to] = self.ends(family);
        let far = self.receiver.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
        let near = self.sender.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        let mut buffer = [0; 64];
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(STALLED)).unwrap();
        }
        near.send_to(marks[0], far.local_addr().unwrap()).unwrap();
        let (_, back) = far.recv_from(&mut buffer).unwrap();
        far.send_to(marks[1], back).unwrap();
        near.recv(&mut buffer).unwrap();
    }
}

/// A running tcpdump, with the file to which it writes.
struct Watch {
    tcpdump: Child,
    file: PathBuf,
}

impl Watch {
    fn start(host: &NetworkNamespace, device: &str, file: PathBuf) -> Self {
        // The file of the previous recording would be mistaken for this one.
        let _ = std::fs::remove_file(&file);
        let mut command = Command::new("tcpdump");
        command.args(["-i", device, "-B", "65536", "-U", "-w"]).arg(&file);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut tcpdump = host.host(&mut command).unwrap().spawn().unwrap();
        until(|| {
            assert!(tcpdump.try_wait().unwrap().is_none(), "tcpdump does not run on {device}");
            std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() >= 24)
        });
        Self { tcpdump, file }
    }

    /// Returns the packets captured between the marks: captures may differ outside them.
    fn seen(mut self) -> Vec<Timed> {
        until(|| is_over(&self.file));
        kill_process(Pid::from_raw(self.tcpdump.id() as i32).unwrap(), Signal::INT).unwrap();
        let mut said = String::new();
        self.tcpdump.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.tcpdump.wait().unwrap();
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
        between(&packets(&std::fs::read(&self.file).unwrap()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A failed test must not leave a process running.
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

/// Returns whether a capture contains the last datagram of each direction.
pub(crate) fn is_over(file: &Path) -> bool {
    let tail = tail(file);
    END.iter().all(|mark| find(&tail, mark))
}

/// Returns the packets of each direction that are between the marks.
pub(crate) fn between(all: &[Timed]) -> Vec<Timed> {
    let place = |mark: &[u8]| {
        let place = all.iter().position(|(_, frame)| is_mark(frame, mark));
        place.expect("every mark is in every capture")
    };
    let ranges = [0, 1].map(|side| place(BEGIN[side]) + 1..place(END[side]));
    let source = |index: usize| &all[index].1[6..12];
    let is_between = |&index: &usize| {
        let range = ranges.iter().find(|range| source(index) == source(range.end));
        range.is_some_and(|range| range.contains(&index))
    };
    (0..all.len()).filter(is_between).map(|index| all[index].clone()).collect()
}

/// Returns the end of a file.
fn tail(file: &Path) -> Vec<u8> {
    let mut file = File::open(file).unwrap();
    let len = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES))).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn find(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn is_mark(frame: &[u8], mark: &[u8]) -> bool {
    frame.len() < 128 && find(frame, mark)
}

/// Pins the calling thread, and thus the processes that it starts, to one CPU. On two CPUs, a sender's packets may
/// overtake each other between two capture points.
fn pin() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = scheduling::allowed_processors().unwrap();
    let processor = allowed[NEXT.fetch_add(1, Ordering::Relaxed) % allowed.len()];
    scheduling::pin(None, processor).unwrap();
}

/// Runs `ip` on a host, and asserts that it succeeds.
pub(crate) fn ip(host: &NetworkNamespace, line: &str) {
    run(host, &format!("ip {line}"));
}

/// Runs a program on a host, and asserts that it succeeds.
pub(crate) fn run(host: &NetworkNamespace, line: &str) {
    assert_eq!(attempt(host, line), Ok(()), "{line}");
}

/// Runs a program on a host; returns its output as the error if it fails.
pub(crate) fn attempt(host: &NetworkNamespace, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = host.host(command.args(words)).unwrap().output().unwrap();
    let is_done = output.status.success();
    if is_done { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Turns off checksum and segmentation offloads of a device: segmentation requires checksum offload.
pub(crate) fn without_offloads(host: &NetworkNamespace, device: &str) {
    set(host, device, "tx-checksum-ip-generic", false);
}

/// Turns a feature of a device on or off.
pub(crate) fn set(host: &NetworkNamespace, device: &str, feature: &str, on: bool) {
    host.run(|| set_feature(&Control::new()?, &name(device), feature, on)).unwrap().unwrap();
}

/// Payloads of the first and the last datagram in each direction.
const BEGIN: [&[u8]; 2] = [b"the sender begins", b"the receiver begins"];
const END: [&[u8]; 2] = [b"the sender has said all of it", b"the receiver has said all of it"];
/// The maximum number of bytes that may follow the marks in a file.
const TAIL_BYTES: u64 = 1 << 16;
