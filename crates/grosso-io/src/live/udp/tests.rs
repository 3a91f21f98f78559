use std::time::Duration;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    segment::{Outgoing, Segments},
};
use grosso_sys::wait::{Interest, wait_for};
use grosso_testkit::Packet;
use grosso_wire::{Kind, LinkType};

use super::*;
use crate::port::Transmitted;

/// Two ports on the loopback device; one sends frames to the other.
struct Ends {
    near: UdpPort,
    far: UdpPort,
}

/// Local addresses: over IPv4, one UDP port on two addresses; over IPv6, two UDP ports on one address.
const PLACES: [[&str; 2]; 2] = [["127.0.0.1:0", "127.0.0.2:0"], ["[::1]:0", "[::1]:0"]];

impl Ends {
    fn new(place: usize, change: impl Fn(&mut UdpOptions)) -> Self {
        let [near, far] = PLACES[place].map(|local| {
            let mut options = UdpOptions::new(local.parse().unwrap());
            options.source_ports = 40000..=65000;
            change(&mut options);
            UdpPort::open(&options).unwrap()
        });
        Self { near, far }
    }

    /// Returns a frame from the near port to the far port: a VXLAN frame if the far port is configured for VXLAN.
    fn frame(&self, source_port: u16, payload: usize) -> Vec<u8> {
        let (near, far) = (self.near.local(), self.far.local());
        let outer = match (near.ip(), far.ip()) {
            (IpAddr::V4(near), IpAddr::V4(far)) => Packet::new().ipv4(|ip| {
                let ip = ip.source(near.octets()).destination(far.octets());
                ip.ttl(33).tos(0xb9).df(true)
            }),
            (IpAddr::V6(near), IpAddr::V6(far)) => Packet::new().ipv6(|ip| {
                let ip = ip.source(near.octets()).destination(far.octets());
                ip.hop_limit(33).traffic_class(0xb9)
            }),
            _ => unreachable!("one family"),
        };
        let outer = outer.udp(|udp| udp.source_port(source_port).destination_port(far.port()));
        let inner = outer.vxlan(|vxlan| vxlan).ethernet(|e| e).ipv4(|ip| ip);
        inner.tcp(|tcp| tcp).payload_len(payload).build()
    }

    fn ports(&self) -> Ports {
        Ports::NONE.with(Kind::Vxlan, self.far.local().port())
    }

    /// Receives until at least `count` frames have arrived, then returns them.
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            let source = [(self.far.descriptor().unwrap(), Interest::READ)];
            assert!(wait_for(&source, Some(STALLED)).unwrap().is_some(), "{} frames", frames.len());
            let mut buffers = Vec::new();
            self.far.receive(0, 7, &mut |frame| buffers.push(frame.buffer)).unwrap();
            while self.far.deadline().is_some() {
                self.far.receive(0, 7, &mut |frame| buffers.push(frame.buffer)).unwrap();
            }
            for buffer in buffers {
                frames.push(buffer.as_ref().to_vec());
                self.far.recycle(buffer);
            }
        }
        frames
    }
}

/// Time to wait for a datagram before giving up.
const STALLED: Duration = Duration::from_secs(6);

/// Returns the packets into which the engine segments a superframe.
fn packets(frame: &[u8], meta: &Meta, ports: &Ports) -> Vec<Vec<u8>> {
    let slices = [frame];
    let cut = Segments::new(&slices, meta, LinkType::Raw, ports, Outgoing::default());
    let mut cut = cut.unwrap();
    let mut buffer = vec![0; cut.packet_len_max()];
    let mut packets = Vec::new();
    while let Some(segment) = cut.write_next(&mut buffer).unwrap() {
        packets.push(buffer[..segment.len()].to_vec());
    }
    packets
}

/// Returns what a socket preserves of a frame: addresses and fields of the outer headers, and the payload.
fn kept(frame: &[u8]) -> (SocketAddr, u8, u8, Vec<u8>) {
    let outer = Outer::parse(frame, BuiltHeaders::Udp).unwrap();
    (outer.destination, outer.traffic_class, outer.hop_limit, frame[outer.len..].to_vec())
}

