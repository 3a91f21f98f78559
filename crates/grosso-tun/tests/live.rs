//! Tests the device and the socket on the running kernel. The hosts are network namespaces, and this process forwards
//! packets between them.
//!
//! The tests need root, or a user namespace (`unshare -Urm`); without either, they print `skipped:` and the reason.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod hosts;

use std::{
    io::{Read, Write},
    iter,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use grosso_sys::{
    interface::InterfaceName,
    namespace::NetworkNamespace,
    netlink::Netlink,
    tun::{self, TunBuilder},
    wait::{Interest, wait_for},
};
use grosso_testkit::Watchdog;
use grosso_tun::{
    Batch, Datagram, Fallback, Features, Joiner, Meta, Room, Trust, Tun, TunOptions, TunReceiver,
    Udp, UdpOptions,
};
use hosts::{A, B, batch, datagram, host, remove, set_up};

/// Length of a stream in bytes: longer than the TCP windows, and not a multiple of the segment size.
const STREAM_BYTES: usize = (8 << 20) + 77;

/// Returns how many packets the kernel received from a host's device; a superframe counts as one packet.
fn received(host: &NetworkNamespace) -> u64 {
    let name = InterfaceName::new("tun0").unwrap();
    let link = host.run(|| Netlink::new()?.link(&name)).unwrap().unwrap();
    link.statistics.receive_packets
}

/// Number of packets forwarded to each of two hosts.
#[derive(Debug, Default)]
struct Carried {
    to_a: u64,
    to_b: u64,
}

/// Forwards packets between two devices until `stop` is set.
fn carry(a: &mut Tun, b: &mut Tun, stop: &AtomicBool) -> Carried {
    let mut carried = Carried::default();
    while !stop.load(Ordering::Relaxed) {
        let sources = [(a.as_fd(), Interest::READ), (b.as_fd(), Interest::READ)];
        wait_for(&sources, Some(Duration::from_millis(50))).unwrap();
        carried.to_b += carry_one_way(a, b);
        carried.to_a += carry_one_way(b, a);
    }
    carried
}

fn carry_one_way(from: &mut Tun, to: &mut Tun) -> u64 {
    let mut batch = Batch::new();
    from.try_recv(|packet, meta| {
        assert!(meta.gso.is_none() && packet.len() <= 1500, "as a wire would have it");
        batch.push_copy(packet);
    })
    .unwrap();
    let carried = batch.len() as u64;
    to.send(&mut batch).unwrap();
    carried
}

/// Sends a stream from one host to another, and checks that it arrives.
fn stream(from: &NetworkNamespace, to: &NetworkNamespace, address: Ipv4Addr) {
    let listener = to.run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let bytes: Vec<u8> = (0..STREAM_BYTES).map(|i| (i * 7 / 3) as u8).collect();
    thread::scope(|scope| {
        let sent = &bytes;
        scope.spawn(move || {
            let mut socket = from.run(|| TcpStream::connect(address).unwrap()).unwrap();
            socket.write_all(sent).unwrap();
        });
        let mut arrived = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
        assert!(arrived == bytes, "{} of {STREAM_BYTES} bytes", arrived.len());
    });
}

fn streams_arrive_as_superframes(options: TunOptions) {
    let _watchdog = Watchdog::new();
    let (Some((a, mut tun_a)), Some((b, mut tun_b))) = (host(A, &options), host(B, &options))
    else {
        return;
    };
    let stop = AtomicBool::new(false);
    let carried = thread::scope(|scope| {
        let carrier = scope.spawn(|| carry(&mut tun_a, &mut tun_b, &stop));
        stream(&a, &b, B);
        stream(&b, &a, A);
        stop.store(true, Ordering::Relaxed);
        carrier.join().unwrap()
    });
    for (host, carried) in [(&a, carried.to_a), (&b, carried.to_b)] {
        let frames = received(host);
        assert!(carried > 5000, "{carried} packets of 1500 bytes carry the stream");
        assert!(frames * 2 < carried, "{carried} packets were received as {frames} frames");
    }
    assert_eq!(tun_a.fallbacks().find(|fallback| *fallback == Fallback::Refused), None);
}

#[test]
fn tcp_passes_as_packets_and_arrives_as_superframes() {
    streams_arrive_as_superframes(TunOptions::new());
}

#[test]
fn tcp_of_a_trusted_peer_does_too() {
    streams_arrive_as_superframes(TunOptions::new().trust(Trust::Authenticated));
}

#[test]
fn a_reader_with_offloads_receives_superframes() {
    let _watchdog = Watchdog::new();
    let takes = Features::CHECKSUM_GENERIC
        | Features::SCATTER_GATHER
        | Features::TCP_SEGMENTATION
        | Features::TCP_ECN_SEGMENTATION
        | Features::TCP_MANGLEID_SEGMENTATION;
    let options = TunOptions::new().takes(takes);
    let (Some((a, mut tun_a)), Some((b, mut tun_b))) = (host(A, &options), host(B, &options))
    else {
        return;
    };
    let stop = AtomicBool::new(false);
    let superframes = thread::scope(|scope| {
        let carrier = scope.spawn(|| {
            let mut superframes = 0;
            while !stop.load(Ordering::Relaxed) {
                let sources = [(tun_a.as_fd(), Interest::READ), (tun_b.as_fd(), Interest::READ)];
                wait_for(&sources, Some(Duration::from_millis(50))).unwrap();
                superframes += relay(&mut tun_a, &mut tun_b);
                relay(&mut tun_b, &mut tun_a);
            }
            superframes
        });
        stream(&a, &b, B);
        stop.store(true, Ordering::Relaxed);
        carrier.join().unwrap()
    });
    assert!(superframes > 50, "{superframes}");
}

/// Forwards frames with their metadata, and returns how many of them were superframes.
fn relay(from: &mut Tun, to: &mut Tun) -> u32 {
    let mut superframes = 0;
    from.receiver
        .try_recv(|frame, meta| {
            superframes += u32::from(meta.gso.is_some());
            to.send_frame(&[frame], meta).unwrap();
        })
        .unwrap();
    superframes
}

#[test]
fn joined_packets_pass_a_device_that_has_no_offloads() {
    let _watchdog = Watchdog::new();
    let options = TunOptions::new().sends(Features::NONE);
    let (Some((a, mut tun_a)), Some((b, tun_b))) = (host(A, &options), host(B, &options)) else {
        return;
    };
    drop(tun_b);
    let plain = b.run(|| {
        let name = InterfaceName::new("tun0")?;
        let plain = TunBuilder::tun(name).virtio_header(false).nonblocking(true).open()?;
        set_up("tun0", B)?;
        Ok::<_, std::io::Error>(plain)
    });
    let plain = plain.unwrap().unwrap();
    let stop = AtomicBool::new(false);
    let carried = thread::scope(|scope| {
        let carrier = scope.spawn(|| {
            let (mut joiner, mut buffer, mut carried) =
                (Joiner::new(Trust::Verify), vec![0; 65_536], 0);
            while !stop.load(Ordering::Relaxed) {
                let sources = [(tun_a.as_fd(), Interest::READ), (plain.as_fd(), Interest::READ)];
                wait_for(&sources, Some(Duration::from_millis(50))).unwrap();
                carried += join_into(&mut joiner, &mut tun_a, &plain);
                let mut back = Batch::new();
                while let Ok(len) = plain.read(&mut buffer) {
                    back.push_copy(&buffer[..len]);
                }
                tun_a.send(&mut back).unwrap();
            }
            carried
        });
        stream(&a, &b, B);
        stop.store(true, Ordering::Relaxed);
        carrier.join().unwrap()
    });
    let frames = received(&b);
    assert!(carried > 5000, "{carried} packets of 1500 bytes carry the stream");
    assert!(frames * 2 < carried, "{carried} packets were received as {frames} frames");
}

/// Merges packets with a `Joiner` and forwards them to a device without offloads.
fn join_into(joiner: &mut Joiner, from: &mut Tun, to: &tun::Tun) -> u64 {
    let mut packets = Batch::new();
    from.try_recv(|packet, _| packets.push_copy(packet)).unwrap();
    let carried = packets.len() as u64;
    let write = |joined: &grosso_tun::Joined<'_, Vec<u8>>| {
        let slices: Vec<_> = joined.slices().map(std::io::IoSlice::new).collect();
        to.write_vectored(&slices).map(|len| assert_eq!(len, joined.len()))
    };
    joiner.join(&mut packets, write).unwrap();
    carried
}

