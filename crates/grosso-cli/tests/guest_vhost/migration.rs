//! Migration of a VM to another QEMU while streams run. The dirty log lists the pages that a bridge wrote during the
//! migration, so that QEMU copies them again.
//!
//! A stream seldom reveals that a page is missing from the log: if the guest clears pages before it posts them, QEMU
//! copies these pages anyway. Therefore, `tests/rings/dirty.rs` tests the log directly.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::IpAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use grosso_lab::guest::Guest;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{PACKED, Place, is_missing};
use crate::{
    another_kernel::traffic,
    network::{self, A, B, Running},
};

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
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
        // With two CPUs, QEMU 7.2 loses a CPU's writes to a page that is being copied, and the guest panics. This also
        // happened in two of ten runs with QEMU's own TAP device.
        machine.args(["-qmp", &monitor, "-smp", "1"]);
        machine
    };
    let mut from = Guest::start(place.host.host(&mut command(0))?)?;
    from.run(traffic::SERVE)?;
    place.exchange(&mut from, 0, "before it moves")?;
    let uri = format!("unix:{}", path("way").display());
    let mut to = command(1);
    let to = Running::spawn(place.host.host(to.args(["-incoming", &uri]))?);
    // QEMU answers as soon as it is listening for the other instance.
    network::until(|| Monitor::connect(&path(MONITORS[1])).is_ok());
    let moved = under_streams(place, || Monitor::connect(&path(MONITORS[0]))?.migrate(&uri));
    drop(from);
    let moved = moved.and_then(|()| place.traffic("where it moved to"));
    let said = to.stop(Signal::KILL).stdout;
    moved.map_err(|error| io::Error::other(format!("{error}; the machine said: {said}")))?;
    for bridge in bridges {
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    }
    Ok(())
}

/// Runs `work` while streams run in each direction, one after the other. The last streams start after it returns.
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
        for passed in both {
            let count = passed.join().expect("a stream ends with a result")??;
            println!("{count} streams while it moved, and behind it");
        }
        worked
    })
}

/// A connection to QEMU's monitor, which exchanges lines of JSON (QMP).
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(path: &Path) -> io::Result<Self> {
        let mut monitor = Self(BufReader::new(UnixStream::connect(path)?));
        monitor.0.get_ref().set_read_timeout(Some(network::STALLED))?;
        monitor.execute(&json!({"execute": "qmp_capabilities"}))?;
        Ok(monitor)
    }

    /// Migrates the VM, and waits until this QEMU has handed over everything.
    fn migrate(&mut self, uri: &str) -> io::Result<()> {
        self.execute(&json!({"execute": "migrate", "arguments": {"uri": uri}}))?;
        loop {
            let state = self.execute(&json!({"execute": "query-migrate"}))?;
            match state["status"].as_str() {
                Some("completed") => {
                    println!("moved in {} ms, stood {} ms", state["total-time"], state["downtime"]);
                    return Ok(());
                }
                Some("failed" | "cancelled") => return Err(io::Error::other(state.to_string())),
                _ => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Returns the answer to a command, skipping events.
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

/// Names of the monitors' sockets.
const MONITORS: [&str; 2] = ["from.qmp", "to.qmp"];
