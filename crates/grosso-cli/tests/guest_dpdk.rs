//! DPDK on both sides of `grosso bridge`: as the driver of a VM, and as the device with Grosso as the driver. DPDK
//! polls, and needs no notifications.
//!
//! ```text
//!  testpmd (virtio_user) ---- vhost-user:a  grosso  vhost-user:b ---- testpmd (virtio_user)
//!  testpmd (vhost) --- vhost-user:a,driver  grosso  vhost-user:b,driver --- testpmd (vhost)
//!  sends only                                                               receives only
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

/// Additional arguments for a port with two queue pairs.
const TWO_PAIRS: &str = ",queues=2";
/// Driver arguments with and without packed rings.
const FORMS: [&str; 2] = ["", ",packed_vq=1"];

/// A program with one port, controlled by command lines.
struct Tester {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Tester {
    /// Starts `testpmd` in forwarding mode `what` with this port, whose socket is in `folder`.
    fn start(folder: &Path, port: &str, what: &str) -> Self {
        let mut command = Command::new("stdbuf");
        // Both threads run on one CPU, and there are no huge pages, because few hosts have any.
        let machine = "-oL dpdk-testpmd --lcores 0@0,1@0 -n 1 --no-pci --no-huge --no-shconf -m 80 --no-telemetry";
        command.args(machine.split(' '));
        command.args(["--vdev", port, "--"]);
        command.args(["-i", "--total-num-mbufs=16384", "--no-flush-rx", "--auto-start"]);
        command.arg(format!("--forward-mode={what}")).current_dir(folder);
        if port.ends_with(TWO_PAIRS) {
            command.args(["--rxq=2", "--txq=2", "--txonly-multi-flow"]);
        }
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

    fn send_command(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Returns the number of packets received or sent.
    fn packets(&mut self, way: &str) -> u64 {
        self.shown("stats", &format!("{way}-packets:")).parse().unwrap()
    }

    /// Returns whether the peer is connected.
    fn is_up(&mut self) -> bool {
        self.shown("info", "Link status:") == "up"
    }

    /// Returns the word after `words` in testpmd's output about the port.
    fn shown(&mut self, of: &str, words: &str) -> String {
        self.send_command(&format!("show port {of} 0"));
        loop {
            let line = self.lines.recv_timeout(STALLED).unwrap();
            // Other words may follow the value on the same line.
            let rest = line.trim_start().strip_prefix(words);
            if let Some(word) = rest.and_then(|rest| rest.split_whitespace().next()) {
                return word.to_owned();
            }
        }
    }

    fn end(mut self) {
        self.send_command("stop");
        self.send_command("quit");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Starts a bridge between these ports; `None`, with a printed reason, if DPDK is not installed.
fn bridge(folder: &Path, ports: [&str; 2]) -> Option<Running> {
    for program in ["stdbuf", "dpdk-testpmd"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("skipped: {program} is not installed");
            return None;
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
    command.arg("bridge").args(ports).current_dir(folder);
    command.env("RUNTIME_DIRECTORY", folder).env_remove("NOTIFY_SOCKET");
    let bridge = Running::spawn(&mut command);
    bridge.wait_for_line("<->");
    Some(bridge)
}

/// Checks that all frames from a sender arrive, and then all frames from the sender that replaces it.
fn loses_nothing(folder: &Path, sends: &str, receiver: &mut Tester) {
    let before = receiver.packets("RX");
    let mut sender = Tester::start(folder, sends, "txonly");
    until(|| sender.packets("TX") > 20_000);
    sender.send_command("stop");
    let sent = sender.packets("TX");
    until(|| receiver.packets("RX") == before + sent);
    sender.end();
    let mut sender = Tester::start(folder, sends, "txonly");
    until(|| receiver.packets("RX") > before + sent + 10_000);
    sender.send_command("stop");
    sender.end();
}

#[test]
fn dpdk_loses_nothing_that_a_path_took_from_it() {
    for form in FORMS {
        let folder = tempfile::tempdir().unwrap();
        let Some(bridge) = bridge(folder.path(), ["vhost-user:a", "vhost-user:b"]) else { return };
        let [sends, receives] =
            ["a", "b"].map(|path| format!("net_virtio_user0,path={path},queue_size=256{form}"));
        let mut receiver = Tester::start(folder.path(), &receives, "rxonly");
        assert_eq!(receiver.packets("RX"), 0);
        loses_nothing(folder.path(), &sends, &mut receiver);
        receiver.end();
        let ended = bridge.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

#[test]
fn dpdk_gets_frames_on_both_of_two_pairs() {
    for form in FORMS {
        let folder = tempfile::tempdir().unwrap();
        let Some(bridge) = bridge(folder.path(), ["vhost-user:a", "vhost-user:b"]) else { return };
        let [sends, receives] = ["a", "b"]
            .map(|path| format!("net_virtio_user0,path={path},queue_size=256{form}{TWO_PAIRS}"));
        let mut receiver = Tester::start(folder.path(), &receives, "rxonly");
        assert_eq!(receiver.packets("RX"), 0);
        let mut sender = Tester::start(folder.path(), &sends, "txonly");
        until(|| sender.packets("TX") > 20_000);
        sender.send_command("stop");
        let sent = sender.packets("TX");
        until(|| receiver.packets("RX") == sent);
        let of_queues = [0, 1].map(|queue| -> u64 {
            let words = format!("rx_q{queue}_good_packets:");
            receiver.shown("xstats", &words).parse().unwrap()
        });
        assert_eq!(of_queues.iter().sum::<u64>(), sent);
        assert!(of_queues.iter().all(|count| *count > sent / 10), "{of_queues:?}");
        sender.end();
        receiver.end();
        let ended = bridge.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

/// Tests DPDK as the device on both ports. On one port it listens. On the other it connects, is killed, and is
/// restarted.
#[test]
fn dpdk_as_the_device_gets_and_gives_all_frames() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["vhost-user:a,driver,connect", "vhost-user:b,driver"];
    let Some(bridge) = bridge(folder.path(), ports) else { return };
    for _ in 0..2 {
        let receives = "net_vhost0,iface=b,queues=1,client=1";
        let mut receiver = Tester::start(folder.path(), receives, "rxonly");
        until(|| receiver.is_up());
        loses_nothing(folder.path(), "net_vhost0,iface=a,queues=1", &mut receiver);
        receiver.child.kill().unwrap();
        receiver.child.wait().unwrap();
    }
    let ended = bridge.stop(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}
