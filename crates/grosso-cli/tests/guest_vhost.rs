//! A virtual machine of QEMU with another kernel in it, which shares its memory with `grosso bridge`.
//!
//! ```text
//!  guest: Linux 6.1                                host
//!  eth0 (virtio) - QEMU ---- vhost-user:PATH ---- grosso  t0 (TAP)
//!  10.9.0.1, fd09::1                                      10.9.0.2, fd09::2
//! ```

use std::{io, net::TcpStream, process::Command};

use grosso_sys::namespace::NetworkNamespace;
use grosso_testkit::guest::{self, Contents, Guest, Image};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    another_kernel::traffic::{self, Rates},
    network::{self, A, B, Running},
};

/// Words of the device, of which each combination is a machine that takes, or leaves to others, something else.
const DEVICES: [&str; 6] = [
    "",
    ",mrg_rxbuf=off",
    ",guest_tso4=off,guest_tso6=off,guest_ecn=off",
    ",host_tso4=off,host_tso6=off,host_ecn=off,mrg_rxbuf=off",
    ",csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,host_tso4=off,host_tso6=off,host_ecn=off",
    ",csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,host_tso4=off,host_tso6=off,host_ecn=off,\
     mrg_rxbuf=off,indirect_desc=off,event_idx=off",
];

#[test]
fn machines_of_all_offloads_exchange_whole_streams_and_datagrams() {
    if is_missing() {
        return;
    }
    for words in DEVICES {
        let Some([host]) = network::namespaces() else { return };
        let place = Place::new(host).unwrap();
        let bridge = place.bridge("vhost-user:vm.sock").unwrap();
        let work = || {
            place.set_up()?;
            let mut guest = place.machine("server=off", words)?;
            place.exchange(&mut guest, words)
        };
        work().unwrap_or_else(|error: io::Error| panic!("{words}: {error}"));
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
    }
}

#[test]
fn a_machine_boots_again_and_a_killed_bridge_is_replaced() {
    if is_missing() {
        return;
    }
    // QEMU connects again, or waits for who connects.
    for (ours, theirs) in [
        ("vhost-user:vm.sock", "server=off,reconnect=1"),
        ("vhost-user:vm.sock,connect", "server=on"),
    ] {
        let Some([host]) = network::namespaces() else { return };
        let place = Place::new(host).unwrap();
        let work = || {
            let bridge = place.bridge(ours)?;
            place.set_up()?;
            let mut guest = place.machine(theirs, "")?;
            place.exchange(&mut guest, ours)?;
            guest.reboot()?;
            place.exchange(&mut guest, "booted again")?;
            bridge.stop(Signal::KILL);
            let bridge = place.bridge(ours)?;
            place.traffic("another bridge")?;
            assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
            io::Result::Ok(())
        };
        work().unwrap_or_else(|error| panic!("{ours}: {error}"));
    }
}

fn is_missing() -> bool {
    let why = guest::missing(PROGRAMS);
    if let Some(why) = &why {
        println!("skipped: {why}");
    }
    why.is_some()
}

/// A host, and what a machine on it boots.
struct Place {
    host: NetworkNamespace,
    folder: TempDir,
    image: Image,
    content: Vec<u8>,
}

impl Place {
    fn new(host: NetworkNamespace) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let content = traffic::content();
        let files = [("content", &content[..]), ("bin/take", traffic::TAKE.as_bytes())];
        let contents = Contents { programs: PROGRAMS, modules: &[], files: &files };
        let image = Image::new(folder.path(), &contents)?;
        Ok(Self { host, folder, image, content })
    }

    fn bridge(&self, ours: &str) -> io::Result<Running> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        command.args(["bridge", "tap:t0", ours, "--persist"]).current_dir(self.folder.path());
        command.env("RUNTIME_DIRECTORY", self.folder.path()).env_remove("NOTIFY_SOCKET");
        let bridge = Running::spawn(self.host.host(&mut command)?);
        bridge.said("<->");
        Ok(bridge)
    }

    /// Gives the host its addresses, at the first bridge's device.
    fn set_up(&self) -> io::Result<()> {
        self.host.run(|| network::set_up("t0", B))?
    }

    /// A machine whose device has these words, at a socket of which QEMU has these.
    fn machine(&self, theirs: &str, words: &str) -> io::Result<Guest> {
        // QEMU 7.2 without KVM ends with SIGSEGV when a guest uses MSI-X beside vhost-user: it sets up an irqfd.
        let device = format!("virtio-net-pci,netdev=n0,vectors=0{words}");
        let mut machine = self.image.machine_at("vhost-user,id=n0,chardev=c0", &device);
        let socket = self.folder.path().join("vm.sock");
        machine.args(["-chardev", &format!("socket,id=c0,path={},{theirs}", socket.display())]);
        machine.args(["-object", "memory-backend-memfd,id=m0,size=512M,share=on"]);
        machine.args(["-numa", "node,memdev=m0", "-action", "reboot=reset"]);
        Guest::start(self.host.host(&mut machine)?)
    }

    /// Sets the guest up, and exchanges data with it.
    fn exchange(&self, guest: &mut Guest, how: &str) -> io::Result<()> {
        guest.run("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0")?;
        guest.run("ip addr add fd09::1/64 dev eth0 nodad")?;
        guest.run(traffic::SERVE)?;
        for port in [9, 19] {
            let served = || TcpStream::connect((A[0], port)).is_ok();
            network::until(|| self.host.run(served).unwrap_or(false));
        }
        self.traffic(how)
    }

    fn traffic(&self, how: &str) -> io::Result<()> {
        for (guest, version) in A.into_iter().zip([4, 6]) {
            let Rates([to, from]) = traffic::exchange(&self.host, guest, &self.content)?;
            println!("{how}, IPv{version}: {to:.0} Mb/s to the machine, {from:.0} from it");
        }
        Ok(())
    }
}

/// Programs in the guest beside the image's own.
const PROGRAMS: &[&str] = &["ip", "socat", "cat"];