#[test]
fn a_damaged_packet_is_dropped_unless_its_peer_is_trusted() {
    let _watchdog = Watchdog::new();
    for trust in [Trust::Verify, Trust::Authenticated] {
        let Some((host, mut tun)) = host(A, &TunOptions::new().trust(trust)) else { return };
        let socket = host.run(|| UdpSocket::bind((A, 0)).unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        tun.send(&mut batch(datagram(port, b"damaged", false))).unwrap();
        tun.send(&mut batch(datagram(port, b"good", true))).unwrap();
        let mut buffer = [0; 16];
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], if trust == Trust::Verify { b"good" } else { &b"damagee"[..] });
    }
}

#[test]
fn five_pushes_and_five_sends_put_five_packets_on_the_device() {
    let _watchdog = Watchdog::new();
    let Some((host, mut tun)) = host(A, &TunOptions::new()) else { return };
    let before = received(&host);
    let mut packets = Batch::new();
    for i in 0..5 {
        packets.push_copy(&datagram(9, &[i; 10], true));
        tun.send(&mut packets).unwrap();
    }
    assert_eq!(received(&host) - before, 5);
}

#[test]
fn queues_of_a_device_all_send() {
    let _watchdog = Watchdog::new();
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    drop(tun);
    let opened = host.run(|| {
        let queues = Tun::<Vec<u8>>::open_queues("tun%d", &TunOptions::new(), 2)?;
        set_up(queues[0].name(), A)?;
        Ok::<_, std::io::Error>(queues)
    });
    let queues = opened.unwrap().unwrap();
    assert_eq!(queues.len(), 2);
    assert_eq!(queues[0].name(), queues[1].name());
    let socket = host.run(|| UdpSocket::bind((A, 0)).unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    for (mut queue, payload) in queues.into_iter().zip([b"one", b"two"]) {
        let mut packets = batch(datagram(port, payload, true));
        queue.send(&mut packets).unwrap();
        assert!(packets.is_empty() && packets.spare().is_some(), "the buffer is kept");
        let mut buffer = [0; 16];
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], payload);
    }
}

