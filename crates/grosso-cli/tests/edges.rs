//! Soak test with connections over ESP and over a slow link. Meanwhile, file systems freeze, peers pass lingering
//! sockets, a debugger stops threads, other processes hold names, links change, and programs are killed.

#![cfg(target_os = "linux")]

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, TcpStream},
    os::{
        fd::AsFd,
        unix::fs::{PermissionsExt, symlink},
    },
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use grosso_sys::{
    namespace::NetworkNamespace,
    unix_socket::{UnixAddress, UnixKind, UnixSocket},
};
use rustix::{net::sockopt::set_socket_linger, process::Signal};
use serde_json::Value;

use crate::{
    common::report,
    network::{A, B, Running, connect, exchange, skip, until},
    stages::{Esp, claims, held_by_stranger},
    stuck::{FileSystem, Traced, lingering, stuck},
};

/// Environment variable with the duration of the soak in seconds. If it is not set, one round runs.
const SECONDS: &str = "GROSSO_EDGES_SECONDS";
/// Number of bytes per direction in one compared exchange.
const BYTES: usize = 1 << 18;
/// Number of exchanges on each connection after each fault.
const EXCHANGES: u64 = 2;
/// Further paths on host b: one whose thread is stopped, and one that accepts descriptors from peers.
const BESIDE: &str = "[[path]]\nname = \"core\"\nleft = \"e1\"\nright = \"tap:b1\"\n\
                      [[path]]\nname = \"plain\"\nleft = \"unix:plain\"\nright = \"tap:b2\"\n";
/// Configuration of a path that another program runs, over an interface with a slow link.
const SLOW: &str = "[[path]]\nname = \"slow\"\nleft = \"e3\"\n\
                    right = { port = \"tap:b3\", persist = true }\n";
/// The addresses of the connection over the slow link.
const SLOW_A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 1));
const SLOW_B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 2));

/// State of the soak test: the programs, the file system, and the number of faults that were injected.
struct Soak {
    esp: Esp,
    files: FileSystem,
    near: Option<Running>,
    far: Running,
    slow: Option<Running>,
    /// Number of compared exchanges per connection.
    compared: Arc<[AtomicU64; 2]>,
}

/// Runs a tool on a host.
fn tool(host: &NetworkNamespace, line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    host.host(command.args(words)).unwrap().status().is_ok_and(|status| status.success())
}

impl Soak {
    /// Starts the programs; returns `None` if a tool or a privilege is missing.
    fn new() -> Option<Self> {
        let mut esp = Esp::new(["", ""])?;
        let files = FileSystem::new(&esp.hosts.path("image"), &esp.hosts.path("frozen"))?;
        (esp.folder, esp.beside) = ("frozen/", BESIDE);
        esp.hosts.add_wire("a1", "e1");
        esp.hosts.add_wire("a3", "e3");
        if !tool(&esp.hosts.b, "tc qdisc add dev e3 root tbf rate 100mbit burst 256k limit 4000000")
        {
            skip("no tbf (tc)");
            return None;
        }
        fs::write(esp.hosts.path("slow.toml"), SLOW).unwrap();
        let (near, far) = (Some(esp.start(0)), esp.start(1));
        let slow = Some(start_slow(&esp));
        assert!(tool(&esp.hosts.a, "ip addr add 10.10.0.1/24 dev a3"));
        assert!(tool(&esp.hosts.b, "ip addr add 10.10.0.2/24 dev b3"));
        assert!(tool(&esp.hosts.b, "ip link set b3 up"));
        Some(Self { esp, files, near, far, slow, compared: Default::default() })
    }

    fn connections(&self) -> [[TcpStream; 2]; 2] {
        let (a, b) = (&self.esp.hosts.a, &self.esp.hosts.b);
        [connect((a, A[0]), (b, B[0])), connect((a, SLOW_A), (b, SLOW_B))]
    }

    /// Waits until both connections have carried more bytes.
    fn carry(&self, fault: &str) {
        let before = self.compared.each_ref().map(|count| count.load(Ordering::Relaxed));
        println!("after {fault}: {before:?} exchanges");
        until(|| {
            let mut counts = self.compared.iter().zip(before);
            counts.all(|(count, before)| count.load(Ordering::Relaxed) >= before + EXCHANGES)
        });
    }

    /// Returns the counters of the second host's program with the ESP path.
    fn stats(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        let folder = self.esp.hosts.path("1.run");
        let ended =
            Running::spawn(command.args(["stats", "--json"]).env("RUNTIME_DIRECTORY", folder))
                .end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        report(&ended.stdout)
    }

    /// Injects each fault once.
    fn round(&mut self) {
        for program in self.near.iter().chain([&self.far]).chain(&self.slow) {
            program.signal(Signal::USR1);
            program.signal(Signal::HUP);
        }
        self.carry("signals and reloads");
        self.links();
        self.freeze();
        self.pass_lingering_sockets();
        self.trace();
        self.names();
        self.kill();
    }

    fn links(&self) {
        let (a, b) = (&self.esp.hosts.a, &self.esp.hosts.b);
        for mtu in [1400, 1500] {
            for (host, device) in [(a, "a3"), (b, "b3"), (b, "e3")] {
                assert!(tool(host, &format!("ip link set {device} mtu {mtu}")));
            }
            self.carry("a change of the MTU");
        }
        for (host, device) in [(a, "a3"), (b, "e3"), (b, "e0")] {
            assert!(tool(host, &format!("ip link set {device} down")));
            assert!(tool(host, &format!("ip link set {device} up")));
            self.carry("a link flap");
        }
    }

