//! Keywords for addresses, and for forwarding among several peers.

use std::net::IpAddr;

use grosso_io::stage::{Forwarding, REMOTES_MAX};

use super::{Description, Form, Keyword, Kind, Value};
use crate::tunnel::{kind::ETHERNET, value::link_address};

pub(super) const ROWS: &[Keyword] = &[
    Keyword::new(
        "local",
        "local A",
        &Kind::ALL,
        Form::Address,
        |tunnel, value| {
            if let Value::Address(local) = value {
                tunnel.endpoint.local = *local;
            }
        },
        |tunnel| Some(Value::Address(tunnel.endpoint.local)),
    )
    .required("an IP address"),
    Keyword::new(
        "remote",
        "remote A ...",
        &Kind::ALL,
        Form::Addresses,
        |tunnel, value| {
            if let Value::Addresses(remotes) = value
                && let [first, more @ ..] = &remotes[..]
            {
                tunnel.endpoint.remote = *first;
                let more = (!more.is_empty()).then_some(more);
                tunnel.forwarding = more.map(|more| Forwarding::new(more.iter().copied()));
            }
        },
        |tunnel| Some(Value::Addresses(tunnel.remotes().collect())),
    )
    .required("an IP address")
    .check(|tunnel, _, _| check_remotes(tunnel)),
    Keyword::new(
        "fdb",
        "[fdb LLADDR A ...]",
        ETHERNET,
        Form::Entries,
        |tunnel, value| {
            if let (Some(forwarding), Value::Entries(entries)) = (&mut tunnel.forwarding, value) {
                forwarding.configured.clone_from(entries);
            }
        },
        |tunnel| {
            let configured = &tunnel.forwarding.as_ref()?.configured;
            (!configured.is_empty()).then(|| Value::Entries(configured.clone()))
        },
    )
    .check(|tunnel, _, _| match &tunnel.forwarding {
        None => Err("fdb needs several remotes, but there is only one".to_owned()),
        Some(forwarding) => check_entries(tunnel, &forwarding.configured),
    }),
    Keyword::new(
        "learning",
        "[[no]learning: on]",
        ETHERNET,
        Form::Switch,
        |tunnel, value| {
            if let Some(forwarding) = tunnel.forwarding.as_mut().filter(|_| !value.is_on()) {
                forwarding.age_ns = None;
            }
        },
        |tunnel| Some(Value::Switch(tunnel.forwarding.as_ref()?.age_ns.is_some())),
    ),
    Keyword::new(
        "ageing",
        "[ageing SECONDS: 300]",
        ETHERNET,
        Form::Number(0, u32::MAX as u64, &[]),
        |tunnel, value| {
            // As in Linux, an aging time of 0 keeps learned addresses forever.
            let age_ns =
                |seconds: u64| if seconds == 0 { u64::MAX } else { seconds * NS_PER_SECOND };
            if let (Some(forwarding), Some(seconds)) = (&mut tunnel.forwarding, value.number()) {
                // Without learning, addresses do not expire.
                forwarding.age_ns = forwarding.age_ns.map(|_| age_ns(seconds));
            }
        },
        |tunnel| match tunnel.forwarding.as_ref()?.age_ns? {
            u64::MAX => Some(Value::Number(0)),
            age_ns => Some(Value::Number(age_ns / NS_PER_SECOND)),
        },
    ),
    Keyword::new(
        "maxaddress",
        "[maxaddress N: 4096]",
        ETHERNET,
        Form::Number(1, ADDRESSES_MAX, &[]),
        |tunnel, value| {
            if let (Some(forwarding), Some(most)) = (&mut tunnel.forwarding, value.number()) {
                forwarding.addresses_max = most;
            }
        },
        |tunnel| Some(Value::Number(tunnel.forwarding.as_ref()?.addresses_max as u64)),
    )
    .synonyms(&["maxaddr"]),
];

fn check_remotes(tunnel: &Description) -> Result<(), String> {
    let (kind, local) = (tunnel.kind, tunnel.endpoint.local);
    let remotes: Vec<IpAddr> = tunnel.remotes().collect();
    check_addresses(kind, local, tunnel.endpoint.remote)?;
    if tunnel.forwarding.is_some() && !tunnel.endpoint.carries_ethernet() {
        let kind = kind.name();
        return Err(format!(
            "several remotes require a tunnel that carries Ethernet frames, unlike {kind}"
        ));
    }
    if remotes.len() > REMOTES_MAX {
        return Err(format!("too many remotes: {}; the limit is {REMOTES_MAX}", remotes.len()));
    }
    for (place, remote) in remotes.iter().enumerate() {
        check_addresses(kind, local, *remote)?;
        if remotes[..place].contains(remote) {
            return Err(format!("remote {remote} is configured twice"));
        }
    }
    Ok(())
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

fn check_entries(tunnel: &Description, entries: &[([u8; 6], IpAddr)]) -> Result<(), String> {
    for (place, (link, remote)) in entries.iter().enumerate() {
        let link_text = link_address(link);
        if link[0] & 1 == 1 || *link == [0; 6] {
            return Err(format!("fdb {link_text}: not a unicast Ethernet address"));
        }
        if !tunnel.remotes().any(|other| other == *remote) {
            return Err(format!(
                "fdb {link_text} {remote}: {remote} is not a remote of this tunnel"
            ));
        }
        if entries[..place].iter().any(|(other, _)| other == link) {
            return Err(format!("fdb {link_text} is configured twice"));
        }
    }
    Ok(())
}

/// Maximum number of addresses that a tunnel can be configured to learn, which take about 128 MiB.
const ADDRESSES_MAX: u64 = 1 << 20;
const NS_PER_SECOND: u64 = 1_000_000_000;
