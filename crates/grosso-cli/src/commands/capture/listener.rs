//! pcap-over-IP: a TCP listener that sends the capture to its clients. Each client receives the packets captured after
//! it connects.
//!
//! A client that reads too slowly does not delay the capture. It loses whole packets, which are counted.

use std::{
    cell::RefCell,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions};
use grosso_sys::sandbox::Role;
use rustix::net::sockopt;

use super::clients::{Clients, PcapBatch, PcapService};
use crate::{confinement, error::Failure};

/// Listener and its clients.
pub(super) struct PcapServer {
    pub(super) address: SocketAddr,
    writer: CaptureWriter<SharedBytes>,
    bytes: SharedBytes,
    /// Offset at which each packet ends in the bytes that have not been flushed yet.
    ends: Vec<usize>,
    /// Number of capture bytes that have been flushed.
    flushed: u64,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
    /// Number of packets offered to at least one client.
    pub(super) packets: u64,
    /// Number of packets that arrived while no client was connected.
    pub(super) unheard: u64,
}

impl PcapServer {
    /// Listens on an address.
    pub(super) fn listen(address: SocketAddr, interface: Interface) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let message = format!("capture: cannot listen on {address}: {error}");
            Failure::environment("environment.listen", message)
        };
        let listener = TcpListener::bind(address).and_then(prepare).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut options = WriterOptions::new(Format::Pcap);
        options.interface = interface;
        let bytes = SharedBytes::default();
        let mut writer = CaptureWriter::new(bytes.clone(), options);
        let name = address.to_string();
        let begun = writer.begin().and_then(|()| writer.flush());
        begun.map_err(|error| Failure::capture(&name, &error))?;
        let header = PcapBatch { bytes: bytes.take(), ends: Vec::new() };
        let flushed = writer.bytes();
        let clients = Arc::new(Clients::new().map_err(failed)?);
        let service = PcapService::new(listener, header, Arc::clone(&clients));
        let thread = confinement::spawn("pcap-listener", Role::Statistics, || service.run());
        let thread = Some(thread.map_err(failed)?);
        let (ends, packets, unheard) = (Vec::new(), 0, 0);
        Ok(Self { address, writer, bytes, ends, flushed, clients, thread, packets, unheard })
    }

    pub(super) fn write(&mut self, meta: &PacketMeta, data: &[u8]) -> Result<(), Failure> {
        let meta = PacketMeta { interface: 0, ..meta.clone() };
        let written = self.writer.write_packet(&meta, data);
        written.map_err(|error| Failure::capture(&self.address.to_string(), &error))?;
        let end = (self.writer.bytes() - self.flushed) as usize;
        self.ends.push(end);
        if end >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Passes the written bytes to every client with room in its queue.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let flushed = self.writer.flush();
        flushed.map_err(|error| Failure::capture(&self.address.to_string(), &error))?;
        self.flushed = self.writer.bytes();
        let ends = core::mem::take(&mut self.ends);
        let packets = ends.len() as u64;
        match self.clients.offer(PcapBatch { bytes: self.bytes.take(), ends }) {
            true => self.packets += packets,
            false => self.unheard += packets,
        }
        Ok(())
    }

    /// Returns the number of clients accepted.
    pub(super) fn came(&self) -> usize {
        self.clients.came.load(Ordering::Relaxed)
    }

    /// Returns the number of clients rejected because the maximum was already connected.
    pub(super) fn turned_away(&self) -> usize {
        self.clients.turned_away.load(Ordering::Relaxed)
    }

    /// Returns the number of clients disconnected because they did not read their data.
    pub(super) fn cut_off(&self) -> usize {
        self.clients.cut_off.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that did not fit into a client's queue.
    pub(super) fn full(&self) -> u64 {
        self.clients.full.load(Ordering::Relaxed)
    }

    /// Sends the remaining bytes to the clients that are still reading.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.clients.end();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it did, its message has already been printed.
            let _ = thread.join();
        }
        Ok(())
    }
}

/// Sets socket options that accepted connections inherit: no delay for small packets, and keepalive probes for silent
/// clients.
fn prepare(listener: TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    sockopt::set_tcp_nodelay(&listener, true)?;
    sockopt::set_socket_keepalive(&listener, true)?;
    sockopt::set_tcp_keepidle(&listener, SILENT)?;
    Ok(listener)
}

/// Byte buffer that the writer fills and the listener empties.
#[derive(Clone, Debug, Default)]
struct SharedBytes(Rc<RefCell<Vec<u8>>>);

impl SharedBytes {
    fn take(&self) -> Vec<u8> {
        core::mem::take(&mut self.0.borrow_mut())
    }
}

impl Write for SharedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Size in bytes at which a batch is sent to the clients.
const BATCH_BYTES: usize = 256 << 10;
/// Idle time after which a client is probed.
const SILENT: Duration = Duration::from_secs(60);
