//! A QEMU virtual machine that runs another kernel and shares its memory with `grosso bridge`.
//!
//! ```text
//!  guest: Linux 6.1                                host
//!  eth0 (virtio) - QEMU ---- vhost-user:PATH ---- grosso  t0 (TAP)
//!  10.9.0.1, fd09::1                                      10.9.0.2, fd09::2
//!  eth1 ...                                               t1, used later with the same addresses
//! ```

mod migration;

use std::{
    io::{self, Read},
    net::TcpStream,
    process::Command,
};

use grosso_lab::guest::{Contents, Guest, Image};
use grosso_sys::namespace::NetworkNamespace;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    another_kernel::{
        boot,
        traffic::{self, Rates},
    },
    network::{self, A, B, Running},
};

/// QEMU device arguments, each with a different combination of accepted and declined features.
const DEVICES: [&str; 10] = [
    "",
    ",mrg_rxbuf=off",
    ",guest_tso4=off,guest_tso6=off,guest_ecn=off",
    ",host_tso4=off,host_tso6=off,host_ecn=off,mrg_rxbuf=off",
    ",csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,host_tso4=off,host_tso6=off,host_ecn=off",
    ",csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,host_tso4=off,host_tso6=off,host_ecn=off,\
     mrg_rxbuf=off,indirect_desc=off,event_idx=off",
    MQ,
    PACKED,
    ",packed=on,mrg_rxbuf=off,indirect_desc=off,event_idx=off",
    ",packed=on,mq=on",
];
/// Configuration in which the bridge listens, and QEMU connects and reconnects.
const CONNECTED_BY_QEMU: (&str, &str, &str) = ("vhost-user:vm0.sock", "server=off,reconnect=1", "");
/// A device with two queue pairs, one per CPU.
const MQ: &str = ",mq=on";
/// A device with packed rings.
const PACKED: &str = ",packed=on";

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
fn machines_of_all_offloads_exchange_whole_streams_and_datagrams() {
    if is_missing() {
        return;
    }
    let Some([host]) = network::namespaces() else { return };
    let place = Place::new(host).unwrap();
    let bridges: [_; DEVICES.len()] = core::array::from_fn(|number| {
        place.bridge(number, &format!("vhost-user:vm{number}.sock")).unwrap()
    });
    let mut guest = place.machine("server=off", &DEVICES).unwrap();
    for (number, (words, bridge)) in DEVICES.into_iter().zip(bridges).enumerate() {
        let mut work = || {
            place.set_up(number)?;
            place.exchange(&mut guest, number, words)?;
            // The feature VIRTIO_F_RING_PACKED, as negotiated by the guest's driver.
            let packed =
                guest.run(&format!("cut -c35 /sys/class/net/eth{number}/device/features"))?;
            assert_eq!(packed.trim() == "1", words.starts_with(PACKED), "{words}: {packed}");
            if words.ends_with(MQ) {
                let queues = guest.run(&format!("ls /sys/class/net/eth{number}/queues"))?;
                let names: Vec<&str> = queues.split_whitespace().collect();
                assert_eq!(names, ["rx-0", "rx-1", "tx-0", "tx-1"]);
                place.host.run(|| many_flows(&place.content))??;
            }
            guest.run(&format!("ip addr flush dev eth{number}; ip link set eth{number} down"))
        };
        work().unwrap_or_else(|error: io::Error| panic!("{words}: {error}"));
        assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
        place.remove(number).unwrap();
    }
}

#[test]
#[ignore = "boots a VM: bash .ci/run guests"]
fn a_machine_boots_again_and_a_killed_bridge_is_replaced() {
    boots_again(&[CONNECTED_BY_QEMU, ("vhost-user:vm0.sock,connect", "server=on", PACKED)]);
}

mod night {
    use super::{CONNECTED_BY_QEMU, PACKED, boots_again};

    #[test]
    #[ignore = "boots VMs for minutes: .ci/night guests"]
    fn machines_boot_again_with_each_kind_of_ring_and_either_side_listening() {
        let (ours, theirs, _) = CONNECTED_BY_QEMU;
        boots_again(&[(ours, theirs, PACKED), ("vhost-user:vm0.sock,connect", "server=on", "")]);
    }
}

/// Exchanges data with a VM before and after a reboot, and while the bridge is killed and replaced. Each row consists
/// of the bridge's port, QEMU's socket options, and its device options.
fn boots_again(rows: &[(&str, &str, &str)]) {
    if is_missing() {
        return;
    }
    for &(ours, theirs, words) in rows {
        let Some([host]) = network::namespaces() else { return };
        let place = Place::new(host).unwrap();
        let work = || {
            let bridge = place.bridge(0, ours)?;
            place.set_up(0)?;
            let mut guest = place.machine(theirs, &[words])?;
            place.exchange(&mut guest, 0, ours)?;
            guest.reboot()?;
            guest.run(traffic::SERVE)?;
            place.exchange(&mut guest, 0, "booted again")?;
            let bridge = place.stream_over_kills(bridge, ours)?;
            place.traffic("another bridge")?;
            assert_eq!(bridge.stop(Signal::TERM).code, Some(0));
            io::Result::Ok(())
        };
        work().unwrap_or_else(|error| panic!("{ours}{words}: {error}"));
    }
}

