//! The meaning of the keywords: from keywords to a tunnel endpoint of the engine, and back.

use core::{fmt, ops::RangeInclusive};
use std::net::IpAddr;

use grosso::tunnel::{
    Carrier, DontFragment, Dscp, Endpoint, Header, IpVersion, RemoteChecksumUse, TimeToLive, Udp,
};
use grosso_io::stage::{Forwarding, MTU_MIN_IPV4, MTU_MIN_IPV6, REMOTES_MAX};
use grosso_wire::{geneve, gue, vxlan};

use super::{
    value::{Value, link_address},
    words::{Kind, Words},
};

/// A tunnel endpoint, with settings that the engine does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Type of the tunnel.
    pub kind: Kind,
    /// Endpoint, as the engine takes it.
    pub endpoint: Endpoint,
    /// Remote endpoints, if there are several.
    pub forwarding: Option<Forwarding>,
    /// Whether echo requests probe the MTU of the path.
    pub probes: bool,
    /// Minimum path MTU that reduces the tunnel's MTU, in bytes from the outer IP header on.
    pub mtu_min: Option<u16>,
}

impl TryFrom<&Words> for Description {
    type Error = String;

    fn try_from(words: &Words) -> Result<Self, String> {
        let kind = words.kind;
        let (local, remote) = (words.address("local")?, words.address("remote")?);
        check_addresses(kind, local, remote)?;
        let mut endpoint = Endpoint::new(local, remote, header(words)?, carrier(words, remote)?);
        endpoint.version = version(words)?;
        endpoint.ttl = ttl(words);
        endpoint.dscp = dscp(words)?;
        endpoint.dont_fragment = dont_fragment(words, remote)?;
        endpoint.flow_label = flow_label(words, remote)?;
        endpoint.encapsulation_limit = encapsulation_limit(words, &endpoint)?;
        endpoint.check().map_err(|contradiction| contradiction.to_string())?;
        let forwarding = forwarding(words, &endpoint)?;
        Ok(Self {
            kind,
            endpoint,
            forwarding,
            probes: probes(words)?,
            mtu_min: mtu_min(words, remote)?,
        })
    }
}

impl Description {
    /// Returns the keywords that describe the tunnel, including those with default values.
    pub fn words(&self) -> Words {
        let mut words = Words::new(self.kind);
        let (kind, end) = (self.kind, &self.endpoint);
        words.put("local", Value::Address(end.local));
        words.put("remote", Value::Addresses(self.remotes().collect()));
        self.put_forwarding(&mut words);
        let ttl = match end.ttl {
            TimeToLive::Fixed(ttl) => Value::Number(ttl.into()),
            TimeToLive::Inherit => Value::Choice("inherit"),
        };
        words.put("ttl", ttl);
        let tos = match end.dscp {
            Dscp::Fixed(dscp) => Value::Number(u64::from(dscp) << 2),
            Dscp::Inherit => Value::Choice("inherit"),
        };
        words.put("tos", tos);
        if let Some(label) = end.flow_label {
            words.put("flowlabel", Value::Number(label.into()));
        }
        let is_over_ipv6 = end.remote.is_ipv6();
        match end.dont_fragment {
            _ if is_over_ipv6 => {}
            DontFragment::Set if kind.has_port() => words.put("df", Value::Choice("set")),
            DontFragment::Inherit if kind.has_port() => words.put("df", Value::Choice("inherit")),
            _ if kind.has_port() => words.put("df", Value::Choice("unset")),
            dont_fragment => {
                words.put("pmtudisc", Value::Switch(dont_fragment == DontFragment::Set));
                if dont_fragment == DontFragment::Ignored {
                    words.put("ignore-df", Value::Switch(true));
                }
            }
        }
        if !self.probes {
            words.put("probe", Value::Switch(false));
        }
        if let Some(mtu_min) = self.mtu_min {
            words.put("mtu-min", Value::Number(mtu_min.into()));
        }
        if kind.is_over_ipv6() == Some(true) {
            let limit = end.encapsulation_limit.map(|limit| Value::Number(limit.into()));
            words.put("encaplimit", limit.unwrap_or(Value::Choice("none")));
        }
        self.put_header(&mut words);
        self.put_carrier(&mut words);
        words
    }

