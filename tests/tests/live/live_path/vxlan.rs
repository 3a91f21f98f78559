//! Tests kernel TCP inside VXLAN, with the kernel's own device at one endpoint and Grosso at the other.
//!
//! ```text
//!  host a                      engine                  host b
//!  vx0 (VXLAN) a0 (veth) ----- e0  sockets, data path, tn0 (TAP)
//! ```

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_io::runner::{RunOptions, Snapshot};

use super::{
    sockets::exchange,
    tunnel::{assert_nothing_lost, checksum_errors, count, device, over_udp},
    tunnels::{INSIDE, add_vxlan},
    world::{A, B, World, skip, start, until},
};

/// Number of bytes in each stream.
const BYTES: usize = 4 << 20;

/// Options that determine the format of the tunnel's packets.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// 0 for an outer IPv4 header, 1 for IPv6.
    outer: usize,
    /// Whether the UDP header has a checksum.
    checksum: bool,
    /// Whether inner checksums are left to the peer.
    offload: bool,
}

impl Case {
    /// Returns all valid cases: inner checksums are not left to the peer without an outer one (rule C52).
    fn all() -> impl Iterator<Item = Self> {
        let ways = [(false, false), (true, false), (true, true)];
        [0, 1].into_iter().flat_map(move |outer| {
            ways.map(|(checksum, offload)| Self { outer, checksum, offload })
        })
    }

    /// Returns Grosso's endpoint.
    fn endpoint(self) -> Endpoint {
        let header = Header::Vxlan { identifier: 7, policy: None, generic_protocol: false };
        let udp = Udp {
            source: 49152..=65535,
            destination: 4789,
            checksum: self.checksum,
            ipv6_without_checksum: !self.checksum,
            remote_checksum: RemoteChecksumUse {
                transmit: self.offload,
                receive: self.offload,
                complete: false,
            },
        };
        Endpoint::new(B[self.outer], A[self.outer], header, Carrier::Udp(udp))
    }

    /// Returns the `ip link` arguments for the kernel's endpoint, without the addresses.
    fn words(self) -> Vec<&'static str> {
        let mut words = match self.checksum {
            true => vec!["udpcsum"],
            false => vec!["noudpcsum", "udp6zerocsumtx", "udp6zerocsumrx"],
        };
        if self.offload {
            words.extend(["remcsumtx", "remcsumrx"]);
        }
        words
    }
}

/// Sends streams both ways through a tunnel between the kernel's endpoint and Grosso's, and returns the counters of
/// Grosso's path.
fn beside_the_kernel(world: &World, case: Case, bytes: usize) -> Option<Snapshot> {
    let endpoint = case.endpoint();
    // The socket is opened before anything is sent to it, because the kernel counts a packet without a checksum as
    // damaged if no socket receives it.
    let right = over_udp(&world.engine, &endpoint);
    let there = (A[case.outer], B[case.outer]);
    if let Err(error) = add_vxlan(&world.a, there, INSIDE[0], &case.words()) {
        skip(&format!("no VXLAN device: {error}"));
        return None;
    }
    let path = start(device(&world.b, &endpoint, 1), right, RunOptions::new(1));
    for (a, b) in INSIDE[0].into_iter().zip(INSIDE[1]) {
        exchange((&world.a, a), (&world.b, b), bytes);
    }
    for host in [&world.a, &world.engine, &world.b] {
        assert_eq!(checksum_errors(host), [], "{case:?}");
    }
    let snapshot = path.stop().snapshot;
    assert_nothing_lost(&snapshot);
    Some(snapshot)
}

