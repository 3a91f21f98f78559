//! Sends streams and datagrams between sockets on the two hosts.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

use grosso_sys::namespace::NetworkNamespace;

/// Maximum time without a byte, after which the test fails instead of hanging.
pub(crate) const STALLED: Duration = Duration::from_secs(6);

/// Sends streams of this length in both directions at the same time, and compares every byte.
pub(crate) fn exchange(
    from: (&NetworkNamespace, IpAddr),
    to: (&NetworkNamespace, IpAddr),
    bytes: usize,
) {
    let listener = to.0.run(|| TcpListener::bind((to.1, 0))).unwrap().unwrap();
    let target = SocketAddr::new(to.1, listener.local_addr().unwrap().port());
    thread::scope(|scope| {
        let server = scope.spawn(|| both_ways(&listener.accept().unwrap().0, 2, 1, bytes));
        let connect = || TcpStream::connect_timeout(&target, STALLED);
        both_ways(&from.0.run(connect).unwrap().unwrap(), 1, 2, bytes);
        server.join().unwrap();
    });
}

fn both_ways(stream: &TcpStream, sends: u64, receives: u64, bytes: usize) {
    stream.set_read_timeout(Some(STALLED)).unwrap();
    stream.set_write_timeout(Some(STALLED)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send(stream, sends, bytes));
        receive(stream, receives, bytes);
    });
}

fn send(mut stream: &TcpStream, seed: u64, bytes: usize) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut chunk = vec![0; CHUNK];
    for _ in 0..bytes / CHUNK {
        dice.fill(&mut chunk);
        stream.write_all(&chunk).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

fn receive(mut stream: &TcpStream, seed: u64, bytes: usize) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let (mut expected, mut chunk) = (vec![0; CHUNK], vec![0; CHUNK]);
    for i in 0..bytes / CHUNK {
        dice.fill(&mut expected);
        stream.read_exact(&mut chunk).unwrap();
        assert!(chunk == expected, "chunk {i} of stream {seed} differs");
    }
    assert_eq!(stream.read(&mut chunk).unwrap(), 0, "nothing is added");
}

/// Bytes generated and compared at once.
const CHUNK: usize = 1 << 16;

/// Sends datagrams as superframes through a UDP socket (`UDP_SEGMENT`), and checks the length and contents of each
/// received datagram. Returns false if the test was skipped.
pub(crate) fn datagrams(
    from: (&NetworkNamespace, IpAddr),
    to: (&NetworkNamespace, IpAddr),
) -> bool {
    let socket = to.0.run(|| UdpSocket::bind((to.1, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(STALLED)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut command = Command::new("python3");
    command.args(["-c", GSO_SENDER, &to.1.to_string(), &port.to_string()]);
    let mut sender = match from.0.host(&mut command).and_then(|command| command.spawn()) {
        Ok(sender) => sender,
        Err(error) => {
            super::world::skip(&format!("no python3 to send with UDP_SEGMENT: {error}"));
            return false;
        }
    };
    let mut buffer = [0; 2000];
    for i in 0..DATAGRAMS {
        let (len, sender) = socket.recv_from(&mut buffer).unwrap();
        // The last datagram of each call is shorter.
        let expected = if i % 40 == 39 { 700 } else { 1200 };
        assert_eq!(len, expected, "datagram {i}");
        assert_eq!(usize::from(buffer[0]), i % 251, "datagram {i}");
        assert!(buffer[..len].iter().all(|byte| *byte == buffer[0]), "datagram {i} is mixed up");
        if i % 40 == 39 {
            // The receive buffer has room for all datagrams in flight.
            socket.send_to(b"next", sender).unwrap();
        }
    }
    assert!(sender.wait().unwrap().success());
    true
}

/// Number of datagrams sent, 40 per call.
const DATAGRAMS: usize = 400;

/// Sender program. It fills each datagram with the datagram's number.
const GSO_SENDER: &str = "
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
kind = socket.AF_INET6 if ':' in address else socket.AF_INET
sender = socket.socket(kind, socket.SOCK_DGRAM)
sender.setsockopt(17, 103, 1200)
for call in range(10):
    packets = [bytes([(call * 40 + i) % 251]) * 1200 for i in range(40)]
    sender.sendto(b''.join(packets)[:-500], (address, port))
    assert sender.recv(9) == b'next'
";
