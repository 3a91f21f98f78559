//! Tests that the running kernel applies the options of devices and sockets.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod hosts;

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
};

use grosso_sys::{
    interface::InterfaceName,
    netlink::{LinkChange, Netlink},
    tun::TunBuilder,
};
use grosso_testkit::Watchdog;
use grosso_tun::{
    Datagram, Fallback, Families, Features, Layer, Persistence, Queues, Room, Sharing, Tun,
    TunOptions, Udp, UdpOptions,
};
use hosts::{A, B, host, namespace};

#[test]
fn a_device_is_opened_with_mtu_addresses_and_state() {
    let Some(host) = namespace() else { return };
    let options = TunOptions::new()
        .mtu(1420)
        .address(A.into(), 24)
        .address("fd00::1".parse().unwrap(), 64)
        .persistence(Persistence::Persistent)
        .up();
    // Open the device twice: the second time, everything is already configured.
    for _ in 0..2 {
        let tun: Tun = host.run(|| Tun::open("vpn%d", &options)).unwrap().unwrap();
        let interface = tun.interface();
        assert_eq!((tun.name(), interface.mtu().unwrap()), ("vpn0", 1420));
        // Both addresses work immediately.
        for address in [IpAddr::V4(A), "fd00::1".parse().unwrap()] {
            host.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        }
        interface.set_mtu(1400).unwrap();
        assert_eq!(interface.mtu().unwrap(), 1400);
        let found = host.run(|| Netlink::new()?.link(&InterfaceName::new("vpn0")?));
        assert_eq!(interface.index().unwrap(), found.unwrap().unwrap().index);
        let options = TunOptions::new().persistence(Persistence::Temporary);
        drop(tun);
        let _: Tun = host.run(|| Tun::open("vpn0", &options)).unwrap().unwrap();
    }
    let error = host.run(|| Tun::<Vec<u8>>::open("vpn1", &TunOptions::new().mtu(1))).unwrap();
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("vpn1: cannot set the MTU to 1 bytes"), "{error}");
}

#[test]
fn a_name_that_is_in_use_gives_name_cause_and_remedy() {
    let Some(host) = namespace() else { return };
    let open = |name: &'static str, options: &TunOptions| {
        host.run(|| Tun::<Vec<u8>>::open(name, options).unwrap_err()).unwrap()
    };
    let name = |name| InterfaceName::new(name).unwrap();
    let held = host.run(|| {
        let several = TunBuilder::tun(name("several")).multi_queue(true).open()?;
        Ok::<_, std::io::Error>([
            TunBuilder::tap(name("tap")).open()?,
            TunBuilder::tun(name("tun")).open()?,
            several,
        ])
    });
    let held = held.unwrap().unwrap();
    let (near, far) = (name("veth"), name("htev"));
    let pair = || Netlink::new()?.add_veth((&near, LinkChange::new()), (&far, LinkChange::new()));
    host.run(pair).unwrap().unwrap();
    let (ip, ethernet) = (TunOptions::new(), TunOptions::new().layer(Layer::Ethernet));
    for (device, options, cause, remedy) in [
        ("tap", &ip, "the existing device is a TAP device", "use Layer::Ethernet"),
        ("tun", &ethernet, "the existing device is a TUN device", "use Layer::Ip"),
        ("several", &ip, "the existing device is a multi-queue device", "use Queues::Several"),
        (
            "tun",
            &ip.clone().queues(Queues::Several),
            "the existing device is a single-queue device",
            "Queues::One",
        ),
        ("veth", &ip, "the existing device uses the driver veth", "choose another name"),
        ("sixteen-bytes-xx", &ip, "not an interface name", "longer than 15 bytes"),
    ] {
        let error = open(device, options);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let text = error.to_string();
        assert!([device, cause, remedy].iter().all(|part| text.contains(part)), "{text}");
    }
    let error = open("tun", &ip);
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    assert!(
        error.to_string().starts_with("tun: cannot open the device: another program"),
        "{error}"
    );
    drop(held);
}

#[test]
fn only_requested_offloads_are_missing() {
    let offloads = Features::UDP_SEGMENTATION | Features::CHECKSUM_GENERIC;
    let none = TunOptions::new().sends(Features::NONE).receives(Features::NONE);
    let Some((host, tun)) = host(A, &none) else { return };
    assert_eq!(tun.fallbacks().collect::<Vec<_>>(), []);
    drop(tun);
    // A device without a virtio header has no offloads.
    let name = InterfaceName::new("tun1").unwrap();
    let plain = host.run(|| TunBuilder::tun(name).open()).unwrap().unwrap();
    let adopt = |options: &TunOptions| {
        let file = std::os::fd::AsFd::as_fd(&plain).try_clone_to_owned().unwrap();
        let tun: Tun = host.run(|| Tun::adopt(file, options)).unwrap().unwrap();
        tun.fallbacks().collect::<Vec<_>>()
    };
    assert_eq!(adopt(&none), []);
    let all = [Fallback::NoVirtioHeader, Fallback::NoUdpSegmentation];
    assert_eq!(adopt(&TunOptions::new()), all);
    assert_eq!(adopt(&none.clone().receives(offloads | Features::SCATTER_GATHER)), all);
    assert_eq!(adopt(&none.clone().sends(Features::CHECKSUM_GENERIC)), all[..1]);
}