    fn freeze(&mut self) {
        self.files.freeze();
        // The plain connection continues. The ESP connection continues only until the reserved sequence numbers are
        // used up.
        let before = self.compared[1].load(Ordering::Relaxed);
        until(|| self.compared[1].load(Ordering::Relaxed) > before);
        assert_eq!(stuck(&self.stats(), "esp"), [false; 2], "the thread continues");
        self.files.thaw();
        self.carry("a frozen file system");
    }

    fn pass_lingering_sockets(&self) {
        let control = self.esp.hosts.path(&format!("1.run/{}.sock", self.far.id()));
        let mut others = Vec::new();
        for path in [self.esp.hosts.path("plain"), control] {
            let (near, far, listener) = lingering();
            let socket = UnixSocket::new(UnixKind::Stream).unwrap();
            socket.connect(&UnixAddress::new(&path).unwrap()).unwrap();
            if socket.send_passing(b"passed", &[near.as_fd()]).is_err() {
                // The peer refuses descriptors, so only this test has the socket open.
                set_socket_linger(&near, None).unwrap();
            }
            drop(near);
            others.push((far, listener, socket));
        }
        self.carry("lingering sockets");
        assert_eq!(stuck(&self.stats(), "plain"), [false; 2]);
    }

    fn trace(&self) {
        let threads = self.far.threads();
        let core = threads.iter().find(|(name, _)| name == "core/0").unwrap();
        let Some(mut traced) = Traced::stop(&core.1) else { return };
        let stats = self.stats();
        assert_eq!((stuck(&stats, "core"), stuck(&stats, "esp")), (vec![true; 2], vec![false; 2]));
        self.carry("a traced thread");
        assert!(traced.holds(), "the thread is still stopped");
        drop(traced);
        until(|| stuck(&self.stats(), "core") == [false; 2]);
    }

    /// Creates a symbolic link and a FIFO where Grosso expects its own files.
    fn names(&self) {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("victim"), "untouched").unwrap();
        fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(at("victim"), at("s")).unwrap();
        let line = format!("bridge tap:b9 unix:{},mode=666", at("s").display());
        let ended = self.esp.hosts.run(&line);
        assert_ne!(ended.code, Some(0), "{ended:?}");
        is_untouched(&at("victim"));

        let main = self.esp.hosts.path("1.toml");
        let text = fs::read_to_string(&main).unwrap();
        let pipe = self.esp.hosts.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(&main, text.replace("frozen/1.seq", "pipe")).unwrap();
        self.far.signal(Signal::HUP);
        self.far.wait_for_line("no path was changed");
        fs::write(&main, text).unwrap();
        fs::remove_file(pipe).unwrap();
        self.carry("strangers' names");
    }

    /// Kills a program of each kind while another user holds the port locks of the ESP path.
    fn kill(&mut self) {
        let names = claims(&self.esp.hosts.a);
        self.near.take().unwrap().stop(Signal::KILL);
        until(|| claims(&self.esp.hosts.a).is_empty());
        let held = held_by_stranger(&self.esp.hosts.a, &names);
        self.near = Some(self.esp.start(0));
        drop(held);
        self.esp.use_up_numbers_ahead();
        self.slow.take().unwrap().stop(Signal::KILL);
        self.slow = Some(start_slow(&self.esp));
        self.carry("SIGKILL");
    }
}

fn start_slow(esp: &Esp) -> Running {
    let slow = Running::spawn(&mut esp.hosts.command("run -c slow.toml"));
    slow.wait_for_line("slow: ");
    slow
}

fn is_untouched(victim: &Path) {
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    assert_eq!(fs::metadata(victim).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Exchanges bytes over a connection until the soak ends.
fn keep_exchanging(connection: &[TcpStream; 2], compared: &AtomicU64, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        exchange(connection, BYTES);
        compared.fetch_add(1, Ordering::Relaxed);
    }
}

/// Guard that stops the traffic when the test ends, even if a fault fails the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn connections_outlive_every_fault_at_the_edges() {
    let Some(mut soak) = Soak::new() else { return };
    let seconds = env::var(SECONDS).map_or(0, |seconds| seconds.parse().unwrap());
    let (started, connections) = (Instant::now(), soak.connections());
    let ends = AtomicBool::new(false);
    let compared = Arc::clone(&soak.compared);
    let mut rounds = 0;
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        for (connection, compared) in connections.iter().zip(compared.iter()) {
            let ends = &ends;
            scope.spawn(move || keep_exchanging(connection, compared, ends));
        }
        loop {
            soak.round();
            rounds += 1;
            if started.elapsed() >= Duration::from_secs(seconds) {
                break;
            }
        }
    });
    let exchanges = compared.each_ref().map(|count| count.load(Ordering::Relaxed));
    let megabytes = exchanges.map(|count| count * 2 * BYTES as u64 / 1_000_000);
    println!(
        "{rounds} rounds in {} s: {} MB over ESP and {} MB over the slow link compared",
        started.elapsed().as_secs(),
        megabytes[0],
        megabytes[1]
    );
    for program in soak.near.into_iter().chain([soak.far]).chain(soak.slow) {
        let ended = program.stop(Signal::TERM);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}
