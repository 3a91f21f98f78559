//! Tests tunnels and ESP whose own packets come back to be encapsulated again, whole or in fragments.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use grosso::{
    Meta,
    features::{Device, Features},
    tunnel::esp::{EspMode, Outer, UdpPorts},
};
use grosso_io::{
    Notice, Port,
    memory::{MemoryPort, wire},
    stage::{EspOptions, EspStage, Forwarding, Fragmentation, TunnelOptions, TunnelStage},
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

use super::{
    ends::{association, counter, fragments, insist, receive},
    formats::formats,
};

const OUTSIDE: [[&str; 3]; 2] =
    [["192.0.2.1", "192.0.2.2", "192.0.2.3"], ["2001:db8::1", "2001:db8::2", "2001:db8::3"]];

fn outside(family: usize) -> [IpAddr; 3] {
    OUTSIDE[family].map(|text| text.parse().unwrap())
}

/// Returns a wire with an MTU of 1500 that fragments every longer packet, and its far end.
fn narrow_wire() -> (Fragmentation<MemoryPort>, MemoryPort) {
    let (near, far) = wire(LinkType::Raw, Device::new(Features::NONE), 4096);
    let mut options = fragments(1500);
    (options.ignore_df, options.rules) = (true, None);
    (Fragmentation::new(near, &options).unwrap(), far)
}

/// Returns a datagram of 1300 bytes that may be fragmented.
fn datagram(link: LinkType) -> Vec<u8> {
    let packet = match link {
        LinkType::Ethernet => Packet::new().ethernet(|e| e),
        _ => Packet::new(),
    };
    packet.ipv4(|ip| ip.df(false)).udp(|udp| udp).payload_len(1300).build()
}

/// Sends a frame, and sends every packet that arrives at the far end through the port again, until none is left.
/// Returns the number of frames sent.
fn turns(port: &mut impl Port, far: &mut MemoryPort, frame: Vec<u8>) -> u64 {
    let link = port.link();
    let mut frames = VecDeque::from([frame]);
    let mut sent = 0;
    while let Some(frame) = frames.pop_front() {
        sent += 1;
        assert!(sent <= TURNS_MAX, "the packets never end");
        insist(port, &frame, &Meta::default());
        for (packet, _) in receive(far, 0) {
            frames.push_back(match link {
                LinkType::Ethernet => {
                    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
                    [&[2; 12][..], &ethertype, &packet].concat()
                }
                _ => packet,
            });
        }
    }
    sent
}

const TURNS_MAX: u64 = 1000;

/// Returns a callback, and a counter of its calls.
fn counted() -> (Notice, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let notice = Notice::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    (notice, count)
}

#[test]
fn a_datagram_in_a_tunnel_that_leads_into_itself_ends_at_once_whatever_the_tunnel() {
    for family in [0, 1] {
        let [local, remote, _] = outside(family);
        for (name, endpoint) in formats([local, remote]) {
            let (near, mut far) = narrow_wire();
            let (notice, count) = counted();
            let mut options = TunnelOptions::new(endpoint, 1);
            options.loop_notice = Some(notice);
            let mut tunnel = TunnelStage::new(near, options).unwrap();
            let frame = datagram(tunnel.link());
            let sent = turns(&mut tunnel, &mut far, frame);
            assert!(sent > 1, "{name}: nothing came back");
            assert_eq!(counter(&mut tunnel, "tunnel_out_loop"), sent - 1, "{name}");
            assert_eq!(count.load(Ordering::Relaxed), 1, "{name}");
        }
    }
}

#[test]
fn packets_to_any_other_end_of_a_tunnel_are_its_own() {
    for family in [0, 1] {
        let [local, remote, third] = outside(family);
        let (_, endpoint) =
            formats([local, remote]).into_iter().find(|(name, _)| name == "vxlan").unwrap();
        let (near, mut far) = narrow_wire();
        let mut options = TunnelOptions::new(endpoint, 1);
        options.forwarding = Some(Forwarding::new([third]));
        let mut tunnel = TunnelStage::new(near, options).unwrap();
        let sent = turns(&mut tunnel, &mut far, datagram(LinkType::Ethernet));
        assert_eq!(counter(&mut tunnel, "tunnel_out_flooded"), 1);
        assert_eq!(counter(&mut tunnel, "tunnel_out_loop"), sent - 1);
        assert!(sent > 2, "{sent}");
    }
}

#[test]
fn encrypted_packets_that_come_back_are_not_encrypted_again() {
    for family in [0, 1] {
        let outer = match outside(family) {
            [IpAddr::V4(source), IpAddr::V4(destination), _] => Outer::V4 { source, destination },
            [IpAddr::V6(source), IpAddr::V6(destination), _] => Outer::V6 { source, destination },
            _ => unreachable!("all are of one family"),
        };
        for udp_ports in [None, Some(UdpPorts::ASSIGNED)] {
            let (near, mut far) = narrow_wire();
            let (notice, count) = counted();
            let [mut out, back] =
                [0x101, 0x102].map(|spi| association(spi, EspMode::Tunnel(outer)));
            out.udp_ports = udp_ports;
            let mut options = EspOptions::new(out, back, 0);
            options.loop_notice = Some(notice);
            let mut secured = EspStage::new(near, options).unwrap();
            let packet = Packet::new().ipv4(|ip| ip.df(false)).udp(|udp| udp).payload_len(1470);
            let sent = turns(&mut secured, &mut far, packet.build());
            assert!(sent > 2, "it was fragmented");
            assert_eq!(counter(&mut secured, "esp_out_loop"), sent - 1);
            assert_eq!(counter(&mut secured, "esp_out_packets"), 1);
            assert_eq!(count.load(Ordering::Relaxed), 1);
        }
    }
}
