//! A host that runs Grosso, and the guest that is connected to it.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    process::Command,
};

use grosso_lab::guest::{Contents, Guest};
use grosso_sys::{
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
};

use super::{
    boot,
    traffic::{self, Rates},
};
use crate::network::Running;

/// The host, its guest, and the data that they exchange.
pub(crate) struct Wire {
    // The guest is dropped first, because its device belongs to the host.
    pub(crate) guest: Guest,
    pub(crate) host: NetworkNamespace,
    behind: NetworkNamespace,
    pub(crate) folder: tempfile::TempDir,
    content: Vec<u8>,
}

/// Inner addresses of the guest, IPv4 and IPv6.
pub(crate) const INSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, 1)),
];

/// Addresses of the host behind the guest. This host verifies checksums, so those that were left to the receiver must
/// be completed on the way to it.
const BEHIND: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 7, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 2)),
];

/// Returns the text between `before` and `after`.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_default();
    rest.split_once(after).unwrap_or_default().0
}

impl Wire {
    /// Boots the guest. If a requirement is missing, prints for each case that it is skipped.
    pub(crate) fn new(cases: impl Iterator<Item = String>) -> Option<Self> {
        let [host, behind] = match boot::missing(&[PROGRAMS, OWN].concat()) {
            Some(why) => {
                cases.for_each(|case| println!("skipped: {case}: {why}"));
                return None;
            }
            None => crate::network::namespaces()?,
        };
        Some(Self::boot(host, behind).unwrap())
    }

    fn boot(host: NetworkNamespace, behind: NetworkNamespace) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let content = traffic::content();
        let files = [("content", &content[..]), ("bin/take", traffic::TAKE.as_bytes())];
        let contents = Contents { programs: PROGRAMS, modules: MODULES, files: &files };
        let image = boot::image(folder.path(), &contents)?;
        command(&host, "ip link set lo up")?;
        command(&host, "ip tuntap add dev t0 mode tap vnet_hdr")?;
        host.run(|| crate::network::set_up("t0", crate::network::B))??;
        let mut guest = Guest::start(host.host(&mut image.machine_on("t0"))?)?;
        guest.run("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0")?;
        guest.run("ip addr add fd09::1/64 dev eth0 nodad; modprobe -a fou fou6")?;
        guest.run(traffic::SERVE)?;
        guest.run(&format!(
            "{NEIGHBOUR}{}",
            traffic::SERVE.replace("socat", "ip netns exec r socat")
        ))?;
        add_neighbour(&host, &behind)?;
        Ok(Self { guest, host, behind, folder, content })
    }

    /// Routes traffic between the host behind this host and the host behind the guest through the tunnel.
    pub(crate) fn route(&mut self) -> io::Result<()> {
        self.ip("route add 10.7.0.0/24 via 10.8.0.1 dev g0")?;
        self.ip("-6 route add fd07::/64 via fd08::1 dev g0")?;
        let back = "ip route add 10.6.0.0/24 via 10.8.0.2 dev k0 &&
            ip -6 route add fd06::/64 via fd08::2 dev k0";
        self.guest.run(back).map(drop)
    }

    /// Runs `ip` on the host.
    pub(crate) fn ip(&self, line: &str) -> io::Result<String> {
        command(&self.host, &format!("ip {line}"))
    }

    /// Runs a Grosso command on the host until it exits.
    pub(crate) fn grosso(&self, line: &str) -> io::Result<String> {
        run(&self.host, self.program(), line)
    }

    /// Returns a command that runs Grosso, with its directories for files.
    pub(crate) fn program(&self) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grosso"));
        program.env("RUNTIME_DIRECTORY", self.folder.path()).env("NO_COLOR", "1");
        program.env_remove("NOTIFY_SOCKET").current_dir(self.folder.path());
        program
    }

    /// Starts watching for a packet on the wire.
    pub(crate) fn watch(&self, filter: &str) -> Running {
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-p", "-i", "t0", "-c", "1", filter]);
        let watch = Running::spawn(self.host.host(&mut command).unwrap());
        watch.wait_for_line("listening on");
        watch
    }

    /// Exchanges streams and datagrams with an address of the guest.
    pub(crate) fn exchange(&self, guest: IpAddr) -> io::Result<Rates> {
        traffic::exchange(&self.host, guest, &self.content)
    }

    /// Exchanges streams and datagrams between the host behind this host and the host behind the guest.
    pub(crate) fn exchange_behind(&self, version: usize) -> io::Result<Rates> {
        traffic::exchange(&self.behind, BEHIND[version], &self.content)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A failed case must not leave a process running.
        let _ = self.grosso("tunnel del g0");
    }
}