    /// Returns the addresses of all remote endpoints, that of the main endpoint first.
    pub fn remotes(&self) -> impl Iterator<Item = IpAddr> {
        let more = self.forwarding.iter().flat_map(|forwarding| &forwarding.remotes);
        core::iter::once(self.endpoint.remote).chain(more.map(|remote| remote.address))
    }

    fn put_forwarding(&self, words: &mut Words) {
        let Some(Forwarding { configured, age_ns, addresses_max, .. }) = &self.forwarding else {
            return;
        };
        if !configured.is_empty() {
            words.put("fdb", Value::Entries(configured.clone()));
        }
        words.put("learning", Value::Switch(age_ns.is_some()));
        match age_ns {
            None => {}
            Some(u64::MAX) => words.put("ageing", Value::Number(0)),
            Some(age_ns) => words.put("ageing", Value::Number(age_ns / NS_PER_SECOND)),
        }
        words.put("maxaddress", Value::Number(*addresses_max as u64));
    }

    /// Returns whether both tunnels are directly in IP and take some of the same packets.
    pub fn takes_same(&self, other: &Self) -> bool {
        let is_bare = |end: &Self| matches!(end.endpoint.carrier, Carrier::Ip);
        let (one, two) = (&self.endpoint, &other.endpoint);
        let is_same = match (&one.header, &two.header) {
            (
                Header::Gre { key, ethernet, .. },
                Header::Gre { key: other, ethernet: frames, .. },
            ) => (key, ethernet) == (other, frames),
            (Header::Ip, Header::Ip) => {
                one.version.is_none() || two.version.is_none() || one.version == two.version
            }
            _ => false,
        };
        let meets = |remote| other.remotes().any(|other| other == remote);
        is_same
            && is_bare(self)
            && is_bare(other)
            && one.local == two.local
            && self.remotes().any(meets)
    }

    /// Returns whether both tunnels receive at one UDP port of one address, which belongs to one socket.
    pub fn shares_port(&self, other: &Self) -> bool {
        let port = |end: &Endpoint| end.udp().map(|udp| (end.local, udp.destination));
        let own = port(&self.endpoint);
        own.is_some() && own == port(&other.endpoint)
    }

    /// Returns whether one tunnel always sends from a UDP port at which the other receives, or from which the other
    /// always sends.
    pub fn sends_from_port_of(&self, other: &Self) -> bool {
        let ports = |end: &Self| {
            let udp = end.endpoint.udp();
            let only = |udp: &Udp| (udp.source.len() == 1).then_some(*udp.source.start());
            [udp.and_then(only), udp.map(|udp| udp.destination)]
        };
        let ([from, at], [other_from, other_at]) = (ports(self), ports(other));
        let is_one = |port: Option<u16>, other: Option<u16>| port.is_some() && port == other;
        self.endpoint.local == other.endpoint.local
            && (is_one(from, other_from) || is_one(from, other_at) || is_one(at, other_from))
    }

    /// Returns the number of sockets from which each of this many queues can send, each with a source port of its own;
    /// 0 if there are too few ports, `None` if the tunnel needs none.
    pub fn senders(&self, queues: usize) -> Option<usize> {
        let Udp { source, destination, .. } = self.endpoint.udp()?;
        // A tunnel that sends from the port at which it receives has one socket for both.
        let is_shared = *source == (*destination..=*destination);
        // A socket's share of the ports must contain one for each queue, even the share that includes the receive port.
        let needed = queues + usize::from(source.contains(destination));
        (!is_shared).then(|| source.len() / needed)
    }

