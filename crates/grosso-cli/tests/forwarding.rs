//! Tests fragments between two hosts that pass through `grosso run`, which reassembles them. tcpdump captures on both
//! sides.
//!
//! ```text
//!  host a (a0) ------ e0   grosso   r1 ------ host c (r0)
//!  10.9.0.1, fd09::1                          10.9.0.2, fd09::2
//! ```

#![cfg(target_os = "linux")]

use std::{fs::File, io, net::UdpSocket, os::fd::AsFd, path::Path, process::Command};

use grosso_capture::{CaptureReader, Entry};
use grosso_sys::{
    interface::Control,
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};
use rustix::process::Signal;

use crate::network::{A, B, Hosts, Running, STALLED, name, namespaces, set_up, skip, until};

/// Number of datagrams per trial, and of bytes per datagram.
const DATAGRAMS: usize = 20;
const BYTES: usize = 4000;

/// An address family, and host a's MTU for it. The MTU is so small that host a's fragments are shorter than those for
/// any other MTU in this test.
#[derive(Clone, Copy, Debug)]
struct Family {
    index: usize,
    mtu: u16,
    /// Number of fragments per datagram from host a.
    fragments: usize,
}

const FAMILIES: [Family; 2] =
    [Family { index: 0, mtu: 1000, fragments: 5 }, Family { index: 1, mtu: 1280, fragments: 4 }];

/// Host a, the host that runs Grosso, and the host that receives the packets.
struct Line {
    hosts: Hosts,
    c: NetworkNamespace,
}

impl Line {
    /// Creates the hosts; `None` if they cannot be created, or tcpdump is missing.
    fn new() -> Option<Self> {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            skip("no tcpdump");
            return None;
        }
        let hosts = Hosts::new()?;
        let [c] = namespaces()?;
        let lay = || -> io::Result<()> {
            let host = LinkChange::new().namespace(c.as_fd());
            Netlink::new()?.add_veth((&name("r1"), LinkChange::new()), (&name("r0"), host))?;
            Control::new()?.set_up(&name("r1"), true)
        };
        hosts.b.run(lay).unwrap().unwrap();
        c.run(|| set_up("r0", B)).unwrap().unwrap();
        Some(Self { hosts, c })
    }

    fn start(&self, text: &str) -> Running {
        std::fs::write(self.hosts.path("path.toml"), format!("[[path]]\n{text}\n")).unwrap();
        self.hosts.start("run -c path.toml")
    }

    /// Sends datagrams from host a to another host, which must receive all of them intact.
    fn send(&self, family: Family, to: &NetworkNamespace) {
        let index = family.index;
        let mtu = || Control::new()?.set_mtu(&name("a0"), family.mtu);
        self.hosts.a.run(mtu).unwrap().unwrap();
        let far = to.run(|| UdpSocket::bind((B[index], 0))).unwrap().unwrap();
        far.set_read_timeout(Some(STALLED)).unwrap();
        let near = self.hosts.a.run(|| UdpSocket::bind((A[index], 0))).unwrap().unwrap();
        let mut received = vec![0; BYTES + 1];
        for number in 0..DATAGRAMS {
            let sent: Vec<u8> = (0..BYTES).map(|i| (i / 7 + number) as u8).collect();
            near.send_to(&sent, far.local_addr().unwrap()).unwrap();
            let got = far.recv(&mut received);
            let bytes =
                got.unwrap_or_else(|error| panic!("{family:?}, datagram {number}: {error}"));
            assert!(received[..bytes] == sent, "{family:?}, datagram {number} differs");
        }
    }

    /// Starts tcpdump on a device. It records packets from host a that are fragments, or that are longer than a
    /// fragment.
    fn dump(&self, host: &NetworkNamespace, device: &str) -> Running {
        let mut command = Command::new("tcpdump");
        // If slots are no longer than a datagram, a whole trial fits into the ring.
        command.args(["-i", device, "-s", "5000", "-U", "-Z", "root", "--immediate-mode", "-w"]);
        command.arg(self.hosts.path(&format!("{device}.pcap")));
        let v4 = format!("src host {} and (ip[6:2] & 0x3fff != 0 or greater 2000)", A[0]);
        let v6 = format!("src host {} and (ip6[6] = 44 or greater 2000)", A[1]);
        let dump = Running::spawn(host.host(command.arg(format!("({v4}) or ({v6})"))).unwrap());
        dump.wait_for_line("listening on");
        dump
    }

    /// Waits until a capture has `count` frames, and returns them.
    fn captured(&self, device: &str, count: usize) -> Vec<Vec<u8>> {
        let path = self.hosts.path(&format!("{device}.pcap"));
        until(|| frames(&path).len() >= count);
        frames(&path)
    }

    /// Captures on the devices of both sides while datagrams pass.
    fn seen(&self, family: Family, to: (&NetworkNamespace, &str), out: usize) -> [Vec<Vec<u8>>; 2] {
        let dumps = [self.dump(&self.hosts.a, "a0"), self.dump(to.0, to.1)];
        self.send(family, to.0);
        let came = self.captured("a0", DATAGRAMS * family.fragments);
        let left = self.captured(to.1, DATAGRAMS * out);
        dumps.into_iter().for_each(|dump| drop(dump.stop(Signal::INT)));
        assert_eq!(came.len(), DATAGRAMS * family.fragments, "{family:?}");
        [came, left]
    }
}

