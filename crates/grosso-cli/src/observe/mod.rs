//! What running data paths count: by name, for people and for programs.
//!
//! | module | job |
//! |---|---|
//! | `table` | every counter: name, unit, sentence, series |
//! | `reading` | the counters of the devices of data paths, added up as asked |
//! | `text`, `json`, `prometheus` | how they are printed |
//! | `control` | the socket where a running program is asked, both ends |
//! | `http` | the answers for Prometheus |
//! | `monitor` | rates, and the screen that shows them |
//! | `server` | one thread that answers, however its clients behave |

pub(crate) mod control;
mod http;
pub(crate) mod json;
pub(crate) mod monitor;
pub(crate) mod prometheus;
pub(crate) mod reading;
mod server;
pub(crate) mod table;
pub(crate) mod text;

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use grosso_io::runner::Snapshot;

use self::{
    control::ControlSocket,
    server::{Bounds, Server},
};

/// What one data path did so far.
#[derive(Clone, Debug)]
pub(crate) struct PathReading {
    /// The path's own name.
    pub(crate) name: String,
    /// The device on its left.
    pub(crate) left: String,
    /// The device on its right.
    pub(crate) right: String,
    /// What each of its queues did.
    pub(crate) queues: Vec<Snapshot>,
}

/// A thread that answers who asks this program for its counters: on its control socket and, where wanted, over HTTP.
/// It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    socket: ControlSocket,
    metrics: Option<SocketAddr>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts to answer. `ask` is called in the thread, at most once in ten milliseconds.
    ///
    /// # Errors
    /// If no folder is there to put the socket in, or the address cannot be listened on.
    pub(crate) fn start(
        metrics: Option<SocketAddr>,
        ask: impl Fn() -> Vec<PathReading> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_in(&control::folders(), Bounds::default(), metrics, ask)
    }

    fn start_in(
        folders: &[PathBuf],
        bounds: Bounds,
        metrics: Option<SocketAddr>,
        ask: impl Fn() -> Vec<PathReading> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (socket, listener) = ControlSocket::create(folders)?;
        let metrics = metrics.map(TcpListener::bind).transpose()?;
        let address = metrics.as_ref().map(TcpListener::local_addr).transpose()?;
        let (stop, stopped) = UnixStream::pair()?;
        let server = Server::new(listener, metrics, stopped, bounds, Box::new(ask))?;
        let thread = std::thread::Builder::new().name("grosso-observe".to_owned());
        let thread = Some(thread.spawn(move || server.run())?);
        Ok(Self { socket, metrics: address, stop, thread })
    }

    /// Where `grosso stats` asks.
    pub(crate) fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// Where Prometheus asks; the port is the one that was given when zero was asked for.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The thread ends when it sees this; should it have ended, there is nothing to wake.
        let _ = self.stop.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its message was printed.
            let _ = thread.join();
        }
    }
}

/// The counters of data paths as text, as `grosso stats` prints them.
pub(crate) fn print(paths: &[PathReading]) -> String {
    text::print(&reading::devices(paths, false), false)
}

#[cfg(test)]
mod tests;
