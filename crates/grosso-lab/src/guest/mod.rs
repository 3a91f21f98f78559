//! A second kernel that runs in a VM beside the host's kernel. QEMU emulates the VM, without `/dev/kvm`.
//!
//! | module | content |
//! |---|---|
//! | `guest` | the running VM, and scripts in it |
//! | [`Image`], [`Kernel`] | the kernel, and the initial file system with programs and modules |
//!
//! The guest has only memory, two serial lines and network devices. A shell waits on the second line. A script may take
//! any time, as long as it prints something now and then.

mod image;

use std::{
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use grosso_sys::scheduling::{cpu_time, threads};
pub use image::{Contents, Image, Kernel};
use rustix::process::Pid;

/// A running guest, which is killed on drop.
#[derive(Debug)]
pub struct Guest {
    machine: Child,
    script: ChildStdin,
    lines: Receiver<String>,
}

/// Returns why this machine cannot run a guest: a program or the [kernel](Kernel::find) is missing.
#[must_use]
pub fn missing(kernel: &Path, programs: &[&str]) -> Option<String> {
    let mut wanted = ["qemu-system-x86_64"].iter().chain(image::TOOLS).chain(programs);
    if let Some(program) = wanted.find(|program| image::path_of(program).is_none()) {
        return Some(format!("{program} is not installed"));
    }
    Kernel::find(kernel).err().map(|error| error.to_string())
}

impl Guest {
    /// Starts a [VM](Image::machine), and waits until its shell answers.
    ///
    /// # Errors
    ///
    /// Fails if QEMU cannot be started or the kernel does not reach its shell.
    pub fn start(machine: &mut Command) -> io::Result<Self> {
        let machine = machine.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut machine = machine.stderr(Stdio::inherit()).spawn()?;
        let (Some(script), Some(output)) = (machine.stdin.take(), machine.stdout.take()) else {
            return Err(io::Error::other("cannot open the serial line of the guest"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut guest = Self { machine, script, lines };
        guest.output_until(READY)?;
        Ok(guest)
    }

    /// Returns the total CPU time of the VM's threads, measured on the host.
    ///
    /// # Errors
    ///
    /// Fails if the VM has ended.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let threads = threads(Pid::from_child(&self.machine))?;
        threads.into_iter().map(|thread| Ok(cpu_time(thread)?.running)).sum()
    }

    /// Runs a shell script until it ends, and returns its output.
    ///
    /// # Errors
    ///
    /// Fails if the last command fails, or if the guest ends or stops printing. The error contains the output.
    pub fn run(&mut self, script: &str) -> io::Result<String> {
        write!(self.script, "(\n{script}\n) < /dev/null 2>&1\necho \"{DONE} $?\"\n")?;
        self.script.flush()?;
        let (output, status) = self.output_until(DONE)?;
        if status == "0" {
            Ok(output)
        } else {
            Err(io::Error::other(format!(
                "script failed with exit code {status}: {script}: {output}"
            )))
        }
    }

    /// Reboots the guest, and waits until the shell answers. The VM must have been started with `-action reboot=reset`.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`Guest::start`].
    pub fn reboot(&mut self) -> io::Result<()> {
        // The kernel reboots immediately, without involving any program in the guest.
        writeln!(self.script, "echo b > /proc/sysrq-trigger")?;
        self.script.flush()?;
        self.output_until(READY).map(drop)
    }

    /// Reads lines until one starts with `word`. Returns the lines before it, and the remainder of that line.
    fn output_until(&mut self, word: &str) -> io::Result<(String, String)> {
        let mut output = String::new();
        loop {
            let line = match self.lines.recv_timeout(SILENCE) {
                Ok(line) => line,
                Err(error) => return Err(self.silent(error, &output)),
            };
            if let Some(rest) = line.strip_prefix(word) {
                return Ok((output, rest.trim().to_owned()));
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    fn silent(&mut self, error: RecvTimeoutError, output: &str) -> io::Error {
        let state = match self.machine.try_wait() {
            Ok(Some(status)) => format!("ended, {status}"),
            Ok(None) => "running".to_owned(),
            Err(unknown) => unknown.to_string(),
        };
        io::Error::other(format!(
            "no further output from the guest ({error}; QEMU's state: {state}): {output}"
        ))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The VM may already have ended.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

/// Line that the shell prints when it is ready for a script.
const READY: &str = "<ready>";
/// Start of the line that marks the end of each script's output.
const DONE: &str = "<done>";

/// Time without output after which the guest counts as stuck, so that the test fails instead of hanging.
const SILENCE: Duration = Duration::from_secs(120);
