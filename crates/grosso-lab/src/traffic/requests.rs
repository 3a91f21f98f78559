//! Traffic of requests and responses: one byte in each direction, one request at a time.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream, UdpSocket},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use grosso_sys::wait::Interest;

use super::{Progress, streams::serve_ready_sockets};

/// Sends one-byte requests until stopped, each after the response to the previous one. Returns the duration of each
/// request.
///
/// # Errors
/// Fails if the socket fails.
pub(crate) fn ask(mut socket: &TcpStream, progress: &Progress) -> io::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(EXPECTED);
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

/// Sends back every byte that arrives, until the stream ends. Returns the number of bytes.
///
/// # Errors
/// Fails if the socket fails.
pub(crate) fn answer(mut socket: &TcpStream, progress: &Progress) -> io::Result<u64> {
    let mut byte = [0];
    let mut answered = 0;
    while socket.read(&mut byte)? > 0 {
        socket.write_all(&byte)?;
        answered += 1;
        progress.arrived(1);
    }
    Ok(answered)
}

/// Sends requests like [`ask`], but over many connections at once, each with one request in flight.
///
/// # Errors
/// Fails if a socket fails, or if no response arrives for [`crate::netns::STALLED`].
pub(crate) fn ask_many(sockets: &[TcpStream], progress: &Progress) -> io::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(EXPECTED);
    let mut byte = [0x42];
    let mut asked = vec![Instant::now(); sockets.len()];
    for (mut socket, asked) in sockets.iter().zip(&mut asked) {
        *asked = Instant::now();
        socket.write_all(&byte)?;
    }
    serve_ready_sockets(
        sockets,
        Interest::READ,
        || true,
        |i| {
            let mut socket = &sockets[i];
            socket.read_exact(&mut byte)?;
            took.push(asked[i].elapsed());
            if !progress.goes_on() {
                return socket.shutdown(Shutdown::Write).map(|()| false);
            }
            asked[i] = Instant::now();
            socket.write_all(&byte).map(|()| true)
        },
    )?;
    Ok(took)
}

/// Answers requests like [`answer`], but over many connections at once.
///
/// # Errors
/// Fails for the same reasons as [`ask_many`].
pub(crate) fn answer_many(sockets: &[TcpStream], progress: &Progress) -> io::Result<u64> {
    let mut byte = [0];
    let mut answered = 0;
    serve_ready_sockets(
        sockets,
        Interest::READ,
        || true,
        |i| {
            let mut socket = &sockets[i];
            if socket.read(&mut byte)? == 0 {
                return Ok(false);
            }
            socket.write_all(&byte)?;
            answered += 1;
            progress.arrived(1);
            Ok(true)
        },
    )?;
    Ok(answered)
}

/// Sends requests like [`ask`], but as datagrams. A request that is not answered in time counts as lost.
///
/// # Errors
/// Fails if the socket fails.
pub(crate) fn ask_datagrams(socket: &UdpSocket, progress: &Progress) -> io::Result<Vec<Duration>> {
    socket.set_read_timeout(Some(UNANSWERED))?;
    let mut took = Vec::with_capacity(EXPECTED);
    let mut number = 0_u64;
    while progress.goes_on() {
        number += 1;
        let started = Instant::now();
        socket.send(&number.to_be_bytes())?;
        match receive_answer(socket, number) {
            Ok(()) => took.push(started.elapsed()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                progress.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(took)
}

/// Waits for the answer to a request. Ignores late answers to earlier requests.
fn receive_answer(socket: &UdpSocket, number: u64) -> io::Result<()> {
    let mut answer = [0; 8];
    loop {
        if socket.recv(&mut answer)? == answer.len() && answer == number.to_be_bytes() {
            return Ok(());
        }
    }
}

/// Answers requests like [`answer`], but as datagrams, until stopped.
///
/// # Errors
/// Fails if the socket fails.
pub(crate) fn answer_datagrams(socket: &UdpSocket, progress: &Progress) -> io::Result<u64> {
    socket.set_read_timeout(Some(UNANSWERED))?;
    let (mut request, mut answered) = ([0; 8], 0);
    while progress.goes_on() {
        match socket.recv(&mut request) {
            Ok(len) => {
                socket.send(&request[..len])?;
                answered += 1;
                progress.arrived(len);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answered)
}

/// Number of requests for which memory is allocated in advance.
const EXPECTED: usize = 1 << 16;
/// Time after which an answer is no longer expected.
const UNANSWERED: Duration = Duration::from_millis(200);
