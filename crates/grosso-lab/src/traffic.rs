//! What the sockets of the hosts send each other, in netperf's sense.

use core::fmt;
use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, UdpSocket},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// One TCP connection, as many bytes as it takes, from a buffer (`write`).
    TcpStream,
    /// The same from a file in memory (`sendfile`).
    TcpSendfile,
    /// One byte there and one back over TCP, one after the other.
    TcpRequests,
    /// Datagrams that fill the sender's MTU, as many as the sender can.
    UdpStream,
}

impl fmt::Display for Traffic {
    /// The name that netperf has for it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TcpStream => "TCP_STREAM",
            Self::TcpSendfile => "TCP_SENDFILE",
            Self::TcpRequests => "TCP_RR",
            Self::UdpStream => "UDP_STREAM",
        })
    }
}

/// What the threads of a trial say about their traffic while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Whether to come to an end.
    pub stop: AtomicBool,
    /// Bytes that arrived.
    pub bytes: AtomicU64,
    /// Datagrams that arrived, requests that were answered, or calls that read a stream.
    pub units: AtomicU64,
}

impl Progress {
    fn arrived(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.units.fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// What streams carry: the bytes of a file in memory, over and over. They repeat only where the
/// file does, so that what is lost, doubled or exchanged does not compare equal.
#[derive(Debug)]
pub struct Content {
    file: File,
    bytes: Vec<u8>,
}

impl Content {
    /// Bytes from a seed.
    ///
    /// # Errors
    /// When there is no memory for a file.
    pub fn new(seed: u64) -> io::Result<Self> {
        let mut bytes = vec![0; CONTENT_BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        let mut file = File::from(memfd_create("grosso-lab", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Self { file, bytes })
    }

    /// Whether these bytes stand at this place of the stream.
    #[must_use]
    pub fn is_at(&self, place: u64, mut part: &[u8]) -> bool {
        let mut start = (place % CONTENT_BYTES as u64) as usize;
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(CONTENT_BYTES - start));
            if self.bytes.get(start..start + now.len()) != Some(now) {
                return false;
            }
            (part, start) = (later, 0);
        }
        true
    }
}

/// Sends a stream until it is told to stop, and says how many bytes that were.
///
/// # Errors
/// Those of the socket; when it takes nothing for [`crate::hosts::STALLED`].
pub fn send_stream(
    mut socket: &TcpStream,
    content: &Content,
    progress: &Progress,
) -> io::Result<u64> {
    let mut sent = 0;
    while progress.goes_on() {
        let start = (sent % CONTENT_BYTES as u64) as usize;
        let end = CONTENT_BYTES.min(start + SEND_BYTES);
        sent += socket.write(&content.bytes[start..end])? as u64;
    }
    socket.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// As [`send_stream`], without a copy in between.
///
/// # Errors
/// As [`send_stream`].
pub fn send_file(socket: &TcpStream, content: &Content, progress: &Progress) -> io::Result<u64> {
    let mut sent = 0;
    while progress.goes_on() {
        let mut offset = sent % CONTENT_BYTES as u64;
        sent += sendfile(socket, content.file.as_fd(), Some(&mut offset), SEND_BYTES)? as u64;
    }
    socket.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Receives a stream to its end, and says how many bytes it was; compares every byte if there is
/// something to compare with.
///
/// # Errors
/// Those of the socket; when nothing comes for [`crate::hosts::STALLED`];
/// [`io::ErrorKind::InvalidData`] when a byte differs.
pub fn receive_stream(
    mut socket: &TcpStream,
    expected: Option<&Content>,
    progress: &Progress,
) -> io::Result<u64> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut received = 0;
    loop {
        let len = socket.read(&mut buffer)?;
        if len == 0 {
            return Ok(received);
        }
        if expected.is_some_and(|content| !content.is_at(received, &buffer[..len])) {
            let what = format!("bytes differ behind byte {received} of the stream");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received += len as u64;
        progress.arrived(len);
    }
}

/// Sends a byte and waits for one, until it is told to stop; how long each took.
///
/// # Errors
/// Those of the socket.
pub fn ask(mut socket: &TcpStream, progress: &Progress) -> io::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(1 << 16);
    let mut byte = [0x42];
    while progress.goes_on() {
        let started = Instant::now();
        socket.write_all(&byte)?;
        socket.read_exact(&mut byte)?;
        took.push(started.elapsed());
    }
    socket.shutdown(Shutdown::Write)?;
    Ok(took)
}

/// Sends back every byte that comes, until none does; how many these were.
///
/// # Errors
/// Those of the socket.
pub fn answer(mut socket: &TcpStream, progress: &Progress) -> io::Result<u64> {
    let mut byte = [0];
    let mut answered = 0;
    while socket.read(&mut byte)? > 0 {
        socket.write_all(&byte)?;
        answered += 1;
        progress.arrived(1);
    }
    Ok(answered)
}

/// Sends datagrams until it is told to stop, and says how many bytes that were.
///
/// # Errors
/// Those of the socket but for a full queue, which costs a datagram.
pub fn send_datagrams(socket: &UdpSocket, bytes: usize, progress: &Progress) -> io::Result<u64> {
    let datagram = vec![0x42; bytes];
    let mut sent = 0;
    while progress.goes_on() {
        match socket.send(&datagram) {
            Ok(len) => sent += len as u64,
            Err(error) if is_queue_full(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Receives datagrams until it is told to stop and none comes any more.
///
/// # Errors
/// Those of the socket.
pub fn receive_datagrams(socket: &UdpSocket, progress: &Progress) -> io::Result<u64> {
    socket.set_read_timeout(Some(QUIET))?;
    let mut buffer = vec![0; 1 << 16];
    let mut received = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                received += len as u64;
                progress.arrived(len);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !progress.goes_on() {
                    return Ok(received);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_queue_full(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOBUFS)
}

/// The length of the file that streams repeat: odd, so that no segment size divides it.
const CONTENT_BYTES: usize = (1 << 20) - 3;
/// Bytes of one call that sends: each call ends with a push, and so with a short packet and a
/// train.
const SEND_BYTES: usize = 1 << 20;
/// Bytes of one call that receives.
const RECEIVE_BYTES: usize = 256 << 10;
/// After so long without a datagram the sender's last has arrived.
const QUIET: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_lost_doubled_and_exchanged_bytes() {
        let content = Content::new(7).unwrap();
        let stream: Vec<u8> = content.bytes.iter().chain(&content.bytes).copied().collect();
        let near_end = CONTENT_BYTES - 100;
        assert!(content.is_at(0, &stream));
        assert!(content.is_at(near_end as u64, &stream[near_end..near_end + 3000]));
        assert!(!content.is_at(near_end as u64 + 1, &stream[near_end..near_end + 3000]));
        assert!(!content.is_at(CONTENT_BYTES as u64, &stream[1..2000]));
        let mut exchanged = stream[..2896].to_vec();
        exchanged.rotate_left(1448);
        assert!(!content.is_at(0, &exchanged));
        exchanged.rotate_left(1448);
        exchanged[2000] ^= 1;
        assert!(!content.is_at(0, &exchanged));
    }
}
