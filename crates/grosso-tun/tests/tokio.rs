//! Tests the device and the socket in a tokio runtime, on the running kernel.
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
use grosso_testkit::Watchdog;
use grosso_tun::{
    AsyncTun, AsyncTunReceiver, AsyncUdp, Batch, Datagram, Filled, Layer, Meta, Received, Room,
    Tun, TunOptions, Udp, UdpOptions,
};
use hosts::{A, B, batch, datagram, host, namespace, remove};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let _watchdog = Watchdog::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(future)
}

/// Polls a future once, then drops it. Returns its result if it was ready.
async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    cancelled_after(0, future, || ()).await
}

/// Polls a future until it is ready or has waited `waits` times; drops it if it has to wait once more. Calls `resume`
/// at each wait, including the last one.
async fn cancelled_after<T>(
    waits: usize,
    future: impl Future<Output = T>,
    mut resume: impl FnMut(),
) -> Option<T> {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => {
            resume();
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// A receive call of the device.
#[derive(Clone, Copy, Debug)]
enum Receive {
    Recv,
    RecvUpTo,
    RecvInto,
}

impl Receive {
    const ALL: [Self; 3] = [Self::Recv, Self::RecvUpTo, Self::RecvInto];

    async fn call(
        self,
        receiver: &mut AsyncTunReceiver,
        mut each: impl FnMut(&[u8], &Meta),
    ) -> std::io::Result<usize> {
        let make = |bytes| vec![0; bytes];
        match self {
            Self::Recv => receiver.recv(each).await,
            Self::RecvUpTo => receiver.recv_up_to(1, each).await,
            Self::RecvInto => {
                let out = |filled: Filled<Vec<u8>>| each(&filled.buffer, &filled.meta);
                receiver.recv_into(&Room::new(0, 0), make, out).await
            }
        }
    }
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

        // The device has no packet yet, so the runtime has to wait. A canceled call has not received anything.
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
    for call in Receive::ALL {
        let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
        block_on(async {
            let (mut receiver, mut sender) = AsyncTun::new(tun).unwrap().split();
            let read = async {
                loop {
                    if let Err(error) = call.call(&mut receiver, |_, _| ()).await {
                        return error;
                    }
                }
            };
            let removal = async {
                tokio::task::yield_now().await;
                remove(&host);
            };
            let (error, ()) = tokio::join!(read, removal);
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{call:?}: {error}");
            let error = call.call(&mut receiver, |_, _| ()).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{call:?} again: {error}");
            let mut packets = batch(datagram(9, b"too late", true));
            let error = sender.send(&mut packets).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
            assert_eq!(packets.len(), 1);
            let error = sender.send_frame(&[&[0x45; 40]], &Meta::default()).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        });
    }
}

/// Datagrams to an address that does not resolve wait in the kernel and count toward the socket's send buffer, which
/// fills up.
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
        // The runtime must first notice that the socket has room.
        while rest.len() == DATAGRAMS {
            assert!(once(udp.sender.send(&mut rest)).await.is_none(), "the socket is full");
            let sent = udp.sender.inner().stats().sent;
            assert_eq!(sent, (DATAGRAMS - rest.len()) as u64, "the list has the others");
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

#[test]
fn a_receive_call_of_the_device_that_is_cancelled_at_any_wait_has_received_nothing() {
    for call in Receive::ALL {
        for waits in 0.. {
            let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
            let socket = host.run(|| UdpSocket::bind((A, 0)).unwrap()).unwrap();
            let has_finished = block_on(async {
                let (mut receiver, _sender) = AsyncTun::new(tun).unwrap().split();
                let mut sent = 0;
                let resume = || {
                    sent += 1;
                    socket.send_to(&[sent; 10], (B, 9)).unwrap();
                };
                let mut packets: Vec<Vec<u8>> = Vec::new();
                let each = |packet: &[u8], _: &Meta| packets.push(packet[28..].to_vec());
                let received = call.call(&mut receiver, each);
                let result = cancelled_after(waits, received, resume).await;
                assert_eq!(result.is_some(), !packets.is_empty(), "{call:?} after {waits} waits");
                // The next calls receive the remaining packets.
                while packets.len() < sent.into() {
                    let each = |packet: &[u8], _: &Meta| packets.push(packet[28..].to_vec());
                    receiver.recv(each).await.unwrap();
                }
                let all: Vec<_> = (1..=sent).map(|i| vec![i; 10]).collect();
                assert_eq!(packets, all, "{call:?} after {waits} waits");
                result.is_some()
            });
            if has_finished {
                assert!(waits > 0, "{call:?} has waited");
                break;
            }
        }
    }
}

#[test]
fn a_send_call_of_the_device_that_is_cancelled_at_any_wait_has_sent_what_it_reports() {
    for waits in 0.. {
        let Some((host, tun)) = host(A, &TunOptions::new()) else { return };
        let socket = host.run(|| UdpSocket::bind((A, 0)).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let drain = || {
            let mut buffer = [0; 64];
            std::iter::from_fn(|| {
                let len = socket.recv(&mut buffer).ok()?;
                Some(buffer[..len].to_vec())
            })
            .collect::<Vec<_>>()
        };
        let payloads = [b"one".to_vec(), b"second".to_vec()];
        let has_finished = block_on(async {
            let (_receiver, mut sender) = AsyncTun::new(tun).unwrap().split();
            let frame = datagram(port, b"frame", true);
            let slices = [&frame[..]];
            let meta = Meta::default();
            let result = cancelled_after(waits, sender.send_frame(&slices, &meta), || ()).await;
            let flushed = cancelled_after(waits, sender.flush(), || ()).await;
            assert_eq!(drain().len(), usize::from(result.is_some()), "after {waits} waits");

            let mut packets: Batch =
                payloads.iter().map(|payload| datagram(port, payload, true)).collect();
            let sent = cancelled_after(waits, sender.send(&mut packets), || ()).await;
            let mut received = drain();
            assert_eq!(received.len() + packets.len(), payloads.len(), "after {waits} waits");
            sender.send(&mut packets).await.unwrap();
            received.extend(drain());
            assert_eq!(received, payloads, "after {waits} waits");
            result.is_some() && flushed.is_some() && sent.is_some()
        });
        if has_finished {
            assert!(waits > 0, "the runtime had to notice that the device is writable");
            break;
        }
    }
}

#[test]
fn a_call_of_the_socket_that_is_cancelled_at_any_wait_has_done_what_it_reports() {
    let payloads = [[1; 10], [2; 10]];
    for waits in 0.. {
        let bind = || Udp::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let has_finished = block_on(async {
            let mut udp = AsyncUdp::new(bind()).unwrap();
            let mut peer = bind();
            let far = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = far.local_addr().unwrap();
            let list = payloads.each_ref().map(|payload| Datagram::new(payload, to));
            let mut rest = &list[..];
            let sent = cancelled_after(waits, udp.sender.send(&mut rest), || ()).await;
            let taken = list.len() - rest.len();
            assert_eq!(udp.sender.inner().stats().sent, taken as u64, "after {waits} waits");
            udp.sender.send(&mut rest).await.unwrap();
            let mut buffer = [0; 64];
            let received = payloads.map(|_| {
                let len = far.recv(&mut buffer).unwrap();
                buffer[..len].to_vec()
            });
            assert_eq!(received, payloads.map(|payload| payload.to_vec()));

            let (to, mut count, mut arrived) = (udp.local(), 0, Vec::new());
            let resume = || {
                count += 1;
                peer.send(&mut &[Datagram::new(&[count; 10], to)][..]).unwrap();
            };
            let each = |datagram: Received<'_>| arrived.push(datagram.payload.to_vec());
            let result = cancelled_after(waits, udp.receiver.recv(each), resume).await;
            assert_eq!(result.is_some(), !arrived.is_empty(), "after {waits} waits");
            while arrived.len() < count.into() {
                let each = |datagram: Received<'_>| arrived.push(datagram.payload.to_vec());
                udp.receiver.recv(each).await.unwrap();
            }
            assert_eq!(arrived, (1..=count).map(|i| vec![i; 10]).collect::<Vec<_>>());
            sent.is_some() && result.is_some()
        });
        if has_finished {
            assert!(waits > 0, "the runtime had to notice that the socket is ready");
            break;
        }
    }
}
