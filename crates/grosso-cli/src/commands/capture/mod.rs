//! `grosso capture`: records an interface in a capture that keeps what tcpdump loses.

mod blocks;
mod frame;
mod report;
mod source;

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use grosso_io::capture::{
    CaptureError, CaptureWriter, Entry, Format, Interface, Output, SNAPLEN_DEFAULT, WriterOptions,
};
use signal_hook::consts::SIGTERM;

use self::{
    frame::Recorder,
    report::{CaptureEnd, CaptureReport},
    source::{CapturedInterface, LinkState},
};
use crate::{
    arguments::Capture,
    device,
    error::{Exit, Failure},
    input::Session,
    name::{Name, shown},
    report as reports,
    report::{OutputFacts, Place, Tool},
    units,
};

/// Runs the command.
pub(super) fn run(options: &Capture, session: &mut Session) -> Result<Exit, Failure> {
    check(options)?;
    let terminated = Arc::new(AtomicBool::new(false));
    // Without a handler the signal would end the program at once, and the file would lack its last packets.
    let _ = signal_hook::flag::register(SIGTERM, Arc::clone(&terminated));
    // The interface is opened first: a capture that cannot be made leaves no empty file.
    let source = CapturedInterface::open(options)?;
    let mut capture = Running::new(options, source, session)?;
    session.talk.remark(&format!(
        "capture: {} ({}), at most {} bytes of a packet; Ctrl-C ends it",
        capture.source.link.name,
        capture.source.link_type,
        snaplen(options)
    ));
    let limits = Limits {
        packets: options.count.unwrap_or(u64::MAX),
        duration: options.duration.map(Duration::from_nanos),
    };
    let ended = capture.run(limits, session, &terminated)?;
    capture.finish(ended, options, session)
}

/// Refuses contradictions before anything is opened.
fn check(options: &Capture) -> Result<(), Failure> {
    if options.interface == "any" {
        let message = "capture: one interface at a time: superframes of two devices differ";
        return Err(Failure::usage("usage.interface", message).hint("ip link lists them"));
    }
    if options.write.as_os_str() == "-" && std::io::stdout().is_terminal() {
        let message = "refusing to write a capture to the terminal; use -w FILE or a pipe";
        return Err(Failure::usage("usage.terminal", message));
    }
    Ok(())
}

/// Most bytes that are kept of a packet.
fn snaplen(options: &Capture) -> u32 {
    if options.snaplen == 0 { SNAPLEN_DEFAULT } else { options.snaplen }
}

/// The limits at which a capture ends by itself.
#[derive(Clone, Copy)]
struct Limits {
    packets: u64,
    duration: Option<Duration>,
}

/// A capture that is being made.
struct Running {
    source: CapturedInterface,
    recorder: Recorder,
    writer: CaptureWriter<Output>,
    /// The name in messages.
    name: String,
    snaplen: usize,
    started: Instant,
    started_ns: u64,
    /// Whether the file has room for the metadata of packets.
    is_pcapng: bool,
}

impl Running {
    fn new(
        options: &Capture,
        source: CapturedInterface,
        session: &Session,
    ) -> Result<Self, Failure> {
        let is_standard = options.write.as_os_str() == "-";
        let name = if is_standard { "standard output".into() } else { shown(&options.write) };
        let mut interface = Interface::new(source.link_type.to_pcap());
        interface.snaplen = snaplen(options);
        let mut writing = WriterOptions::new(options.format());
        writing.interface = interface;
        writing.comments.push(session.command_line.clone());
        let writer =
            CaptureWriter::create(&options.write, writing).map_err(|error| match error {
                CaptureError::Io { source, .. } => {
                    Failure::environment("environment.write", format!("{name}: {source}"))
                }
                other => Failure::capture(&name, &other),
            })?;
        let mut running = Self {
            recorder: Recorder::new(source.link_type, options.tunnels.ports()),
            source,
            writer,
            name,
            snaplen: snaplen(options) as usize,
            started: Instant::now(),
            started_ns: now_ns(),
            is_pcapng: options.format() == Format::Pcapng,
        };
        running.writer.begin().map_err(|error| Failure::capture(&running.name, &error))?;
        if running.is_pcapng {
            let raw = blocks::description(&running.source, &interface);
            running.copy(blocks::INTERFACE_DESCRIPTION, &raw, Some(interface))?;
        }
        // A reader that waits for the file to begin can start now.
        running.flush()?;
        Ok(running)
    }

