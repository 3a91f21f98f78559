//! Stages of a port, which process its packets in both directions: one for fragments and one for ESP. Their keys have
//! the same names as in sysctl and `ip xfrm`.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use grosso::{
    reassemble::{ReassemblyMode as Buffers, ReassemblyRules},
    tunnel::esp::{
        EspMode, IcvLength, KeyMaterial, NoAssociation, Outer, Prefix, REPLAY_WINDOW_PACKETS,
        SecurityAssociation, Selectors, UdpPorts,
    },
};
use grosso_io::stage::{EspOptions, FragmentationOptions, Level, SequenceFile, SequenceRecorder};
use grosso_sys::{path, secret};
use grosso_wire::ipv4;
use serde::Deserialize;

use super::{
    claim::claim,
    keys::{KeySource, Keys},
    notices::Notices,
    recorder,
};
use crate::error::Failure;

/// Reassembly and fragmentation at a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FragmentsSpec {
    mtu: Option<u16>,
    #[serde(default = "yes")]
    reassemble: bool,
    mode: Option<FragmentsMode>,
    #[serde(default)]
    ignore_df: bool,
    #[serde(rename = "ipfrag_high_thresh")]
    high_thresh: Option<usize>,
    #[serde(rename = "ipfrag_time")]
    ipv4_seconds: Option<u64>,
    #[serde(rename = "ip6frag_time")]
    ipv6_seconds: Option<u64>,
}

fn yes() -> bool {
    true
}

/// Treatment of the fragments that a port receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FragmentsMode {
    /// Fragments are reassembled, and datagrams stay whole.
    Local,
    /// Datagrams are reassembled for the path, and then sent on as fragments of the original sizes.
    Forward,
    /// Fragments pass unchanged once the first fragment of their datagram has arrived.
    Virtual,
}

impl FragmentsSpec {
    /// Returns the configured mode, or `usual` if none is configured; `None` if fragments are not parsed.
    pub(super) fn mode_or(&self, usual: FragmentsMode) -> Option<FragmentsMode> {
        self.reassemble.then_some(self.mode.unwrap_or(usual))
    }

    /// Returns whether packets that are too long are fragmented.
    pub(super) fn cuts(&self) -> bool {
        self.mtu.is_some()
    }

    /// Checks that the options are compatible. The error states why they are not.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.mtu.is_some_and(|mtu| mtu < ipv4::MTU_MIN) {
            return Err(format!("fragments: the minimum mtu is {} bytes", ipv4::MTU_MIN));
        }
        if self.mtu.is_none() && !self.reassemble {
            return Err("fragments: set mtu, or reassemble = true, or both".to_owned());
        }
        if self.mode.is_some() && !self.reassemble {
            return Err(
                "fragments: `mode` applies to received fragments, so it cannot be combined with \
                 reassemble = false"
                    .to_owned(),
            );
        }
        if self.mtu.is_none() && self.ignore_df {
            return Err("fragments: ignore-df needs an mtu".to_owned());
        }
        let memory = self.high_thresh.unwrap_or(MEMORY_BYTES_MIN);
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory) {
            return Err(format!(
                "fragments: ipfrag_high_thresh must be from {MEMORY_BYTES_MIN} to {MEMORY_BYTES_MAX} bytes"
            ));
        }
        let times = [self.ipv4_seconds, self.ipv6_seconds];
        if times.into_iter().flatten().any(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
            return Err(format!("fragments: a timeout must be from 1 to {SECONDS_MAX} seconds"));
        }
        Ok(())
    }

    fn options(&self, mode: Option<FragmentsMode>, seed: u64) -> FragmentationOptions {
        let mut options = FragmentationOptions::new(seed);
        (options.mtu, options.ignore_df) = (self.mtu, self.ignore_df);
        options.forwards = mode == Some(FragmentsMode::Forward);
        let is_virtual = mode == Some(FragmentsMode::Virtual);
        // `Local` and `Forward` copy the data, so that a device does not run out of buffers while fragments are
        // missing.
        let mut rules =
            ReassemblyRules::new(if is_virtual { Buffers::Virtual } else { Buffers::Coalesce });
        let limits = &mut rules.limits;
        if let Some(bytes) = self.high_thresh {
            (limits.memory_bytes, limits.source_bytes) = (bytes, bytes / 2);
        }
        let nanoseconds = |seconds: Option<u64>, usual| {
            seconds.map_or(usual, |seconds| seconds.saturating_mul(1_000_000_000))
        };
        limits.ipv4_ns = nanoseconds(self.ipv4_seconds, limits.ipv4_ns);
        limits.ipv6_ns = nanoseconds(self.ipv6_seconds, limits.ipv6_ns);
        options.rules = mode.map(|_| rules);
        options
    }
}

