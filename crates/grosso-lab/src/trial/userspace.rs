//! Measurements of a sender in userspace: one connection, from its first byte on.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream},
    slice,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use grosso_io::{
    Port,
    impair::{Impair, Impairment},
    runner::{DataPath, RunOptions},
};
use rustix::{
    net::sockopt::{Timeout, set_socket_timeout},
    process::Pid,
};

use super::{
    Measured, SEED, Setting, TrialError,
    observe::{ObservedPath, Reading, gone, watch},
    settle, while_running,
};
use crate::{
    cpu_time::{CpuMeter, Threads},
    model::Counting,
    netns::{Hosts, STALLED, STATION},
    nic::Nic,
    traffic::{Content, Progress, Traffic, receive_streams},
    userspace::{ConnectionEnds, SenderCounts, UserSender},
};

/// A trial with a sender in userspace.
struct UserTrial<'a> {
    setting: &'a Setting,
    hosts: &'a Hosts,
    listener: TcpListener,
    content: Arc<Content>,
    /// Time at which the sender sent its first byte.
    began: Arc<OnceLock<Instant>>,
    interrupted: &'a AtomicBool,
}

/// Measures how many bytes from a sender in userspace reach a host.
///
/// # Errors
/// Fails for the same reasons as [`super::measure`].
pub(super) fn measure(
    setting: &Setting,
    mut options: RunOptions,
    counting: Counting,
    interrupted: &AtomicBool,
) -> Result<Measured, TrialError> {
    let (hosts, device, far) = Hosts::alone(&setting.layout, setting.device)?;
    let listener = hosts.listen()?;
    let [there, back] =
        [&setting.impairment, &setting.back].map(|wire| wire.clone().unwrap_or_default());
    let round_trip = there.delay.saturating_add(back.delay);
    let ends = ConnectionEnds {
        hardware: [STATION, far],
        addresses: [v4(hosts.sender_address())?, v4(hosts.receiver_address())?],
        ports: [SENDER_PORT, listener.local_addr()?.port()],
    };
    let content = Arc::new(Content::new(SEED)?);
    let sender = UserSender::new(ends, counting, round_trip, Arc::clone(&content));
    let began = sender.began();
    // Packets to a NIC may be merged; packets from the NIC must stay unchanged.
    options.right_to_left.coalesce = false;
    let trial = UserTrial { setting, hosts: &hosts, listener, content, began, interrupted };
    let host = |wire: Impairment| Impair::new(Nic::new(device, None), wire);
    match setting.traffic {
        Traffic::TcpMaerts => trial.run(host(there), Impair::new(sender, back), options),
        _ => trial.run(Impair::new(sender, there), host(back), options),
    }
}

fn v4(address: IpAddr) -> io::Result<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the userspace sender supports only IPv4",
        )),
    }
}

impl UserTrial<'_> {
    fn run<L: Port + Send, R: Port + Send>(
        &self,
        left: L,
        right: R,
        options: RunOptions,
    ) -> Result<Measured, TrialError> {
        let path = DataPath::new(left, right, options)?;
        let [_, processor, _] = self.setting.processors;
        let (measured, _) = while_running(path, processor, |path| self.observe(path))?;
        Ok(measured)
    }

    fn observe(&self, path: ObservedPath<'_>) -> Result<Measured, TrialError> {
        set_socket_timeout(&self.listener, Timeout::Recv, Some(STALLED))
            .map_err(io::Error::from)?;
        let accepted = self.listener.accept();
        let (socket, _) = accepted.map_err(TrialError::call("receiver", "accept"))?;
        self.hosts.set_up_stream(&socket)?;
        let progress = Progress::default();
        let [_, _, processor] = self.setting.processors;
        thread::scope(|scope| {
            let (announce, announced) = mpsc::channel();
            let (socket, progress) = (&socket, &progress);
            let receiver = scope.spawn(move || {
                announce.send(settle(c"receiver", processor)).ok();
                let expected = self.setting.compare.then_some(&*self.content);
                receive_streams(slice::from_ref(socket), expected, progress)
            });
            let watched = announced.recv().map_err(|_| gone()).and_then(|thread| thread);
            let watched = watched
                .map_err(TrialError::from)
                .and_then(|thread| self.watch(path, thread, progress, || receiver.is_finished()));
            let counts = self.end(path, socket);
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            received.map_err(TrialError::call("receiver", "read"))?;
            let measured = watched?;
            Ok(Measured {
                retransmits: counts.retransmits,
                timeouts: counts.timeouts,
                round_trips: Some(counts.round_trips),
                ..measured
            })
        })
    }

    /// Reads the counters until the measurement's extent is reached.
    fn watch(
        &self,
        path: ObservedPath<'_>,
        receiver: Pid,
        progress: &Progress,
        is_over: impl Fn() -> bool,
    ) -> Result<Measured, TrialError> {
        // The sender runs on the path's thread.
        let threads = Threads { sender: path.thread, path: None, receiver };
        let meter = CpuMeter::new(threads, &self.setting.processors, None)?;
        let read = || Reading::take(progress, &meter, self.hosts, Some(path));
        let is_over = || match self.interrupted.load(Ordering::Relaxed) {
            true => Err(TrialError::Interrupted),
            false => Ok(is_over()),
        };
        let [before, after] = watch(self.setting.extent, progress, read, is_over)?;
        let began = self.began.get().copied().unwrap_or(before.time);
        Ok(Measured {
            // The time starts with the first byte, because the reader gets the connection only after bytes are already
            // in flight.
            seconds: (after.time - began).as_secs_f64(),
            acknowledgements: after.tcp[1].sent - before.tcp[1].sent,
            ..after.since(&before, self.setting.traffic == Traffic::TcpMaerts)
        })
    }

    /// Stops the path, and then stops the reader once it has read everything that came through the path.
    fn end(&self, path: ObservedPath<'_>, socket: &TcpStream) -> SenderCounts {
        path.handle.stop();
        let last = path.handle.snapshot().unwrap_or_default();
        // This fails only if the connection has already ended, and then so has the reader.
        let _ = socket.shutdown(Shutdown::Read);
        let port = match self.setting.traffic {
            Traffic::TcpMaerts => last.right,
            _ => last.left,
        };
        SenderCounts::of(&port)
    }
}

/// Port of the sender, from the dynamic port range (RFC 6335 section 6).
const SENDER_PORT: u16 = 50_000;
