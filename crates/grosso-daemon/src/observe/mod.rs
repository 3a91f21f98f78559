//! The counters of running data paths, for users and for other programs.
//!
//! | module | job |
//! |---|---|
//! | `table` | every counter: name, unit, sentence, series |
//! | `reading` | the counters of the devices of data paths, added up as requested |
//! | `text`, `json`, `prometheus` | output formats |
//! | `control` | the socket that reports the counters of a running program: server and client |
//! | `http` | the responses for Prometheus |
//! | `monitor` | rates, and the screen that shows them |
//! | `server` | one thread that serves all clients, regardless of their behavior |

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

/// The counters of one data path at the time of a reading.
#[derive(Clone, Debug)]
pub struct PathReading {
    /// Name of the path.
    pub name: String,
    /// Left device.
    pub left: String,
    /// Right device.
    pub right: String,
    /// Counters of each queue.
    pub queues: Vec<Snapshot>,
    /// Age of the oldest counters if the path is stuck, that is, if one of the path's threads did not reply in time.
    pub stuck: Option<Duration>,
}

/// A thread that serves the counters of this program, on its control socket and optionally over HTTP. Dropping the
/// value ends the thread.
#[derive(Debug)]
pub struct Service {
    socket: Option<ControlSocket>,
    metrics: Option<SocketAddr>,
    missing: Vec<Missing>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A listener that the service could not create. The other listener and the data paths work without it.
#[derive(Debug)]
pub enum Missing {
    /// The control socket.
    Socket(io::Error),
    /// The address at which metrics should have been served.
    Metrics(SocketAddr, io::Error),
}

impl Service {
    /// Starts serving on every listener that could be created; see [`Service::missing`]. The thread calls `ask` at most
    /// once in ten milliseconds.
    ///
    /// # Errors
    /// Fails if the system runs out of threads or descriptors.
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

    /// Returns the path of the control socket, which `grosso stats` opens; `None` if it could not be created.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(ControlSocket::path)
    }

    /// Returns the listeners that could not be created.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Returns the address at which the counters are served to Prometheus; a requested port 0 is replaced by the
    /// assigned port.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The thread ends when it reads this byte; if it has ended already, nothing needs waking.
        let _ = self.stop.write_all(&[0]);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its message has already been printed.
            let _ = thread.join();
        }
    }
}

/// Returns the counters of data paths as text in the format of `grosso stats`; `all` includes zero counters.
pub fn print(paths: &[PathReading], all: bool) -> String {
    text::print(&reading::devices(paths, false), all)
}

#[cfg(test)]
mod tests;
