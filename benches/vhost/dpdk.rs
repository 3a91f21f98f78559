//! DPDK's `testpmd` as an endpoint: one port, whose worker thread polls on its own CPU.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::ends::Arrived;

/// A running `testpmd` with one port. It reads commands line by line.
pub(super) struct Tester {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Tester {
    /// Returns whether DPDK is installed.
    pub(super) fn is_there() -> bool {
        Command::new("dpdk-testpmd").arg("--version").output().is_ok()
    }

    /// Starts `testpmd` with this port, whose socket is in `folder`. If `gives` is set, it sends frames of that many
    /// bytes; otherwise it receives frames.
    pub(super) fn start(folder: &Path, port: &str, gives: Option<usize>) -> Self {
        let mut command = Command::new("stdbuf");
        // The program does not use huge pages, because few hosts have any configured. The thread that reads commands
        // sleeps.
        let processor = usize::from(gives.is_none());
        let lcores = format!("0@{},1@{processor}", 1 - processor);
        command.args(["-oL", "dpdk-testpmd", "--lcores", &lcores, "-n", "1", "--no-pci"]);
        command.args(["--no-huge", "--no-shconf", "-m", "200", "--no-telemetry", "--vdev", port]);
        command.args(["--", "-i", "--total-num-mbufs=2048", "--mbuf-size=65000"]);
        command.args(["--no-flush-rx", "--auto-start"]);
        match gives {
            Some(bytes) => {
                command.args(["--forward-mode=txonly", &format!("--txpkts={bytes}")]);
            }
            None => {
                command.arg("--forward-mode=rxonly");
            }
        }
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("testpmd");
        let input = child.stdin.take().expect("its input");
        let output = child.stdout.take().expect("its output");
        Self { child, input, lines: BufReader::new(output).lines() }
    }

    /// Returns the number of frames that arrive within `lasts`, measured from the first frame.
    pub(super) fn takes(&mut self, lasts: Duration, bytes: usize) -> Arrived {
        while self.packets() == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_millis(200));
        let (before, start) = (self.packets(), Instant::now());
        thread::sleep(lasts);
        let (after, seconds) = (self.packets(), start.elapsed().as_secs_f64());
        let frames = (after - before) as f64;
        Arrived { frames, bytes: frames * bytes as f64, seconds }
    }

    /// Returns the number of packets received.
    fn packets(&mut self) -> u64 {
        writeln!(self.input, "show port stats 0").expect("testpmd");
        loop {
            let line = self.lines.next().expect("testpmd is there").expect("a line");
            if let Some(rest) = line.trim_start().strip_prefix("RX-packets:") {
                let word = rest.split_whitespace().next().unwrap_or_default();
                return word.parse().expect("a number");
            }
        }
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
