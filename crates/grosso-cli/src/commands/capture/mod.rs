//! `grosso capture`: records packets from interfaces, with metadata that tcpdump loses.

mod blocks;
mod clients;
mod device;
pub(super) mod extcap;
mod files;
mod frame;
mod list;
mod listener;
mod monitor_port;
mod names;
mod opener;
mod outputs;
mod report;
mod source;
mod unloader;

use std::{
    io::IsTerminal,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use grosso_capture::{Format, SNAPLEN_DEFAULT};
use signal_hook::consts::SIGTERM;

use self::{
    device::ANY,
    frame::Recorder,
    opener::Opener,
    outputs::Outputs,
    report::{CaptureEnd, CaptureReport},
    source::{CapturedInterface, LinkState},
    unloader::Unloader,
};
use crate::{
    arguments::{Capture, FileTurning},
    confinement,
    error::{Exit, Failure},
    form::ReportForm,
    name::Name,
    needs::Needs,
    report as reports,
    report::{OutputFacts, Place},
    session::Session,
    units,
};

/// Schemas of the two reports: one on a capture, and one that lists the interfaces.
pub(super) const FORMS: [ReportForm; 2] = [CaptureReport::FORM, list::Listing::FORM];

/// Runs the command.
pub(super) fn run(options: &Capture, session: &mut Session) -> Result<Exit, Failure> {
    if options.list {
        return list::run(session);
    }
    check(options)?;
    confinement::begin("capture", None, &mut session.talk)?;
    let terminated = Arc::new(AtomicBool::new(false));
    // Without a handler, the signal would end the program immediately, and the file would lack its last packets.
    let _ = signal_hook::flag::register(SIGTERM, Arc::clone(&terminated));
    // The interface is opened first, so that a capture that fails does not leave an empty file.
    let mut source = CapturedInterface::open(options)?;
    let turning = options.turning();
    let outputs = match turning.bytes.is_some() || turning.seconds.is_some() {
        true => options.write(),
        false => &[],
    };
    let needs_opener = source.is_any() || !outputs.is_empty();
    let opener = needs_opener.then(|| Opener::start(outputs)).transpose()?.map(Rc::new);
    source.read_facts_in(opener.clone());
    let form = match &source.devices[..] {
        [device] => device.link_type.to_string(),
        _ => "each interface with its own link type".into(),
    };
    let mut capture = Running::new(options, source, opener, session)?;
    session.talk.remark(&format!(
        "capture: {} ({form}), at most {} bytes per packet; press Ctrl-C to stop",
        capture.source.name(),
        snaplen(options)
    ));
    confinement::record()?;
    let duration = options.duration.map(Duration::from_nanos);
    let ended = capture.run(duration, session, &terminated)?;
    capture.finish(ended, options, session)
}

/// Returns the capabilities needed to capture, and to create a TAP device that receives the packets.
pub(super) fn needs(options: &Capture) -> Needs {
    let makes_tap = options.to.iter().any(|device| device.starts_with("tap:"));
    let tap: &[&str] = if makes_tap { &["net_admin"] } else { &[] };
    Needs::of(&["net_raw"]).and(Needs::of(tap))
}

/// Rejects contradictory options before anything is opened.
fn check(options: &Capture) -> Result<(), Failure> {
    let usage = |code, message: &str| Err(Failure::usage(code, format!("capture: {message}")));
    let is_standard = options.is_standard();
    if is_standard && std::io::stdout().is_terminal() {
        let message = "refusing to write a capture to the terminal; use -w FILE or a pipe";
        return Err(Failure::usage("usage.terminal", message));
    }
    let FileTurning { bytes, seconds, .. } = options.turning();
    if is_standard && (bytes.is_some() || seconds.is_some()) {
        return usage("usage.output", "-C and -G create files: pass a file name with -w");
    }
    if options.interface() == ANY && options.format() == Format::Pcap {
        return usage(
            "usage.format",
            "-i any needs pcapng, because pcap can hold only one interface",
        );
    }
    if options.interface() == ANY && !(options.listen.is_empty() && options.to.is_empty()) {
        return usage("usage.interface", "--listen and --to need one interface, not any");
    }
    let mut outputs: Vec<String> =
        options.write().iter().map(|path| path.to_string_lossy().into_owned()).collect();
    outputs.extend(options.to.iter().map(|word| format!("device {word}")));
    outputs.sort();
    if let Some(twice) = outputs.windows(2).find(|two| two[0] == two[1]) {
        return usage("usage.output", &format!("{} is given twice", twice[0]));
    }
    Ok(())
}

/// Returns the maximum number of bytes to keep of each packet.
fn snaplen(options: &Capture) -> u32 {
    if options.snaplen == 0 { SNAPLEN_DEFAULT } else { options.snaplen }
}

/// State of a running capture.
struct Running {
    source: CapturedInterface,
    recorder: Recorder,
    /// Converter from frames to wire packets, if requested.
    unloader: Option<Unloader>,
    outputs: Outputs,
    started: Instant,
}

impl Running {
    fn new(
        options: &Capture,
        source: CapturedInterface,
        opener: Option<Rc<Opener>>,
        session: &mut Session,
    ) -> Result<Self, Failure> {
        let ports = options.tunnels.ports();
        let several = [options.write().len(), options.listen.len(), options.to.len()];
        Ok(Self {
            recorder: Recorder::new(ports, several.iter().any(|outputs| *outputs > 1)),
            unloader: options.is_wire().then(|| Unloader::new(ports)),
            outputs: Outputs::open(options, &source, opener, session)?,
            source,
            started: Instant::now(),
        })
    }

    /// Captures until a limit is reached, a signal arrives, or the interface is removed.
    fn run(
        &mut self,
        duration: Option<Duration>,
        session: &mut Session,
        terminated: &AtomicBool,
    ) -> Result<CaptureEnd, Failure> {
        let mut is_down = false;
        loop {
            // Checked before the last packets are read, so that none is left behind.
            let ended = self.ended(duration, session, terminated);
            self.drain()?;
            if self.outputs.is_full() {
                return Ok(CaptureEnd::Count);
            }
            if self.outputs.is_over {
                return Ok(CaptureEnd::Files);
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            // Flush before waiting, so that packets that have already arrived are available to readers of the output.
            self.outputs.flush()?;
            let elapsed = self.started.elapsed();
            let rest = duration.map(|duration| duration.saturating_sub(elapsed));
            let received = self.source.counted.seen;
            self.source.wait(rest.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN))?;
            self.source.count();
            if self.source.counted.seen != received {
                continue;
            }
            match self.source.state() {
                LinkState::Gone => return Ok(CaptureEnd::InterfaceGone),
                LinkState::Down if !is_down => {
                    is_down = true;
                    let name = self.source.name();
                    session.talk.note(format!("{name} went down; waiting for it to come up"));
                }
                LinkState::Down => {}
                LinkState::Up => is_down = false,
            }
        }
    }

    /// Outputs the packets that are waiting: at most one full ring, and no more than the packet limit allows.
    fn drain(&mut self) -> Result<(), Failure> {
        let Self { source, recorder, unloader, outputs, .. } = self;
        for _ in 0..source.slots() {
            if outputs.is_full() || outputs.is_over {
                break;
            }
            let Some(frame) = source.receive() else { break };
            let Some(place) = source.place(&frame) else { continue };
            let device = &source.devices[place];
            let (link, before) = (device.link_type, recorder.counts);
            let (meta, data, flow) = recorder.record(&frame, link);
            if !device.wanted.wants(data, meta.original_len) {
                recorder.counts = before;
                continue;
            }
            match unloader {
                None => outputs.put(source, (place, flow), meta, data)?,
                Some(unloader) => unloader.each(meta, data, link, |meta, data| {
                    outputs.put(source, (place, flow), meta, data)
                })?,
            }
            if outputs.is_over {
                recorder.counts = before;
            }
        }
        Ok(())
    }

    /// Completes the outputs, and reports what was written.
    fn finish(
        mut self,
        ended: CaptureEnd,
        options: &Capture,
        session: &mut Session,
    ) -> Result<Exit, Failure> {
        self.source.count();
        self.outputs.finish(&self.source)?;
        let Self { source, recorder, unloader, outputs, started } = self;
        let (counts, packets, name) = (recorder.counts, outputs.packets, outputs.name());
        outputs.gone().for_each(|note| session.talk.note(note));
        let lost = source.counted.drops;
        if lost > 0 {
            session.talk.note(format!(
                "{lost} packets dropped because the ring was full; use a larger --ring"
            ));
        }
        if source.unknown > 0 {
            let packets = units::count(source.unknown, "packet");
            session.talk.note(format!(
                "{packets} skipped: the link type of their interfaces is not supported"
            ));
        }
        let is_host = !options.is_wire() && !options.write().is_empty();
        if options.format() == Format::Pcap && is_host {
            let superframes = counts.superframes_tcp + counts.superframes_udp;
            session.talk.note(format!(
                "pcap cannot store packet directions, the segment size of {} or the state of {}",
                units::count(superframes, "superframe"),
                units::count(counts.checksums_partial, "partial checksum"),
            ));
        }
        let report = CaptureReport {
            interface: source.name().into(),
            interfaces: outputs.interfaces(&source),
            output: OutputFacts {
                path: options.write().first().map(|path| Name::of(path)),
                format: options.format().to_string(),
                packets,
                bytes: outputs.bytes,
                damaged_options: 0,
                without_time: 0,
            },
            files: outputs.files(),
            outputs: outputs.reports(),
            name,
            wire: unloader.map(Unloader::counts),
            elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ended,
            drops: lost,
            unknown: source.unknown,
            counts,
        };
        let place = Place::beside(options.is_standard());
        reports::print(&report, &session.talk, place)?;
        match ended {
            CaptureEnd::Interrupted => Ok(Exit::Interrupted),
            CaptureEnd::InterfaceGone => {
                let message = format!(
                    "capture: {} was removed; {packets} packets were captured before that and are \
                     in {}",
                    source.name(),
                    outputs.name()
                );
                Err(Failure::environment("environment.device_gone", message))
            }
            _ => Ok(Exit::Yes),
        }
    }

    /// Returns the reason if the capture is to end now because of the user or the time limit.
    fn ended(
        &self,
        duration: Option<Duration>,
        session: &Session,
        terminated: &AtomicBool,
    ) -> Option<CaptureEnd> {
        if session.reading.interrupted.load(Ordering::Relaxed) {
            Some(CaptureEnd::Interrupted)
        } else if terminated.load(Ordering::Relaxed) {
            Some(CaptureEnd::Terminated)
        } else {
            let is_over = |duration| self.started.elapsed() >= duration;
            duration.is_some_and(is_over).then_some(CaptureEnd::Duration)
        }
    }
}

/// Returns the running kernel's release.
fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Maximum wait before the interface is checked again. A signal may also go unnoticed for this long.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
