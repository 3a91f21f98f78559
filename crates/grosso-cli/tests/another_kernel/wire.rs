//! A host that Grosso runs on, and the guest at the other end of its wire.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
};

use grosso_sys::namespace::NetworkNamespace;
use grosso_testkit::guest::{self, Contents, Guest, Image};

use super::{
    network::{self, Running},
    traffic::{self, Rates},
};

/// The host, its guest, and the data that both know.
pub(crate) struct Wire {
    // Dropped first: the guest's device is the host's.
    pub(crate) guest: Guest,
    pub(crate) host: NetworkNamespace,
    pub(crate) folder: tempfile::TempDir,
    content: Vec<u8>,
}

/// Addresses inside of tunnels, over IPv4 and IPv6: of the guest.
pub(crate) const INSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 8, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd08, 0, 0, 0, 0, 0, 0, 1)),
];

/// The words between two others.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_default();
    rest.split_once(after).unwrap_or_default().0
}

impl Wire {
    /// Boots the guest. Without what that takes, says of each case that it is skipped.
    pub(crate) fn new(cases: impl Iterator<Item = String>) -> Option<Self> {
        let [host] = match guest::missing(&[PROGRAMS, OWN].concat()) {
            Some(why) => {
                cases.for_each(|case| println!("skipped: {case}: {why}"));
                return None;
            }
            None => network::namespaces()?,
        };
        Some(Self::boot(host).unwrap())
    }

    fn boot(host: NetworkNamespace) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let content = traffic::content();
        let files = [("content", &content[..]), ("bin/take", traffic::TAKE.as_bytes())];
        let contents = Contents { programs: PROGRAMS, modules: MODULES, files: &files };
        let image = Image::new(folder.path(), &contents)?;
        command(&host, "ip link set lo up")?;
        command(&host, "ip tuntap add dev t0 mode tap vnet_hdr")?;
        host.run(|| network::set_up("t0", network::B))??;
        let mut guest = Guest::start(host.host(&mut image.machine("t0"))?)?;
        guest.run("ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.1/24 dev eth0")?;
        guest.run("ip addr add fd09::1/64 dev eth0 nodad; modprobe -a fou fou6")?;
        guest.run(traffic::SERVE)?;
        Ok(Self { guest, host, folder, content })
    }

    /// Runs `ip` on the host.
    pub(crate) fn ip(&self, line: &str) -> io::Result<String> {
        command(&self.host, &format!("ip {line}"))
    }

    /// Runs Grosso on the host to its end.
    pub(crate) fn grosso(&self, line: &str) -> io::Result<String> {
        run(&self.host, self.program(), line)
    }

    /// The program with its files.
    pub(crate) fn program(&self) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_grosso"));
        program.env("RUNTIME_DIRECTORY", self.folder.path()).env("NO_COLOR", "1");
        program.env_remove("NOTIFY_SOCKET").current_dir(self.folder.path());
        program
    }

    /// Starts to look for a packet on the wire.
    pub(crate) fn watch(&self, filter: &str) -> Running {
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-p", "-i", "t0", "-c", "1", filter]);
        let watch = Running::spawn(self.host.host(&mut command).unwrap());
        watch.said("listening on");
        watch
    }

    /// Exchanges streams and datagrams with an address of the guest.
    pub(crate) fn exchange(&self, guest: IpAddr) -> io::Result<Rates> {
        traffic::exchange(&self.host, guest, &self.content)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A failed case must leave no process behind.
        let _ = self.grosso("tunnel del g0");
    }
}

/// Runs a program on a host, with a line that is split at blanks.
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

/// Programs in the guest beside the image's own.
const PROGRAMS: &[&str] = &["ip", "ethtool", "socat", "cat"];
/// Programs of the host.
const OWN: &[&str] = &["tcpdump"];

/// Modules of the tunnels and of ESP with its algorithms.
const MODULES: &[&str] = &[
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
