//! Datagram traffic that is sent as fast as the receiver reads it.

use std::{
    io,
    net::UdpSocket,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use grosso_sys::datagram::set_segment_bytes;
use rustix::io::Errno;

use super::Progress;

/// Sends datagrams of `bytes` bytes until stopped. Without `segments`, each call sends one datagram. With `segments`,
/// each call sends as many as possible, which the kernel then segments. Returns the number of bytes sent.
///
/// UDP has no flow control: with a sender that is faster than the receiver, only full queues would be measured.
/// Therefore, at most [`UNDER_WAY_BYTES`] may be in flight; datagrams that are still missing after a while count as
/// lost.
///
/// # Errors
/// Fails if the socket fails. A full queue is not an error; it only drops the datagrams.
pub(crate) fn send_datagrams(
    socket: &UdpSocket,
    bytes: usize,
    segments: bool,
    progress: &Progress,
) -> io::Result<u64> {
    let mut count = 1;
    if segments {
        set_segment_bytes(socket, u16::try_from(bytes).map_err(io::Error::other)?)?;
        count = (CALL_BYTES_MAX / bytes).clamp(1, SEGMENTS_MAX);
    }
    let payload = vec![0x42; bytes * count];
    let (mut sent, mut given_up) = (0, 0);
    while progress.goes_on() {
        if !has_room(sent - given_up + payload.len() as u64, progress) {
            let arrived = progress.bytes.load(Ordering::Relaxed);
            let missing = (sent - given_up).saturating_sub(arrived);
            progress.lost.fetch_add(missing / bytes as u64, Ordering::Relaxed);
            given_up += missing;
        }
        match socket.send(&payload) {
            Ok(len) => sent += len as u64,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Waits until few enough of the `sent` bytes are in flight, and returns true. Returns false if the missing datagrams
/// count as lost or the traffic is stopped.
fn has_room(sent: u64, progress: &Progress) -> bool {
    let fits = || sent <= progress.bytes.load(Ordering::Relaxed) + UNDER_WAY_BYTES;
    if fits() {
        return true;
    }
    let started = Instant::now();
    while progress.goes_on() && started.elapsed() < LOST {
        thread::sleep(PAUSE);
        if fits() {
            return true;
        }
    }
    false
}

/// Receives datagrams until the traffic is stopped and no more arrive.
///
/// # Errors
/// Fails if the socket fails.
pub(crate) fn receive_datagrams(socket: &UdpSocket, progress: &Progress) -> io::Result<u64> {
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

/// Maximum number of bytes in flight. As datagrams with an Ethernet MTU, they fill half of the socket's receive buffer,
/// including the kernel's overhead. The other half is for buffers that have been read but not freed yet.
const UNDER_WAY_BYTES: u64 = 128 << 10;
/// Maximum number of bytes per call: 65535 minus the IPv6 and UDP headers.
const CALL_BYTES_MAX: usize = 65_535 - 48;
/// Maximum number of datagrams per call (`UDP_MAX_SEGMENTS` in kernels before 6.9).
const SEGMENTS_MAX: usize = 64;
/// Pause before the next check, in which other threads can work.
const PAUSE: Duration = Duration::from_micros(20);
/// Time after which a missing datagram counts as lost.
const LOST: Duration = Duration::from_millis(20);
/// Time without a datagram after which the sender's last datagram must have arrived or be lost.
pub(super) const QUIET: Duration = Duration::from_millis(100);
