//! The rows of the table: pairs of endpoints, and frame lengths.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use grosso_sys::namespace::NetworkNamespace;

use crate::{
    dpdk::Tester,
    ends::{Arrived, Place, giving, heard, taking},
    path,
};

/// Names of the frames to measure, and their payload lengths in bytes. A frame is 54 bytes longer than its payload.
const FRAMES: [(&str, usize); 3] = [
    ("superframes of 60000 bytes", 60_000),
    ("packets of 1514 bytes", 1460),
    ("packets of 64 bytes", 10),
];

/// Two endpoints: the sender, and the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Grosso,
    FromDpdk,
    ToDpdk,
    Dpdk,
    Tap,
}

const PAIRS: [(Pair, &str); 5] = [
    (Pair::Grosso, "Grosso's driver to Grosso's device"),
    (Pair::FromDpdk, "DPDK's driver to Grosso's device"),
    (Pair::ToDpdk, "Grosso's driver to DPDK's device"),
    (Pair::Dpdk, "DPDK's driver to DPDK's device"),
    (Pair::Tap, "TAP, the kernel's bridge, TAP"),
];

/// Measures all rows the requested number of times, and prints the best figure and the median for each.
pub(super) fn run(words: &[String]) {
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
    let lasts = Duration::from_secs_f64(number(0).unwrap_or(3.0));
    let rounds = number(1).unwrap_or(3.0) as usize;
    let has_dpdk = Tester::is_there();
    let bridge = Bridge::new();
    for (name, payload) in FRAMES {
        let mut results = [const { Vec::new() }; PAIRS.len()];
        for _ in 0..rounds {
            for ((pair, _), results) in PAIRS.iter().zip(&mut results) {
                let needs_dpdk = !matches!(pair, Pair::Grosso | Pair::Tap);
                if needs_dpdk && !has_dpdk || *pair == Pair::Tap && bridge.is_none() {
                    continue;
                }
                results.push(measure(*pair, payload, lasts, bridge.as_ref()));
            }
        }
        for ((_, pair), results) in PAIRS.iter().zip(&mut results) {
            show(&format!("{name}: {pair}"), results);
        }
    }
    path::run(lasts);
}

fn show(name: &str, results: &mut [Arrived]) {
    results.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    let (Some(best), Some(median)) = (results.first(), results.get(results.len() / 2)) else {
        println!("{name}: not measured, for want of dpdk-testpmd, ip(8), or privileges");
        return;
    };
    let bits = |arrived: &Arrived| arrived.bytes * 8.0 / arrived.seconds / 1e9;
    println!(
        "{name}: best {:.3}, median {:.3} million frames/s; {:.2}, {:.2} Gb/s",
        rate(best),
        rate(median),
        bits(best),
        bits(median)
    );
}

/// Returns the rate in millions of frames per second.
fn rate(arrived: &Arrived) -> f64 {
    arrived.frames / arrived.seconds / 1e6
}

fn measure(pair: Pair, payload: usize, lasts: Duration, bridge: Option<&Bridge>) -> Arrived {
    let folder = std::env::temp_dir().join(format!("grosso-vhost-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let socket = folder.join("s");
    let (device, driver) = (Place::Device(socket.clone()), Place::Driver(socket));
    let bytes = payload + 54;
    match pair {
        Pair::Grosso => {
            let taker = Running::start(&mut taking(&device, lasts));
            let _giver = Running::start(&mut giving(&driver, payload));
            taker.arrived()
        }
        Pair::FromDpdk => {
            let taker = Running::start(&mut taking(&device, lasts));
            wait_for(&folder.join("s"));
            let _giver = Tester::start(&folder, DPDK_DRIVER, Some(bytes));
            taker.arrived()
        }
        Pair::ToDpdk => {
            let mut taker = Tester::start(&folder, DPDK_DEVICE, None);
            let _giver = Running::start(&mut giving(&driver, payload));
            taker.takes(lasts, bytes)
        }
        Pair::Dpdk => {
            let mut taker = Tester::start(&folder, DPDK_DEVICE, None);
            wait_for(&folder.join("s"));
            let _giver = Tester::start(&folder, DPDK_DRIVER, Some(bytes));
            taker.takes(lasts, bytes)
        }
        Pair::Tap => {
            let bridge = bridge.expect("asked before");
            let [gives, takes] = ["t0", "t1"].map(|name| Place::Tap(name.to_owned()));
            let taker = Running::start(bridge.host(&mut taking(&takes, lasts)));
            let _giver = Running::start(bridge.host(&mut giving(&gives, payload)));
            taker.arrived()
        }
    }
}

/// Waits for a file, which another program creates.
fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("a process"))
    }

    /// Waits until the process exits, and returns its report.
    fn arrived(mut self) -> Arrived {
        let output = self.0.stdout.take().expect("its output");
        heard(&std::io::read_to_string(output).expect("words"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network namespace with two TAP devices on a bridge.
struct Bridge(NetworkNamespace);

impl Bridge {
    /// Creates the bridge. Returns `None` if the user may not create it, or if `ip(8)` is missing.
    fn new() -> Option<Self> {
        let bridge = Self(NetworkNamespace::new().ok()?);
        let commands = [
            "link add br0 type bridge",
            "tuntap add dev t0 mode tap vnet_hdr",
            "tuntap add dev t1 mode tap vnet_hdr",
            "link set t0 master br0 up",
            "link set t1 master br0 up",
            "link set br0 up",
        ];
        let does = |words: &str| {
            let mut command = Command::new("ip");
            bridge
                .host(command.args(words.split(' ')))
                .status()
                .is_ok_and(|status| status.success())
        };
        commands.into_iter().all(does).then_some(bridge)
    }

    fn host<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.0.host(command).expect("a namespace")
    }
}

/// DPDK port that acts as the driver.
const DPDK_DRIVER: &str = "net_virtio_user0,path=s,queue_size=256";
/// DPDK port that acts as the device and creates the socket.
const DPDK_DEVICE: &str = "net_vhost0,iface=s,queues=1";
