//! Two hosts connected by a veth pair. On host b, Grosso runs between its end of the pair and the host's TAP.
//!
//! ```text
//!  host a                      host b
//!  a0 (veth) ---------------- e0   grosso   b0 (TAP)
//!  10.9.0.1, fd09::1                        10.9.0.2, fd09::2
//! ```

#![allow(dead_code, reason = "every test file uses its own part")]

use std::{
    fs::DirEntry,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::Duration,
};

use grosso_sys::{
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};
use rustix::process::{Pid, Signal, kill_process};

/// The hosts' IPv4 and IPv6 addresses.
pub(crate) const A: [IpAddr; 2] = addresses(1);
pub(crate) const B: [IpAddr; 2] = addresses(2);

const fn addresses(host: u8) -> [IpAddr; 2] {
    [
        IpAddr::V4(Ipv4Addr::new(10, 9, 0, host)),
        IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, host as u16)),
    ]
}

/// Time without received data after which the test fails instead of hanging.
pub(crate) const STALLED: Duration = Duration::from_secs(60);

/// Two hosts, and a directory for the program's files.
pub(crate) struct Hosts {
    pub(crate) a: NetworkNamespace,
    pub(crate) b: NetworkNamespace,
    pub(crate) folder: tempfile::TempDir,
}

/// Parses the name of an interface.
pub(crate) fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name).unwrap()
}

/// Prints that a test is skipped and why; fails if the environment forbids skipping.
pub(crate) fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {why}");
}

/// Creates network namespaces; `None` if the caller cannot create them, or cannot create TUN and TAP devices in them.
pub(crate) fn namespaces<const COUNT: usize>() -> Option<[NetworkNamespace; COUNT]> {
    if !Path::new("/dev/net/tun").exists() {
        skip("no /dev/net/tun");
        return None;
    }
    let made: io::Result<Vec<_>> = (0..COUNT).map(|_| NetworkNamespace::new()).collect();
    match made {
        Ok(networks) => networks.try_into().ok(),
        Err(error) => {
            skip(&format!("cannot create a private network namespace: {error}"));
            None
        }
    }
}

/// Returns a command that runs Grosso in a separate mount namespace, where every user may open the TUN device, as with
/// udev. Without udev, only root may open it. The process keeps its ID. The caller must be root.
pub(crate) fn program_with_open_tun() -> Command {
    let script = "mount -t tmpfs -o mode=755 tmpfs /dev/net && \
                  mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_grosso")]);
    command
}

/// Repeats the check until it succeeds. The limit is generous, because the duration depends on the scheduler.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition was never met");
}

impl Hosts {
    /// Creates the hosts and their wire; `None` if the caller cannot create them.
    pub(crate) fn new() -> Option<Self> {
        let [a, b] = namespaces()?;
        let hosts = Self { a, b, folder: tempfile::tempdir().unwrap() };
        hosts.add_wire("a0", "e0");
        hosts.a.run(|| set_up("a0", A)).unwrap().unwrap();
        Some(hosts)
    }

    /// Creates a wire from the first host to an interface of the second.
    pub(crate) fn add_wire(&self, near: &str, far: &str) {
        let lay = || -> io::Result<()> {
            // On the interface that Grosso attaches to, the host's IP stack must not answer ARP requests for its TAP's
            // address.
            std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1")?;
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
            let host = LinkChange::new().namespace(self.a.as_fd());
            Netlink::new()?.add_veth((&name(far), LinkChange::new()), (&name(near), host))?;
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0")?;
            Control::new()?.set_up(&name(far), true)
        };
        self.b.run(lay).unwrap().unwrap();
        self.a.run(|| Control::new()?.set_up(&name(near), true)).unwrap().unwrap();
    }

    /// Configures the addresses on the second host's device.
    pub(crate) fn address(&self, device: &str) {
        self.b.run(|| set_up(device, B)).unwrap().unwrap();
    }

    /// Removes an interface from the second host.
    pub(crate) fn remove(&self, interface: &str) {
        let remove = || Netlink::new()?.delete_link(Control::new()?.index(&name(interface))?);
        self.b.run(remove).unwrap().unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Returns a command that runs Grosso on the second host; `line` is split at spaces.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.on_second(Command::new(env!("CARGO_BIN_EXE_grosso")), line)
    }

    /// Returns a command that runs Grosso on the second host, where every user may open the TUN device.
    pub(crate) fn command_with_open_tun(&self, line: &str) -> Command {
        self.on_second(program_with_open_tun(), line)
    }

    fn on_second(&self, mut command: Command, line: &str) -> Command {
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        command.env("RUNTIME_DIRECTORY", self.folder.path()).env_remove("NOTIFY_SOCKET");
        self.b.host(&mut command).unwrap();
        command
    }

    /// Starts the program, and waits until it reports a running path.
    pub(crate) fn start(&self, line: &str) -> Running {
        let running = Running::spawn(&mut self.command(line));
        running.wait_for_line("<->");
        running
    }