#[test]
fn without_receive_offloads_the_kernel_passes_packets_only() {
    let _watchdog = Watchdog::new();
    for receives in [Features::NONE, Features::ALL] {
        // The options accept superframes, but the device's setting takes precedence.
        let options = TunOptions::new().receives(receives).takes(Features::ALL);
        let Some((host, mut tun)) = host(A, &options) else { return };
        let socket = host.run(|| Udp::bind(SocketAddr::new(A.into(), 0), &UdpOptions::new()));
        let mut socket = socket.unwrap().unwrap();
        let to = SocketAddr::new(B.into(), 9);
        socket.send(&mut &[Datagram::new(&[7; 3000], to).segmented(1000)][..]).unwrap();
        let (mut datagrams, mut superframes) = (0, 0);
        while datagrams < 3 && superframes == 0 {
            tun.recv(|packet, meta| {
                superframes += usize::from(meta.gso.is_some());
                datagrams += usize::from(packet.ends_with(&[7; 1000]));
            })
            .unwrap();
        }
        let kernel_has_uso = tun.fallbacks().next().is_none();
        assert_eq!(superframes > 0, receives == Features::ALL && kernel_has_uso, "{receives:?}");
    }
}

#[test]
fn one_frame_at_a_time_and_one_copy_into_contiguous_buffers() {
    let _watchdog = Watchdog::new();
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    let (mut receiver, _sender) = tun.split();
    let socket = host.run(|| Udp::bind(SocketAddr::new(A.into(), 0), &UdpOptions::new()));
    let mut socket = socket.unwrap().unwrap();
    let to = SocketAddr::new(B.into(), 9);
    let payloads = [vec![1; 1000], vec![2; 1000], vec![3; 500]];
    let payload = payloads.concat();
    let whole = Datagram::new(&payload, to).segmented(1000);
    socket.send(&mut &[whole, whole][..]).unwrap();
    let room = Room::new(32, 16).frames(1).packets(64);
    let mut sealed = Vec::new();
    let mut packets = Vec::new();
    while packets.len() < 6 {
        let before = packets.len();
        let frames = receiver.recv_into(
            &room,
            |bytes| vec![0; bytes],
            |filled| {
                packets.extend(filled.packets().map(|range| filled.buffer[range].to_vec()));
                sealed.push((filled.buffer[..filled.bytes()].to_vec(), filled.stride()));
            },
        );
        assert_eq!(frames.unwrap(), 1);
        assert!(packets.len() - before <= 3, "the packets of one frame");
    }
    for (packet, payload) in packets.iter().zip(payloads.iter().chain(&payloads)) {
        assert_eq!(packet[28..], payload[..]);
    }
    // Send each buffer to another socket as one segmented message.
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut near = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
    for (buffer, stride) in &sealed {
        let datagram = Datagram::new(buffer, far.local_addr().unwrap()).segmented(*stride);
        near.send(&mut &[datagram][..]).unwrap();
    }
    let mut buffer = [0; 2000];
    for packet in &packets {
        let len = far.recv(&mut buffer).unwrap();
        assert_eq!(buffer[32..len - 16], packet[..]);
    }
    assert_eq!(near.stats().sent_messages, sealed.len() as u64);
}

#[test]
fn a_socket_of_both_families_shows_and_reaches_both() {
    let _watchdog = Watchdog::new();
    let options = UdpOptions::new().families(Families::Both).hop_limit(17);
    let mut both = match Udp::bind("[::]:0".parse().unwrap(), &options) {
        Ok(both) => both,
        Err(error) => return println!("skipped: this machine has no IPv6: {error}"),
    };
    let port = both.local().port();
    for address in ["127.0.0.1", "::1"] {
        let address: IpAddr = address.parse().unwrap();
        let mut one = Udp::bind(SocketAddr::new(address, 0), &UdpOptions::new()).unwrap();
        let to = SocketAddr::new(address, port);
        let payloads = [[1; 100], [2; 100]];
        let list = payloads.each_ref().map(|payload| Datagram::new(payload, to).with_class(0x2a));
        one.send(&mut &list[..]).unwrap();
        let mut from = Vec::new();
        while from.len() < 2 {
            both.recv(|datagram| from.push((datagram.from, datagram.class))).unwrap();
        }
        assert_eq!(from, [(one.local(), 0x2a); 2]);
        let answers =
            payloads.each_ref().map(|payload| Datagram::new(payload, from[0].0).with_class(3));
        both.send(&mut &answers[..]).unwrap();
        let mut marks = Vec::new();
        while marks.len() < 2 {
            one.recv(|datagram| marks.push((datagram.from, datagram.class))).unwrap();
        }
        assert_eq!(marks, [(to, 3); 2]);
    }
    assert_eq!((both.stats().sent_messages, both.stats().lost), (2, 0));
}

