//! A QEMU virtual machine with another kernel. Its network device is connected to a Unix socket of `grosso bridge`.
//!
//! ```text
//!  guest: Linux 6.1                          host
//!  eth0 (virtio) - QEMU ---- unix:PATH ---- grosso  t0 (TAP)
//!  10.9.0.1, fd09::1                                10.9.0.2, fd09::2
//! ```

#![cfg(target_os = "linux")]

use std::{io, net::TcpStream, process::Command};

use grosso_lab::guest::{Contents, Guest};
use grosso_sys::namespace::NetworkNamespace;
use rustix::process::Signal;

use crate::{
    another_kernel::{
        boot,
        traffic::{self, Rates},
    },
    network::{A, B, Running},
};

/// A way to connect a VM to a bridge.
struct Case {
    name: &'static str,
    /// Arguments for Grosso.
    ours: &'static str,
    /// Arguments for QEMU; `DIR` stands for the directory with the sockets.
    theirs: &'static str,
    /// Whether QEMU waits for a killed bridge to come back. QEMU 7.2 does not if it was the connecting side.
    outlives: bool,
}

/// Configurations from the documentation, and one in which QEMU listens.
const CASES: [Case; 3] = [
    Case {
        name: "-netdev stream, Grosso listens",
        ours: "unix:vm.sock",
        theirs: "stream,id=n0,server=off,addr.type=unix,addr.path=DIR/vm.sock",
        outlives: false,
    },
    Case {
        name: "-netdev stream, QEMU listens",
        ours: "unix:vm.sock,connect",
        theirs: "stream,id=n0,server=on,addr.type=unix,addr.path=DIR/vm.sock",
        outlives: true,
    },
    Case {
        name: "-netdev dgram",
        ours: "unix:vm.sock,dgram",
        theirs: "dgram,id=n0,local.type=unix,local.path=DIR/qemu.sock,\
                 remote.type=unix,remote.path=DIR/vm.sock",
        outlives: true,
    },
];

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
fn machines_at_sockets_exchange_whole_streams_and_datagrams() {
    if let Some(why) = boot::missing(PROGRAMS) {
        CASES.iter().for_each(|case| println!("skipped: {}: {why}", case.name));
        return;
    }
    for case in CASES {
        let Some([host]) = crate::network::namespaces() else { return };
        case.run(&host).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }
}

impl Case {
    fn run(&self, host: &NetworkNamespace) -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let content = traffic::content();
        let files = [("content", &content[..]), ("bin/take", traffic::TAKE.as_bytes())];
        let contents = Contents { programs: PROGRAMS, modules: &[], files: &files };
        let image = boot::image(folder.path(), &contents)?;
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
            command.args(["bridge", "tap:t0", self.ours, "--persist"]).current_dir(folder.path());
            command.env("RUNTIME_DIRECTORY", folder.path()).env_remove("NOTIFY_SOCKET");
            let bridge = Running::spawn(host.host(&mut command)?);
            bridge.wait_for_line("<->");
            io::Result::Ok(bridge)
        };
        let bridge = start()?;
        host.run(|| crate::network::set_up("t0", B))??;
        let netdev = self.theirs.replace("DIR", &folder.path().display().to_string());
        let mut machine = image.machine_at(&netdev, "virtio-net-pci,netdev=n0");
        let mut guest = Guest::start(host.host(&mut machine)?)?;
        guest.run("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0")?;
        guest.run("ip addr add fd09::1/64 dev eth0 nodad")?;
        guest.run(traffic::SERVE)?;
        for port in [9, 19] {
            let served = || TcpStream::connect((A[0], port)).is_ok();
            crate::network::until(|| host.run(served).unwrap_or(false));
        }
        self.exchange(host, &content, "")?;
        if !self.outlives {
            assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
            return Ok(());
        }
        bridge.stop(Signal::KILL);
        let bridge = start()?;
        self.exchange(host, &content, ", with another bridge")?;
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
        Ok(())
    }

    fn exchange(&self, host: &NetworkNamespace, content: &[u8], how: &str) -> io::Result<()> {
        for (guest, version) in A.into_iter().zip([4, 6]) {
            let Rates([to, from]) = traffic::exchange(host, guest, content)?;
            let name = self.name;
            println!("{name}{how}, IPv{version}: {to:.0} Mb/s to the machine, {from:.0} from it");
        }
        Ok(())
    }
}

/// Programs that the guest needs besides those in every image.
const PROGRAMS: &[&str] = &["ip", "socat", "cat"];
