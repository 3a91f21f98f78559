use core::time::Duration;
use std::net::UdpSocket;

use super::*;
use crate::calls::observe;
use crate::errno::ErrorClass;
use crate::wait::{Interest, wait_for};

/// Loopback addresses for IPv4 and IPv6.
const LOOPBACK: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn builder(address: &str) -> DatagramSocketBuilder {
    DatagramSocketBuilder::new(Protocol::Udp, address.parse().unwrap())
}

/// Receives all available messages.
fn receive(socket: &mut DatagramSocket) -> Vec<(ReceivedMessage, Vec<u8>)> {
    wait_for(&[(socket.as_fd(), Interest::READ)], Some(Duration::from_secs(6))).unwrap();
    let (mut first, mut second) = (vec![0; 20_000], vec![0; 20_000]);
    let (mut far, mut near) = ([IoSliceMut::new(&mut first)], [IoSliceMut::new(&mut second)]);
    let mut received = Vec::new();
    let count = socket.receive_batch(&mut [&mut far, &mut near], &mut received).unwrap();
    assert_eq!(count, received.len());
    received
        .into_iter()
        .zip([first, second])
        .map(|(r, bytes)| (r, bytes[..r.length].to_vec()))
        .collect()
}

#[test]
fn control_messages_arrive_and_one_send_is_one_receive() {
    for address in LOOPBACK {
        let mut near = builder(address).hop_limit(9).open().unwrap();
        let mut far = builder(address).coalescing(true).open().unwrap();
        let bytes: Vec<u8> = (0..3000_u32).map(|i| i as u8).collect();
        let (head, tail) = bytes.split_at(700);
        let parts = [IoSlice::new(head), IoSlice::new(tail)];
        let cut = Datagram {
            parts: &parts,
            destination: far.local(),
            traffic_class: 0xb9,
            hop_limit: 77,
            segment_bytes: Some(1200),
            source: None,
        };
        let plain = Datagram { traffic_class: 0, hop_limit: 9, segment_bytes: None, ..cut };
        assert_eq!(near.send_batch(&[cut, plain]).unwrap(), 2);
        let received = receive(&mut far);
        let expected = |traffic_class, hop_limit, segment_bytes| ReceivedMessage {
            length: 3000,
            truncated: false,
            source: near.local(),
            traffic_class,
            hop_limit,
            segment_bytes,
            local: None,
        };
        assert_eq!(received[0], (expected(0xb9, 77, Some(1200)), bytes.clone()));
        assert_eq!(received[1], (expected(0, 9, None), bytes));
        assert_eq!(far.receive_batch(&mut [&mut []], &mut Vec::new()).unwrap(), 0, "no more");
    }
}

#[test]
fn an_observer_sees_each_call_of_its_own_thread() {
    thread_local! {
        static CALLS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
    }
    let mut near = builder(LOOPBACK[0]).open().unwrap();
    let mut far = builder(LOOPBACK[0]).open().unwrap();
    let parts = [IoSlice::new(b"seen")];
    let (destination, hop_limit) = (far.local(), 64);
    let datagram = Datagram {
        parts: &parts,
        destination,
        traffic_class: 0,
        hop_limit,
        segment_bytes: None,
        source: None,
    };
    observe(Some(|call| {
        call();
        CALLS.set(CALLS.get() + 1);
    }));
    assert_eq!(near.send_batch(&[datagram, datagram]).unwrap(), 2);
    assert_eq!(receive(&mut far).len(), 2);
    assert_eq!(CALLS.get(), 3, "one call each to send, wait and receive");
    let elsewhere = std::thread::spawn(|| {
        builder(LOOPBACK[0])
            .open()
            .unwrap()
            .receive_batch(&mut [&mut []], &mut Vec::new())
            .unwrap();
        CALLS.get()
    });
    assert_eq!(elsewhere.join().unwrap(), 0);
    observe(None);
    assert_eq!(near.send_batch(&[datagram]).unwrap(), 1);
    assert_eq!(CALLS.get(), 3);
}

#[test]
fn only_datagrams_with_a_checksum_come_through_the_filter() {
    for address in LOOPBACK {
        let mut without = builder(address).sends_checksum(false).open().unwrap();
        let mut with = builder(address).open().unwrap();
        let mut choosy =
            builder(address).takes_no_checksum(true).wants_checksum(true).open().unwrap();
        let mut any = builder(address).takes_no_checksum(true).open().unwrap();
        for far in [&mut choosy, &mut any] {
            for (near, byte) in [(&mut without, b'0'), (&mut with, b'1')] {
                let byte = [byte];
                let parts = [IoSlice::new(&byte)];
                let datagram = Datagram {
                    parts: &parts,
                    destination: far.local(),
                    traffic_class: 0,
                    hop_limit: 64,
                    segment_bytes: None,
                    source: None,
                };
                assert_eq!(near.send_batch(&[datagram]).unwrap(), 1);
            }
        }
        let bytes = |socket| receive(socket).into_iter().map(|(_, b)| b[0]).collect::<Vec<_>>();
        assert_eq!(bytes(&mut any), b"01");
        assert_eq!(bytes(&mut choosy), b"1");
        assert_eq!((any.drops().unwrap(), choosy.drops().unwrap()), (0, 1));
    }
}

#[test]
fn what_does_not_fit_the_path_is_refused_unless_fragments_are_allowed() {
    let mut near = builder(LOOPBACK[0]).open().unwrap();
    let far = UdpSocket::bind(LOOPBACK[0]).unwrap();
    let bytes = vec![7; 65_000];
    let mut datagram = Datagram {
        parts: &[IoSlice::new(&bytes)],
        destination: far.local_addr().unwrap(),
        traffic_class: 0,
        hop_limit: 64,
        segment_bytes: Some(1200),
        source: None,
    };
    // No kernel accepts more than 128 segments.
    assert_eq!(
        ErrorClass::of(
            &near.send_batch(&[Datagram { segment_bytes: Some(400), ..datagram }]).unwrap_err()
        ),
        ErrorClass::Malformed
    );
    assert_eq!(near.send_batch(&[datagram]).unwrap(), 1);
    let longer = vec![7; 65_508];
    let parts = [IoSlice::new(&longer)];
    datagram = Datagram { parts: &parts, segment_bytes: None, ..datagram };
    assert_eq!(ErrorClass::of(&near.send_batch(&[datagram]).unwrap_err()), ErrorClass::TooLong);
}

#[test]
fn a_socket_that_only_sends_receives_nothing_and_a_passed_one_is_taken_over() {
    let deaf = builder(LOOPBACK[0]).send_only(true).open().unwrap();
    let near = UdpSocket::bind(LOOPBACK[0]).unwrap();
    near.send_to(b"x", deaf.local()).unwrap();
    assert_eq!(deaf.drops().unwrap(), 1);

    let passed = UdpSocket::bind(LOOPBACK[0]).unwrap();
    let address = passed.local_addr().unwrap();
    let mut adopted = builder("0.0.0.0:0").adopt(passed.into()).unwrap();
    assert_eq!(adopted.local(), address);
    near.send_to(b"y", address).unwrap();
    assert_eq!(receive(&mut adopted)[0].1, b"y");
    let stream = std::net::TcpListener::bind(LOOPBACK[0]).unwrap();
    let refused = builder("0.0.0.0:0").adopt(stream.into()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}
