//! The file passed to `grosso lab run --config`. It is in TOML, and describes paths in the same way as a file for
//! `grosso run`. `docs/lab.md` documents it.

use core::ops::Range;
use std::{collections::BTreeMap, io, net::IpAddr, path::Path, time::Duration};

use grosso_lab::custom::{
    Contradiction, CustomClaim, CustomHost, CustomNetwork, CustomTraffic, CustomWire, Figure,
    HostDevice, PathPlace, Than,
};
use grosso_sys::path;
use serde::{Deserialize, Deserializer, de::Error};
use toml::{Spanned, Table, Value};

use crate::{
    arguments::parse_run_ns,
    daemon::{
        config::{self, Config, PathTable},
        path::PathSpec,
    },
    error::Failure,
    name::shown,
    units,
    wrong::{Wrong, similar},
};

/// Custom experiment.
#[derive(Debug)]
pub(super) struct CustomFile {
    pub(super) network: CustomNetwork,
    pub(super) traffic: CustomTraffic,
    pub(super) runs: usize,
    pub(super) time: Duration,
    pub(super) settings: Vec<CustomPaths>,
    pub(super) claims: Vec<CustomClaim>,
}

/// Paths used by a setting.
#[derive(Debug)]
pub(super) struct CustomPaths {
    pub(super) name: String,
    pub(super) paths: Vec<PathSpec>,
}

impl CustomFile {
    /// Reads the file that describes a custom experiment.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = shown(path);
        let unread =
            |error: io::Error| Failure::environment("environment.read", format!("{name}: {error}"));
        let text = path::read_text(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => Failure::input(
                "input.config",
                format!("{name}: cannot read the experiment: {error}"),
            ),
            _ => unread(error),
        })?;
        let whole = std::path::absolute(path).map_err(unread)?;
        let folder = whole.parent().unwrap_or(&whole);
        let mut file = Self::parse(&text, folder).map_err(|wrong| {
            let failure = Failure::input("input.config", format!("{name}:{wrong}"));
            failure.at(wrong.place).hint("docs/lab.md describes the file")
        })?;
        for setting in &mut file.settings {
            let paths = core::mem::take(&mut setting.paths);
            let mut config = Config { metrics: None, user: None, paths };
            config.read_keys(folder)?;
            setting.paths = config.paths;
        }
        Ok(file)
    }

    /// Parses the description of a custom experiment. File names in it are relative to `folder`.
    fn parse(text: &str, folder: &Path) -> Result<Self, Wrong> {
        // Parsing into types locates the errors in a path. Parsing into tables preserves the values that settings
        // change.
        let typed: Experiment<PathTable> = of(text)?;
        let Experiment { path: tables, setting, claim, .. }: Experiment<Table> = of(text)?;
        let base = config::paths(text, typed.path, folder)?;
        let places = base.iter().zip(&tables);
        let places =
            places.map(|(path, table)| place(path).map_err(|what| at(text, table.span(), &what)));
        let places: Vec<PathPlace> = places.collect::<Result<_, _>>()?;
        let mut settings: Vec<CustomPaths> = Vec::new();
        for one in &setting {
            let (span, SettingTable { name, path: changes }) = (one.span(), one.get_ref());
            let wrong = |what: &str| at(text, span.clone(), &format!("setting \"{name}\": {what}"));
            if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX {
                return Err(wrong(&format!(
                    "a name must have 1 to {NAME_CHARACTERS_MAX} characters"
                )));
            }
            if settings.iter().any(|other| other.name == *name) {
                return Err(wrong("another setting has this name"));
            }
            let paths = changed(&base, &tables, changes, folder).map_err(|what| wrong(&what))?;
            if paths.iter().map(place).ne(places.iter().cloned().map(Ok)) {
                return Err(wrong(
                    "a setting cannot change the devices of a path, because the network defines them",
                ));
            }
            settings.push(CustomPaths { name: name.clone(), paths });
        }
        if settings.is_empty() {
            settings.push(CustomPaths { name: "as it is".into(), paths: base });
        }
        let names: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
        let claims = claim.into_iter().map(|claim| {
            let span = claim.span();
            claim.into_inner().claim(&names).map_err(|what| at(text, span, &what))
        });
        let claims = claims.collect::<Result<_, _>>()?;
        let measure_span = typed.measure.span();
        let measure = typed.measure.into_inner();
        let wires = typed.wire.into_iter().map(CustomWire::from).collect();
        let hosts = typed.host.into_iter().map(CustomHost::from).collect();
        let network = CustomNetwork { hosts, wires, paths: places };
        network.check().map_err(|Contradiction { about, what }| {
            // Position of the first occurrence of the name.
            let place = text.find(&about).unwrap_or(0);
            at(text, place..place, &what)
        })?;
        let traffic = measure.traffic(&network).map_err(|what| at(text, measure_span, &what))?;
        let (runs, time) = (measure.runs.0, measure.time.0);
        Ok(Self { network, traffic, runs, time, settings, claims })
    }
}

