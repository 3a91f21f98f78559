//! A machine that goes on in another QEMU while streams pass. What a bridge has written into its memory meanwhile is in
//! the dirty log, by which QEMU knows what to copy once more: when the machine stands still between both, every byte of
//! its memory is the same in either.
//!
//! ```text
//!  guest: in one QEMU, then in the other      host
//!  10.9.0.1 -- vhost-user:vm0.sock -- grosso  t0 (TAP) --+-- br0 10.9.0.2
//!           -- vhost-user:vm1.sock -- grosso  t1 (TAP) --+
//! ```

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::IpAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use grosso_lab::guest::Guest;
use rustix::{net::sockopt::socket_peercred, process::Signal};
use serde_json::{Value, json};

use super::{PACKED, Place, is_missing};
use crate::{
    another_kernel::traffic,
    network::{self, A, B, Running},
};

#[test]
fn a_machine_moves_to_another_place_under_streams() {
    if is_missing() {
        return;
    }
    for words in ["", PACKED] {
        let Some([host]) = network::namespaces() else { return };
        let place = Place::new(host).unwrap();
        moves(&place, words).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
}

fn moves(place: &Place, words: &str) -> io::Result<()> {
    if let Err(error) = place.ip("link add br0 type bridge") {
        network::skip(&format!("no bridge of the kernel's own: {error}"));
        return Ok(());
    }
    let bridge = |number| place.bridge(number, &format!("vhost-user:vm{number}.sock"));
    let bridges = [bridge(0)?, bridge(1)?];
    for tap in ["t0", "t1"] {
        place.ip(&format!("link set {tap} up master br0"))?;
    }
    place.host.run(|| network::set_up("br0", B))??;
    let path = |name| place.folder.path().join(name);
    let command = |number| {
        let mut machine = place.command("server=off", number, &[words]);
        let monitor = format!("unix:{},server=on,wait=off", path(MONITORS[number]).display());
        // With two, QEMU 7.2 forgets what one of them writes while a page is copied, and the guest panics; so it does
        // with its own TAP device, two of ten times.
        machine.args(["-qmp", &monitor, "-smp", "1"]);
        machine
    };
    let mut from = Guest::start(place.host.host(&mut command(0))?)?;
    from.run(traffic::SERVE)?;
    place.exchange(&mut from, 0, "before it moves")?;
    let uri = format!("unix:{}", path("way").display());
    let mut to = command(1);
    let to = Running::spawn(place.host.host(to.args(["-S", "-incoming", &uri]))?);
    // It answers once it listens for the other one.
    network::until(|| Monitor::connect(&path(MONITORS[1])).is_ok());
    let monitor = |number: usize| Monitor::connect(&path(MONITORS[number]));
    let mut way = monitor(0)?;
    from.run(KEEP_WRITING)?;
    way.copy(&uri)?;
    // All of the memory has been copied, so that what a bridge writes from here on is copied only if it is in the log.
    place.traffic("while it is copied")?;
    let moved = under_streams(place, || {
        from.run("touch /tmp/enough")?;
        way.complete()?;
        let mut to = monitor(1)?;
        assert_same(way.memory()?, to.memory()?)?;
        to.execute(&json!({"execute": "cont"})).map(drop)
    });
    drop(from);
    let moved = moved.and_then(|()| place.traffic("where it moved to"));
    let said = to.stop(Signal::KILL).stdout;
    moved.map_err(|error| io::Error::other(format!("{error}; the machine said: {said}")))?;
    for bridge in bridges {
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    }
    Ok(())
}

/// Does something while a stream each way is under way, one after the other; the last ones begin when it is done.
fn under_streams(place: &Place, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let is_done = AtomicBool::new(false);
    let streams = |pass: fn(IpAddr, &[u8]) -> io::Result<f64>| -> io::Result<usize> {
        let mut count = 0;
        loop {
            let is_last = is_done.load(Ordering::Acquire);
            pass(A[0], &place.content)?;
            count += 1;
            if is_last {
                return Ok(count);
            }
        }
    };
    thread::scope(|scope| {
        let spawn = |pass| {
            let streams = &streams;
            scope.spawn(move || place.host.run(|| streams(pass)))
        };
        let both = [spawn(traffic::give), spawn(traffic::take)];
        let worked = work();
        is_done.store(true, Ordering::Release);
        let passed = both.map(|pass| pass.join().expect("a stream ends with a result"));
        worked?;
        for count in passed {
            println!("{} streams while it moved, and behind it", count??);
        }
        Ok(())
    })
}

/// Asserts that two machines which stand still have the same memory.
fn assert_same(mut one: File, mut other: File) -> io::Result<()> {
    let mut blocks = [vec![0; 1 << 20], vec![0; 1 << 20]];
    assert_eq!(one.metadata()?.len(), MEMORY_BYTES);
    for start in (0..MEMORY_BYTES).step_by(blocks[0].len()) {
        let [ours, theirs] = &mut blocks;
        one.read_exact(ours)?;
        other.read_exact(theirs)?;
        if ours != theirs {
            let differs = ours.iter().zip(theirs).position(|(one, other)| one != other);
            let place = start + differs.unwrap_or_default() as u64;
            return Err(io::Error::other(format!("byte {place:#x} of the memory was left behind")));
        }
    }
    Ok(())
}

/// A monitor of QEMU, which speaks lines of JSON (QMP).
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(path: &Path) -> io::Result<Self> {
        let mut monitor = Self(BufReader::new(UnixStream::connect(path)?));
        monitor.0.get_ref().set_read_timeout(Some(network::STALLED))?;
        monitor.execute(&json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Begins to move the machine, and waits until all of its memory has been copied once; what it writes meanwhile
    /// keeps it here.
    fn copy(&mut self, uri: &str) -> io::Result<()> {
        self.set_parameters(COPIED_SLOWLY)?;
        self.execute(&json!({"execute": "migrate", "arguments": {"uri": uri}}))?;
        self.until(|state| match state["ram"]["dirty-sync-count"].as_u64() {
            Some(0..=2) | None => false,
            Some(_) => state["status"] == "active",
        })
        .map(drop)
    }

    /// Waits until nothing of the machine is left here.
    fn complete(&mut self) -> io::Result<()> {
        self.set_parameters(COPIED_AT_ONCE)?;
        let state = self.until(|state| state["status"] == "completed")?;
        println!("moved in {} ms, stood {} ms", state["total-time"], state["downtime"]);
        Ok(())
    }

    fn set_parameters(&mut self, [bytes, downtime_ms]: [u64; 2]) -> io::Result<()> {
        let arguments = json!({"max-bandwidth": bytes, "downtime-limit": downtime_ms});
        let command = json!({"execute": "migrate-set-parameters", "arguments": arguments});
        self.execute(&command).map(drop)
    }

    /// The state of a move that it has come to, unless it fails before.
    fn until(&mut self, is_there: impl Fn(&Value) -> bool) -> io::Result<Value> {
        let deadline = Instant::now() + network::STALLED;
        loop {
            let state = self.execute(&json!({"execute": "query-migrate"}))?;
            if is_there(&state) {
                return Ok(state);
            }
            let is_over =
                matches!(state["status"].as_str(), Some("failed" | "cancelled" | "completed"));
            if is_over || Instant::now() > deadline {
                return Err(io::Error::other(state.to_string()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The memory of its machine, which QEMU made as a file without a name.
    fn memory(&self) -> io::Result<File> {
        let process = socket_peercred(self.0.get_ref())?.pid.as_raw_nonzero();
        for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
            let path = entry?.path();
            if fs::read_link(&path)?.to_string_lossy().starts_with(MEMORY) {
                return File::open(path);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// The answer to a command, which stands between events.
    fn execute(&mut self, command: &Value) -> io::Result<Value> {
        writeln!(self.0.get_ref(), "{command}")?;
        for line in (&mut self.0).lines() {
            let line: Value = serde_json::from_str(&line?)?;
            if let Some(answer) = line.get("return") {
                return Ok(answer.clone());
            }
            if line.get("error").is_some() {
                return Err(io::Error::other(format!("{command}: {line}")));
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The script of the guest that writes to its memory until it is told that this is enough: a machine moves when little
/// of it is left to copy.
const KEEP_WRITING: &str =
    "( while [ ! -e /tmp/enough ]; do cat /content > /tmp/written; done ) > /dev/null 2>&1 &";
/// Bytes a second that are copied at most, and the milliseconds that a machine may stand still.
const COPIED_SLOWLY: [u64; 2] = [32 << 20, 1];
const COPIED_AT_ONCE: [u64; 2] = [1 << 30, 1000];
/// The name that a memory of QEMU has instead of a path, and its length as of [`Place::command`].
const MEMORY: &str = "/memfd:memory-backend-memfd";
const MEMORY_BYTES: u64 = 512 << 20;
/// Names of the sockets of the monitors.
const MONITORS: [&str; 2] = ["from.qmp", "to.qmp"];