/// Encryption and decryption at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspSpec {
    spi_in: u32,
    spi_out: u32,
    /// Addresses of the local and the remote endpoint in tunnel mode.
    tunnel: Option<(IpAddr, IpAddr)>,
    icv: IcvLength,
    extended: bool,
    replay_window: u32,
    /// UDP ports of the local and the remote endpoint.
    encap: Option<UdpPorts>,
    /// Selectors for the addresses of sent packets.
    selectors: Selectors,
    level: Level,
    /// Whether both directions may use the same key.
    shared_key: bool,
    pub(super) keys: KeySource,
    pub(super) sequence_file: PathBuf,
}

impl EspSpec {
    /// Returns whether the stage encrypts fragments, which transport mode does not (RFC 4303 section 3.1.1).
    pub(super) fn takes_fragments(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Reads the files that the table names; relative paths are relative to `folder`.
    pub(super) fn read(&mut self, folder: &Path) -> Result<(), Failure> {
        self.keys.read(folder)?;
        self.sequence_file = folder.join(&self.sequence_file);
        let parent = self.sequence_file.parent().unwrap_or(folder);
        if !path::metadata(parent).is_ok_and(|facts| facts.is_dir()) {
            let (file, parent) = (self.sequence_file.display(), parent.display());
            let message = format!("sequence file {file}: directory {parent} does not exist");
            let hint = format!("sudo install -d -m 700 {parent}");
            return Err(Failure::environment("environment.write", message).hint(hint));
        }
        match &mut self.keys {
            KeySource::File(path, Some(keys)) => {
                *path = folder.join(&path);
                check(keys, self.shared_key, &path.display().to_string())?;
                SequenceFile::check(&self.sequence_file, keys.fingerprint())
                    .map_err(|error| self.unusable("esp", &error))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error message if both ports use the same file or the same association, which no two ports may share.
    pub(super) fn shares_with(&self, other: &Self) -> Option<String> {
        if self.sequence_file == other.sequence_file {
            let file = self.sequence_file.display();
            return Some(format!("two ports use the same sequence file: {file}"));
        }
        let (KeySource::File(_, Some(ours)), KeySource::File(path, Some(theirs))) =
            (&self.keys, &other.keys)
        else {
            return (self.keys == other.keys).then(|| "two ports use the same key-fd".to_owned());
        };
        let file = path.display();
        if ours.outbound.equals(&theirs.outbound) {
            return Some(format!("two ports send with the same key from {file}"));
        }
        (ours.inbound.equals(&theirs.inbound))
            .then(|| format!("two ports receive with the same key from {file}"))
    }

    fn options(&self, notices: &Notices, command: &str) -> Result<EspOptions, Failure> {
        let keys = self.keys.keys()?;
        check(&keys, self.shared_key, command)?;
        let wrong = |error: NoAssociation| {
            Failure::input("input.config", format!("{command}: esp: {error}"))
        };
        let outbound = self.outbound(keys.outbound.material().map_err(wrong)?);
        let inbound = self.inbound(keys.inbound.material().map_err(wrong)?);
        let salt = secret::random().map_err(|error| {
            let message = format!("{command}: esp: cannot get random numbers: {error}");
            Failure::environment("environment.random", message)
        })?;
        let mut options = EspOptions::new(outbound, inbound, salt);
        options.level = self.level;
        options.claims = self.claims(&keys, notices, command)?;
        options.sequences = Some(self.sequences(&keys, command)?);
        Ok(options)
    }

    fn claims(&self, keys: &Keys, notices: &Notices, command: &str) -> Result<Vec<File>, Failure> {
        let file = match &self.keys {
            KeySource::File(path, _) => Some(path.as_path()),
            KeySource::Descriptor(_) => None,
        };
        claim(keys, file, &|note| notices.note(note)).map_err(|error| {
            let failure =
                Failure::environment("environment.busy", format!("{command}: esp: {error}"));
            failure.hint(
                "stop the other program (grosso stats lists the running paths), or make new keys for \
                 this port and its peer",
            )
        })
    }

    fn sequences(&self, keys: &Keys, command: &str) -> Result<SequenceRecorder, Failure> {
        SequenceFile::open(&self.sequence_file, keys.fingerprint())
            .and_then(recorder::recorder)
            .map_err(|error| self.unusable(command, &error))
    }

    fn unusable(&self, command: &str, error: &io::Error) -> Failure {
        let path = self.sequence_file.display();
        let message = format!("{command}: sequence file {path}: {error}");
        match error.kind() {
            io::ErrorKind::InvalidData => Failure::input("input.sequence_file", message).hint(
                "use the file that belongs to these keys; if it is lost, make new keys, and set \
                 a file that does not exist yet",
            ),
            io::ErrorKind::WouldBlock => Failure::environment("environment.busy", message)
                .hint("use a separate file for each pair of keys"),
            _ => Failure::environment("environment.write", message),
        }
    }

    fn outbound(&self, key: KeyMaterial) -> SecurityAssociation {
        let ends = self.tunnel;
        let association = SecurityAssociation::new(self.spi_out, mode(ends), key);
        let selectors = self.selectors.clone();
        SecurityAssociation { udp_ports: self.encap, selectors, ..self.common(association) }
    }

    fn inbound(&self, key: KeyMaterial) -> SecurityAssociation {
        let ends = self.tunnel.map(|(here, there)| (there, here));
        let association = SecurityAssociation::new(self.spi_in, mode(ends), key);
        let udp_ports = self.encap.map(|UdpPorts { source, destination }| UdpPorts {
            source: destination,
            destination: source,
        });
        let Selectors { sources, destinations } = self.selectors.clone();
        let selectors = Selectors { sources: destinations, destinations: sources };
        SecurityAssociation { udp_ports, selectors, ..self.common(association) }
    }

    fn common(&self, association: SecurityAssociation) -> SecurityAssociation {
        SecurityAssociation {
            icv: self.icv,
            extended_sequence: self.extended,
            replay_window_packets: self.replay_window,
            ..association
        }
    }
}

/// Checks that the directions have different keys, unless the table accepts one key; `place` begins the message.
fn check(keys: &Keys, is_shared: bool, place: &str) -> Result<(), Failure> {
    keys.check(is_shared).map_err(|what| {
        Failure::input("input.key", format!("{place}: esp: {what}")).hint(
            "make a key for each direction, or set shared-key = true if the peer uses one key for \
             both directions",
        )
    })
}

/// Returns the ESP mode: tunnel mode if `ends` has the endpoints of a tunnel, otherwise transport mode. The caller has
/// checked that both endpoints have the same address family.
fn mode(ends: Option<(IpAddr, IpAddr)>) -> EspMode {
    match ends {
        Some((IpAddr::V4(source), IpAddr::V4(destination))) => {
            EspMode::Tunnel(Outer::V4 { source, destination })
        }
        Some((IpAddr::V6(source), IpAddr::V6(destination))) => {
            EspMode::Tunnel(Outer::V6 { source, destination })
        }
        _ => EspMode::Transport,
    }
}

/// The table `esp` in the configuration file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct EspTable {
    spi_in: u32,
    spi_out: u32,
    #[serde(default)]
    mode: ModeKeyword,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    icv_bits: Option<u32>,
    #[serde(default)]
    esn: bool,
    replay_window: Option<u32>,
    encap: Option<EncapTable>,
    #[serde(default)]
    sel: SelectorsTable,
    #[serde(default)]
    level: LevelKeyword,
    #[serde(default)]
    shared_key: bool,
    key_file: Option<PathBuf>,
    key_fd: Option<i32>,
    sequence_file: PathBuf,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum ModeKeyword {
    #[default]
    Transport,
    Tunnel,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LevelKeyword {
    #[default]
    Required,
    Use,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EncapTable {
    #[serde(default = "encap_port")]
    sport: u16,
    #[serde(default = "encap_port")]
    dport: u16,
}

/// Prefixes for the addresses of sent packets.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorsTable {
    #[serde(default)]
    src: Vec<String>,
    #[serde(default)]
    dst: Vec<String>,
}

impl SelectorsTable {
    fn selectors(&self) -> Result<Selectors, String> {
        let prefixes =
            |list: &[String]| list.iter().map(|text| prefix(text)).collect::<Result<Vec<_>, _>>();
        Ok(Selectors { sources: prefixes(&self.src)?, destinations: prefixes(&self.dst)? })
    }
}

/// Parses a prefix such as `10.1.0.0/16`, or a single address.
pub(super) fn prefix(text: &str) -> Result<Prefix, String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: Option<IpAddr> = address.parse().ok();
    let all = if address.is_some_and(|address| address.is_ipv4()) { 32 } else { 128 };
    let bits = bits.map_or(Some(all), |bits| bits.parse().ok());
    let prefix = address.zip(bits).and_then(|(address, bits)| Prefix::new(address, bits));
    prefix.ok_or_else(|| {
        format!(
            "esp: sel: {text} is not a prefix; expected 10.1.0.0/16 or \
                                fd01::/64"
        )
    })
}

fn encap_port() -> u16 {
    UdpPorts::ASSIGNED.source
}

impl EspTable {
    pub(super) fn spec(self) -> Result<EspSpec, String> {
        let keys = match (self.key_file, self.key_fd) {
            (Some(path), None) => KeySource::File(path, None),
            (None, Some(number @ 3..)) => KeySource::Descriptor(number),
            (None, Some(_)) => return Err("esp: key-fd must be at least 3".to_owned()),
            _ => return Err("esp: missing key \"key-file\" or \"key-fd\"".to_owned()),
        };
        let tunnel = match (self.mode, self.src, self.dst) {
            (ModeKeyword::Transport, None, None) => None,
            (ModeKeyword::Transport, ..) => {
                return Err("esp: src and dst need mode = \"tunnel\"".to_owned());
            }
            (ModeKeyword::Tunnel, Some(here), Some(there)) if here.is_ipv4() == there.is_ipv4() => {
                Some((here, there))
            }
            (ModeKeyword::Tunnel, Some(_), Some(_)) => {
                return Err("esp: src and dst must both be IPv4 or both be IPv6".to_owned());
            }
            (ModeKeyword::Tunnel, ..) => {
                return Err("esp: mode = \"tunnel\" needs src and dst".to_owned());
            }
        };
        if self.shared_key && self.spi_in == self.spi_out {
            return Err(
                "esp: shared-key = true needs different values of spi-in and spi-out".to_owned()
            );
        }
        let named = |error: NoAssociation| format!("esp: {error}");
        let spec = EspSpec {
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            tunnel,
            icv: IcvLength::from_bits(self.icv_bits.unwrap_or(ICV_BITS)).map_err(named)?,
            extended: self.esn,
            replay_window: self.replay_window.unwrap_or(REPLAY_WINDOW_PACKETS),
            encap: self
                .encap
                .map(|EncapTable { sport, dport }| UdpPorts { source: sport, destination: dport }),
            selectors: self.sel.selectors()?,
            level: match self.level {
                LevelKeyword::Required => Level::Required,
                LevelKeyword::Use => Level::Use,
            },
            shared_key: self.shared_key,
            keys,
            sequence_file: self.sequence_file,
        };
        // The other options can be checked with any key.
        let key = || KeyMaterial::aes_gcm(&[0; 20]).map_err(named);
        spec.outbound(key()?).check().map_err(named)?;
        spec.inbound(key()?).check().map_err(named)?;
        Ok(spec)
    }
}

/// Returns the options of the stages around a port that handles fragments in this mode.
pub(super) fn options(
    fragments: Option<&FragmentsSpec>,
    mode: Option<FragmentsMode>,
    esp: Option<&EspSpec>,
    queue: usize,
    notices: &Notices,
    command: &str,
) -> Result<(FragmentationOptions, Option<EspOptions>), Failure> {
    let seed = RandomState::new().hash_one(queue);
    let fragments = fragments.map_or_else(
        || {
            let mut options = FragmentationOptions::new(seed);
            options.rules = None;
            options
        },
        |spec| spec.options(mode, seed),
    );
    let esp = esp.map(|spec| spec.options(notices, command)).transpose()?;
    Ok((fragments, esp))
}

/// Default length of the integrity check value, in bits.
const ICV_BITS: u32 = 128;
/// Bounds for the memory that incomplete datagrams may occupy, in bytes. The minimum holds a few maximum-size
/// datagrams, and the maximum is far more than needed.
const MEMORY_BYTES_MIN: usize = 256 << 10;
const MEMORY_BYTES_MAX: usize = 1 << 30;
/// Maximum reassembly time of a datagram, in seconds.
const SECONDS_MAX: u64 = 3600;