fn of<'de, T: Deserialize<'de>>(text: &'de str) -> Result<Experiment<T>, Wrong> {
    toml::from_str(text).map_err(|error| Wrong::of_parser(text, &error))
}

fn at(text: &str, span: Range<usize>, what: &str) -> Wrong {
    Wrong::at(text, span, what)
}

/// Returns the data paths with the changes that a setting requires.
fn changed(
    base: &[PathSpec],
    tables: &[Spanned<Table>],
    changes: &BTreeMap<String, Table>,
    folder: &Path,
) -> Result<Vec<PathSpec>, String> {
    let names = || base.iter().map(|path| path.name.as_str());
    if let Some(unknown) = changes.keys().find(|name| names().all(|known| known != *name)) {
        return Err(match similar(unknown, names()) {
            Some(meant) => format!("no path \"{unknown}\"; did you mean {meant}?"),
            None => format!("no path \"{unknown}\""),
        });
    }
    let paths = base.iter().zip(tables).map(|(path, table)| {
        let Some(change) = changes.get(&path.name) else { return Ok(path.clone()) };
        let mut table = table.get_ref().clone();
        merge(&mut table, change);
        // Without an explicit name, the path would be named after its devices.
        table.insert("name".into(), Value::String(path.name.clone()));
        let wrong = |what: &str| format!("path {}: {what}", path.name);
        let table: PathTable = table
            .try_into()
            .map_err(|error: toml::de::Error| wrong(&crate::wrong::readable(error.message())))?;
        table.spec(folder).map_err(|what| wrong(&what))
    });
    paths.collect()
}