    /// Returns the mode keyword for packets in a tunnel without a header of its own.
    pub(super) fn mode(&self) -> &'static str {
        let mode = modes(self.kind).iter().find(|(_, version)| *version == self.endpoint.version);
        mode.map_or("any", |(mode, _)| mode)
    }

    fn put_header(&self, words: &mut Words) {
        match &self.endpoint.header {
            Header::Ip => words.put("mode", Value::Choice(self.mode())),
            Header::Gre { key, checksum, sequence, .. } => {
                if let Some(key) = key {
                    words.put("key", Value::Number((*key).into()));
                }
                words.put("csum", Value::Switch(*checksum));
                words.put("seq", Value::Switch(*sequence));
            }
            Header::Vxlan { identifier, policy, generic_protocol } => {
                words.put("id", Value::Number((*identifier).into()));
                match policy {
                    Some(0) => words.put("gbp", Value::Switch(true)),
                    Some(policy) => words.put("gbp", Value::Number((*policy).into())),
                    None => {}
                }
                if *generic_protocol {
                    words.put("gpe", Value::Switch(true));
                }
            }
            Header::Geneve { identifier, options, inherit_protocol } => {
                words.put("id", Value::Number((*identifier).into()));
                if !options.is_empty() {
                    words.put("geneve_opts", Value::Options(options.clone()));
                }
                if *inherit_protocol {
                    words.put("innerprotoinherit", Value::Switch(true));
                }
            }
        }
    }

    fn put_carrier(&self, words: &mut Words) {
        let is_over_ipv6 = self.endpoint.remote.is_ipv6();
        let udp = match &self.endpoint.carrier {
            Carrier::Ip => return,
            Carrier::Udp(udp) if self.kind.has_port() => return self.put_udp(udp, words),
            Carrier::Udp(udp) => {
                words.put("encap", Value::Choice("fou"));
                udp
            }
            Carrier::Gue(udp) | Carrier::DirectGue(udp) => {
                words.put("encap", Value::Choice("gue"));
                let is_direct = matches!(self.endpoint.carrier, Carrier::DirectGue(_));
                if is_direct {
                    words.put("encap-variant", Value::Number(1));
                } else {
                    words.put("encap-remcsum", Value::Switch(udp.remote_checksum.transmit));
                }
                if udp.remote_checksum.complete {
                    words.put("encap-remcsumpartial", Value::Switch(false));
                }
                udp
            }
        };
        let source = if udp.source.start() == udp.source.end() {
            Value::Number((*udp.source.start()).into())
        } else {
            Value::Choice("auto")
        };
        words.put("encap-sport", source);
        words.put("encap-dport", Value::Number(udp.destination.into()));
        let checksum = if is_over_ipv6 { "encap-csum6" } else { "encap-csum" };
        words.put(checksum, Value::Switch(udp.checksum));
    }

    fn put_udp(&self, udp: &Udp, words: &mut Words) {
        words.put("srcport", Value::Ports(*udp.source.start(), *udp.source.end()));
        words.put("dstport", Value::Number(udp.destination.into()));
        if self.endpoint.remote.is_ipv6() {
            words.put("udp6zerocsumtx", Value::Switch(!udp.checksum));
            words.put("udp6zerocsumrx", Value::Switch(udp.ipv6_without_checksum));
        } else {
            words.put("udpcsum", Value::Switch(udp.checksum));
        }
        let RemoteChecksumUse { transmit, receive, complete } = udp.remote_checksum;
        for (name, is_on) in [("remcsumtx", transmit), ("remcsumrx", receive)] {
            if is_on {
                words.put(name, Value::Switch(true));
            }
        }
        if complete {
            words.put("remcsumpartial", Value::Switch(false));
        }
    }

    /// Returns the name of this endpoint in counters and messages: `ipip:192.0.2.2`, `vxlan:42:192.0.2.2`.
    pub fn name(&self) -> String {
        let kind = self.kind.name();
        let remote = self.endpoint.remote;
        match &self.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                format!("{kind}:{identifier}:{remote}")
            }
            Header::Gre { key: Some(key), .. } => format!("{kind}:{key}:{remote}"),
            Header::Ip | Header::Gre { .. } => format!("{kind}:{remote}"),
        }
    }

    /// Returns a short description of the tunnel, for example `ipip over gue, remcsum`.
    pub fn summary(&self) -> String {
        let carrier = match &self.endpoint.carrier {
            Carrier::Udp(_) if !self.kind.has_port() => " over fou",
            Carrier::Gue(_) => " over gue",
            Carrier::DirectGue(_) => " over gue variant 1",
            Carrier::Ip | Carrier::Udp(_) => "",
        };
        let offload = self.endpoint.udp().is_some_and(|udp| udp.remote_checksum.transmit);
        let remote = if offload { ", remcsum" } else { "" };
        let identifier = match &self.endpoint.header {
            Header::Vxlan { identifier, .. } | Header::Geneve { identifier, .. } => {
                format!(" {identifier}")
            }
            Header::Gre { key: Some(key), .. } => format!(" key {key}"),
            Header::Ip | Header::Gre { .. } => String::new(),
        };
        format!("{}{identifier}{carrier}{remote}", self.kind.name())
    }
}

/// Prints the keywords after `type`.
impl fmt::Display for Description {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(formatter)
    }
}

