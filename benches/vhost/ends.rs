//! One endpoint of a benchmark. Each of the two endpoints is a separate process on its own CPU.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Gso, GsoSize},
};
use grosso_io::{
    Port, PortBuffer, Transmitted,
    live::{MODE, TapOptions, TapPort, UnixRole, VhostOptions, VhostPort, VhostSide},
};
use grosso_sys::{scheduling::pin, tun::Layer, wait::monotonic};
use grosso_testkit::Packet;

/// First argument of an endpoint process.
pub(super) const WORD: &str = "end";

/// Number of frames and bytes that arrived, and the elapsed time in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) frames: f64,
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

/// Port of an endpoint: its kind, and its socket or device.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Device(PathBuf),
    Driver(PathBuf),
    Tap(String),
}

impl Place {
    fn words(&self) -> [String; 2] {
        match self {
            Self::Device(path) => ["device".to_owned(), path.display().to_string()],
            Self::Driver(path) => ["driver".to_owned(), path.display().to_string()],
            Self::Tap(name) => ["tap".to_owned(), name.clone()],
        }
    }
}

/// Returns the command of an endpoint that receives frames at `place` and reports them.
pub(super) fn taking(place: &Place, lasts: Duration) -> Command {
    command("take", place, lasts.as_secs_f64().to_string())
}

/// Returns the command of an endpoint that sends frames with `payload` bytes until it is killed.
pub(super) fn giving(place: &Place, payload: usize) -> Command {
    command("give", place, payload.to_string())
}

fn command(what: &str, place: &Place, last: String) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args([WORD, what]).args(place.words()).arg(last);
    command.stdout(Stdio::piped());
    command
}

/// Parses the report of an endpoint that receives frames.
pub(super) fn heard(words: &str) -> Arrived {
    let mut numbers = words.split_whitespace().map(|word| word.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    Arrived { frames: next(), bytes: next(), seconds: next() }
}

/// Runs one endpoint as specified by these arguments.
pub(super) fn run(words: &[String]) {
    let [what, kind, place, last] = words else { panic!("four words: {words:?}") };
    let gives = what == "give";
    // The sending endpoint is on the first CPU.
    let _ = pin(None, usize::from(!gives));
    match kind.as_str() {
        "tap" => {
            let tap = TapPort::open(place, Layer::Ethernet, &TapOptions::default());
            work(tap.expect("a device"), gives, last);
        }
        side => {
            let mut options = VhostOptions::new(place);
            if side == "driver" {
                options.side = VhostSide::Driver;
                options.role = UnixRole::Connect { local: None, mode: MODE };
            }
            work(VhostPort::open(&options).expect("a port"), gives, last);
        }
    }
}

fn work(port: impl Port, gives: bool, last: &str) {
    if gives {
        give(port, last.parse().expect("a length"));
    } else {
        let Arrived { frames, bytes, seconds } = take(port, last.parse().expect("seconds"));
        println!("{frames} {bytes} {seconds}");
    }
}

/// Sends batches of frames forever, and polls its own ring in between, as a path does.
fn give(mut port: impl Port, payload: usize) {
    let (frame, meta) = frame(payload);
    let (header, rest) = frame.split_at(54);
    loop {
        look(&mut port, &mut Vec::new());
        for _ in 0..BATCH {
            if port.transmit(&[header, rest], &meta).expect("a port") == Transmitted::NoRoom {
                core::hint::spin_loop();
                break;
            }
        }
        let _ = port.flush().expect("a port");
    }
}

/// Receives frames until the measurement ends. The measurement starts a fixed time after the first frame.
fn take(mut port: impl Port, lasts: f64) -> Arrived {
    let mut buffers = Vec::with_capacity(BATCH);
    while look(&mut port, &mut buffers).0 == 0 {}
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP {
        look(&mut port, &mut buffers);
    }
    let (start, mut frames, mut bytes) = (Instant::now(), 0_u64, 0_u64);
    loop {
        let (more, length) = look(&mut port, &mut buffers);
        (frames, bytes) = (frames + more, bytes + length);
        let seconds = start.elapsed().as_secs_f64();
        if seconds >= lasts {
            return Arrived { frames: frames as f64, bytes: bytes as f64, seconds };
        }
    }
}

/// Receives a batch and returns the number of frames and their total length.
fn look(port: &mut impl Port, buffers: &mut Vec<PortBuffer>) -> (u64, u64) {
    let now_ns = u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX);
    let (mut frames, mut bytes) = (0, 0);
    let each = &mut |frame: grosso::Frame<PortBuffer>| {
        frames += 1;
        bytes += frame.buffer.as_ref().len() as u64;
        buffers.push(frame.buffer);
    };
    port.receive(now_ns, BATCH, each).expect("a port");
    port.recycle_all(buffers);
    (frames, bytes)
}

/// Returns a packet, or a superframe of 1448-byte segments if the payload is longer than that.
fn frame(payload: usize) -> (Vec<u8>, Meta) {
    let whole = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(payload);
    if payload <= 1460 {
        return (whole.build(), Meta::default());
    }
    let (bytes, start, offset) = whole.build_superframe();
    let size = GsoSize::Every(1448.try_into().expect("a size"));
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    (bytes, Meta { checksum, gso: Some(Gso { size, ..Gso::UNKNOWN }), ..Meta::default() })
}

/// Number of frames per batch, which is the same as in a poll of a path.
const BATCH: usize = 64;
/// Time after the first frame that is not measured.
const WARM_UP: Duration = Duration::from_millis(200);
