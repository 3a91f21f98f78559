//! TCP streams in any number, with one thread at each side.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use grosso_sys::wait::{Interest, Waiter};
use rustix::fs::sendfile;

use super::{CONTENT_BYTES, Content, Progress, SEND_BYTES};

/// Sends streams until stopped. Returns the total number of bytes.
///
/// # Errors
/// Fails if a socket fails, or if none accepts data for [`crate::netns::STALLED`].
pub(crate) fn send_streams(
    sockets: &[TcpStream],
    content: &Content,
    progress: &Progress,
) -> io::Result<u64> {
    send_by(sockets, progress, |mut socket, place| socket.write(content.from(place)))
}

/// Sends streams like [`send_streams`], but the sender does not copy the data.
///
/// # Errors
/// Fails for the same reasons as [`send_streams`].
pub(crate) fn send_file(
    sockets: &[TcpStream],
    content: &Content,
    progress: &Progress,
) -> io::Result<u64> {
    send_by(sockets, progress, |socket, place| {
        let mut offset = place % CONTENT_BYTES as u64;
        Ok(sendfile(socket, content.file.as_fd(), Some(&mut offset), SEND_BYTES)?)
    })
}

/// Sends streams by calling `send` with a socket and the position in its stream. `send` returns the number of bytes
/// that the socket accepted.
fn send_by(
    sockets: &[TcpStream],
    progress: &Progress,
    call: impl Fn(&TcpStream, u64) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut sent = vec![0; sockets.len()];
    let mut send = |i: usize| {
        sent[i] += call(&sockets[i], sent[i])? as u64;
        io::Result::Ok(true)
    };
    match sockets {
        [_] => {
            while progress.goes_on() {
                send(0)?;
            }
        }
        _ => serve_ready_sockets(sockets, Interest::WRITE, || progress.goes_on(), send)?,
    }
    sockets.iter().try_for_each(|socket| socket.shutdown(Shutdown::Write))?;
    Ok(sent.iter().sum())
}

/// Receives streams until they end. Returns the total number of bytes. If there is expected content, compares every
/// byte with it.
///
/// # Errors
/// Fails if a socket fails, or if nothing arrives for [`crate::netns::STALLED`]. Fails with
/// [`io::ErrorKind::InvalidData`] if a byte differs.
pub(crate) fn receive_streams(
    sockets: &[TcpStream],
    expected: Option<&Content>,
    progress: &Progress,
) -> io::Result<u64> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut received = vec![0; sockets.len()];
    let mut receive = |i: usize| {
        let len = (&sockets[i]).read(&mut buffer)?;
        let part = &buffer[..len];
        if expected.is_some_and(|content| !content.is_at(received[i], part)) {
            let what = format!(
                "received data differs from sent data after byte {} of stream {i}",
                received[i]
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received[i] += len as u64;
        if len > 0 {
            progress.arrived(len);
        }
        Ok(len > 0)
    };
    match sockets {
        [_] => while receive(0)? {},
        _ => serve_ready_sockets(sockets, Interest::READ, || true, receive)?,
    }
    Ok(received.iter().sum())
}

/// Serves every socket that is ready, until all streams have ended or the traffic is stopped.
pub(super) fn serve_ready_sockets(
    sockets: &[TcpStream],
    interest: Interest,
    goes_on: impl Fn() -> bool,
    mut with: impl FnMut(usize) -> io::Result<bool>,
) -> io::Result<()> {
    let waiter = Waiter::new()?;
    for (i, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        waiter.add(socket, i as u64, interest)?;
    }
    let (mut ready, mut left) = (Vec::new(), sockets.len());
    let mut quiet = Duration::ZERO;
    while left > 0 && goes_on() {
        waiter.wait(&mut ready, Some(LOOK_AGAIN))?;
        quiet = if ready.is_empty() { quiet + LOOK_AGAIN } else { Duration::ZERO };
        if quiet >= crate::netns::STALLED {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for one in &ready {
            let i = one.token as usize;
            match with(i) {
                Ok(true) => {}
                Ok(false) => {
                    waiter.remove(&sockets[i])?;
                    left -= 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Buffer size of one receive call in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Interval at which a thread checks whether to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
