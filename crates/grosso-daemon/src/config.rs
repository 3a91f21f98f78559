//! Paths read from a TOML file, with the key names of `ip link` and `ethtool`. `docs/configuration.md` describes the
//! format.

use core::{fmt, ops::Range};
use std::{collections::BTreeMap, io, net::SocketAddr, path::Path};

use grosso::{Profile, coalesce::Hold};
use grosso_io::{impair::Impairment, runner::QUEUES_MAX};
use grosso_sys::path;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
};
use toml::Spanned;

use super::{
    feature,
    path::{PathSpec, Polling},
    port::{self, Device, PortKey, PortSpec, SettingValue},
    stages::{EspSpec, EspTable, FragmentsMode, FragmentsSpec},
};
use crate::{
    error::Failure,
    name::shown,
    needs::Needs,
    profile::{self, AUTO_HOLD_NS},
    tunnel::Description,
    wrong::{Wrong, no_key},
};

/// The contents of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address at which the counters are served to Prometheus.
    pub metrics: Option<SocketAddr>,
    /// User that the process switches to before it opens devices.
    pub user: Option<String>,
    /// The paths, in the order of the file.
    pub paths: Vec<PathSpec>,
}

impl Config {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = shown(path);
        let text = path::read_text(path, CONFIG_BYTES_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => Failure::input(
                "input.config",
                format!("{name}: cannot read the configuration: {error}"),
            ),
            _ => Failure::environment("environment.read", format!("{name}: {error}")),
        })?;
        let whole = std::path::absolute(path).map_err(|error| {
            Failure::environment("environment.read", format!("{name}: {error}"))
        })?;
        let folder = whole.parent().unwrap_or(&whole);
        let mut config = Self::parse(&text, folder).map_err(|wrong| {
            let failure = Failure::input("input.config", format!("{name}:{wrong}"));
            failure.at(wrong.place).hint(format!(
                "docs/configuration.md describes the file; grosso config check {name} checks it \
                 without running it"
            ))
        })?;
        config.read_keys(folder)?;
        Ok(config)
    }

    /// Returns the capabilities that the ports of all paths need.
    pub fn needs(&self) -> Needs {
        self.paths.iter().map(PathSpec::needs).fold(Needs::NONE, Needs::and)
    }

    /// Reads the keys of all ports that have keys. No two ports may send with the same key, because a nonce would be
    /// used twice.
    pub fn read_keys(&mut self, folder: &Path) -> Result<(), Failure> {
        let ports = self.paths.iter_mut().flat_map(|path| [&mut path.left, &mut path.right]);
        let mut specs: Vec<&EspSpec> = Vec::new();
        for esp in ports.filter_map(|port| port.esp.as_mut()) {
            esp.read(folder)?;
            if let Some(other) = specs.iter().find_map(|other| esp.shares_with(other)) {
                return Err(Failure::input("input.config", format!("esp: {other}")));
            }
            specs.push(esp);
        }
        Ok(())
    }

    /// Parses a configuration text. Relative profile paths are relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Wrong> {
        let file: FileTable =
            toml::from_str(text).map_err(|error| match belongs_elsewhere(&error) {
                Some(what) => Wrong::at(text, error.span().unwrap_or(0..0), &what),
                None => Wrong::of_parser(text, &error),
            })?;
        let wrong = |span: Range<usize>, what: &str| Err(Wrong::at(text, span, what));
        if file.path.is_empty() {
            return wrong(0..0, "no [[path]]: nothing to run");
        }
        if let Some(path) = file.path.get(PATHS_MAX) {
            return wrong(path.span(), &format!("more than {PATHS_MAX} paths"));
        }
        let paths = paths(text, file.path, folder)?;
        Ok(Self { metrics: file.metrics, user: file.user, paths })
    }
}

/// Returns a message if the file has a key with the name of an option of `grosso bridge`, or a key that belongs in a
/// port's table.
fn belongs_elsewhere(error: &toml::de::Error) -> Option<String> {
    let key = error.message().strip_prefix("unknown field `")?.split('`').next()?;
    if let Some((_, instead)) = OPTIONS.iter().find(|(option, _)| *option == key) {
        return Some(format!("no key \"{key}\"; use {instead}"));
    }
    let name = port::key(key)?.name;
    Some(format!("key `{name}` is valid only for a port: left = {{ port = ..., {name} = ... }}"))
}