    /// Runs the program until it exits.
    pub(crate) fn run(&self, line: &str) -> Ended {
        Running::spawn(&mut self.command(line)).end()
    }
}

pub(crate) fn set_up(interface: &str, addresses: [IpAddr; 2]) -> io::Result<()> {
    let (netlink, control, interface) = (Netlink::new()?, Control::new()?, name(interface));
    // Without this, addresses are tentative and cannot be bound to until duplicate address detection ends.
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/accept_dad"), "0")?;
    control.set_up(&interface, true)?;
    let index = control.index(&interface)?;
    netlink.add_address(index, addresses[0], 24)?;
    netlink.add_address(index, addresses[1], 64)
}

/// A running program.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    stdout: Option<JoinHandle<String>>,
}

/// Result of a program that has exited.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut stdout = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, lines, stdout: Some(stdout) }
    }

    /// Waits for a line of output that contains `text`.
    pub(crate) fn wait_for_line(&self, text: &str) -> String {
        self.wait_for_line_and_earlier(text).1
    }

    /// Waits for a line of output that contains `text`, and also returns the lines before it.
    pub(crate) fn wait_for_line_and_earlier(&self, text: &str) -> (Vec<String>, String) {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(STALLED) {
                Ok(line) if line.contains(text) => return (seen, line),
                Ok(line) => seen.push(line),
                Err(error) => panic!("never printed {text:?} ({error}), but {seen:#?}"),
            }
        }
    }

    /// Returns whether a line of output since the last call contains `text`.
    pub(crate) fn has_line(&self, text: &str) -> bool {
        self.lines.try_iter().any(|line| line.contains(text))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Stops all threads of the program, and waits until they have stopped: the thread that takes the signal may wait
    /// for a CPU while others continue.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |task: io::Result<DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.unwrap().contains(") T ")
        };
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        until(|| tasks().all(is_stopped));
    }

    /// Sends the signal, and waits until the program has exited.
    pub(crate) fn stop(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.end()
    }

    /// Waits until the program has exited.
    pub(crate) fn end(mut self) -> Ended {
        let code = self.child.wait().unwrap().code();
        let stdout = self.stdout.take().unwrap().join().unwrap();
        Ended { code, stdout, stderr: self.lines.iter().collect::<Vec<_>>().join("\n") }
    }

    /// Returns the threads of the paths: names and IDs.
    pub(crate) fn threads(&self) -> Vec<(String, String)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let mut threads: Vec<_> = tasks
            .filter_map(|task| {
                let path = task.ok()?.path();
                let name = std::fs::read_to_string(path.join("comm")).ok()?;
                Some((name.trim().to_owned(), path.file_name()?.to_str()?.to_owned()))
            })
            .filter(|(name, _)| name.contains('/'))
            .collect();
        threads.sort();
        threads
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test must not leave a process running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a connection between two hosts, from the first address to the second. Returns the near socket first.
pub(crate) fn connect(
    from: (&NetworkNamespace, IpAddr),
    to: (&NetworkNamespace, IpAddr),
) -> [TcpStream; 2] {
    let listener = to.0.run(|| TcpListener::bind((to.1, 0))).unwrap().unwrap();
    let target = SocketAddr::new(to.1, listener.local_addr().unwrap().port());
    let near = from.0.run(|| TcpStream::connect_timeout(&target, STALLED)).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    for side in [&near, &far] {
        side.set_read_timeout(Some(STALLED)).unwrap();
        side.set_write_timeout(Some(STALLED)).unwrap();
    }
    [near, far]
}

/// Sends this many bytes through a connection in both directions at once, and compares every byte.
pub(crate) fn exchange([near, far]: &[TcpStream; 2], bytes: usize) {
    thread::scope(|scope| {
        for (from, to, seed) in [(near, far, 1), (far, near, 2)] {
            scope.spawn(move || send(from, seed, bytes));
            scope.spawn(move || receive(to, seed, bytes));
        }
    });
}

pub(crate) fn send(mut stream: &TcpStream, seed: u64, bytes: usize) {
    let mut content = Content(seed);
    for _ in 0..bytes / CHUNK {
        stream.write_all(&content.next()).unwrap();
    }
}

pub(crate) fn receive(mut stream: &TcpStream, seed: u64, bytes: usize) {
    let (mut content, mut chunk) = (Content(seed), [0; CHUNK]);
    for i in 0..bytes / CHUNK {
        stream.read_exact(&mut chunk).unwrap();
        assert!(chunk == content.next(), "chunk {i} of stream {seed} differs");
    }
}

/// Generator of bytes that do not repeat (a linear congruential generator).
struct Content(u64);

impl Content {
    fn next(&mut self) -> [u8; CHUNK] {
        let mut chunk = [0; CHUNK];
        for bytes in chunk.chunks_exact_mut(4) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.copy_from_slice(&self.0.to_be_bytes()[..4]);
        }
        chunk
    }
}

/// Number of bytes that are generated and compared at a time.
pub(crate) const CHUNK: usize = 1 << 14;
