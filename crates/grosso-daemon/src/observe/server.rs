//! One thread that serves all clients, regardless of their behavior.
//!
//! A client may send one request per connection. The connection lasts at most [`ClientBounds::client_time`], even if
//! the client sends byte by byte or does not read. Bytes after the request are read and discarded, up to
//! `DRAINED_BYTES_MAX`. Each of the two listeners serves at most [`CLIENTS_MAX`] clients at a time. A further client
//! replaces the oldest client of the same listener, so that stalled metrics clients never displace a client of the
//! control socket. Data paths are queried at most once in [`ClientBounds::fresh`], regardless of the number of clients.

use std::{
    io::{self, IoSliceMut, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use grosso_sys::unix_socket::receive_without_files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    PathReading,
    control::{Answer, Ask},
    http::{self, Wanted},
    prometheus,
    reading::devices,
};
use crate::acceptor::{Acceptor, CLIENTS_MAX, is_soon};

/// A function that reads the counters of the data paths.
pub type AskPaths = Box<dyn Fn() -> Vec<PathReading> + Send + Sync>;

/// Bounds on the cost of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientBounds {
    /// Maximum time from a client's connection to the last byte of its response.
    pub client_time: Duration,
    /// Maximum age of a cached reading of the data paths.
    pub fresh: Duration,
}

impl Default for ClientBounds {
    fn default() -> Self {
        Self { client_time: Duration::from_secs(5), fresh: Duration::from_millis(10) }
    }
}

/// The state of the thread that serves clients.
pub struct Server {
    control: Option<UnixListener>,
    metrics: Option<TcpListener>,
    /// Stream that becomes readable when the server must stop.
    stopped: UnixStream,
    clients: Vec<Client>,
    acceptor: Acceptor,
    client_time: Duration,
    paths: PathsCache,
}

impl Server {
    /// Creates a server that accepts clients on the given sockets.
    pub fn new(
        control: Option<UnixListener>,
        metrics: Option<TcpListener>,
        stopped: UnixStream,
        bounds: ClientBounds,
        ask: AskPaths,
    ) -> io::Result<Self> {
        if let Some(control) = &control {
            control.set_nonblocking(true)?;
        }
        if let Some(metrics) = &metrics {
            metrics.set_nonblocking(true)?;
        }
        let ClientBounds { client_time, fresh } = bounds;
        let paths = PathsCache { ask, fresh, readings: Vec::new(), asked: None, at: UNIX_EPOCH };
        let (clients, acceptor) = (Vec::new(), Acceptor::default());
        Ok(Self { control, metrics, stopped, clients, acceptor, client_time, paths })
    }

    /// Serves clients until the server is stopped or waiting fails.
    pub fn run(mut self) {
        while let Ok(ready) = self.wait() {
            if ready.stopped {
                return;
            }
            let now = Instant::now();
            for (client, is_ready) in self.clients.iter_mut().zip(ready.clients) {
                if is_ready {
                    client.go_on(&mut self.paths);
                }
            }
            self.clients.retain(|client| !client.done && now < client.end);
            self.let_in(now);
        }
    }