fn check_addresses(kind: Kind, local: IpAddr, remote: IpAddr) -> Result<(), String> {
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(format!("local {local} and remote {remote} must both be IPv4 or both be IPv6"));
    }
    if remote.is_multicast() || remote.is_unspecified() {
        return Err(format!("remote {remote} is not a unicast address"));
    }
    if local == remote {
        return Err(format!("local and remote are both {remote}: packets would loop back"));
    }
    match (kind.is_over_ipv6(), remote.is_ipv6()) {
        (Some(false), true) => Err(format!(
            "{} needs an IPv4 remote, not {remote}; for IPv6 use ip6tnl, ip6gre or ip6gretap",
            kind.name()
        )),
        (Some(true), false) => Err(format!(
            "{} needs an IPv6 remote, not {remote}; for IPv4 use ipip, sit, gre or gretap",
            kind.name()
        )),
        _ => Ok(()),
    }
}

/// Returns the forwarding among several remote endpoints; `None` if there is only one.
fn forwarding(words: &Words, endpoint: &Endpoint) -> Result<Option<Forwarding>, String> {
    let remotes = match words.value("remote") {
        Some(Value::Addresses(remotes)) => &remotes[..],
        _ => &[],
    };
    let (kind, more) = (words.kind, remotes.get(1..).unwrap_or_default());
    let configured = match words.value("fdb") {
        Some(Value::Entries(entries)) => &entries[..],
        _ => &[],
    };
    if more.is_empty() {
        return match configured {
            [] => Ok(None),
            _ => Err("fdb needs several remotes, but there is only one".to_owned()),
        };
    }
    if !endpoint.carries_ethernet() {
        let kind = kind.name();
        return Err(format!(
            "several remotes need a tunnel of Ethernet frames, which {kind} is not"
        ));
    }
    if remotes.len() > REMOTES_MAX {
        return Err(format!("too many remotes: {}; the limit is {REMOTES_MAX}", remotes.len()));
    }
    for (place, remote) in remotes.iter().enumerate() {
        check_addresses(kind, endpoint.local, *remote)?;
        if remotes[..place].contains(remote) {
            return Err(format!("remote {remote} is configured twice"));
        }
    }
    for (place, (link, remote)) in configured.iter().enumerate() {
        let link_text = link_address(link);
        if link[0] & 1 == 1 || *link == [0; 6] {
            return Err(format!("fdb {link_text}: not a unicast Ethernet address"));
        }
        if !remotes.contains(remote) {
            return Err(format!(
                "fdb {link_text} {remote}: {remote} is not a remote of this tunnel"
            ));
        }
        if configured[..place].iter().any(|(other, _)| other == link) {
            return Err(format!("fdb {link_text} is configured twice"));
        }
    }
    let mut forwarding = Forwarding::new(more.iter().copied());
    forwarding.configured = configured.to_vec();
    if let Some(seconds) = words.number("ageing") {
        // As in Linux, an ageing time of 0 keeps learned addresses forever.
        forwarding.age_ns = Some(if seconds == 0 { u64::MAX } else { seconds * NS_PER_SECOND });
    }
    if let Some(most) = words.number("maxaddress") {
        forwarding.addresses_max = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if words.switch("learning") == Some(false) {
        forwarding.age_ns = None;
    }
    Ok(Some(forwarding))
}

fn header(words: &Words) -> Result<Header, String> {
    let identifier = || match words.number("id").map(u32::try_from) {
        Some(Ok(identifier)) => Ok(identifier),
        _ => Err("id is missing: expected the network identifier (VNI)".to_owned()),
    };
    match words.kind {
        Kind::Vxlan => {
            let policy = match words.value("gbp") {
                Some(Value::Switch(true)) => Some(0),
                Some(Value::Number(policy)) => u16::try_from(*policy).ok(),
                _ => None,
            };
            let generic_protocol = words.switch("gpe") == Some(true);
            if policy.is_some() && generic_protocol {
                return Err("gbp and gpe cannot be combined".to_owned());
            }
            Ok(Header::Vxlan { identifier: identifier()?, policy, generic_protocol })
        }
        Kind::Geneve => {
            let options = match words.value("geneve_opts") {
                Some(Value::Options(options)) => options.clone(),
                _ => Vec::new(),
            };
            let inherit_protocol = words.switch("innerprotoinherit") == Some(true);
            Ok(Header::Geneve { identifier: identifier()?, options, inherit_protocol })
        }
        Kind::Gre | Kind::Gretap | Kind::Ip6gre | Kind::Ip6gretap => Ok(Header::Gre {
            key: key(words)?,
            checksum: both_ways(words, ["csum", "icsum", "ocsum"])?,
            sequence: both_ways(words, ["seq", "iseq", "oseq"])?,
            ethernet: matches!(words.kind, Kind::Gretap | Kind::Ip6gretap),
        }),
        Kind::Ipip | Kind::Sit | Kind::Ip6tnl => Ok(Header::Ip),
    }
}

/// Returns the GRE key, which both directions share.
fn key(words: &Words) -> Result<Option<u32>, String> {
    let [both, inward, outward] = ["key", "ikey", "okey"].map(|name| words.number(name));
    let shown = |key: Option<u64>| key.map_or_else(|| "no".to_owned(), |key| format!("key {key}"));
    let (inward, outward) = (inward.or(both), outward.or(both));
    if inward != outward {
        let (inward, outward) = (shown(inward), shown(outward));
        return Err(format!("{inward} inwards and {outward} outwards, but key sets both"));
    }
    Ok(inward.and_then(|key| u32::try_from(key).ok()))
}

/// Returns the value of a switch that `ip` also has for each direction.
fn both_ways(words: &Words, names: [&'static str; 3]) -> Result<bool, String> {
    let [both, inward, outward] = names;
    let usual = words.switch(both);
    let is_on = |name: &str| words.switch(name).or(usual).unwrap_or(false);
    if is_on(inward) == is_on(outward) {
        return Ok(is_on(inward));
    }
    Err(format!("{inward} and {outward} differ, but {both} sets both directions"))
}

fn carrier(words: &Words, remote: IpAddr) -> Result<Carrier, String> {
    if words.kind.has_port() {
        return udp(words, remote).map(Carrier::Udp);
    }
    let encap = match words.choice("encap") {
        Some(encap @ ("fou" | "gue")) => encap,
        _ => {
            let others = ["encap-sport", "encap-dport", "encap-csum", "encap-remcsum"];
            let is_set =
                |name: &&str| words.value(name).is_some_and(|value| *value != Value::Switch(false));
            return match others.iter().find(|name| is_set(name)) {
                Some(name) => Err(format!("{name} needs encap fou or encap gue")),
                None => Ok(Carrier::Ip),
            };
        }
    };
    let is_direct = words.number("encap-variant") == Some(1);
    if encap == "fou" && words.number("encap-variant").is_some() {
        return Err("encap-variant needs encap gue, not encap fou".to_owned());
    }
    if is_direct && words.kind.is_gre() {
        let kind = words.kind.name();
        return Err(format!("encap-variant 1 carries IP packets only, not {kind}"));
    }
    let udp = encapsulation(words, remote, encap, is_direct)?;
    Ok(match encap {
        "fou" => Carrier::Udp(udp),
        _ if is_direct => Carrier::DirectGue(udp),
        _ => Carrier::Gue(udp),
    })
}

/// Returns the UDP header that `encap` adds to a tunnel that does not need one.
fn encapsulation(
    words: &Words,
    remote: IpAddr,
    encap: &str,
    is_direct: bool,
) -> Result<Udp, String> {
    let offload = words.switch("encap-remcsum") == Some(true);
    if offload && (encap == "fou" || is_direct) {
        let what = if is_direct { "encap-variant 1" } else { "encap fou" };
        return Err(format!("encap-remcsum requires a GUE header, and {what} has none"));
    }
    let said = match remote {
        IpAddr::V4(_) => words.switch("encap-csum"),
        IpAddr::V6(_) => words.switch("encap-csum6").or_else(|| words.switch("encap-csum")),
    };
    if offload && said == Some(false) {
        return Err("noencap-csum and encap-remcsum cannot be combined: packets would have no \
                    checksum, inside or outside"
            .to_owned());
    }
    let checksum = said.unwrap_or(true);
    let has_room = encap == "gue" && !is_direct;
    let destination = match port(words, "encap-dport") {
        Some(port) => port,
        None if encap == "gue" => gue::PORT,
        None => return Err("encap-dport is missing: encap fou has no default port".to_owned()),
    };
    let source = port(words, "encap-sport").map_or(SOURCE_PORTS, |port| port..=port);
    let remote_checksum = RemoteChecksumUse {
        transmit: offload,
        // As in Linux, an endpoint that accepts GUE accepts this; it must be protected (rule C54).
        receive: has_room && checksum,
        complete: has_room && words.switch("encap-remcsumpartial") == Some(false),
    };
    let ipv6_without_checksum = remote.is_ipv6() && !checksum;
    Ok(Udp { source, destination, checksum, ipv6_without_checksum, remote_checksum })
}

/// Returns the UDP header of a tunnel that always has one.
fn udp(words: &Words, remote: IpAddr) -> Result<Udp, String> {
    let is_on = |name: &str| words.switch(name) == Some(true);
    let over_ipv6 = ["udp6zerocsumtx", "udp6zerocsumrx"];
    if let Some(name) = over_ipv6.into_iter().find(|name| is_on(name) && remote.is_ipv4()) {
        return Err(format!("{name} applies to IPv6 only; for IPv4 use noudpcsum"));
    }
    if words.switch("udpcsum") == Some(false) && remote.is_ipv6() && !is_on("udp6zerocsumtx") {
        return Err("noudpcsum applies to IPv4 only; for IPv6 use udp6zerocsumtx".to_owned());
    }
    let (checksum, off) = match remote {
        IpAddr::V4(_) => (words.switch("udpcsum").unwrap_or(true), "noudpcsum"),
        IpAddr::V6(_) => (!is_on("udp6zerocsumtx"), "udp6zerocsumtx"),
    };
    if let Some(name) = ["remcsumtx", "remcsumrx"].into_iter().find(|name| is_on(name)) {
        if is_on("gpe") {
            return Err(format!(
                "gpe and {name} cannot be combined: they use the same header field"
            ));
        }
        if !checksum {
            return Err(format!(
                "{off} and {name} cannot be combined: packets would have no checksum, inside or \
                 outside"
            ));
        }
    }
    if words.switch("remcsumpartial") == Some(false) && !is_on("remcsumrx") {
        return Err("noremcsumpartial needs remcsumrx".to_owned());
    }
    let usual = match words.kind {
        Kind::Geneve => geneve::PORT,
        _ if is_on("gpe") => vxlan::PORT_GPE,
        _ => vxlan::PORT,
    };
    let source = match words.value("srcport") {
        Some(Value::Ports(low, high)) => *low..=*high,
        _ => SOURCE_PORTS,
    };
    Ok(Udp {
        source,
        destination: port(words, "dstport").unwrap_or(usual),
        checksum,
        ipv6_without_checksum: is_on("udp6zerocsumrx"),
        remote_checksum: RemoteChecksumUse {
            transmit: is_on("remcsumtx"),
            receive: is_on("remcsumrx"),
            complete: words.switch("remcsumpartial") == Some(false),
        },
    })
}

fn port(words: &Words, name: &str) -> Option<u16> {
    words.number(name).and_then(|port| u16::try_from(port).ok())
}

fn ttl(words: &Words) -> TimeToLive {
    match words.number("ttl").map(u8::try_from) {
        Some(Ok(ttl)) => TimeToLive::Fixed(ttl),
        _ if words.choice("ttl") == Some("inherit") => TimeToLive::Inherit,
        _ => TimeToLive::Fixed(TTL),
    }
}

fn dscp(words: &Words) -> Result<Dscp, String> {
    match words.number("tos").map(u8::try_from) {
        // The kernel's value for inherit.
        Some(Ok(1)) => Ok(Dscp::Inherit),
        Some(Ok(tos)) if tos & 3 == 0 => Ok(Dscp::Fixed(tos >> 2)),
        Some(Ok(tos)) => Err(format!(
            "tos {tos:#04x}: the two lowest bits must be 0, because ECN is copied from the \
             packet (RFC 6040)"
        )),
        _ => Ok(Dscp::Inherit),
    }
}

fn dont_fragment(words: &Words, remote: IpAddr) -> Result<DontFragment, String> {
    if let Some(word) = words.choice("df") {
        return match word {
            _ if remote.is_ipv6() => {
                Err(format!("df {word} applies to IPv4 only, and remote is {remote}"))
            }
            "unset" => Ok(DontFragment::Unset),
            "inherit" => Ok(DontFragment::Inherit),
            _ => Ok(DontFragment::Set),
        };
    }
    if words.kind.has_port() {
        // The default of ip link.
        return Ok(DontFragment::Unset);
    }
    let ignores = words.switch("ignore-df") == Some(true);
    match (words.switch("pmtudisc").unwrap_or(true), ignores) {
        (true, false) => Ok(DontFragment::Set),
        (true, true) => Err("ignore-df and pmtudisc cannot be combined: nopmtudisc".to_owned()),
        // As in Linux: if the inner packet must not be fragmented, neither must the outer one.
        (false, false) => Ok(DontFragment::Inherit),
        (false, true) => Ok(DontFragment::Ignored),
    }
}

/// Returns whether the path is probed: unless an option forbids it.
fn probes(words: &Words) -> Result<bool, String> {
    match (words.switch("probe"), words.switch("pmtudisc")) {
        (Some(true), Some(false)) => Err("probe and nopmtudisc cannot be combined".to_owned()),
        (probe, discovers) => Ok(probe.or(discovers).unwrap_or(true)),
    }
}

/// Returns the minimum of the path MTU, which leaves room for the requirements of the outer protocol.
fn mtu_min(words: &Words, remote: IpAddr) -> Result<Option<u16>, String> {
    let least = if remote.is_ipv4() { MTU_MIN_IPV4 } else { MTU_MIN_IPV6 };
    match words.number("mtu-min").map(u16::try_from) {
        Some(Ok(mtu)) if usize::from(mtu) < least => {
            Err(format!("mtu-min {mtu}: the minimum for {remote} is {least}"))
        }
        Some(Ok(mtu)) => Ok(Some(mtu)),
        _ => Ok(None),
    }
}

fn flow_label(words: &Words, remote: IpAddr) -> Result<Option<u32>, String> {
    match words.number("flowlabel").map(u32::try_from) {
        Some(Ok(label)) if remote.is_ipv4() => {
            Err(format!("flowlabel {label:#x} applies to IPv6 only, and remote is {remote}"))
        }
        Some(Ok(label)) => Ok(Some(label)),
        _ => Ok(None),
    }
}

fn encapsulation_limit(words: &Words, endpoint: &Endpoint) -> Result<Option<u8>, String> {
    let is_bare = matches!(endpoint.carrier, Carrier::Ip);
    match words.number("encaplimit").map(u8::try_from) {
        Some(Ok(limit)) if is_bare => Ok(Some(limit)),
        Some(Ok(limit)) => {
            Err(format!("encaplimit {limit} cannot be combined with encap; use encaplimit none"))
        }
        _ if words.choice("encaplimit").is_some() => Ok(None),
        _ if words.kind.is_over_ipv6() == Some(true) && is_bare => Ok(Some(ENCAPSULATION_LIMIT)),
        _ => Ok(None),
    }
}

fn version(words: &Words) -> Result<Option<IpVersion>, String> {
    let (mode, there) = (words.choice("mode").unwrap_or("any"), modes(words.kind));
    let found = there.iter().find(|(word, _)| *word == mode).map(|(_, version)| *version);
    found.ok_or_else(|| {
        let (kind, words) = (words.kind.name(), there.iter().map(|(word, _)| *word));
        let words = words.collect::<Vec<_>>().join(", ");
        format!("mode {mode} does not apply to {kind}; expected {words}")
    })
}

/// Returns the modes of a type, and the IP version of the packets in each.
const fn modes(kind: Kind) -> &'static [(&'static str, Option<IpVersion>)] {
    match kind {
        Kind::Ipip => &[("any", None), ("ipip", Some(IpVersion::V4))],
        Kind::Sit => {
            &[("any", None), ("ip6ip", Some(IpVersion::V6)), ("ipip", Some(IpVersion::V4))]
        }
        Kind::Ip6tnl => {
            &[("any", None), ("ip6ip6", Some(IpVersion::V6)), ("ipip6", Some(IpVersion::V4))]
        }
        _ => &[("any", None)],
    }
}

/// Source ports of packets: those for dynamic use (RFC 6335 section 6). Linux uses 32768 to 60999 by default.
const SOURCE_PORTS: RangeInclusive<u16> = 49152..=65535;
/// Default TTL or hop limit: that of Linux for tunnels over IPv6 and for unicast.
const TTL: u8 = 64;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Default encapsulation limit (rule W61).
const ENCAPSULATION_LIMIT: u8 = 4;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
