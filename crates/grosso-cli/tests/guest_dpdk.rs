//! Machines whose driver is DPDK's, at both ends of `grosso bridge`: it polls, and is told of nothing.
//!
//! ```text
//!  testpmd (virtio_user) ---- vhost-user:a  grosso  vhost-user:b ---- testpmd (virtio_user)
//!  sends only                                                         receives only
//! ```

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use rustix::process::Signal;

use crate::network::{Running, STALLED, until};

/// A program with a driver, which obeys lines.
struct Driver {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Driver {
    /// The program at a socket in this folder, of which its driver is the machine; it does `what` with frames.
    fn start(folder: &Path, socket: &str, what: &str) -> Self {
        let mut command = Command::new("stdbuf");
        // Both threads on one processor, and no huge pages, which few machines have.
        let machine = "-oL dpdk-testpmd --lcores 0@0,1@0 -n 1 --no-pci --no-huge --no-shconf -m 80 --no-telemetry";
        command.args(machine.split(' '));
        command.args(["--vdev", &format!("net_virtio_user0,path={socket},queue_size=256"), "--"]);
        command.args(["-i", "--total-num-mbufs=16384", "--no-flush-rx", "--auto-start"]);
        command.arg(format!("--forward-mode={what}")).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let input = child.stdin.take().unwrap();
        Self { child, input, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Packets that it has received, or sent.
    fn packets(&mut self, way: &str) -> u64 {
        self.say("show port stats 0");
        loop {
            let line = self.lines.recv_timeout(STALLED).unwrap();
            let count = line.trim_start().strip_prefix(way).and_then(|rest| {
                rest.strip_prefix("-packets:")?.split_whitespace().next()?.parse().ok()
            });
            if let Some(count) = count {
                return count;
            }
        }
    }

    fn end(mut self) {
        self.say("stop");
        self.say("quit");
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn dpdk_loses_nothing_that_a_path_took_from_it() {
    for program in ["stdbuf", "dpdk-testpmd"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("skipped: no {program}");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.args(["bridge", "vhost-user:a", "vhost-user:b"]).current_dir(folder.path());
    command.env("RUNTIME_DIRECTORY", folder.path()).env_remove("NOTIFY_SOCKET");
    let bridge = Running::spawn(&mut command);
    bridge.said("<->");
    let mut receiver = Driver::start(folder.path(), "b", "rxonly");
    assert_eq!(receiver.packets("RX"), 0);
    let mut sender = Driver::start(folder.path(), "a", "txonly");
    until(|| sender.packets("TX") > 20_000);
    sender.say("stop");
    let sent = sender.packets("TX");
    until(|| receiver.packets("RX") == sent);
    sender.end();
    // Another machine takes its place.
    let mut sender = Driver::start(folder.path(), "a", "txonly");
    until(|| receiver.packets("RX") > sent + 10_000);
    sender.say("stop");
    sender.end();
    receiver.end();
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