#[test]
fn a_superframe_is_two_messages_and_arrives_as_its_packets() {
    for place in [0, 1] {
        for (checksum, messages) in [(true, 2), (false, 45)] {
            let mut ends = Ends::new(place, |options| {
                options.sends_checksum = checksum;
                options.takes_no_checksum = true;
            });
            let ports = ends.ports();
            ends.near
                .port
                .sending
                .iter_mut()
                .for_each(|lane| *lane = SocketSender::new(ports, checksum));
            let frame = ends.frame(50000, 62_744);
            let meta = Meta { gso: Gso::every(1398), ..Meta::default() };
            let expected = packets(&frame, &meta, &ports);
            assert_eq!(expected.len(), 45);
            // The slice boundaries differ from the packet boundaries.
            let slices = [&frame[..300], &frame[300..9000], &frame[9000..]];
            assert_eq!(ends.near.transmit(&slices, &meta).unwrap(), Transmitted::Taken);
            let received = ends.receive(45);
            assert_eq!(received.len(), 45);
            for (received, expected) in received.iter().zip(&expected) {
                assert!(kept(received) == kept(expected), "{checksum}");
            }
            let (near, far) = (*ends.near.stats(), *ends.far.stats());
            assert_eq!(near.events(SocketEvent::TransmitMessage), messages);
            assert_eq!(near.events(SocketEvent::TransmitDatagram), 45);
            assert_eq!(far.events(SocketEvent::ReceiveDatagram), 45);
            let lost = near.counters().chain(far.counters()).filter(|(counter, _)| counter.is_loss);
            assert_eq!(lost.map(|(_, value)| value).sum::<u64>(), 0);
        }
    }
}

/// Checks a UDP superframe inside a datagram from a kernel on the same host. The socket reports the superframe's
/// segment size, as if the datagram consisted of merged datagrams.
#[test]
fn a_superframe_inside_a_datagram_arrives_as_one_and_merged_datagrams_as_many() {
    for place in [0, 1] {
        let mut ends = Ends::new(place, |_| {});
        ends.far.port.sockets.receiving = UdpReceiver::new(ends.ports());
        let inner = |payload: usize| {
            let inner = Packet::new().vxlan(|vxlan| vxlan).ethernet(|e| e).ipv4(|ip| ip);
            inner.udp(|udp| udp).payload_len(payload).build()
        };
        let inside = 8 + 14 + 20 + 8;
        // There are three cases: one datagram that contains a superframe; ten datagrams of 1000 bytes; and ten such
        // datagrams whose first header declares more bytes than all ten contain.
        let merged = [inner(1000 - inside), inner(1000 - inside)].concat().repeat(5);
        let claimed = [inner(20_000)[..1000].to_vec(), vec![7; 9000]].concat();
        let cases = [(inner(10_000 - inside), 1000, 1), (merged, 1000, 10), (claimed, 1000, 10)];
        for (bytes, size, frames) in cases {
            let socket = std::net::UdpSocket::bind((ends.near.local().ip(), 0)).unwrap();
            grosso_sys::datagram::set_segment_bytes(&socket, size).unwrap();
            socket.send_to(&bytes, ends.far.local()).unwrap();
            let source = [(ends.far.descriptor().unwrap(), Interest::READ)];
            assert!(wait_for(&source, Some(STALLED)).unwrap().is_some());
            let mut received = Vec::new();
            let mut each = |frame: Frame<PortBuffer>| {
                let outer = Outer::parse(frame.buffer.as_ref(), BuiltHeaders::Udp).unwrap();
                received.push((frame.buffer.as_ref()[outer.len..].to_vec(), frame.meta.gso));
            };
            while received_so_far(&mut ends.far, &mut each) {}
            let gso = (frames == 1).then(|| Gso::every(size).unwrap());
            assert_eq!(received.len(), frames);
            assert!(received.iter().all(|(_, told)| *told == gso));
            assert!(received.into_iter().flat_map(|(bytes, _)| bytes).eq(bytes));
        }
    }
}

/// Receives frames and returns whether any arrived.
fn received_so_far(port: &mut UdpPort, each: &mut dyn FnMut(Frame<PortBuffer>)) -> bool {
    port.receive(0, 64, each).unwrap() > 0
}

// Rules: S14
#[test]
fn packets_that_were_partial_when_they_joined_leave_with_their_checksums_made() {
    let mut ends = Ends::new(0, |_| {});
    let ports = ends.ports();
    ends.near.port.sending.iter_mut().for_each(|lane| *lane = SocketSender::new(ports, true));
    let frame = ends.frame(50000, 2020);
    let transport = frame.len() - 2040;
    let checksum = Checksum::Partial { start: transport as u16, offset: 16 };
    let gso = Gso::every(1420).map(|gso| Gso { partial_members: true, ..gso });
    assert_eq!(
        ends.near.transmit(&[&frame], &Meta { gso, checksum, ..Meta::default() }).unwrap(),
        Transmitted::Taken
    );
    let wire = Meta { gso: Gso::every(1420), checksum, ..Meta::default() };
    let expected = packets(&frame, &wire, &ports);
    let received = ends.receive(2);
    assert!(received.iter().map(|f| kept(f)).eq(expected.iter().map(|f| kept(f))));
}

