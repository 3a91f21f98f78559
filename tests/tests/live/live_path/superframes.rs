//! Tests superframes of tunnel datagrams: a program sends them with `UDP_SEGMENT` to Grosso's endpoint on an interface.

use std::{net::UdpSocket, process::Command};

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_io::{
    Port,
    live::PacketOptions,
    stage::{EthernetLink, TunnelOptions, TunnelStage},
};
use grosso_sys::datagram::set_segment_bytes;
use grosso_testkit::Packet;

use super::world::{A, B, World, until};

/// Returns Grosso's endpoint of a VXLAN tunnel from the first host. The tunnel's datagrams have a checksum.
fn endpoint(outer: usize) -> Endpoint {
    let header = Header::Vxlan { identifier: 7, policy: None, generic_protocol: false };
    let udp = Udp {
        source: 49152..=65535,
        destination: 4789,
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum: RemoteChecksumUse { transmit: false, receive: false, complete: false },
    };
    Endpoint::new(B[outer], A[outer], header, Carrier::Udp(udp))
}

/// Returns a frame for the tunnel. All frames have the same length, except for a shorter last one.
fn inside(number: u16) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e.source([2, 0, 0, 0, 0, 9]));
    let packet = packet.ipv4(move |ip| ip.id(number)).udp(|udp| udp);
    packet.payload_len(if number + 1 == DATAGRAMS { 60 } else { 100 }).build()
}

#[test]
fn b29_datagrams_that_a_program_sends_as_one_come_out_each() {
    for outer in [0, 1] {
        let Some(world) = World::new() else { return };
        let mut neighbour = Command::new("ip");
        let address = B[outer].to_string();
        neighbour.args(["neigh", "add", &address, "dev", "a0", "lladdr", "02:00:00:00:00:0b"]);
        assert!(world.a.host(&mut neighbour).unwrap().status().unwrap().success());
        let mut options = TunnelOptions::new(endpoint(outer), 1);
        let (source, destination) = ([2, 0, 0, 0, 0, 0xb], [2, 0, 0, 0, 0, 0xa]);
        options.link = Some(EthernetLink { source, destination });
        let port = world.packet_port(&PacketOptions::default());
        let mut tunnel = TunnelStage::new(port, options).unwrap();

        let sent: Vec<Vec<u8>> = (0..DATAGRAMS).map(inside).collect();
        let datagrams: Vec<u8> =
            sent.iter().flat_map(|frame| [&VXLAN[..], frame].concat()).collect();
        let socket = world.a.run(|| UdpSocket::bind((A[outer], 0))).unwrap().unwrap();
        set_segment_bytes(&socket, (VXLAN.len() + sent[0].len()) as u16).unwrap();
        socket.send_to(&datagrams, (B[outer], 4789)).unwrap();

        let (mut taken, mut buffers) = (Vec::new(), Vec::new());
        until(|| {
            let given = tunnel.receive(0, POLL, &mut |frame| {
                taken.push(frame.buffer.as_ref().to_vec());
                buffers.push(frame.buffer);
            });
            assert!(given.unwrap() <= POLL);
            buffers.drain(..).for_each(|buffer| tunnel.recycle(buffer));
            // Other packets from a host, for example multicast group reports, are refused.
            taken.len() >= sent.len()
        });
        assert_eq!(taken, sent, "{:?}", tunnel.stats().taken_out);
        assert_eq!(tunnel.stats().cut_inbound, 1, "one superframe arrived from the wire");
    }
}

/// Number of datagrams per superframe.
const DATAGRAMS: u16 = 10;
/// Number of frames per poll, fewer than in a superframe.
const POLL: usize = 3;
/// VXLAN header with network identifier 7.
const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 7, 0];