/// Returns the frames of a capture that is still being written.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let reader = File::open(path).ok().and_then(|file| CaptureReader::new(file).ok());
    let Some(mut reader) = reader else { return found };
    while let Ok(Some(entry)) = reader.next() {
        if let Entry::Packet(packet) = entry {
            found.push(packet.data.to_vec());
        }
    }
    found
}

/// Returns the value of a counter once the program prints it.
fn counter(program: &Running, name: &str) -> usize {
    program.signal(Signal::USR1);
    let line = program.wait_for_line(name);
    line.split_whitespace().last().unwrap().parse().unwrap()
}

// Rules: S61, S62, P38
#[test]
fn fragments_leave_byte_for_byte_as_they_came() {
    let joins = "left = { port = \"e0\", fragments = {} }\n";
    let reads = "left = { port = \"e0\", fragments = { mode = \"virtual\" } }\n";
    let plain = "right = \"r1\"";
    let cuts = "right = { port = \"r1\", fragments = { mtu = 1500 } }";
    for (left, right) in [(joins, plain), (joins, cuts), (reads, plain), ("left = \"e0\"\n", plain)]
    {
        for family in FAMILIES {
            let Some(line) = Line::new() else { return };
            let program = line.start(&format!("{left}{right}"));
            let [came, sent] = line.seen(family, (&line.c, "r0"), family.fragments);
            let lengths = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(lengths(&sent), lengths(&came), "{left}{right}: {family:?}");
            assert!(sent == came, "{left}{right}: {family:?}");
            if left == joins {
                assert_eq!(counter(&program, "event_ip_reasm_oks"), DATAGRAMS);
            }
            assert_eq!(program.stop(Signal::TERM).code, Some(0));
        }
    }
}

#[test]
fn a_host_where_they_end_gets_whole_datagrams() {
    for family in FAMILIES {
        let Some(line) = Line::new() else { return };
        let program = line.start(
            "left = { port = \"e0\", fragments = {} }\n\
             right = { port = \"tap:b0\", terminates = true }",
        );
        line.hosts.address("b0");
        let [_, sent] = line.seen(family, (&line.hosts.b, "b0"), 1);
        let whole = [14 + 20 + 8 + BYTES, 14 + 40 + 8 + BYTES][family.index];
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [whole; DATAGRAMS], "{family:?}");
        assert_eq!(counter(&program, "event_ip_reasm_oks"), DATAGRAMS);
        assert_eq!(program.stop(Signal::TERM).code, Some(0));
    }
}