    /// Sleeps until a client is ready, or has used up its time.
    fn wait(&self) -> io::Result<Awake> {
        let now = Instant::now();
        let mut descriptors = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        descriptors.extend(self.clients.iter().map(|client| {
            let is_sending = client.sent < client.outgoing.len();
            let wants = if is_sending { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(client.stream.as_fd(), wants)
        }));
        let closed_until = self.acceptor.closed_until(now);
        if closed_until.is_none() {
            descriptors.extend(self.control.iter().map(|unix| PollFd::new(unix, PollFlags::IN)));
            descriptors.extend(self.metrics.iter().map(|tcp| PollFd::new(tcp, PollFlags::IN)));
        }
        let ends = self.clients.iter().map(|client| client.end).chain(closed_until);
        let left = ends.min().map(|end| end.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut descriptors, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        let clients = &descriptors[1..=self.clients.len()];
        Ok(Awake {
            stopped: is_ready(&descriptors[0]),
            clients: clients.iter().map(is_ready).collect(),
        })
    }

    fn let_in(&mut self, now: Instant) {
        let control = || match &self.control {
            Some(control) => control.accept().map(|(stream, _)| Stream::Control(stream)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        };
        let metrics = || match &self.metrics {
            Some(metrics) => metrics.accept().map(|(stream, _)| Stream::Http(stream)),
            None => Err(io::ErrorKind::WouldBlock.into()),
        };
        let mut came = self.acceptor.accept(now, control);
        came.extend(self.acceptor.accept(now, metrics));
        for stream in came {
            if stream.set_nonblocking().is_ok() {
                let like = |client: &Client| client.stream.is_http() == stream.is_http();
                if self.clients.iter().filter(|client| like(client)).count() == CLIENTS_MAX
                    && let Some(oldest) = self.clients.iter().position(like)
                {
                    self.clients.remove(oldest);
                }
                self.clients.push(Client::new(stream, now + self.client_time));
            }
        }
    }
}

/// The connections that are ready.
struct Awake {
    stopped: bool,
    clients: Vec<bool>,
}

/// The data paths, and their last reading.
struct PathsCache {
    ask: AskPaths,
    fresh: Duration,
    readings: Vec<PathReading>,
    asked: Option<Instant>,
    at: SystemTime,
}

impl PathsCache {
    fn readings(&mut self) -> &[PathReading] {
        if self.asked.is_none_or(|asked| asked.elapsed() >= self.fresh) {
            self.readings = (self.ask)();
            self.asked = Some(Instant::now());
            self.at = SystemTime::now();
        }
        &self.readings
    }
}

/// A connected client.
struct Client {
    stream: Stream,
    incoming: Vec<u8>,
    /// Response; empty until it is known.
    outgoing: Vec<u8>,
    sent: usize,
    /// Bytes received after the response was sent.
    drained: usize,
    /// Deadline for the client.
    end: Instant,
    done: bool,
}

impl Client {
    fn new(stream: Stream, end: Instant) -> Self {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        Self { stream, incoming, outgoing, sent: 0, drained: 0, end, done: false }
    }

    /// Serves the client as far as possible without waiting: reads the part of the request that has arrived, sends as
    /// much of the response as fits, or discards bytes that follow the request.
    fn go_on(&mut self, paths: &mut PathsCache) {
        let received = match self.outgoing.is_empty() {
            true => self.receive(paths),
            false => Ok(()),
        };
        let result = received.and_then(|()| self.send()).and_then(|()| self.drain());
        match result {
            Err(error) if is_soon(&error) => {}
            Err(_) => self.done = true,
            Ok(()) => {}
        }
    }

    fn receive(&mut self, paths: &mut PathsCache) -> io::Result<()> {
        let mut buffer = [0; 1024];
        while self.outgoing.is_empty() {
            let room = (ASK_BYTES_MAX - self.incoming.len()).min(buffer.len());
            let count = self.stream.read(&mut buffer[..room])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.incoming.extend_from_slice(&buffer[..count]);
            let is_full = self.incoming.len() == ASK_BYTES_MAX;
            self.outgoing = match self.stream {
                Stream::Control(_) => answer_line(&self.incoming, is_full, paths),
                Stream::Http(_) => answer_http(&self.incoming, is_full, paths),
            }
            .unwrap_or_default();
        }
        Ok(())
    }

    /// Sends the response, then shuts down writing.
    fn send(&mut self) -> io::Result<()> {
        if self.sent == self.outgoing.len() {
            return Ok(());
        }
        while self.sent < self.outgoing.len() {
            let count = self.stream.write(&self.outgoing[self.sent..])?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent += count;
        }
        self.stream.end_sending()
    }

    /// Reads until the client closes the connection: unread bytes would turn the close into a reset, which discards the
    /// response.
    fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while self.drained < DRAINED_BYTES_MAX {
            match self.stream.read(&mut buffer)? {
                0 => break,
                count => self.drained += count,
            }
        }
        self.done = true;
        Ok(())
    }
}

/// Returns a function that answers a partial request as a program without paths would.
#[cfg(feature = "fuzzing")]
pub fn answers(is_http: bool) -> impl FnMut(&[u8], bool) -> Option<Vec<u8>> {
    let fresh = Duration::MAX;
    let mut paths = PathsCache {
        ask: Box::new(Vec::new),
        fresh,
        readings: Vec::new(),
        asked: None,
        at: UNIX_EPOCH,
    };
    move |bytes, is_full| match is_http {
        true => answer_http(bytes, is_full, &mut paths),
        false => answer_line(bytes, is_full, &mut paths),
    }
}

fn answer_line(bytes: &[u8], is_full: bool, paths: &mut PathsCache) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    if end.is_none() && !is_full {
        return None;
    }
    let asked = match end {
        Some(end) => serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string()),
        None => Err(format!("the line is longer than {ASK_BYTES_MAX} bytes")),
    };
    let answer = match asked {
        Ok(Ask::Counters { per_queue }) => {
            let devices = devices(paths.readings(), per_queue);
            serde_json::to_vec(&Answer::new(paths.at, devices))
        }
        Err(error) => serde_json::to_vec(&serde_json::json!({
            "schema": "grosso.error/1",
            "code": "usage.ask",
            "message": format!("invalid request: {error}"),
            "hint": r#"{"ask":"counters"}"#,
        })),
    };
    let mut answer = answer.unwrap_or_default();
    answer.push(b'\n');
    Some(answer)
}

fn answer_http(bytes: &[u8], is_full: bool, paths: &mut PathsCache) -> Option<Vec<u8>> {
    Some(match http::wanted(bytes, is_full)? {
        Wanted::Metrics { head } => {
            http::metrics(&prometheus::page(&devices(paths.readings(), false)), head)
        }
        Wanted::Health { head } => http::health(paths.readings(), head),
        Wanted::Refused(refusal) => http::refused(refusal),
    })
}

/// A connection to a client, with one variant for each protocol.
enum Stream {
    Control(UnixStream),
    Http(TcpStream),
}

impl Stream {
    fn is_http(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Control(stream) => stream.set_nonblocking(true),
            Self::Http(stream) => stream.set_nonblocking(true),
        }
    }

    fn end_sending(&self) -> io::Result<()> {
        match self {
            Self::Control(stream) => stream.shutdown(Shutdown::Write),
            Self::Http(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Control(stream) => stream.as_fd(),
            Self::Http(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            // Refuse descriptors from clients: they are never needed, and closing one may block.
            Self::Control(stream) => {
                Ok(receive_without_files(stream, &mut [IoSliceMut::new(buffer)])?.bytes)
            }
            Self::Http(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Control(stream) => stream.write(bytes),
            Self::Http(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maximum length of a request in bytes.
pub const ASK_BYTES_MAX: usize = 8 << 10;
/// Maximum number of bytes read after a request; a request with all cookies of a browser is much shorter.
const DRAINED_BYTES_MAX: usize = 1 << 20;