/// Adds a neighbor behind the host. On their link, the host's device computes checksums, and the neighbor's device does
/// not.
fn add_neighbour(host: &NetworkNamespace, behind: &NetworkNamespace) -> io::Result<()> {
    host.run(|| {
        let far = LinkChange::new().namespace(behind.as_fd());
        let near = (&crate::network::name("c0"), LinkChange::new());
        Netlink::new()?.add_veth(near, (&crate::network::name("c1"), far))?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
    })??;
    command(host, "ethtool -K c0 tx off")?;
    for (host, device, number) in [(host, "c0", 1), (behind, "c1", 2)] {
        command(host, &format!("ip addr add 10.6.0.{number}/24 dev {device}"))?;
        command(host, &format!("ip addr add fd06::{number}/64 dev {device} nodad"))?;
        command(host, &format!("ip link set {device} mtu 1280 up"))?;
    }
    command(behind, "ip route add default via 10.6.0.1")?;
    command(behind, "ip -6 route add default via fd06::1").map(drop)
}

/// Runs a command line on a host. The line is split at spaces.
fn command(host: &NetworkNamespace, line: &str) -> io::Result<String> {
    let (program, words) = line.split_once(' ').unwrap_or((line, ""));
    run(host, Command::new(program), words)
}

fn run(host: &NetworkNamespace, mut program: Command, line: &str) -> io::Result<String> {
    let output = host.host(program.args(line.split_whitespace()))?.output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(io::Error::other(format!("{line}: {}", text(&output.stderr))))
}

/// The guest script that adds a host behind the guest, as [`add_neighbour`] adds one behind the host.
const NEIGHBOUR: &str = "set -e
mkdir -p /run
ip netns add r
ip link add v0 type veth peer name v1 netns r
ethtool -K v0 tx off
ip addr add 10.7.0.1/24 dev v0
ip addr add fd07::1/64 dev v0 nodad
ip link set v0 mtu 1280 up
ip -n r addr add 10.7.0.2/24 dev v1
ip -n r addr add fd07::2/64 dev v1 nodad
ip -n r link set v1 mtu 1280 up
ip -n r route add default via 10.7.0.1
ip -n r -6 route add default via fd07::1
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
";

/// Programs that the guest needs besides those in every image.
const PROGRAMS: &[&str] = &["ip", "bridge", "ethtool", "socat", "cat"];
/// Programs that the test needs on the host.
const OWN: &[&str] = &["tcpdump"];

/// Kernel modules for tunnels, for ESP, and for its algorithms.
const MODULES: &[&str] = &[
    "veth",
    "vxlan",
    "geneve",
    "ipip",
    "sit",
    "ip_gre",
    "ip6_gre",
    "ip6_tunnel",
    "fou",
    "fou6",
    "esp4",
    "esp6",
    "xfrm_user",
    "seqiv",
    "gcm",
    "ctr",
    "cryptd",
    "drbg",
    "jitterentropy_rng",
    "hmac",
    "sha256_generic",
    "sha512_generic",
    "aesni_intel",
    "aes_generic",
    "ghash_generic",
];