#[test]
fn datagrams_travel_many_a_message_with_their_marks() {
    let _watchdog = Watchdog::new();
    let local =
        |address: &str| Udp::bind(SocketAddr::new(address.parse().unwrap(), 0), &UdpOptions::new());
    for address in ["127.0.0.1", "::1"] {
        let mut near = match local(address) {
            Ok(near) => near,
            Err(error) => {
                println!("skipped: this machine has no {address}: {error}");
                continue;
            }
        };
        let mut far = local(address).unwrap();
        let to = far.local();
        let payloads: Vec<Vec<u8>> =
            (0..100_u8).map(|i| vec![i; if i % 40 == 39 { 300 } else { 1200 }]).collect();
        let class = |i: usize| if (40..60).contains(&i) { 0x03 } else { 0x2a };
        let datagrams: Vec<Datagram<'_>> = payloads
            .iter()
            .enumerate()
            .map(|(i, payload)| Datagram::new(payload, to).with_class(class(i)))
            .collect();
        near.send(&mut &datagrams[..]).unwrap();
        let mut arrived = Vec::new();
        while arrived.len() < payloads.len() {
            far.recv(|datagram| {
                assert_eq!(datagram.from, near.local());
                arrived.push((datagram.payload.to_vec(), datagram.class));
            })
            .unwrap();
        }
        for (i, (payload, mark)) in arrived.into_iter().enumerate() {
            assert_eq!((&payload, mark), (&payloads[i], class(i)), "datagram {i}");
        }
        let stats = near.stats();
        assert_eq!((stats.sent, stats.lost), (100, 0));
        assert!(stats.sent_messages <= 8, "{stats:?}");
        assert!(far.stats().received_messages <= 50, "{:?}", far.stats());
    }
}

#[test]
fn a_message_that_cannot_be_cut_is_sent_datagram_by_datagram() {
    let _watchdog = Watchdog::new();
    let Some((host, _tun)) = host(A, &TunOptions::new()) else { return };
    // Datagrams longer than the device's MTU cannot be segments of one message.
    let mut socket =
        host.run(|| Udp::bind(SocketAddr::new(A.into(), 0), &UdpOptions::new())).unwrap().unwrap();
    let to = SocketAddr::new(B.into(), 9);
    let datagrams = [Datagram::new(&[7; 3000], to); 3];
    socket.send(&mut &datagrams[..]).unwrap();
    let stats = socket.stats();
    assert_eq!((stats.uncut, stats.sent + stats.lost), (1, 3), "{stats:?}");
    assert!(socket.sender.segments(), "others can be cut");
}

