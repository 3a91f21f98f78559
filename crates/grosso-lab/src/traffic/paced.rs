//! Numbered datagrams that are sent at a fixed rate.

use std::{
    io,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use grosso_sys::wait::wait_exactly;
use rustix::io::Errno;

use super::{CONTENT_BYTES, Content, Progress, datagrams::QUIET};

/// The load that a sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Number of payload bytes in each datagram; must be greater than the size of its number.
    pub datagram_bytes: usize,
    /// Rate in bits per second, counting only the bytes in `datagram_bytes`.
    pub rate_bits: u64,
}

impl Pace {
    /// Returns the interval between two datagrams.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.datagram_bytes as f64 * 8.0 / self.rate_bits.max(1) as f64)
    }
}

/// Sends datagrams at the configured rate until the traffic is stopped, and returns the time at which each was sent. If
/// the sender falls behind, it makes up for at most [`BEHIND_MAX`].
///
/// # Errors
/// Fails if the socket fails. A full queue is not an error; it only drops the datagram.
pub(crate) fn send_paced(
    socket: &UdpSocket,
    content: &Content,
    pace: Pace,
    progress: &Progress,
) -> io::Result<Vec<Instant>> {
    // If this call fails, the datagrams are just sent slightly less evenly.
    let _ = wait_exactly();
    let mut sent = Vec::with_capacity(EXPECTED);
    let mut datagram = vec![0; pace.datagram_bytes];
    let mut due = Instant::now();
    while progress.goes_on() {
        let now = Instant::now();
        if now < due {
            thread::sleep((due - now).min(LOOK_AGAIN));
            continue;
        }
        due = due.max(now.checked_sub(BEHIND_MAX).unwrap_or(now)) + pace.interval();
        content.write_datagram(sent.len() as u64, &mut datagram);
        match socket.send(&datagram) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOBUFS) => return Err(error),
            _ => sent.push(now),
        }
    }
    Ok(sent)
}

/// Receives the datagrams from [`send_paced`] until the traffic is stopped and no more arrive, and returns the time of
/// each arrival.
///
/// # Errors
/// Fails if the socket fails. Fails with [`io::ErrorKind::InvalidData`] if a datagram is damaged, duplicated, or late.
pub(crate) fn receive_paced(
    socket: &UdpSocket,
    content: &Content,
    pace: Pace,
    progress: &Progress,
) -> io::Result<Vec<Instant>> {
    socket.set_read_timeout(Some(QUIET))?;
    let mut arrived = Vec::with_capacity(EXPECTED);
    let mut buffer = vec![0; 1 << 16];
    let mut next = 0;
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                let now = Instant::now();
                let number = content.number_of(&buffer[..len]);
                match number.filter(|&number| number >= next && len == pace.datagram_bytes) {
                    Some(number) => next = number + 1,
                    None => {
                        let what = format!(
                            "received {len} bytes that are neither datagram {next} nor a later datagram"
                        );
                        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                    }
                }
                arrived.push(now);
                progress.arrived(len);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !progress.goes_on() {
                    return Ok(arrived);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Content {
    /// Writes datagram `number`. The number comes first; at every position, the bytes after it differ from those in
    /// neighboring datagrams.
    pub(crate) fn write_datagram(&self, number: u64, datagram: &mut [u8]) {
        let (front, mut rest) = datagram.split_at_mut(NUMBER_BYTES);
        front.copy_from_slice(&number.to_be_bytes());
        let mut start = (place_of(number) % CONTENT_BYTES as u64) as usize;
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(rest.len().min(CONTENT_BYTES - start));
            now.copy_from_slice(&self.bytes[start..start + now.len()]);
            (rest, start) = (later, 0);
        }
    }

    /// Returns the number of a datagram if every byte is as it was sent.
    fn number_of(&self, datagram: &[u8]) -> Option<u64> {
        let (front, rest) = datagram.split_first_chunk::<NUMBER_BYTES>()?;
        let number = u64::from_be_bytes(*front);
        self.is_at(place_of(number), rest).then_some(number)
    }
}

/// Returns the offset of a datagram's bytes in the content.
fn place_of(number: u64) -> u64 {
    number.wrapping_mul(PLACE_STEP) % CONTENT_BYTES as u64
}

/// Number of bytes for the number at the start of a datagram.
const NUMBER_BYTES: usize = 8;
/// Distance in the content between consecutive datagrams, chosen so that fragments from two datagrams are never equal.
const PLACE_STEP: u64 = 65_537;
/// Number of datagrams for which memory is allocated in advance.
const EXPECTED: usize = 1 << 14;
/// Interval at which a thread checks whether to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Maximum delay that a late sender makes up for by sending faster. A longer burst would itself be a load.
const BEHIND_MAX: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_identified_by_its_number_and_every_byte() {
        let content = Content::new(7).unwrap();
        let datagram = |number| {
            let mut bytes = vec![0; 64_000];
            content.write_datagram(number, &mut bytes);
            bytes
        };
        for number in [0, 1, 15, 16, 1 << 40] {
            assert_eq!(content.number_of(&datagram(number)), Some(number));
        }
        // Replace a fragment with one from another datagram at the same offset.
        let (mut mixed, other) = (datagram(3), datagram(4));
        mixed[1448..2896].copy_from_slice(&other[1448..2896]);
        assert_eq!(content.number_of(&mixed), None);
        let mut flipped = datagram(5);
        flipped[63_999] ^= 1;
        assert_eq!(content.number_of(&flipped), None);
        assert_eq!(content.number_of(&[0; 7]), None);
    }

    #[test]
    fn pace_is_datagrams_a_second() {
        let pace = Pace { datagram_bytes: 64_000, rate_bits: 1_024_000_000 };
        assert_eq!(pace.interval(), Duration::from_micros(500));
    }
}