/// Receives the start of the guest's stream over 16 connections, so that both queue pairs carry packets.
fn many_flows(content: &[u8]) -> io::Result<()> {
    for address in A.into_iter().cycle().take(16) {
        let mut stream = TcpStream::connect((address, 19))?;
        stream.set_read_timeout(Some(network::STALLED))?;
        let mut start = vec![0; 1 << 16];
        stream.read_exact(&mut start)?;
        assert!(content.starts_with(&start));
    }
    Ok(())
}

fn is_missing() -> bool {
    let why = boot::missing(PROGRAMS);
    if let Some(why) = &why {
        println!("skipped: {why}");
    }
    why.is_some()
}

/// A host, and the image that its VMs boot.
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
        let image = boot::image(folder.path(), &contents)?;
        Ok(Self { host, folder, image, content })
    }

    /// Starts a bridge from TAP device `number` to a VM.
    fn bridge(&self, number: usize, ours: &str) -> io::Result<Running> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grosso"));
        let tap = format!("tap:t{number}");
        command.args(["bridge", &tap, ours, "--persist"]).current_dir(self.folder.path());
        command.env("RUNTIME_DIRECTORY", self.folder.path()).env_remove("NOTIFY_SOCKET");
        let bridge = Running::spawn(self.host.host(&mut command)?);
        bridge.wait_for_line("<->");
        Ok(bridge)
    }

    /// Configures the host's addresses on device `number`.
    fn set_up(&self, number: usize) -> io::Result<()> {
        self.host.run(|| network::set_up(&format!("t{number}"), B))?
    }

    /// Removes device `number`, which a bridge left for its successor.
    fn remove(&self, number: usize) -> io::Result<()> {
        self.ip(&format!("link del t{number}"))
    }

    fn ip(&self, words: &str) -> io::Result<()> {
        let mut command = Command::new("ip");
        let status = self.host.host(command.args(words.split_whitespace()))?.status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("ip {words}: {status}")))
        }
    }

    /// Starts a VM with these devices; QEMU serves the sockets of some of them.
    fn machine(&self, theirs: &str, devices: &[&str]) -> io::Result<Guest> {
        let mut machine = self.command(theirs, 0, devices);
        let mut guest = Guest::start(self.host.host(&mut machine)?)?;
        guest.run(traffic::SERVE)?;
        Ok(guest)
    }

    /// Returns the command that starts a VM whose sockets are numbered from `first`.
    fn command(&self, theirs: &str, first: usize, devices: &[&str]) -> Command {
        let mut machine = self.image.machine();
        machine.args(["-object", "memory-backend-memfd,id=m0,size=512M,share=on"]);
        machine.args(["-numa", "node,memdev=m0", "-action", "reboot=reset", "-smp", "2"]);
        for (n, words) in devices.iter().enumerate() {
            let socket = self.folder.path().join(format!("vm{}.sock", first + n));
            let socket = format!("socket,id=c{n},path={},{theirs}", socket.display());
            let queues = 1 + usize::from(words.contains("mq=on"));
            let netdev = format!("vhost-user,id=n{n},chardev=c{n},queues={queues}");
            // Without KVM, QEMU 7.2 crashes with SIGSEGV when a guest uses MSI-X with vhost-user, because it sets up an
            // irqfd.
            let device = format!("virtio-net-pci,netdev=n{n},vectors=0{words}");
            machine.args(["-chardev", &socket, "-netdev", &netdev, "-device", &device]);
        }
        machine
    }

    /// Configures the guest's device `number`, and exchanges data through it.
    fn exchange(&self, guest: &mut Guest, number: usize, how: &str) -> io::Result<()> {
        let device = format!("eth{number}");
        guest.run(&format!("ip link set lo up; ip link set {device} up"))?;
        guest.run(&format!("ip addr add 10.9.0.1/24 dev {device}"))?;
        guest.run(&format!("ip addr add fd09::1/64 dev {device} nodad"))?;
        for port in [9, 19] {
            let served = || TcpStream::connect((A[0], port)).is_ok();
            network::until(|| self.host.run(served).unwrap_or(false));
        }
        self.traffic(how)
    }

    /// Receives a stream from the guest while the bridge is repeatedly killed and replaced. Returns the last bridge.
    fn stream_over_kills(&self, mut bridge: Running, ours: &str) -> io::Result<Running> {
        let mut stream = self.host.run(|| TcpStream::connect((A[0], 19)))??;
        stream.set_read_timeout(Some(network::STALLED))?;
        for expected in self.content.chunks(self.content.len() / 4) {
            bridge.stop(Signal::KILL);
            bridge = self.bridge(0, ours)?;
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got)?;
            assert!(got == expected, "the guest's stream differs");
        }
        Ok(bridge)
    }

    fn traffic(&self, how: &str) -> io::Result<()> {
        for (guest, version) in A.into_iter().zip([4, 6]) {
            let Rates([to, from]) = traffic::exchange(&self.host, guest, &self.content)?;
            println!("{how}, IPv{version}: {to:.0} Mb/s to the machine, {from:.0} from it");
        }
        Ok(())
    }
}

/// Programs that the guest needs besides those in every image.
const PROGRAMS: &[&str] = &["ip", "socat", "cat"];
