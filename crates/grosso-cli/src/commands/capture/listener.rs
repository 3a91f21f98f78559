//! pcap over IP: a TCP listener, of which every client gets the capture from its connection on.
//!
//! A client that takes its bytes too slowly loses whole packets, which are counted; it never holds up the capture.

use std::{
    cell::RefCell,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use grosso_capture::{CaptureWriter, Format, Interface, PacketMeta, WriterOptions};

use crate::error::Failure;

/// A listener and its clients.
pub(super) struct PcapServer {
    pub(super) address: SocketAddr,
    writer: CaptureWriter<SharedBytes>,
    bytes: SharedBytes,
    /// Packets among the bytes.
    batch: u64,
    batch_bytes: usize,
    clients: Arc<Clients>,
    /// Packets that went to the clients that were there.
    pub(super) packets: u64,
    /// Packets that a client had no room for.
    pub(super) full: u64,
    /// Packets for which no client was there.
    pub(super) unheard: u64,
}

/// The clients, shared with the thread that takes them.
#[derive(Default)]
struct Clients {
    senders: Mutex<Vec<SyncSender<Arc<[u8]>>>>,
    /// Clients whose bytes are not all sent.
    busy: AtomicUsize,
    /// Clients that ever came.
    came: AtomicUsize,
}

impl PcapServer {
    /// Listens at an address.
    pub(super) fn listen(address: SocketAddr, interface: Interface) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let message = format!("capture: listening at {address}: {error}");
            Failure::environment("environment.listen", message)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut options = WriterOptions::new(Format::Pcap);
        options.interface = interface;
        let bytes = SharedBytes::default();
        let mut writer = CaptureWriter::new(bytes.clone(), options);
        let name = address.to_string();
        let begun = writer.begin().and_then(|()| writer.flush());
        begun.map_err(|error| Failure::capture(&name, &error))?;
        let header: Arc<[u8]> = bytes.take().into();
        let clients = Arc::new(Clients::default());
        let theirs = Arc::clone(&clients);
        let accept = move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => theirs.admit(stream, &header),
                    // No descriptor is left, or the client broke off: neither ends the listener.
                    Err(_) => thread::sleep(ACCEPT_AGAIN),
                }
            }
        };
        let spawned = thread::Builder::new().name("pcap-listener".into()).spawn(accept);
        spawned.map_err(failed)?;
        let (batch, batch_bytes, packets, full, unheard) = (0, 0, 0, 0, 0);
        Ok(Self { address, writer, bytes, batch, batch_bytes, clients, packets, full, unheard })
    }

    pub(super) fn write(&mut self, meta: &PacketMeta, data: &[u8]) -> Result<(), Failure> {
        let meta = PacketMeta { interface: 0, ..meta.clone() };
        let written = self.writer.write_packet(&meta, data);
        written.map_err(|error| Failure::capture(&self.address.to_string(), &error))?;
        self.batch += 1;
        self.batch_bytes += data.len();
        if self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Hands what was written to every client that has room.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if self.batch == 0 {
            return Ok(());
        }
        let flushed = self.writer.flush();
        flushed.map_err(|error| Failure::capture(&self.address.to_string(), &error))?;
        let bytes: Arc<[u8]> = self.bytes.take().into();
        let batch = core::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let mut senders = self.clients.senders();
        if senders.is_empty() {
            self.unheard += batch;
            return Ok(());
        }
        self.packets += batch;
        senders.retain(|sender| match sender.try_send(Arc::clone(&bytes)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.full += batch;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
        Ok(())
    }

    /// Clients that ever came.
    pub(super) fn came(&self) -> usize {
        self.clients.came.load(Ordering::Relaxed)
    }

    /// Sends what is left, for a while.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.clients.senders().clear();
        let until = Instant::now() + LAST_BYTES;
        while self.clients.busy.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::sleep(ACCEPT_AGAIN);
        }
        Ok(())
    }
}

impl Clients {
    fn senders(&self) -> std::sync::MutexGuard<'_, Vec<SyncSender<Arc<[u8]>>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client, which a thread of its own serves; one too many is turned away.
    fn admit(self: &Arc<Self>, mut stream: TcpStream, header: &Arc<[u8]>) {
        let mut senders = self.senders();
        if senders.len() >= CLIENTS_MAX {
            return;
        }
        let (sender, receiver) = sync_channel::<Arc<[u8]>>(BATCHES_WAITING);
        let (shared, header) = (Arc::clone(self), Arc::clone(header));
        self.busy.fetch_add(1, Ordering::AcqRel);
        let serve = move || {
            let _ = stream.set_nodelay(true);
            if stream.write_all(&header).is_ok() {
                while let Ok(bytes) = receiver.recv() {
                    if stream.write_all(&bytes).is_err() {
                        break;
                    }
                }
            }
            shared.busy.fetch_sub(1, Ordering::AcqRel);
        };
        match thread::Builder::new().name("pcap-client".into()).spawn(serve) {
            Ok(_) => {
                senders.push(sender);
                self.came.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                self.busy.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// Bytes that a writer fills and the listener takes.
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

/// Clients of a listener at once.
const CLIENTS_MAX: usize = 32;
/// Bytes that go to the clients at once.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that wait for a client: 16 MB, and one packet more each.
const BATCHES_WAITING: usize = 64;
/// The time after which the listener looks again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(5);
/// The time that clients have for the last bytes.
const LAST_BYTES: Duration = Duration::from_secs(10);