/// Overwrites values in `table` with those in `change`. Tables are merged key by key.
fn merge(table: &mut Table, change: &Table) {
    for (key, value) in change {
        match (table.get_mut(key), value) {
            (Some(Value::Table(one)), Value::Table(other)) => merge(one, other),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Returns the devices that determine a path's position in the network.
fn place(path: &PathSpec) -> Result<PathPlace, String> {
    let mut place = PathPlace::default();
    for port in [&path.left, &path.right] {
        let device = port.device.port();
        if let Some(name) = device.interface() {
            place.opens.push(name.to_owned());
        } else if let Some(name) = device.created() {
            place.makes.push(name.to_owned());
        } else if let Some(tunnel) = device.tunnel() {
            place.address = Some(tunnel.endpoint.local);
        } else {
            return Err(format!(
                "path {}: the lab cannot create {}; it can create links, tap, tun and tunnels",
                path.name, port.device
            ));
        }
    }
    Ok(place)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment<P> {
    host: Vec<HostTable>,
    #[serde(default = "Vec::new")]
    wire: Vec<WireTable>,
    #[serde(default = "Vec::new")]
    path: Vec<Spanned<P>>,
    measure: Spanned<MeasureTable>,
    #[serde(default)]
    setting: Vec<Spanned<SettingTable>>,
    #[serde(default)]
    claim: Vec<Spanned<ClaimTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: String,
    #[serde(default)]
    forwards: bool,
    devices: BTreeMap<String, Vec<Prefix>>,
    #[serde(default)]
    via: Vec<IpAddr>,
}

impl From<HostTable> for CustomHost {
    fn from(HostTable { name, forwards, devices, via: gateways }: HostTable) -> Self {
        let devices = devices.into_iter().map(|(name, addresses)| HostDevice {
            name,
            addresses: addresses.into_iter().map(|Prefix(address, bits)| (address, bits)).collect(),
        });
        Self { name, forwards, devices: devices.collect(), gateways }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTable {
    #[serde(deserialize_with = "just")]
    ends: [String; 2],
    #[serde(default = "usual_mtu")]
    mtu: u16,
    #[serde(default)]
    offloads: bool,
}

/// Deserializes a list with exactly `COUNT` elements. Serde alone would accept a longer list.
fn just<'de, D: Deserializer<'de>, T: Deserialize<'de>, const COUNT: usize>(
    list: D,
) -> Result<[T; COUNT], D::Error> {
    let list = Vec::deserialize(list)?;
    let count = list.len();
    list.try_into().map_err(|_| {
        D::Error::custom(format!(
            "found {}, expected {COUNT}",
            units::count(count as u64, "element")
        ))
    })
}

fn usual_mtu() -> u16 {
    1500
}

impl From<WireTable> for CustomWire {
    fn from(WireTable { ends, mtu, offloads }: WireTable) -> Self {
        Self { ends, mtu, offloads }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingTable {
    name: String,
    #[serde(default)]
    path: BTreeMap<String, Table>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct MeasureTable {
    from: String,
    to: String,
    to_address: Option<IpAddr>,
    #[serde(default)]
    runs: Runs,
    #[serde(default)]
    time: RunTime,
    #[serde(default)]
    connections: Connections,
    #[serde(default = "usual_congestion")]
    congestion: String,
    #[serde(default, deserialize_with = "two_if_any")]
    cpus: Option<[usize; 2]>,
}

fn two_if_any<'de, D: Deserializer<'de>>(list: D) -> Result<Option<[usize; 2]>, D::Error> {
    just(list).map(Some)
}

fn usual_congestion() -> String {
    "cubic".into()
}

impl MeasureTable {
    fn traffic(&self, network: &CustomNetwork) -> Result<CustomTraffic, String> {
        let host = |name: &String| {
            let found = network.hosts.iter().position(|host| host.name == *name);
            found.ok_or_else(|| format!("no host \"{name}\""))
        };
        let hosts = [host(&self.from)?, host(&self.to)?];
        let devices = network.hosts[hosts[1]].devices.iter();
        let mut own = devices.flat_map(|device| &device.addresses).map(|(address, _)| *address);
        let to = match self.to_address {
            Some(wanted) => own.find(|address| *address == wanted),
            None => own.next(),
        };
        let to = to.ok_or_else(|| match self.to_address {
            Some(wanted) => format!("host {} has no address {wanted}", self.to),
            None => format!("host {} has no address", self.to),
        })?;
        let (connections, congestion) = (self.connections.0, self.congestion.clone());
        Ok(CustomTraffic { hosts, to, connections, congestion, processors: self.cpus })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ClaimTable {
    text: String,
    setting: String,
    beside: Option<String>,
    figure: String,
    at_least: Option<f64>,
    under: Option<f64>,
}

impl ClaimTable {
    fn claim(self, settings: &[&str]) -> Result<CustomClaim, String> {
        let Self { text, setting, beside, figure, at_least, under } = self;
        if let Some(unknown) =
            beside.iter().chain([&setting]).find(|name| !settings.contains(&name.as_str()))
        {
            return Err(format!("no setting \"{unknown}\""));
        }
        let known = Figure::ALL.iter().find(|(_, name)| *name == figure);
        let (figure, _) = known.ok_or_else(|| {
            let names: Vec<&str> = Figure::ALL.iter().map(|(_, name)| *name).collect();
            format!("no figure \"{figure}\"; figures are {}", names.join(", "))
        })?;
        let bound = match (at_least, under) {
            (Some(least), None) => Than::AtLeast(least),
            (None, Some(most)) => Than::Under(most),
            _ => return Err("a claim needs exactly one bound: at-least or under".into()),
        };
        Ok(CustomClaim { text, setting, beside, figure: *figure, bound })
    }
}

/// Address with its prefix length: `10.93.0.1/24`.
struct Prefix(IpAddr, u8);

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(address, bits)| {
            let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (bits <= most).then_some(Self(address, bits))
        });
        let expected = || format!("\"{text}\": expected an address with its prefix: 10.93.0.1/24");
        parsed.ok_or_else(|| D::Error::custom(expected()))
    }
}

struct Runs(usize);

impl Default for Runs {
    fn default() -> Self {
        Self(3)
    }
}

impl<'de> Deserialize<'de> for Runs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u16::deserialize(deserializer)? {
            runs @ 1..=1000 => Ok(Self(runs.into())),
            _ => Err(D::Error::custom("runs must be from 1 to 1000")),
        }
    }
}

struct Connections(usize);

impl Default for Connections {
    fn default() -> Self {
        Self(1)
    }
}

impl<'de> Deserialize<'de> for Connections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u16::deserialize(deserializer)? {
            connections @ 1..=1000 => Ok(Self(connections.into())),
            _ => Err(D::Error::custom("connections must be from 1 to 1000")),
        }
    }
}

struct RunTime(Duration);

impl Default for RunTime {
    fn default() -> Self {
        Self(Duration::from_secs(1))
    }
}

impl<'de> Deserialize<'de> for RunTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = parse_run_ns(&String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        Ok(Self(Duration::from_nanos(time)))
    }
}

/// Maximum file size in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a setting's name in characters: the width of its table column.
const NAME_CHARACTERS_MAX: usize = 24;

#[cfg(test)]
#[path = "custom_file_tests.rs"]
mod tests;