#[test]
fn an_answer_has_the_address_that_was_asked() {
    let _watchdog = Watchdog::new();
    let both = UdpOptions::new().families(Families::Both);
    for (options, bound, asked) in [
        (UdpOptions::new(), "0.0.0.0:0", "127.0.0.2"),
        (UdpOptions::new(), "[::]:0", "::1"),
        (both, "[::]:0", "127.0.0.3"),
    ] {
        let mut far = match Udp::bind(bound.parse().unwrap(), &options.reports_local()) {
            Ok(far) => far,
            Err(error) => {
                println!("skipped: this machine has no {bound}: {error}");
                continue;
            }
        };
        let to = SocketAddr::new(asked.parse().unwrap(), far.local().port());
        let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let mut near = Udp::bind(any.parse().unwrap(), &UdpOptions::new()).unwrap();
        near.send(&mut &[Datagram::new(b"who are you?", to)][..]).unwrap();
        let mut asked = None;
        far.recv(|datagram| asked = datagram.to.map(|local| (datagram.from, local))).unwrap();
        let (from, local) = asked.unwrap();
        assert_eq!((from, local), (near.local(), to.ip()));
        let answer = Datagram::new(&[7; 30], from).with_source(local).with_class(3).segmented(20);
        far.send(&mut &[answer][..]).unwrap();
        let mut answers = Vec::new();
        while answers.len() < 2 {
            near.recv(|datagram| answers.push((datagram.from, datagram.payload.len()))).unwrap();
        }
        assert_eq!(answers, [(to, 20), (to, 10)]);
    }
}

#[test]
fn adopted_and_connected_sockets_work() {
    let _watchdog = Watchdog::new();
    let standard = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = standard.local_addr().unwrap();
    let mut udp = Udp::adopt(standard.into(), &UdpOptions::new()).unwrap();
    assert_eq!(udp.local(), address);
    let [peer, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    udp.connect(peer.local_addr().unwrap()).unwrap();
    other.send_to(b"from another", address).unwrap();
    peer.send_to(b"from the peer", address).unwrap();
    udp.recv(|datagram| assert_eq!(datagram.payload, b"from the peer")).unwrap();
    let error = udp.connect("[::1]:9".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    // No socket is listening at this address any more. The ICMP error for one datagram must not cause another to be
    // lost.
    let gone = peer.local_addr().unwrap();
    drop(peer);
    udp.send(&mut &[Datagram::new(b"lost in vain", gone)][..]).unwrap();
    let peer = UdpSocket::bind(gone).unwrap();
    udp.send(&mut &[Datagram::new(b"arrives", gone)][..]).unwrap();
    let mut buffer = [0; 16];
    let len = peer.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"arrives");
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Udp::adopt(file.into(), &UdpOptions::new()).is_err());
}

#[test]
fn sockets_share_a_port_and_keep_to_a_device() {
    let _watchdog = Watchdog::new();
    let Some((host, mut tun)) = host(A, &TunOptions::new()) else { return };
    let bind = |options: &UdpOptions, address: SocketAddr| {
        host.run(|| Udp::bind(address, options)).unwrap()
    };
    let shared = UdpOptions::new().sharing(Sharing::Shared);
    let one = bind(&shared, SocketAddr::new(A.into(), 0)).unwrap();
    bind(&shared, one.local()).unwrap();
    let error = bind(&UdpOptions::new(), one.local()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    let any = "0.0.0.0:0".parse().unwrap();
    // There is no route to this address, but a socket bound to the device does not need one.
    let nowhere = SocketAddr::new([192, 0, 2, 1].into(), 9);
    for (options, sent) in [(UdpOptions::new(), 0), (UdpOptions::new().device("tun0").mark(7), 1)] {
        let mut socket = bind(&options, any).unwrap();
        socket.send(&mut &[Datagram::new(b"over the device", nowhere)][..]).unwrap();
        assert_eq!((socket.stats().sent, socket.stats().lost), (sent, 1 - sent));
    }
    let mut packet = Vec::new();
    while !packet.ends_with(b"over the device") {
        tun.recv(|bytes, _| packet = bytes.to_vec()).unwrap();
    }
    assert!(bind(&UdpOptions::new().device("absent"), any).is_err());
}
