//! What the sockets of the hosts send each other.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use grosso_sys::namespace::NetworkNamespace;

/// So long without a byte means that none will come: the test fails instead of hanging.
pub(crate) const STALLED: Duration = Duration::from_secs(6);

/// Sends a stream of so many bytes from one host to the other, and one back, at once, and compares every byte.
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

/// Bytes that are made and compared at once.
const CHUNK: usize = 1 << 16;
