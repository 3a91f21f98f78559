//! Congestion controls for the running kernel that count acknowledged data in different ways: three BPF programs
//! (`bpf/senders.bpf.c`), which `bpftool` registers.

use core::fmt;
use std::{
    fs::File,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use grosso_sys::path;
use schemars::JsonSchema;
use serde::Serialize;

use crate::model::Counting;

/// Weight that a sender gives to an acknowledgment in slow start and congestion avoidance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Worth {
    /// All acknowledged segments count, as in Linux.
    Bytes,
    /// At most two acknowledged segments count (RFC 3465 with L = 2), as in FreeBSD.
    Limited,
    /// One segment counts, no matter how many were acknowledged.
    One,
}

impl Worth {
    /// All values, in descending order of weight.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Limited, Self::One];

    /// Returns the corresponding setting for the sender in userspace.
    pub(super) const fn counting(self) -> Counting {
        match self {
            Self::Bytes => Counting::Bytes { limit: u32::MAX },
            Self::Limited => Counting::Bytes { limit: 2 },
            Self::One => Counting::Packets,
        }
    }

    /// Returns the name under which this sender is registered as a congestion control.
    pub(super) const fn congestion(self) -> &'static str {
        match self {
            Self::Bytes => "grosso_bytes",
            Self::Limited => "grosso_limited",
            Self::One => "grosso_acks",
        }
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Bytes => "bytes",
            Self::Limited => "L = 2",
            Self::One => "ACKs",
        })
    }
}

/// The TCP implementation that sends the transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SenderKind {
    /// The running kernel, with congestion controls loaded as BPF programs.
    Kernel,
    /// A [sender in userspace](crate::userspace), which is deterministic and needs neither root nor BPF.
    Userspace,
}

/// The registered senders. They are unregistered on drop, and also if the process is killed.
#[derive(Debug)]
pub struct Senders {
    guard: Child,
    /// A lock on the file with the kernel's type information. While it is held, no other lab uses the names of these
    /// congestion controls.
    _lock: File,
}

/// Reason why the kernel does not accept the senders.
#[derive(Debug, thiserror::Error)]
#[error("cannot load congestion controls into the kernel, so transfers use userspace TCP: {0}")]
pub struct SendersMissing(String);

impl Senders {
    /// Registers the senders. Waits while another lab is using them.
    ///
    /// # Errors
    /// Fails if the process is not root, or if `bpftool` or the kernel's type information (`CONFIG_DEBUG_INFO_BTF`) is
    /// missing. The message says which.
    pub fn register() -> Result<Self, SendersMissing> {
        let missing = |what: &str, error: io::Error| SendersMissing(format!("{what}: {error}"));
        let lock = path::kernel::open(TYPES).map_err(|error| missing(TYPES, error))?;
        lock.lock().map_err(|error| missing(TYPES, error))?;
        // An earlier lab may have been killed together with its guard, so its senders are unregistered first.
        Worth::ALL.iter().for_each(|worth| unregister(*worth));
        let object = tempfile_of(OBJECT)
            .map_err(|error| missing("temporary file for BPF programs", error))?;
        let registered = bpftool(&["struct_ops", "register", &object]);
        let _ = path::remove(Path::new(&object));
        let output = registered.map_err(|error| missing("bpftool", error))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| line.contains("rror")).unwrap_or("bpftool failed");
            return Err(SendersMissing(line.trim().into()));
        }
        let guard = guard().map_err(|error| missing("sh", error))?;
        Ok(Self { guard, _lock: lock })
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Starts a process that unregisters the senders when its input ends, that is, when this process closes it or dies.
fn guard() -> io::Result<Child> {
    let names = Worth::ALL.map(Worth::congestion).join(" ");
    let script = format!(
        "cat; for name in {names}; do bpftool struct_ops unregister name $name; done > /dev/null 2>&1"
    );
    // The process has its own process group, so that an interrupt from the terminal does not end it too early.
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).process_group(0).spawn()
}

fn unregister(worth: Worth) {
    let _ = bpftool(&["struct_ops", "unregister", "name", worth.congestion()]);
}

fn bpftool(arguments: &[&str]) -> io::Result<Output> {
    Command::new("bpftool").args(arguments).stdin(Stdio::null()).output()
}

/// Writes bytes to a temporary file whose name contains the process ID, and returns its path.
fn tempfile_of(bytes: &[u8]) -> io::Result<String> {
    let name = format!("grosso-senders-{}.o", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = path::remove(&path);
    path::create_new(&path, 0o600)?.write_all(bytes)?;
    Ok(path.display().to_string())
}

/// The running kernel's type information, to which the programs are relocated.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The compiled programs.
const OBJECT: &[u8] = include_bytes!("../../bpf/senders.bpf.o");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Arguments with which `clang` compiled the object, in the source's directory.
    const CLANG: [&str; 7] =
        ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fdebug-compilation-dir=/", "-c"];
    /// `clang` release that compiled the object; other releases may produce different bytes from the same source.
    const RELEASE: &str = "clang version 14.";

    fn skipped(why: &str) {
        println!("skipped: {why}");
        assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{why}");
    }

    #[test]
    fn the_object_is_that_of_its_source() {
        let version = Command::new("clang").arg("--version").output();
        let version = version
            .map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into());
        if !version.contains(RELEASE) {
            return skipped(&format!("no {RELEASE} to build the senders"));
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
        let made = std::env::temp_dir().join(format!("grosso-current-{}.o", std::process::id()));
        let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let status = Command::new("clang")
            .args(CLANG)
            .args([&include, "senders.bpf.c", "-o"])
            .arg(&made)
            .current_dir(folder)
            .status()
            .unwrap();
        assert!(status.success());
        let bytes = std::fs::read(&made).unwrap();
        std::fs::remove_file(&made).unwrap();
        assert!(bytes == OBJECT, "bpf/senders.bpf.o was not compiled from bpf/senders.bpf.c");
    }

    #[test]
    fn the_kernel_takes_the_senders_and_has_none_left_behind() {
        let known = || {
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
        };
        match Senders::register() {
            Err(missing) => skipped(&missing.to_string()),
            Ok(senders) => {
                let with = known();
                assert!(Worth::ALL.iter().all(|worth| with.contains(worth.congestion())), "{with}");
                drop(senders);
            }
        }
        // Another lab may be using the names by now, but not while this process holds the lock.
        let Ok(lock) = File::open(TYPES) else { return };
        lock.lock().unwrap();
        assert!(!known().contains("grosso_"), "{}", known());
    }
}