    /// Captures until something ends it.
    fn run(
        &mut self,
        limits: Limits,
        session: &mut Session,
        terminated: &AtomicBool,
    ) -> Result<CaptureEnd, Failure> {
        let mut is_down = false;
        loop {
            // Asked before the last packets are taken, so that none is left behind.
            let ended = self.ended(&limits, session, terminated);
            self.drain(limits.packets)?;
            if self.writer.packets() >= limits.packets {
                return Ok(CaptureEnd::Count);
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            // Flushed before the wait, so that a reader of the output never waits for packets that are already here.
            self.flush()?;
            let elapsed = self.started.elapsed();
            let rest = limits.duration.map(|duration| duration.saturating_sub(elapsed));
            let received = self.source.seen;
            self.source.wait(rest.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN))?;
            self.source.count();
            if self.source.seen != received {
                continue;
            }
            match self.source.state() {
                LinkState::Gone => return Ok(CaptureEnd::InterfaceGone),
                LinkState::Down if !is_down => {
                    is_down = true;
                    let name = self.source.link.name;
                    session.talk.note(format!("{name} went down; waiting for it to come up"));
                }
                LinkState::Down => {}
                LinkState::Up => is_down = false,
            }
        }
    }

    /// Writes waiting packets, up to the limit on packets, and at most one ring of them.
    fn drain(&mut self, packets_max: u64) -> Result<(), Failure> {
        for _ in 0..self.source.slots() {
            if self.writer.packets() >= packets_max {
                break;
            }
            let Some(frame) = self.source.receive() else { break };
            let before = self.recorder.counts;
            let (meta, data) = self.recorder.record(&frame);
            if !self.source.wants(data, meta.original_len) {
                self.recorder.counts = before;
                continue;
            }
            let kept = &data[..data.len().min(self.snaplen)];
            let bytes = kept.len() as u64;
            let written = self.writer.write_packet(&meta, kept);
            written.map_err(|error| Failure::capture(&self.name, &error))?;
            self.recorder.counts.bytes += bytes;
        }
        Ok(())
    }

    /// Completes the file and reports its contents.
    fn finish(
        mut self,
        ended: CaptureEnd,
        options: &Capture,
        session: &mut Session,
    ) -> Result<Exit, Failure> {
        self.source.count();
        let packets = self.writer.packets();
        if self.is_pcapng {
            let raw = blocks::statistics(&self.source, packets, [self.started_ns, now_ns()]);
            self.copy(blocks::INTERFACE_STATISTICS, &raw, None)?;
        }
        let Self { source, recorder, writer, name, started, .. } = self;
        writer.finish().map_err(|error| Failure::capture(&name, &error))?;
        let counts = recorder.counts;
        if source.drops > 0 {
            let lost = source.drops;
            session.talk.note(format!("{lost} packets found no room; a larger --ring holds more"));
        }
        if options.format() == Format::Pcap {
            let superframes = counts.superframes_tcp + counts.superframes_udp;
            session.talk.note(format!(
                "pcap has no room for the segment size of {}, {} and direction",
                units::count(superframes, "superframe"),
                units::count(counts.checksums_partial, "partial checksum"),
            ));
        }
        let mut report = CaptureReport {
            schema: "grosso.capture/1",
            tool: Tool::THIS,
            interface: source.link.name.to_string(),
            output: OutputFacts {
                path: Some(Name::of(&options.write)),
                format: options.format().to_string(),
                packets,
                bytes: counts.bytes,
                damaged_options: 0,
            },
            elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ended,
            drops: source.drops,
            counts,
            warnings: Vec::new(),
        };
        let place = Place::beside(options.write.as_os_str() == "-");
        reports::print(&mut report, &mut session.talk, place)?;
        match ended {
            CaptureEnd::Interrupted => Ok(Exit::Interrupted),
            CaptureEnd::InterfaceGone => {
                let message = format!(
                    "capture: {} is gone; the {packets} packets before are in {name}",
                    source.link.name
                );
                Err(Failure::environment("environment.device_gone", message))
            }
            _ => Ok(Exit::Yes),
        }
    }

    /// The reason why the capture ends now, by the user or by its time.
    fn ended(
        &self,
        limits: &Limits,
        session: &Session,
        terminated: &AtomicBool,
    ) -> Option<CaptureEnd> {
        if session.interrupted.load(Ordering::Relaxed) {
            Some(CaptureEnd::Interrupted)
        } else if terminated.load(Ordering::Relaxed) {
            Some(CaptureEnd::Terminated)
        } else {
            let is_over = |duration| self.started.elapsed() >= duration;
            limits.duration.is_some_and(is_over).then_some(CaptureEnd::Duration)
        }
    }

    fn copy(&mut self, kind: u32, raw: &[u8], interface: Option<Interface>) -> Result<(), Failure> {
        let entry = Entry::Block(blocks::copied(kind, raw, interface));
        self.writer.copy(&entry).map_err(|error| Failure::capture(&self.name, &error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| Failure::capture(&self.name, &error))
    }
}

/// The release of the running kernel.
fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The longest time without a look at the interface, in which a signal may go unseen.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