/// Returns the paths described by the tables in `text`. No two paths may share a name or a device.
pub fn paths(
    text: &str,
    tables: Vec<Spanned<PathTable>>,
    folder: &Path,
) -> Result<Vec<PathSpec>, Wrong> {
    let wrong = |span: Range<usize>, what: &str| Err(Wrong::at(text, span, what));
    let mut paths: Vec<PathSpec> = Vec::new();
    for table in tables {
        let span = table.span();
        let path = table.into_inner().spec(folder);
        let path = path.map_err(|what| Wrong::at(text, span.clone(), &what))?;
        for other in &paths {
            if other.name == path.name {
                return wrong(span, &format!("path \"{}\" already exists", path.name));
            }
            if let Some(what) = in_common(&path, other) {
                return wrong(span, &format!("{what} path \"{}\"", other.name));
            }
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Returns the reason why two paths exclude each other: a shared device, or tunnels that would receive each other's
/// packets.
fn in_common(path: &PathSpec, other: &PathSpec) -> Option<String> {
    let taken = [&other.left.device, &other.right.device];
    [&path.left.device, &path.right.device].into_iter().find_map(|device| match device {
        Device::Tunnel(tunnel) => {
            // A tunnel is never the left endpoint of a path.
            let Device::Tunnel(taken) = &other.right.device else { return None };
            let name = tunnel.name();
            if tunnel.takes_same(taken) || tunnel.shares_port(taken) {
                return Some(format!("packets for {name} would also be received by"));
            }
            let is_sent_from = tunnel.sends_from_port_of(taken);
            is_sent_from.then(|| format!("the source port of {name} is also used by"))
        }
        _ => {
            let is_same = |taken: &&Device| taken.port().name() == device.port().name();
            taken.iter().any(is_same).then(|| format!("{} is also a port of", device.port().name()))
        }
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    metrics: Option<SocketAddr>,
    user: Option<String>,
    #[serde(default)]
    path: Vec<Spanned<PathTable>>,
}

/// The table that describes a path in the file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PathTable {
    name: Option<PathName>,
    left: PortSpec,
    right: PortSpec,
    #[serde(default = "yes")]
    gro: bool,
    rx_usecs: Option<u32>,
    #[serde(default)]
    adaptive_rx: bool,
    profile: Option<String>,
    #[serde(default)]
    queues: Queues,
    #[serde(default)]
    cpus: Vec<usize>,
    impair: Option<ImpairText>,
    poll_budget: Option<u16>,
    busy_poll: Option<u32>,
}

fn yes() -> bool {
    true
}

impl PathTable {
    /// Returns the path that the table describes; file names are relative to `folder`.
    pub fn spec(self, folder: &Path) -> Result<PathSpec, String> {
        let mut profile = match &self.profile {
            None => Profile::linux(),
            Some(word) => profile::find(word, folder).map_err(|failure| failure.message)?,
        };
        if let Some(microseconds) = self.rx_usecs {
            profile.limits.hold_ns = 1000 * u64::from(microseconds);
        }
        if self.adaptive_rx {
            profile.hold = Hold::Controlled;
            if self.rx_usecs.is_none() && profile.limits.hold_ns == 0 {
                profile.limits.hold_ns = AUTO_HOLD_NS;
            }
        }
        let (left, right) = (self.left, self.right);
        let name = match self.name {
            Some(PathName(name)) => name,
            None => default_name(&left, &right),
        };
        let spec = PathSpec {
            name,
            left,
            right,
            coalesce: self.gro,
            profile,
            queues: self.queues.0,
            processors: self.cpus,
            impairment: self.impair.map(|ImpairText(impairment)| impairment),
            polling: Polling {
                budget_frames: self.poll_budget,
                busy_ns: 1000 * u64::from(self.busy_poll.unwrap_or_default()),
            },
        };
        check(&spec).map(|()| spec)
    }
}

/// Returns the default name of a path between the ports `left` and `right`.
pub fn default_name(left: &PortSpec, right: &PortSpec) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let name = format!("{}-{}", left.device.port().name(), right.device.port().name());
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// Checks that the parts of a path are compatible. The error states why they are not.
pub fn check(spec: &PathSpec) -> Result<(), String> {
    if spec.left.device.port().name() == spec.right.device.port().name() {
        return Err(format!(
            "{} is used for both ports of the path",
            spec.left.device.port().name()
        ));
    }
    if spec.forwards_what_it_lost() {
        return Err(format!(
            "profile {}: {LOSSY}; to confirm, set terminates = true on a tap or tun port",
            spec.profile.name
        ));
    }
    check_polling(&spec.polling)?;
    check_tunnels(spec)?;
    check_fragments(&spec.left, &spec.right)?;
    check_fragments(&spec.right, &spec.left)?;
    for port in [&spec.left, &spec.right] {
        port.check()?;
        if port.esp.is_some() && spec.queues > 1 {
            // All packets of an association share one sequence.
            return Err(format!("{}: esp requires queues = 1", port.device));
        }
        port.device.port().check_queues(spec.queues)?;
    }
    let [left, right] = [&spec.left, &spec.right].map(|port| port.device.port().layer());
    if left.is_some() && right.is_some() && left != right {
        let [left, right] = [&spec.left.device, &spec.right.device];
        return Err(format!(
            "{left} and {right}: cannot connect a port with Ethernet frames to a port with IP \
             packets"
        ));
    }
    Ok(())
}

/// Checks that a poll takes at least one frame, and that busy polling lasts at most [`Polling::BUSY_NS_MAX`].
fn check_polling(polling: &Polling) -> Result<(), String> {
    let (budgets, most_us) = (Polling::BUDGETS, Polling::BUSY_NS_MAX / 1000);
    if let Some(budget) = polling.budget_frames.filter(|budget| !budgets.contains(budget)) {
        let (least, most) = (budgets.start(), budgets.end());
        return Err(format!("poll-budget: expected {least} to {most} frames, not {budget}"));
    }
    if polling.busy_ns > Polling::BUSY_NS_MAX {
        return Err(format!("busy-poll: the maximum is {most_us} us"));
    }
    Ok(())
}

/// Checks that a tunnel, if any, is on a side where it is allowed, and that it supports the requested options.
fn check_tunnels(spec: &PathSpec) -> Result<(), String> {
    if let Device::Tunnel(tunnel) = &spec.left.device {
        return Err(format!("{} must be `right`: a tunnel cannot be `left`", tunnel.name()));
    }
    if !matches!(spec.right.device, Device::Tunnel(_)) {
        return Ok(());
    }
    let is_worked_on = spec.left.has_stages() || spec.right.has_stages();
    if is_worked_on || spec.impairment.is_some() {
        return Err(
            "`fragments`, `esp` and `impair` are not supported on a path that leads to a tunnel"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks that packets reassembled from fragments of one port can leave through the other port.
fn check_fragments(from: &PortSpec, to: &PortSpec) -> Result<(), String> {
    let Some(mode) = from.fragments_mode(to) else { return Ok(()) };
    let (here, there) = (&from.device, &to.device);
    let cut = format!("set fragments = {{ mtu = 1500 }} at {there}");
    if from.esp.is_some() {
        return match mode {
            FragmentsMode::Local if to.takes_any_length() => Ok(()),
            FragmentsMode::Local => Err(format!(
                "{here}: decrypted packets may be longer than the MTU of {there}; to fragment \
                 them, {cut}"
            )),
            _ => Err(format!(
                "{here}: esp can decrypt only whole packets: remove `mode` from `fragments`"
            )),
        };
    }
    match (mode, &to.esp) {
        (FragmentsMode::Local, _) if !to.takes_any_length() => Err(format!(
            "{here}: with mode = \"local\", datagrams are forwarded whole and may be longer than the MTU \
             of {there}: omit mode to send the original fragments, or {cut}"
        )),
        (FragmentsMode::Forward, Some(_)) if !to.takes_any_length() => Err(format!(
            "{here}: fragments are reassembled before esp at {there} encrypts them, so encrypted \
             packets may be longer than the MTU of {there}; to fragment them, {cut}"
        )),
        (FragmentsMode::Virtual, Some(esp)) if !esp.takes_fragments() => Err(format!(
            "{here}: mode = \"virtual\" leaves fragments as they are, but esp at {there} accepts \
             only whole packets: omit mode to reassemble fragments"
        )),
        _ => Ok(()),
    }
}

/// A path name that is short and plain enough for counter labels and messages.
#[derive(Clone, Debug)]
pub struct PathName(pub String);

impl core::str::FromStr for PathName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(fits) {
            return Err(format!(
                "\"{text}\" is not a valid name: use 1 to {NAME_BYTES_MAX} letters, digits, and \
                 _ . -"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for PathName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

struct Queues(usize);

impl Default for Queues {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Queues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match i64::deserialize(deserializer)?.try_into() {
            Ok(queues @ 1..=QUEUES_MAX) => Ok(Self(queues)),
            _ => Err(serde::de::Error::custom(format!("queues must be from 1 to {QUEUES_MAX}"))),
        }
    }
}

struct ImpairText(Impairment);

impl<'de> Deserialize<'de> for ImpairText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Parses a port, which is written either as a single word, or as a table that contains this word.
impl<'de> Deserialize<'de> for PortSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = PortSpec;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "a port such as \"eth1\", or a table with the key `port` or `tunnel`",
                )
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<PortSpec, E> {
                word.parse().map(PortSpec::new).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PortSpec, A::Error> {
                PortTable::read(map)?.spec().map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// The table of a port, as written in the file: options of its device, and keys that all ports have.
#[derive(Default)]
struct PortTable {
    port: Option<String>,
    tunnel: Option<Description>,
    settings: Vec<(PortKey, SettingValue)>,
    features: BTreeMap<String, bool>,
    fragments: Option<FragmentsSpec>,
    esp: Option<EspTable>,
}

impl PortTable {
    /// Keys that all ports have.
    const KEYS: [&'static str; 5] = ["port", "tunnel", "features", "fragments", "esp"];

    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut table = Self::default();
        while let Some(key) = map.next_key_seed(PortKeySeed)? {
            match key {
                PortTableKey::Setting(key) => {
                    table.settings.push((key, map.next_value_seed(SettingSeed(key))?));
                }
                PortTableKey::Common("port") => table.port = map.next_value()?,
                PortTableKey::Common("tunnel") => table.tunnel = map.next_value()?,
                PortTableKey::Common("features") => table.features = map.next_value()?,
                PortTableKey::Common("fragments") => table.fragments = map.next_value()?,
                PortTableKey::Common(_) => table.esp = map.next_value()?,
            }
        }
        Ok(table)
    }

    fn spec(self) -> Result<PortSpec, String> {
        let mut spec = PortSpec::new(match (self.port, self.tunnel) {
            (Some(word), None) => word.parse()?,
            (None, Some(tunnel)) => Device::Tunnel(Box::new(tunnel)),
            (Some(_), Some(_)) => {
                return Err("keys `port` and `tunnel` cannot be combined".to_owned());
            }
            (None, None) => return Err("missing key \"port\" or \"tunnel\"".to_owned()),
        });
        for (name, on) in &self.features {
            let feature = feature::named(name)?;
            spec.features =
                if *on { spec.features | feature } else { spec.features.without(feature) };
        }
        for (key, value) in self.settings {
            spec.set(key.name, value)?;
        }
        spec.fragments = self.fragments;
        spec.esp = self.esp.map(EspTable::spec).transpose()?;
        spec.check().map(|()| spec)
    }
}

/// A key of a port's table.
enum PortTableKey {
    Common(&'static str),
    Setting(PortKey),
}

struct PortKeySeed;

impl<'de> DeserializeSeed<'de> for PortKeySeed {
    type Value = PortTableKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PortTableKey, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(common) = PortTable::KEYS.into_iter().find(|common| *common == name) {
            return Ok(PortTableKey::Common(common));
        }
        port::key(&name).map(PortTableKey::Setting).ok_or_else(|| {
            let known: Vec<_> = PortTable::KEYS.into_iter().chain(port::key_names()).collect();
            D::Error::custom(no_key(&name, &known))
        })
    }
}

struct SettingSeed(PortKey);

impl<'de> DeserializeSeed<'de> for SettingSeed {
    type Value = SettingValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SettingValue, D::Error> {
        self.0.read(deserializer)
    }
}

/// Reason why a path that forwards cannot have a lossy profile.
pub const LOSSY: &str = "merging is lossy, so the output differs from the input: use this profile \
                         only on a host that terminates TCP";
/// Options of `grosso bridge` that have another name in a configuration file.
const OPTIONS: [(&str, &str); 4] = [
    ("hold", "rx-usecs, or adaptive-rx = true for --hold auto"),
    ("reorder", "a profile with a [reorder] table"),
    ("no-coalesce", "gro = false"),
    ("no-promisc", "promisc = false for a port"),
];
/// Maximum number of paths of a process.
const PATHS_MAX: usize = 64;
/// Maximum size of a configuration file in bytes. A file with 64 paths that set every key needs a tenth of this size.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a path name in bytes.
const NAME_BYTES_MAX: usize = 32;

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
