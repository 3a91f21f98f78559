//! Tests that the running kernel's fragments, captured by tcpdump, are reassembled into the datagrams that the sockets
//! sent.

#![cfg(target_os = "linux")]

use std::{
    net::UdpSocket,
    path::Path,
    process::{Child, Command, Stdio},
};

use grosso_testkit::random::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bench, frames, has, tshark};
use crate::network::{A, B, Hosts, until};

/// Payload that only the last datagram has.
const MARK: &[u8] = b"that was all of it";

/// Number of header bytes before the data of UDP over Ethernet, for IPv4 and for IPv6.
const HEADERS: [usize; 2] = [14 + 20 + 8, 14 + 40 + 8];

#[test]
fn fragments_of_the_kernel_become_what_was_sent() {
    if !["tcpdump", "tshark"].iter().all(|tool| has(tool)) {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    // In this test, the second host itself is the far endpoint, so its interface gets the addresses that Grosso's
    // device usually has.
    let wake = || std::fs::write("/proc/sys/net/ipv6/conf/e0/disable_ipv6", "0");
    hosts.b.run(wake).unwrap().unwrap();
    hosts.address("e0");

    let bench = Bench::new();
    let file = bench.path("a.pcap");
    let mut tcpdump = capture(&hosts, &file);
    let sent = talk(&hosts);
    until(|| std::fs::read(&file).is_ok_and(|bytes| holds(&bytes, MARK)));
    kill_process(Pid::from_raw(tcpdump.id() as i32).unwrap(), Signal::INT).unwrap();
    tcpdump.wait().unwrap();

    let report = bench.ok("reassemble --json -r a.pcap -w b.pcap --strict").json();
    let count = |name: &str| report[name].as_u64().unwrap() as usize;
    let (before, after) = (frames(&bench.get("a.pcap")), frames(&bench.get("b.pcap")));
    assert_eq!(before.len() - count("fragments") + count("datagrams"), after.len());
    assert!(count("datagrams") > sent.len() / 2 && count("fragments") > 200, "{report}");
    let received: Vec<_> = after.iter().filter_map(|frame| payload(frame)).collect();
    assert!(received == sent, "{} of {}", received.len(), sent.len());
    // A datagram that was never fragmented crosses the veth pair with a partial checksum.
    let wrong = "_ws.malformed || ip.checksum.status == 0 || \
                 (udp.checksum.status == 0 && udp.length > 1480)";
    assert_eq!(tshark(&bench.path("b.pcap"), wrong), [""; 0]);

    // When fragmented again, the datagrams give the kernel's fragments, except for the IPv6 identifications, which are
    // new.
    bench.ok("fragment -q -r b.pcap -w c.pcap --mtu 1500 --ignore-df --strict");
    let again = frames(&bench.get("c.pcap"));
    assert_eq!(again.len(), before.len());
    let without_id = |frame: &Vec<u8>| match frame.get(20) {
        Some(44) => [&frame[..58], &frame[62..]].concat(),
        _ => frame.clone(),
    };
    let differ = |(one, other): &(&Vec<u8>, &Vec<u8>)| without_id(one) != without_id(other);
    assert_eq!(before.iter().zip(&again).filter(differ).count(), 0);
}

/// Starts tcpdump at the device where the datagrams arrive, and waits until it runs.
fn capture(hosts: &Hosts, file: &Path) -> Child {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", "e0", "-B", "65536", "-U", "-w"]).arg(file);
    tcpdump.stdout(Stdio::null()).stderr(Stdio::null());
    let mut tcpdump = hosts.b.host(&mut tcpdump).unwrap().spawn().unwrap();
    until(|| {
        assert!(tcpdump.try_wait().unwrap().is_none(), "tcpdump does not run");
        std::fs::metadata(file).is_ok_and(|metadata| metadata.len() >= 24)
    });
    tcpdump
}

/// Sends datagrams of many lengths, up to the longest, and returns those that were received.
fn talk(hosts: &Hosts) -> Vec<Vec<u8>> {
    let mut random = Random::new(11);
    let mut sent = Vec::new();
    for (version, (near, far)) in A.into_iter().zip(B).enumerate() {
        let far = hosts.b.run(|| UdpSocket::bind((far, 0))).unwrap().unwrap();
        let near = hosts.a.run(|| UdpSocket::bind((near, 0))).unwrap().unwrap();
        far.set_read_timeout(Some(crate::network::STALLED)).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        let longest = if version == 0 { 65_507 } else { 65_527 };
        let mut lengths = vec![0, 1, 1472, 1473, 2953, longest];
        lengths.extend((0..14).map(|_| random.below(20_000)));
        for len in lengths {
            sent.push(random.bytes(len));
        }
        if version == 1 {
            sent.push(MARK.to_vec());
        }
        let first = if version == 0 { 0 } else { 20 };
        let mut buffer = vec![0; 1 << 16];
        for datagram in &sent[first..] {
            near.send(datagram).unwrap();
            let len = far.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == datagram[..], "the kernel reassembles its own fragments");
        }
    }
    sent
}

/// Returns the data of a UDP packet, without the padding of short frames.
fn payload(frame: &[u8]) -> Option<Vec<u8>> {
    let is_v6 = frame.get(12..14)? == [0x86, 0xdd];
    let protocol = frame.get(if is_v6 { 20 } else { 23 })?;
    let data = frame.get(HEADERS[usize::from(is_v6)]..).filter(|_| *protocol == 17)?;
    let at = HEADERS[usize::from(is_v6)] - 4;
    let len = u16::from_be_bytes([frame[at], frame[at + 1]]);
    Some(data[..usize::from(len) - 8].to_vec())
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
