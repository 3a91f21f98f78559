//! Helpers that run the built binary, and create captures for it to read.

#![allow(dead_code, reason = "every test file uses its own part")]

mod reports;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use grosso_capture::{
    CaptureReader, CaptureWriter, Entry, Format, Interface, PacketMeta, WriterOptions,
};
use serde_json::Value;

#[allow(unused_imports, reason = "every test program uses its own part")]
pub(crate) use self::reports::{assert_obeys, obeys, report, schema};

/// A temporary directory in which the program under test runs. It is removed after the test.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

/// The result of running a command.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) bytes: Vec<u8>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    }

    /// Runs a command line, split at spaces.
    pub(crate) fn run(&self, line: &str) -> Run {
        finished(self.command(line).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a command with `input` on its standard input.
    pub(crate) fn pipe(&self, line: &str, input: &[u8]) -> Run {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // The program may exit before it has read all input.
            let _ = stdin.write_all(&input);
        });
        let run = finished(child.wait_with_output().unwrap());
        writer.join().unwrap();
        run
    }

    /// Runs a command, and asserts that it succeeds.
    pub(crate) fn ok(&self, line: &str) -> Run {
        let run = self.run(line);
        assert_eq!(run.code, 0, "{line}\n{}{}", run.stdout, run.stderr);
        run
    }
}

impl Run {
    /// Returns the report, which must match the schema that it names.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(!self.stdout.is_empty(), "no report: {}", self.stderr);
        report(&self.stdout)
    }

    /// Returns the JSON report of the failure.
    #[track_caller]
    pub(crate) fn json_error(&self) -> Value {
        report(&self.stderr)
    }
}

/// Returns the result of a finished run.
pub(crate) fn finished(output: Output) -> Run {
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        bytes: output.stdout,
    }
}

/// Timestamp in nanoseconds and bytes of a captured packet.
pub(crate) type Timed = (u64, Vec<u8>);

/// Returns a capture of these frames, 1000 nanoseconds apart.
pub(crate) fn capture(format: Format, link_type: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let packets = frames.iter().enumerate();
    let packets: Vec<Timed> =
        packets.map(|(i, frame)| (START_NS + i as u64 * 1000, frame.clone())).collect();
    capture_of(format, link_type, &packets)
}

/// Returns a capture of these packets.
pub(crate) fn capture_of(format: Format, link_type: u32, packets: &[Timed]) -> Vec<u8> {
    let mut options = WriterOptions::new(format);
    options.interface = Interface::new(link_type);
    let mut writer = CaptureWriter::new(Vec::new(), options);
    for (timestamp_ns, data) in packets {
        let meta = PacketMeta { timestamp_ns: Some(*timestamp_ns), ..PacketMeta::default() };
        writer.write_packet(&meta, data).unwrap();
    }
    writer.finish().unwrap()
}

/// Returns the packets in a capture.
pub(crate) fn packets(bytes: &[u8]) -> Vec<Timed> {
    let mut found = Vec::new();
    each(bytes, |packet| found.push((packet.timestamp_ns.unwrap(), packet.data.to_vec())));
    found
}

/// Returns the bytes of each packet in a capture.
pub(crate) fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    packets(bytes).into_iter().map(|(_, data)| data).collect()
}

pub(crate) fn each(bytes: &[u8], mut visit: impl FnMut(&grosso_capture::Packet<'_>)) {
    let mut reader = CaptureReader::new(bytes).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        if let Entry::Packet(packet) = entry {
            visit(&packet);
        }
    }
}

/// Returns whether a tool is installed; prints a message if it is not.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

/// Returns tshark's output lines for a capture.
pub(crate) fn tshark(path: &Path, filter: &str) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
        .args(["-o", "udp.check_checksum:TRUE", "-Y", filter, "-r"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// A timestamp in 2023.
pub(crate) const START_NS: u64 = 1_700_000_000_000_000_000;
pub(crate) const ETHERNET: u32 = 1;

/// Copies the repository's captures into a new directory.
pub(crate) fn copy_captures(to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    for entry in std::fs::read_dir(captures).expect("captures") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        std::fs::copy(&path, to.join(name)).expect("a copy");
    }
}
