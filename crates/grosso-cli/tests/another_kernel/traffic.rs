//! Traffic between a host and the guest: all received data is compared with the sent data.

use std::{
    collections::HashSet,
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use grosso_sys::{datagram::set_segment_bytes, namespace::NetworkNamespace};
use sha2::{Digest, Sha256};

use crate::network::STALLED;

/// Throughput in Mb/s: to the guest, and from it.
pub(crate) struct Rates(pub(crate) [f64; 2]);

/// Returns the bytes to send, which the receiver can compute too.
pub(crate) fn content() -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..CONTENT_BYTES).map(|_| next()).collect()
}

/// The guest script that starts its endpoints: the receiver, the sender and the echo server.
pub(crate) const SERVE: &str = "
serve() { socat \"$@\" < /dev/null > /dev/null 2>&1 & }
serve -t 600 TCP6-LISTEN:9,fork,reuseaddr,ipv6only=0 EXEC:/bin/take
serve -U TCP6-LISTEN:19,fork,reuseaddr,ipv6only=0 OPEN:/content,rdonly
serve -b 65536 -T 60 UDP6-LISTEN:7,fork,reuseaddr,ipv6only=0 EXEC:/bin/cat,socktype=2
";

/// Program that serves the receiving port. When all data has arrived, it prints a line and the digest.
pub(crate) const TAKE: &str = "#!/bin/dash
cat > /tmp/$$
echo taken
/applets/sha256sum < /tmp/$$
rm /tmp/$$
";

/// Exchanges streams and datagrams in both directions between a host and the guest.
pub(crate) fn exchange(
    host: &NetworkNamespace,
    guest: IpAddr,
    content: &[u8],
) -> io::Result<Rates> {
    let exchange = || {
        let rates = [give(guest, content)?, take(guest, content)?];
        datagrams(guest, content)?;
        Ok(Rates(rates))
    };
    host.run(exchange)?
}

/// Sends a stream to the guest, which answers with a digest of the stream.
pub(crate) fn give(guest: IpAddr, content: &[u8]) -> io::Result<f64> {
    let mut stream = connect(guest, 9).map_err(|error| with_context("connecting", &error))?;
    let start = Instant::now();
    let mut sent = || {
        stream.write_all(content)?;
        stream.shutdown(Shutdown::Write)
    };
    sent().map_err(|error| with_context("sending a stream", &error))?;
    let mut lines = BufReader::new(stream).lines();
    let mut answer = || lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    let taken =
        answer().map_err(|error| with_context("waiting until a stream was taken", &error))?;
    let rate = rate(start);
    let digest = answer()?;
    let mut own = String::new();
    for byte in Sha256::digest(content) {
        write!(own, "{byte:02x}").map_err(io::Error::other)?;
    }
    if taken == "taken" && digest.starts_with(&own) {
        Ok(rate)
    } else {
        Err(io::Error::other(format!("the guest got another stream: {taken} {digest} {own}")))
    }
}

/// Receives a stream from the guest.
pub(crate) fn take(guest: IpAddr, content: &[u8]) -> io::Result<f64> {
    let mut stream = connect(guest, 19)?;
    let start = Instant::now();
    let mut received = Vec::new();
    let read = stream.read_to_end(&mut received);
    read.map_err(|error| {
        with_context(&format!("after {} bytes of a stream", received.len()), &error)
    })?;
    let differs = received.iter().zip(content).position(|(one, other)| one != other);
    if received.len() == content.len() && differs.is_none() {
        return Ok(rate(start));
    }
    let place = differs.unwrap_or_else(|| received.len().min(content.len()));
    Err(io::Error::other(format!("the guest's stream differs at {place}")))
}

/// Sends datagrams of all lengths, one by one and as superframes. The guest echoes them.
fn datagrams(guest: IpAddr, content: &[u8]) -> io::Result<()> {
    let any = if guest.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect((guest, 7))?;
    socket.set_read_timeout(Some(LOST))?;
    let mut echoes = Echoes::of(&socket);
    for length in LENGTHS {
        echoes.there_and_back(&content[length..2 * length], length)?;
    }
    set_segment_bytes(&socket, SEGMENT_BYTES as u16)?;
    echoes.there_and_back(&content[..SEGMENT_BYTES * 9 + 100], SEGMENT_BYTES)
}

/// Datagrams that the peer echoes.
struct Echoes<'a> {
    socket: &'a UdpSocket,
    /// All datagrams sent so far. A slow guest may echo every copy of a retransmitted datagram, possibly much later.
    sent: HashSet<&'a [u8]>,
}

