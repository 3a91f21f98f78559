//! A client for the [sink](super), which sends a stream to it or receives one from it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Request, content, give, take};
use crate::{experiment::VERIFIED_BYTES, netns::STALLED, trial::TrialError};

/// Direction of a stream between a device and a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the sink to the device.
    Receive,
    /// From the device to the sink.
    Transmit,
}

/// A stream between the caller and a sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// The address of the sink.
    pub peer: SocketAddr,
    /// Direction of the stream.
    pub direction: Direction,
    /// Duration of the stream; `None` to send a fixed number of bytes and compare each of them.
    pub measured: Option<Duration>,
}

/// Figures for a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Called {
    /// Number of bytes that arrived.
    pub bytes: u64,
    /// Duration of the stream in seconds.
    pub seconds: f64,
}

impl Call {
    /// Sends or receives the stream.
    ///
    /// # Errors
    /// Fails if the sink cannot be reached, if the stream stops, if a byte differs, or if the measurement is
    /// interrupted.
    pub fn run(&self, interrupted: &AtomicBool) -> Result<Called, TrialError> {
        let connection = connect(self.peer)?;
        let started = Instant::now();
        let goes_on = || !interrupted.load(Ordering::Relaxed);
        let lasts = |time| goes_on() && started.elapsed() < time;
        let bytes = match (self.direction, self.measured) {
            (Direction::Transmit, Some(time)) => {
                send(&connection, Request::Take, || lasts(time))?.1
            }
            (Direction::Receive, Some(time)) => receive(&connection, false, |_| lasts(time))?,
            (Direction::Transmit, None) => {
                let (sent, received) = send(&connection, Request::Compare, || lasts(VERIFIED))?;
                if sent != received {
                    return Err(TrialError::Lost { sent, received });
                }
                sent
            }
            (Direction::Receive, None) => {
                receive(&connection, true, |bytes| goes_on() && bytes < VERIFIED_BYTES)?
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        if goes_on() { Ok(Called { bytes, seconds }) } else { Err(TrialError::Interrupted) }
    }
}

/// Sends a stream. Returns the number of bytes sent, and the number that the sink reports as received.
fn send(
    mut connection: &TcpStream,
    request: Request,
    goes_on: impl FnMut() -> bool,
) -> io::Result<(u64, u64)> {
    connection.write_all(&[request as u8])?;
    let (sent, ended) = give(connection, &content()?, goes_on);
    ended?;
    let mut answer = [0; 8];
    connection.read_exact(&mut answer)?;
    Ok((sent, u64::from_be_bytes(answer)))
}

/// Receives a stream, and returns the number of bytes. If `compare` is set, compares the stream with the expected
/// content.
fn receive(
    mut connection: &TcpStream,
    compare: bool,
    goes_on: impl FnMut(u64) -> bool,
) -> io::Result<u64> {
    connection.write_all(&[Request::Give as u8])?;
    let content = content()?;
    let (taken, ended) = take(connection, compare.then_some(&content), goes_on);
    ended.map(|()| taken)
}

/// Connects to the sink. Retries, because some devices lose their link for a while when a feature is changed.
fn connect(peer: SocketAddr) -> io::Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect_timeout(&peer, STALLED) {
            Ok(connection) => {
                connection.set_read_timeout(Some(STALLED))?;
                connection.set_write_timeout(Some(STALLED))?;
                return Ok(connection);
            }
            Err(error) if is_unreachable(&error) && started.elapsed() < STALLED => {
                thread::sleep(TRY_AGAIN);
            }
            Err(error) => {
                let what = format!(
                    "cannot reach a sink at {peer}: {error}; start `grosso lab sink` on that host"
                );
                return Err(io::Error::new(error.kind(), what));
            }
        }
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable)
}

/// Duration of a stream to the sink that is compared with the expected content.
const VERIFIED: Duration = Duration::from_millis(50);
/// Time between two attempts to connect to the sink.
const TRY_AGAIN: Duration = Duration::from_millis(100);