// Rules: C52, W32
#[test]
fn streams_between_the_kernel_and_us_are_superframes_both_ways() {
    for case in Case::all() {
        let Some(world) = World::with_addresses() else { return };
        let Some(snapshot) = beside_the_kernel(&world, case, BYTES) else { return };
        let number = |name| count(&snapshot, name);
        let (frames, packets) = (number("tunnel_out_frames"), number("tunnel_out_packets"));
        assert!(packets > 4 * frames, "superframes went in: {case:?} {frames} {packets}");
        for joined in &snapshot.right_to_left.joined[..2] {
            assert!(joined.bytes > BYTES as u64 / 2, "superframes came out: {case:?} {joined:?}");
            assert!(joined.wire.packets > 4 * joined.frames, "{case:?} {joined:?}");
        }
        // The kernel neither segments nor merges datagrams without a checksum.
        let (sends, reads) = (number("socket_tx_messages"), number("socket_rx_messages"));
        let (sent, read) = (number("socket_tx_datagrams"), number("socket_rx_datagrams"));
        assert_eq!(sent, packets);
        match case.checksum {
            true => assert!(sent > 4 * sends && read > 2 * reads, "{case:?} {sends} {reads}"),
            false => assert_eq!((sends, reads), (sent, read)),
        }
        let left = number("tunnel_out_remote_checksums");
        assert_eq!(left > 0, case.offload, "{case:?}");
    }
}

#[test]
fn w32_tshark_finds_no_wrong_checksum_around_or_inside() {
    for case in Case::all() {
        let Some(world) = World::with_addresses() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wire.pcap");
        let Some(capture) = capture(&world, &file) else { return };
        let Some(_) = beside_the_kernel(&world, case, BYTES / 4) else { return };
        end_capture(capture, &file, BYTES);
        let there = |filter: &str| tshark(&file, filter);
        let wrong = "ip.checksum.status == Bad || udp.checksum.status == Bad || _ws.malformed";
        assert_eq!(there(wrong), [""; 0], "{case:?}");
        for address in [A[case.outer], B[case.outer]] {
            let family = if address.is_ipv4() { "ip" } else { "ipv6" };
            let sent = |which: &str| there(&format!("{family}.src == {address} && {which}")).len();
            let all = sent("vxlan && tcp");
            assert!(all > 500, "{case:?}: {all} segments from {address}");
            if case.checksum {
                // For each packet, tshark lists the outer checksum first.
                assert_eq!(sent("vxlan && tcp && udp.checksum.status == Good"), all, "{case:?}");
            }
            // Checksums left to the peer are not complete, but tshark does not know that the VXLAN header says so. It
            // also expects zero instead of 0xffff (rule C3).
            let wrong = sent("vxlan && tcp.checksum.status == Bad && tcp.checksum != 0xffff");
            assert_eq!(wrong > 0, case.offload, "{case:?}: {wrong} of {all} from {address}");
        }
    }
}

/// Ends tcpdump once its file has `bytes` bytes. On a busy machine, tcpdump reads the packets later than the hosts do.
pub(crate) fn end_capture(mut tcpdump: Child, file: &Path, bytes: usize) {
    until(|| fs::metadata(file).is_ok_and(|metadata| metadata.len() >= bytes as u64));
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();
}

/// Starts tcpdump at the first host's side of the link, and waits until it runs.
pub(crate) fn capture(world: &World, file: &Path) -> Option<Child> {
    let mut command = Command::new("tcpdump");
    command.args(["--immediate-mode", "-i", "a0", "-s", "0", "-B", "65536", "-U", "-w"]).arg(file);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut tcpdump) = world.a.host(&mut command).unwrap().spawn() else {
        skip("tcpdump is not installed");
        return None;
    };
    until(|| {
        assert!(tcpdump.try_wait().unwrap().is_none(), "tcpdump does not run");
        fs::metadata(file).is_ok_and(|metadata| metadata.len() >= 24)
    });
    Some(tcpdump)
}

/// Returns the packets in a capture that match a filter, one line each.
pub(crate) fn tshark(file: &Path, filter: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    command.args(["-o", "udp.check_checksum:TRUE", "-Y", filter, "-r"]);
    let output = command.arg(file).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