impl<'a> Echoes<'a> {
    fn of(socket: &'a UdpSocket) -> Self {
        Self { socket, sent: HashSet::new() }
    }

    /// Sends data in datagrams of equal length, and retransmits lost ones until all of them have been echoed, in order.
    /// Every datagram that arrives must equal one that was sent.
    fn there_and_back(&mut self, data: &'a [u8], length: usize) -> io::Result<()> {
        let expected: Vec<_> = data.chunks(length).collect();
        self.sent.extend(&expected);
        let mut answer = vec![0; 1 << 16];
        for _ in 0..ATTEMPTS {
            self.socket.send(data)?;
            let mut arrived = 0;
            while arrived < expected.len() {
                let Ok(bytes) = self.socket.recv(&mut answer) else { break };
                if answer[..bytes] == *expected[arrived] {
                    arrived += 1;
                } else if !self.sent.contains(&answer[..bytes]) {
                    let message =
                        format!("{bytes} bytes that nobody sent, beside those of {length}");
                    return Err(io::Error::other(message));
                }
            }
            if arrived == expected.len() {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("no datagram of {length} bytes came back")))
    }
}

fn connect(guest: IpAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(guest, port), STALLED)?;
    stream.set_read_timeout(Some(STALLED))?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

fn with_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn rate(start: Instant) -> f64 {
    CONTENT_BYTES as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e6
}

/// Length of a stream in bytes: about 30 superframes, because an emulated VM receives only 60 Mb/s.
const CONTENT_BYTES: usize = 2 << 20;
/// Datagram lengths in bytes: short, about packet size, and fragmented.
const LENGTHS: [usize; 8] = [200, 1000, 1380, 1430, 1500, 9000, 30_000, 60_000];
/// Length in bytes of each datagram in a superframe.
const SEGMENT_BYTES: usize = 1200;
/// Time after which a datagram counts as lost, and the maximum number of times it is sent.
const LOST: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 20;

/// Returns a local socket that has already received `answers`, and the socket that sent them.
fn answered(answers: &[&[u8]]) -> [UdpSocket; 2] {
    let [near, far] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    for answer in answers {
        far.send(answer).unwrap();
    }
    [near, far]
}

#[test]
fn answers_that_come_late_and_again_are_no_other_datagrams() {
    let content = content();
    let (first, second) = (&content[200..400], &content[1000..2000]);
    let [near, _far] = answered(&[first, first, first, second]);
    let mut echoes = Echoes::of(&near);
    echoes.there_and_back(first, 200).unwrap();
    echoes.there_and_back(second, 1000).unwrap();
}

#[test]
fn an_answer_that_is_cut_or_damaged_or_does_not_come_is_a_fault() {
    let content = content();
    let (first, second) = (&content[200..400], &content[1000..2000]);
    let mut damaged = second.to_vec();
    damaged[999] ^= 1;
    let long = &content[1000..2001];
    for (wrong, why) in [
        (&damaged[..], "1000 bytes that nobody sent"),
        (&second[..999], "999 bytes that nobody sent"),
        (long, "1001 bytes that nobody sent"),
        (first, "no datagram of 1000 bytes"),
    ] {
        let [near, _far] = answered(&[first, wrong]);
        let mut echoes = Echoes::of(&near);
        echoes.there_and_back(first, 200).unwrap();
        let error = echoes.there_and_back(second, 1000).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
