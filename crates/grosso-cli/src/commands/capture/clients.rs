//! Clients that connect to a listener, and the thread that serves them.
//!
//! No client can delay another client or the capture, because sockets never block and each client has its own queue. If
//! [`CLIENTS_MAX`] clients are already connected, a new client replaces the oldest one that has stalled or has shut
//! down its side of the connection. If there is none, the new client is rejected. Both events are counted.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use grosso_sys::wait::Event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::acceptor::{Acceptor, CLIENTS_MAX, is_soon};

/// Batch of capture bytes that is sent to the clients.
#[derive(Debug)]
pub(super) struct PcapBatch {
    pub(super) bytes: Vec<u8>,
    /// Offset in `bytes` at which each packet ends.
    pub(super) ends: Vec<usize>,
}

/// Clients, shared by the capture and the thread that serves them.
#[derive(Debug)]
pub(super) struct Clients {
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Event that signals new batches and the end of the capture.
    wake: Event,
    is_over: AtomicBool,
    /// Number of clients accepted.
    pub(super) came: AtomicUsize,
    /// Number of clients rejected because the maximum was already connected.
    pub(super) turned_away: AtomicUsize,
    /// Number of clients disconnected because they did not read their data.
    pub(super) cut_off: AtomicUsize,
    /// Number of packets that did not fit into a client's queue.
    pub(super) full: AtomicU64,
}

/// Batches waiting to be sent to one client.
#[derive(Debug, Default)]
struct Queue(Mutex<QueuedBatches>);

#[derive(Debug, Default)]
struct QueuedBatches {
    batches: VecDeque<Arc<PcapBatch>>,
    /// Number of bytes of the first batch that the client's socket has accepted.
    sent: usize,
}

impl Clients {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            queues: Mutex::default(),
            wake: Event::new()?,
            is_over: AtomicBool::new(false),
            came: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            cut_off: AtomicUsize::new(0),
            full: AtomicU64::new(0),
        })
    }

    /// Adds a batch to the queue of every client that has room for it. Returns whether any client is connected.
    pub(super) fn offer(&self, batch: PcapBatch) -> bool {
        let batch = Arc::new(batch);
        let queues = lock(&self.queues);
        for queue in queues.iter() {
            let mut waiting = lock(&queue.0);
            if waiting.batches.len() < BATCHES_WAITING {
                waiting.batches.push_back(Arc::clone(&batch));
            } else {
                self.full.fetch_add(batch.ends.len() as u64, Ordering::Relaxed);
            }
        }
        // This fails only if the event is already raised.
        let _ = self.wake.raise();
        !queues.is_empty()
    }

    /// Tells the thread to end once the clients have received everything that is waiting.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _ = self.wake.raise();
    }
}

impl Queue {
    /// Returns the first batch, and how many of its bytes have been sent.
    fn first(&self) -> Option<(Arc<PcapBatch>, usize)> {
        let waiting = lock(&self.0);
        waiting.batches.front().map(|batch| (Arc::clone(batch), waiting.sent))
    }

    /// Records that the socket accepted `bytes` bytes of the first batch.
    fn took(&self, bytes: usize) {
        let mut waiting = lock(&self.0);
        waiting.sent += bytes;
        if waiting.batches.front().is_some_and(|batch| waiting.sent >= batch.bytes.len()) {
            waiting.batches.pop_front();
            waiting.sent = 0;
        }
    }

    fn is_empty(&self) -> bool {
        lock(&self.0).batches.is_empty()
    }

    /// Returns the number of packets that have not been sent completely.
    fn packets(&self) -> u64 {
        let waiting = lock(&self.0);
        let mut sent = waiting.sent;
        let of = waiting.batches.iter().map(|batch| {
            let sent = core::mem::take(&mut sent);
            batch.ends.iter().filter(|end| **end > sent).count() as u64
        });
        of.sum()
    }
}

/// Thread that serves the clients.
pub(super) struct PcapService {
    listener: TcpListener,
    /// File header of the capture, which is sent to every client first.
    header: Arc<PcapBatch>,
    shared: Arc<Clients>,
    acceptor: Acceptor,
    /// Clients, in the order in which they connected.
    clients: Vec<PcapClient>,
    /// Deadline for sending the last bytes; set when the capture has ended.
    end: Option<Instant>,
}

