//! The device and the socket in a tokio runtime, on the running kernel.
#![cfg(all(target_os = "linux", feature = "tokio"))]
#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

mod hosts;

use std::{
    future::{Future, poll_fn},
    net::{SocketAddr, UdpSocket},
    pin::pin,
    task::Poll,
};

use grosso_sys::netlink::Netlink;
use grosso_tun::{
    AsyncTun, AsyncUdp, Datagram, Layer, Meta, Room, Tun, TunOptions, Udp, UdpOptions,
};
use hosts::{A, B, batch, datagram, host, namespace, remove};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(future)
}

/// Polls a future once and drops it; returns its result if it was ready.
async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn tokio_waits_for_both() {
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    let socket = host.run(|| UdpSocket::bind((A, 0)).unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    block_on(async {
        let (mut receiver, mut sender) = AsyncTun::new(tun).unwrap().split();
        sender.send(&mut batch(datagram(port, b"to the socket", true))).await.unwrap();
        let mut buffer = [0; 16];
        let (len, peer) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"to the socket");
        let frame = datagram(port, b"in parts", true);
        let (headers, payload) = frame.split_at(28);
        sender.send_frame(&[headers, payload], &Meta::default()).await.unwrap();
        sender.flush().await.unwrap();
        let (len, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"in parts");

        // The device has nothing to read yet, so the runtime has to wait. A cancelled call has received nothing.
        let mut packets: Vec<Vec<u8>> = Vec::new();
        assert!(once(receiver.recv(|packet, _| packets.push(packet.to_vec()))).await.is_none());
        let room = Room::new(0, 0);
        assert!(
            once(receiver.recv_into(&room, |_| -> [u8; 0] { unreachable!() }, |_| ()))
                .await
                .is_none()
        );
        let answer = async {
            tokio::task::yield_now().await;
            socket.send_to(b"and back", peer).unwrap();
        };
        let read = receiver.recv_up_to(1, |packet, _| packets.push(packet.to_vec()));
        let (frames, ()) = tokio::join!(read, answer);
        assert_eq!(frames.unwrap(), 1);
        assert!(packets.iter().any(|packet| packet.ends_with(b"and back")));
        assert_eq!(packets.len(), 1);

        let near = Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let mut near = AsyncUdp::new(near).unwrap();
        let to = near.local();
        let mut marks = Vec::new();
        assert!(once(near.receiver.recv(|datagram| marks.push(datagram.class))).await.is_none());
        let list = [Datagram::new(b"to itself", to).with_class(1)];
        near.sender.send(&mut &list[..]).await.unwrap();
        near.receiver.recv(|datagram| marks.push(datagram.class)).await.unwrap();
        assert_eq!(marks, [1]);
    });
}

#[test]
fn a_device_that_disappears_ends_every_wait() {
    let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
    block_on(async {
        let (mut receiver, mut sender) = AsyncTun::new(tun).unwrap().split();
        let read = async {
            loop {
                if let Err(error) = receiver.recv(|_, _| ()).await {
                    return error;
                }
            }
        };
        let removal = async {
            tokio::task::yield_now().await;
            remove(&host);
        };
        let (error, ()) = tokio::join!(read, removal);
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        let mut packets = batch(datagram(9, b"too late", true));
        let error = sender.send(&mut packets).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        assert_eq!(packets.len(), 1);
        let error = sender.send_frame(&[&[0x45; 40]], &Meta::default()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    });
}

/// Datagrams to an address that does not resolve wait in the kernel and count towards the socket's buffer, which is
/// then full.
#[test]
fn a_cancelled_send_of_datagrams_leaves_exactly_those_that_were_not_sent() {
    const DATAGRAMS: usize = 100;
    let Some(host) = namespace() else { return };
    let options = TunOptions::new().layer(Layer::Ethernet).address(A.into(), 24).up();
    let device: Tun = host.run(|| Tun::open("tap0", &options)).unwrap().unwrap();
    let socket =
        host.run(|| Udp::bind(SocketAddr::new(A.into(), 0), &UdpOptions::new().buffer_bytes(4096)));
    let payloads: Vec<_> = (0..DATAGRAMS).map(|i| vec![i as u8; 200 + i]).collect();
    let to = SocketAddr::new(B.into(), 9);
    let list: Vec<_> = payloads.iter().map(|payload| Datagram::new(payload, to)).collect();
    block_on(async {
        let mut device = AsyncTun::new(device).unwrap();
        let mut udp = AsyncUdp::new(socket.unwrap().unwrap()).unwrap();
        let mut rest = &list[..];
        // The runtime first has to notice that the socket has room.
        while rest.len() == DATAGRAMS {
            assert!(once(udp.sender.send(&mut rest)).await.is_none(), "the socket is full");
            tokio::task::yield_now().await;
        }
        let waiting = rest.len();
        assert!((1..DATAGRAMS).contains(&waiting), "{waiting}");
        assert!(once(udp.sender.send(&mut rest)).await.is_none(), "and stays full");
        assert_eq!(rest.len(), waiting);
        let index = device.sender.interface().index().unwrap();
        let resolve = || Netlink::new()?.set_neighbour(index, B.into(), [2, 0, 0, 0, 0, 9]);
        host.run(resolve).unwrap().unwrap();
        udp.sender.send(&mut rest).await.unwrap();
        assert!(rest.is_empty());
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        while arrived.len() < DATAGRAMS {
            let each = |frame: &[u8], _: &Meta| match frame.get(42..) {
                Some(payload) if frame[12..14] == [8, 0] => arrived.push(payload.to_vec()),
                _ => {}
            };
            device.receiver.recv(each).await.unwrap();
        }
        assert_eq!(arrived, payloads, "each once, in order");
    });
}