#[test]
fn a_datagram_that_no_address_can_get_is_lost_and_those_behind_it_arrive() {
    let _watchdog = Watchdog::new();
    let mut near = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
    let mut far = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
    // The kernel does not send datagrams to port 0.
    let nowhere = ["127.0.0.1:0"; 4];
    let destinations = nowhere.map(|address| address.parse().unwrap()).into_iter();
    let payload = &[7; 100];
    let datagrams: Vec<_> =
        destinations.chain([far.local()]).map(|to| Datagram::new(payload, to)).collect();
    near.send(&mut &datagrams[..]).unwrap();
    assert_eq!((near.stats().lost, near.stats().sent), (4, 1), "{:?}", near.stats());
    let mut arrived = 0;
    far.recv(|_| arrived += 1).unwrap();
    assert_eq!(arrived, 1);
}

#[test]
fn an_address_of_another_family_is_invalid_and_nothing_is_sent() {
    let _watchdog = Watchdog::new();
    let mut near = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
    let far = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
    let destinations = [far.local(), "[::1]:9".parse().unwrap(), far.local()];
    let datagrams = destinations.map(|to| Datagram::new(&[7; 100], to));
    let error = near.send(&mut &datagrams[..]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("[::1]:9"), "{error}");
    assert_eq!((near.stats().sent, near.stats().lost), (0, 0), "{:?}", near.stats());
}

#[test]
fn a_device_that_disappears_is_an_error_and_the_batch_keeps_its_packets() {
    let _watchdog = Watchdog::new();
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    let (mut receiver, mut sender) = tun.split();
    let mut packets: Batch =
        [b"one", b"two"].map(|text| datagram(9, text, true)).into_iter().collect();
    remove(&host);
    let error = sender.send(&mut packets).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    assert_eq!(packets.len(), 2);
    let error = receiver.recv(|_, _| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    let error = receiver.interface().mtu().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
}

#[test]
fn a_device_that_disappears_ends_blocking_calls() {
    type Receive = fn(&mut TunReceiver) -> std::io::Result<usize>;
    let _watchdog = Watchdog::new();
    let calls: [Receive; 3] = [
        |receiver| receiver.recv(|_, _| ()),
        |receiver| receiver.recv_up_to(1, |_, _| ()),
        |receiver| receiver.recv_into(&Room::new(0, 0), |bytes| vec![0; bytes], |_| ()),
    ];
    for call in calls {
        let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
        let (mut receiver, mut sender) = tun.split();
        let (ready, is_ready) = mpsc::channel();
        let errors = thread::scope(|scope| {
            let reader = scope.spawn(move || {
                ready.send(()).unwrap();
                let mut error = || iter::repeat_with(|| call(&mut receiver)).find_map(Result::err);
                // The first error ends a wait. The second call finds that the device is already gone.
                [error(), error()].map(Option::unwrap)
            });
            is_ready.recv().unwrap();
            remove(&host);
            reader.join().unwrap()
        });
        let late = sender.send_frame(&[&[0x45; 40]], &Meta::default()).unwrap_err();
        for error in errors.into_iter().chain([late]) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

#[test]
fn two_threads_use_the_halves_of_a_device_and_of_a_socket() {
    let _watchdog = Watchdog::new();
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    let (mut from_host, mut to_host) = tun.split();
    let udp = host.run(|| Udp::bind(SocketAddr::new(A.into(), 0), &UdpOptions::new())).unwrap();
    let (mut from_peer, mut to_peer) = udp.unwrap().split();
    let (port, peer) = (to_peer.local().port(), SocketAddr::new(B.into(), 7));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut packet = Vec::new();
            while !packet.ends_with(b"outwards") {
                from_host.recv(|bytes, _| packet = bytes.to_vec()).unwrap();
            }
        });
        let socket = scope
            .spawn(|| from_peer.recv(|datagram| assert_eq!(datagram.payload, b"inwards")).unwrap());
        to_peer.send(&mut &[Datagram::new(b"outwards", peer)][..]).unwrap();
        to_host.send(&mut batch(datagram(port, b"inwards", true))).unwrap();
        reader.join().unwrap();
        assert_eq!(socket.join().unwrap(), 1);
    });
}
