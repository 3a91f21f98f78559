//! Tests this crate's frames with tshark: every checksum that tshark can verify is correct, and tshark reports a wrong
//! one.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

use std::fs;
use std::process::Command;

use grosso_testkit::Packet;
use grosso_testkit::stack::{Place, Stack, Transport, Tunnel};

/// Returns tshark's results for each frame: the protocols, and the states of the checksums (0 is bad, 1 is good, 2 is
/// unverified, 3 is absent).
fn dissect(name: &str, frames: &[Vec<u8>]) -> Option<Vec<(String, String)>> {
    let path = std::env::temp_dir().join(format!("{name}-{}.pcap", std::process::id()));
    fs::write(&path, capture(frames)).expect("the temporary directory can be written");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=;"]);
    for preference in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{preference}.check_checksum:TRUE")]);
    }
    // The packets do not show the format of an L2TPv3 session, so tshark must be configured.
    command.args(["-o", "l2tp.cookie_size:4 Byte Cookie", "-d", "l2tp.pw_type==0,eth"]);
    command.args(["-o", "l2tp.l2_specific:Default L2-Specific"]);
    command.args(["-o", "sctp.checksum:CRC 32c", "-e", "frame.protocols"]);
    for name in ["ip", "tcp", "udp", "icmp", "icmpv6", "sctp"] {
        command.args(["-e", &format!("{name}.checksum.status")]);
    }
    let output = command.output();
    fs::remove_file(&path).expect("the capture is there");
    let Ok(output) = output else {
        println!("skipped: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("fields are text");
    let split = |line: &str| line.split_once(';').map(|(a, b)| (a.to_owned(), b.to_owned()));
    let fields: Vec<_> = lines.lines().filter_map(split).collect();
    assert_eq!(fields.len(), frames.len(), "a line for each frame");
    Some(fields)
}

/// Encodes Ethernet frames as a classic pcap file in which all timestamps are zero.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for frame in frames {
        let len = (frame.len() as u32).to_le_bytes();
        file.extend([[0; 4], [0; 4], len, len].concat());
        file.extend(frame);
    }
    file
}

#[test]
fn tshark_finds_no_wrong_checksum() {
    // Leaves out two kinds of stacks: those with remote checksum offload, whose checksums tshark reports as wrong, and
    // those without a link layer, because a capture has only one link type.
    let remote = |stack: &Stack| {
        let tunnels = &mut stack.tunnels.iter();
        tunnels.any(|(_, t)| matches!(t, Tunnel::VxlanRemote | Tunnel::GueRemote))
    };
    let ethernet = |stack: &Stack| stack.link() == grosso_testkit::oracle::Link::Ethernet;
    let stacks: Vec<Stack> =
        Stack::all().into_iter().filter(|stack| ethernet(stack) && !remote(stack)).collect();
    let frames: Vec<Vec<u8>> =
        stacks.iter().map(|s| s.packet(&Place::default()).payload_len(101).build()).collect();
    let Some(fields) = dissect("grosso-testkit-right", &frames) else { return };
    for (stack, (protocols, states)) in stacks.iter().zip(&fields) {
        assert!(!states.contains('0'), "{stack:?}: {protocols} {states}");
        // ESP has no checksum, and tshark does not dissect the contents of FOU and GUE.
        let opaque = stack.transport == Transport::Esp || protocols.ends_with("udp:data");
        assert!(opaque || states.contains('1'), "{stack:?}: {protocols} {states}");
        assert!(!protocols.contains("malformed"), "{stack:?}: {protocols}");
    }
}

#[test]
fn tshark_finds_the_lies() {
    let start = || Packet::new().ethernet(|e| e);
    let frames = [
        start().ipv4(|ip| ip.checksum_xor(1)).tcp(|t| t).build(),
        start().ipv4(|ip| ip).tcp(|t| t.checksum_xor(1)).build(),
        start().ipv6(|ip| ip).udp(|u| u.checksum_xor(1)).payload_len(10).build(),
        start().ipv4(|ip| ip).icmp(|i| i.checksum_xor(1)).build(),
    ];
    let Some(fields) = dissect("grosso-testkit-lies", &frames) else { return };
    for (protocols, states) in fields {
        assert!(states.contains('0'), "{protocols} {states}");
    }
}
