//! The peer of a measured stream. It listens for connections, and receives or sends a stream on each.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
};

use crate::{netns::STALLED, traffic::Content};

mod call;

pub use self::call::{Call, Called, Direction};

/// Request of a client: the first byte that it sends on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Request {
    /// Receive a stream until it ends, and answer with the number of bytes.
    Take = b'T',
    /// Receive a stream up to the first byte that is not the expected one.
    Compare = b'C',
    /// Send a stream until the connection ends.
    Give = b'G',
}

impl Request {
    fn of(byte: u8) -> Option<Self> {
        [Self::Take, Self::Compare, Self::Give].into_iter().find(|one| *one as u8 == byte)
    }
}

/// Serves connections one after another until the listener fails. Calls `served` with the number of bytes on each
/// connection, or with the connection's error.
///
/// # Errors
/// Fails if the listener fails.
pub fn serve(listener: &TcpListener, mut served: impl FnMut(io::Result<u64>)) -> io::Result<()> {
    let content = content()?;
    loop {
        let (connection, _) = listener.accept()?;
        served(serve_one(connection, &content));
    }
}

fn serve_one(mut connection: TcpStream, content: &Content) -> io::Result<u64> {
    connection.set_read_timeout(Some(STALLED))?;
    connection.set_write_timeout(Some(STALLED))?;
    let mut first = [0];
    connection.read_exact(&mut first)?;
    let expected = match Request::of(first[0]) {
        Some(Request::Give) => return Ok(give(&connection, content, || true).0),
        Some(Request::Compare) => Some(content),
        Some(Request::Take) => None,
        None => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "received a request that is not from grosso lab",
            ));
        }
    };
    let (taken, ended) = take(&connection, expected, |_| true);
    connection.write_all(&taken.to_be_bytes())?;
    ended.map(|()| taken)
}

/// Sends a stream until `goes_on` returns false or an error occurs. Returns the number of bytes.
fn give(
    mut connection: &TcpStream,
    content: &Content,
    mut goes_on: impl FnMut() -> bool,
) -> (u64, io::Result<()>) {
    let mut given = 0;
    while goes_on() {
        match connection.write(content.from(given)) {
            Ok(len) => given += len as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (given, Err(error)),
        }
    }
    (given, connection.shutdown(Shutdown::Write))
}

/// Receives a stream until it ends, or until `goes_on`, called with the number of bytes so far, returns false. Returns
/// the number of bytes before the end or the first error; a byte that is not the expected one is an error.
fn take(
    mut connection: &TcpStream,
    expected: Option<&Content>,
    mut goes_on: impl FnMut(u64) -> bool,
) -> (u64, io::Result<()>) {
    let (mut buffer, mut taken) = (vec![0; TAKEN_BYTES], 0);
    while goes_on(taken) {
        match connection.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) if expected.is_some_and(|content| !content.is_at(taken, &buffer[..len])) => {
                let what = format!("received data differs from sent data after byte {taken}");
                return (taken, Err(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
            Ok(len) => taken += len as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

/// Returns the content of every stream between a lab and a sink.
fn content() -> io::Result<Content> {
    Content::new(SEED)
}

/// Buffer size of one receive call in bytes.
const TAKEN_BYTES: usize = 256 << 10;
/// Seed of the content, which is the same at both ends.
const SEED: u64 = 0x7369_6e6b;