#[test]
fn packets_go_by_the_batch_with_their_checksums_made_and_flows_keep_their_ports() {
    let mut ends = Ends::new(0, |_| {});
    let mut expected = Vec::new();
    for i in 0..40_u16 {
        let frame = ends.frame(40000 + i * 625, 100 + usize::from(i));
        let mut partial = frame.clone();
        let tcp = frame.len() - 120 - usize::from(i);
        // The checksum field may even contain another packet's pseudo-header sum: completion works for any value.
        partial[tcp + 16..tcp + 18].copy_from_slice(&[0x12, 0x34]);
        let meta = Meta {
            checksum: Checksum::Partial { start: tcp as u16, offset: 16 },
            ..Meta::default()
        };
        assert_eq!(ends.near.transmit(&[&partial], &meta).unwrap(), Transmitted::Taken);
        grosso::checksum::complete(&mut partial, tcp as u16, 16).unwrap();
        expected.push(kept(&partial));
    }
    assert_eq!(
        ends.near.stats().events(SocketEvent::TransmitMessage),
        0,
        "nothing is sent before the flush"
    );
    assert_eq!(ends.near.flush().unwrap(), Transmitted::Taken);
    let received = ends.receive(40);
    let ports: Vec<u16> = ends.near.source_ports().collect();
    assert_eq!(ports.len(), SOURCE_PORTS_MAX);
    for frame in &received {
        let port = u16::from_be_bytes([frame[20], frame[21]]);
        assert!(ports.contains(&port), "{port}");
        let i = expected.iter().position(|expected| *expected == kept(frame));
        let i = expected.remove(i.expect("each received frame was sent")).3.len();
        assert!(i > 0);
    }
    let used = |frame: &Vec<u8>| u16::from_be_bytes([frame[20], frame[21]]);
    let mut used: Vec<u16> = received.iter().map(used).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), SOURCE_PORTS_MAX, "flows over the whole port range use all sockets");
}

#[test]
fn a_message_that_the_kernel_does_not_cut_is_sent_as_its_datagrams_and_then_no_more_are_made() {
    let mut ends = Ends::new(0, |options| options.sends_checksum = false);
    // The port is configured to let the kernel segment datagrams that have no checksum, but the kernel cannot do that.
    let ports = ends.ports();
    ends.near.port.sending.iter_mut().for_each(|lane| *lane = SocketSender::new(ports, true));
    let meta = Meta { gso: Gso::every(1000), ..Meta::default() };
    for round in 1..=2 {
        let frame = ends.frame(50000, 4500);
        assert_eq!(ends.near.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
        assert_eq!(ends.near.flush().unwrap(), Transmitted::Taken);
        let expected = packets(&frame, &meta, &ports);
        let received = ends.receive(5);
        assert!(received.iter().map(|f| kept(f)).eq(expected.iter().map(|f| kept(f))), "{round}");
        let stats = *ends.near.stats();
        assert_eq!(stats.events(SocketEvent::TransmitCutAgain), 1);
        assert_eq!(stats.events(SocketEvent::TransmitNarrowed), 1);
        assert_eq!(stats.events(SocketEvent::TransmitDatagram), 5 * round);
    }
}

#[test]
fn what_no_socket_can_make_is_dropped_by_name() {
    let mut ends = Ends::new(0, |_| {});
    let tcp = Packet::new().ipv4(|ip| ip).tcp(|tcp| tcp).payload(b"x").build();
    let six = Packet::new().ipv6(|ip| ip).udp(|udp| udp).payload(b"x").build();
    let long = ends.frame(50000, 65_500);
    for frame in [&tcp[..], &six, &[], &tcp[..3]] {
        assert_eq!(ends.near.transmit(&[frame], &Meta::default()).unwrap(), Transmitted::Taken);
    }
    assert_eq!(ends.near.transmit(&[&long], &Meta::default()).unwrap(), Transmitted::Taken);
    assert_eq!(ends.near.flush().unwrap(), Transmitted::Taken);
    let stats = *ends.near.stats();
    assert_eq!(stats.events(SocketEvent::TransmitInexpressible), 4);
    assert_eq!(stats.events(SocketEvent::TransmitTooLong), 1);
    assert_eq!(stats.events(SocketEvent::TransmitDatagram), 0);
}

#[test]
fn many_queues_find_source_ports_and_the_last_gets_an_error() {
    let mut options = UdpOptions::new("127.0.0.9:0".parse().unwrap());
    (options.senders_max, options.probes) = (1, false);
    options.source_ports = 40000..=50000;
    let ports: io::Result<Vec<_>> = (0..3 * TRIES_MAX).map(|_| UdpPort::open(&options)).collect();
    assert_eq!(ports.unwrap().len(), 3 * TRIES_MAX);
    options.source_ports = 40000..=40001;
    let _taken = [(); 2].map(|()| UdpPort::open(&options).unwrap());
    let error = UdpPort::open(&options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(error.to_string(), "no free source port from 40000 to 40001");
}
