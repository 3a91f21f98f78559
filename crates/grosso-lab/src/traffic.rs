//! What the sockets of the hosts send each other, in netperf's sense.

use core::fmt;
use std::{
    fs::File,
    io::{self, Write},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use rustix::fs::{MemfdFlags, memfd_create};

mod datagrams;
mod paced;
mod requests;
mod streams;

pub(crate) use self::{
    datagrams::{receive_datagrams, send_datagrams},
    paced::{receive_paced, send_paced},
    requests::{answer, answer_datagrams, answer_many, ask, ask_datagrams, ask_many},
    streams::{receive_streams, send_file, send_streams},
};

pub use self::paced::Pace;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// TCP connections from the sender to the receiver, as many bytes as they take, from a buffer
    /// (`write`).
    TcpStream,
    /// The same from a file in memory, over one connection (`sendfile`).
    TcpSendfile,
    /// The other way: the receiver sends, through the data path that is its NIC.
    TcpMaerts,
    /// One byte there and one back over TCP, one after the other.
    TcpRequests,
    /// Datagrams that fill the sender's MTU, as many as arrive.
    UdpStream,
    /// The same, handed to the kernel many in one call (`UDP_SEGMENT`).
    UdpSegments,
    /// One byte there and one back over UDP.
    UdpRequests,
}

impl fmt::Display for Traffic {
    /// The name that netperf has for it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TcpStream => "TCP_STREAM",
            Self::TcpSendfile => "TCP_SENDFILE",
            Self::TcpMaerts => "TCP_MAERTS",
            Self::TcpRequests => "TCP_RR",
            Self::UdpStream => "UDP_STREAM",
            Self::UdpSegments => "UDP_STREAM with UDP_SEGMENT",
            Self::UdpRequests => "UDP_RR",
        })
    }
}

impl Traffic {
    /// Whether it is over TCP, and so has a congestion control.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        !matches!(self, Self::UdpStream | Self::UdpSegments | Self::UdpRequests)
    }

    /// Whether it waits for answers.
    #[must_use]
    pub fn is_requests(self) -> bool {
        matches!(self, Self::TcpRequests | Self::UdpRequests)
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
    /// Datagrams or requests that did not arrive, or whose answer did not.
    pub lost: AtomicU64,
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

/// The length of the file that streams repeat: odd, so that no segment size divides it.
const CONTENT_BYTES: usize = (1 << 20) - 3;

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
