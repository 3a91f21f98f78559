//! Traffic between the hosts' sockets. The kinds of traffic have the names that netperf uses.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// TCP connections from the sender to the receiver, with data sent from a buffer as fast as possible (`write`).
    TcpStream,
    /// TCP connections from the sender to the receiver, with data sent from a file in memory (`sendfile`).
    TcpSendfile,
    /// TCP connections in the opposite direction: the receiver sends through the data path that acts as its NIC.
    TcpMaerts,
    /// TCP requests and responses of one byte, one request at a time.
    TcpRequests,
    /// UDP datagrams that fill the sender's MTU, sent as fast as the receiver reads them.
    UdpStream,
    /// The same datagrams as in [`Self::UdpStream`], but many per call (`UDP_SEGMENT`).
    UdpSegments,
    /// UDP requests and responses of one byte, one request at a time.
    UdpRequests,
}

impl fmt::Display for Traffic {
    /// Writes netperf's name for the traffic.
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
    /// Returns whether the traffic uses TCP, and therefore has a congestion control.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        !matches!(self, Self::UdpStream | Self::UdpSegments | Self::UdpRequests)
    }

    /// Returns whether the traffic consists of requests and responses.
    #[must_use]
    pub fn is_requests(self) -> bool {
        matches!(self, Self::TcpRequests | Self::UdpRequests)
    }
}

/// State that the threads of a trial share while their traffic flows.
#[derive(Debug, Default)]
pub struct Progress {
    /// Whether the threads should stop.
    pub stop: AtomicBool,
    /// Number of bytes that arrived.
    pub bytes: AtomicU64,
    /// Number of datagrams that arrived, requests that were answered, or calls that read from a stream.
    pub units: AtomicU64,
    /// Number of datagrams that were lost, or of requests that were lost or whose response was lost.
    pub lost: AtomicU64,
}

impl Progress {
    fn arrived(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Release);
        self.units.fetch_add(1, Ordering::Release);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Returns the numbers of bytes and units that have arrived so far. Both are from the same moment, except that each
    /// thread may have added the bytes of one unit that it has not counted yet.
    pub fn arrivals(&self) -> (u64, u64) {
        loop {
            let units = self.units.load(Ordering::Acquire);
            let bytes = self.bytes.load(Ordering::Acquire);
            if self.units.load(Ordering::Relaxed) == units {
                return (bytes, units);
            }
        }
    }
}

/// Content of streams: the bytes of a file in memory, over and over. The content repeats only after the whole file, so
/// lost, duplicated or swapped bytes are detected.
#[derive(Debug)]
pub struct Content {
    file: File,
    bytes: Vec<u8>,
}

impl Content {
    /// Generates content from a seed.
    ///
    /// # Errors
    /// Fails if there is not enough memory for a file.
    pub fn new(seed: u64) -> io::Result<Self> {
        let mut bytes = vec![0; CONTENT_BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        let mut file = File::from(memfd_create("grosso-lab", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Self { file, bytes })
    }

    /// Returns the bytes of the stream from this position to the end of the file, but at most as many as one call
    /// sends.
    pub(crate) fn from(&self, place: u64) -> &[u8] {
        let start = (place % CONTENT_BYTES as u64) as usize;
        &self.bytes[start..CONTENT_BYTES.min(start + SEND_BYTES)]
    }

    /// Returns whether the stream has these bytes at this position.
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

/// Length of the file that streams repeat. It is odd, so that no segment size divides it.
const CONTENT_BYTES: usize = (1 << 20) - 3;
/// Number of bytes per send call. The last packet of each call has PSH and is short, so it ends a train.
const SEND_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_units_are_read_of_the_same_arrivals() {
        let progress = Progress::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while progress.goes_on() {
                    progress.arrived(10);
                }
            });
            let (mut units, mut torn) = (0, None);
            while units < 1_000_000 {
                let bytes;
                (bytes, units) = progress.arrivals();
                let is_torn = !(units..=units + 1).contains(&(bytes / 10));
                torn = torn.or_else(|| is_torn.then_some((bytes, units)));
            }
            progress.stop.store(true, Ordering::Relaxed);
            assert_eq!(torn, None, "bytes and units");
        });
    }

    #[test]
    fn content_shows_lost_doubled_and_exchanged_bytes() {
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
