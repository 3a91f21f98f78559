//! The counters of running data paths: by name, for people and for programs.
//!
//! | module | job |
//! |---|---|
//! | `table` | every counter: name, unit, sentence, series |
//! | `reading` | the counters of the devices of data paths, added up as asked |
//! | `text`, `json`, `prometheus` | their formats |
//! | `control` | the socket at which a running program is asked, both ends |
//! | `http` | the answers for Prometheus |
//! | `monitor` | rates, and the screen that shows them |
//! | `server` | one thread that answers, no matter how its clients behave |

pub mod control;
mod http;
pub mod json;
#[cfg(feature = "monitor")]
pub mod monitor;
pub mod prometheus;
pub mod reading;
pub mod server;
pub mod table;
pub mod text;

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::Duration,
};

use grosso_io::runner::Snapshot;
use grosso_sys::sandbox::Role;

use self::{
    control::ControlSocket,
    server::{ClientBounds, Server},
};
use crate::confinement;

/// The counters of one data path so far.
#[derive(Clone, Debug)]
pub struct PathReading {
    /// The path's own name.
    pub name: String,
    /// The device on its left.
    pub left: String,
    /// The device on its right.
    pub right: String,
    /// The counters of each of its queues.
    pub queues: Vec<Snapshot>,
    /// Age of the oldest of these counters if a thread of the path is stuck: it did not answer in time.
    pub stuck: Option<Duration>,
}

/// A thread that serves the counters of this program: on its control socket and, if wanted, over HTTP. It ends when
/// this is dropped.
#[derive(Debug)]
pub struct Service {
    socket: Option<ControlSocket>,
    metrics: Option<SocketAddr>,
    missing: Vec<Missing>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A listener that could not be made. The other answers all the same, and so do the data paths without either.
#[derive(Debug)]
pub enum Missing {
    /// The control socket.
    Socket(io::Error),
    /// The address of metrics.
    Metrics(SocketAddr, io::Error),
}

impl Service {
    /// Starts to answer where it can: see [`Service::missing`]. `ask` is called in the thread, at most once in ten
    /// milliseconds.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(
        metrics: Option<SocketAddr>,
        ask: impl Fn() -> Vec<PathReading> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_in(&control::folders(), ClientBounds::default(), metrics, ask)
    }

    fn start_in(
        folders: &[PathBuf],
        bounds: ClientBounds,
        metrics: Option<SocketAddr>,
        ask: impl Fn() -> Vec<PathReading> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut missing = Vec::new();
        let (socket, listener) = match ControlSocket::create(folders) {
            Ok((socket, listener)) => (Some(socket), Some(listener)),
            Err(error) => {
                missing.push(Missing::Socket(error));
                (None, None)
            }
        };
        let bind = |address| TcpListener::bind(address).map_err(|error| (address, error));
        let metrics = match metrics.map(bind).transpose() {
            Ok(metrics) => metrics,
            Err((address, error)) => {
                missing.push(Missing::Metrics(address, error));
                None
            }
        };
        let address = metrics.as_ref().map(TcpListener::local_addr).transpose()?;
        let (stop, stopped) = UnixStream::pair()?;
        let server = Server::new(listener, metrics, stopped, bounds, Box::new(ask))?;
        let thread = confinement::spawn("grosso-observe", Role::Statistics, move || server.run())?;
        let thread = Some(thread);
        Ok(Self { socket, metrics: address, missing, stop, thread })
    }

    /// The path of the control socket, which `grosso stats` opens; `None` if it could not be made.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(ControlSocket::path)
    }

    /// The listeners that could not be made.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The address at which Prometheus is served; if port zero was requested, with the port that was assigned.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The thread ends when it sees this; if it has ended, there is nothing to wake.
        let _ = self.stop.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its message has been printed.
            let _ = thread.join();
        }
    }
}

/// The counters of data paths as text, as `grosso stats` prints them; with `all`, also those that are zero.
pub fn print(paths: &[PathReading], all: bool) -> String {
    text::print(&reading::devices(paths, false), all)
}

#[cfg(test)]
mod tests;
