//! Datagrams, as many as arrive.

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

/// Sends datagrams of so many bytes until it is told to stop, and says how many bytes that were:
/// one a call, or with `segments` as many as a call takes, which the kernel cuts.
///
/// UDP has no brake of its own: who sends more than arrives measures nothing but queues that are
/// full. So no more than [`UNDER_WAY_BYTES`] are sent ahead of what arrived; what is still missing
/// after a pause is counted as lost.
///
/// # Errors
/// Those of the socket but for a full queue, which costs the datagrams.
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

/// Waits until few enough of `sent` bytes are under way; no longer than a datagram may take.
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

/// Receives datagrams until it is told to stop and none comes any more.
///
/// # Errors
/// Those of the socket.
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

/// Bytes that may be under way: half the socket's receive buffer holds them in datagrams of an
/// Ethernet MTU, with what the kernel keeps beside each; the other half may wait to be given back.
const UNDER_WAY_BYTES: u64 = 128 << 10;
/// Most bytes of one call (65535 with the headers of IPv6), and most datagrams (`UDP_MAX_SEGMENTS`
/// of kernels before 6.9).
const CALL_BYTES_MAX: usize = 65_535 - 48;
const SEGMENTS_MAX: usize = 64;
/// How long to let others work before looking again.
const PAUSE: Duration = Duration::from_micros(20);
/// What did not arrive for so long is lost.
const LOST: Duration = Duration::from_millis(20);
/// After so long without a datagram the sender's last has arrived.
pub(super) const QUIET: Duration = Duration::from_millis(100);