impl PcapService {
    /// Creates the service for a non-blocking listener.
    pub(super) fn new(listener: TcpListener, header: PcapBatch, shared: Arc<Clients>) -> Self {
        let (acceptor, clients) = (Acceptor::default(), Vec::new());
        Self { listener, header: Arc::new(header), shared, acceptor, clients, end: None }
    }

    /// Serves the clients until the capture has ended and each client has either received the last bytes or timed out.
    pub(super) fn run(mut self) {
        while let Ok(ready) = self.wait() {
            let now = Instant::now();
            for (client, is_ready) in self.clients.iter_mut().zip(ready) {
                if is_ready {
                    client.go_on(now);
                }
            }
            self.clients.retain(|client| !client.is_gone);
            if self.end.is_none() && self.shared.is_over.load(Ordering::Acquire) {
                self.end = Some(now + LAST_BYTES);
            }
            match self.end {
                None => self.accept(now),
                Some(end) => self.complete(now, end),
            }
            self.publish();
            if self.end.is_some() && self.clients.is_empty() {
                return;
            }
        }
        self.clients.clear();
        self.publish();
    }

    /// Sleeps until a client is ready, a batch is waiting, or a deadline passes. Returns which clients are ready.
    fn wait(&mut self) -> io::Result<Vec<bool>> {
        let now = Instant::now();
        self.clients.iter_mut().for_each(|client| client.look(now));
        let closed_until = self.acceptor.closed_until(now);
        let mut descriptors = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        descriptors.extend(self.clients.iter().map(PcapClient::wanted));
        if closed_until.is_none() && self.end.is_none() {
            descriptors.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let stalls = self.clients.iter().map(|client| client.progressed + STALLED);
        let ends = self.end.into_iter().flat_map(|end| stalls.clone().chain([end]));
        let left = ends.chain(closed_until).min().map(|end| end.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut descriptors, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty();
        let ready = descriptors[1..=self.clients.len()].iter().map(is_ready).collect();
        self.shared.wake.take()?;
        Ok(ready)
    }

    fn accept(&mut self, now: Instant) {
        let accept = || {
            let (stream, _) = self.listener.accept()?;
            stream.set_nonblocking(true).map(|()| stream)
        };
        for stream in self.acceptor.accept(now, accept) {
            if self.clients.len() >= CLIENTS_MAX {
                let replaced = self.clients.iter().position(|client| client.is_useless(now));
                let Some(replaced) = replaced else {
                    self.shared.turned_away.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let client = self.clients.remove(replaced);
                self.publish();
                self.cut_off(&client, now);
            }
            self.shared.came.fetch_add(1, Ordering::Relaxed);
            self.clients.push(PcapClient::new(stream, Arc::clone(&self.header), now));
        }
    }

    /// Closes the connections to clients that have received everything, and to clients that do not read.
    fn complete(&mut self, now: Instant, end: Instant) {
        let (over, others) = core::mem::take(&mut self.clients)
            .into_iter()
            .partition(|client| client.queue.is_empty() || client.is_stalled(now) || now >= end);
        self.clients = others;
        self.publish();
        for mut client in over {
            self.cut_off(&client, now);
            // Closing a connection with unread input sends a reset, and the client would lose the last bytes.
            let _ = client.discard();
        }
    }

    /// Counts a client that is disconnected before it has received everything, along with the packets that it loses.
    fn cut_off(&self, client: &PcapClient, now: Instant) {
        if client.is_stalled(now) || !client.queue.is_empty() {
            self.shared.cut_off.fetch_add(1, Ordering::Relaxed);
            self.shared.full.fetch_add(client.queue.packets(), Ordering::Relaxed);
        }
    }

    /// Updates the list of clients that receive batches to match the connected clients.
    fn publish(&self) {
        let here = self.clients.iter().map(|client| Arc::clone(&client.queue));
        *lock(&self.shared.queues) = here.collect();
    }
}

/// Client connected to the listener.
struct PcapClient {
    stream: TcpStream,
    queue: Arc<Queue>,
    /// Whether the client's queue was empty when it was last checked.
    is_idle: bool,
    /// Time at which the client last accepted bytes or had none waiting.
    progressed: Instant,
    /// Whether the client has shut down its side of the connection, either because it exited or because it only reads.
    has_ended: bool,
    /// Number of bytes received from the client. They are ignored.
    discarded: usize,
    is_gone: bool,
}

impl PcapClient {
    fn new(stream: TcpStream, header: Arc<PcapBatch>, now: Instant) -> Self {
        let waiting = QueuedBatches { batches: [header].into(), sent: 0 };
        Self {
            stream,
            queue: Arc::new(Queue(Mutex::new(waiting))),
            is_idle: true,
            progressed: now,
            has_ended: false,
            discarded: 0,
            is_gone: false,
        }
    }

    /// Starts the client's stall timer when its queue is no longer empty.
    fn look(&mut self, now: Instant) {
        let is_empty = self.queue.is_empty();
        if is_empty || self.is_idle {
            self.progressed = now;
        }
        self.is_idle = is_empty;
    }

    fn wanted(&self) -> PollFd<'_> {
        let reads = if self.has_ended { PollFlags::empty() } else { PollFlags::IN };
        let writes = if self.is_idle { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::from_borrowed_fd(self.stream.as_fd(), reads | writes)
    }

    /// Sends what the socket accepts, and reads what has arrived.
    fn go_on(&mut self, now: Instant) {
        for result in [self.discard(), self.send(now)] {
            self.is_gone |= result.is_err_and(|error| !is_soon(&error));
        }
    }

    fn send(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..BATCHES_WAITING {
            let Some((batch, sent)) = self.queue.first() else { break };
            let count = self.stream.write(&batch.bytes[sent..])?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.progressed = now;
            self.queue.took(count);
        }
        Ok(())
    }

    /// Reads and ignores data from the client.
    fn discard(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while !self.has_ended {
            match self.stream.read(&mut buffer)? {
                0 => self.has_ended = true,
                count => self.discarded += count,
            }
            if self.discarded > DISCARDED_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    /// Returns whether data is waiting for the client and it has not read anything for [`STALLED`].
    fn is_stalled(&self, now: Instant) -> bool {
        !self.is_idle && now.saturating_duration_since(self.progressed) >= STALLED
    }

    /// Returns whether another client may replace this one.
    fn is_useless(&self, now: Instant) -> bool {
        self.has_ended || self.is_stalled(now)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum number of batches in a client's queue. They contain at most 16 MB, plus one packet per batch.
const BATCHES_WAITING: usize = 64;
/// Maximum number of bytes that a client may send before it is disconnected.
const DISCARDED_BYTES_MAX: usize = 64 << 10;
/// Time after which a client counts as stalled if it does not read the bytes waiting for it.
const STALLED: Duration = Duration::from_secs(1);
/// Time that clients have to read the last bytes after the capture has ended.
const LAST_BYTES: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> PcapBatch {
        PcapBatch { bytes: vec![0; 30], ends: vec![10, 20, 30] }
    }

    fn client(now: Instant) -> (PcapClient, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (PcapClient::new(listener.accept().unwrap().0, Arc::new(batch()), now), other)
    }

    #[test]
    fn a_client_stalls_only_while_bytes_wait_for_it() {
        let now = Instant::now();
        let (mut client, _other) = client(now);
        client.look(now);
        assert!(!client.is_stalled(now) && client.is_stalled(now + STALLED));
        client.queue.took(30);
        client.look(now + 2 * STALLED);
        assert!(!client.is_stalled(now + 9 * STALLED), "nothing waits for it");
        lock(&client.queue.0).batches.push_back(Arc::new(batch()));
        client.look(now + 9 * STALLED);
        assert!(!client.is_stalled(now + 9 * STALLED) && client.is_stalled(now + 10 * STALLED));
    }

    #[test]
    fn packets_that_are_sent_in_part_are_lost() {
        let (client, _other) = client(Instant::now());
        lock(&client.queue.0).batches.push_back(Arc::new(batch()));
        assert_eq!(client.queue.packets(), 6);
        client.queue.took(10);
        assert_eq!(client.queue.packets(), 5);
        client.queue.took(5);
        assert_eq!(client.queue.packets(), 5);
        client.queue.took(15);
        assert_eq!(client.queue.packets(), 3);
    }
}
