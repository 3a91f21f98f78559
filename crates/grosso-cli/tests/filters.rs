//! Compares filters with tcpdump's own packet selection.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{Bench, has};

const EXPRESSIONS: [&str; 16] = [
    "tcp",
    "udp",
    "not tcp",
    "ip",
    "ip6",
    "tcp port 5201",
    "udp port 4789",
    "src net 10.0.0.0/8",
    "host 10.0.0.1 or host 10.1.0.1",
    "tcp[tcpflags] & tcp-syn != 0",
    "greater 1500",
    "less 100",
    "ip[6:2] & 0x3fff != 0",
    "icmp or icmp6",
    "portrange 1-1024 and not arp",
    "ether[0] & 1 = 0 and ip proto 6",
];

#[test]
fn the_same_packets_pass_as_with_tcpdump_byte_for_byte() {
    if !has("tcpdump") {
        println!("skipped: no tcpdump");
        return;
    }
    let bench = Bench::new();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let (mut taken, mut left) = (0, 0);
    for name in ["fragments.pcapng", "host.pcap", "iperf3.pcapng", "ipv6.pcap", "vxlan.pcapng"] {
        // Classic pcap has no offload metadata, so `segment` changes nothing.
        tcpdump(&captures.join(name), &bench.path("in.pcap"), "");
        let all = crate::common::packets(&bench.get("in.pcap")).len();
        for expression in EXPRESSIONS {
            tcpdump(&bench.path("in.pcap"), &bench.path("want.pcap"), expression);
            bench.ok(&format!("segment -r in.pcap -w is.pcap {expression}"));
            let want = bench.get("want.pcap");
            assert_eq!(records(&bench.get("is.pcap")), records(&want), "{name}: {expression}");
            let packets = crate::common::packets(&want).len();
            (taken, left) = (taken + packets, left + all - packets);
            fs::remove_file(bench.path("is.pcap")).unwrap();
        }
    }
    assert!(taken > 100 && left > 100, "{taken} and {left}: too few packets for the test");
}

/// Tests link types for raw IP, and those whose numbers in files differ from libpcap's own.
#[test]
fn packets_without_a_link_header_are_selected_too() {
    if !has("tcpdump") {
        println!("skipped: no tcpdump");
        return;
    }
    let bench = Bench::new();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    tcpdump(&captures.join("host.pcap"), &bench.path("in.pcap"), "ip");
    let ethernet = bench.get("in.pcap");
    for link_type in [12_u32, 101, 228] {
        let mut bare = ethernet[..20].to_vec();
        bare.extend_from_slice(&link_type.to_le_bytes());
        let mut rest = records(&ethernet);
        while let Some((header, behind)) = rest.split_at_checked(16) {
            let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            let (captured, len) = (number(8), number(12));
            let (packet, behind) = behind.split_at(captured as usize);
            bare.extend_from_slice(&header[..8]);
            [captured - 14, len - 14].iter().for_each(|len| bare.extend(len.to_le_bytes()));
            bare.extend_from_slice(&packet[14..]);
            rest = behind;
        }
        bench.put("bare.pcap", &bare);
        for expression in ["tcp", "udp", "host 10.0.0.1", "greater 1000", "icmp"] {
            tcpdump(&bench.path("bare.pcap"), &bench.path("want.pcap"), expression);
            bench.ok(&format!("segment -r bare.pcap -w is.pcap {expression}"));
            let (is, want) = (bench.get("is.pcap"), bench.get("want.pcap"));
            assert_eq!(records(&is), records(&want), "{link_type}: {expression}");
            fs::remove_file(bench.path("is.pcap")).unwrap();
        }
    }
}

/// Returns the records of a classic pcap, without its header.
fn records(capture: &[u8]) -> &[u8] {
    &capture[24..]
}

fn tcpdump(from: &Path, to: &Path, expression: &str) {
    let mut command = Command::new("tcpdump");
    command.arg("-r").arg(from).arg("-w").arg(to).args(["--time-stamp-precision=nano"]);
    let done = command.args(expression.split_whitespace()).stderr(Stdio::null()).status();
    assert!(done.unwrap().success(), "{expression}");
}

#[test]
fn a_wrong_expression_is_refused_with_libpcap_s_message_before_any_output() {
    if !has("tcpdump") {
        println!("skipped: no tcpdump, so perhaps no libpcap");
        return;
    }
    let bench = Bench::new();
    bench.put("a.pcap", &crate::common::capture(grosso_capture::Format::Pcap, 1, &[vec![0; 60]]));
    let run = bench.run("wire a.pcap -w out.pcap -f tcp-port-80");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("wire: filter 'tcp-port-80': "), "{}", run.stderr);
    assert!(run.stderr.contains("man pcap-filter"), "{}", run.stderr);
    assert!(!bench.path("out.pcap").exists());
}
